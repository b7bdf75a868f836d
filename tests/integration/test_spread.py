"""A namespace whose keys are spread over several PostgreSQL clusters: each call goes where its key lives, what is about the whole namespace is
of all, and a cluster that is away leaves the keys of the others alone."""
import hashlib
import subprocess
import urllib.parse

import grpc
import pytest

import harness
from console import Console
from databases import Site, listed, name, rows, write_settings
from leasehold.v1 import schedule_pb2, schedule_pb2_grpc
from harness import acquire_request, fails, health, lease_ref, pb, release_request, scope, wait_until
from streams import BOUND, Reading

NAMES = ("home", "eu")
KEYS = [f"k{number:02}" for number in range(24)]


def place(key, names=NAMES):
    """Where src/service/places/spread.h says."""
    slot = int(hashlib.sha256(key.encode()).hexdigest()[:3], 16)
    return max(names, key=lambda name: hashlib.sha256(f"{name} {slot}".encode()).digest())


OF = {name: [key for key in KEYS if place(key) == name] for name in NAMES}


def write_spread(path, site, spread="jobs", **settings):
    """The sections home, the default, and eu, which has orders too."""
    write_settings(path, site.sections, **settings)
    path.write_text("".join(f"{line}\n{'spread = ' + spread if line.startswith('namespaces') else ''}\n" for line in path.read_text().splitlines()))
    return str(path)


@pytest.fixture(scope="module")
def other():
    cluster = harness.Cluster(migrated=True)
    yield cluster
    cluster.destroy()


def start(cluster, other, path, **settings):
    site = Site(cluster, other, path)
    site.close()
    site.daemon = harness.Daemon("--config", write_spread(path, site, **settings))
    site.client = harness.Client(site.daemon.target)
    site.wait()
    return site


@pytest.fixture(scope="module")
def site(cluster, other, tmp_path_factory):
    site = start(cluster, other, tmp_path_factory.mktemp("site") / "leasehold.ini")
    yield site
    site.close()


@pytest.fixture(autouse=True)
def clean(request):
    """No lease of a test is in the way of the next."""
    yield
    if "site" in request.fixturenames:
        site = request.getfixturevalue("site")
        for lease in {name(lease): lease for lease in listed(site)}.values():
            site.client.admin.ForceRelease(pb.ForceReleaseRequest(scope=lease.scope, all=True, reason="the test is over"))


def namespace(name):
    return pb.Namespace(segments=name.split(".") if name else [])


def by_cluster(site, keys, namespace="jobs"):
    """What each cluster has, and what it should have."""
    return [rows(site, name) for name in NAMES], [[f"{namespace}/{key}" for key in keys if place(key) == name] for name in NAMES]


# --- one key ---


def test_a_lease_is_in_the_database_of_its_key(site):
    assert all(len(keys) > 5 for keys in OF.values())
    leases = [site.acquire("jobs", key) for key in KEYS]
    has, should = by_cluster(site, KEYS)
    assert has == should
    slot = "('x' || substr(encode(sha256(convert_to(key, 'UTF8')), 'hex'), 1, 3))::bit(12)::int"
    in_sql = f"""select (select n from unnest('{{{','.join(NAMES)}}}'::text[]) n order by sha256(convert_to(n || ' ' || {slot}, 'UTF8')) desc limit 1)
                   from unnest('{{{','.join(KEYS)}}}'::text[]) key"""
    assert site.psql("home", in_sql).split() == [place(key) for key in KEYS]
    answer = site.client.lease.Heartbeat(pb.HeartbeatRequest(leases=map(lease_ref, leases)))
    assert [(result.outcome, result.lease_key) for result in answer.results] == [(pb.OUTCOME_OK, lease.lease_key) for lease in leases]
    answer = site.client.lease.Release(release_request(*leases))
    assert [result.outcome for result in answer.results] == [pb.OUTCOME_OK] * len(leases)
    assert by_cluster(site, [])[0] == [[], []]


