"""The streaming calls, with a stock Python client: KeepAlive, AcquireStream, Hold."""
import pathlib
import queue
import signal
import subprocess
import sys
import threading
import uuid

import grpc
import pytest

import harness
from harness import acquire_request, duration, fails, lease_ref, pb, scope, wait_until

STUBS = str(pathlib.Path(pb.__file__).parents[2])
BOUND = 60  # seconds until a test gives up; never a measurement


def keys():
    return "k-" + uuid.uuid4().hex[:8]


class Stream:
    """A bidirectional or server stream: requests by send(), events by next(), and how it ended."""

    END = object()

    def __init__(self, method, *requests, unary=None):
        self.requests = queue.Queue()
        self.events = queue.Queue()
        self.seen = []
        self.error = None
        for request in requests:
            self.requests.put(request)
        self.call = method(unary) if unary is not None else method(iter(self.requests.get, None))
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        try:
            for event in self.call:
                self.events.put(event)
        except grpc.RpcError as error:
            self.error = error
        self.events.put(Stream.END)

    def send(self, request):
        self.requests.put(request)

    def half_close(self):
        self.requests.put(None)

    def next(self, seconds=BOUND):
        """The next event, or None at the end of the stream."""
        event = self.events.get(timeout=seconds)
        if event is Stream.END:
            self.events.put(event)
            return None
        self.seen.append(event)
        return event

    def until(self, condition, what="the event"):
        """Read on to the first event for which `condition` is true."""
        while True:
            event = self.next()
            assert event is not None, f"the stream ended before {what}: {self.error}"
            if condition(event):
                return event

    def ends(self):
        """It ends with OK, whatever comes before."""
        while self.next() is not None:
            pass
        assert self.error is None, self.error

    def fails(self):
        while self.next() is not None:
            pass
        assert self.error is not None, "the stream ended with OK"
        return harness.Failure(self.error)

    def close(self):
        self.half_close()
        self.call.cancel()


@pytest.fixture
def stream():
    """Streams that are closed with the test."""
    opened = []

    def open_stream(*args, **more):
        opened.append(Stream(*args, **more))
        return opened[-1]

    yield open_stream
    for each in opened:
        each.close()


def beat(*leases):
    return pb.HeartbeatRequest(leases=[lease_ref(lease) for lease in leases])


def waiters(service, key):
    return int(service.psql(f"select count(*) from leasehold.waiter where key = '{key}'"))


def holder(service, key):
    """Owner of a held scope, else ''."""
    return service.psql(f"select owner from leasehold.scope where key = '{key}' and state = 'held'")


# --- KeepAlive ---


def test_keep_alive_answers_batches_in_order(service, stream):
    leases = [service.client.lease.Acquire(acquire_request("keep", keys())).lease for _ in range(5)]
    beats = stream(service.client.lease.KeepAlive)
    for number in range(200):
        beats.send(beat(*leases[: number % 5 + 1]))
    for number in range(200):
        results = beats.next().results
        assert [r.lease_key for r in results] == [lease.lease_key for lease in leases[: number % 5 + 1]]
        assert all(r.outcome == pb.OUTCOME_OK for r in results)
    counts = [answer.results[0].heartbeats for answer in beats.seen]
    assert counts == sorted(counts) and counts[0] > 0


def test_keep_alive_a_later_answer_waits_for_an_earlier_one(service, stream):
    blocked = service.client.lease.Acquire(acquire_request("keep", keys())).lease
    free = service.client.lease.Acquire(acquire_request("keep", keys())).lease
    session = service.session()
    try:
        session.run(f"begin; select 1 from leasehold.scope where key = '{blocked.scope.key}' for update")
        beats = stream(service.client.lease.KeepAlive, beat(blocked), beat(free))
        wait_until(lambda: service.psql(
            f"select heartbeats from leasehold.scope where key = '{free.scope.key}'") == "1")
        assert beats.events.empty()
        session.run("rollback")
    finally:
        session.close()
    assert beats.next().results[0].lease_key == blocked.lease_key
    assert beats.next().results[0].lease_key == free.lease_key


