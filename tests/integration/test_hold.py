"""Hold, with a stock Python client."""
import itertools
import signal
import threading
import time
import uuid

import grpc
import pytest

import harness
from harness import acquire_request, fails, lease_ref, pb, scope, wait_until
from streams import BOUND, Stream, granted_event, holder, keys, says, waiters


def hold_request(*args, by_ping=True, **fields):
    return pb.HoldRequest(acquire=acquire_request(*args, **fields), by_ping=by_ping)


def is_event(name):
    return lambda event: event.WhichOneof("event") == name


def hold(stream, service, key, seconds=30, **fields):
    """A stream that holds the lease of a free scope, and that lease."""
    held = stream(service.client.lease.Hold, hold_request("hold", key, seconds, **fields))
    event = held.next()
    assert is_event("granted")(event), event
    return held, event.granted


def alive(sequence):
    return pb.HoldRequest(alive=pb.Alive(sequence=sequence))


def release_message(success=None, failure=None, lease=None):
    item = pb.ReleaseItem()
    if lease is not None:
        item.lease.CopyFrom(lease_ref(lease))
    if success is not None:
        item.success = success
    if failure is not None:
        item.failure = failure
    return pb.HoldRequest(release=item)


def last_of(service, namespace, key):
    return service.client.lease.GetLease(pb.GetLeaseRequest(scope=scope(namespace, key))).last


def wait_until_free(service, key):
    wait_until(lambda: holder(service, key) == "", BOUND, "the end of the lease")


def test_hold_renews_for_a_client_that_does_nothing(service, stream):
    key, lease_key = keys(), str(uuid.uuid4())
    held = stream(service.client.lease.Hold, hold_request("hold", key, 1, owner="idle", lease_key=lease_key))
    first = held.next()
    assert first.WhichOneof("event") == "granted" and first.granted.lease_key == lease_key
    assert first.HasField("waited") and first.granted.token > 0
    for count in range(1, 9):  # more than two durations
        event = held.next()
        assert event.WhichOneof("event") == "renewed" and event.renewed.heartbeats == count
        assert event.renewed.token == first.granted.token and event.renewed.owner == "idle"
        assert event.renewed.remaining.ToNanoseconds() > 0 and event.alive_sequence == 0
    assert event.renewed.deadline.ToNanoseconds() > first.granted.deadline.ToNanoseconds()
    assert holder(service, key) == "idle"
    with fails() as failure:
        service.client.lease.Acquire(acquire_request("hold", key))
    assert failure.value.reason == "LEASE_HELD" and failure.value.contention.liveness == pb.LIVENESS_ALIVE


@pytest.mark.parametrize("named", [False, True])
def test_hold_release_with_success(service, stream, named):
    key = keys()
    held, granted = hold(stream, service, key)
    held.send(release_message(success='{"rows": 3}', lease=granted if named else None))
    event = held.until(is_event("released"))
    assert event.released.outcome == pb.OUTCOME_OK and event.released.lease_key == granted.lease_key
    held.ends()
    last = last_of(service, "hold", key)
    assert last.end_reason == pb.END_REASON_RELEASED and last.result == '{"rows": 3}'


def test_hold_release_with_failure(service, stream):
    key = keys()
    held, _ = hold(stream, service, key)
    held.send(release_message(failure="disk full"))
    assert held.until(is_event("released")).released.outcome == pb.OUTCOME_OK
    held.ends()
    last = last_of(service, "hold", key)
    assert last.end_reason == pb.END_REASON_FAILED and last.error == "disk full"


def test_hold_result_that_the_database_refuses_ends_the_lease_all_the_same(service, stream):
    key = keys()
    held, _ = hold(stream, service, key)
    held.send(release_message(success="1e200000"))
    assert held.until(is_event("released")).released.outcome == pb.OUTCOME_INVALID
    held.ends()
    wait_until_free(service, key)
    assert last_of(service, "hold", key).end_reason == pb.END_REASON_FAILED


def test_hold_half_close_releases(service, stream):
    key = keys()
    held, _ = hold(stream, service, key)
    held.half_close()
    assert held.until(is_event("released")).released.outcome == pb.OUTCOME_OK
    held.ends()
    assert last_of(service, "hold", key).end_reason == pb.END_REASON_RELEASED


def test_hold_reset_releases_at_once(service, stream):
    key = keys()
    held, _ = hold(stream, service, key, 3600, owner="h")
    assert holder(service, key) == "h"
    held.call.cancel()
    wait_until_free(service, key)
    assert last_of(service, "hold", key).end_reason == pb.END_REASON_FAILED


def test_hold_closed_connection_releases_at_once(service, stream):
    key = keys()
    other = harness.Client(service.daemon.target)
    held = Stream(other.lease.Hold, hold_request("hold", key, 3600, owner="h"))
    held.next()
    behind = stream(service.client.lease.AcquireStream, unary=acquire_request("hold", key, wait_forever=True, owner="b"))
    behind.next()
    other.close()
    assert behind.until(granted_event).granted.owner == "b"


