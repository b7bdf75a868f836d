"""Who may what, from one table: every RPC, in every namespace that differs by something, as every kind of principal.

access_table.py is the table and the model of the rules; one daemon answers all of it. A cell that is denied carries the
code, the reason and who was denied what where, and is the same whatever there is in the scope.
"""
import concurrent.futures
import os
import pathlib
import pwd
import shutil

import grpc
import pytest

import harness
from access_table import (BOUND, ITEM, LISTING, NAMESPACE, ROOT, SCOPE, TABLE, Model, Rule, list_policies, tried)
from certificates import SERVER_NAMES, credentials, flags
from harness import Client, pb, wait_until
import rundir
from streams import keys

RIGHTS = ("read", "lease", "guard", "admin")
USER = "user:" + pwd.getpwuid(os.geteuid()).pw_name


class Caller:
    """One who calls: `principal` is what the daemon must take it for, `rule` the principal that its rules name (none: no
    rules), `base` the beginning of its namespaces."""

    def __init__(self, base, principal, rule, token=None, certificate=None, unix=False):
        self.base, self.principal, self.rule = base, principal, rule
        self.token, self.certificate, self.unix = token, certificate, unix

    def __repr__(self):
        return self.base

    def own(self, right):
        return f"{self.base}-{right}.team"

    def namespaces(self):
        """Per right: the namespace of its rule, below it, above it, and two beside it whose names begin alike."""
        for right in RIGHTS:
            own = self.own(right)
            yield from (own, own + ".sub", own + ".sub.deep", own.split(".")[0], own + "s", own[:-1])


CALLERS = [
    Caller("token", "token:exact", "token:exact", token="exact"),
    Caller("prefixed", "token:ci.build-7", "token:ci.*", token="ci.build-7"),
    Caller("dns", "dns:worker-1.example", "dns:worker-1.example", certificate="DNS:worker-1.example"),
    Caller("spiffe", "spiffe://site.example/ns/pay/sa/w", "spiffe://site.example/ns/pay/*",
           certificate="URI:spiffe://site.example/ns/pay/sa/w"),
    Caller("user", USER, USER, unix=True),
    Caller("anonymous", "anonymous", "anonymous"),
    # A token decides, whatever else there is.
    Caller("both", "token:both", "token:both", token="both", certificate="DNS:worker-1.example"),
    # No rule names these, but some begin alike.
    Caller("longer", "token:exact.2", None, token="exact.2"),
    Caller("shorter", "token:ci", None, token="ci"),
    Caller("stranger", "spiffe://site.example/ns/payroll", None, certificate="URI:spiffe://site.example/ns/payroll"),
]
AUDITOR = Caller("auditor", "token:auditor", None, token="auditor")
ROOT_ADMIN = Caller("root-admin", "token:root.1", None, token="root.1")
RULES = [Rule(caller.rule, caller.own(right), right) for caller in CALLERS if caller.rule for right in RIGHTS] + [
    Rule("*", "commons", "read"), Rule("token:auditor", "", "read"), Rule("dns:worker-1.example", "shared", "read"),
    Rule("dns:*", "shared", "lease")]
MODEL = Model(RULES, ["token:root.*"])
FOREIGN = ["commons", "commons.sub", "commonsense", "shared", "elsewhere.team"]
KEYS = ("missing", "held", "waited")


def literal(text):
    return "'" + text.replace("'", "''") + "'"


def grants(rules):
    return ";".join("select leasehold.access_grant({}, {}, {})".format(
        literal(rule.principal), literal(rule.namespace), ", ".join(map(literal, rule.rights))) for rule in rules)


def make_token(cluster, database, name):
    return cluster.psql(f"select t.token from leasehold.token_create({literal(name)}) t", database).splitlines()[-1]


