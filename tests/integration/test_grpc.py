"""A stock Python client takes, renews, waits for and gives back leases; psql sees what happens."""
import json
import socket
import threading
import uuid

import grpc
import pytest

import harness
from harness import acquire_request, duration, fails, lease_ref, pb, release_request, scope, wait_until


def keys():
    return "k-" + uuid.uuid4().hex[:8]


def test_a_lease_lives_from_acquire_to_release(service):
    key = keys()
    request = acquire_request("payments.invoices", key, 30, owner="worker-3", labels={"pod": "w3-abc"})
    response = service.client.lease.Acquire(request)
    lease = response.lease
    assert lease.scope.namespace == ["payments", "invoices"] and lease.scope.key == key
    assert lease.token > 0 and lease.owner == "worker-3" and dict(lease.labels) == {"pod": "w3-abc"}
    assert lease.duration.seconds == 30 and 29 <= lease.remaining.ToNanoseconds() / 1e9 <= 30
    assert lease.liveness == pb.LIVENESS_ALIVE and lease.grace.seconds == 1
    uuid.UUID(lease.lease_key)

    row = service.psql(f"select state, owner, token from leasehold.scope where key = '{key}'")
    assert row == f"held|worker-3|{lease.token}"

    beat = service.client.lease.Heartbeat(pb.HeartbeatRequest(leases=[lease_ref(lease)])).results[0]
    assert beat.outcome == pb.OUTCOME_OK and beat.heartbeats == 1 and beat.lease_key == lease.lease_key
    assert beat.deadline.ToNanoseconds() > lease.deadline.ToNanoseconds()

    got = service.client.lease.GetLease(pb.GetLeaseRequest(scope=scope("payments.invoices", key)))
    assert got.lease.owner == "worker-3" and got.lease.lease_key == "" and got.lease.token == lease.token

    done = service.client.lease.Release(release_request(lease, success='{"rows": 3}')).results[0]
    assert done.outcome == pb.OUTCOME_OK
    got = service.client.lease.GetLease(pb.GetLeaseRequest(scope=scope("payments.invoices", key)))
    assert not got.HasField("lease") and got.last.token == lease.token
    assert got.last.end_reason == pb.END_REASON_RELEASED and json.loads(got.last.result) == {"rows": 3}

    again = service.client.lease.Release(release_request(lease)).results[0]
    assert again.outcome == pb.OUTCOME_LOST and again.end_reason == pb.END_REASON_RELEASED


def test_a_failed_release_keeps_its_error(service):
    key = keys()
    lease = service.client.lease.Acquire(acquire_request("jobs", key)).lease
    assert service.client.lease.Release(release_request(lease, failure="disk full")).results[0].outcome == pb.OUTCOME_OK
    last = service.client.lease.GetLease(pb.GetLeaseRequest(scope=scope("jobs", key))).last
    assert last.end_reason == pb.END_REASON_FAILED and last.error == "disk full"


def test_a_held_lease_is_refused_with_who_holds_it(service):
    key = keys()
    held = service.client.lease.Acquire(acquire_request("db", key, owner="worker-3")).lease
    with fails() as failure:
        service.client.lease.Acquire(acquire_request("db", key, owner="other"))
    error = failure.value
    assert error.code == grpc.StatusCode.ABORTED and error.reason == "LEASE_HELD"
    assert error.metadata["namespace"] == "db" and error.metadata["key"] == key
    assert "worker-3" in error.message and "alive" in error.message and key in error.message
    assert error.contention.holder.owner == "worker-3" and error.contention.holder.token == held.token
    assert error.contention.holder.lease_key == "" and not error.contention.holder.labels
    assert error.contention.liveness == pb.LIVENESS_ALIVE and error.contention.waiters_ahead == 0


def test_a_repeated_acquire_renews_and_an_ended_key_is_refused(service):
    key, lease_key = keys(), str(uuid.uuid4())
    first = service.client.lease.Acquire(acquire_request("jobs", key, 10, owner="a", lease_key=lease_key)).lease
    second = service.client.lease.Acquire(acquire_request("jobs", key, 20, owner="b", lease_key=lease_key)).lease
    assert second.token == first.token and second.lease_key == lease_key
    assert second.owner == "b" and second.duration.seconds == 20
    service.client.lease.Release(release_request(second))
    with fails() as failure:
        service.client.lease.Acquire(acquire_request("jobs", key, lease_key=lease_key))
    assert failure.value.code == grpc.StatusCode.FAILED_PRECONDITION and failure.value.reason == "LEASE_ENDED"
    third = service.client.lease.Acquire(acquire_request("jobs", key)).lease
    assert third.token > first.token


