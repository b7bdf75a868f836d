"""Who may what in SQL, from one table: every public function and everything that can be read in schema leasehold, in every
namespace that differs by something, as roles that are named by rules in every way. Denied is LH007 access_denied."""
import re
import uuid

import pytest

import harness
from access_site import literal
from access_table import Model, Rule

P = "acl_" + uuid.uuid4().hex[:6] + "_"  # roles belong to the whole cluster
RIGHTS = ("read", "lease", "guard", "admin")
KEYS = ("missing", "held", "waited")

# The rights of which each public function needs one; None: to be a member of leasehold_admin, whatever the rules say.
FUNCTIONS = {
    "acquire": ("lease", "leasehold.acquire({ns}, {key}, '30 s')"),
    "acquire_all": ("lease", "leasehold.acquire_all(array[{ns}, {ns}], array[{key}, 'other'], '30 s')"),
    "downgrade": ("lease", "leasehold.downgrade({ns}, {key}, gen_random_uuid())"),
    "heartbeat": ("lease", "leasehold.heartbeat({ns}, {key}, gen_random_uuid())"),
    "release_ok": ("lease", "leasehold.release_ok({ns}, {key}, gen_random_uuid())"),
    "release_fail": ("lease", "leasehold.release_fail({ns}, {key}, gen_random_uuid(), 'x')"),
    "join_queue": ("lease", "leasehold.join_queue({ns}, {key}, gen_random_uuid())"),
    "leave_queue": ("lease", "leasehold.leave_queue({ns}, {key}, gen_random_uuid())"),
    "end_reason": ("lease", "leasehold.end_reason({ns}, {key}, gen_random_uuid())"),
    "guard": ("guard lease", "leasehold.guard({ns}, {key}, 1)"),
    "claim_tick": ("lease", "leasehold.claim_tick({ns}, {key})"),
    "until_tick": ("lease", "leasehold.until_tick({ns})"),
    "ask_hand_over": ("admin", "leasehold.ask_hand_over({ns}, {key})"),
    "refuse_hand_over": ("lease", "leasehold.refuse_hand_over({ns}, {key}, gen_random_uuid(), 'x')"),
    "explain": ("read", "leasehold.explain({ns}, {key})"),
    "contention": ("read", "leasehold.contention(array[{ns}], array[{key}])"),
    "heartbeat_each": ("lease", "leasehold.heartbeat_each(array[{ns}], array[{key}], array[gen_random_uuid()])"),
    "release_each": ("lease", "leasehold.release_each(array[{ns}], array[{key}], array[gen_random_uuid()], array[true], array['x'])"),
    "acquire_one": ("lease", "leasehold.acquire_one({ns}, {key}, 30, 'x', gen_random_uuid(), '{{}}', null, 'exclusive', 1, 0)"),
    "leave_each": ("lease", "leasehold.leave_each(array[{ns}], array[{key}], array[gen_random_uuid()])"),
    "ask_each": ("admin", "leasehold.ask_each({ns}, {key}, null, 'x')"),
    "downgrade_soon": ("lease", "leasehold.downgrade_soon({ns}, {key}, gen_random_uuid())"),
    "reap": (None, "leasehold.reap(array[{ns}])"),
    "force_release": (None, "leasehold.force_release({ns}, {key}, 'x', 1)"),
    "set_policy": (None, "leasehold.set_policy({ns}, grace => '1 s')"),
    "reset_policy": (None, "leasehold.reset_policy({ns})"),
    "set_schedule": (None, "leasehold.set_schedule({ns}, '@daily')"),
    "pause_schedule": (None, "leasehold.pause_schedule({ns})"),
    "remove_schedule": (None, "leasehold.remove_schedule({ns})"),
    "run_schedule_now": (None, "leasehold.run_schedule_now({ns})"),
    "bump_epoch": (None, "leasehold.bump_epoch()"),
    "access_grant": (None, "leasehold.access_grant('role:x', {ns}, 'read')"),
    "access_revoke": (None, "leasehold.access_revoke('role:x', {ns})"),
    "token_create": (None, "leasehold.token_create('x')"),
    "token_revoke": (None, "leasehold.token_revoke('x')"),
}
# They read nothing, or what a lease key opens, and may be called by everybody.
FREE = {"schedule_instants", "tick_channel", "asked", "asked_each", "granted"}
# For members of leasehold_owner alone.
OWNERS = {"set_audit_retention", "set_life_source", "add_hook", "remove_hook", "remove_hook_named"}
# What a member of leasehold_client can read at all.
RELATIONS = {"lease", "policy"}


