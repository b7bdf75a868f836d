"""Waiting without notifications, through limits and lost rows, and under a storm of cancels."""
import asyncio
import time
import uuid

import grpc
import grpc.aio
import pytest

from harness import acquire_request, fails, lease_ref, pb, pb_grpc, release_request, wait_until
from place import BOUND, WATCHFUL, metric

# --- no notification ever comes ---


def test_everything_works_without_notifications(place):
    place.psql("set allow_system_table_mods = on; alter function pg_catalog.pg_notify(text, text) rename to pg_notify_really; "
               "create function pg_catalog.pg_notify(text, text) returns void language sql as ''")
    session = place.cluster.session(place.database)
    assert "Asynchronous" not in session.run("listen x; select pg_notify('x', 'y'); select 1")
    session.close()
    place.daemon()
    place.daemon()
    here, there = place.clients
    sql_key = str(uuid.uuid4())
    place.psql(f"select token from leasehold.acquire('jobs', 'k', '1 hour', lease_key => '{sql_key}')")
    calls = [place.queued_call(place.clients[n % 2], "k", f"w{n}") for n in range(4)]
    place.psql(f"select leasehold.release_ok('jobs', 'k', '{sql_key}')")
    held = calls[0].result(BOUND).lease
    for number in (1, 2, 3):  # from one daemon's client to the other's
        assert here.lease.Release(release_request(held)).results[0].outcome == pb.OUTCOME_OK
        granted = calls[number].result(BOUND).lease
        assert granted.owner == f"w{number}" and granted.token > held.token
        held = granted
    # An SQL user's turn, then one whose holder dies without a word.
    place.psql(f"select * from leasehold.join_queue('jobs', 'k', '{(sql_key := str(uuid.uuid4()))}', '1 minute')")
    behind = place.queued_call(there, "k", "behind")
    there.lease.Release(release_request(held))
    wait_until(lambda: place.psql(f"select token from leasehold.acquire('jobs', 'k', '1 s', lease_key => '{sql_key}')"), BOUND)
    assert behind.result(BOUND).lease.owner == "behind"
    # Whoever gives up leaves the way free for the next one.
    last = place.queued_call(here, "k", "gives up"), place.queued_call(there, "k", "last")
    last[0].cancel()
    wait_until(lambda: place.waiters("k") == 1, BOUND)
    there.lease.Release(release_request(behind.result().lease))
    assert last[1].result(BOUND).lease.owner == "last"


# --- the blocking limit ---


def ticket(place, key):
    return place.psql(f"select ticket, lease_key from leasehold.waiter where key = '{key}'")


def test_a_wait_ends_when_its_time_has_passed_whatever_the_limit(place):
    place.daemon("--max-block", "2s")
    client, lease_key = place.clients[0], str(uuid.uuid4())
    held = client.lease.Acquire(acquire_request("jobs", "k", 60, owner="sitting")).lease
    began, limits, places = time.monotonic(), 0, set()
    while True:
        left = began + 6 - time.monotonic()
        with fails() as failure:
            client.lease.Acquire(acquire_request("jobs", "k", 60, wait=max(left, 0.001), lease_key=lease_key))
        assert failure.value.contention.holder.token == held.token and failure.value.contention.waiters_ahead == 0
        if failure.value.reason == "WAIT_TIMEOUT":
            break
        assert failure.value.reason == "BLOCKING_TIMEOUT" and failure.value.code == grpc.StatusCode.ABORTED
        assert failure.value.retry is not None
        assert place.psql("select position, away from leasehold.queue where key = 'k'") != ""
        places.add(ticket(place, "k"))
        limits += 1
    assert time.monotonic() - began >= 6 and limits in (2, 3) and len(places) == 1
    assert failure.value.code == grpc.StatusCode.DEADLINE_EXCEEDED
    wait_until(lambda: place.waiters("k") == 0, BOUND)


def test_the_limit_stays_below_the_idle_timeout(place):
    place.daemon("--max-block", "20s", "--idle-timeout", "1s")
    client = place.clients[0]
    assert client.admin.GetStatus(pb.GetStatusRequest()).max_block.ToMilliseconds() == 970
    client.lease.Acquire(acquire_request("jobs", "k", 60))
    with fails() as failure:
        client.lease.Acquire(acquire_request("jobs", "k", 60, wait=30))
    assert failure.value.reason == "BLOCKING_TIMEOUT" and place.psql("select away from leasehold.queue") == "t"