def test_a_waiter_gets_the_lease_when_it_is_released(service):
    key = keys()
    held = service.client.lease.Acquire(acquire_request("jobs", key)).lease
    call = service.client.lease.Acquire.future(acquire_request("jobs", key, wait=60, owner="second"))
    wait_until(lambda: service.psql(f"select count(*) from leasehold.waiter where key = '{key}'") == "1")
    assert not call.done()
    assert service.psql(f"select owner, position, away from leasehold.queue where key = '{key}'") == "second|1|f"
    service.client.lease.Release(release_request(held))
    response = call.result(30)
    assert response.lease.owner == "second" and response.lease.token > held.token
    assert response.waited.ToNanoseconds() > 0
    assert service.psql(f"select count(*) from leasehold.waiter where key = '{key}'") == "0"


def test_a_release_in_sql_wakes_a_waiter(service):
    key = keys()
    lease_key = str(uuid.uuid4())
    service.psql(f"select token from leasehold.acquire('jobs', '{key}', '1 minute', lease_key => '{lease_key}')")
    call = service.client.lease.Acquire.future(acquire_request("jobs", key, wait=60))
    wait_until(lambda: service.psql(f"select count(*) from leasehold.waiter where key = '{key}'") == "1")
    assert service.psql(f"select leasehold.release_ok('jobs', '{key}', '{lease_key}')") == "t"
    assert call.result(30).lease.token > 0


def test_a_waiter_gets_the_lease_of_a_holder_that_died(service):
    key = keys()
    service.client.lease.Acquire(acquire_request("jobs", key, 1, owner="dies"))
    response = service.client.lease.Acquire(acquire_request("jobs", key, wait=60, owner="next"))
    assert response.lease.owner == "next"
    assert response.waited.ToNanoseconds() / 1e9 > 1.9  # duration and grace: never before the expiry


def test_a_wait_that_passes_says_who_holds_it_and_leaves_the_queue(service):
    key = keys()
    service.client.lease.Acquire(acquire_request("jobs", key, owner="sitting"))
    with fails() as failure:
        service.client.lease.Acquire(acquire_request("jobs", key, wait=0.2))
    assert failure.value.code == grpc.StatusCode.DEADLINE_EXCEEDED and failure.value.reason == "WAIT_TIMEOUT"
    assert failure.value.contention.holder.owner == "sitting" and "sitting" in failure.value.message
    assert service.psql(f"select count(*) from leasehold.waiter where key = '{key}'") == "0"


def test_wait_while_alive_waits_on_while_the_holder_renews(service):
    key = keys()
    held = service.client.lease.Acquire(acquire_request("jobs", key, 1)).lease
    stop = threading.Event()

    def renew():
        while not stop.wait(0.3):
            service.client.lease.Heartbeat(pb.HeartbeatRequest(leases=[lease_ref(held)]))

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        call = service.client.lease.Acquire.future(
            acquire_request("jobs", key, wait=0.1, wait_while_alive=True, owner="patient")
        )
        wait_until(lambda: service.psql(f"select count(*) from leasehold.waiter where key = '{key}'") == "1")
        renewals = lambda: int(service.psql(f"select heartbeats from leasehold.scope where key = '{key}'"))  # noqa: E731
        first = renewals()
        wait_until(lambda: renewals() > first + 5, what="renewals for several times the wait")
        assert not call.done()
        service.client.lease.Release(release_request(held))
        assert call.result(30).lease.owner == "patient"
    finally:
        stop.set()
        thread.join()


