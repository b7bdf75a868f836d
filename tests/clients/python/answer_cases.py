"""The cases about answers that cannot be true."""
import leasehold
import pytest
from cases import LONG, NAMESPACE, fresh
from harness import wait_until

OTHER = {"lease_key": "6f1ed002-ab5f-4cbc-9c4a-3b1e0a2f9b10"}
AGES = 9_000_000_000  # seconds


def answers_for_other_leases_are_refused(place):
    liar = place.liar()
    client = place.client(liar.target, strategy=leasehold.fail_fast)
    lost = client.lease(NAMESPACE, fresh(), duration=3).acquire()
    kept = client.lease(NAMESPACE, fresh(), duration=LONG).acquire()
    liar.lies = OTHER
    with pytest.raises(leasehold.Unavailable):
        kept.downgrade()
    with pytest.raises(leasehold.Unavailable):
        kept.release()
    wait_until(lambda: not lost.is_held())


def doubtful_grants_are_given_back(place):
    liar = place.liar()
    client = place.client(liar.target, strategy=leasehold.fail_fast)
    for lies in (OTHER, {"status": "UNAVAILABLE"}, {"is_garbage": True}, {"leases": 1}):
        liar.lies = lies
        for make in [lambda: client.lease_all([(NAMESPACE, fresh()), (NAMESPACE, fresh())])] + [lambda: client.lease(NAMESPACE, fresh())] * ("leases" not in lies):
            with pytest.raises(leasehold.Unavailable):
                make().acquire()
            wait_until(lambda: liar.asked[-1] in liar.released)

    def deny(retry):
        liar.lies = {"status": "PERMISSION_DENIED"}
        return 0.0

    liar.lies = {"status": "UNAVAILABLE"}
    with pytest.raises(leasehold.Denied):
        client.lease(NAMESPACE, fresh(), strategy=deny).acquire()
    wait_until(lambda: liar.asked[-1] in liar.released)


def times_are_believed_as_far_as_they_can_be_true(place):
    liar = place.liar()
    client = place.client(liar.target)
    for lies in ({"waited": AGES}, {"remaining": AGES}, {"waited": AGES, "remaining": AGES}):
        liar.lies = lies
        lease, before = client.lease(NAMESPACE, fresh(), duration=3).acquire(), liar.renewals
        assert 0 < lease.remaining() <= 3
        wait_until(lambda: liar.renewals >= before + 2)
        assert 0 < lease.remaining() <= 3
        lease.downgrade()
        assert 0 < lease.remaining() <= 3
        assert lease.release()
    liar.lies = {"waited": -AGES, "remaining": -AGES}
    assert not client.lease(NAMESPACE, fresh()).acquire().is_held()
