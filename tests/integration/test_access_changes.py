"""Rules that change while clients work: the next item obeys, streams that are open too, on every daemon, and without a database."""
import threading

import grpc
import pytest

import harness
from access_site import Site, bearer
from access_table import BOUND
from harness import Client, acquire_request, duration, fails, heartbeat, lease_ref, pb, release_request, scope, wait_until
from streams import keys

DENIED = grpc.StatusCode.PERMISSION_DENIED


@pytest.fixture(scope="module")
def site(cluster):
    site = Site(cluster)
    yield site
    site.close()


@pytest.fixture
def ns(site):
    """A namespace that anonymous may use, once the daemon knows."""
    namespace = "ns-" + keys()
    site.grant("anonymous", namespace, "read", "lease")
    site.waits_for("OK", namespace)
    return namespace


class Worker:
    """Takes, renews and gives back leases of one namespace until it is stopped; each answer counts."""

    def __init__(self, site, namespace):
        self.namespace, self.client = namespace, Client(site.daemon.target)
        self.granted = self.denied = 0
        self.faults = []
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        held = None
        while not self.stopped.is_set():
            try:
                if held is None:
                    held = self.client.lease.Acquire(acquire_request(self.namespace, keys(), 600), timeout=BOUND).lease
                    self.granted += 1
                outcomes = [heartbeat(self.client, held).outcome,
                            self.client.lease.Release(release_request(held), timeout=BOUND).results[0].outcome]
                if outcomes[1] in (pb.OUTCOME_OK, pb.OUTCOME_LOST):
                    held = None
                for outcome in outcomes:
                    if outcome == pb.OUTCOME_DENIED:
                        self.denied += 1
                    elif outcome != pb.OUTCOME_OK:
                        self.faults.append(pb.Outcome.Name(outcome))
            except grpc.RpcError as error:
                failure = harness.Failure(error)
                if failure.reason == "ACCESS_DENIED":
                    self.denied += 1
                else:
                    self.faults.append(f"{failure.code} {failure.reason} {failure.message}")

    def stop(self):
        self.stopped.set()
        self.thread.join(BOUND)
        self.client.close()


def test_rules_change_under_load_and_the_next_item_obeys(site, ns):
    """A right is taken and given again and again: everybody follows, and nothing else happens to anybody."""
    beside = "beside-" + ns
    site.grant("anonymous", beside, "lease")
    site.waits_for("OK", beside)
    workers, neighbour = [Worker(site, ns) for _ in range(4)], Worker(site, beside)
    try:
        for _ in range(4):
            marks = [worker.granted for worker in workers]
            wait_until(lambda: all(w.granted > mark + 5 for w, mark in zip(workers, marks)), BOUND, "leases for everybody")
            site.revoke("anonymous", ns, "lease")
            denied = [worker.denied for worker in workers]
            wait_until(lambda: all(w.denied > mark for w, mark in zip(workers, denied)), BOUND, "everybody to be denied")
            # Each had its first denial: no grant after it.
            marks, denied = [worker.granted for worker in workers], [worker.denied for worker in workers]
            wait_until(lambda: all(w.denied > mark + 5 for w, mark in zip(workers, denied)), BOUND, "more denials")
            assert [worker.granted for worker in workers] == marks
            site.grant("anonymous", ns, "lease")
        mark = neighbour.granted
        wait_until(lambda: neighbour.granted > mark, BOUND, "the neighbour to go on")
    finally:
        for worker in [*workers, neighbour]:
            worker.stop()
    assert not sum((worker.faults for worker in [*workers, neighbour]), [])
    assert neighbour.denied == 0