class World:
    """A daemon with rules on, and a client for each caller."""

    def __init__(self, cluster, authority):
        self.cluster, self.database, self.authority = cluster, cluster.create_database(migrated=True), authority
        self.sockets = pathlib.Path(rundir.mkdtemp("lh-u-"))
        self.sockets.chmod(0o755)
        self.daemon = harness.Daemon(
            *flags(authority.issue("matrix-server", SERVER_NAMES), authority), "--tls-client-auth", "request", "--authorization", "yes",
            "--admin-principals", "token:root.*", "--listen", f"127.0.0.1:0,unix:{self.sockets}/s", database=cluster.url(self.database))
        self.everybody = [*CALLERS, AUDITOR, ROOT_ADMIN]
        self.namespaces = sorted({namespace for caller in CALLERS for namespace in caller.namespaces()} | set(FOREIGN))
        self.psql(grants(RULES))
        self.fill()
        self.clients = {caller: self.connect(caller) for caller in self.everybody}
        self.metadata = {caller: caller.token and (("authorization", "Bearer " + make_token(cluster, self.database, caller.token)),)
                         for caller in self.everybody}
        self.wait_for_rules()

    def psql(self, sql):
        return self.cluster.psql(sql, self.database)

    def fill(self):
        """In each namespace a policy, a scope that is held and one that is waited for too."""
        names = ", ".join(f"({literal(namespace)})" for namespace in self.namespaces)
        self.psql(f"""
            select count(leasehold.set_policy(n, max_hold => '1 h')) from (values {names}, ('')) v (n);
            select count(*) from (values {names}) v (n), unnest(array['held', 'waited']) k,
              lateral leasehold.acquire(n, k, '1 h', owner => 'somebody-else');
            select count(*) from (values {names}) v (n), lateral leasehold.join_queue(n, 'waited', gen_random_uuid(), '1 h')""")
        self.leases = {(namespace, key) for namespace in self.namespaces for key in ("held", "waited")}
        self.policies = {*self.namespaces, ""}

    def connect(self, caller):
        if caller.unix:
            return Client(f"unix:{self.sockets}/s")
        name = "matrix-" + caller.base
        return Client(self.daemon.target, credentials(self.authority, caller.certificate and
                                                      self.authority.issue(name, caller.certificate)))

    def wait_for_rules(self):
        """The last that was changed is in force everywhere: the token that was made last is known."""
        last = self.everybody[-1]
        wait_until(lambda: tried(list_policies, self.clients[last], "", True, self.metadata[last])[1] is None, BOUND, "the rules")

    def close(self):
        for client in self.clients.values():
            client.close()
        assert self.daemon.stop() == 0, self.daemon.log()
        self.daemon.destroy()
        shutil.rmtree(self.sockets, ignore_errors=True)


@pytest.fixture(scope="module")
def world(cluster, authority):
    world = World(cluster, authority)
    yield world
    world.close()


# --- the cells ---


def asked_of(caller):
    """Its own namespaces, one of each other caller's, and those of nobody."""
    others = [other.own(right) for other in CALLERS if other is not caller for right in ("read", "lease", "admin")]
    return [*(caller.namespaces() if caller in CALLERS else ()), *others, *FOREIGN]


def denial(failure, caller, right, namespace):
    """What is wrong with this answer; None: it is what a denial must be."""
    wanted = {"principal": caller.principal, "right": right, **({"namespace": namespace} if namespace else {})}
    if failure is None:
        return "allowed"
    if (failure.code, failure.reason) != (grpc.StatusCode.PERMISSION_DENIED, "ACCESS_DENIED"):
        return f"{failure.code.name} {failure.reason}: {failure.message}"
    if failure.metadata != wanted:
        return f"metadata {failure.metadata}, not {wanted}"
    if failure.contention or failure.retry or failure.bad_request or "somebody-else" in failure.message:
        return f"it says too much: {failure.message}"
    return None


def scope_cell(world, row, caller, namespace):
    """One fault, or None."""
    call = lambda key: tried(row.call, world.clients[caller], namespace, key, world.metadata[caller])  # noqa: E731
    if MODEL.may(caller.principal, row.right, namespace):
        answers = {key: call(key if key != "missing" else keys()) for key in KEYS}
        wrong = {key: failure.message if failure else word for key, (word, failure) in answers.items() if word not in row.allowed}
        return f"answers {wrong}" if wrong else None
    said = set()
    for key in KEYS:
        failure = call(key)[1]
        fault = denial(failure, caller, row.right, namespace)
        if fault:
            return f"{key}: {fault}"
        said.add(failure.message.replace(key, "KEY"))
    return f"it tells the scopes apart: {said}" if len(said) > 1 else None


def namespace_cell(world, row, caller, namespace):
    word, failure = tried(row.call, world.clients[caller], namespace, world.metadata[caller])
    if MODEL.may(caller.principal, row.right, namespace):
        return None if word in row.allowed else f"{word}: {failure and failure.message}"
    return denial(failure, caller, row.right, namespace)


def within(namespace, target, is_deep):
    return target == "" or namespace == target or (is_deep and namespace.startswith(target + "."))


