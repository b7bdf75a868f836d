"""Shared leases over gRPC: readers and a writer, units of a capacity, slots, downgrade, and who is told what of several holders."""
import concurrent.futures
import threading
import uuid

import grpc
import pytest

import harness
from harness import Client, Daemon, acquire_request, duration, fails, lease_ref, pb, release_request, scope, wait_until
from streams import BOUND, Stream, queued_event, waiters

SHARED = {"mode": pb.MODE_SHARED}


@pytest.fixture
def key():
    return "k-" + uuid.uuid4().hex[:8]


@pytest.fixture
def pool():
    with concurrent.futures.ThreadPoolExecutor(max_workers=120) as executor:
        yield executor


def take(service, ns, key, *, seconds=60, client=None, **fields):
    return (client or service.client).lease.Acquire(acquire_request(ns, key, seconds, **fields), timeout=BOUND).lease


def share(service, ns, key, units=0, **fields):
    return take(service, ns, key, units=units, **SHARED, **fields)


def release(service, *leases):
    results = service.client.lease.Release(release_request(*leases), timeout=BOUND).results
    assert [result.outcome for result in results] == [pb.OUTCOME_OK] * len(leases)


def refusal(service, ns, key, **fields):
    with fails() as failure:
        take(service, ns, key, **fields)
    return failure.value


def invalid(field, call, *args, **fields):
    with fails() as failure:
        call(*args, **fields)
    assert failure.value.reason == "INVALID_ARGUMENT" and failure.value.metadata["field"] == field, failure.value.message
    return failure.value


def set_capacity(service, ns, capacity):
    policy = pb.Policy(namespace=pb.Namespace(segments=ns.split(".")))
    policy.capacity.value = capacity
    return service.client.admin.SetPolicy(pb.SetPolicyRequest(policy=policy)).effective


def get(service, ns, key):
    return service.client.lease.GetLease(pb.GetLeaseRequest(scope=scope(ns, key)))


def start(pool, service, ns, key, **fields):
    """An acquire that waits, once it stands in the queue."""
    before = waiters(service, key)
    call = pool.submit(take, service, ns, key, wait=600, **fields)
    wait_until(lambda: waiters(service, key) > before, BOUND, "the waiter in the queue")
    return call


def downgrade(service, lease, units=0):
    return service.client.lease.Downgrade(pb.DowngradeRequest(lease=lease_ref(lease), units=units), timeout=BOUND).lease


# --- readers and a writer ---


def test_readers_hold_together_and_a_writer_alone(service, ns, key):
    first, second = share(service, ns, key), share(service, ns, key)
    assert (first.mode, first.units, list(first.slots)) == (pb.MODE_SHARED, 1, [])
    assert second.token > first.token
    held = refusal(service, ns, key)
    assert held.reason == "LEASE_HELD" and held.contention.holder_count == 2
    assert held.contention.holder.token == first.token and held.contention.holder.mode == pb.MODE_SHARED
    assert not held.contention.HasField("units_free")
    release(service, first, second)
    writer = take(service, ns, key)
    assert (writer.mode, writer.units) == (pb.MODE_EXCLUSIVE, 0) and writer.token > second.token
    held = refusal(service, ns, key, **SHARED)
    assert held.contention.holder_count == 1 and held.contention.holder.token == writer.token


def test_no_reader_overtakes_a_waiting_writer(service, ns, key, pool):
    reader = share(service, ns, key)
    writer = start(pool, service, ns, key)
    assert refusal(service, ns, key, **SHARED).contention.waiters_ahead == 1
    late = start(pool, service, ns, key, **SHARED)
    release(service, reader)
    written = writer.result(BOUND)
    assert not late.done()
    release(service, written)
    assert late.result(BOUND).token > written.token


def test_readers_behind_a_writer_are_let_in_together(service, ns, key, pool):
    writer = take(service, ns, key)
    readers = [start(pool, service, ns, key, **SHARED) for _ in range(5)]
    last = start(pool, service, ns, key)
    behind = start(pool, service, ns, key, **SHARED)
    release(service, writer)
    leases = [reader.result(BOUND) for reader in readers]
    assert get(service, ns, key).holder_count == 5
    assert not last.done() and not behind.done()
    release(service, *leases)
    release(service, last.result(BOUND))
    behind.result(BOUND)