def test_wait_while_alive_ends_when_the_holder_falls_silent(service):
    service.psql("select leasehold.set_policy('silent', expiry => 'manual')")
    key = keys()
    service.client.lease.Acquire(acquire_request("silent", key, 1, owner="gone"))
    with fails() as failure:
        service.client.lease.Acquire(acquire_request("silent", key, wait=0.2, wait_while_alive=True))
    assert failure.value.reason == "WAIT_TIMEOUT"
    assert failure.value.contention.liveness in (pb.LIVENESS_SUSPECTED_DEAD, pb.LIVENESS_EXPIRED)
    assert "gone" in failure.value.message


def test_a_cancelled_call_leaves_the_queue_at_once(service):
    key = keys()
    service.client.lease.Acquire(acquire_request("jobs", key))
    call = service.client.lease.Acquire.future(acquire_request("jobs", key, wait_forever=True))
    wait_until(lambda: service.psql(f"select count(*) from leasehold.waiter where key = '{key}'") == "1")
    call.cancel()
    wait_until(lambda: service.psql(f"select count(*) from leasehold.waiter where key = '{key}'") == "0")


def test_a_client_deadline_leaves_the_queue(service):
    key = keys()
    service.client.lease.Acquire(acquire_request("jobs", key))
    with fails() as failure:
        service.client.lease.Acquire(acquire_request("jobs", key, wait_forever=True), timeout=0.3)
    assert failure.value.code == grpc.StatusCode.DEADLINE_EXCEEDED
    wait_until(lambda: service.psql(f"select count(*) from leasehold.waiter where key = '{key}'") == "0")


def test_a_closed_connection_leaves_the_queue(service):
    key = keys()
    service.client.lease.Acquire(acquire_request("jobs", key))
    other = harness.Client(service.daemon.target)
    call = other.lease.Acquire.future(acquire_request("jobs", key, wait_forever=True))
    wait_until(lambda: service.psql(f"select count(*) from leasehold.waiter where key = '{key}'") == "1")
    other.close()
    wait_until(lambda: service.psql(f"select count(*) from leasehold.waiter where key = '{key}'") == "0")
    assert call.done()


def test_first_come_first_served(service):
    key = keys()
    held = service.client.lease.Acquire(acquire_request("jobs", key)).lease
    calls = []
    for number in range(5):
        calls.append(service.client.lease.Acquire.future(acquire_request("jobs", key, wait=60, owner=f"w{number}")))
        wait_until(lambda n=number: service.psql(f"select count(*) from leasehold.waiter where key = '{key}'") == str(n + 1))
    for number, call in enumerate(calls):
        service.client.lease.Release(release_request(held))
        held = call.result(30).lease
        assert held.owner == f"w{number}"


def test_200_waiters_on_one_scope_never_overlap_and_tokens_grow(service):
    key = keys()
    history, lock, failures = [], threading.Lock(), []

    def work(number):
        client = harness.Client(service.daemon.target) if number % 10 == 0 else service.client
        try:
            lease = client.lease.Acquire(acquire_request("hot", key, 30, wait_forever=True, owner=f"w{number}"), timeout=120).lease
            with lock:
                history.append(("in", lease.token))
            with lock:
                history.append(("out", lease.token))
            assert client.lease.Release(release_request(lease)).results[0].outcome == pb.OUTCOME_OK
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    assert len(history) == 400
    for entered, left in zip(history[::2], history[1::2]):
        assert entered[0] == "in" and left == ("out", entered[1]), "two holders at once"
    tokens = [token for what, token in history if what == "in"]
    assert tokens == sorted(tokens) and len(set(tokens)) == 200


def test_batches_answer_in_order_and_a_bad_item_spoils_nothing(service):
    leases = [service.client.lease.Acquire(acquire_request("batch", f"{keys()}")).lease for _ in range(20)]
    refs = [lease_ref(lease) for lease in leases]
    refs.insert(5, pb.LeaseRef(scope=scope("batch", "x"), lease_key="not-a-uuid"))
    refs.insert(9, pb.LeaseRef(scope=pb.Scope(namespace=["a.b"], key="x"), lease_key=str(uuid.uuid4())))
    results = service.client.lease.Heartbeat(pb.HeartbeatRequest(leases=refs)).results
    assert [r.lease_key for r in results] == [r.lease_key for r in refs]
    for number, result in enumerate(results):
        assert result.outcome == (pb.OUTCOME_INVALID if number in (5, 9) else pb.OUTCOME_OK), (number, result)
    assert "lease_key" in results[5].message and "namespace" in results[9].message

    request = release_request(*leases)
    request.items[3].success = "{not json"
    request.items[4].success = '"\\u0000"'
    request.items[5].success = "1e200000"
    results = service.client.lease.Release(request).results
    for number, result in enumerate(results):
        assert result.outcome == (pb.OUTCOME_INVALID if number in (3, 4, 5) else pb.OUTCOME_OK), (number, result)