def test_equal_keys_below_the_namespace_are_in_one_database(site):
    for key in KEYS[:6]:
        site.acquire("jobs.eu", key)
        items = [pb.AcquireItem(scope=scope(name, key)) for name in ("jobs", "jobs.us.x")]
        request = pb.AcquireAllRequest(items=items, duration=harness.duration(30))
        assert len(site.client.lease.AcquireAll(request, timeout=BOUND).leases) == 2
        assert sorted(rows(site, place(key))) == sorted(f"{name}/{key}" for name in ("jobs", "jobs.eu", "jobs.us.x"))
        for lease in listed(site):
            site.client.admin.ForceRelease(pb.ForceReleaseRequest(scope=lease.scope, reason="r"))


@pytest.mark.parametrize("cluster_name", NAMES)
def test_what_concerns_one_lease_goes_where_it_is(site, cluster_name):
    key = OF[cluster_name][0]
    lease = site.acquire("jobs", key, owner="w1")
    got = site.client.lease.GetLease(pb.GetLeaseRequest(scope=scope("jobs", key)))
    assert (got.lease.token, got.lease.owner) == (lease.token, "w1")
    waiting = site.client.lease.Acquire.future(acquire_request("jobs", key, wait=BOUND))
    console = Console(site.daemon.admin_port)
    wait_until(lambda: console.get(f"/scope?namespace=jobs&key={key}").json["explain"]["waiters"] == 1, BOUND, "the waiter")
    asked = site.client.lease.AskHandOver(pb.AskHandOverRequest(scope=scope("jobs", key), reason="please"))
    assert [holder.token for holder in asked.holders] == [lease.token]
    wait_until(lambda: harness.heartbeat(site.client, lease).HasField("asked"), BOUND, "the holder hearing of it")
    refused = site.client.lease.RefuseHandOver(pb.RefuseHandOverRequest(lease=lease_ref(lease), reason="no"))
    assert refused.asked.refusal == "no"
    down = site.client.lease.Downgrade(pb.DowngradeRequest(lease=lease_ref(lease), units=1))
    assert down.lease.units == 1 and harness.heartbeat(site.client, lease).outcome == pb.OUTCOME_OK
    forced = site.client.admin.ForceRelease(pb.ForceReleaseRequest(scope=scope("jobs", key), reason="r"))
    assert forced.lease.token == down.lease.token
    assert waiting.result(BOUND).lease.token > lease.token
    assert rows(site, cluster_name) == [f"jobs/{key}"]


@pytest.mark.parametrize("cluster_name", NAMES)
def test_a_stream_holds_what_it_asked_for(site, stream, cluster_name):
    key = OF[cluster_name][1]
    held = stream(site.client.lease.Hold, pb.HoldRequest(acquire=acquire_request("jobs", key, seconds=6), by_ping=True))
    assert held.next().granted.scope.key == key
    wait_until(lambda: site.psql(cluster_name, "select max(heartbeats) > 1 from leasehold.scope") == "t", BOUND, "its renewals")
    assert rows(site, cluster_name) == [f"jobs/{key}"]
    held.close()
    wait_until(lambda: not rows(site, cluster_name), BOUND, "the release")


def test_keys_of_two_databases_are_not_acquired_together(site):
    keys = [OF["home"][0], OF["home"][1], OF["eu"][0]]
    items = [pb.AcquireItem(scope=scope("jobs", key)) for key in keys]
    request = pb.AcquireAllRequest(items=items[:2], duration=harness.duration(30))
    assert len(site.client.lease.AcquireAll(request, timeout=BOUND).leases) == 2
    with fails() as failure:
        site.client.lease.AcquireAll(pb.AcquireAllRequest(items=items, duration=harness.duration(30)), timeout=BOUND)
    assert failure.value.code == grpc.StatusCode.INVALID_ARGUMENT
    assert "must be in one database with the others: items[0] lives in home, this one in eu" in failure.value.message
    assert failure.value.bad_request.field_violations[0].field == "items[2].scope"
    assert rows(site, "eu") == []


# --- the whole namespace ---


