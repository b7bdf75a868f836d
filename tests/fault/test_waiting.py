"""Waiting while things break: daemons and clients killed and cut off, notifications that never come, limits, lost rows, storms.

A history is taken by triggers in the database, in the transactions of the changes, and judged by the soak's checker.
"""
import asyncio
import pathlib
import signal
import subprocess
import sys
import time
import urllib.request
import uuid

import grpc
import grpc.aio
import pytest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "integration"))
sys.path.insert(0, str(TESTS / "soak"))
import check_history  # noqa: E402
import harness  # noqa: E402
from harness import acquire_request, fails, lease_ref, pb, pb_grpc, release_request, wait_until  # noqa: E402

BOUND = 60  # seconds until a test gives up; never a measurement
STUBS = str(pathlib.Path(pb.__file__).parents[2])


class Place:
    """A cluster, a database, and what is started on it."""

    def __init__(self):
        self.cluster = harness.Cluster()
        self.database = self.cluster.create_database()
        self.daemons = []
        self.clients = []

    def daemon(self, *args):
        self.daemons.append(harness.Daemon(*args, database=self.cluster.url(self.database)))
        self.clients.append(harness.Client(self.daemons[-1].target))
        return self.daemons[-1]

    def psql(self, sql):
        return self.cluster.psql(sql, self.database)

    def waiters(self, key):
        return int(self.psql(f"select count(*) from leasehold.waiter where key = '{key}'"))

    def queued_call(self, client, key, owner, **fields):
        """A call that waits for ever, once its row is there."""
        before = self.waiters(key)
        call = client.lease.Acquire.future(acquire_request("jobs", key, 60, wait_forever=True, owner=owner, **fields))
        wait_until(lambda: self.waiters(key) == before + 1, BOUND, f"{owner} to queue")
        return call

    def close(self):
        for client in self.clients:
            client.close()
        for daemon in self.daemons:
            daemon.destroy()
        self.cluster.destroy()


@pytest.fixture
def place():
    place = Place()
    yield place
    place.close()


# --- the history ---

RECORD = """
create schema record;
create table record.event (
  number bigserial primary key, tx xid8 not null default pg_current_xact_id(), at timestamptz not null, kind text not null,
  scope text, lease uuid, token bigint, until timestamptz, actor text);

create function record.on_scope() returns trigger language plpgsql security definer as $$
begin
  if old.state = 'held' and new.state = 'free' then
    insert into record.event (at, kind, scope, lease, token)
    values (clock_timestamp(), case new.last_outcome when 'expired' then 'reap' else 'end' end, new.key, old.lease_key, old.token);
  elsif new.state = 'held' and new.lease_key is distinct from old.lease_key then
    insert into record.event (at, kind, scope, lease, token, until)
    values (new.acquired_at, 'grant', new.key, new.lease_key, new.token, new.deadline + new.grace);
  elsif new.state = 'held' and new.heartbeat_at <> old.heartbeat_at then
    insert into record.event (at, kind, scope, lease, token, until)
    values (new.heartbeat_at, 'renew', new.key, new.lease_key, new.token, new.deadline + new.grace);
  end if;
  return null;
end $$;
create trigger record after update on leasehold.scope for each row execute function record.on_scope();

create function record.on_waiter() returns trigger language plpgsql security definer as $$
begin
  if tg_op = 'INSERT' then
    insert into record.event (at, kind, scope, lease, actor)
    values (clock_timestamp(), 'queue', new.key, new.lease_key, new.coordinator);
  elsif tg_op = 'DELETE' then
    insert into record.event (at, kind, scope, lease) values (clock_timestamp(), 'leave', old.key, old.lease_key);
  else
    insert into record.event (at, kind, scope, lease, actor)
    values (clock_timestamp(), case when new.away_until is null then 'move' else 'away' end, new.key, new.lease_key, new.coordinator);
  end if;
  return null;
end $$;
create trigger record after insert or update or delete on leasehold.waiter for each row execute function record.on_waiter();

create function record.on_coordinator() returns trigger language plpgsql security definer as $$
begin
  insert into record.event (at, kind, actor) values (new.seen_at, 'alive', new.id);
  return null;
end $$;
create trigger record after insert or update on leasehold.coordinator for each row execute function record.on_coordinator();
"""