def test_10000_items_in_one_heartbeat_and_one_more_is_refused(service):
    lease = service.client.lease.Acquire(acquire_request("many", keys())).lease
    refs = [lease_ref(lease)] + [
        pb.LeaseRef(scope=scope("many", f"none-{n}"), lease_key=str(uuid.uuid4())) for n in range(9999)
    ]
    results = service.client.lease.Heartbeat(pb.HeartbeatRequest(leases=refs)).results
    assert len(results) == 10000 and results[0].outcome == pb.OUTCOME_OK
    assert {r.outcome for r in results[1:]} == {pb.OUTCOME_LOST}
    with fails() as failure:
        service.client.lease.Heartbeat(pb.HeartbeatRequest(leases=refs + refs[:1]))
    assert failure.value.reason == "INVALID_ARGUMENT" and "10000" in failure.value.message.replace(",", "")


BAD_ACQUIRES = [
    ("scope", lambda r: r.ClearField("scope"), "scope"),
    ("no namespace", lambda r: r.scope.ClearField("namespace"), "scope.namespace"),
    ("empty segment", lambda r: r.scope.namespace.append(""), "scope.namespace"),
    ("dotted segment", lambda r: r.scope.namespace.append("a.b"), "scope.namespace"),
    ("control in segment", lambda r: r.scope.namespace.append("a\nb"), "scope.namespace"),
    ("NUL in segment", lambda r: r.scope.namespace.append("a\0b"), "scope.namespace"),
    ("long segment", lambda r: r.scope.namespace.append("a" * 64), "scope.namespace"),
    ("many segments", lambda r: r.scope.namespace.extend(["a"] * 16), "scope.namespace"),
    ("long namespace", lambda r: r.scope.namespace.extend(["a" * 63] * 4), "scope.namespace"),
    ("empty key", lambda r: setattr(r.scope, "key", ""), "scope.key"),
    ("control in key", lambda r: setattr(r.scope, "key", "a\x1fb"), "scope.key"),
    ("NUL in key", lambda r: setattr(r.scope, "key", "a\0b"), "scope.key"),
    ("long key", lambda r: setattr(r.scope, "key", "k" * 1025), "scope.key"),
    ("no duration", lambda r: r.ClearField("duration"), "duration"),
    ("zero duration", lambda r: r.duration.CopyFrom(duration(0)), "duration"),
    ("negative duration", lambda r: r.duration.CopyFrom(duration(-1)), "duration"),
    ("short duration", lambda r: r.duration.CopyFrom(duration(0.5)), "duration"),
    ("long duration", lambda r: r.duration.CopyFrom(duration(86401)), "duration"),
    ("broken duration", lambda r: setattr(r.duration, "nanos", -5), "duration"),
    ("negative wait", lambda r: r.wait.CopyFrom(duration(-1)), "wait"),
    ("wait and for ever", lambda r: (r.wait.CopyFrom(duration(1)), setattr(r, "wait_forever", True)), "wait"),
    ("lease key", lambda r: setattr(r, "lease_key", "no-uuid"), "lease_key"),
    ("long owner", lambda r: setattr(r, "owner", "o" * 256), "owner"),
    ("NUL in owner", lambda r: setattr(r, "owner", "o\0"), "owner"),
    ("many labels", lambda r: r.labels.update({f"l{n}": "" for n in range(17)}), "labels"),
    ("long label name", lambda r: r.labels.update({"n" * 64: ""}), "labels"),
    ("long label value", lambda r: r.labels.update({"n": "v" * 256}), "labels"),
    ("empty label name", lambda r: r.labels.update({"": "v"}), "labels"),
]


