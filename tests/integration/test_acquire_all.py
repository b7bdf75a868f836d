"""AcquireAll over gRPC: all or none, one place in the queue of each scope, and what becomes of it when somebody goes."""
import collections
import concurrent.futures
import random
import re
import signal
import urllib.request
import uuid

import grpc
import pytest

import harness
from harness import Client, Daemon, duration, fails, pb, release_request, scope, wait_until
from streams import BOUND
from test_shared import invalid, release, set_capacity, take


@pytest.fixture
def pool():
    with concurrent.futures.ThreadPoolExecutor(max_workers=60) as executor:
        yield executor


@pytest.fixture
def other(service, cluster):
    """A second daemon on the same database."""
    daemon = Daemon(database=cluster.url(service.database))
    yield daemon
    daemon.destroy()


@pytest.fixture
def client(other):
    """A client of the second daemon."""
    opened = Client(other.target)
    yield opened
    opened.close()


def item(ns, key, **fields):
    return pb.AcquireItem(scope=scope(ns, key), **fields)


def request(*items, seconds=60, wait=None, **fields):
    if wait is not None:
        fields["wait"] = duration(wait)
    return pb.AcquireAllRequest(items=items, duration=duration(seconds), **fields)


def take_all(service, ns, *keys, client=None, timeout=BOUND, **fields):
    """An item is a key, or what item() made."""
    items = [key if isinstance(key, pb.AcquireItem) else item(ns, key) for key in keys]
    return list((client or service.client).lease.AcquireAll(request(*items, **fields), timeout=timeout).leases)


def refusal(service, ns, *keys, **fields):
    with fails() as failure:
        take_all(service, ns, *keys, **fields)
    return failure.value


def is_free(service, ns, key):
    return service.psql(f"select count(*) from leasehold.lease where namespace = '{ns}' and key = '{key}'") == "0"


def places(service, ns):
    """The keys with a waiter, and its ticket."""
    rows = service.psql(f"select key || ' ' || ticket from leasehold.waiter where namespace = '{ns}' order by ticket, key")
    return [tuple(row.split(" ")) for row in rows.splitlines()]


def start_all(pool, service, ns, *keys, count=None, **fields):
    """One that waits, once it stands in the queue of each."""
    before = len(places(service, ns))
    call = pool.submit(take_all, service, ns, *keys, wait=600, **fields)
    wait_until(lambda: len(places(service, ns)) == before + len(keys), BOUND, "its places in the queues")
    return call


def start_one(pool, service, ns, key, **fields):
    before = len(places(service, ns))
    call = pool.submit(take, service, ns, key, wait=600, **fields)
    wait_until(lambda: len(places(service, ns)) == before + 1, BOUND, "its place in the queue")
    return call


# --- all or none ---


def test_all_are_granted_in_the_order_of_the_request_each_with_a_token(service, ns):
    leases = take_all(service, ns, "c", "a", "b", owner="bank", labels={"job": "7"})
    assert [lease.scope.key for lease in leases] == ["c", "a", "b"]
    assert len({lease.lease_key for lease in leases}) == 1 and len({lease.token for lease in leases}) == 3
    assert {(lease.owner, lease.labels["job"], lease.mode) for lease in leases} == {("bank", "7", pb.MODE_EXCLUSIVE)}
    assert all(harness.heartbeat(service.client, lease).outcome == pb.OUTCOME_OK for lease in leases)
    release(service, leases[1])
    assert is_free(service, ns, "a") and not is_free(service, ns, "b")
    release(service, leases[0], leases[2])


def test_none_is_granted_where_one_is_held(service, ns):
    holder = take(service, ns, "b", owner="somebody")
    held = refusal(service, ns, "a", "b", "c")
    assert held.reason == "LEASE_HELD" and held.contention.holder.owner == "somebody"
    assert held.metadata["key"] == "b"
    assert is_free(service, ns, "a") and is_free(service, ns, "c") and places(service, ns) == []
    release(service, holder)
    release(service, *take_all(service, ns, "a", "b", "c"))