def test_a_writer_among_readers_that_come_and_go_waits_for_those_before_it_alone(service, ns, key, pool):
    readers = [share(service, ns, key) for _ in range(100)]
    writer = start(pool, service, ns, key)
    late = [pool.submit(share, service, ns, key, wait=600) for _ in range(20)]
    for reader in readers:
        assert not writer.done()
        release(service, reader)
    written = writer.result(BOUND)
    assert not any(call.done() for call in late)
    release(service, written)
    assert all(call.result(BOUND).token > written.token for call in late)


def test_a_shared_lease_is_renewed_and_lost_by_itself(service, ns, key):
    lives, dies = share(service, ns, key), share(service, ns, key, seconds=1)
    wait_until(lambda: harness.heartbeat(service.client, dies).outcome == pb.OUTCOME_LOST if get(service, ns, key).holder_count == 1
               else False, BOUND, "the one that is not renewed to end")
    assert harness.heartbeat(service.client, lives).outcome == pb.OUTCOME_OK
    assert [holder.token for holder in get(service, ns, key).holders] == [lives.token]


def test_a_refusal_names_the_oldest_holders(service, ns, key):
    leases = [share(service, ns, key, owner=f"reader {n}") for n in range(12)]

    def stream(call):
        assert call.next() is None
        return harness.Failure(call.error)

    hold = pb.HoldRequest(acquire=acquire_request(ns, key, 60))
    for held, reason in (
        (refusal(service, ns, key), "LEASE_HELD"),
        (refusal(service, ns, key, wait=1), "WAIT_TIMEOUT"),
        (stream(Stream(service.client.lease.Hold, hold)), "LEASE_HELD"),
    ):
        told = held.contention
        assert held.reason == reason and told.holder_count == 12 and told.holder.token == leases[0].token
        assert [holder.token for holder in told.holders] == [lease.token for lease in leases[:10]]
        assert told.holders[9].owner == "reader 9" and not told.holders[9].lease_key
    with fails() as failure:
        service.client.lease.AcquireAll(pb.AcquireAllRequest(
            items=[pb.AcquireItem(scope=scope(ns, name)) for name in ("a", key)], duration=duration(60)), timeout=BOUND)
    assert [holder.token for holder in failure.value.contention.holders] == [lease.token for lease in leases[:10]]


# --- a capacity ---


def test_a_semaphore_grants_what_fits_and_gives_the_lowest_slots(service, ns, key):
    assert set_capacity(service, ns, 5).capacity.value == 5
    first, second, third = share(service, ns, key, 2), share(service, ns, key), share(service, ns, key, 2)
    assert [list(lease.slots) for lease in (first, second, third)] == [[1, 2], [3], [4, 5]]
    held = refusal(service, ns, key, **SHARED)
    assert held.contention.units_free.value == 0 and held.contention.holder_count == 3
    release(service, second)
    assert refusal(service, ns, key, units=2, **SHARED).contention.units_free.value == 1
    again = share(service, ns, key)
    assert list(again.slots) == [3]
    release(service, first, third, again)
    take(service, ns, key)
    assert get(service, ns, key).contention.units_free.value == 0


def test_no_small_request_overtakes_a_large_one(service, ns, key, pool):
    set_capacity(service, ns, 3)
    small = [share(service, ns, key) for _ in range(3)]
    large = start(pool, service, ns, key, units=3, **SHARED)
    behind = start(pool, service, ns, key, **SHARED)
    release(service, small[0])
    assert refusal(service, ns, key, **SHARED).contention.waiters_ahead == 2
    release(service, small[1], small[2])
    lease = large.result(BOUND)
    assert list(lease.slots) == [1, 2, 3] and not behind.done()
    release(service, lease)
    assert list(behind.result(BOUND).slots) == [1]


def test_many_users_of_few_units_each_get_their_turn(service, ns, key, pool):
    set_capacity(service, ns, 5)
    lock, inside, most = threading.Lock(), set(), []

    def use(_):
        lease = share(service, ns, key, wait=600)
        with lock:
            assert inside.isdisjoint(lease.slots), "a slot has one user"
            inside.update(lease.slots)
            most.append(len(inside))
        with lock:
            inside.difference_update(lease.slots)
        release(service, lease)

    list(pool.map(use, range(150)))
    assert len(most) == 150 and max(most) <= 5
    assert waiters(service, key) == 0