def test_keep_alive_tells_lost_and_invalid_items(service, stream):
    lease = service.client.lease.Acquire(acquire_request("keep", keys())).lease
    gone = service.client.lease.Acquire(acquire_request("keep", keys())).lease
    service.client.lease.Release(harness.release_request(gone))
    bad = pb.LeaseRef(scope=lease.scope, lease_key="no uuid")
    beats = stream(service.client.lease.KeepAlive)
    for _ in range(2):
        beats.send(pb.HeartbeatRequest(leases=[bad, lease_ref(lease), lease_ref(gone)]))
        outcomes = [r.outcome for r in beats.next().results]
        assert outcomes == [pb.OUTCOME_INVALID, pb.OUTCOME_OK, pb.OUTCOME_LOST]
    assert beats.seen[-1].results[2].end_reason == pb.END_REASON_RELEASED


def test_keep_alive_a_bad_message_ends_the_stream_after_what_is_owed(service):
    lease = service.client.lease.Acquire(acquire_request("keep", keys())).lease
    raw = service.client.channel.stream_stream("/leasehold.v1.LeaseService/KeepAlive")
    answers = []
    with fails() as failure:
        for answer in raw(iter([beat(lease).SerializeToString(), b"\xff\xff\xff rubbish", beat(lease).SerializeToString()])):
            answers.append(pb.HeartbeatResponse.FromString(answer))
    assert failure.value.code == grpc.StatusCode.INVALID_ARGUMENT and failure.value.reason == "INVALID_ARGUMENT"
    assert failure.value.bad_request is not None
    assert [a.results[0].outcome for a in answers] == [pb.OUTCOME_OK]


def test_keep_alive_half_close_finishes_the_answers(service):
    lease = service.client.lease.Acquire(acquire_request("keep", keys())).lease
    answers = list(service.client.lease.KeepAlive(iter([beat(lease)] * 100)))
    assert len(answers) == 100 and all(a.results[0].outcome == pb.OUTCOME_OK for a in answers)
    assert list(service.client.lease.KeepAlive(iter([]))) == []


def test_keep_alive_takes_no_more_than_it_can_answer(service, stream):
    """While a row is locked the unanswered batches are bounded; the rest waits with the client, and all are answered."""
    blocked = service.client.lease.Acquire(acquire_request("keep", keys())).lease
    others = [pb.LeaseRef(scope=scope("keep", f"none-{n}"), lease_key=str(uuid.uuid4())) for n in range(2000)]
    session = service.session()
    try:
        session.run(f"begin; select 1 from leasehold.scope where key = '{blocked.scope.key}' for update")
        beats = stream(service.client.lease.KeepAlive)
        for _ in range(40):
            beats.send(pb.HeartbeatRequest(leases=[lease_ref(blocked), *others]))
        first = beats.next()
        assert first.results[0].outcome == pb.OUTCOME_RETRY and len(first.results) == 2001
        session.run("rollback")
    finally:
        session.close()
    beats.half_close()
    outcomes = [first.results[0].outcome]
    while (answer := beats.next()) is not None:
        assert len(answer.results) == 2001
        outcomes.append(answer.results[0].outcome)
    assert len(outcomes) == 40 and outcomes[-1] == pb.OUTCOME_OK and beats.error is None


def test_keep_alive_a_client_that_is_gone_leaves_nothing_behind(service):
    lease = service.client.lease.Acquire(acquire_request("keep", keys())).lease
    other = harness.Client(service.daemon.target)
    beats = Stream(other.lease.KeepAlive, *[beat(lease)] * 20)
    assert beats.next().results[0].outcome == pb.OUTCOME_OK
    other.close()
    assert service.client.lease.Heartbeat(beat(lease)).results[0].outcome == pb.OUTCOME_OK


# --- AcquireStream ---


def queued_event(event):
    return event.WhichOneof("event") == "queued"


def granted_event(event):
    return event.WhichOneof("event") == "granted"