@pytest.mark.parametrize("count", [1, 100])
def test_from_one_item_to_a_hundred(service, ns, count):
    keys = [f"k{number}" for number in range(count)]
    random.shuffle(keys)
    leases = take_all(service, ns, *keys)
    assert [lease.scope.key for lease in leases] == keys
    release(service, *leases)


def test_shared_items_get_their_slots(service, ns):
    set_capacity(service, ns, 4)
    readers = item(ns, "gpu", mode=pb.MODE_SHARED, units=2)
    first = take_all(service, ns, "x", readers)
    second = take_all(service, ns, "y", readers)
    assert [list(leases[1].slots) for leases in (first, second)] == [[1, 2], [3, 4]]
    assert first[1].mode == pb.MODE_SHARED and first[1].units == 2
    held = refusal(service, ns, "z", readers)
    assert held.reason == "LEASE_HELD" and held.contention.units_free.value == 0 and is_free(service, ns, "z")
    release(service, *first)
    assert list(take_all(service, ns, "z", readers)[1].slots) == [1, 2]


def test_the_minimum_hold_is_each_items_own(service, ns):
    leases = take_all(service, ns, item(ns, "a", at_least=duration(600)), item(ns, "b"))
    release(service, *leases)
    rests = refusal(service, ns, "b", "a")
    assert rests.reason == "LEASE_HELD" and rests.contention.rests.seconds > 500 and is_free(service, ns, "b")
    release(service, take(service, ns, "b"))


# --- bounds and repeats ---


@pytest.mark.parametrize("field, items", [
    ("items", []),
    ("items", [f"k{number}" for number in range(101)]),
    ("items[1].scope", ["a", "a"]),
    ("items[2].units", ["a", "b", {"units": 1}]),
    ("items[1].units", ["a", {"mode": pb.MODE_SHARED, "units": 1000001}]),
    ("items[1].mode", ["a", {"mode": 3}]),
    ("items[1].at_least", ["a", {"mode": pb.MODE_SHARED, "at_least": duration(1)}]),
    ("items[0].scope.key", ["", "b"]),
])
def test_bounds_of_the_items(service, ns, field, items):
    made = [item(ns, "made", **each) if isinstance(each, dict) else each for each in items]
    failure = invalid(field, take_all, service, ns, *made)
    assert failure.code == grpc.StatusCode.INVALID_ARGUMENT


def test_a_scope_without_a_name_and_a_wait_beside_wait_forever_are_refused(service, ns):
    invalid("items[1].scope", take_all, service, ns, "a", pb.AcquireItem())
    invalid("wait", take_all, service, ns, "a", "b", wait=1, wait_forever=True)
    invalid("duration", take_all, service, ns, "a", "b", seconds=0)


def test_what_the_database_refuses_names_the_item(service, ns):
    set_capacity(service, ns, 2)
    invalid("items[1].units", take_all, service, ns, "a", item(ns, "b", mode=pb.MODE_SHARED, units=3))
    service.psql(f"select leasehold.set_policy('{ns}.long', min_duration => '1 hour')")
    invalid("duration", take_all, service, ns, "a", item(ns + ".long", "b"))


def test_a_repeat_answers_the_same_leases(service, ns):
    lease_key = str(uuid.uuid4())
    first = take_all(service, ns, "b", "a", lease_key=lease_key)
    again = take_all(service, ns, "b", "a", lease_key=lease_key)
    assert [lease.token for lease in again] == [lease.token for lease in first]
    assert [lease.scope.key for lease in take_all(service, ns, "a", "b", lease_key=lease_key)] == ["a", "b"]
    assert refusal(service, ns, "a", "c", lease_key=lease_key).reason == "INVALID_ARGUMENT"
    assert refusal(service, ns, "a", item(ns, "b", mode=pb.MODE_SHARED), lease_key=lease_key).reason == "INVALID_ARGUMENT"
    assert is_free(service, ns, "c")
    release(service, *first)
    assert refusal(service, ns, "a", "b", lease_key=lease_key).reason == "LEASE_ENDED"


