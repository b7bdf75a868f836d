"""Namespaces on several PostgreSQL clusters: each call goes where its namespace lives, lists and watches are of all, and a
cluster that is away leaves the others alone."""
import contextlib
import subprocess
import time
import urllib.parse
import urllib.request

import grpc
import pytest

import harness
from commandline import cli
from console import Console
from databases import AGE, Site, listed, name, rows, write_settings
from harness import acquire_request, fails, free_port, health, health_pb2, health_pb2_grpc, lease_ref, pb, readyz, release_request, scope, wait_until
from streams import BOUND, Reading

ACQUIRED = pb.LeaseEvent.TYPE_ACQUIRED
RELEASED = pb.LeaseEvent.TYPE_RELEASED
INITIAL = pb.LeaseEvent.TYPE_INITIAL
SYNCED = pb.LeaseEvent.TYPE_SYNCED
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture(scope="module")
def other():
    cluster = harness.Cluster(migrated=True)
    yield cluster
    cluster.destroy()


@pytest.fixture(scope="module")
def site(cluster, other, tmp_path_factory):
    site = Site(cluster, other, tmp_path_factory.mktemp("site") / "leasehold.ini")
    yield site
    site.close()


@pytest.fixture(autouse=True)
def clean(request):
    """No lease of a test is in the way of the next."""
    yield
    if "site" in request.fixturenames:
        site = request.getfixturevalue("site")
        for lease in listed(site):
            site.client.admin.ForceRelease(pb.ForceReleaseRequest(scope=lease.scope, reason="the test is over"))


# --- where things are ---


def test_a_lease_is_in_the_database_of_its_namespace(site):
    for namespace in ("orders", "orders.new", "orders-new", "shop", "shop.eu", "shop.eu.x", "shop.us", "other"):
        lease = site.acquire(namespace, "k")
        assert harness.heartbeat(site.client, lease).outcome == pb.OUTCOME_OK
    assert rows(site, "eu") == ["orders.new/k", "orders/k", "shop.eu.x/k", "shop.eu/k"]
    assert rows(site, "home") == ["orders-new/k", "other/k", "shop.us/k", "shop/k"]
    got = site.client.lease.GetLease(pb.GetLeaseRequest(scope=scope("shop.eu", "k")))
    assert got.lease.scope.namespace == ["shop", "eu"]


def test_one_call_has_leases_of_both(site):
    leases = [site.acquire(namespace, f"k{i}") for i in range(3) for namespace in ("orders", "other")]
    bad = pb.LeaseRef(scope=scope("orders", "k0"), lease_key="rubbish")
    answer = site.client.lease.Heartbeat(pb.HeartbeatRequest(leases=[*map(lease_ref, leases), bad]))
    assert [result.outcome for result in answer.results] == [pb.OUTCOME_OK] * 6 + [pb.OUTCOME_INVALID]
    assert [result.lease_key for result in answer.results[:6]] == [lease.lease_key for lease in leases]
    assert [result.heartbeats for result in answer.results[:6]] == [1] * 6
    answer = site.client.lease.Release(release_request(*leases, success='{"n": 1}'))
    assert [result.outcome for result in answer.results] == [pb.OUTCOME_OK] * 6
    answer = site.client.lease.Heartbeat(pb.HeartbeatRequest(leases=map(lease_ref, leases)))
    assert [(result.outcome, result.end_reason) for result in answer.results] == [
        (pb.OUTCOME_LOST, pb.END_REASON_RELEASED)] * 6
    assert all(result.message for result in answer.results)


def test_a_stream_of_heartbeats_has_leases_of_both(site):
    leases = [site.acquire("orders", "k"), site.acquire("other", "k")]
    requests = [pb.HeartbeatRequest(leases=map(lease_ref, leases)) for _ in range(5)]
    answers = list(site.client.lease.KeepAlive(iter(requests), timeout=BOUND))
    assert [[result.outcome for result in answer.results] for answer in answers] == [[pb.OUTCOME_OK] * 2] * 5