def test_more_than_the_capacity_is_refused(service, ns, key):
    set_capacity(service, ns, 5)
    share(service, ns, key, 5)
    invalid("units", share, service, ns, key, 6)


def test_a_lowered_capacity_drains_and_answers_who_can_never_fit(service, ns, key, pool):
    set_capacity(service, ns, 4)
    first, second = share(service, ns, key, 2), share(service, ns, key, 2)
    large = start(pool, service, ns, key, units=3, **SHARED)
    behind = start(pool, service, ns, key, **SHARED)
    set_capacity(service, ns, 2)
    assert get(service, ns, key).holder_count == 2
    release(service, first)
    invalid("units", large.result, BOUND)
    assert not behind.done() and harness.heartbeat(service.client, second).outcome == pb.OUTCOME_OK
    release(service, second)
    assert list(behind.result(BOUND).slots) == [1]


def test_a_raised_capacity_lets_the_next_in(service, ns, key, pool):
    set_capacity(service, ns, 1)
    share(service, ns, key)
    calls = [start(pool, service, ns, key, **SHARED) for _ in range(3)]
    set_capacity(service, ns, 3)
    assert sorted(list(call.result(BOUND).slots)[0] for call in calls[:2]) == [2, 3]
    assert not calls[2].done()
    set_capacity(service, ns, 4)
    calls[2].result(BOUND)


@pytest.mark.parametrize("capacity", [0, 1000001, -1])
def test_bounds_of_the_capacity(service, ns, capacity):
    invalid("policy.capacity", set_capacity, service, ns, capacity)


# --- repeats, bounds ---


def test_a_repeat_renews_in_the_same_mode_alone(service, ns, key):
    lease = share(service, ns, key, 2)
    again = share(service, ns, key, 2, lease_key=lease.lease_key)
    assert again.token == lease.token and again.heartbeats == 1
    invalid("units", share, service, ns, key, 1, lease_key=lease.lease_key)
    invalid("mode", take, service, ns, key, lease_key=lease.lease_key)
    assert harness.heartbeat(service.client, lease).outcome == pb.OUTCOME_OK
    other = take(service, ns, key + "-exclusive")
    invalid("mode", share, service, ns, key + "-exclusive", lease_key=other.lease_key)


def test_a_repeat_of_a_waiter_in_another_mode_is_refused(service, ns, key, pool):
    writer = take(service, ns, key)
    lease_key = str(uuid.uuid4())
    waiter = start(pool, service, ns, key, lease_key=lease_key, **SHARED)
    invalid("mode", take, service, ns, key, lease_key=lease_key, wait=600)
    release(service, writer)
    assert waiter.result(BOUND).mode == pb.MODE_SHARED


def test_a_release_is_remembered(service, ns, key):
    lease, other = share(service, ns, key), share(service, ns, key)
    release(service, lease)
    result = service.client.lease.Release(release_request(lease)).results[0]
    assert (result.outcome, result.end_reason) == (pb.OUTCOME_LOST, pb.END_REASON_RELEASED)
    assert refusal(service, ns, key, lease_key=lease.lease_key, **SHARED).reason == "LEASE_ENDED"
    release(service, other)


@pytest.mark.parametrize("field, fields", [
    ("units", {"units": 1}),
    ("units", {"units": 1000001, **SHARED}),
    ("units", {"units": -1, **SHARED}),
    ("at_least", {"at_least": duration(1), **SHARED}),
    ("mode", {"mode": 3}),
])
def test_bounds_of_a_request(service, ns, key, field, fields):
    invalid(field, take, service, ns, key, **fields)


# --- downgrade ---


def test_a_downgrade_lets_the_readers_behind_it_in(service, ns, key, pool):
    writer = take(service, ns, key)
    readers = [start(pool, service, ns, key, **SHARED) for _ in range(3)]
    last = start(pool, service, ns, key)
    lease = downgrade(service, writer)
    assert (lease.mode, lease.units, lease.lease_key) == (pb.MODE_SHARED, 1, writer.lease_key) and lease.token > writer.token
    assert lease.acquired_at == writer.acquired_at
    read = [reader.result(BOUND) for reader in readers]
    assert all(reader.token > lease.token for reader in read) and not last.done()
    assert harness.heartbeat(service.client, lease).outcome == pb.OUTCOME_OK
    release(service, lease, *read)
    last.result(BOUND)