def test_the_limit_bounds_waits_only(place):
    place.daemon("--max-block", "100ms")
    client = place.clients[0]
    beaten, released = [client.lease.Acquire(acquire_request("jobs", key, 60)).lease for key in ("a", "b")]
    session = place.cluster.session(place.database)
    session.run("begin; select 1 from leasehold.scope for update")
    calls = [client.lease.Heartbeat.future(pb.HeartbeatRequest(leases=[lease_ref(beaten)])),
             client.lease.Release.future(release_request(released))]
    # They are tried for a second, as without the limit.
    assert [call.result(BOUND).results[0].outcome for call in calls] == [pb.OUTCOME_RETRY] * 2
    session.run("commit")
    assert client.lease.Heartbeat(pb.HeartbeatRequest(leases=[lease_ref(beaten)])).results[0].outcome == pb.OUTCOME_OK
    assert client.lease.Release(release_request(released)).results[0].outcome == pb.OUTCOME_OK
    session.close()


@pytest.mark.parametrize("how", ["wait_forever", "wait_while_alive"])
def test_unbounded_waits_go_through_any_number_of_limits(place, how):
    place.daemon("--max-block", "500ms")
    client, lease_key, places = place.clients[0], str(uuid.uuid4()), set()
    held = client.lease.Acquire(acquire_request("jobs", "k", 60)).lease
    for _ in range(4):
        with fails() as failure:
            client.lease.Acquire(acquire_request("jobs", "k", 60, lease_key=lease_key, **{how: True}))
        assert failure.value.reason == "BLOCKING_TIMEOUT"
        places.add(ticket(place, "k"))
    assert len(places) == 1
    call = client.lease.Acquire.future(acquire_request("jobs", "k", 60, lease_key=lease_key, **{how: True}))
    client.lease.Release(release_request(held))
    try:
        granted = call.result(BOUND).lease
    except grpc.RpcError:  # the limit came first
        granted = client.lease.Acquire(acquire_request("jobs", "k", 60, lease_key=lease_key, **{how: True})).lease
    assert granted.lease_key == lease_key and granted.token > held.token and place.waiters("k") == 0


def until_granted(events):
    for event in events:
        if event.WhichOneof("event") == "granted":
            return event.granted
    raise AssertionError("the stream ended without a grant")


def test_a_waiter_that_is_away_is_listed_passed_over_and_has_its_place_again(place):
    place.daemon("--max-block", "300ms")
    client, lease_key = place.clients[0], str(uuid.uuid4())
    held = client.lease.Acquire(acquire_request("jobs", "k", 60)).lease
    with fails() as failure:
        client.lease.Acquire(acquire_request("jobs", "k", 60, wait_forever=True, owner="away", lease_key=lease_key))
    assert failure.value.reason == "BLOCKING_TIMEOUT"
    old = ticket(place, "k")
    present = []
    for number in range(2):  # streams know no limit
        present.append(client.lease.AcquireStream(acquire_request("jobs", "k", 60, wait_forever=True, owner=f"p{number}")))
        assert next(present[-1]).WhichOneof("event") == "queued"
    assert place.psql("select owner, away from leasehold.queue where key = 'k' order by position").splitlines()[0] == "away|t"
    client.lease.Release(release_request(held))
    passed = until_granted(present[0])
    assert passed.owner == "p0"
    back = client.lease.AcquireStream(acquire_request("jobs", "k", 60, wait_forever=True, owner="away", lease_key=lease_key))
    assert next(back).queued.waiters_ahead == 0
    assert old in ticket(place, "k").splitlines()
    client.lease.Release(release_request(passed))
    again = until_granted(back)
    assert again.lease_key == lease_key
    client.lease.Release(release_request(again))
    assert until_granted(present[1]).owner == "p1"