def test_a_waiter_gets_what_is_released(site):
    for namespace in ("orders", "other"):
        held = site.acquire(namespace, "wanted")
        waiting = site.client.lease.Acquire.future(acquire_request(namespace, "wanted", wait=BOUND))
        wait_until(lambda: site.client.admin.GetStatus(pb.GetStatusRequest()).waiters == 1, BOUND, "the waiter")
        site.client.lease.Release(release_request(held))
        assert waiting.result(BOUND).lease.token > held.token


def test_several_scopes_are_acquired_together_in_one_database_only(site):
    def acquire_all(*namespaces):
        items = [pb.AcquireItem(scope=scope(namespace, f"k{i}")) for i, namespace in enumerate(namespaces)]
        return site.client.lease.AcquireAll(pb.AcquireAllRequest(items=items, duration=harness.duration(30)), timeout=BOUND).leases

    assert [name(lease) for lease in acquire_all("orders", "shop.eu.x")] == ["orders/k0", "shop.eu.x/k1"]
    assert [name(lease) for lease in acquire_all("other", "shop")] == ["other/k0", "shop/k1"]
    with fails() as failure:
        acquire_all("z", "z", "orders.y")
    assert failure.value.code == grpc.StatusCode.INVALID_ARGUMENT
    assert "must be in one database with the others: items[0] lives in home, this one in eu" in failure.value.message
    assert failure.value.bad_request.field_violations[0].field == "items[2].scope"
    assert rows(site, "eu") == ["orders/k0", "shop.eu.x/k1"] and rows(site, "home") == ["other/k0", "shop/k1"]


def test_a_namespace_that_lives_nowhere_is_refused_with_where_to_add_it(cluster, other, tmp_path):
    site = Site(cluster, other, tmp_path / "leasehold.ini")
    site.close()
    site.sections = [("home", site.url("home"), "a", "no"), ("eu", site.url("eu"), "b.c", "no")]
    daemon = harness.Daemon("--config", write_settings(tmp_path / "leasehold.ini", site.sections))
    client = harness.Client(daemon.target)
    for call in (
        lambda: client.lease.Acquire(acquire_request("nowhere", "k")),
        lambda: client.lease.GetLease(pb.GetLeaseRequest(scope=scope("b", "k"))),
        lambda: client.admin.ForceRelease(pb.ForceReleaseRequest(scope=scope("nowhere", "k"), reason="r")),
        lambda: client.admin.GetPolicy(pb.GetPolicyRequest(namespace=pb.Namespace(segments=["b"]))),
        lambda: next(client.lease.WatchLeases(pb.WatchLeasesRequest(namespace=["nowhere"], include_children=True))),
    ):
        with fails() as failure:
            call()
        assert failure.value.code == grpc.StatusCode.INVALID_ARGUMENT
        assert "lives in no database: add it to namespaces in a section [database NAME]" in failure.value.message
        assert failure.value.bad_request.field_violations[0].field.startswith(("scope.namespace", "namespace"))
    bad = client.lease.Heartbeat(pb.HeartbeatRequest(leases=[pb.LeaseRef(
        scope=scope("nowhere", "k"), lease_key="6b9d1c1e-4f3f-4a54-9c8f-0e0f1d2c3b4a")])).results[0]
    assert bad.outcome == pb.OUTCOME_INVALID and "lives in no database" in bad.message
    assert client.lease.Acquire(acquire_request("a", "k")).lease.token > 0
    assert client.lease.Acquire(acquire_request("b.c.d", "k")).lease.token > 0
    assert len(client.lease.ListLeases(pb.ListLeasesRequest()).leases) == 2
    for namespace in (["b"], ["nowhere"]):
        with fails() as failure:
            client.lease.ListLeases(pb.ListLeasesRequest(namespace=namespace))
        assert "lives in no database" in failure.value.message
        said = Console(daemon.admin_port).get("/queue?namespace=" + namespace[0])
        assert said.status == 400 and "lives in no database" in said.text
        with fails() as failure:
            client.admin.Reap(pb.ReapRequest(namespaces=[pb.Namespace(segments=namespace)]))
        assert failure.value.bad_request.field_violations[0].field == "namespaces[0].segments"
    client.close()
    assert daemon.stop() == 0, daemon.log()