def test_what_is_open_ends_with_its_right(site, ns, request):
    """Waiters, a Hold and a KeepAlive are answered; a watch goes on with what may still be read; the leases stay."""
    key, other, beside = keys(), keys(), "beside-" + ns
    site.grant("anonymous", beside, "read", "lease")
    site.waits_for("OK", beside)
    hold, lease = site.hold(ns, key, 60)
    kept = site.client.lease.Acquire(acquire_request(ns, other, 60)).lease
    allowed = site.client.lease.Acquire(acquire_request(beside, other, 60)).lease
    keep = site.open("KeepAlive", pb.HeartbeatRequest(leases=[lease_ref(kept), lease_ref(allowed)]))
    assert [result.outcome for result in keep.next().results] == [pb.OUTCOME_OK] * 2
    queued = site.open("AcquireStream", unary=acquire_request(ns, other, 60, wait_forever=True))
    assert queued.next().WhichOneof("event") == "queued"
    waiting_hold = site.open("Hold", pb.HoldRequest(acquire=acquire_request(ns, other, 60, wait_forever=True)))
    assert waiting_hold.next().WhichOneof("event") == "queued"
    waiting = site.client.lease.Acquire.future(acquire_request(ns, key, 60, wait_forever=True), timeout=BOUND)
    items = [pb.AcquireItem(scope=scope(*name)) for name in ((beside, keys()), (ns, keys()), (beside, other))]
    several = site.client.lease.AcquireAll.future(pb.AcquireAllRequest(items=items, duration=duration(60), wait_forever=True), timeout=BOUND)
    watch = site.open("WatchLeases", unary=pb.WatchLeasesRequest(include_initial=True))
    watch.until(lambda event: event.type == pb.LeaseEvent.TYPE_SYNCED)
    for each in (hold, keep, queued, waiting_hold, watch):
        request.addfinalizer(each.close)
    queues = f"select count(*) from leasehold.waiter where namespace in ('{ns}', '{beside}')"
    wait_until(lambda: site.psql(queues) == "6", BOUND, "the queues")

    site.revoke("anonymous", ns)
    for failure in (hold.fails(), queued.fails(), waiting_hold.fails()):
        assert (failure.code, failure.reason) == (DENIED, "ACCESS_DENIED"), failure.message
        assert failure.metadata["right"] == "lease" and failure.metadata["namespace"] == ns, failure.metadata
    for call in (waiting, several):
        with fails() as failure:
            call.result(BOUND)
        assert (failure.value.code, failure.value.reason) == (DENIED, "ACCESS_DENIED")
        assert failure.value.metadata["namespace"] == ns
    wait_until(lambda: site.psql(queues) == "0", BOUND, "empty queues, those of the other namespace too")

    before = site.scope(ns, other, "heartbeats")
    keep.send(pb.HeartbeatRequest(leases=[lease_ref(kept), lease_ref(allowed)]))
    answer = keep.next()
    assert answer is not None, keep.error
    assert [result.outcome for result in answer.results] == [pb.OUTCOME_DENIED, pb.OUTCOME_OK]
    assert site.scope(ns, other, "state, heartbeats") == f"held|{before}"
    assert site.scope(ns, key, "state, token") == f"held|{lease.token}", "a Hold leaves its lease to its expiry"

    # What it may not read any more comes first, what it may read is seen.
    site.psql(f"select leasehold.force_release('{ns}', '{other}', 'a test'), leasehold.force_release('{beside}', '{other}', 'a test')")
    event = watch.until(lambda event: event.type == pb.LeaseEvent.TYPE_FORCED, "the end of the lease that may be seen")
    assert ".".join(event.lease.scope.namespace) == beside
    assert not [seen for seen in watch.seen if seen.type == pb.LeaseEvent.TYPE_FORCED and seen is not event]

    # The lease is still its holder's: with the right it renews it again.
    site.grant("anonymous", ns, "read", "lease")
    site.waits_for("OK", ns)
    release = site.client.lease.Release(release_request(lease)).results[0]
    assert release.outcome == pb.OUTCOME_OK, release


