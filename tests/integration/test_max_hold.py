"""A hold that the policy ends (end_at_max_hold): what holders, watchers, the history, the metrics and `leasehold run` are told."""
import uuid

import grpc
import pytest

from harness import acquire_request, duration, fails, lease_ref, pb, wait_until
from streams import BOUND, Stream

from test_hold import hold_request
from test_metrics import Metrics
from test_watch import Watch


@pytest.fixture
def ns(service):
    name = "end" + uuid.uuid4().hex[:8]
    service.psql(f"select leasehold.set_policy('{name}', max_hold => '12 s', end_at_max_hold => true, history => true)")
    return name


def losses(service):
    return Metrics(service.daemon).get("leasehold_lease_losses_total", reason="max_hold")


def test_a_lease_that_is_renewed_ends_and_all_are_told(service, ns):
    renew = lambda: service.client.lease.Heartbeat(pb.HeartbeatRequest(leases=[lease_ref(lease)])).results[0]  # noqa: E731
    watch, before = Watch(service.client, ns), losses(service)
    lease = service.client.lease.Acquire(acquire_request(ns, "k", 60)).lease
    assert lease.deadline_is_final and lease.deadline.ToMicroseconds() == lease.acquired_at.ToMicroseconds() + 12000000 and lease.duration.seconds == 60
    waiting = service.client.lease.Acquire.future(acquire_request(ns, "k", 1, wait=60))
    beat = renew()
    assert beat.outcome == pb.OUTCOME_OK and beat.deadline_is_final and beat.deadline == lease.deadline and beat.remaining.seconds < 12
    assert beat.message == f"the policy of {ns} ends it after 12 s"
    assert waiting.result(BOUND).lease.token > lease.token
    lost = renew()
    assert (lost.outcome, lost.end_reason) == (pb.OUTCOME_LOST, pb.END_REASON_MAX_HOLD) and "max_hold" in lost.message
    assert losses(service) == before + 1
    events = [watch.next() for _ in range(3)]
    watch.close()
    assert [(each.type, each.end_reason) for each in events] == [
        (pb.LeaseEvent.TYPE_ACQUIRED, 0), (pb.LeaseEvent.TYPE_EXPIRED, pb.END_REASON_MAX_HOLD), (pb.LeaseEvent.TYPE_ACQUIRED, 0)]
    assert service.psql(f"select outcome from leasehold.history where namespace = '{ns}' and token = {lease.token}") == "max_hold"


def test_a_hold_goes_on_to_its_end_and_is_told_then(service, ns):
    stream = Stream(service.client.lease.Hold, hold_request(ns, "k", 9))
    lost = stream.until(lambda event: event.WhichOneof("event") == "lost", "the loss").lost
    stream.ends()
    renewed = [each.renewed for each in stream.seen if each.WhichOneof("event") == "renewed"]
    assert renewed and renewed[-1].deadline_is_final and lost.end_reason == pb.END_REASON_MAX_HOLD
    assert {each.deadline.ToMicroseconds() for each in renewed if each.deadline_is_final} == {stream.seen[0].granted.acquired_at.ToMicroseconds() + 12000000}


def test_run_says_why_it_ended_the_command(service, runs, ns):
    run = runs(ns, "k", "sleep 60", "--duration", "9s")
    assert run.ends(60) == 4 and f"the lease is lost (max_hold): the policy of {ns} ends a lease after max_hold; the command was ended" in run.err
    run.nothing_is_left()
    wait_until(lambda: service.psql(f"select outcome from leasehold.history where namespace = '{ns}'") == "max_hold", BOUND, "the end of the lease")


def test_settings_that_contradict_each_other_are_refused(service, ns):
    def refused(**settings):
        with fails() as failure:
            service.client.admin.SetPolicy(pb.SetPolicyRequest(policy=pb.Policy(namespace=pb.Namespace(segments=[ns, "below"]), **settings)))
        assert failure.value.code == grpc.StatusCode.INVALID_ARGUMENT
        return failure.value.metadata["field"], failure.value.message

    field, words = refused(max_hold=duration(0.5))
    assert field == "policy.max_hold" and "at least min_duration while end_at_max_hold is true" in words
    assert refused(expiry=pb.Policy.EXPIRY_MANUAL)[0] == "policy.expiry"
    assert refused(min_duration=duration(13))[0] == "policy.min_duration"
