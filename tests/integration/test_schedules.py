"""Schedules over gRPC: what is set is read back, ticks are claimed as leases, hostile requests are refused with the field that is wrong."""
import threading
import uuid
from urllib.request import urlopen

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from leasehold.v1 import schedule_pb2 as sb
from leasehold.v1 import schedule_pb2_grpc as sb_grpc

from access_site import Site, bearer
from harness import Service, duration, fails, pb, wait_until


@pytest.fixture(scope="module")
def schedules(service):
    return sb_grpc.ScheduleServiceStub(service.client.channel)


def name_of(dotted):
    return pb.Namespace(segments=dotted.split("."))


@pytest.fixture
def name(request):
    return f"s.{uuid.uuid4().hex[:8]}"


def violations(failure):
    return {each.field: each.description for each in failure.bad_request.field_violations}


def set_schedule(schedules, name, expression="@yearly", **fields):
    return schedules.SetSchedule(sb.SetScheduleRequest(schedule=sb.Schedule(namespace=name_of(name), expression=expression, **fields))).schedule


def claim(schedules, name, wait=None, **fields):
    return schedules.ClaimTick(sb.ClaimTickRequest(namespace=name_of(name), wait=wait and duration(wait), **fields), timeout=30)


def ticks(schedules, name, **fields):
    return list(schedules.ListTicks(sb.ListTicksRequest(namespace=name.split("."), **fields)).ticks)


def release(service, claimed, **result):
    answer = service.client.lease.Release(pb.ReleaseRequest(items=[pb.ReleaseItem(
        lease=pb.LeaseRef(scope=claimed.lease.scope, lease_key=claimed.lease.lease_key), **result)]))
    assert answer.results[0].outcome == pb.OUTCOME_OK, answer


def test_what_is_set_is_read_back(schedules, name):
    said = set_schedule(schedules, name, "30 3 * * 1-5", time_zone="Europe/Berlin", catch_up=sb.CATCH_UP_ALL, catch_up_max=7, tick_deadline=duration(3600),
                        overlap=2, jitter=duration(1.5), attempts=5, backoff=duration(0), starts_at=Timestamp(seconds=1800000000),
                        ends_at=Timestamp(seconds=4000000000))
    got = schedules.GetSchedule(sb.GetScheduleRequest(namespace=name_of(name), next=3))
    assert got.schedule == said
    assert (said.expression, said.time_zone, said.catch_up, said.catch_up_max, said.overlap, said.attempts) == (
        "30 3 * * 1-5", "Europe/Berlin", sb.CATCH_UP_ALL, 7, 2, 5)
    assert (said.tick_deadline, said.jitter, said.backoff) == (duration(3600), duration(1.5), duration(0))
    assert said.HasField("backoff") and said.starts_at.seconds == 1800000000 and said.ends_at.seconds == 4000000000
    # 1800000000 is Friday, 15 January 2027, 08:00 UTC; Berlin has UTC+1 then.
    assert [at.ToJsonString() for at in got.next] == ["2027-01-18T02:30:00Z", "2027-01-19T02:30:00Z", "2027-01-20T02:30:00Z"]
    assert said.next_at == got.next[0]


def test_what_a_request_leaves_out_takes_its_default(schedules, name):
    said = set_schedule(schedules, name)
    assert (said.time_zone, said.catch_up, said.catch_up_max, said.overlap, said.attempts, said.backoff, said.jitter) == (
        "UTC", sb.CATCH_UP_LAST, 100, 1, 3, duration(60), duration(0))
    assert not said.HasField("tick_deadline") and not said.HasField("starts_at") and not said.paused


