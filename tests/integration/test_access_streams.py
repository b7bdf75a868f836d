"""Rules and tokens that change while calls are open, against a real daemon and database."""
import contextlib
import getpass
import signal
import urllib.request

import grpc
import pytest

import harness
from harness import Client, acquire_request, duration, fails, lease_ref, pb, scope, wait_until
from streams import BOUND, Stream, keys

DENIED = grpc.StatusCode.PERMISSION_DENIED


class Site:
    """A daemon with authorization; tokens come over loopback."""

    def __init__(self, cluster, start, *args):
        self.cluster, self.database = cluster, cluster.create_database(migrated=True)
        self.daemon = start("--authorization", "yes", "--log-level", "debug", *args, database=cluster.url(self.database))
        self.client = Client(self.daemon.target)

    def psql(self, sql):
        return self.cluster.psql(sql, self.database)

    def token(self, name, expires="null"):
        return self.psql(f"select token from leasehold.token_create('{name}', {expires})")

    def grant(self, principal, namespace, *rights):
        self.psql(f"select leasehold.access_grant('{principal}', '{namespace}', variadic '{{{','.join(rights)}}}')")

    def revoke(self, principal, namespace, *rights):
        self.psql(f"select leasehold.access_revoke('{principal}', '{namespace}', variadic '{{{','.join(rights)}}}')")


class Caller:
    """Calls with a token."""

    def __init__(self, site, name):
        self.site, self.principal, self.token = site, f"token:{name}", site.token(name)
        self.metadata = (("authorization", f"Bearer {self.token}"),)

    def __call__(self, method, request, **more):
        return method(request, metadata=self.metadata, timeout=BOUND, **more)

    def stream(self, method, *requests, unary=None):
        return Stream(lambda request: method(request, metadata=self.metadata), *requests, unary=unary)

    def granted(self, namespace, key, **fields):
        """A lease, as soon as the daemon knows the rule."""

        def attempt():
            with contextlib.suppress(grpc.RpcError):
                return self(self.site.client.lease.Acquire, acquire_request(namespace, key, **fields)).lease
            return None

        return wait_until(attempt, BOUND, "the right to lease")

    def may(self, method, request):
        with contextlib.suppress(grpc.RpcError):
            self(method, request)
            return True
        return False

    def is_denied(self, method, request):
        try:
            self(method, request)
        except grpc.RpcError as error:
            return error.code() == DENIED
        return False


@pytest.fixture
def site(cluster, start):
    site = Site(cluster, start)
    yield site
    site.client.close()


@pytest.fixture
def worker(site):
    worker = Caller(site, "worker")
    site.grant(worker.principal, "jobs", "lease")
    worker.granted("jobs", keys())
    return worker


def check_denied(failure, principal, right, namespace):
    assert (failure.code, failure.reason) == (DENIED, "ACCESS_DENIED")
    assert failure.metadata == {"principal": principal, "right": right, "namespace": namespace}


def hold_request(key):
    return pb.HoldRequest(acquire=acquire_request("jobs", key, 600, wait=600))


def test_a_right_that_ends_answers_waiters_and_ends_holds_and_leaves_the_lease(site, worker):
    key = keys()
    lease = worker.granted("jobs", key, seconds=600)
    held = worker.stream(site.client.lease.Hold, hold_request(keys()))
    mine = held.next().granted
    waiting = [worker.stream(site.client.lease.AcquireStream, unary=acquire_request("jobs", key, wait=600)),
               worker.stream(site.client.lease.Hold, hold_request(key))]
    for stream in waiting:
        queued = stream.next()
        assert queued.WhichOneof("event") == "queued" and queued.queued.holder.owner == "" and queued.queued.holder.token == 0
    unary = site.client.lease.Acquire.future(acquire_request("jobs", key, wait=600), metadata=worker.metadata)
    wait_until(lambda: site.psql("select count(*) from leasehold.waiter") == "3", BOUND, "three waiters")

    site.revoke(worker.principal, "jobs")
    for stream in [held, *waiting]:
        check_denied(stream.fails(), worker.principal, "lease", "jobs")
    check_denied(harness.Failure(unary.exception(timeout=BOUND)), worker.principal, "lease", "jobs")
    wait_until(lambda: site.psql("select count(*) from leasehold.waiter") == "0", BOUND, "no waiter")
    rows = site.psql("select token from leasehold.lease order by token").split()
    assert {str(lease.token), str(mine.token)} <= set(rows)