def test_hold_waits_and_tells_who_is_in_the_way(service, stream):
    key = keys()
    first, granted = hold(stream, service, key, owner="first")
    second = stream(service.client.lease.Hold, hold_request("hold", key, owner="second", wait_forever=True))
    assert second.next().queued.holder.owner == "first"
    third = stream(service.client.lease.Hold, hold_request("hold", key, owner="third", wait_forever=True))
    third.until(lambda e: e.queued.waiters_ahead == 1)
    first.half_close()
    event = second.until(is_event("granted"))
    assert event.granted.token > granted.token and event.waited.ToNanoseconds() > 0
    second.call.cancel()
    assert third.until(is_event("granted")).granted.owner == "third"


def test_hold_is_refused_as_acquire_is(service, stream):
    key = keys()
    hold(stream, service, key, owner="sitting")
    failure = stream(service.client.lease.Hold, hold_request("hold", key)).fails()
    assert failure.code == grpc.StatusCode.ABORTED and failure.reason == "LEASE_HELD"
    assert failure.contention.holder.owner == "sitting"
    failure = stream(service.client.lease.Hold, hold_request("hold", key, wait=0.2)).fails()
    assert failure.code == grpc.StatusCode.DEADLINE_EXCEEDED and failure.reason == "WAIT_TIMEOUT"
    assert waiters(service, key) == 0


def test_hold_bad_messages_end_the_stream_and_the_lease(service, stream):
    def refused(*requests):
        failure = stream(service.client.lease.Hold, *requests).fails()
        assert failure.code == grpc.StatusCode.INVALID_ARGUMENT and failure.reason == "INVALID_ARGUMENT"
        return [violation.field for violation in failure.bad_request.field_violations]

    assert refused(alive(1)) == ["alive"]
    assert refused(release_message()) == ["release"]
    assert refused(pb.HoldRequest()) == ["request"]
    assert refused(pb.HoldRequest(acquire=pb.AcquireRequest())) == ["acquire.scope", "acquire.duration"]
    assert refused(None) == ["acquire"]  # half-closed without a word
    key = keys()
    _, other = hold(stream, service, key, owner="h")
    for bad in (hold_request("hold", key), release_message(success="{no json"), pb.HoldRequest(),
                release_message(lease=pb.Lease(scope=other.scope, lease_key=str(uuid.uuid4())))):
        key = keys()
        held, _ = hold(stream, service, key, owner="h")
        held.send(bad)
        failure = held.fails()
        assert failure.code == grpc.StatusCode.INVALID_ARGUMENT
        wait_until_free(service, key)


def test_hold_is_told_that_it_was_taken_away(service, stream):
    key = keys()
    held, granted = hold(stream, service, key, 1)
    service.psql(f"select leasehold.force_release('hold', '{key}', 'maintenance')")
    event = held.until(is_event("lost"))
    assert event.lost.outcome == pb.OUTCOME_LOST and event.lost.end_reason == pb.END_REASON_FORCED
    assert event.lost.lease_key == granted.lease_key
    held.ends()


def test_hold_alive_is_named_by_the_renewals(service, stream):
    key = keys()
    held, _ = hold(stream, service, key, 1, by_ping=False)
    for sequence in (5, 7, 6):
        held.send(alive(sequence))
    held.until(lambda e: e.alive_sequence == 7)
    held.send(alive(8))
    held.until(lambda e: e.alive_sequence == 8)


@pytest.mark.parametrize("said", [0, 1])
def test_hold_without_alive_messages_is_lost(service, stream, said):
    """The connection answers PINGs, as a proxy would; the client behind it works no more."""
    key = keys()
    held, _ = hold(stream, service, key, 1, owner="h", by_ping=False)
    if said:
        held.send(alive(1))
    event = held.until(is_event("lost"))
    assert event.lost.end_reason in (pb.END_REASON_EXPIRED, pb.END_REASON_UNKNOWN)
    assert max(e.alive_sequence for e in held.seen) <= 1
    assert sum(e.WhichOneof("event") == "renewed" for e in held.seen) <= said
    held.ends()
    wait_until_free(service, key)


