"""Requests to hand a lease over, with a stock Python client: who may ask, how a holder learns of it, and what the asker sees."""
import re
import uuid
from urllib.request import urlopen

import grpc
import pytest

from harness import acquire_request, fails, lease_ref, pb, release_request, scope, wait_until
from streams import BOUND, Stream, holder, keys

NS = "handover"


def beat(service, lease):
    return service.client.lease.Heartbeat(pb.HeartbeatRequest(leases=[lease_ref(lease)])).results[0]


def ask(service, key, **fields):
    return service.client.lease.AskHandOver(pb.AskHandOverRequest(scope=scope(NS, key), **fields)).holders


def refuse(service, lease, words):
    return service.client.lease.RefuseHandOver(pb.RefuseHandOverRequest(lease=lease_ref(lease), reason=words)).asked


def seen(service, key):
    return service.client.lease.GetLease(pb.GetLeaseRequest(scope=scope(NS, key))).lease


def waiting(service, stream, key, **fields):
    """A stream that waits in the queue, and its lease key."""
    lease_key = str(uuid.uuid4())
    other = stream(service.client.lease.AcquireStream, acquire_request(NS, key, wait_forever=True, owner="next", lease_key=lease_key, **fields), unary=True)
    assert other.next().WhichOneof("event") == "queued"
    return other, lease_key


@pytest.fixture
def stream():
    opened = []

    def start(method, first, unary=False):
        opened.append(Stream(method, unary=first) if unary else Stream(method, first))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def test_a_waiter_asks_the_holder_refuses_and_the_asker_sees_it(service, stream):
    key = keys()
    lease = service.client.lease.Acquire(acquire_request(NS, key, owner="first")).lease
    assert not beat(service, lease).HasField("asked")
    other, lease_key = waiting(service, stream, key)
    asked = ask(service, key, lease_key=lease_key, reason="zone b is back")
    assert [(of.owner, of.token, of.asked.asked_by, of.asked.reason) for of in asked] == [("first", lease.token, "next", "zone b is back")]
    assert asked[0].lease_key == "" and asked[0].asked.answer_in.ToNanoseconds() > 0
    wait_until(lambda: beat(service, lease).HasField("asked"), BOUND, "the request in a heartbeat's answer")
    told = beat(service, lease)
    assert told.outcome == pb.OUTCOME_OK and told.asked.reason == "zone b is back" and told.asked.asked_at == asked[0].asked.asked_at
    assert told.asked.answer_by.ToNanoseconds() - told.asked.asked_at.ToNanoseconds() == 30 * 10**9
    assert refuse(service, lease, "five minutes").refusal == "five minutes"
    assert refuse(service, lease, "other words").refusal == "five minutes"
    wait_until(lambda: not beat(service, lease).HasField("asked"), BOUND, "the end of the request")
    wait_until(lambda: seen(service, key).asked.refusal == "five minutes", BOUND, "the refusal in GetLease")
    assert ask(service, key, lease_key=lease_key)[0].asked.refusal == "five minutes"
    listed = service.client.lease.ListLeases(pb.ListLeasesRequest(namespace=[NS])).leases
    assert [of.asked.refusal for of in listed if of.scope.key == key] == ["five minutes"]
    event = other.until(lambda event: event.queued.holder.asked.refusal, "the refusal on the asker's stream")
    assert event.queued.holder.asked.refusal == "five minutes"
    assert holder(service, key) == "first"


def test_hold_is_told_once_and_refuses_on_its_stream(service, stream):
    key = keys()
    held = stream(service.client.lease.Hold, pb.HoldRequest(acquire=acquire_request(NS, key, 6, owner="first"), by_ping=True))
    assert held.next().WhichOneof("event") == "granted"
    other, lease_key = waiting(service, stream, key)
    ask(service, key, lease_key=lease_key, reason="please")
    event = held.until(lambda event: event.WhichOneof("event") == "asked", "the request")
    assert event.asked.reason == "please" and event.asked.asked_by == "next"
    renewals = [held.until(lambda event: True) for _ in range(4)]
    assert [event.WhichOneof("event") for event in renewals] == ["renewed"] * 4 and renewals[-1].renewed.asked.reason == "please"
    held.send(pb.HoldRequest(refuse=pb.RefuseHandOver(reason="not now")))
    wait_until(lambda: seen(service, key).asked.refusal == "not now", BOUND, "the refusal")
    held.until(lambda event: event.WhichOneof("event") == "renewed" and not event.renewed.HasField("asked"), "a renewal without it")
    held.send(pb.HoldRequest(release=pb.ReleaseItem(success="null")))
    assert other.until(lambda event: event.WhichOneof("event") == "granted").granted.owner == "next"