class Role:
    """A login, and the principal by which its rules name it (none: no rules); groups from the one that it is in upwards."""

    def __init__(self, name, rule=None, groups=(), client=True):
        self.name, self.rule, self.groups, self.client = P + name, rule and "role:" + P + rule, [P + group for group in groups], client

    def __repr__(self):
        return self.name[len(P):]

    def principals(self):
        return ["role:" + name for name in (self.name, *self.groups)]

    def own(self, right):
        return f"{P}{self!r}-{right}.team"

    def namespaces(self):
        for right in RIGHTS:
            own = self.own(right)
            yield from (own, own + ".sub", own.split(".")[0], own + "s", own[:-1])


ROLES = [
    Role("exact", rule="exact"),
    Role("member", rule="group", groups=["group"]),
    Role("nested", rule="upper", groups=["lower", "upper"]),
    Role("app_one", rule="app_*"),
    Role("exactly"),
    Role("app"),
]
RULES = [Rule(role.rule, role.own(right), right) for role in ROLES if role.rule for right in RIGHTS] + [
    Rule("*", P + "commons", "read"), Rule("anonymous", P + "theirs", "lease"), Rule("token:" + P + "exact", P + "theirs", "lease")]
MODEL = Model(RULES, [])
FOREIGN = [P + "commons", P + "commons.sub", P + "theirs", P + "elsewhere"]


def may(role, rights, namespace):
    return any(MODEL.may(principal, right, namespace) for principal in role.principals() for right in rights.split())


class World:
    def __init__(self, cluster):
        self.cluster, self.database = cluster, cluster.create_database(migrated=True)
        daemon = harness.Daemon(database=cluster.url(self.database))  # its first life
        assert daemon.stop() == 0
        daemon.destroy()
        groups = sorted({group for role in ROLES for group in role.groups})
        self.psql("; ".join(f"create role {group} nologin" for group in groups))
        for role in ROLES:
            self.psql(f"create role {role.name} login in role leasehold_client")
            for inner, outer in zip([role.name, *role.groups], role.groups):
                self.psql(f"grant {outer} to {inner}")
        self.psql(f"create role {P}admin login in role leasehold_admin; create role {P}reader login in role leasehold_reader")
        self.namespaces = sorted({namespace for role in ROLES for namespace in role.namespaces()} | set(FOREIGN))
        names = ", ".join(f"({literal(namespace)})" for namespace in self.namespaces)
        self.psql(f"""
            select count(leasehold.set_policy(n, max_hold => '1 h')) from (values {names}) v (n);
            select count(*) from (values {names}) v (n), unnest(array['held', 'waited']) k,
              lateral leasehold.acquire(n, k, '1 h', owner => 'somebody-else');
            select count(*) from (values {names}) v (n), lateral leasehold.join_queue(n, 'waited', gen_random_uuid(), '1 h')""")

    def psql(self, sql, **more):
        return self.cluster.psql(sql, self.database, **more)

    def grant(self):
        self.psql(";".join("select leasehold.access_grant({}, {}, {})".format(
            literal(rule.principal), literal(rule.namespace), ", ".join(map(literal, rule.rights))) for rule in RULES))

    def session(self, user):
        session = self.cluster.session(self.database, user)
        session.run("\\set VERBOSITY verbose\nset statement_timeout = '60 s'")
        return session


@pytest.fixture(scope="module")
def cluster():
    """Of its own: roles stay behind."""
    cluster = harness.Cluster()
    yield cluster
    cluster.destroy()


@pytest.fixture(scope="module")
def world(cluster):
    world = World(cluster)
    world.grant()
    return world


def answers(session, call, cells):
    """Per (namespace, key): '' or the SQLSTATE, and all that was said but where in the source it was raised. In one go."""
    script = "".join("\\echo @@{}\nbegin; select * from {};\nrollback;\n".format(number, call.format(ns=literal(namespace), key=literal(key)))
                     for number, (namespace, key) in enumerate(cells))
    found = {}
    for part in session.run(script).split("@@")[1:]:
        number, _, said = part.partition("\n")
        state = re.search(r"^ERROR:\s+(\w{5}):", said, re.M)
        assert state or "ERROR" not in said, said
        found[cells[int(number)]] = (state.group(1) if state else "", re.sub(r"^LOCATION.*$", "", said, flags=re.M).strip())
    assert len(found) == len(cells)
    return found