def test_hold_outlives_calls_beside_it_that_are_cancelled_before_they_were_sent(own, stream):
    """While the socket takes no more, grpc-core resets the streams of such calls without ever opening them."""
    key, other = keys(), keys()
    held, lease = hold(stream, own, key, 60)
    own.daemon.signal(signal.SIGSTOP)
    padding = [("x-padding", "x" * 4000)]
    for _ in range(2500):  # 10 MB
        own.client.lease.GetLease.future(pb.GetLeaseRequest(scope=scope("hold", other)), metadata=padding).cancel()
        time.sleep(0.0005)
    own.daemon.signal(signal.SIGCONT)

    def token():
        """Some of those calls came before their cancel, and count among the client's until the database has answered them."""
        try:
            return own.client.lease.GetLease(pb.GetLeaseRequest(scope=scope("hold", key))).lease.token
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error
            return None

    assert wait_until(token, BOUND, "an answer") == lease.token
    held.half_close()
    held.until(is_event("released"))  # a slow machine renews it before


def test_hold_again_with_the_same_lease_key_takes_over(service, stream):
    """As a client does whose connection broke: the first stream's end must not release the second one's lease."""
    key, lease_key = keys(), str(uuid.uuid4())
    first, granted = hold(stream, service, key, 1, lease_key=lease_key, owner="h")
    second = stream(service.client.lease.Hold, hold_request("hold", key, 1, lease_key=lease_key, owner="h"))
    assert second.next().granted.token == granted.token
    assert first.fails().code == grpc.StatusCode.CANCELLED
    for _ in range(4):
        assert second.next().WhichOneof("event") == "renewed"
    assert holder(service, key) == "h"


def test_hold_of_a_killed_client_is_released_at_once(service, process):
    key = keys()
    client = process("Hold", acquire_request("hold", key, 3600, owner="h"))
    says(client, "granted")
    assert holder(service, key) == "h"
    client.kill()
    wait_until_free(service, key)
    assert last_of(service, "hold", key).end_reason == pb.END_REASON_FAILED


def test_hold_of_a_killed_client_that_waits_leaves_the_queue(service, process):
    key = keys()
    service.client.lease.Acquire(acquire_request("hold", key))
    client = process("Hold", acquire_request("hold", key, 60, wait_forever=True))
    says(client, "queued")
    client.kill()
    wait_until(lambda: waiters(service, key) == 0, BOUND)


def test_hold_of_a_stopped_client_is_lost_and_it_hears_so(service, stream, process):
    key = keys()
    client = process("Hold", acquire_request("hold", key, 6, owner="stopped"))
    says(client, "granted")
    says(client, "renewed")
    behind = stream(service.client.lease.AcquireStream, unary=acquire_request("hold", key, wait_forever=True, owner="b"))
    assert behind.next().queued.holder.owner == "stopped"
    client.send_signal(signal.SIGSTOP)
    assert behind.until(granted_event).granted.owner == "b"
    last_beat = service.psql(f"select heartbeats from leasehold.scope where key = '{key}'")
    assert last_beat == "0"  # b's own
    client.send_signal(signal.SIGCONT)
    reason = says(client, "lost")
    assert int(reason[0]) == pb.END_REASON_EXPIRED
    says(client, "end")
    assert holder(service, key) == "b"


def test_hold_of_a_client_that_stops_is_not_renewed_until_it_goes_on(service, process):
    key = keys()
    client = process("Hold", acquire_request("hold", key, 12, owner="h"))
    says(client, "granted")

    def lease(what):
        return service.psql(f"select {what} from leasehold.scope where key = '{key}'")

    wait_until(lambda: lease("clock_timestamp() > heartbeat_at + interval '3.2 s'") == "t", BOUND)
    client.send_signal(signal.SIGSTOP)  # a renewal is due in less than a second
    stopped_at = service.psql("select clock_timestamp()")
    wait_until(lambda: lease(f"clock_timestamp() > timestamptz '{stopped_at}' + interval '2 s'") == "t", BOUND)
    assert lease(f"heartbeat_at < timestamptz '{stopped_at}' + interval '0.5 s'") == "t"
    client.send_signal(signal.SIGCONT)
    says(client, "renewed")
    assert holder(service, key) == "h"


def test_hold_of_a_stopped_client_under_a_manual_policy_waits_for_it(service, process):
    service.psql("select leasehold.set_policy('byhand', expiry => 'manual')")
    key = keys()
    client = process("Hold", acquire_request("byhand", key, 1, owner="h"))
    says(client, "granted")
    client.send_signal(signal.SIGSTOP)
    wait_until(lambda: service.psql(
        f"select clock_timestamp() > deadline + grace from leasehold.scope where key = '{key}'") == "t", BOUND)
    assert holder(service, key) == "h"
    before = int(service.psql(f"select heartbeats from leasehold.scope where key = '{key}'"))
    client.send_signal(signal.SIGCONT)
    wait_until(lambda: int(service.psql(
        f"select heartbeats from leasehold.scope where key = '{key}'")) > before, BOUND)
    assert holder(service, key) == "h"