# --- lists and watches ---


@pytest.mark.parametrize("page_size", [1, 3, 1000])
def test_a_list_is_of_all_databases_in_the_order_of_names(site, page_size):
    names = []
    for namespace in ("a", "orders", "orders-x", "orders.a", "orders.b.c", "orders/x", "shop", "shop.e", "shop.eu", "shop.eu.a", "z"):
        for key in ("k1", "k2"):
            names.append(name(site.acquire(namespace, key)))
    stray = "insert into leasehold.scope select (jsonb_populate_record(s, '{\"namespace\": \"orders\", \"key\": \"stray\"}')).*"
    site.psql("home", f"{stray} from leasehold.scope s where namespace = 'a' and key = 'k1'")
    try:
        assert [name(lease) for lease in listed(site, page_size=page_size)] == names
        assert [name(lease) for lease in listed(site, "orders", page_size=page_size, include_children=True)] == [
            each for each in names if each.startswith(("orders/k", "orders."))]
        assert [name(lease) for lease in listed(site, "shop", page_size=page_size, include_children=True)] == [
            each for each in names if each.startswith("shop")]
        assert [name(lease) for lease in listed(site, "shop.eu", page_size=page_size)] == ["shop.eu/k1", "shop.eu/k2"]
        assert [name(lease) for lease in listed(site, page_size=page_size, search="k2")] == names[1::2]
    finally:
        site.psql("home", "delete from leasehold.scope where key = 'stray'")


def test_a_watch_is_of_all_databases(site):
    before = [site.acquire("orders", "k"), site.acquire("other", "k")]
    watch = Reading(site.client.lease.WatchLeases(pb.WatchLeasesRequest(include_initial=True)))
    watch.read()
    assert [(watch.next().type, name(watch.seen[-1].lease)) for _ in range(2)] == [(INITIAL, "orders/k"), (INITIAL, "other/k")]
    assert watch.next().type == SYNCED
    site.client.lease.Release(release_request(*before))
    assert {(event.type, name(event.lease)) for event in (watch.next(), watch.next())} == {
        (RELEASED, "orders/k"), (RELEASED, "other/k")}
    again = [site.acquire("orders", "k"), site.acquire("other", "k")]
    assert {(event.type, event.lease.token) for event in (watch.next(), watch.next())} == {
        (ACQUIRED, lease.token) for lease in again}
    site.psql("home", "select leasehold.acquire('orders', 'stray', '1 h')")  # does not live there
    last = site.acquire("other", "last")
    assert watch.next().lease.token == last.token
    site.psql("home", "delete from leasehold.scope where key = 'stray'")
    watch.call.cancel()


def waiting_in(site):
    return sum(int(site.psql(name, "select count(*) from leasehold.waiter")) for name in site.databases)