def test_a_claimed_tick_is_a_lease_and_ends_with_it(service, schedules, name):
    set_schedule(schedules, name)
    at = schedules.RunScheduleNow(sb.RunScheduleNowRequest(namespace=name_of(name))).at
    claimed = claim(schedules, name, owner="w1", labels={"a": "b"}, duration=duration(20))
    lease = claimed.lease
    assert claimed.at == at and claimed.attempt == 1
    assert list(lease.scope.namespace) == name.split(".") and lease.scope.key == at.ToJsonString()
    assert (lease.owner, lease.mode, lease.duration, dict(lease.labels)) == ("w1", pb.MODE_EXCLUSIVE, duration(20), {"a": "b"})
    assert lease.token > 0 and 0 < lease.remaining.ToSeconds() <= 20
    held = service.client.lease.GetLease(pb.GetLeaseRequest(scope=lease.scope)).lease
    assert held.token == lease.token
    tick, = ticks(schedules, name)
    assert (tick.state, tick.token, tick.owner, tick.attempt, tick.by_hand) == (sb.TICK_STATE_RUNNING, lease.token, "w1", 1, True)
    assert not claim(schedules, name).HasField("lease")
    release(service, claimed, success='{"rows": 3}')
    tick, = ticks(schedules, name)
    assert tick.state == sb.TICK_STATE_DONE and tick.result == '{"rows": 3}' and tick.HasField("ended_at")
    assert schedules.GetSchedule(sb.GetScheduleRequest(namespace=name_of(name))).schedule.last_done_at == at


def test_a_repeated_claim_answers_the_same_lease(schedules, name):
    set_schedule(schedules, name, overlap=5)
    schedules.RunScheduleNow(sb.RunScheduleNowRequest(namespace=name_of(name)))
    key = str(uuid.uuid4())
    first, again = (claim(schedules, name, lease_key=key) for _ in range(2))
    assert first.lease.token == again.lease.token and first.at == again.at and again.attempt == 1


def test_a_failure_gives_the_tick_to_the_next_and_the_last_one_is_dead(service, schedules, name):
    set_schedule(schedules, name, attempts=2, backoff=duration(0))
    schedules.RunScheduleNow(sb.RunScheduleNowRequest(namespace=name_of(name)))
    tokens = []
    for attempt in (1, 2):
        claimed = claim(schedules, name, wait=10)
        assert claimed.attempt == attempt
        tokens.append(claimed.lease.token)
        release(service, claimed, failure="no disk")
    assert tokens[0] < tokens[1]
    tick, = ticks(schedules, name)
    assert (tick.state, tick.error, tick.attempt) == (sb.TICK_STATE_DEAD, "no disk", 2)
    assert schedules.GetSchedule(sb.GetScheduleRequest(namespace=name_of(name))).schedule.dead == 1


def test_the_tick_of_a_caller_that_has_gone_is_given_back(service, schedules, name):
    set_schedule(schedules, name, backoff=duration(0))
    schedules.RunScheduleNow(sb.RunScheduleNowRequest(namespace=name_of(name)))
    session = service.session()
    session.run(f"begin; select from leasehold.schedule where name = '{name}' for update; lock table leasehold.tick in share row exclusive mode")
    call = schedules.ClaimTick.future(sb.ClaimTickRequest(namespace=name_of(name), duration=duration(3000)), timeout=30)
    wait_until(lambda: service.psql("select count(*) from pg_locks where not granted") != "0", 10, "the claim in the database")
    call.cancel()
    session.run("commit")
    wait_until(lambda: ticks(schedules, name)[0].state == sb.TICK_STATE_FAILED, 30, "the tick is given back")
    assert ticks(schedules, name)[0].error == "the caller went away before it heard of the grant"
    assert claim(schedules, name, wait=10).attempt == 2


def test_a_wait_ends_with_the_tick(schedules, name):
    set_schedule(schedules, name)
    results = []
    waiting = [threading.Thread(target=lambda: results.append(claim(schedules, name, wait=4))) for _ in range(4)]
    for thread in waiting:
        thread.start()
    schedules.RunScheduleNow(sb.RunScheduleNowRequest(namespace=name_of(name)))
    wait_until(lambda: any(each.HasField("lease") for each in results), what="a claim that has got the tick")
    for thread in waiting:
        thread.join(30)
    assert len(results) == 4 and sum(each.HasField("lease") for each in results) == 1