# Whoever is granted the scope leaves the queue in the same transaction: that is no leaving.
EXPORT = """
select concat_ws(E'\\t', number, extract(epoch from at)::numeric(20, 6), kind, coalesce(scope, '-'), coalesce(lease::text, '-'),
  coalesce(token::text, '-'), coalesce(extract(epoch from until)::numeric(20, 6)::text, '-'), coalesce(actor, '-'))
  from record.event e
 where not (kind = 'leave' and exists (
         select from record.event g where g.kind = 'grant' and g.tx = e.tx and g.scope = e.scope and g.lease = e.lease))
 order by number
"""


class Judge(check_history.Judge):
    """With waiters that change their coordinator, places of calls that are away, and coordinators that come back."""

    UNCLEAR_S = 0.5  # whether a sign of life that was just given was seen already

    def __init__(self):
        super().__init__()
        self.back = {}

    def live_until(self, waiter):
        return 0.0 if waiter.until == 0.0 else super().live_until(waiter)

    def on_alive(self, event, scope):
        if event.at > self.seen.get(event.actor, 0.0) + check_history.ALIVE_S:
            self.back[event.actor] = event.at
        super().on_alive(event, scope)

    def on_move(self, event, scope):
        waiter = scope.waiters.get(event.lease)
        if waiter is not None:
            scope.waiters[event.lease] = waiter._replace(actor=event.actor, until=None)

    def on_away(self, event, scope):
        waiter = scope.waiters.get(event.lease)
        if waiter is not None:
            scope.waiters[event.lease] = waiter._replace(until=0.0)

    def check_line(self, event, scope):
        unclear = {lease: waiter for lease, waiter in scope.waiters.items() if lease != event.lease
                   and event.at < self.back.get(waiter.actor, 0.0) + self.UNCLEAR_S}
        for lease in unclear:
            del scope.waiters[lease]
        super().check_line(event, scope)
        scope.waiters.update(unclear)


def judge(lines):
    verdict = Judge()
    for line in lines:
        verdict.judge(check_history.parse(line))
    return verdict


def history(text):
    rows = [line.split() for line in text.strip().splitlines()]
    return ["\t".join([str(n), *row, *["-"] * (7 - len(row))]) for n, row in enumerate(rows, 1)]


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

# A client that finds out by itself that its daemon is cut off.
WATCHFUL = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0), ("grpc.keepalive_time_ms", 1000),
            ("grpc.keepalive_timeout_ms", 1000), ("grpc.http2.max_pings_without_data", 0),
            ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 300)]
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
    await asyncio.sleep(0.15)
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
    turns = 0
    while turns < 4 or (not stop.is_set() and turns < 20):
        daemon = place.daemons[turns % len(place.daemons)]
        if turns % 2 == 0:
            daemon.kill()
            time.sleep(0.5)
            daemon.start()
        else:
            daemon.signal(signal.SIGSTOP)
            time.sleep(6 if turns % 4 == 1 else 3)
            daemon.signal(signal.SIGCONT)
        time.sleep(1)
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
        await asyncio.wait_for(asyncio.gather(*workers), 90)
    finally:
        stop.set()
        turns = await breaking
    for channel in channels:
        await channel.close()
    return lost, turns


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
    assert verdict.counts["grant"] == 500 + SCOPES and all(scope.holder is None for scope in verdict.scopes.values()), verdict.counts
    assert not lost and turns >= 4
    wait_until(lambda: place.psql("select count(*) from leasehold.waiter") == "0", BOUND, "an empty queue")


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


# --- clients that die or are cut off while they are queued ---