def test_a_right_that_is_given_is_seen_by_a_watch_that_is_open(site, request):
    namespace, seen = "late-" + keys(), "early-" + keys()
    site.grant("anonymous", seen, "read")
    site.waits_for("ACCESS_DENIED", seen)
    wait_until(lambda: readable(site, seen), BOUND, "the first rule")
    watch = site.open("WatchLeases", unary=pb.WatchLeasesRequest(include_initial=True))
    request.addfinalizer(watch.close)
    watch.until(lambda event: event.type == pb.LeaseEvent.TYPE_SYNCED)
    site.grant("anonymous", namespace, "read")
    wait_until(lambda: readable(site, namespace), BOUND, "the second rule")
    site.psql(f"select leasehold.acquire('{namespace}', 'k', '30 s')")
    assert watch.until(lambda event: event.lease.scope.namespace[0] == namespace).type == pb.LeaseEvent.TYPE_ACQUIRED


def readable(site, namespace, client=None):
    try:
        (client or site.client).lease.ListLeases(pb.ListLeasesRequest(namespace=namespace.split(".")), timeout=BOUND)
        return True
    except grpc.RpcError as error:
        assert harness.Failure(error).reason == "ACCESS_DENIED"
        return False


def test_two_daemons_follow(site, ns):
    second = harness.Daemon("--authorization", "yes", database=site.cluster.url(site.database))
    client = Client(second.target)
    try:
        for word in ("OK", "ACCESS_DENIED", "OK"):
            (site.revoke if word == "ACCESS_DENIED" else site.grant)("anonymous", ns, "lease")
            for each in (site.client, client):
                site.waits_for(word, ns, client=each)
    finally:
        client.close()
        assert second.stop() == 0, second.log()
        second.destroy()


def test_a_daemon_without_its_database_keeps_its_rules(request):
    cluster = harness.Cluster(migrated=True)
    request.addfinalizer(cluster.destroy)
    site = Site(cluster)
    request.addfinalizer(site.daemon.destroy)
    site.grant("anonymous", "mine", "lease")
    site.grant("token:t", "tokens", "lease")
    token, _ = site.token("t")
    site.waits_for("OK", "tokens", bearer(token))
    site.waits_for("OK", "mine")
    kept = site.client.lease.Acquire(acquire_request("mine", "k", 600)).lease
    cluster.stop("immediate")
    ref = pb.HeartbeatRequest(leases=[lease_ref(kept)] + [pb.LeaseRef(scope=harness.scope("theirs", "k"), lease_key=kept.lease_key)])

    def outcomes():
        return [result.outcome for result in site.client.lease.Heartbeat(ref, timeout=BOUND).results]

    assert outcomes() == [pb.OUTCOME_RETRY, pb.OUTCOME_DENIED]
    assert site.asks("theirs") == site.asks("mine", bearer(token)) == "ACCESS_DENIED"
    assert site.asks("tokens", bearer("lht_" + "x" * 49)) == "UNAUTHENTICATED"
    with fails() as failure:
        site.client.lease.Acquire(acquire_request("mine", "new", 30), timeout=BOUND)
    assert failure.value.reason == "DATABASE_UNAVAILABLE", failure.value.message
    cluster.start()
    site.waits_for("OK", "mine")
    assert outcomes() == [pb.OUTCOME_OK, pb.OUTCOME_DENIED]
    site.revoke("anonymous", "mine")
    site.waits_for("ACCESS_DENIED", "mine")
    assert site.daemon.stop() == 0


def test_a_daemon_that_starts_without_its_database_denies_before_it_knows():
    """Whatever it answers, it grants nothing: it has no rules yet."""
    daemon = harness.Daemon("--authorization", "yes", database="host=/nowhere dbname=nothing", wait="listening")
    client = Client(daemon.target)
    try:
        with fails() as failure:
            client.lease.Acquire(acquire_request("any", "k", 30), timeout=BOUND)
        assert failure.value.code == grpc.StatusCode.UNAVAILABLE, failure.value.message
        assert harness.readyz(daemon)[0] == 503
    finally:
        client.close()
        daemon.destroy()