@pytest.mark.parametrize("page_size", [1, 2, 3, 100])
def test_the_consoles_lists_go_through_one_database_after_the_other(site, page_size):
    console = Console(site.daemon.admin_port)

    def rows_of(path, field):
        found, page_token = [], ""
        while True:
            page = console.get(f"{path}page_size={page_size}&page_token={urllib.parse.quote(page_token)}").json
            found += page[field]
            page_token = page["next_page_token"]
            if not page_token:
                return found

    waiting = []
    for namespace in ("orders", "other"):
        for key in ("k1", "k2"):
            site.acquire(namespace, key)
            waiting.append(site.client.lease.Acquire.future(acquire_request(namespace, key, wait=BOUND)))
    wait_until(lambda: waiting_in(site) == 4, BOUND, "the waiters")
    waiters = [".".join(row["scope"]["namespace"]) + "/" + row["scope"]["key"] for row in rows_of("/queue?", "waiters")]
    assert waiters == ["orders/k1", "orders/k2", "other/k1", "other/k2"]  # of eu, then of home
    names = [".".join(row["namespace"]["segments"]) for row in rows_of("/namespaces?", "namespaces")]
    assert names == ["orders", "other"]
    assert [row["waiting"] for row in rows_of("/namespaces?namespace=orders&", "namespaces")] == ["2"]
    assert console.get("/scope?namespace=orders&key=k1").json["explain"]["waiters"] == 1
    assert len(console.get("/daemons").json["daemons"]) == 2  # one row of each database
    for call in waiting:
        call.cancel()
    wait_until(lambda: waiting_in(site) == 0, BOUND, "the waiters having gone")


def test_a_policy_is_in_the_database_of_its_namespace(site):
    def set_policy(namespace, seconds):
        policy = pb.Policy(namespace=pb.Namespace(segments=namespace.split(".") if namespace else []), grace=harness.duration(seconds))
        request = pb.SetPolicyRequest(policy=policy)
        request.update_mask.paths.append("grace")
        return site.client.admin.SetPolicy(request).effective

    for number, namespace in enumerate(("shop.eu", "orders", "orders.new", "a", "z", "")):
        assert set_policy(namespace, number + 1).grace.seconds == number + 1
    assert site.psql("eu", "select namespace from leasehold.policy where namespace <> '' order by 1").split() == [
        "orders", "orders.new", "shop.eu"]
    for page_size in (1, 2, 100):
        names, page_token = [], ""
        while True:
            page = site.client.admin.ListPolicies(pb.ListPoliciesRequest(page_size=page_size, page_token=page_token))
            names += [".".join(policy.namespace.segments) for policy in page.policies]
            page_token = page.next_page_token
            if not page_token:
                break
        assert names == ["", "a", "orders", "orders.new", "shop.eu", "z"]
    got = site.client.admin.GetPolicy(pb.GetPolicyRequest(namespace=pb.Namespace(segments=["shop", "eu", "x"])))
    assert (got.effective.grace.seconds, got.source["grace"]) == (1, "shop.eu")


def test_an_administrators_reap_goes_through_all(site):
    for database in ("home", "eu"):
        namespace = "orders" if database == "eu" else "other"
        for key in ("k1", "k2"):
            site.acquire(namespace, key)
        site.psql(database, "select leasehold.set_policy('" + namespace + "', reaper => 'external')")
        site.psql(database, f"{AGE} where namespace = '{namespace}'")
    namespaces = [pb.Namespace(segments=[each]) for each in ("orders", "other")]
    first = site.client.admin.Reap(pb.ReapRequest(namespaces=namespaces, max=3))
    assert (first.reaped, first.more) == (3, True)
    rest = site.client.admin.Reap(pb.ReapRequest(namespaces=namespaces))
    assert (rest.reaped, rest.more) == (1, False)


# --- who may ---