def answer(session, call, ns, key):
    return answers(session, call, [(ns, key)])[ns, key]


def fault_of(name, right, role, namespace, said):
    """What is wrong with the answers of a function in a namespace, by key; None: nothing."""
    states = {state for state, _ in said.values()}
    if right is None:
        return None if states == {"42501"} else states
    if may(role, right, namespace):
        return None if not states & {"LH007", "42501"} else states
    words = {text.replace(key, "KEY") for key, (_, text) in said.items()}
    is_right = states == {"LH007"} and len(words) == 1 and "access_denied" in str(words) and "somebody-else" not in str(words)
    return None if is_right else words


@pytest.mark.parametrize("role", ROLES, ids=str)
def test_each_function_is_allowed_or_denied_exactly(world, role):
    """A denial is the same for every scope of a namespace."""
    session, faults = world.session(role.name), []
    for name, (right, call) in FUNCTIONS.items():
        where = [FOREIGN[0]] if right is None else [*role.namespaces(), *(other.own(right) for other in ROLES if other is not role), *FOREIGN]
        said = answers(session, call, [(namespace, key) for namespace in where for key in KEYS])
        for namespace in where:
            fault = fault_of(name, right, role, namespace, {key: said[namespace, key] for key in KEYS})
            if fault:
                faults.append(f"{name} by {role} in {namespace}: {fault}")
    session.close()
    assert not faults, f"{len(faults)} cells are wrong:\n" + "\n".join(faults[:20])


@pytest.mark.parametrize("role", ROLES, ids=str)
def test_each_relation_shows_what_may_be_read_alone(world, role):
    read = {namespace for namespace in world.namespaces if may(role, "read", namespace)}
    above = {namespace for namespace in world.namespaces if any(below.startswith(namespace + ".") for below in read)}
    for relation, wanted in (("lease", read), ("policy", read | above)):  # of those above policies are inherited
        shown = set(world.psql(f"select distinct namespace from leasehold.{relation} where namespace like '{P}%'", user=role.name).split())
        assert shown == wanted, (relation, sorted(shown - wanted), sorted(wanted - shown))


def test_the_tables_have_everything_that_is_public(world):
    functions = set(world.psql("select distinct proname from pg_proc where pronamespace = 'leasehold'::regnamespace").split())
    assert functions == set(FUNCTIONS) | FREE | OWNERS
    for role, wanted in (("client", {name for name, (right, _) in FUNCTIONS.items() if right}), ("admin", set(FUNCTIONS))):
        granted = set(world.psql(f"select distinct proname from pg_proc where pronamespace = 'leasehold'::regnamespace"
                                 f" and has_function_privilege('leasehold_{role}', oid, 'execute')").split())
        assert granted == wanted | FREE, role
    readable = set(world.psql("select relname from pg_class where relnamespace = 'leasehold'::regnamespace and relkind in ('r', 'v', 'p', 'm', 'f')"
                              " and has_any_column_privilege('leasehold_client', oid, 'select')").split())
    assert readable == RELATIONS


def test_administrators_and_superusers_pass(world):
    for user in (P + "admin", "postgres"):
        session = world.session(user)
        for name, (_, call) in FUNCTIONS.items():
            state, said = answer(session, call, ns=P + "elsewhere", key="held")
            assert state not in ("LH007", "42501"), (user, name, said)
        session.close()
    for user, wanted in ((P + "admin", set(world.namespaces)), (P + "reader", {P + "commons", P + "commons.sub"})):
        assert set(world.psql("select distinct namespace from leasehold.lease", user=user).split()) == wanted


def test_set_role_and_settings_give_nothing(world):
    """It is the role that logged in: what it sets itself changes nothing."""
    role = ROLES[1]
    session = world.session(role.name)
    own, foreign = role.own("lease"), ROLES[0].own("lease")
    session.run(f"set role {role.groups[0]}")
    assert answer(session, "leasehold.acquire({ns}, {key}, '30 s')", ns=foreign, key="missing")[0] in ("LH007", "42501")
    session.run("reset role; set role leasehold_client")
    assert answer(session, "leasehold.acquire({ns}, {key}, '30 s')", ns=own, key="missing")[0] == ""
    assert answer(session, "leasehold.acquire({ns}, {key}, '30 s')", ns=foreign, key="missing")[0] == "LH007"
    session.run("reset role; set search_path = pg_temp, public; set leasehold.role = 'postgres'; set leasehold.principal = 'role:postgres'")
    session.run("create temp table access_rule as select 'role:' || session_user as principal, '' as namespace, array['lease'] as rights")
    assert answer(session, "leasehold.acquire({ns}, {key}, '30 s')", ns=foreign, key="missing")[0] == "LH007"
    session.close()


