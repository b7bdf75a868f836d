"""AcquireStream, with a stock Python client."""
import signal
import sys
import uuid

import grpc
import pytest

import harness
from harness import acquire_request, fails, pb, wait_until
from streams import BOUND, beat, granted_event, keys, says, waiters

sys.path.insert(0, str(harness.ROOT / "tests/lib"))
from flaky_proxy import FlakyProxy  # noqa: E402


def test_acquire_stream_is_granted_at_once_where_it_is_free(service):
    key, lease_key = keys(), str(uuid.uuid4())
    events = list(service.client.lease.AcquireStream(acquire_request("jobs", key, owner="w", lease_key=lease_key)))
    assert len(events) == 1 and events[0].granted.lease_key == lease_key and events[0].granted.owner == "w"
    assert events[0].HasField("waited") and events[0].granted.token > 0
    assert service.client.lease.Heartbeat(beat(events[0].granted)).results[0].outcome == pb.OUTCOME_OK


def test_a_stream_that_is_read_no_further_than_its_grant_keeps_the_lease(service):
    """A loop that breaks at `granted` cancels the call. A proxy passes the trailers on by themselves, so that many are cancelled first."""
    proxy = FlakyProxy(service.daemon.target)
    client = harness.Client(proxy.target)
    granted = []
    for _ in range(150):
        call = client.lease.AcquireStream(acquire_request("jobs", keys()))
        granted.append(next(call).granted)
        call.cancel()
    kept = [service.client.lease.Heartbeat(beat(lease)).results[0].outcome for lease in granted]
    client.close()
    proxy.close()
    assert kept == [pb.OUTCOME_OK] * len(granted)


def test_acquire_stream_tells_who_holds_it_and_then_grants(service, stream):
    key = keys()
    held = service.client.lease.Acquire(acquire_request("jobs", key, owner="worker-3", labels={"a": "b"})).lease
    waiting = stream(service.client.lease.AcquireStream, unary=acquire_request("jobs", key, wait=BOUND, owner="next"))
    first = waiting.next()
    assert first.queued.holder.owner == "worker-3" and first.queued.holder.token == held.token
    assert first.queued.holder.lease_key == "" and first.queued.waiters_ahead == 0
    assert first.queued.liveness == pb.LIVENESS_ALIVE and list(first.queued.holder.scope.namespace) == ["jobs"]
    assert 0 < first.queued.holder.remaining.ToNanoseconds() <= 30e9
    service.client.lease.Release(harness.release_request(held))
    granted = waiting.until(granted_event).granted
    assert granted.owner == "next" and granted.token > held.token
    assert waiting.seen[-1].waited.ToNanoseconds() > 0
    waiting.ends()
    assert service.client.lease.Heartbeat(beat(granted)).results[0].outcome == pb.OUTCOME_OK


def test_acquire_stream_tells_every_change_of_the_place(service, stream):
    key = keys()
    held = service.client.lease.Acquire(acquire_request("jobs", key)).lease
    waiting = []
    for number in range(4):
        waiting.append(stream(service.client.lease.AcquireStream,
                              unary=acquire_request("jobs", key, wait_forever=True, owner=f"w{number}")))
        assert waiting[-1].next().queued.waiters_ahead == number
    waiting[1].call.cancel()  # from the middle
    assert waiting[3].until(lambda e: e.queued.waiters_ahead == 2).queued.holder.token == held.token
    assert waiting[2].until(lambda e: e.queued.waiters_ahead == 1)
    service.client.lease.Release(harness.release_request(held))
    first = waiting[0].until(granted_event).granted
    event = waiting[3].until(lambda e: e.queued.waiters_ahead == 1 and e.queued.holder.token == first.token)
    assert event.queued.holder.owner == "w0"
    service.client.lease.Release(harness.release_request(first))
    second = waiting[2].until(granted_event).granted
    assert second.owner == "w2"
    service.client.lease.Release(harness.release_request(second))
    assert waiting[3].until(granted_event).granted.owner == "w3"


def test_acquire_stream_tells_a_change_that_only_the_database_knows(service, stream):
    """An SQL user ahead leaves the queue, and a holder in SQL changes: the look-up finds both."""
    key, holder_key, ahead_key = keys(), str(uuid.uuid4()), str(uuid.uuid4())
    service.psql(f"select token from leasehold.acquire('jobs', '{key}', '1 minute', 'sql', lease_key => '{holder_key}')")
    service.psql(f"select * from leasehold.join_queue('jobs', '{key}', '{ahead_key}', '1 minute')")
    waiting = stream(service.client.lease.AcquireStream, unary=acquire_request("jobs", key, wait_forever=True))
    event = waiting.next()
    assert event.queued.waiters_ahead == 1 and event.queued.holder.owner == "sql"
    service.psql(f"select leasehold.leave_queue('jobs', '{key}', '{ahead_key}')")
    waiting.until(lambda e: e.queued.waiters_ahead == 0)
    service.psql(f"select leasehold.release_ok('jobs', '{key}', '{holder_key}')")
    waiting.until(granted_event)