def test_rules_count_where_their_namespace_lives(cluster, other, tmp_path):
    site = Site(cluster, other, tmp_path / "leasehold.ini", authorization="yes")

    def grant(database, principal, namespace, right):
        site.psql(database, f"select leasehold.access_grant('{principal}', '{namespace}', '{right}')")

    def may(call):
        try:
            call()
            return True
        except grpc.RpcError as error:
            assert harness.Failure(error).reason == "ACCESS_DENIED", error
            return False

    def lease(namespace):
        return may(lambda: site.acquire(namespace, f"k{time.monotonic()}"))

    assert not any(map(lease, ("orders", "other", "shop.eu", "shop.us")))
    grant("eu", "anonymous", "orders", "lease")
    wait_until(lambda: lease("orders"), BOUND, "the rule of eu")
    assert not any(map(lease, ("other", "shop.eu", "shop.us")))
    grant("eu", "anonymous", "other", "lease")  # does not live there
    grant("eu", "anonymous", "", "lease")
    grant("home", "anonymous", "orders", "admin")
    grant("eu", "anonymous", "orders.seen", "lease")
    wait_until(lambda: "rules=2 " in site.daemon.log(), BOUND, "those of orders and orders.seen, and no other")
    assert not any(map(lease, ("other", "shop.eu", "shop.us")))
    grant("home", "anonymous", "shop", "lease")  # for what is below it too, wherever it lives
    wait_until(lambda: lease("shop.us"), BOUND, "the rule of home")
    assert lease("shop.eu") and not lease("other")
    grant("home", "anonymous", "", "admin")
    wait_until(lambda: lease("other"), BOUND, "the rule for all")
    for page_size in (1, 100):
        names, page_token = [], ""
        while True:
            page = site.client.admin.ListAccess(pb.ListAccessRequest(page_size=page_size, page_token=page_token))
            names += [".".join(rule.namespace.segments) for rule in page.rules]
            page_token = page.next_page_token
            if not page_token:
                break
        assert names == ["", "orders", "orders.seen", "shop"]
    site.client.admin.CreateToken(pb.CreateTokenRequest(name="mine"))
    assert [token.name for token in site.client.admin.ListTokens(pb.ListTokensRequest()).tokens] == ["mine"]
    assert site.psql("eu", "select count(*) from leasehold.access_token") == "0"
    site.close()


# --- what is told about them ---


def test_status_names_each_database(site):
    status = site.client.admin.GetStatus(pb.GetStatusRequest())
    assert [(each.name, each.is_default, each.trouble) for each in status.databases] == [("home", True, ""), ("eu", False, "")]
    assert [".".join(each.segments) for each in status.databases[1].namespaces] == ["orders", "shop.eu"]
    assert all(each.schema_version > 0 and each.timeline > 0 and each.server and each.coordinator_id for each in status.databases)
    said = cli("status", "--server", site.daemon.target)
    assert said.returncode == 0, said.stderr
    assert "database home" in said.stdout and "orders, shop.eu" in said.stdout


def metrics(daemon):
    with urllib.request.urlopen(f"http://127.0.0.1:{daemon.admin_port}/metrics", timeout=30) as answer:
        return answer.read().decode()


def checked_metrics(daemon):
    text = metrics(daemon)
    said = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert said.returncode == 0, said.stdout
    return text


def test_metrics_have_a_label_for_the_database(site, service):
    site.acquire("orders", "counted")
    text = checked_metrics(site.daemon)
    assert 'leasehold_lease_grants_total{database="eu"}' in text and 'leasehold_lease_grants_total{database="home"}' in text
    assert 'leasehold_database_connections_up{database="eu",role="lane"} 3' in text
    assert 'leasehold_bound_limit{database="eu",bound="waiters"}' in text and 'leasehold_bound_limit{bound="connections"}' in text
    assert 'leasehold_database_ready{database="eu"} 1' in text
    assert "database=" not in metrics(service.daemon)


def test_one_database_has_no_section_in_its_status(service):
    assert not service.client.admin.GetStatus(pb.GetStatusRequest()).databases
    wait_until(lambda: readyz(service.daemon)[1].startswith("ready server="), BOUND, "the only database being ready")


# --- one is away ---