def test_a_daemon_without_max_block_lets_a_claim_wait(cluster, name):
    service = Service(cluster, "--max-block", "0")
    try:
        schedules = sb_grpc.ScheduleServiceStub(service.client.channel)
        set_schedule(schedules, name, "every 5 s")
        assert claim(schedules, name, wait=20).HasField("lease")
    finally:
        service.close()


def test_an_answer_without_a_tick_says_how_long_until_the_next(schedules, name):
    set_schedule(schedules, name)
    answer = claim(schedules, name)
    assert not answer.HasField("lease") and 0 < answer.next_in.ToSeconds() <= 366 * 86400
    answer = claim(schedules, name, wait=0.2)
    assert not answer.HasField("lease") and answer.HasField("next_in")
    schedules.PauseSchedule(sb.PauseScheduleRequest(namespace=name_of(name), paused=True))
    assert not claim(schedules, name).HasField("next_in")


def test_pause_and_remove(schedules, name):
    set_schedule(schedules, name)
    paused = schedules.PauseSchedule(sb.PauseScheduleRequest(namespace=name_of(name), paused=True)).schedule
    assert paused.paused and not paused.HasField("next_at")
    assert not schedules.PauseSchedule(sb.PauseScheduleRequest(namespace=name_of(name))).schedule.paused
    assert schedules.RemoveSchedule(sb.RemoveScheduleRequest(namespace=name_of(name))).removed
    assert not schedules.RemoveSchedule(sb.RemoveScheduleRequest(namespace=name_of(name))).removed


def test_lists_come_in_pages(service, schedules):
    names = [f"pages.{n}" for n in "abcde"]
    for each in names:
        set_schedule(schedules, each, overlap=3)
        schedules.RunScheduleNow(sb.RunScheduleNowRequest(namespace=name_of(each)))
    for method, request, field in ((schedules.ListSchedules, sb.ListSchedulesRequest, "schedules"), (schedules.ListTicks, sb.ListTicksRequest, "ticks")):
        found, token = [], ""
        while True:
            page = method(request(namespace=["pages"], include_children=True, page_size=2, page_token=token))
            found += [".".join(each.namespace.segments) for each in getattr(page, field)]
            token = page.next_page_token
            if not token:
                break
        assert sorted(found) == names, field
    with fails() as refused:
        schedules.ListTicks(sb.ListTicksRequest(page_token=schedules.ListTicks(sb.ListTicksRequest(page_size=1)).next_page_token,
                                                state=sb.TICK_STATE_DUE))
    assert "page_token" in refused.value.message
    first, = ticks(schedules, "pages.a")
    assert ticks(schedules, "pages.a", state=sb.TICK_STATE_DONE) == []
    assert ticks(schedules, "pages.a", since=first.at) == [first]
    assert ticks(schedules, "pages.a", since=Timestamp(seconds=first.at.seconds + 1)) == []


GOOD = {"namespace": pb.Namespace(segments=["hostile"]), "expression": "@daily"}

BAD_SCHEDULES = {
    "schedule.namespace": ({"namespace": None}, "must be given"),
    "schedule.namespace.segments": ({"namespace": pb.Namespace()}, "must have 1 to 16 segments, has 0"),
    "schedule.namespace.segments[0]": ({"namespace": pb.Namespace(segments=["a.b"])}, "must not contain a dot"),
    "schedule.expression": ({"expression": ""}, "must be 1 to 256 bytes, has 0"),
    "schedule.time_zone": ({"time_zone": "Mars/Olympus"}, "a name of pg_timezone_names"),
    "schedule.starts_at": ({"starts_at": Timestamp(seconds=-99999999999)}, "of the years 1 to 9999"),
    "schedule.ends_at": ({"starts_at": Timestamp(seconds=2000000000), "ends_at": Timestamp(seconds=2000000000)}, "must be after starts_at"),
    "schedule.catch_up": ({"catch_up": 9}, "is an enum value that this server does not know"),
    "schedule.catch_up_max": ({"catch_up_max": 1001}, "must be 0 (which is 100) to 1000, is 1001"),
    "schedule.tick_deadline": ({"tick_deadline": duration(0.5)}, "must be at least 1.0 s, is 500 ms"),
    "schedule.overlap": ({"overlap": -1}, "must be 0 (which is 1) to 1000, is -1"),
    "schedule.jitter": ({"jitter": duration(86401)}, "must be at most 1 day, is 86401 s"),
    "schedule.attempts": ({"attempts": 2000000000}, "must be 0 (which is 3) to 1000, is 2000000000"),
    "schedule.backoff": ({"backoff": duration(-1)}, "must not be negative, is -1 s"),
}