@pytest.mark.parametrize("name,spoil,field", BAD_ACQUIRES, ids=[c[0] for c in BAD_ACQUIRES])
def test_bad_acquires_name_field_and_limit_and_write_nothing(service, name, spoil, field):
    before = service.psql("select count(*) from leasehold.scope")
    request = acquire_request("bad", "key")
    spoil(request)
    with fails() as failure:
        service.client.lease.Acquire(request)
    error = failure.value
    assert error.code == grpc.StatusCode.INVALID_ARGUMENT and error.reason == "INVALID_ARGUMENT", error.message
    violation = error.bad_request.field_violations[0]
    assert violation.field.startswith(field), violation
    assert violation.description and field.split(".")[-1] in error.message
    assert service.psql("select count(*) from leasehold.scope") == before


def test_invalid_utf8_is_refused_on_the_wire(service):
    raw = service.client.channel.unary_unary("/leasehold.v1.LeaseService/Acquire")
    good = acquire_request("bad", "kXXy").SerializeToString()
    with fails() as failure:
        raw(good.replace(b"XX", b"\xff\xfe"))
    assert failure.value.reason == "INVALID_ARGUMENT" and "scope.key" in failure.value.message
    with fails() as failure:
        raw(b"\xff\xff\xff rubbish")
    assert failure.value.code == grpc.StatusCode.INVALID_ARGUMENT


def test_a_message_over_4_mib_is_refused(service):
    raw = service.client.channel.unary_unary("/leasehold.v1.LeaseService/Heartbeat")
    with fails() as failure:
        raw(b"\0" * (4 * 1024 * 1024 + 1))
    assert failure.value.code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert failure.value.reason == "MESSAGE_TOO_LARGE"


def test_list_pages_through_a_namespace_and_its_children(service):
    for number in range(25):
        service.client.lease.Acquire(acquire_request("list.here", f"k{number:02}", owner="one" if number % 5 else "two"))
    service.client.lease.Acquire(acquire_request("list.here.child", "c"))
    service.client.lease.Acquire(acquire_request("list.hereafter", "no"))
    seen, token = [], ""
    while True:
        page = service.client.lease.ListLeases(
            pb.ListLeasesRequest(namespace=["list", "here"], include_children=True, page_size=10, page_token=token)
        )
        assert len(page.leases) <= 10
        seen += [(".".join(lease.scope.namespace), lease.scope.key) for lease in page.leases]
        token = page.next_page_token
        if not token:
            break
    assert seen == [("list.here", f"k{n:02}") for n in range(25)] + [("list.here.child", "c")]
    two = service.client.lease.ListLeases(pb.ListLeasesRequest(namespace=["list", "here"], owner="two"))
    assert [lease.scope.key for lease in two.leases] == ["k00", "k05", "k10", "k15", "k20"]
    assert all(lease.lease_key == "" for lease in two.leases)
    with fails() as failure:
        service.client.lease.ListLeases(pb.ListLeasesRequest(page_token="forged"))
    assert failure.value.reason == "INVALID_ARGUMENT"
    with fails() as failure:
        service.client.lease.ListLeases(pb.ListLeasesRequest(page_size=1001))
    assert failure.value.reason == "INVALID_ARGUMENT"


def test_get_of_an_unknown_scope_is_not_held(service):
    with fails() as failure:
        service.client.lease.GetLease(pb.GetLeaseRequest(scope=scope("jobs", keys())))
    assert failure.value.code == grpc.StatusCode.NOT_FOUND and failure.value.reason == "NOT_HELD"


def test_force_release_needs_a_reason_and_tells_the_holder(service):
    key = keys()
    lease = service.client.lease.Acquire(acquire_request("jobs", key)).lease
    with fails() as failure:
        service.client.admin.ForceRelease(pb.ForceReleaseRequest(scope=lease.scope))
    assert failure.value.reason == "INVALID_ARGUMENT" and "reason" in failure.value.message
    with fails() as failure:
        service.client.admin.ForceRelease(pb.ForceReleaseRequest(scope=lease.scope, reason="x", token=lease.token - 1))
    assert failure.value.reason == "NOT_HELD"
    ended = service.client.admin.ForceRelease(pb.ForceReleaseRequest(scope=lease.scope, reason="runaway", token=lease.token))
    assert ended.lease.token == lease.token
    beat = service.client.lease.Heartbeat(pb.HeartbeatRequest(leases=[lease_ref(lease)])).results[0]
    assert beat.outcome == pb.OUTCOME_LOST and beat.end_reason == pb.END_REASON_FORCED