def test_a_cluster_that_is_killed_leaves_the_others_alone(cluster, other, tmp_path):
    site = Site(cluster, other, tmp_path / "leasehold.ini")
    kept = {name: site.acquire(name, "kept", seconds=600) for name in ("orders", "other")}
    for database, namespace in (("home", "other"), ("eu", "orders")):
        for right in ("read", "lease"):
            site.psql(database, f"select leasehold.access_grant('anonymous', '{namespace}', '{right}')")
    watched = Reading(health_pb2_grpc.HealthStub(site.client.channel).Watch(health_pb2.HealthCheckRequest(service="database/eu")))
    watched.read()
    watched.until(lambda answer: answer.status == SERVING, "the first answer")
    other.stop("immediate")
    try:
        with fails() as failure:  # eu still counts as ready
            listed(site)
        assert failure.value.reason == "DATABASE_UNAVAILABLE" and "the database eu is unavailable" in failure.value.message
        wait_until(lambda: health(site.client, "database/eu") == "NOT_SERVING", BOUND, "eu being away")
        assert "database connection eu lane 0 was lost" in site.daemon.log()
        assert health(site.client, "database/home") == health(site.client) == "SERVING"
        status, words = readyz(site.daemon)
        assert status == 200 and "1 of 2 databases; database eu is not ready" in words and "database home is ready" in words
        assert 'leasehold_database_ready{database="eu"} 0' in checked_metrics(site.daemon)
        watched.until(lambda answer: answer.status == NOT_SERVING, "eu being away")
        for number in range(10):
            lease = site.acquire("other", f"k{number}")
            assert site.client.lease.Release(release_request(lease)).results[0].outcome == pb.OUTCOME_OK
        assert len(listed(site, "other")) == 1
        answer = site.client.lease.Heartbeat(pb.HeartbeatRequest(leases=map(lease_ref, kept.values())), timeout=BOUND)
        assert [result.outcome for result in answer.results] == [pb.OUTCOME_RETRY, pb.OUTCOME_OK]
        for call in (lambda: site.acquire("orders", "k"), lambda: listed(site), lambda: listed(site, "orders")):
            with fails() as failure:
                call()
            assert failure.value.reason == "DATABASE_UNAVAILABLE" and "the database eu is unavailable" in failure.value.message
        said = site.client.admin.GetStatus(pb.GetStatusRequest())
        assert said.trouble == "" and [bool(each.trouble) for each in said.databases] == [False, True]

        # Started while one is away, whose rules it does not know.
        late = harness.Daemon("--config", write_settings(tmp_path / "late.ini", site.sections, authorization="yes"))
        client = harness.Client(late.target)
        wait_until(lambda: health(client, "database/home") == "SERVING", BOUND, "the late daemon being ready")
        assert client.lease.Acquire(acquire_request("other", "late")).lease.token > 0
        assert len(client.lease.ListLeases(pb.ListLeasesRequest(namespace=["other"])).leases) == 2
        for call in (lambda: client.lease.Acquire(acquire_request("orders", "late")),
                     lambda: client.lease.ListLeases(pb.ListLeasesRequest())):
            with fails() as failure:
                call()
            assert failure.value.reason == "DATABASE_UNAVAILABLE" and "the database eu is unavailable" in failure.value.message
        with fails() as failure:
            client.lease.Acquire(acquire_request("shop", "late"))
        assert failure.value.reason == "ACCESS_DENIED"
        assert 'leasehold_database_ready{database="eu"} 0' in checked_metrics(late)
    finally:
        other.start()
    wait_until(lambda: health(site.client, "database/eu") == health(client, "database/eu") == "SERVING", BOUND, "eu being back")
    assert harness.heartbeat(site.client, kept["orders"]).outcome == pb.OUTCOME_OK
    assert client.lease.Acquire(acquire_request("orders", "late")).lease.token > kept["orders"].token
    watched.until(lambda answer: answer.status == SERVING, "eu being back")
    watched.close()
    client.close()
    assert late.stop() == 0, late.log()
    site.close()