def test_a_repeated_downgrade_answers_the_same(service, ns, key):
    set_capacity(service, ns, 5)
    lease = downgrade(service, take(service, ns, key), 3)
    assert list(lease.slots) == [1, 2, 3]
    assert downgrade(service, lease, 3).token == lease.token
    smaller = downgrade(service, lease, 1)
    assert (smaller.units, list(smaller.slots)) == (1, [1])
    invalid("units", downgrade, service, lease, 2)
    invalid("units", downgrade, service, lease, 6)
    assert list(share(service, ns, key, 4).slots) == [2, 3, 4, 5]


def test_a_downgrade_of_what_is_not_held_is_not_found(service, ns, key):
    lease = take(service, ns, key)
    release(service, lease)
    with fails() as failure:
        downgrade(service, lease)
    assert failure.value.code == grpc.StatusCode.NOT_FOUND and failure.value.reason == "NOT_HELD"
    assert "it was released" in failure.value.message


def test_the_heartbeat_hook_may_veto_a_downgrade(service, ns, key):
    lease, veto = take(service, ns, key), f"veto_{key[2:]}(leasehold.lease_event)"
    service.psql(f"""
        create function {veto} returns void language plpgsql as $f$ begin raise exception 'not now'; end $f$;
        alter function {veto} owner to leasehold_owner;
        select from leasehold.add_hook('{ns}', 'heartbeat', '{veto}')""")
    with fails() as failure:
        downgrade(service, lease)
    assert failure.value.reason == "HOOK_REJECTED" and "not now" in failure.value.message
    assert get(service, ns, key).lease.mode == pb.MODE_EXCLUSIVE
    service.psql(f"select from leasehold.remove_hook('{ns}', 'heartbeat', '{veto}')")
    wait_until(lambda: harness.heartbeat(service.client, lease).outcome == pb.OUTCOME_OK, BOUND, "the hook to be gone")
    assert downgrade(service, lease).mode == pb.MODE_SHARED


def test_the_holders_of_one_scope_are_reaped_together_through_their_hook(service, ns, key):
    """The database claims all that are due; one that the daemon forgot would come again when its claim is over."""
    hook = f"count_{key[2:]}"
    service.psql(f"""
        create table {hook} (token bigint);
        create function {hook}(e leasehold.lease_event) returns void language sql security definer set search_path = public as 'insert into {hook} values (e.token)';
        select leasehold.set_policy('{ns}', expiry => 'reap', grace => '0', hook_timeout => '1 min');
        select from leasehold.add_hook('{ns}', 'reap', 'public.{hook}(leasehold.lease_event)')""")
    leases = [share(service, ns, key, seconds=1) for _ in range(20)]
    wait_until(lambda: service.psql(f"select count(*) from {hook}") == "20", BOUND, "20 reaps")
    assert service.psql(f"select count(distinct token) from {hook}") == "20"
    assert harness.heartbeat(service.client, leases[0]).outcome == pb.OUTCOME_LOST


# --- what is told of several holders ---


def test_get_lease_lists_up_to_100_holders_the_oldest_first(service, ns, key):
    leases = [share(service, ns, key, owner=f"reader-{i}") for i in range(103)]
    answer = get(service, ns, key)
    assert answer.holder_count == 103 and answer.lease.token == leases[0].token
    assert [holder.token for holder in answer.holders] == [lease.token for lease in leases[:100]]
    assert all(holder.lease_key == "" for holder in answer.holders)
    assert [holder.owner for holder in answer.contention.holders] == [f"reader-{i}" for i in range(10)]


def test_list_leases_has_a_row_for_each_holder_over_many_pages(service, ns, key):
    before = take(service, ns, "a-" + key)
    leases = [share(service, ns, "b-" + key) for _ in range(25)]
    after = share(service, ns, "c-" + key)
    listed, page = [], ""
    while True:
        answer = service.client.lease.ListLeases(pb.ListLeasesRequest(namespace=ns.split("."), page_size=10, page_token=page))
        listed += [lease.token for lease in answer.leases]
        page = answer.next_page_token
        if not page:
            break
    assert listed == [lease.token for lease in (before, *leases, after)]