@pytest.mark.parametrize("field", BAD_SCHEDULES)
def test_a_bad_setting_is_named_with_its_bound(schedules, field):
    change, words = BAD_SCHEDULES[field]
    with fails() as refused:
        schedules.SetSchedule(sb.SetScheduleRequest(schedule=sb.Schedule(**{**GOOD, **change})))
    assert refused.value.code == grpc.StatusCode.INVALID_ARGUMENT
    found = violations(refused.value)
    assert field in found and words in found[field], found


@pytest.mark.parametrize("expression", ["61 * * * *", "* * *", "every 0 s", "every 2 fortnights", "@reboot", "* * * * * *", "x" * 257, "0 0 30 2 *", "a\tb\n"])
def test_a_bad_expression_is_refused(schedules, expression):
    with fails() as refused:
        schedules.SetSchedule(sb.SetScheduleRequest(schedule=sb.Schedule(namespace=GOOD["namespace"], expression=expression)))
    assert refused.value.code == grpc.StatusCode.INVALID_ARGUMENT
    assert "schedule.expression" in violations(refused.value)


BAD_CALLS = [
    ("SetSchedule", sb.SetScheduleRequest(), "schedule"),
    ("GetSchedule", sb.GetScheduleRequest(), "namespace"),
    ("GetSchedule", sb.GetScheduleRequest(namespace=name_of("none.such")), "namespace"),
    ("GetSchedule", sb.GetScheduleRequest(namespace=name_of("a"), next=1001), "next"),
    ("GetSchedule", sb.GetScheduleRequest(namespace=name_of("a"), last=-1), "last"),
    ("PauseSchedule", sb.PauseScheduleRequest(), "namespace"),
    ("PauseSchedule", sb.PauseScheduleRequest(namespace=name_of("none.such")), "namespace"),
    ("RemoveSchedule", sb.RemoveScheduleRequest(namespace=pb.Namespace(segments=["a\n"])), "namespace.segments[0]"),
    ("RunScheduleNow", sb.RunScheduleNowRequest(namespace=name_of("none.such")), "namespace"),
    ("ListSchedules", sb.ListSchedulesRequest(page_size=1001), "page_size"),
    ("ListSchedules", sb.ListSchedulesRequest(page_token="x"), "page_token"),
    ("ListTicks", sb.ListTicksRequest(state=8), "state"),
    ("ListTicks", sb.ListTicksRequest(since=Timestamp(nanos=-1)), "since"),
    ("ListTicks", sb.ListTicksRequest(namespace=["n" * 64]), "namespace[0]"),
    ("ClaimTick", sb.ClaimTickRequest(), "namespace"),
    ("ClaimTick", sb.ClaimTickRequest(namespace=name_of("none.such")), "namespace"),
    ("ClaimTick", sb.ClaimTickRequest(namespace=name_of("a"), wait=duration(-1)), "wait"),
    ("ClaimTick", sb.ClaimTickRequest(namespace=name_of("a"), lease_key="x"), "lease_key"),
    ("ClaimTick", sb.ClaimTickRequest(namespace=name_of("a"), owner="o" * 256), "owner"),
    ("ClaimTick", sb.ClaimTickRequest(namespace=name_of("a"), labels={f"l{n}": "" for n in range(17)}), "labels"),
    ("ClaimTick", sb.ClaimTickRequest(namespace=name_of("a"), duration=duration(0)), "duration"),
]