def test_a_database_that_does_not_answer_keeps_no_answer_of_the_others(cluster, tmp_path):
    site = Site(cluster, cluster, tmp_path / "leasehold.ini", busy_limit="1m")
    leases = [site.acquire(name, key, seconds=600) for key in ("k1", "k2") for name in ("orders", "other")]
    lock = site.clusters["eu"].session(site.databases["eu"])
    lock.run("begin; select from leasehold.scope for update")  # what wants these rows waits for a minute
    for _ in range(2):
        answer = site.client.lease.Heartbeat(pb.HeartbeatRequest(leases=map(lease_ref, leases)), timeout=BOUND / 2)
        assert [result.outcome for result in answer.results] == [pb.OUTCOME_RETRY, pb.OUTCOME_OK] * 2
        assert [result.lease_key for result in answer.results] == [lease.lease_key for lease in leases]
    answer = site.client.lease.Release(release_request(*leases[2:]), timeout=BOUND / 2)
    assert [result.outcome for result in answer.results] == [pb.OUTCOME_RETRY, pb.OUTCOME_OK]
    lock.run("commit")  # the late answers are nobody's
    wait_until(lambda: rows(site, "eu") == ["orders/k1"], BOUND, "the release having been done")
    answer = site.client.lease.Heartbeat(pb.HeartbeatRequest(leases=map(lease_ref, leases)), timeout=BOUND / 2)
    assert [result.outcome for result in answer.results] == [pb.OUTCOME_OK] * 2 + [pb.OUTCOME_LOST] * 2
    site.close()


def test_readyz_waits_for_the_port_for_clients(cluster, start, tmp_path):
    """One database is away from the start, so the port opens some seconds after it."""
    port = free_port()
    sections = [("home", cluster.url(cluster.create_database()), "a", "yes"), ("away", "host=/nowhere dbname=none", "b", "no")]
    daemon = start("--config", write_settings(tmp_path / "leasehold.ini", sections), "--admin", f"127.0.0.1:{port}", wait=False)
    daemon.admin_port = port

    def is_ready():
        with contextlib.suppress(OSError):
            return readyz(daemon)[0] == 200

    wait_until(is_ready, BOUND, "readiness")
    assert " listening grpc=" in daemon.log()
    assert daemon.stop() == 0, daemon.log()


def test_a_call_needs_only_the_databases_that_have_what_it_names(cluster, other, tmp_path):
    """No section is the default, and the first, which is the home then, is away from the start."""
    site = Site(other, cluster, tmp_path / "leasehold.ini")
    site.close()
    sections = [("home", site.url("home"), "a", "no"), ("eu", site.url("eu"), "b.c, z", "no")]
    other.stop("immediate")
    try:
        daemon = harness.Daemon("--config", write_settings(tmp_path / "leasehold.ini", sections))
        client = harness.Client(daemon.target)
        wait_until(lambda: health(client, "database/eu") == "SERVING", BOUND, "eu being ready")
        for namespace in ("b.c", "b.c.d", "z"):
            assert client.lease.Acquire(acquire_request(namespace, "k")).lease.token > 0
        for page_size in (1, 100):
            names, page_token = [], ""
            while True:
                page = client.lease.ListLeases(pb.ListLeasesRequest(
                    namespace=["b"], include_children=True, page_size=page_size, page_token=page_token))
                names += map(name, page.leases)
                page_token = page.next_page_token
                if not page_token:
                    break
            assert names == ["b.c/k", "b.c.d/k"]
        watch = Reading(client.lease.WatchLeases(pb.WatchLeasesRequest(namespace=["b"], include_children=True, include_initial=True)))
        watch.read()
        assert [watch.next().type for _ in range(3)] == [INITIAL, INITIAL, SYNCED]
        watch.call.cancel()
        assert client.admin.Reap(pb.ReapRequest(namespaces=[pb.Namespace(segments=["b"])], include_children=True)).reaped == 0
        with fails() as failure:
            client.lease.ListLeases(pb.ListLeasesRequest())
        assert failure.value.reason == "DATABASE_UNAVAILABLE" and "the database home is unavailable" in failure.value.message
        client.close()
        assert daemon.stop() == 0, daemon.log()
    finally:
        other.start()
