"""A request to hand over is a row: what dies between the asking and the telling takes nothing away."""
import pytest

from harness import acquire_request, lease_ref, pb, scope, wait_until
from place import BOUND


def beat(client, lease):
    return client.lease.Heartbeat(pb.HeartbeatRequest(leases=[lease_ref(lease)])).results[0]


@pytest.mark.parametrize("how", ["immediate", "fast"])
def test_a_holder_hears_of_a_request_after_daemon_and_postgresql_died(place, how):
    daemon = place.daemon()
    lease = place.clients[0].lease.Acquire(acquire_request("jobs", "k", 60, owner="first")).lease
    other = place.clients[0].lease.Acquire(acquire_request("jobs", "other", 60)).lease
    asked = place.clients[0].lease.AskHandOver(pb.AskHandOverRequest(scope=scope("jobs", "k"), reason="zone b is back")).holders[0].asked
    daemon.kill()  # before any renewal told it
    place.cluster.stop(how)
    place.cluster.start()
    place.daemon()
    client = place.clients[-1]
    wait_until(lambda: beat(client, lease).HasField("asked"), BOUND, "the request in a renewal's answer")
    told = beat(client, lease).asked
    assert told.reason == "zone b is back" and told.asked_at == asked.asked_at and told.answer_by == asked.answer_by
    assert not beat(client, other).HasField("asked")
    client.lease.RefuseHandOver(pb.RefuseHandOverRequest(lease=lease_ref(lease), reason="in the middle of it"))
    place.daemons[-1].kill()
    place.daemon()
    seen = place.clients[-1].lease.GetLease(pb.GetLeaseRequest(scope=scope("jobs", "k"))).lease
    assert seen.token == lease.token
    wait_until(lambda: place.clients[-1].lease.GetLease(pb.GetLeaseRequest(scope=scope("jobs", "k"))).lease.asked.refusal == "in the middle of it",
               BOUND, "the refusal, for the asker")
    assert not beat(place.clients[-1], lease).HasField("asked")


def test_a_waiter_that_asks_has_asked_though_its_daemon_dies(place):
    first, second = place.daemon(), place.daemon()
    lease = place.clients[1].lease.Acquire(acquire_request("jobs", "k", 60)).lease
    call = place.queued_call(place.clients[0], "k", "next", ask_hand_over=True)
    wait_until(lambda: place.psql("select count(*) from leasehold.hand_over_request") == "1", BOUND, "the request's row")
    first.kill()
    assert call.exception(BOUND) is not None
    wait_until(lambda: beat(place.clients[1], lease).asked.asked_by == "next", BOUND, "the request by the other daemon")