def test_who_waits_for_the_dead_under_a_manual_policy_learns_who_can_help(place):
    place.daemon()
    client = place.clients[0]
    place.psql("select leasehold.set_policy('jobs', expiry => 'manual')")
    held = client.lease.Acquire(acquire_request("jobs", "k", 60, owner="gone")).lease
    place.psql("update leasehold.scope set heartbeat_at = heartbeat_at - interval '1 hour', acquired_at = acquired_at - interval '1 hour', "
               "deadline = deadline - interval '1 hour'")
    with fails() as failure:
        client.lease.Acquire(acquire_request("jobs", "k", 60, wait=0.2))
    assert failure.value.reason == "WAIT_TIMEOUT"
    assert failure.value.contention.liveness != pb.LIVENESS_ALIVE and failure.value.contention.holder.token == held.token
    assert "administrator" in failure.value.message and "leasehold force-release jobs k --reason" in failure.value.message
    assert "administrator" in place.psql("select advice from leasehold.explain('jobs', 'k')")
    waiting = place.queued_call(client, "k", "patient")
    place.psql("select leasehold.force_release('jobs', 'k', 'it is dead')")
    assert waiting.result(BOUND).lease.owner == "patient"


# --- rows lost in a failover ---


def test_waiters_whose_rows_were_lost_are_registered_again_with_their_tickets(place):
    place.daemon()
    place.daemon()
    held = place.clients[0].lease.Acquire(acquire_request("jobs", "k", 60)).lease
    calls = [place.queued_call(place.clients[n % 2], "k", f"w{n}") for n in range(6)]
    tickets = "select string_agg(owner || ' ' || ticket, ',' order by ticket) from leasehold.waiter"
    before = place.psql(tickets)
    place.psql("delete from leasehold.waiter; select pg_terminate_backend(pid) from pg_stat_activity "
               "where datname = current_database() and pid <> pg_backend_pid()")
    wait_until(lambda: place.waiters("k") == 6, BOUND, "the waiters to be back")
    assert place.psql(tickets) == before
    newcomer = place.queued_call(place.clients[1], "k", "w6")
    for number, call in enumerate([*calls, newcomer]):
        wait_until(lambda: place.clients[0].lease.Heartbeat(
            pb.HeartbeatRequest(leases=[lease_ref(held)])).results[0].outcome == pb.OUTCOME_OK, BOUND)
        assert place.clients[0].lease.Release(release_request(held)).results[0].outcome == pb.OUTCOME_OK
        held = call.result(BOUND).lease
        assert held.owner == f"w{number}"


# --- a storm of cancels and retries ---


async def storm(target, seconds, per_second):
    """So many calls a second, each cancelled after some milliseconds and made again with its lease key."""
    channel = grpc.aio.insecure_channel(target, options=WATCHFUL[:2])
    stub = pb_grpc.LeaseServiceStub(channel)
    keys = [str(uuid.uuid4()) for _ in range(50)]
    done, end = 0, time.monotonic() + seconds
    began = time.monotonic()

    async def one(lease_key):
        call = stub.Acquire(acquire_request("jobs", "k", 60, wait_forever=True, lease_key=lease_key))
        await asyncio.sleep(0.02)
        call.cancel()
        try:
            await call
        except asyncio.CancelledError:
            return
        raise AssertionError("a call was answered while the scope is held")

    async def client(lease_key):
        nonlocal done
        while time.monotonic() < end:
            await one(lease_key)
            done += 1
            await asyncio.sleep(max(0, began + done / per_second - time.monotonic()))

    await asyncio.gather(*map(client, keys))
    await channel.close()
    return done


def test_a_storm_of_cancels_leaves_nothing_behind(place):
    daemon = place.daemon()
    held = place.clients[0].lease.Acquire(acquire_request("jobs", "k", 300)).lease
    memory = []
    for _ in range(3):
        assert asyncio.run(storm(daemon.target, 3, 1000)) > 1000
        wait_until(lambda: place.waiters("k") == 0, BOUND, "the rows to go")
        wait_until(lambda: metric(daemon, "leasehold_waiters") == 0, BOUND, "the waiters to go")
        wait_until(lambda: metric(daemon, "leasehold_rpc_calls_open") == 0, BOUND, "the streams to go")
        memory.append(daemon.memory_kib())
    assert memory[2] - memory[0] < 1024, memory  # thousands of calls lie between
    place.clients[0].lease.Release(release_request(held))
    assert place.clients[0].lease.Acquire(acquire_request("jobs", "k", 1)).lease.token > held.token