def test_a_watch_tells_each_holder_and_a_downgrade(service, ns, key):
    first = share(service, ns, key)
    other = share(service, ns, key + "x")
    watch = Stream(service.client.lease.WatchLeases,
                   unary=pb.WatchLeasesRequest(namespace=ns.split("."), key=key, include_initial=True))
    event = pb.LeaseEvent
    assert (watch.next().lease.token, watch.next().type) == (first.token, event.TYPE_SYNCED)
    release(service, other)
    second = share(service, ns, key, 2)
    told = watch.next()
    assert (told.type, told.lease.token, told.lease.mode, told.lease.units) == (event.TYPE_ACQUIRED, second.token, pb.MODE_SHARED, 2)
    release(service, first)
    assert (watch.next().lease.token, watch.seen[-1].type) == (first.token, event.TYPE_RELEASED)
    release(service, second)
    assert watch.next().type == event.TYPE_RELEASED
    exclusive = take(service, ns, key)
    assert watch.next().type == event.TYPE_ACQUIRED
    lease = downgrade(service, exclusive)
    told = watch.next()
    assert (told.type, told.lease.token, told.lease.mode) == (event.TYPE_DOWNGRADED, lease.token, pb.MODE_SHARED)
    watch.close()


def test_a_stream_that_waits_hears_of_several_holders(service, ns, key):
    set_capacity(service, ns, 3)
    leases = [share(service, ns, key), share(service, ns, key, 2)]
    stream = Stream(service.client.lease.AcquireStream, unary=acquire_request(ns, key, wait=600, units=1, **SHARED))
    queued = stream.until(queued_event).queued
    assert (queued.holder_count, queued.units_free.value, queued.holder.token) == (2, 0, leases[0].token)
    release(service, leases[1])
    assert list(stream.until(lambda event: event.WhichOneof("event") == "granted").granted.slots) == [2]
    stream.close()


def test_a_hold_keeps_its_slots(service, ns, key):
    set_capacity(service, ns, 3)
    share(service, ns, key)
    hold = Stream(service.client.lease.Hold, pb.HoldRequest(acquire=acquire_request(ns, key, 6, units=2, **SHARED), by_ping=True))
    assert list(hold.until(lambda event: event.WhichOneof("event") == "granted").granted.slots) == [2, 3]
    renewed = hold.until(lambda event: event.WhichOneof("event") == "renewed").renewed
    assert (renewed.mode, list(renewed.slots)) == (pb.MODE_SHARED, [2, 3])
    hold.close()


def test_a_hold_tells_its_lease_as_a_downgrade_left_it(service, ns, key):
    set_capacity(service, ns, 3)
    hold = Stream(service.client.lease.Hold, pb.HoldRequest(acquire=acquire_request(ns, key, 3600)))
    granted = hold.until(lambda event: event.WhichOneof("event") == "granted").granted
    shared = downgrade(service, granted, 2)
    renewed = hold.until(lambda event: event.WhichOneof("event") == "renewed").renewed
    assert shared.token > granted.token and renewed.token == shared.token
    assert (renewed.mode, renewed.units, list(renewed.slots)) == (pb.MODE_SHARED, 2, [1, 2])
    set_capacity(service, ns, 1)
    assert downgrade(service, granted, 2).token == shared.token  # a repeat, though it would not be granted now
    hold.close()


# --- force-release ---


def test_force_release_of_several_needs_a_token_or_all(service, ns, key):
    leases = [share(service, ns, key) for _ in range(3)]
    request = pb.ForceReleaseRequest(scope=scope(ns, key), reason="a test")
    invalid("token", service.client.admin.ForceRelease, request)
    request.token = leases[1].token
    answer = service.client.admin.ForceRelease(request)
    assert answer.lease.token == leases[1].token and len(answer.leases) == 1
    lost = harness.heartbeat(service.client, leases[1])
    assert (lost.outcome, lost.end_reason) == (pb.OUTCOME_LOST, pb.END_REASON_FORCED)
    assert harness.heartbeat(service.client, leases[0]).outcome == pb.OUTCOME_OK
    request.all = True
    invalid("all", service.client.admin.ForceRelease, request)
    request.token = 0
    answer = service.client.admin.ForceRelease(request)
    assert [lease.token for lease in answer.leases] == [leases[0].token, leases[2].token]
    assert answer.lease.token == leases[0].token
    take(service, ns, key)


