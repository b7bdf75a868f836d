"""Daemons killed and stopped in turns under 500 waiters; and what judges their history, shown to fail on a broken one."""
import asyncio
import signal
import uuid

import grpc
import grpc.aio
import pytest

import harness
from harness import acquire_request, pb, pb_grpc, release_request, wait_until
from place import BOUND, WATCHFUL
from record import EXPORT, RECORD, history, judge

MOVED = """
    1 alive - - - - c1
    1 alive - - - - c2
    1 grant k A 10 30
    2 queue k B - - c1
    3 queue k C - - c2
    4 {} k B - - c2
    5.9 alive - - - - c2
    6.5 end k A
    6.6 grant k {} 11 60
"""


@pytest.mark.parametrize("change, granted, faults", [
    ("move", "B", 0), ("move", "C", 1), ("away", "C", 0), ("leave", "C", 0)])
def test_the_judge_knows_who_stands_where(change, granted, faults):
    found = judge(history(MOVED.format(change, granted))).faults
    assert len(found) == faults and all(fault.startswith("overtaking") for fault in found), found


# The sign of life of 4.2 s was committed at 5.7 s: whether who was granted k at 6 s could see it, nobody can tell.
SLOW_SIGN = """
    1 alive - - - - c1
    1 alive - - - - c2
    1 grant k A 10 30
    2 queue k B - - c1
    3 queue k C - - c2
    5.5 alive - - - - c2
    4.2 alive - - - {} c1
    5.9 end k A
    6 grant k C 11 60
"""


# B moved away from c1 when that was about to pass for dead: whether who was granted k then could see it, nobody can tell.
LATE_MOVE = """
    1 alive - - - - c1
    1 alive - - - - c2
    1 grant k A 10 30
    2 queue k B - - c1
    3 queue k C - - c2
    3 alive - - - - c2
    {} move k B - - c2
    4.5 end k A
    4.6 grant k C 11 60
"""


@pytest.mark.parametrize("moved_at, faults", [("3.9", 1), ("4.4", 0)])
def test_the_judge_knows_when_a_waiter_moved(moved_at, faults):
    found = judge(history(LATE_MOVE.format(moved_at))).faults
    assert len(found) == faults and all(fault.startswith("overtaking") for fault in found), found


@pytest.mark.parametrize("committed_at, faults", [("4.2", 1), ("5.7", 0)])
def test_the_judge_knows_when_a_sign_of_life_was_committed(committed_at, faults):
    found = judge(history(SLOW_SIGN.format(committed_at))).faults
    assert len(found) == faults and all(fault.startswith("overtaking") for fault in found), found


@pytest.mark.parametrize("line, fault", [
    ("6.6 grant k D 9 60", "token"), ("6.6 grant k A 11 60", "granted twice"), ("40 grant k B 11 60", "stall"),
    ("8 stop", "stall")])
def test_the_judge_finds_what_is_broken(line, fault):
    lines = MOVED.format("move", "B").strip().splitlines()[:-1]
    extra = ["39 alive - - - - c2"] if line.startswith("40") else []
    assert any(found.startswith(fault) for found in judge(history("\n".join([*lines, *extra, line]))).faults)


def test_the_judge_finds_a_second_holder():
    lines = MOVED.format("move", "B").replace("6.5 end k A\n", "")
    assert any(found.startswith("double holder") for found in judge(history(lines)).faults)


# --- daemons killed and stopped in turns under 500 waiters ---

SCOPES = 5
TRY_ANOTHER = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)