def test_items_obey_from_the_next_one_on(site, worker):
    lease = worker.granted("jobs", keys(), seconds=600)
    request = pb.HeartbeatRequest(leases=[lease_ref(lease)])
    stream = worker.stream(site.client.lease.KeepAlive, request)
    assert stream.next().results[0].outcome == pb.OUTCOME_OK

    def outcome():
        stream.send(request)
        return stream.next().results[0]

    site.revoke(worker.principal, "jobs")
    denied = wait_until(lambda: next((r for r in [outcome()] if r.outcome != pb.OUTCOME_OK), None), BOUND, "a denied heartbeat")
    assert denied.outcome == pb.OUTCOME_DENIED and denied.lease_key == lease.lease_key
    assert denied.message == "token:worker does not have the right lease in namespace jobs"
    assert worker(site.client.lease.Heartbeat, request).results[0].outcome == pb.OUTCOME_DENIED
    release = pb.ReleaseRequest(items=[pb.ReleaseItem(lease=lease_ref(lease))])
    assert worker(site.client.lease.Release, release).results[0].outcome == pb.OUTCOME_DENIED
    site.grant(worker.principal, "jobs", "lease")
    wait_until(lambda: outcome().outcome == pb.OUTCOME_OK, BOUND, "a heartbeat that is done again")
    assert worker(site.client.lease.Release, release).results[0].outcome == pb.OUTCOME_OK


def test_a_watch_goes_on_with_what_may_be_read(site, worker):
    watcher = Caller(site, "watcher")
    site.grant(watcher.principal, "jobs.eu", "read")
    wait_until(lambda: watcher.may(site.client.lease.ListLeases, pb.ListLeasesRequest()), BOUND, "the right to read")
    before = [worker.granted(namespace, keys()) for namespace in ("jobs.us", "jobs.eu", "jobs.eu.x")]
    watch = watcher.stream(site.client.lease.WatchLeases, unary=pb.WatchLeasesRequest(include_children=True, include_initial=True))
    initial = [watch.next() for _ in range(3)]
    assert [event.lease.token for event in initial[:2]] == [before[1].token, before[2].token]
    assert initial[2].type == pb.LeaseEvent.TYPE_SYNCED

    worker.granted("jobs.us", keys())
    seen = worker.granted("jobs.eu", keys())
    assert watch.next().lease.token == seen.token
    site.revoke(watcher.principal, "jobs.eu")
    site.grant(watcher.principal, "jobs.us", "read")
    request = pb.ListLeasesRequest(namespace=["jobs", "us"])
    wait_until(lambda: watcher.may(site.client.lease.ListLeases, request), BOUND, "the other right")
    worker.granted("jobs.eu", keys())
    other = worker.granted("jobs.us", keys())
    assert watch.next().lease.token == other.token
    watch.close()


def test_lists_have_full_pages_of_what_may_be_read(site, worker):
    reader = Caller(site, "reader")
    own = []
    for number in range(7):
        for namespace in ("jobs.a", "jobs.a-b", "jobs.a.c", "jobs.b"):
            lease = worker.granted(namespace, f"k{number}")
            if namespace != "jobs.b":
                own.append(lease)
    site.grant(reader.principal, "jobs.a", "read")
    site.grant(reader.principal, "jobs.a-b", "read")
    request = pb.ListLeasesRequest(page_size=5)

    def pages():
        request.page_token, found = "", []
        while True:
            page = reader(site.client.lease.ListLeases, request)
            found.append([(".".join(lease.scope.namespace), lease.scope.key) for lease in page.leases])
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    def knows_both():
        with contextlib.suppress(grpc.RpcError):
            return sum(map(len, pages())) == len(own)
        return False

    wait_until(knows_both, BOUND, "both rules")
    found = pages()
    flat = [lease for page in found for lease in page]
    assert flat == sorted((".".join(lease.scope.namespace), lease.scope.key) for lease in own)
    assert [len(page) for page in found if page] == [5, 5, 5, 5, 1]
    check = pb.ListLeasesRequest(namespace=["jobs"])
    assert reader.is_denied(site.client.lease.ListLeases, check)  # without what is below it: not readable


def test_a_token_that_is_revoked_or_expires_ends_what_it_opened(site, worker):
    key = keys()
    worker.granted("jobs", key, seconds=600)
    brief = Caller(site, "worker")
    short = site.token("worker", "'1 h'")
    brief.metadata = (("authorization", f"Bearer {short}"),)
    wait_until(lambda: not expect_unauthenticated(brief), BOUND, "the second token")
    streams = [caller.stream(site.client.lease.AcquireStream, unary=acquire_request("jobs", key, wait=600)) for caller in (brief, worker)]
    assert [stream.next().WhichOneof("event") for stream in streams] == ["queued", "queued"]
    site.psql("update leasehold.access_token set expires_at = clock_timestamp() + interval '2 s' where expires_at is not null;"
              "update leasehold.access_state set version = version + 1")
    check_denied(streams[0].fails(), "token:worker", "lease", "jobs")
    wait_until(lambda: expect_unauthenticated(brief), BOUND, "the end of a token")
    site.psql("select leasehold.token_revoke('worker')")
    check_denied(streams[1].fails(), "token:worker", "lease", "jobs")
    wait_until(lambda: expect_unauthenticated(worker), BOUND, "the end of the other token")
    assert "lht_" not in site.daemon.log() and short[4:20] not in site.daemon.log()