@pytest.mark.parametrize("page_size", [1, 2, 5, 1000])
def test_a_list_is_of_all_databases_in_the_order_of_keys(site, page_size):
    names = [name(site.acquire(namespace, key))
             for namespace in ("a", "jobs", "jobs-x", "jobs.a", "jobs.b", "jobs/x", "orders", "z") for key in KEYS[:8]]
    shared = OF["eu"][-1]
    for _ in range(3):
        names.insert(names.index("jobs-x/k00"), name(site.acquire("jobs", shared, mode=pb.MODE_SHARED)))
    stray = "insert into leasehold.scope select (jsonb_populate_record(s, '{\"key\": \"%s\"}')).* from leasehold.scope s where namespace like 'jobs%%' and key = '%s'"
    site.psql("eu", stray % (OF["home"][-1], OF["eu"][0]))
    assert [name(lease) for lease in listed(site, page_size=page_size)] == names
    assert [name(lease) for lease in listed(site, "jobs", page_size=page_size)] == [each for each in names if each.startswith("jobs/k")]
    assert [name(lease) for lease in listed(site, "jobs", page_size=page_size, include_children=True)] == [
        each for each in names if each.startswith(("jobs/k", "jobs."))]
    assert [name(lease) for lease in listed(site, "jobs.b", page_size=page_size)] == [f"jobs.b/{key}" for key in KEYS[:8]]
    assert [name(lease) for lease in listed(site, page_size=page_size, search="k07")] == [each for each in names if "k07" in each]
    site.psql("eu", f"delete from leasehold.scope where key = '{OF['home'][-1]}'")


def test_a_watch_is_of_all_databases(site):
    keys = [OF["home"][0], OF["eu"][0]]
    held = [site.acquire("jobs", key) for key in keys]
    watch = Reading(site.client.lease.WatchLeases(pb.WatchLeasesRequest(namespace=["jobs"], include_initial=True)))
    watch.read()
    assert [watch.next().lease.scope.key for _ in keys] == sorted(keys)
    assert watch.next().type == pb.LeaseEvent.TYPE_SYNCED
    site.psql("home", f"""create temp table kept as select slots from leasehold.spread;
                          update leasehold.spread set slots = decode(repeat('ff', 512), 'hex');
                          select leasehold.acquire('jobs', '{OF['eu'][1]}', '1 h');  -- does not live there
                          update leasehold.spread set slots = k.slots from kept k""")
    site.client.lease.Release(release_request(*held))
    assert {(event.type, event.lease.token) for event in (watch.next(), watch.next())} == {
        (pb.LeaseEvent.TYPE_RELEASED, lease.token) for lease in held}
    site.psql("home", f"delete from leasehold.scope where key = '{OF['eu'][1]}'")
    watch.call.cancel()


@pytest.mark.parametrize("page_size", [1, 2, 100])
def test_the_console_adds_up_what_all_databases_have(site, page_size):
    console = Console(site.daemon.admin_port)

    def pages(path, field):
        found, page_token = [], ""
        while True:
            page = console.get(f"{path}page_size={page_size}&page_token={urllib.parse.quote(page_token)}").json
            found += page[field]
            page_token = page["next_page_token"]
            if not page_token:
                return found

    for space in ("a", "jobs", "jobs.x", "z"):
        for key in KEYS[:8]:
            site.acquire(space, key)
    waiting = [site.client.lease.Acquire.future(acquire_request("jobs", key, wait=BOUND)) for key in KEYS[:8]]
    wait_until(lambda: site.client.admin.GetStatus(pb.GetStatusRequest()).waiters == 8, BOUND, "the waiters")
    wait_until(lambda: len(pages("/queue?namespace=jobs&", "waiters")) == 8, BOUND, "their rows")
    counts = [(".".join(row["namespace"]["segments"]), row["held"], row["waiting"]) for row in pages("/namespaces?", "namespaces")]
    assert counts == [("a", "8", "0"), ("jobs", "8", "8"), ("jobs.x", "8", "0"), ("z", "8", "0")]
    assert [row["held"] for row in pages("/namespaces?namespace=jobs&", "namespaces")] == ["8"]
    for call in waiting:
        call.cancel()
    wait_until(lambda: not pages("/queue?namespace=jobs&", "waiters"), BOUND, "the waiters having gone")
    status = site.client.admin.GetStatus(pb.GetStatusRequest())
    assert [[".".join(each.segments) for each in database.namespaces] for database in status.databases] == [["jobs"], ["orders", "shop.eu", "jobs"]]