async def elsewhere(stubs, start, method, request, timeout=None):
    """The call's answer, from whichever daemon gives one."""
    turn = start
    while True:
        try:
            return await getattr(stubs[turn % len(stubs)], method)(request, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            reason = harness.Failure(error).reason
            if error.code() not in TRY_ANOTHER and reason not in ("BLOCKING_TIMEOUT", "SCOPE_BUSY"):
                raise AssertionError(f"{method}: {error.code()} {reason} {error.details()}") from error
            turn += reason != "BLOCKING_TIMEOUT"
            await asyncio.sleep(0.05)


async def work(stubs, number, lost):
    request = acquire_request("jobs", f"k{number % SCOPES}", 20, wait_forever=True, owner=f"w{number}", lease_key=str(uuid.uuid4()))
    lease = (await elsewhere(stubs, number, "Acquire", request)).lease
    await asyncio.sleep(0.15)  # it works
    while True:
        result = (await elsewhere(stubs, number, "Release", release_request(lease), timeout=2)).results[0]
        if result.outcome == pb.OUTCOME_OK or result.end_reason == pb.END_REASON_RELEASED:
            return
        if result.outcome != pb.OUTCOME_RETRY:
            lost.append(result)
            return
        await asyncio.sleep(0.05)


def break_in_turns(place, stop):
    """Kill and restart one, cut another off for longer than the clients' patience and than its sign of life is good for."""
    session, turns = place.cluster.session(place.database), 0

    def wait_for_sign(daemon, condition):
        wait_until(lambda: session.run("select clock_timestamp() - seen_at " + condition + " from leasehold.coordinator where "
                                       f"pid = {daemon.process.pid}") == "t", BOUND, f"a sign of life {condition}")

    while turns < 4 or (not stop.is_set() and turns < 20):
        daemon = place.daemons[turns % len(place.daemons)]
        if turns % 2 == 0:
            daemon.kill()
            wait_for_sign(daemon, "> interval '1.5 s'")
            daemon.start()
        else:
            daemon.signal(signal.SIGSTOP)
            wait_for_sign(daemon, f"> interval '{6 if turns % 4 == 1 else 2.5} s'")
            daemon.signal(signal.SIGCONT)
        wait_for_sign(daemon, "< interval '1 s'")
        turns += 1
    return turns


async def crowd(place, holders):
    channels = [grpc.aio.insecure_channel(daemon.target, options=WATCHFUL) for daemon in place.daemons]
    stubs, lost, stop = [pb_grpc.LeaseServiceStub(channel) for channel in channels], [], asyncio.Event()
    workers = [asyncio.ensure_future(work(stubs, number, lost)) for number in range(500)]
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, lambda: wait_until(
        lambda: place.psql("select count(*) from leasehold.waiter") == "500", BOUND, "500 waiters"))
    breaking = loop.run_in_executor(None, break_in_turns, place, stop)
    for lease in holders:
        await elsewhere(stubs, 2, "Release", release_request(lease), timeout=2)
    try:
        await asyncio.wait_for(asyncio.gather(*workers), 180)
    finally:
        stop.set()
        turns = await breaking
    for channel in channels:
        await channel.close()
    return lost, turns


# Promise 6.
def test_500_waiters_are_served_in_order_while_daemons_are_killed_and_stopped(place):
    for _ in range(3):
        place.daemon()
    place.psql(RECORD)
    holders = [place.clients[0].lease.Acquire(acquire_request("jobs", f"k{n}", 60, owner="first")).lease for n in range(SCOPES)]
    # The rows of the first grants were inserted, not updated: the record begins with their renewals.
    place.psql("insert into record.event (at, kind, scope, lease, token, until) select acquired_at, 'grant', key, lease_key, token, "
               "deadline + grace from leasehold.scope where not exists (select from record.event e where e.scope = key and "
               "e.kind = 'grant')")
    lost, turns = asyncio.run(crowd(place, holders))
    place.psql("insert into record.event (at, kind) values (clock_timestamp(), 'stop')")
    lines = place.psql(EXPORT).splitlines()
    verdict = judge(lines)
    assert not verdict.faults, verdict.faults[:10]
    assert verdict.counts["grant"] == 500 + SCOPES and all(not scope.holders for scope in verdict.scopes.values()), verdict.counts
    # A scope remembers its last 8 ended keys: with a holder each 150 ms, who asks again after 2 s may hear that nothing is known.
    ended = {line.split("\t")[4] for line in lines if line.split("\t")[2] == "end"}
    assert all(result.end_reason == pb.END_REASON_UNKNOWN and result.lease_key in ended for result in lost), lost
    assert turns >= 4
    wait_until(lambda: place.psql("select count(*) from leasehold.waiter") == "0", BOUND, "an empty queue")