def expect_unauthenticated(caller):
    """Whether its token is refused, also where no right is needed."""
    try:
        caller(caller.site.client.admin.GetStatus, pb.GetStatusRequest())
    except grpc.RpcError as error:
        failure = harness.Failure(error)
        assert (failure.code, failure.reason) == (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")
        return True
    return False


def test_the_last_rules_hold_while_the_database_is_away(site, worker):
    lease = worker.granted("jobs", keys(), seconds=600)
    request = pb.HeartbeatRequest(leases=[lease_ref(lease)])
    foreign = acquire_request("foreign", keys())
    assert worker.is_denied(site.client.lease.Acquire, foreign)
    site.cluster.psql(f"alter database {site.database} with allow_connections false;"
                      f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{site.database}'", "postgres")
    wait_until(lambda: worker(site.client.lease.Heartbeat, request).results[0].outcome == pb.OUTCOME_RETRY, BOUND, "the outage")
    assert worker.is_denied(site.client.lease.Acquire, foreign)
    site.cluster.psql(f"alter database {site.database} with allow_connections true", "postgres")
    wait_until(lambda: worker(site.client.lease.Heartbeat, request).results[0].outcome == pb.OUTCOME_OK, BOUND, "the database")


def test_denials_are_in_log_audit_and_metrics(site, worker):
    for _ in range(5):
        assert worker.is_denied(site.client.lease.GetLease, pb.GetLeaseRequest(scope=scope("jobs", "k")))
    count = "select coalesce(sum(count), 0) from leasehold.audit where action = 'denied' and principal = 'token:worker' and outcome = 'refused'"
    wait_until(lambda: int(site.psql(count)) >= 5, BOUND, "the audit")
    # A principal has a line a second.
    wait_until(lambda: "access denied: no right read principal=token:worker" in site.daemon.log(), BOUND, "the line in the log")
    body = urllib.request.urlopen(f"http://127.0.0.1:{site.daemon.admin_port}/metrics", timeout=30).read().decode()
    denied = [line for line in body.splitlines() if line.startswith('leasehold_access_denials_total{right="read"}')]
    assert int(denied[0].split()[-1]) >= 5 and "leasehold_access_tokens 1" in body
    wait_until(lambda: site.psql("select count(*) from leasehold.access_token where last_used_at is not null") == "1", BOUND, "last_used_at")


def test_the_first_administrator_comes_in_by_the_configuration(cluster, start, place):
    """Beyond this machine authorization is the default; admin_principals is read again."""
    config = place / "leasehold.ini"
    config.write_text("[leasehold]\n")
    database = cluster.create_database(migrated=True)
    daemon = start("--config", str(config), "--listen", "0.0.0.0:0", "--insecure", "yes", database=cluster.url(database))
    wait_until(lambda: "set admin_principals to the principal of the first administrator" in daemon.log(), BOUND, "the words")
    client = Client(daemon.target)
    request = pb.GetPolicyRequest()
    wait_until(lambda: harness.readyz(daemon)[0] == 200, BOUND, "readiness")
    with fails() as failure:
        client.admin.GetPolicy(request, timeout=BOUND)
    assert failure.value.reason == "ACCESS_DENIED" and failure.value.metadata == {"principal": "anonymous", "right": "read"}
    config.write_text("[leasehold]\nadmin_principals = dns:x, anonymous\n")
    daemon.signal(signal.SIGHUP)

    def is_in():
        with contextlib.suppress(grpc.RpcError):
            client.admin.GetPolicy(request, timeout=BOUND)
            return True
        return False

    wait_until(is_in, BOUND, "the administrator")
    client.admin.SetPolicy(pb.SetPolicyRequest(policy=pb.Policy(namespace=pb.Namespace(segments=["a"]), grace=duration(2)),
                                               update_mask={"paths": ["grace"]}), timeout=BOUND)
    config.write_text("[leasehold]\n")
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: not is_in(), BOUND, "the end of the administrator")
    client.close()


def test_a_unix_socket_names_its_user(cluster, start, place):
    path = place / "socket"
    daemon = start("--listen", f"127.0.0.1:0, unix:{path}", "--authorization", "yes", "--admin-principals", f"user:{getpass.getuser()}",
                   database=cluster.url(cluster.create_database(migrated=True)))
    client = Client(f"unix:{path}")
    wait_until(lambda: harness.readyz(daemon)[0] == 200, BOUND, "readiness")
    lease = client.lease.Acquire(acquire_request("jobs", keys()), timeout=BOUND).lease
    assert lease.token > 0
    other = Client(daemon.target)
    with fails() as failure:
        other.lease.Acquire(acquire_request("jobs", keys()), timeout=BOUND)
    check_denied(failure.value, "anonymous", "lease", "jobs")
    client.close()
    other.close()