CLIENT = """
import sys
sys.path.insert(0, sys.argv[1])
import google
google.__path__.append(sys.argv[1] + "/google")
import grpc
from leasehold.v1 import leasehold_pb2 as pb, leasehold_pb2_grpc as pb_grpc
channel = grpc.insecure_channel(sys.argv[2])
stub = pb_grpc.LeaseServiceStub(channel)
if len(sys.argv) > 4:
    grpc.channel_ready_future(channel).result()
    print(sys.argv[4], flush=True)
    sys.stdin.readline()
try:
    stub.Acquire(pb.AcquireRequest.FromString(bytes.fromhex(sys.argv[3])))
    print("granted", flush=True)
except grpc.RpcError as error:
    print(error.code(), flush=True)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_client_that_is_gone_while_queued_never_holds(place, how):
    place.daemon("--keepalive", "1s", "--keepalive-timeout", "1s")
    place.psql(RECORD)
    client = place.clients[0]
    held = client.lease.Acquire(acquire_request("jobs", "k", 60, owner="first")).lease
    request = acquire_request("jobs", "k", 60, wait_forever=True, owner="gone", lease_key=str(uuid.uuid4()))
    process = subprocess.Popen([sys.executable, "-c", CLIENT, STUBS, place.daemons[0].target, request.SerializeToString().hex()],
                               stdout=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: place.waiters("k") == 1, BOUND)
        behind = place.queued_call(client, "k", "behind")
        process.send_signal(how)
        wait_until(lambda: place.waiters("k") == 1, BOUND, "the place to be given up")
        assert place.psql("select owner from leasehold.waiter") == "behind"
        client.lease.Release(release_request(held))
        last = behind.result(BOUND).lease
        assert last.owner == "behind"
        client.lease.Release(release_request(last))
        if how == signal.SIGSTOP:
            process.send_signal(signal.SIGCONT)
            assert process.communicate(timeout=BOUND)[0].strip() != "granted"
        assert place.psql("select lease from record.event where kind = 'grant'") == last.lease_key
    finally:
        process.kill()
        process.wait()


def unread(port):
    """Bytes that came to this port and were not read."""
    rows = [line.split() for line in open("/proc/net/tcp").readlines()[1:]]
    return sum(int(row[4].split(":")[1], 16) for row in rows if int(row[1].split(":")[1], 16) == port)


def test_after_a_pause_it_reads_who_has_gone_before_it_asks_for_anybody(place):
    """An acquire that came while the daemon stood still, of a client that has gone elsewhere and has had the lease since."""
    paused, other = place.daemon(), place.daemon()
    place.psql(RECORD)
    client = place.clients[1]
    held = client.lease.Acquire(acquire_request("jobs", "k", 60)).lease
    request = acquire_request("jobs", "k", 60, wait_forever=True, lease_key=str(uuid.uuid4()))
    process = subprocess.Popen([sys.executable, "-c", CLIENT, STUBS, paused.target, request.SerializeToString().hex(), "ready"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline().strip() == "ready"
        paused.signal(signal.SIGSTOP)
        before = unread(paused.port)
        process.stdin.write("\n")
        process.stdin.flush()
        wait_until(lambda: unread(paused.port) > before, BOUND, "the call to arrive")
        process.kill()
        process.wait()
        client.lease.Release(release_request(held))
        client.lease.Release(release_request(client.lease.Acquire(request).lease))
        time.sleep(0.3)  # a pause, not a hiccup
        for _ in range(9):  # the scope remembers eight
            client.lease.Release(release_request(client.lease.Acquire(acquire_request("jobs", "k", 60)).lease))
    finally:
        paused.signal(signal.SIGCONT)
        process.kill()
    wait_until(lambda: metric(paused, "leasehold_rpc_connections_accepted_total") == 1 and
               metric(paused, "leasehold_rpc_connections_open") == 0,
               BOUND, "the call to be read, and its end")
    wait_until(lambda: place.waiters("k") == 0, BOUND)
    assert client.lease.Acquire(acquire_request("jobs", "k", 60)).lease.token > held.token
    grants = place.psql(f"select count(*) from record.event where kind = 'grant' and lease = '{request.lease_key}'")
    assert grants == "1"


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


def metric(daemon, name):
    text = urllib.request.urlopen(f"http://127.0.0.1:{daemon.admin_port}/metrics", timeout=30).read().decode()
    return float(next(line for line in text.splitlines() if line.startswith(name)).split()[-1])


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