def test_keep_alive_tells_it_too(service, stream):
    key = keys()
    lease = service.client.lease.Acquire(acquire_request(NS, key)).lease
    alive = stream(service.client.lease.KeepAlive, pb.HeartbeatRequest(leases=[lease_ref(lease)]))
    assert not alive.next().results[0].HasField("asked")
    ask(service, key, reason="an administrator")

    def told():
        alive.send(pb.HeartbeatRequest(leases=[lease_ref(lease)]))
        return alive.next().results[0].HasField("asked")

    wait_until(told, BOUND, "the request on KeepAlive")


@pytest.mark.parametrize("shared", [False, True])
def test_ask_hand_over_asks_each_holder_that_it_waits_behind(service, stream, shared):
    key = keys()
    mode = dict(mode=pb.MODE_SHARED, units=1) if shared else {}
    leases = [service.client.lease.Acquire(acquire_request(NS, key, owner=f"h{n}", **mode)).lease for n in range(2 if shared else 1)]
    behind, _ = waiting(service, stream, key)
    last, _ = waiting(service, stream, key, ask_hand_over=True)
    for lease in leases:
        wait_until(lambda: beat(service, lease).asked.asked_by == "next", BOUND, "the request")
        refuse(service, lease, "no")
    for lease in leases:
        service.client.lease.Release(pb.ReleaseRequest(items=[pb.ReleaseItem(lease=lease_ref(lease))]))
    granted = behind.until(lambda event: event.WhichOneof("event") == "granted").granted
    wait_until(lambda: beat(service, granted).HasField("asked"), BOUND, "the next holder to be asked")
    wait_until(lambda: service.psql(f"select count(*) from leasehold.hand_over where key = '{key}'") == "1", BOUND, "the sweep of the old request")
    service.client.lease.Release(pb.ReleaseRequest(items=[pb.ReleaseItem(lease=lease_ref(granted))]))
    assert last.until(lambda event: event.WhichOneof("event") == "granted").granted.owner == "next"


@pytest.mark.parametrize("field, fields", [
    ("lease_key", dict(lease_key="nonsense")), ("lease_key", dict(lease_key=str(uuid.uuid4()))), ("reason", dict(reason="r" * 1025)),
    ("token", dict(token=-1)), ("owner", dict(owner="o" * 256)), ("scope.key", dict(key=""))])
def test_a_request_that_is_wrong_says_what(service, field, fields):
    fields, key = dict(fields), keys()
    service.client.lease.Acquire(acquire_request(NS, key))
    with fails() as failure:
        ask(service, fields.pop("key", key), **fields)
    assert failure.value.code == grpc.StatusCode.INVALID_ARGUMENT
    assert [violation.field for violation in failure.value.bad_request.field_violations] == [field]


def test_what_cannot_be_asked_or_refused(service):
    key = keys()
    with fails() as failure:
        ask(service, key)
    assert failure.value.code == grpc.StatusCode.NOT_FOUND and failure.value.reason == "NOT_HELD"
    lease = service.client.lease.Acquire(acquire_request(NS, key)).lease
    with fails() as failure:
        refuse(service, lease, "no")
    assert failure.value.code == grpc.StatusCode.FAILED_PRECONDITION and failure.value.reason == "NOT_ASKED"
    ask(service, key)
    with fails() as failure:
        refuse(service, lease, "")
    assert failure.value.code == grpc.StatusCode.INVALID_ARGUMENT
    stranger = pb.LeaseRef(scope=scope(NS, key), lease_key=str(uuid.uuid4()))
    with fails() as failure:
        service.client.lease.RefuseHandOver(pb.RefuseHandOverRequest(lease=stranger, reason="no"))
    assert failure.value.reason == "NOT_HELD"
    with fails() as failure:
        service.client.lease.Acquire(acquire_request(NS, keys(), ask_hand_over=True))
    assert failure.value.code == grpc.StatusCode.INVALID_ARGUMENT


def test_requests_are_counted_by_their_state(service):
    key = keys()
    lease = service.client.lease.Acquire(acquire_request("handover.late", key, 600)).lease
    service.psql("select leasehold.set_policy('handover.late', hand_over_grace => '0 s')")
    service.client.lease.AskHandOver(pb.AskHandOverRequest(scope=scope("handover.late", key), reason="please"))

    def agree(least):
        """What the database says now is what the last survey found."""
        rows = service.psql("select state || ' ' || count(*) from leasehold.hand_over_request group by state").splitlines()
        found = {"open": 0, "refused": 0, "unanswered": 0, **{row.split()[0]: int(row.split()[1]) for row in rows}}
        body = urlopen(f"http://127.0.0.1:{service.daemon.admin_port}/metrics", timeout=30).read().decode()
        told = dict(re.findall(r'^leasehold_hand_over_requests\{state="(\w+)"\} (\d+)$', body, re.M))
        return found[least] > 0 and {state: int(count) for state, count in told.items()} == found

    wait_until(lambda: agree("unanswered"), BOUND, "the unanswered request in the metrics")
    refuse(service, lease, "no")
    wait_until(lambda: agree("refused"), BOUND, "the refused request in the metrics")
    service.client.lease.Release(release_request(lease))