@pytest.mark.parametrize(("method", "request_", "field"), BAD_CALLS)
def test_a_hostile_request_is_refused_with_its_field(schedules, method, request_, field):
    with fails() as refused:
        getattr(schedules, method)(request_, timeout=30)
    assert refused.value.code == grpc.StatusCode.INVALID_ARGUMENT, refused.value
    assert field in violations(refused.value)


def test_bytes_that_are_no_request_are_refused(service):
    for method in ("SetSchedule", "GetSchedule", "ListSchedules", "PauseSchedule", "RemoveSchedule", "RunScheduleNow", "ListTicks", "ClaimTick"):
        for data in (b"\xff", b"\x0a\x05ab", b"\x0a\x02\x0a\xff" * 3, b"\x12\x03\xff\xfe\xfd"):
            call = service.client.channel.unary_unary(f"/leasehold.v1.ScheduleService/{method}")
            with fails() as refused:
                call(data, timeout=30)
            assert refused.value.code == grpc.StatusCode.INVALID_ARGUMENT, (method, data)


def test_metrics_name_the_schedule_whose_ticks_are_missed(cluster, name):
    own = Service(cluster, "--metrics-namespaces", "3")
    schedules = sb_grpc.ScheduleServiceStub(own.client.channel)
    set_schedule(schedules, name, "every 1 s", catch_up=sb.CATCH_UP_NONE, tick_deadline=duration(1))
    assert claim(schedules, name, wait=10).HasField("lease")

    def metrics():
        body = urlopen(f"http://127.0.0.1:{own.daemon.admin_port}/metrics", timeout=30).read().decode()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in body.splitlines() if f'"{name}"' in line}

    wait_until(lambda: metrics().get(f'leasehold_schedule_ticks_missed{{schedule="{name}"}}', 0) > 0, 60, "a missed tick in the metrics")
    assert metrics()[f'leasehold_schedule_ticks_running{{schedule="{name}"}}'] == 1
    assert metrics()[f'leasehold_schedule_ticks_dead{{schedule="{name}"}}'] == 0
    own.close()


def test_each_method_needs_its_right(cluster):
    site = Site(cluster)
    try:
        tokens = {}
        for right in ("read", "lease", "admin"):
            tokens[right] = bearer(site.token(right)[0])
            site.grant(f"token:{right}", "rights", right)
        site.waits_for("OK", "rights", tokens["admin"])
        site.waits_for("OK", "rights", tokens["lease"])
        stub = sb_grpc.ScheduleServiceStub(site.client.channel)
        ours, theirs = name_of("rights.a"), name_of("other.a")

        def calls(of):
            return [("admin", stub.SetSchedule, sb.SetScheduleRequest(schedule=sb.Schedule(namespace=of, expression="@yearly"))),
                    ("read", stub.GetSchedule, sb.GetScheduleRequest(namespace=of)),
                    ("read", stub.ListSchedules, sb.ListSchedulesRequest(namespace=of.segments)),
                    ("read", stub.ListTicks, sb.ListTicksRequest(namespace=of.segments)),
                    ("admin", stub.RunScheduleNow, sb.RunScheduleNowRequest(namespace=of)),
                    ("lease", stub.ClaimTick, sb.ClaimTickRequest(namespace=of)),
                    ("admin", stub.PauseSchedule, sb.PauseScheduleRequest(namespace=of, paused=True)),
                    ("admin", stub.RemoveSchedule, sb.RemoveScheduleRequest(namespace=of))]

        for needed, method, request in calls(ours):
            for right in ("read", "lease", "admin"):
                if right not in (needed, "admin"):
                    with fails() as refused:
                        method(request, metadata=tokens[right], timeout=30)
                    assert refused.value.reason == "ACCESS_DENIED", (right, request)
            method(request, metadata=tokens["admin"], timeout=30)
        for _, method, request in calls(theirs):
            with fails() as refused:
                method(request, metadata=tokens["admin"], timeout=30)
            assert refused.value.reason == "ACCESS_DENIED", request
    finally:
        site.client.close()
        site.daemon.stop()