def test_a_late_heartbeat_is_told_and_the_lease_never_revives(service):
    service.psql("select leasehold.set_policy('late', reaper => 'external')")
    key = keys()
    lease = service.client.lease.Acquire(acquire_request("late", key, 1)).lease
    wait_until(lambda: service.psql(f"select clock_timestamp() > deadline + grace from leasehold.scope where key = '{key}'") == "t")
    beat = service.client.lease.Heartbeat(pb.HeartbeatRequest(leases=[lease_ref(lease)])).results[0]
    assert beat.outcome == pb.OUTCOME_LOST and beat.end_reason == pb.END_REASON_EXPIRED
    with fails() as failure:
        service.client.lease.Acquire(acquire_request("late", key, lease_key=lease.lease_key))
    assert failure.value.reason == "LEASE_ENDED"


def test_the_reaper_ends_what_expired(service):
    key = keys()
    service.client.lease.Acquire(acquire_request("jobs", key, 1))
    wait_until(lambda: service.psql(f"select last_outcome from leasehold.scope where key = '{key}'") == "expired")


def test_policies_are_set_shown_inherited_and_obeyed(service):
    admin = service.client.admin
    policy = pb.Policy(namespace=pb.Namespace(segments=["pol"]), max_duration=duration(60), expiry=pb.Policy.EXPIRY_REAP
                       if hasattr(pb.Policy, "EXPIRY_REAP") else 2)
    policy.frozen.value = True
    request = pb.SetPolicyRequest(policy=policy)
    request.update_mask.paths.extend(["max_duration", "frozen"])
    effective = admin.SetPolicy(request).effective
    assert effective.frozen.value and effective.max_duration.seconds == 60 and effective.min_duration.seconds == 1
    with fails() as failure:
        service.client.lease.Acquire(acquire_request("pol.child", "k"))
    assert failure.value.code == grpc.StatusCode.FAILED_PRECONDITION and failure.value.reason == "NAMESPACE_FROZEN"
    got = admin.GetPolicy(pb.GetPolicyRequest(namespace=pb.Namespace(segments=["pol", "child"])))
    assert got.effective.frozen.value and not got.own.HasField("frozen")
    assert got.source["frozen"] == "pol" and got.source["min_duration"] == ""
    thaw = pb.SetPolicyRequest(policy=pb.Policy(namespace=pb.Namespace(segments=["pol"])))
    thaw.update_mask.paths.append("frozen")
    assert not admin.SetPolicy(thaw).effective.frozen.value
    with fails() as failure:
        service.client.lease.Acquire(acquire_request("pol.child", "k", 61))
    assert failure.value.reason == "INVALID_ARGUMENT" and failure.value.bad_request.field_violations[0].field == "duration"
    service.client.lease.Acquire(acquire_request("pol.child", "k", 60))
    assert "pol" in [".".join(p.namespace.segments) for p in admin.ListPolicies(pb.ListPoliciesRequest()).policies]
    bad = pb.SetPolicyRequest(policy=pb.Policy(namespace=pb.Namespace(segments=["pol"])))
    bad.update_mask.paths.append("colour")
    with fails() as failure:
        admin.SetPolicy(bad)
    assert failure.value.reason == "INVALID_ARGUMENT" and "colour" in failure.value.message
    bad = pb.SetPolicyRequest(policy=pb.Policy(namespace=pb.Namespace(segments=["pol"]), min_duration=duration(120)))
    bad.update_mask.paths.append("min_duration")
    with fails() as failure:
        admin.SetPolicy(bad)
    assert failure.value.reason == "INVALID_ARGUMENT"


def test_status_tells_version_coordinator_and_waiters(service):
    status = service.client.admin.GetStatus(pb.GetStatusRequest())
    assert status.version and status.schema_version > 0 and status.timeline == 1
    assert service.psql(f"select count(*) from leasehold.coordinator where id = '{status.coordinator_id}'") == "1"