def test_acquire_stream_is_granted_at_once_where_it_is_free(service):
    key, lease_key = keys(), str(uuid.uuid4())
    events = list(service.client.lease.AcquireStream(acquire_request("jobs", key, owner="w", lease_key=lease_key)))
    assert len(events) == 1 and events[0].granted.lease_key == lease_key and events[0].granted.owner == "w"
    assert events[0].HasField("waited") and events[0].granted.token > 0
    assert service.client.lease.Heartbeat(beat(events[0].granted)).results[0].outcome == pb.OUTCOME_OK


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
    service.client.lease.Acquire(acquire_request("still", key, 2))
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


CLIENT = """
import queue, sys
sys.path.insert(0, sys.argv[1])
import google
google.__path__.append(sys.argv[1] + "/google")
import grpc
from leasehold.v1 import leasehold_pb2 as pb, leasehold_pb2_grpc as pb_grpc
stub = pb_grpc.LeaseServiceStub(grpc.insecure_channel(sys.argv[2]))
request = pb.AcquireRequest.FromString(bytes.fromhex(sys.argv[4]))
requests = queue.Queue()
requests.put(pb.HoldRequest(acquire=request))
events = stub.Hold(iter(requests.get, None)) if sys.argv[3] == "Hold" else stub.AcquireStream(request)
for event in events:
    print(event.WhichOneof("event"), event.lost.end_reason if sys.argv[3] == "Hold" else "", flush=True)
print("end", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def process(service):
    """A client in a process of its own, to be killed and stopped."""
    started = []

    def start(method, request):
        started.append(subprocess.Popen(
            [sys.executable, "-c", CLIENT, STUBS, service.daemon.target, method, request.SerializeToString().hex()],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.wait()


def says(process, what):
    """Read its lines up to this event."""
    for line in process.stdout:
        if line.split()[0] == what:
            return line.split()[1:]
    raise AssertionError(f"the client ended without {what}")


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


# --- Hold ---


def hold_request(*args, **fields):
    return pb.HoldRequest(acquire=acquire_request(*args, **fields))


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


def is_event(name):
    return lambda event: event.WhichOneof("event") == name


def last_of(service, namespace, key):
    return service.client.lease.GetLease(pb.GetLeaseRequest(scope=scope(namespace, key))).last


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
    held = stream(service.client.lease.Hold, hold_request("hold", key))
    granted = held.next().granted
    held.send(release_message(success='{"rows": 3}', lease=granted if named else None))
    event = held.until(is_event("released"))
    assert event.released.outcome == pb.OUTCOME_OK and event.released.lease_key == granted.lease_key
    held.ends()
    last = last_of(service, "hold", key)
    assert last.end_reason == pb.END_REASON_RELEASED and last.result == '{"rows": 3}'


def test_hold_release_with_failure(service, stream):
    key = keys()
    held = stream(service.client.lease.Hold, hold_request("hold", key))
    held.next()
    held.send(release_message(failure="disk full"))
    assert held.until(is_event("released")).released.outcome == pb.OUTCOME_OK
    held.ends()
    last = last_of(service, "hold", key)
    assert last.end_reason == pb.END_REASON_FAILED and last.error == "disk full"


def test_hold_result_that_the_database_refuses_ends_the_lease_all_the_same(service, stream):
    key = keys()
    held = stream(service.client.lease.Hold, hold_request("hold", key))
    held.next()
    held.send(release_message(success="1e200000"))
    assert held.until(is_event("released")).released.outcome == pb.OUTCOME_INVALID
    held.ends()
    wait_until(lambda: holder(service, key) == "", BOUND)
    assert last_of(service, "hold", key).end_reason == pb.END_REASON_FAILED


def test_hold_half_close_releases(service, stream):
    key = keys()
    held = stream(service.client.lease.Hold, hold_request("hold", key))
    assert held.next().granted is not None
    held.half_close()
    assert held.until(is_event("released")).released.outcome == pb.OUTCOME_OK
    held.ends()
    assert last_of(service, "hold", key).end_reason == pb.END_REASON_RELEASED


def test_hold_reset_releases_at_once(service, stream):
    key = keys()
    held = stream(service.client.lease.Hold, hold_request("hold", key, 3600, owner="h"))
    held.next()
    assert holder(service, key) == "h"
    held.call.cancel()
    wait_until(lambda: holder(service, key) == "", BOUND)
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
    first = stream(service.client.lease.Hold, hold_request("hold", key, owner="first"))
    granted = first.next().granted
    second = stream(service.client.lease.Hold, hold_request("hold", key, owner="second", wait_forever=True))
    third = stream(service.client.lease.Hold, hold_request("hold", key, owner="third", wait_forever=True))
    assert second.next().queued.holder.owner == "first"
    third.until(lambda e: e.queued.waiters_ahead == 1)
    first.half_close()
    event = second.until(is_event("granted"))
    assert event.granted.token > granted.token and event.waited.ToNanoseconds() > 0
    second.call.cancel()
    assert third.until(is_event("granted")).granted.owner == "third"


def test_hold_is_refused_as_acquire_is(service, stream):
    key = keys()
    first = stream(service.client.lease.Hold, hold_request("hold", key, owner="sitting"))
    first.next()
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
    held = stream(service.client.lease.Hold, hold_request("hold", key, owner="h"))
    other = held.next().granted
    for bad in (hold_request("hold", key), release_message(success="{no json"), pb.HoldRequest(),
                release_message(lease=pb.Lease(scope=other.scope, lease_key=str(uuid.uuid4())))):
        key = keys()
        held = stream(service.client.lease.Hold, hold_request("hold", key, owner="h"))
        assert held.next().granted is not None
        held.send(bad)
        failure = held.fails()
        assert failure.code == grpc.StatusCode.INVALID_ARGUMENT
        wait_until(lambda k=key: holder(service, k) == "", BOUND)


def test_hold_is_told_that_it_was_taken_away(service, stream):
    key = keys()
    held = stream(service.client.lease.Hold, hold_request("hold", key, 1))
    granted = held.next().granted
    service.psql(f"select leasehold.force_release('hold', '{key}', 'maintenance')")
    event = held.until(is_event("lost"))
    assert event.lost.outcome == pb.OUTCOME_LOST and event.lost.end_reason == pb.END_REASON_FORCED
    assert event.lost.lease_key == granted.lease_key
    held.ends()


def test_hold_alive_is_named_by_the_renewals(service, stream):
    key = keys()
    held = stream(service.client.lease.Hold, hold_request("hold", key, 1))
    held.next()
    for sequence in (5, 7, 6):
        held.send(alive(sequence))
    held.until(lambda e: e.alive_sequence == 7)
    held.send(alive(8))
    held.until(lambda e: e.alive_sequence == 8)


def test_hold_without_alive_messages_is_lost_once_there_was_one(service, stream):
    """The connection answers PINGs, as a proxy would; the client behind it works no more."""
    key = keys()
    held = stream(service.client.lease.Hold, hold_request("hold", key, 1, owner="h"))
    held.next()
    held.send(alive(1))
    event = held.until(is_event("lost"))
    assert event.lost.end_reason in (pb.END_REASON_EXPIRED, pb.END_REASON_UNKNOWN)
    assert max(e.alive_sequence for e in held.seen) <= 1
    held.ends()
    wait_until(lambda: holder(service, key) == "", BOUND)


def test_hold_again_with_the_same_lease_key_takes_over(service, stream):
    """As a client does whose connection broke: the first stream's end must not release the second one's lease."""
    key, lease_key = keys(), str(uuid.uuid4())
    first = stream(service.client.lease.Hold, hold_request("hold", key, 1, lease_key=lease_key, owner="h"))
    token = first.next().granted.token
    second = stream(service.client.lease.Hold, hold_request("hold", key, 1, lease_key=lease_key, owner="h"))
    assert second.next().granted.token == token
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
    wait_until(lambda: holder(service, key) == "", BOUND)
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
    client = process("Hold", acquire_request("hold", key, 2, owner="stopped"))
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


def test_hold_of_a_client_that_was_stopped_for_a_moment_goes_on(service, process):
    key = keys()
    client = process("Hold", acquire_request("hold", key, 30, owner="h"))
    says(client, "granted")
    client.send_signal(signal.SIGSTOP)
    assert service.client.lease.GetLease(pb.GetLeaseRequest(scope=scope("hold", key))).lease.owner == "h"
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


# --- with daemons and databases of their own ---


@pytest.fixture
def own(request):
    """A cluster and a daemon of this test alone, for outages and shutdowns."""

    class Own:
        pass

    own = Own()
    own.cluster = harness.Cluster()
    database = own.cluster.create_database()
    own.daemon = harness.Daemon(*getattr(request, "param", ()), database=own.cluster.url(database))
    own.client = harness.Client(own.daemon.target)
    own.psql = lambda sql, **more: own.cluster.psql(sql, database, **more)
    yield own
    own.client.close()
    own.daemon.destroy()
    own.cluster.destroy()


def test_keep_alive_outlives_an_outage_of_the_database(own, stream):
    lease = own.client.lease.Acquire(acquire_request("keep", keys(), 60)).lease
    beats = stream(own.client.lease.KeepAlive, beat(lease))
    assert beats.next().results[0].outcome == pb.OUTCOME_OK
    own.cluster.stop("immediate")
    beats.send(beat(lease))
    assert beats.next().results[0].outcome == pb.OUTCOME_RETRY
    own.cluster.start()

    def renewed():
        beats.send(beat(lease))
        return beats.next().results[0].outcome == pb.OUTCOME_OK

    wait_until(renewed, BOUND)


def test_keep_alive_ends_when_the_server_shuts_down(own, stream):
    lease = own.client.lease.Acquire(acquire_request("keep", keys(), 60)).lease
    beats = stream(own.client.lease.KeepAlive, beat(lease))
    assert beats.next().results[0].outcome == pb.OUTCOME_OK
    own.daemon.signal(signal.SIGTERM)
    failure = beats.fails()
    assert failure.code == grpc.StatusCode.UNAVAILABLE and failure.reason == "SHUTTING_DOWN"
    assert failure.retry is not None
    assert own.daemon.process.wait(BOUND) == 0


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


@pytest.mark.parametrize("own", [("--max-block", "1s")], indirect=True)
def test_hold_is_exempt_from_the_blocking_limit(own, stream):
    key = keys()
    first = stream(own.client.lease.Hold, hold_request("hold", key, 60))
    first.next()
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
    held = stream(own.client.lease.Hold, hold_request("hold", key, 20))
    granted = held.next().granted
    held.until(is_event("renewed"))
    own.cluster.stop("immediate")
    with fails() as failure:  # it is noticed
        own.client.lease.Acquire(acquire_request("hold", keys()))
    assert failure.value.code == grpc.StatusCode.UNAVAILABLE
    own.cluster.start()
    assert held.until(is_event("renewed")).renewed.token == granted.token


def test_hold_is_lost_when_the_database_stays_away_past_the_deadline(own, stream):
    held = stream(own.client.lease.Hold, hold_request("hold", keys(), 2))
    held.next()
    own.cluster.stop("immediate")
    event = held.until(is_event("lost"))
    assert event.lost.end_reason == pb.END_REASON_UNKNOWN and event.lost.message
    held.ends()


def test_hold_outlives_a_shutdown_under_its_lease_key(own, stream):
    key, lease_key = keys(), str(uuid.uuid4())
    held = stream(own.client.lease.Hold, hold_request("hold", key, 60, lease_key=lease_key))
    waiting = stream(own.client.lease.Hold, hold_request("hold", key, 60, wait_forever=True))
    token = held.next().granted.token
    waiting.next()
    own.daemon.signal(signal.SIGTERM)
    for each in (held, waiting):
        failure = each.fails()
        assert failure.code == grpc.StatusCode.UNAVAILABLE and failure.reason == "SHUTTING_DOWN"
    assert own.daemon.process.wait(BOUND) == 0
    own.daemon.start()
    again = harness.Client(own.daemon.target)
    held = stream(again.lease.Hold, hold_request("hold", key, 60, lease_key=lease_key))
    assert held.next().granted.token == token
    again.close()
