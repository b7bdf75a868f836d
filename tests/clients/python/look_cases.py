"""The cases about what is asked without holding a lease."""
import datetime

import leasehold
import pytest
from cases import LONG, NAMESPACE, fresh, in_background
from harness import wait_until


def explain_says_who_holds(place):
    key, client = fresh(), place.client()
    never = client.explain(NAMESPACE, key)
    assert (never.state, never.holder, never.waiters, never.holders) == ("free", None, 0, 0) and "acquire it" in never.advice
    with client.lease(NAMESPACE, key, owner="worker-1", duration=LONG) as lease:
        waiting = in_background(lambda: place.client().lease(NAMESPACE, key, owner="worker-2", wait=60).acquire())
        wait_until(lambda: place.waiting(key) == 1)
        held = client.explain(NAMESPACE, key)
        assert (held.state, held.holder, held.token, held.liveness, held.mode) == ("held", "worker-1", lease.token, "alive", "exclusive")
        assert (held.waiters, held.holders, held.heartbeats) == (1, 1, 0)
        assert held.first_waiter == "worker-2" if place.transport == "grpc" else "postgres" in held.first_waiter
        assert held.since <= held.last_heartbeat_at < held.expires_at and held.since.tzinfo is not None and isinstance(held.policy, dict)
        assert "worker-1" in held.advice and held.principal
    waiting().release()
    with client.lease(NAMESPACE, key, shared=True, units=3):
        shared = client.explain(NAMESPACE, key)
        assert (shared.state, shared.mode, shared.units, shared.holders) == ("shared", "shared", 3, 1)
    after = client.explain(NAMESPACE, key)
    assert after.state == "free" and after.since >= held.since and after.token is None
    with client.lease(NAMESPACE, key, at_least=60):
        pass
    assert client.explain(NAMESPACE, key).rests_until > datetime.datetime.now(datetime.timezone.utc)
    with pytest.raises(ValueError, match="^key must be 1 to 1024 bytes, has 0$"):
        client.explain(NAMESPACE, "")


def watch_begins_with_what_is_held(place):
    key, other, client = fresh(), fresh(), place.client()
    lease = client.lease(NAMESPACE, key, owner="worker-1", duration=LONG).acquire()
    events = client.watch(NAMESPACE, key)
    first, synced = next(events), next(events)
    assert (first.kind, first.namespace, first.key, first.token, first.owner, synced.kind) == ("held", NAMESPACE, key, lease.token, "worker-1", "synced")
    client.lease(NAMESPACE, other).acquire().release()
    lease.release({"rows": 3})
    with pytest.raises(RuntimeError), client.lease(NAMESPACE, key, shared=True, units=2):
        raise RuntimeError("the disk is full")
    client.lease(NAMESPACE, key).acquire()
    place.force(key)
    told = [next(events) for _ in range(5)]
    assert [each.kind for each in told] == ["released", "acquired", "failed", "acquired", "forced"]
    assert {each.key for each in told} == {key}
    assert (told[0].result, told[2].error, told[2].mode, told[2].units) == ('{"rows": 3}', "RuntimeError: the disk is full", "shared", 2)
    assert told[4].reason == "a test"
    events.close()
    whole = client.watch()
    assert next(whole).kind in ("held", "synced")
    whole.close()
    with pytest.raises(ValueError, match="^key must be None for children"):
        next(client.watch(NAMESPACE, key, children=True))
    with pytest.raises(ValueError, match="^watch needs a server"):
        next(place.sql_client().watch(NAMESPACE))


def watch_goes_on_after_a_restart(place):
    key, daemon = fresh(), place.daemon()
    lease = place.client().lease(NAMESPACE, key, duration=LONG).acquire()
    events = place.client(daemon.target).watch(NAMESPACE, key)
    assert [next(events).kind, next(events).kind] == ["held", "synced"]
    daemon.kill()
    daemon.start()
    assert [next(events).kind, next(events).kind] == ["held", "synced"]
    lease.release()
    assert next(events).kind == "released"
    events.close()