def test_a_row_that_somebody_keeps_locked_is_busy_and_delays_nobody_else(service):
    key = keys()
    service.client.lease.Release(release_request(service.client.lease.Acquire(acquire_request("jobs", key)).lease))
    held = service.client.lease.Acquire(acquire_request("jobs", key + "h")).lease
    session = service.session()
    session.run("begin")
    session.run(f"select 1 from leasehold.scope where key in ('{key}', '{key}h') for update")
    with fails() as failure:
        service.client.lease.Acquire(acquire_request("jobs", key))
    assert failure.value.code == grpc.StatusCode.ABORTED and failure.value.reason == "SCOPE_BUSY"
    beat = service.client.lease.Heartbeat(pb.HeartbeatRequest(leases=[lease_ref(held)])).results[0]
    assert beat.outcome == pb.OUTCOME_RETRY
    assert service.client.lease.Acquire(acquire_request("jobs", key + "other")).lease.token > 0
    waiting = service.client.lease.Acquire.future(acquire_request("jobs", key, wait=60))
    session.run("rollback")
    assert waiting.result(30).lease.token > 0
    session.close()


def test_a_guard_holds_off_the_takeover_while_heartbeats_go_on(service):
    key = keys()
    lease = service.client.lease.Acquire(acquire_request("jobs", key, 1)).lease
    session = service.session()
    session.run("begin")
    session.run(f"select leasehold.guard('jobs', '{key}', {lease.token})")
    beat = service.client.lease.Heartbeat(pb.HeartbeatRequest(leases=[lease_ref(lease)])).results[0]
    assert beat.outcome == pb.OUTCOME_OK
    call = service.client.lease.Acquire.future(acquire_request("jobs", key, wait=60, owner="next"))
    wait_until(lambda: service.psql(f"select clock_timestamp() > deadline + grace + '1 s' from leasehold.scope where key = '{key}'") == "t")
    assert not call.done()
    session.run("commit")
    assert call.result(30).lease.owner == "next"
    session.close()


def test_rubbish_and_http1_do_no_harm(service):
    for rubbish in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\0" * 1000, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 500):
        with socket.create_connection(("127.0.0.1", service.daemon.port)) as connection:
            connection.sendall(rubbish)
            connection.settimeout(30)
            try:
                while connection.recv(4096):
                    pass
            except ConnectionResetError:
                pass
    assert service.client.admin.GetStatus(pb.GetStatusRequest()).version


def test_health_and_reflection_answer_stock_messages(service):
    import health_pb2
    import health_pb2_grpc
    import reflection_pb2
    import reflection_pb2_grpc
    from google.protobuf import descriptor_pb2, descriptor_pool

    health = health_pb2_grpc.HealthStub(service.client.channel)
    for name in ("", "leasehold.v1.LeaseService", "leasehold.v1.AdminService"):
        assert health.Check(health_pb2.HealthCheckRequest(service=name)).status == health_pb2.HealthCheckResponse.SERVING
    with fails() as failure:
        health.Check(health_pb2.HealthCheckRequest(service="nobody"))
    assert failure.value.code == grpc.StatusCode.NOT_FOUND

    stub = reflection_pb2_grpc.ServerReflectionStub(service.client.channel)
    asked = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="leasehold.v1.LeaseService"),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="no.such.Thing"),
    ]
    answers = list(stub.ServerReflectionInfo(iter(asked)))
    names = {s.name for s in answers[0].list_services_response.service}
    assert {"leasehold.v1.LeaseService", "leasehold.v1.AdminService", "grpc.health.v1.Health"} <= names
    assert answers[2].error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
    # A pool of its own is built from what the server says, as grpcurl does.
    pool, done = descriptor_pool.DescriptorPool(), set()

    def add(raw):
        file = descriptor_pb2.FileDescriptorProto.FromString(raw)
        if file.name in done:
            return
        done.add(file.name)
        for needed in file.dependency:
            [answer] = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(file_by_filename=needed)]))
            for more in answer.file_descriptor_response.file_descriptor_proto:
                add(more)
        pool.Add(file)

    for raw in answers[1].file_descriptor_response.file_descriptor_proto:
        add(raw)
    method = pool.FindServiceByName("leasehold.v1.LeaseService").FindMethodByName("Acquire")
    assert method.input_type.fields_by_name["wait_while_alive"].number == 8