def test_a_denied_call_waits_for_nobody(world):
    """Nor does it lock anything: a scope whose row somebody keeps answers as any other."""
    role, namespace = ROLES[0], ROLES[1].own("lease")
    blocker, session = world.session("postgres"), world.session(role.name)
    blocker.run(f"begin; select 1 from leasehold.scope where namespace = {literal(namespace)} for update")
    session.run("set lock_timeout = '10 s'")
    for name in ("acquire", "heartbeat", "release_ok", "join_queue", "leave_queue", "guard", "explain"):
        assert answer(session, FUNCTIONS[name][1], ns=namespace, key="held")[0] == "LH007", name
    session.run(f"begin; {FUNCTIONS['guard'][1].format(ns=literal(namespace), key=literal('waited'))}")
    locks = world.psql("select count(*) from pg_locks l join pg_class c on c.oid = l.relation where c.relnamespace = 'leasehold'::regnamespace"
                       f" and l.pid in (select pid from pg_stat_activity where usename = '{role.name}') and mode <> 'AccessShareLock'")
    assert locks == "0"
    blocker.run("rollback")
    for each in (session, blocker):
        each.close()


def test_without_a_rule_for_a_role_every_client_may_all(cluster):
    """Rules for others, and one for everybody, name no role; the first that does turns it on, the last that goes turns it off."""
    database = cluster.create_database()
    daemon = harness.Daemon(database=cluster.url(database))
    assert daemon.stop() == 0
    daemon.destroy()
    user = P + "free"
    cluster.psql(f"create role {user} login in role leasehold_client", database)
    session = cluster.session(database, user)
    session.run("\\set VERBOSITY verbose\n")

    def state(namespace="any.where"):
        return answer(session, "leasehold.acquire({ns}, {key}, '30 s')", ns=namespace, key="k")[0]

    assert state() == ""
    cluster.psql("select leasehold.access_grant('*', 'elsewhere', 'lease'), leasehold.access_grant('token:t', 'x', 'lease'),"
                 " leasehold.access_grant('user:role:x', 'x', 'lease')", database)
    assert state() == ""
    cluster.psql("select leasehold.access_grant('role:somebody', 'x', 'read')", database)
    assert state() == "LH007"
    cluster.psql(f"select leasehold.access_grant('role:{user}', 'any', 'lease')", database)
    assert state() == "" and state("other") == "LH007"
    cluster.psql(f"select leasehold.access_revoke('role:{user}', 'any')", database)
    assert state() == "LH007"
    cluster.psql("select leasehold.access_revoke('role:somebody', 'x')", database)
    assert state() == ""
    session.close()


def test_rules_change_in_an_open_session_and_the_next_call_obeys(world):
    role, namespace = ROLES[4], P + "later"
    session = world.session(role.name)
    call = "leasehold.acquire({ns}, {key}, '30 s')"
    for _ in range(3):
        assert answer(session, call, ns=namespace, key="k")[0] == "LH007"
        world.psql(f"select leasehold.access_grant('role:{role.name}', '{namespace}', 'lease')")
        assert answer(session, call, ns=namespace, key="k")[0] == ""
        world.psql(f"select leasehold.access_revoke('role:{role.name}', '{namespace}')")
    session.close()


def test_a_daemon_needs_no_rule_for_its_own_role(world):
    world.psql(f"create role {P}daemon login in role leasehold_coordinator")
    daemon = harness.Daemon("--migrate=no", database=world.cluster.url(world.database, user=P + "daemon"))
    client = harness.Client(daemon.target)
    lease = client.lease.Acquire(harness.acquire_request(P + "elsewhere", "by-daemon", 30)).lease
    assert harness.heartbeat(client, lease).outcome == harness.pb.OUTCOME_OK
    assert client.lease.Release(harness.release_request(lease)).results[0].outcome == harness.pb.OUTCOME_OK
    client.close()
    assert daemon.stop() == 0
    daemon.destroy()