def test_acquire_stream_speaks_while_nothing_changes(service, stream):
    """So that no proxy takes the stream for idle; the holder that falls silent is seen."""
    service.psql("select leasehold.set_policy('still', expiry => 'manual')")
    key = keys()
    service.client.lease.Acquire(acquire_request("still", key, 6))
    waiting = stream(service.client.lease.AcquireStream, unary=acquire_request("still", key, wait_forever=True))
    assert waiting.next().queued.liveness == pb.LIVENESS_ALIVE
    event = waiting.until(lambda e: e.queued.liveness != pb.LIVENESS_ALIVE)
    assert event.queued.liveness in (pb.LIVENESS_SUSPECTED_DEAD, pb.LIVENESS_EXPIRED)
    assert waiting.next() is not None and waiting.next() is not None


def test_acquire_stream_is_refused_as_acquire_is(service):
    key = keys()
    service.client.lease.Acquire(acquire_request("jobs", key, owner="sitting"))

    def refused(request):
        with fails() as failure:
            list(service.client.lease.AcquireStream(request))
        return failure.value

    error = refused(acquire_request("jobs", key))
    assert error.code == grpc.StatusCode.ABORTED and error.reason == "LEASE_HELD"
    assert error.contention.holder.owner == "sitting"
    error = refused(acquire_request("jobs", key, wait=0.2))
    assert error.code == grpc.StatusCode.DEADLINE_EXCEEDED and error.reason == "WAIT_TIMEOUT"
    error = refused(acquire_request("jobs", key, wait=1, wait_forever=True))
    assert error.code == grpc.StatusCode.INVALID_ARGUMENT and error.bad_request is not None
    service.psql("select leasehold.set_policy('cold', frozen => true)")
    assert refused(acquire_request("cold", key)).reason == "NAMESPACE_FROZEN"
    assert waiters(service, key) == 0


def test_acquire_stream_that_is_cancelled_leaves_the_queue(service, stream):
    key = keys()
    service.client.lease.Acquire(acquire_request("jobs", key))
    waiting = stream(service.client.lease.AcquireStream, unary=acquire_request("jobs", key, wait_forever=True))
    assert waiting.next().queued is not None and waiters(service, key) == 1
    waiting.call.cancel()
    wait_until(lambda: waiters(service, key) == 0, BOUND)


def test_acquire_stream_of_a_killed_client_leaves_the_queue(service, process):
    key = keys()
    service.client.lease.Acquire(acquire_request("jobs", key))
    client = process("AcquireStream", acquire_request("jobs", key, wait_forever=True))
    says(client, "queued")
    assert waiters(service, key) == 1
    client.kill()
    wait_until(lambda: waiters(service, key) == 0, BOUND)


def test_acquire_stream_of_a_stopped_client_holds_nobody_up_for_longer_than_its_lease(service, stream, process):
    key = keys()
    held = service.client.lease.Acquire(acquire_request("jobs", key)).lease
    client = process("AcquireStream", acquire_request("jobs", key, 1, wait_forever=True, owner="stopped"))
    says(client, "queued")
    behind = stream(service.client.lease.AcquireStream, unary=acquire_request("jobs", key, wait_forever=True, owner="b"))
    assert behind.next().queued.waiters_ahead == 1
    client.send_signal(signal.SIGSTOP)
    service.client.lease.Release(harness.release_request(held))
    assert behind.until(granted_event).granted.owner == "b"
    client.send_signal(signal.SIGCONT)


# --- with daemons and databases of their own ---


@pytest.mark.parametrize("own", [("--max-block", "1s")], indirect=True)
def test_acquire_stream_is_exempt_from_the_blocking_limit(own, stream):
    key = keys()
    held = own.client.lease.Acquire(acquire_request("jobs", key, 60)).lease
    waiting = stream(own.client.lease.AcquireStream, unary=acquire_request("jobs", key, wait_forever=True))
    assert waiting.next().queued is not None
    for _ in range(2):  # two limits pass, one after the other
        with fails() as failure:
            own.client.lease.Acquire(acquire_request("jobs", key, wait_forever=True))
        assert failure.value.reason == "BLOCKING_TIMEOUT"
    own.client.lease.Release(harness.release_request(held))
    waiting.until(granted_event)


def test_acquire_stream_outlives_an_outage_of_the_database(own, stream):
    key = keys()
    held = own.client.lease.Acquire(acquire_request("jobs", key, 60)).lease
    waiting = stream(own.client.lease.AcquireStream, unary=acquire_request("jobs", key, wait_forever=True))
    assert waiting.next().queued is not None
    own.cluster.stop("immediate")
    assert waiting.next().queued is not None  # it speaks on
    assert waiting.next().queued is not None
    own.cluster.start()
    wait_until(lambda: own.client.lease.Heartbeat(beat(held)).results[0].outcome == pb.OUTCOME_OK, BOUND)
    own.client.lease.Release(harness.release_request(held))
    waiting.until(granted_event)


def test_acquire_stream_ends_when_the_server_shuts_down(own, stream):
    key = keys()
    own.client.lease.Acquire(acquire_request("jobs", key, 60))
    waiting = stream(own.client.lease.AcquireStream, unary=acquire_request("jobs", key, wait_forever=True))
    assert waiting.next().queued is not None
    own.daemon.signal(signal.SIGTERM)
    failure = waiting.fails()
    assert failure.code == grpc.StatusCode.UNAVAILABLE and failure.reason == "SHUTTING_DOWN"
    assert own.daemon.process.wait(BOUND) == 0