def test_a_repeat_that_waits_shares_the_places_and_must_ask_for_the_same(service, ns, pool):
    lease_key = str(uuid.uuid4())
    holder = take(service, ns, "a")
    first = start_all(pool, service, ns, "a", "b", lease_key=lease_key)
    invalid("items", take_all, service, ns, "a", "c", lease_key=lease_key, wait=60)
    invalid("items", take_all, service, ns, "b", "a", lease_key=lease_key, wait=60)
    invalid("mode", take, service, ns, "b", lease_key=lease_key, wait=60)
    second = pool.submit(take_all, service, ns, "a", "b", lease_key=lease_key, wait=600)
    assert refusal(service, ns, "a", "b", lease_key=lease_key).reason == "LEASE_HELD"
    assert len(places(service, ns)) == 2
    release(service, holder)
    assert [lease.token for lease in first.result(BOUND)] == [lease.token for lease in second.result(BOUND)]


# --- waiting ---


def test_while_it_waits_it_holds_nothing_and_stands_in_each_queue(service, ns, pool):
    holder = take(service, ns, "b")
    waiter = start_all(pool, service, ns, "c", "b", "a")
    assert [key for key, _ in places(service, ns)] == ["a", "b", "c"] and len({ticket for _, ticket in places(service, ns)}) == 1
    assert is_free(service, ns, "a") and is_free(service, ns, "c")
    assert refusal(service, ns, "a").contention.waiters_ahead == 1  # whoever stands behind it waits too
    release(service, holder)
    leases = waiter.result(BOUND)
    assert [lease.scope.key for lease in leases] == ["c", "b", "a"] and places(service, ns) == []
    assert all(lease.token > holder.token for lease in leases if lease.scope.key == "b")


def test_it_is_first_come_first_served_among_those_for_one_scope(service, ns, pool):
    holders = {key: take(service, ns, key) for key in "ab"}
    before = start_one(pool, service, ns, "a")
    both = start_all(pool, service, ns, "b", "a")
    behind = {key: start_one(pool, service, ns, key) for key in "ab"}
    release(service, holders["b"])
    release(service, holders["a"])
    first = before.result(BOUND)
    assert not both.done() and not behind["b"].done()
    release(service, first)
    leases = both.result(BOUND)
    assert not behind["a"].done() and not behind["b"].done()
    release(service, *leases)
    tokens = {key: call.result(BOUND).token for key, call in behind.items()}
    assert all(tokens[lease.scope.key] > lease.token for lease in leases)


def test_a_holder_that_dies_is_waited_for_no_longer_than_its_lease(service, ns, pool):
    take(service, ns, "a", seconds=1)
    take(service, ns, "b", seconds=2)
    assert len(take_all(service, ns, "a", "b", wait=600)) == 2


def test_a_wait_that_has_passed_says_who_was_in_the_way_and_leaves_nothing(service, ns):
    holder = take(service, ns, "b", owner="somebody")
    late = refusal(service, ns, "a", "b", wait=0.3)
    assert late.reason == "WAIT_TIMEOUT" and late.contention.holder.owner == "somebody" and late.metadata["key"] == "b"
    wait_until(lambda: places(service, ns) == [], BOUND, "its places to be gone")
    release(service, take(service, ns, "a"), holder)


def test_a_cancelled_one_gives_up_all_its_places(service, ns, pool):
    holder = take(service, ns, "a")
    call = service.client.lease.AcquireAll.future(request(item(ns, "a"), item(ns, "b"), wait=600))
    wait_until(lambda: len(places(service, ns)) == 2, BOUND, "its places in the queues")
    behind = start_one(pool, service, ns, "b")
    call.cancel()
    behind.result(BOUND)
    wait_until(lambda: places(service, ns) == [], BOUND, "its places to be gone")
    release(service, holder)


