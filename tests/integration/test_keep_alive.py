"""KeepAlive, with a stock Python client."""
import signal
import uuid

import grpc

import harness
from harness import acquire_request, fails, lease_ref, pb, scope, wait_until
from streams import BOUND, Stream, beat, keys


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


# --- with daemons and databases of their own ---


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
