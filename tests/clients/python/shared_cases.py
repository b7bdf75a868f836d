"""The cases about shared leases; cases.py has the others."""
import itertools
import threading
import uuid

import leasehold
import pytest
from cases import NAMESPACE, fresh, in_background
from harness import wait_until


def readers_share_and_a_writer_waits(place):
    key, client = fresh(), place.client()
    first, second = [client.lease(NAMESPACE, key, shared=True, owner=owner).acquire() for owner in ("first", "second")]
    assert place.row(key, "state, units") == "shared|2" and second.token > first.token
    assert [(lease.mode, lease.units, lease.slots, lease.is_held()) for lease in (first, second)] == [("shared", 1, (), True)] * 2
    with pytest.raises(leasehold.Held) as held:
        client.lease(NAMESPACE, key).acquire()
    assert (held.value.holder, held.value.holder_count, held.value.units_free) == ("first", 2, None)
    waiting = in_background(place.client().lease(NAMESPACE, key, wait=60).acquire)
    wait_until(lambda: place.waiting(key) == 1)
    assert first.release()
    assert place.row(key, "state, units") == "shared|1"
    assert second.release()
    writer = waiting()
    assert (writer.mode, writer.units, writer.slots) == ("exclusive", 0, ()) and writer.token > second.token
    with pytest.raises(leasehold.Held) as held:
        client.lease(NAMESPACE, key, shared=True).acquire()
    assert held.value.holder_count == 1
    writer.release()


def units_fit_the_capacity(place):
    key, client, namespace = fresh(), place.client(), f"five{uuid.uuid4().hex[:8]}"
    place.psql(f"select leasehold.set_policy('{namespace}', capacity => 5)")
    first, second = [client.lease(namespace, key, shared=True, units=2).acquire() for _ in range(2)]
    assert [(lease.units, lease.slots) for lease in (first, second)] == [(2, (1, 2)), (2, (3, 4))]
    with pytest.raises(leasehold.Held) as held:
        client.lease(namespace, key, shared=True, units=2).acquire()
    assert (held.value.holder_count, held.value.units_free) == (2, 1)
    first.release()
    with client.lease(namespace, key, shared=True, units=3, wait=60) as third:
        assert third.slots == (1, 2, 5)
        with pytest.raises(leasehold.Held) as held:
            client.lease(namespace, key, shared=True).acquire()
        assert held.value.units_free == 0
    second.release()
    with pytest.raises(leasehold.InvalidArgument, match="units.* 5"):
        client.lease(namespace, key, shared=True, units=6).acquire()
    for units in ({"units": 2}, {"shared": True, "units": 0}):
        with pytest.raises(leasehold.InvalidArgument, match="units"):
            client.lease(namespace, key, **units)


def shared_waiters_are_served_in_order(place):
    key, client, order, go_on = fresh(), place.client(), [], threading.Event()

    def wait(word, shared):
        with client.lease(NAMESPACE, key, wait=60, shared=shared):
            order.append(word)
            if shared:
                go_on.wait(60)

    with client.lease(NAMESPACE, key):
        waiting = []
        for number, word in enumerate(("reader", "reader", "writer", "late reader")):
            waiting.append(in_background(lambda word=word: wait(word, word != "writer")))
            wait_until(lambda number=number: place.waiting(key) == number + 1)
        assert place.psql(f"select string_agg(mode, ' ' order by position) from leasehold.queue where key = '{key}'") == "shared shared exclusive shared"
    wait_until(lambda: place.waiting(key) == 2 and len(order) == 2)
    assert place.row(key, "state, units") == "shared|2"
    go_on.set()
    for each in waiting:
        each()
    assert order == ["reader", "reader", "writer", "late reader"]


def downgrade_lets_readers_in(place):
    key, client = fresh(), place.client()
    url = place.target() if place.transport == "pooler" else place.site.cluster.url(place.database)
    with client.lease(NAMESPACE, key, duration=12) as lease:
        first, lease_key = lease.token, lease.lease_key
        reading = in_background(place.client().lease(NAMESPACE, key, wait=60, shared=True).acquire)
        wait_until(lambda: place.waiting(key) == 1)
        lease.downgrade()
        reader = reading()
        assert (lease.mode, lease.units, lease.lease_key) == ("shared", 1, lease_key) and first < lease.token < reader.token
        lease.downgrade()  # again: the same
        assert place.shares(key) == f"{lease.token}|1\n{reader.token}|1"
        client.guard(lease, url)
        with pytest.raises(leasehold.Held) as held:
            client.lease(NAMESPACE, key).acquire()
        assert held.value.holder_count == 2
        beats = place.beats_of(lease)
        wait_until(lambda: place.beats_of(lease) > beats)
    assert place.shares(key) == f"{reader.token}|1"
    reader.release()
    with pytest.raises(leasehold.LeaseholdError):
        lease.downgrade()


def lost_downgrade_is_repeated(place):
    key, proxy = fresh(), place.proxy()
    lease = place.client(proxy.target).lease(NAMESPACE, key, duration=30).acquire()
    actions = itertools.chain(["drop"], itertools.repeat("pass"))
    proxy.decide = lambda: next(actions)
    lease.downgrade(2)
    assert proxy.actions["drop"] == 1 and (lease.mode, lease.units) == ("shared", 2)
    assert place.shares(key) == f"{lease.token}|2"
    assert lease.release()


def shared_leases_end_one_by_one(place):
    key, client, told = fresh(), place.client(), []
    kept = client.lease(NAMESPACE, key, duration=12, shared=True, on_lost=told.append).acquire()
    ended = client.lease(NAMESPACE, key, duration=12, shared=True, on_lost=lambda reason: told.append("ended")).acquire()
    wait_until(lambda: min(place.beats_of(kept), place.beats_of(ended)) >= 1)
    place.psql(f"select leasehold.force_release('{NAMESPACE}', '{key}', 'a test', {ended.token})")
    wait_until(lambda: told)
    with pytest.raises(leasehold.LeaseLost):
        ended.check()
    with pytest.raises(leasehold.LeaseLost):
        ended.downgrade()
    beats = place.beats_of(kept)
    wait_until(lambda: place.beats_of(kept) > beats or not kept.is_held())
    assert told == ["ended"] and kept.is_held()
    assert kept.release()