def test_a_deadline_of_the_client_gives_up_all_its_places(service, ns):
    holder = take(service, ns, "a")
    with pytest.raises(grpc.RpcError):
        take_all(service, ns, "a", "b", wait_forever=True, timeout=0.5)
    wait_until(lambda: places(service, ns) == [], BOUND, "its places to be gone")
    release(service, holder, take(service, ns, "b"))


def test_a_bounded_block_keeps_all_its_places(cluster, ns, pool):
    service = harness.Service(cluster, "--max-block", "300ms")
    try:
        holder, lease_key = take(service, ns, "a"), str(uuid.uuid4())
        blocked = refusal(service, ns, "a", "b", wait_forever=True, lease_key=lease_key)
        assert blocked.reason == "BLOCKING_TIMEOUT" and blocked.metadata["key"] == "a"
        kept = places(service, ns)
        assert len(kept) == 2
        refusal(service, ns, "a", "b", wait_forever=True, lease_key=lease_key)
        assert places(service, ns) == kept
        release(service, holder)

        def again():
            try:
                return take_all(service, ns, "a", "b", wait_forever=True, lease_key=lease_key)
            except grpc.RpcError as error:
                assert harness.Failure(error).reason == "BLOCKING_TIMEOUT"

        assert len(wait_until(again, BOUND, "the grant")) == 2
    finally:
        service.close()


def test_who_comes_back_while_one_of_its_places_cannot_leave_is_answered_in_time(service, ns):
    holder = take(service, ns, "a")
    fields = {"lease_key": str(uuid.uuid4())}
    call = service.client.lease.AcquireAll.future(request(*[item(ns, key) for key in "abc"], wait=600, **fields))
    wait_until(lambda: len(places(service, ns)) == 3, BOUND, "its places in the queues")
    session = service.session()
    session.run("begin")
    session.run(f"select from leasehold.scope where namespace = '{ns}' and key = 'b' for update")
    call.cancel()
    wait_until(lambda: [key for key, _ in places(service, ns)] == ["b"], BOUND, "a and c without it")
    assert refusal(service, ns, "a", "b", "c", wait=1, **fields).reason == "WAIT_TIMEOUT"
    session.run("rollback")
    session.close()
    wait_until(lambda: places(service, ns) == [], BOUND, "nobody in the queues")
    release(service, holder)


def lock_row(service, ns, key):
    session = service.session()
    session.run("begin")
    session.run(f"select from leasehold.scope where namespace = '{ns}' and key = '{key}' for update")
    return session


@pytest.mark.parametrize("locked", ["a", "b", "c"])
def test_a_place_whose_row_is_locked_keeps_no_other_place_standing(service, ns, pool, locked):
    holder = take(service, ns, "a")
    call = service.client.lease.AcquireAll.future(request(*[item(ns, key) for key in "abc"], wait=600))
    wait_until(lambda: len(places(service, ns)) == 3, BOUND, "its places in the queues")
    behind = start_one(pool, service, ns, locked)
    left = places(service, ns)
    session = lock_row(service, ns, locked)
    call.cancel()
    wait_until(lambda: {key for key, _ in places(service, ns)} == {locked}, BOUND, "its other places to be gone")
    leases = [take(service, ns, key) for key in "bc" if key != locked]
    assert places(service, ns) == [place for place in left if place[0] == locked] and not behind.done()
    session.run("rollback")
    session.close()
    release(service, holder)
    release(service, behind.result(BOUND), *leases)
    assert places(service, ns) == []


def test_a_daemon_that_stops_gives_up_each_place_that_it_can(service, other, client, ns, pool):
    holder = take(service, ns, "b")
    waiter = start_all(pool, service, ns, "a", "b", "c", client=client)
    behind = {key: start_one(pool, service, ns, key) for key in "ac"}
    session = lock_row(service, ns, "c")
    other.signal(signal.SIGTERM)
    leases = [behind["a"].result(BOUND)]
    assert not behind["c"].done()
    with pytest.raises(grpc.RpcError):
        waiter.result(BOUND)
    session.run("rollback")
    session.close()
    release(service, holder, behind["c"].result(BOUND), *leases)