def test_a_policy_is_in_all_databases(site):
    def set_grace(seconds):
        request = pb.SetPolicyRequest(policy=pb.Policy(namespace=namespace("jobs"), grace=harness.duration(seconds)))
        request.update_mask.paths.append("grace")
        return site.client.admin.SetPolicy(request).effective.grace.seconds

    assert set_grace(7) == 7
    for database in NAMES:
        assert site.psql(database, "select grace from leasehold.policy where namespace = 'jobs'") == "00:00:07"
        key = OF[database][2]
        site.acquire("jobs", key)
        assert site.client.lease.GetLease(pb.GetLeaseRequest(scope=scope("jobs", key))).lease.grace.seconds == 7
    policies = site.client.admin.ListPolicies(pb.ListPoliciesRequest()).policies
    assert [".".join(policy.namespace.segments) for policy in policies if policy.namespace.segments] == ["jobs"]
    assert site.client.admin.GetPolicy(pb.GetPolicyRequest(namespace=namespace("jobs.x"))).source["grace"] == "jobs"
    with fails() as failure:  # of the bounds that the databases know
        request = pb.SetPolicyRequest(policy=pb.Policy(namespace=namespace("jobs"), min_duration=harness.duration(3600 * 24 * 365)))
        site.client.admin.SetPolicy(request)
    assert failure.value.code == grpc.StatusCode.INVALID_ARGUMENT
    for database in NAMES:
        site.psql(database, "delete from leasehold.policy where namespace = 'jobs'")


def test_a_schedule_is_in_one_database_only(site):
    schedules = schedule_pb2_grpc.ScheduleServiceStub(site.client.channel)
    schedule = schedule_pb2.Schedule(namespace=namespace("jobs.nightly"), expression="* * * * *")
    for call in (lambda: schedules.SetSchedule(schedule_pb2.SetScheduleRequest(schedule=schedule)),
                 lambda: schedules.ClaimTick(schedule_pb2.ClaimTickRequest(namespace=namespace("jobs")))):
        with fails() as failure:
            call()
        assert failure.value.code == grpc.StatusCode.INVALID_ARGUMENT
        assert "must live in one database, as a schedule and its ticks do: jobs" in failure.value.message


def test_a_rule_is_in_all_databases(cluster, other, tmp_path):
    site = start(cluster, other, tmp_path / "leasehold.ini", authorization="yes")
    site.psql("home", "select leasehold.access_grant('anonymous', '', 'admin')")

    def may_lease(key):
        try:
            site.acquire("jobs", key)
            return True
        except grpc.RpcError as error:
            assert harness.Failure(error).reason == "ACCESS_DENIED", error
            return False

    def grant():
        site.client.admin.GrantAccess(pb.GrantAccessRequest(principal="dns:w*", namespace=namespace("jobs"), rights=[pb.RIGHT_LEASE]))

    def rules(database):
        return site.psql(database, "select principal from leasehold.access_rule where namespace = 'jobs'").split()

    wait_until(lambda: may_lease("first"), BOUND, "the rule of all namespaces")
    grant()
    assert [rules(name) for name in NAMES] == [["dns:w*"]] * 2
    found = site.client.admin.ListAccess(pb.ListAccessRequest()).rules
    assert [(rule.principal, ".".join(rule.namespace.segments)) for rule in found] == [("anonymous", ""), ("dns:w*", "jobs")]
    site.client.admin.RevokeAccess(pb.RevokeAccessRequest(principal="dns:w*", namespace=namespace("jobs")))
    assert [rules(name) for name in NAMES] == [[], []]
    site.close()


# --- one is away ---