def listing_cell(world, row, caller, target, is_deep):
    shown, failure = tried(row.call, world.clients[caller], target, is_deep, world.metadata[caller])
    if not MODEL.may(caller.principal, row.right, target) and not (
            (is_deep or target == "") and MODEL.may_below(caller.principal, row.right, target)):
        return denial(failure, caller, row.right, target)
    if failure:
        return f"{failure.code.name} {failure.reason}: {failure.message}"
    if shown is None:
        return None
    everything = {(policy, None) for policy in world.policies} if row.call is list_policies else world.leases
    wanted = {each for each in everything if within(each[0], target, is_deep) and MODEL.may(caller.principal, row.right, each[0])}
    if row.call is list_policies:
        wanted = {namespace for namespace, _ in wanted}
    else:
        shown = {each for each in shown if each[1] in KEYS}  # others come and go with the other rows
    return None if shown == wanted else f"shows {sorted(shown - wanted)} too much, {sorted(wanted - shown)} too little"


def item_cells(world, row, caller):
    """All namespaces in one batch: each item has the answer of its own namespace."""
    scopes = [(namespace, key) for namespace in asked_of(caller) for key in KEYS]
    answer, failure = tried(row.call, world.clients[caller], scopes, world.metadata[caller])
    if failure:
        return [f"{row} by {caller}: {failure.code.name} {failure.message}"]
    faults, said = [], {}
    for (namespace, key), (word, result) in zip(scopes, answer):
        wanted = row.allowed if MODEL.may(caller.principal, row.right, namespace) else {"OUTCOME_DENIED"}
        if word not in wanted:
            faults.append(f"{row} by {caller} in {namespace}/{key}: {word}, not {wanted}")
        elif word == "OUTCOME_DENIED":
            said.setdefault(namespace, set()).add((result.message.replace(key, "KEY"), result.end_reason))
    return faults + [f"{row} by {caller} in {namespace}: it tells the scopes apart: {words}"
                     for namespace, words in said.items() if len(words) > 1]


def faults_of(world, row, caller):
    """Of all cells of a method and a caller."""
    where = asked_of(caller)
    if row.kind == ITEM:
        return item_cells(world, row, caller)
    if row.kind == SCOPE:
        cells = [(namespace, scope_cell(world, row, caller, namespace)) for namespace in where]
    elif row.kind == NAMESPACE:
        cells = [(namespace, namespace_cell(world, row, caller, namespace)) for namespace in [*where, ""]]
    elif row.kind == LISTING:
        targets = [("", True)] if row.call is list_policies else [(name, deep) for name in [*where, ""] for deep in (False, True)]
        cells = [(target, listing_cell(world, row, caller, *target)) for target in targets]
    else:
        word, failure = tried(row.call, world.clients[caller], world.metadata[caller])
        if row.kind == ROOT and not MODEL.may(caller.principal, row.right, ""):
            fault = denial(failure, caller, row.right, "")
        else:
            fault = None if word in row.allowed else f"{word}: {failure and failure.message}"
        cells = [("", fault)]
    return [f"{row} by {caller} in {namespace}: {fault}" for namespace, fault in cells if fault]


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_each_cell_is_allowed_or_denied_exactly(world, row):
    with concurrent.futures.ThreadPoolExecutor(len(world.everybody)) as pool:
        faults = sum(pool.map(lambda caller: faults_of(world, row, caller), world.everybody), [])
    assert not faults, f"{len(faults)} cells are wrong:\n" + "\n".join(faults[:20])


def test_the_table_has_every_method_that_a_client_can_call():
    """Health and reflection beside those of the proto."""
    methods = {f"{name}.{method.name}" for name, service in pb.DESCRIPTOR.services_by_name.items() for method in service.methods}
    assert methods == {row.method for row in TABLE if row.method.startswith(("LeaseService.", "AdminService."))}
    assert len({row.method for row in TABLE}) == len(TABLE)
    assert {row.right for row in TABLE} == {"read", "lease", "admin", None}


def test_the_model_denies_and_allows_in_every_row():
    """The table proves nothing where all cells are alike."""
    for row in TABLE:
        if row.kind in (SCOPE, ITEM, NAMESPACE, LISTING):
            for caller in CALLERS:
                cells = {MODEL.may(caller.principal, row.right, namespace) for namespace in asked_of(caller)}
                assert cells == ({True, False} if caller.rule or row.right == "read" else {False}), (row, caller)