# --- many ---


def test_many_clients_that_lock_random_triples_in_any_order_all_get_their_turn(service, ns, pool):
    keys, inside, rounds = [f"k{number}" for number in range(6)], collections.Counter(), 5

    def work(seed):
        chance = random.Random(seed)
        for _ in range(rounds):
            mine = chance.sample(keys, 3)
            leases = take_all(service, ns, *mine, wait=600, timeout=300)
            inside.update(mine)
            assert all(inside[key] == 1 for key in mine), "two have one scope"
            inside.subtract(mine)
            release(service, *leases)
        return rounds

    assert sum(pool.map(work, range(20))) == 20 * rounds
    assert places(service, ns) == []


def test_two_daemons_serve_one_queue(service, other, client, ns, pool):
    holder = take(service, ns, "b")
    first = start_all(pool, service, ns, "a", "b", client=client)
    second = start_all(pool, service, ns, "b", "a")
    third = start_one(pool, service, ns, "a", client=client)
    release(service, holder)
    leases = first.result(BOUND)
    assert not second.done() and not third.done()
    release(service, *leases)
    leases = second.result(BOUND)
    assert not third.done()
    release(service, *leases)
    release(service, third.result(BOUND))


ASKED = re.compile(r'^leasehold_batch_duration_seconds_count\{.*kind="acquire_all".*\} (\d+)$', re.M)


def asked(*daemons):
    """How often they have asked the database for several scopes."""
    found = 0
    for daemon in daemons:
        with urllib.request.urlopen(f"http://127.0.0.1:{daemon.admin_port}/metrics", timeout=30) as answer:
            found += int(ASKED.search(answer.read().decode())[1])
    return found


def test_two_daemons_ask_for_one_that_waits_a_few_times_only(service, other, client, ns, pool):
    keys, rounds, count = [f"k{number}" for number in range(12)], 4, 20
    before = asked(service.daemon, other)

    def work(seed):
        chance, mine = random.Random(seed), [service.client, client][seed % 2]
        for _ in range(rounds):
            leases = take_all(service, ns, *chance.sample(keys, 3), client=mine, wait=600, timeout=300)
            mine.lease.Release(release_request(*leases), timeout=BOUND)
        return rounds

    assert sum(pool.map(work, range(count))) == count * rounds
    # To join, once for each scope that was in its way, where a row was busy, and to be granted.
    assert asked(service.daemon, other) - before < 12 * count * rounds


def test_a_daemon_that_is_killed_while_one_waits_leaves_the_scopes_to_others(service, other, client, ns, pool):
    holder = take(service, ns, "b")
    lost = start_all(pool, service, ns, "a", "b", client=client)
    behind = start_all(pool, service, ns, "b", "a")
    other.kill()
    with pytest.raises(grpc.RpcError):
        lost.result(BOUND)
    release(service, holder)
    assert len(behind.result(BOUND)) == 2


def test_a_daemon_that_stops_sends_the_waiter_elsewhere_with_its_places(service, other, client, ns, pool):
    lease_key = str(uuid.uuid4())
    holder = take(service, ns, "b")
    waiter = start_all(pool, service, ns, "a", "b", client=client, lease_key=lease_key)
    kept = places(service, ns)
    assert other.stop() == 0
    with pytest.raises(grpc.RpcError) as error:
        waiter.result(BOUND)
    assert harness.Failure(error.value).reason == "SHUTTING_DOWN"
    again = pool.submit(take_all, service, ns, "a", "b", lease_key=lease_key, wait=600)
    assert places(service, ns) == kept
    release(service, holder)
    assert len(again.result(BOUND)) == 2