def test_a_cluster_that_is_killed_leaves_the_other_keys_alone(cluster, other, tmp_path):
    site = start(cluster, other, tmp_path / "leasehold.ini")
    kept = [site.acquire("jobs", OF[name][0], seconds=600) for name in NAMES]
    for database in NAMES:
        site.psql(database, "select leasehold.access_grant('anonymous', 'jobs', 'lease')")
    policy = pb.SetPolicyRequest(policy=pb.Policy(namespace=namespace("jobs"), grace=harness.duration(7)))
    other.stop("immediate")
    try:
        wait_until(lambda: health(site.client, "database/eu") == "NOT_SERVING", BOUND, "eu being away")
        for key in OF["home"][1:]:
            lease = site.acquire("jobs", key)
            assert site.client.lease.Release(release_request(lease)).results[0].outcome == pb.OUTCOME_OK
        answer = site.client.lease.Heartbeat(pb.HeartbeatRequest(leases=map(lease_ref, kept)), timeout=BOUND)
        assert [result.outcome for result in answer.results] == [pb.OUTCOME_OK, pb.OUTCOME_RETRY]
        for call in (lambda: site.acquire("jobs", OF["eu"][1]), lambda: listed(site, "jobs"),
                     lambda: site.client.lease.GetLease(pb.GetLeaseRequest(scope=scope("jobs", OF["eu"][1]))),
                     lambda: site.client.admin.SetPolicy(policy)):
            with fails() as failure:
                call()
            assert failure.value.reason == "DATABASE_UNAVAILABLE" and "the database eu is unavailable" in failure.value.message
        assert site.client.lease.GetLease(pb.GetLeaseRequest(scope=scope("jobs", OF["home"][0]))).lease.token == kept[0].token
        assert site.psql("home", "select count(*) from leasehold.policy where namespace = 'jobs'") == "0"  # the change did not begin
        assert site.client.admin.GetPolicy(pb.GetPolicyRequest(namespace=namespace("jobs"))).effective.grace.seconds == 1

        # Started while one is away: the rules of the others are those of the namespace too.
        late = harness.Daemon("--config", write_spread(tmp_path / "late.ini", site, authorization="yes"))
        client = harness.Client(late.target)
        wait_until(lambda: health(client, "database/home") == "SERVING", BOUND, "the late daemon being ready")
        assert client.lease.Acquire(acquire_request("jobs", OF["home"][1])).lease.token > 0
        for space, reason in (("jobs", "ACCESS_DENIED"), ("orders", "DATABASE_UNAVAILABLE")):
            with fails() as failure:
                client.admin.ForceRelease(pb.ForceReleaseRequest(scope=scope(space, OF["home"][1]), reason="r"))
            assert failure.value.reason == reason
        client.close()
        assert late.stop() == 0, late.log()
    finally:
        other.start()
    wait_until(lambda: health(site.client, "database/eu") == "SERVING", BOUND, "eu being back")
    assert harness.heartbeat(site.client, kept[1]).outcome == pb.OUTCOME_OK
    assert site.client.admin.SetPolicy(policy).effective.grace.seconds == 7
    site.close()


# --- another cluster for a part of the keys ---


def test_the_keys_of_one_section_move_to_another_cluster(cluster, other, tmp_path):
    """Both sections are databases of one cluster at first."""
    site = start(cluster, cluster, tmp_path / "leasehold.ini")
    old, new = site.url("eu"), other.url(other.create_database(migrated=True))
    site.psql("eu", "select setval('leasehold.token', last_value + (1::bigint << 50)) from leasehold.token")
    held = {name: site.acquire("jobs", OF[name][0], seconds=120) for name in NAMES}
    released = site.acquire("jobs", OF["eu"][1])
    site.client.lease.Release(release_request(released))

    def move(step):
        said = subprocess.run([str(harness.ROOT / "deploy/move-namespace"), step, "jobs", old, new],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
        assert said.returncode == 0, said.stdout

    def check_frozen():
        assert site.acquire("jobs", OF["home"][1]).token > 0  # those of the other section go on
        site.client.admin.ForceRelease(pb.ForceReleaseRequest(scope=scope("jobs", OF["home"][1]), reason="r"))
        with fails() as failure:
            site.acquire("jobs", OF["eu"][2])
        assert failure.value.reason == "NAMESPACE_FROZEN"
        for lease in held.values():
            beat = wait_until(lambda lease=lease: harness.heartbeat(site.client, lease), BOUND)
            assert beat.outcome == pb.OUTCOME_OK, beat

    move("start")
    check_frozen()
    site.client.close()
    assert site.daemon.stop() == 0, site.daemon.log()
    site.sections = [(name, new if name == "eu" else url, *more) for name, url, *more in site.sections]
    write_spread(site.path, site)
    site.daemon.start()
    site.client = harness.Client(site.daemon.target)
    site.wait()
    check_frozen()
    move("finish")
    assert [name(lease) for lease in listed(site, "jobs")] == sorted(name(lease) for lease in held.values())
    assert site.acquire("jobs", OF["eu"][1]).token > released.token
    assert site.client.lease.Release(release_request(held["eu"])).results[0].outcome == pb.OUTCOME_OK
    assert site.acquire("jobs", OF["eu"][0]).token > held["eu"].token
    assert rows(site, "eu") == []  # of the old database
    site.close()