def test_hold_of_a_client_that_proves_its_life_is_renewed(service, stream):
    """As the packages of earlier releases do it: the first alive comes a third of the duration after the grant."""
    key = keys()
    held, _ = hold(stream, service, key, 1, owner="h", by_ping=False)
    has_been_held_for = lambda period: service.psql(  # noqa: E731
        f"select clock_timestamp() > acquired_at + interval '{period}' from leasehold.scope where key = '{key}'") == "t"
    wait_until(lambda: has_been_held_for("0.33 s"), BOUND)
    sequence = itertools.count(1)

    def has_proved_its_life_for_long_enough():
        number = next(sequence)
        held.send(alive(number))
        held.until(lambda e: e.alive_sequence == number)
        return has_been_held_for("5 s")
    wait_until(has_proved_its_life_for_long_enough, BOUND)
    assert holder(service, key) == "h"


def test_hold_that_is_quiet_says_so(service, stream):
    key = keys()
    held, _ = hold(stream, service, key, 600, by_ping=False)
    held.send(alive(3))
    assert held.until(is_event("alive")).alive.sequence == 3
    assert [e.WhichOneof("event") for e in held.seen] == ["granted", "alive"]


def test_watch_that_is_quiet_says_so_to_who_asks(service, stream):
    asked = stream(service.client.lease.WatchLeases, unary=pb.WatchLeasesRequest(namespace=["nothing"], alive=True))
    plain = stream(service.client.lease.WatchLeases, unary=pb.WatchLeasesRequest(namespace=["nothing"]))
    event = asked.next()
    assert event.type == pb.LeaseEvent.TYPE_ALIVE and not event.HasField("lease")
    assert plain.events.empty()


@pytest.mark.parametrize("mark", ["x-forwarded-for", "forwarded", "via"])
def test_hold_that_a_proxy_cut_is_left_for_its_client_to_come_back(service, stream, mark):
    """A stream that a proxy ends looks like that of a client that died. The client lives on, and works until its deadline."""
    key, other, lease_key = keys(), keys(), str(uuid.uuid4())
    request = hold_request("hold", key, 30, lease_key=lease_key, owner="h")
    stays_open = threading.Event()
    requests = itertools.chain([request], iter(stays_open.wait, True))
    cut = service.client.lease.Hold(requests, metadata=[(mark, "192.0.2.1")])
    token = next(cut).granted.token
    after, _ = hold(stream, service, other, 30)
    cut.cancel()
    after.call.cancel()  # which has no proxy
    stays_open.set()
    wait_until_free(service, other)
    assert holder(service, key) == "h"
    again = Stream(service.client.lease.Hold, request)
    assert again.next().granted.token == token
    again.close()


# --- with daemons and databases of their own ---


@pytest.mark.parametrize("own", [("--max-block", "1s")], indirect=True)
def test_hold_is_exempt_from_the_blocking_limit(own, stream):
    key = keys()
    first, _ = hold(stream, own, key, 60)
    second = stream(own.client.lease.Hold, hold_request("hold", key, 60, wait_forever=True))
    assert second.next().queued is not None
    for _ in range(2):
        with fails() as failure:
            own.client.lease.Acquire(acquire_request("hold", key, wait_forever=True))
        assert failure.value.reason == "BLOCKING_TIMEOUT"
    first.half_close()
    second.until(is_event("granted"))


def test_hold_tries_again_while_the_database_is_away(own, stream):
    key = keys()
    held, granted = hold(stream, own, key, 20)
    held.until(is_event("renewed"))
    own.cluster.stop("immediate")
    with fails() as failure:  # it is noticed
        own.client.lease.Acquire(acquire_request("hold", keys()))
    assert failure.value.code == grpc.StatusCode.UNAVAILABLE
    own.cluster.start()
    assert held.until(is_event("renewed")).renewed.token == granted.token


def test_hold_is_lost_when_the_database_stays_away_past_the_deadline(own, stream):
    held, _ = hold(stream, own, keys(), 2)
    own.cluster.stop("immediate")
    event = held.until(is_event("lost"))
    assert event.lost.end_reason == pb.END_REASON_UNKNOWN and event.lost.message
    held.ends()


def test_hold_outlives_a_shutdown_under_its_lease_key(own, stream):
    key, lease_key = keys(), str(uuid.uuid4())
    held, granted = hold(stream, own, key, 60, lease_key=lease_key)
    waiting = stream(own.client.lease.Hold, hold_request("hold", key, 60, wait_forever=True))
    waiting.next()
    own.daemon.signal(signal.SIGTERM)
    for each in (held, waiting):
        failure = each.fails()
        assert failure.code == grpc.StatusCode.UNAVAILABLE and failure.reason == "SHUTTING_DOWN"
    assert own.daemon.process.wait(BOUND) == 0
    own.daemon.start()
    again = harness.Client(own.daemon.target)
    held = stream(again.lease.Hold, hold_request("hold", key, 60, lease_key=lease_key))
    assert held.next().granted.token == granted.token
    again.close()