def test_it_waits_through_an_outage_of_the_database(own, ns, pool):
    holder = take(own, ns, "b", seconds=600)
    waiter = start_all(pool, own, ns, "a", "b", timeout=300)
    own.cluster.stop("immediate")
    own.cluster.start()
    wait_until(lambda: harness.readyz(own.daemon)[0] == 200, BOUND, "the database to be back")
    wait_until(lambda: len(places(own, ns)) == 2, BOUND, "its places, again")
    release(own, holder)
    assert len(waiter.result(BOUND)) == 2


# --- hooks, quotas, freezes ---


def test_a_hook_that_refuses_one_refuses_all(service, ns, pool):
    veto = f"veto_{uuid.uuid4().hex[:8]}(leasehold.lease_event)"
    service.psql(f"""
        create function {veto} returns void language plpgsql as $f$
        begin
          if ($1).key = 'b' then raise exception 'not b'; end if;
        end $f$;
        alter function {veto} owner to leasehold_owner;
        select from leasehold.add_hook('{ns}', 'acquire', '{veto}')""")
    rejected = refusal(service, ns, "a", "b", "c")
    assert rejected.reason == "HOOK_REJECTED" and "not b" in rejected.message and rejected.metadata["key"] == "b"
    assert all(is_free(service, ns, key) for key in "abc")
    release(service, *take_all(service, ns, "a", "c"))
    holder = take(service, ns, "a")
    waiter = start_all(pool, service, ns, "b", "a")
    behind = start_one(pool, service, ns, "a")
    release(service, holder)
    with pytest.raises(grpc.RpcError) as error:
        waiter.result(BOUND)
    assert harness.Failure(error.value).reason == "HOOK_REJECTED"
    release(service, behind.result(BOUND))
    wait_until(lambda: places(service, ns) == [], BOUND, "its places to be gone")


def test_hooks_of_two_namespaces_run_for_one_request(service, ns):
    hook = f"note_{uuid.uuid4().hex[:8]}"
    service.psql(f"""
        create table {hook} (n serial, key text);
        create function {hook}(e leasehold.lease_event) returns void language sql security definer set search_path = public as
          'insert into {hook} (key) values (e.key)';
        select from leasehold.add_hook('{ns}.one', 'acquire', 'public.{hook}(leasehold.lease_event)');
        select from leasehold.add_hook('{ns}.two', 'acquire', 'public.{hook}(leasehold.lease_event)')""")
    leases = take_all(service, ns, item(ns + ".two", "b"), item(ns, "c"), item(ns + ".one", "a"))
    assert [lease.scope.key for lease in leases] == ["b", "c", "a"]
    assert service.psql(f"select string_agg(key, ',' order by n) from {hook}") == "a,b"
    release(service, *leases)


def test_a_quota_that_does_not_take_all_takes_none(service, ns):
    service.psql(f"select leasehold.set_policy('{ns}', max_leases => 2)")
    assert refusal(service, ns, "a", "b", "c").reason == "QUOTA_EXCEEDED"
    assert all(is_free(service, ns, key) for key in "abc")
    release(service, *take_all(service, ns, "a", "b"))


def test_a_frozen_namespace_of_one_item_refuses_all(service, ns):
    service.psql(f"select leasehold.set_policy('{ns}.cold', frozen => true)")
    frozen = refusal(service, ns, "a", item(ns + ".cold", "b"))
    assert frozen.reason == "NAMESPACE_FROZEN" and frozen.metadata["namespace"] == ns + ".cold" and is_free(service, ns, "a")


def test_a_client_has_no_more_places_than_it_may(cluster, ns):
    service = harness.Service(cluster, "--max-waiters-per-client", "5")
    try:
        holder = take(service, ns, "a")
        calls = [service.client.lease.AcquireAll.future(request(item(ns, "a"), item(ns, "b"), item(ns, "c"), wait=600)) for _ in range(2)]
        refused = wait_until(lambda: next((call for call in calls if call.done()), None), BOUND, "the second to be refused")
        assert harness.Failure(refused.exception()).reason == "OVERLOADED"
        for call in calls:
            call.cancel()
        release(service, holder)
    finally:
        service.close()