def test_force_release_of_all_lets_the_writer_in(service, ns, key, pool):
    for _ in range(3):
        share(service, ns, key)
    writer = start(pool, service, ns, key)
    service.client.admin.ForceRelease(pb.ForceReleaseRequest(scope=scope(ns, key), reason="a test", all=True))
    writer.result(BOUND)


# --- several daemons ---


@pytest.fixture
def second(service, cluster):
    daemon = Daemon(database=cluster.url(service.database))
    client = Client(daemon.target)
    yield client
    client.close()
    daemon.stop()


def test_two_daemons_grant_first_come_first_served(service, second, ns, key, pool):
    set_capacity(service, ns, 2)
    held = [share(service, ns, key), share(service, ns, key, client=second)]
    order = [start(pool, service, ns, key, client=client, **SHARED) for client in (second, service.client, second, service.client)]
    writer = start(pool, service, ns, key, client=second)
    behind = start(pool, service, ns, key, **SHARED)
    release(service, *held)
    first = [call.result(BOUND) for call in order[:2]]
    assert not order[2].done() and not order[3].done()
    release(service, *first)
    release(service, *(call.result(BOUND) for call in order[2:]))
    written = writer.result(BOUND)
    assert not behind.done()
    release(service, written)
    behind.result(BOUND)


@pytest.mark.parametrize("where", ["at another daemon", "in SQL"])
def test_a_hold_hears_of_a_downgrade_elsewhere_at_its_next_renewal(service, second, ns, key, where):
    set_capacity(service, ns, 4)
    hold = Stream(second.lease.Hold, pb.HoldRequest(acquire=acquire_request(ns, key, 9), by_ping=True))
    granted = hold.until(lambda event: event.WhichOneof("event") == "granted").granted

    def elsewhere(units):
        if where == "in SQL":
            return int(service.psql(f"select token from leasehold.downgrade('{ns}', '{key}', '{granted.lease_key}', {units})"))
        return downgrade(service, granted, units).token

    def facts(event):
        lease = event.renewed
        return lease.token, lease.mode, lease.units, list(lease.slots)

    shared = elsewhere(3)
    assert shared > granted.token
    hold.until(lambda event: facts(event) == (shared, pb.MODE_SHARED, 3, [1, 2, 3]))
    elsewhere(1)
    hold.until(lambda event: facts(event) == (shared, pb.MODE_SHARED, 1, [1]))
    assert list(share(service, ns, key, 3).slots) == [2, 3, 4]
    hold.close()


def test_a_heartbeat_says_token_and_units_of_a_shared_lease(service, ns, key):
    lease = take(service, ns, key)
    results = [harness.heartbeat(service.client, lease)]
    shared = downgrade(service, lease, 2)
    results.append(harness.heartbeat(service.client, lease))
    set_capacity(service, ns, 3)
    numbered = share(service, ns, key)
    results.append(harness.heartbeat(service.client, numbered))
    assert [(result.token, result.units, result.has_slots) for result in results] == [
        (0, 0, False), (shared.token, 2, False), (numbered.token, 1, True)]


def test_a_daemon_that_starts_again_finds_holders_and_waiters(cluster, ns, key):
    service = harness.Service(cluster)
    wait_until(lambda: harness.readyz(service.daemon)[0] == 200, BOUND, "the daemon to be ready")
    set_capacity(service, ns, 2)
    leases = [share(service, ns, key), share(service, ns, key)]
    lease_key = str(uuid.uuid4())
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiter = start(pool, service, ns, key, lease_key=lease_key, **SHARED)
        assert service.daemon.stop() == 0
        with fails() as failure:
            waiter.result(BOUND)
        assert failure.value.reason == "SHUTTING_DOWN"
        service.daemon.start()
        wait_until(lambda: harness.readyz(service.daemon)[0] == 200, BOUND, "the daemon to be ready")
        client = Client(service.daemon.target)
        again = pool.submit(take, service, ns, key, client=client, wait=600, lease_key=lease_key, **SHARED)
        assert all(harness.heartbeat(client, lease).outcome == pb.OUTCOME_OK for lease in leases)
        client.lease.Release(release_request(leases[0]))
        assert list(again.result(BOUND).slots) == [1]
        client.close()
    service.close()
