"""The cases about callbacks: of a lease, and of a reap."""
import asyncio

import psycopg
import pytest
from cases import NAMESPACE, fresh
from harness import wait_until
from leasehold.reaping import reap_stale, reap_stale_async


def reap(place, callback, namespaces, **options):
    """With the API of the case."""
    if place.api.name == "threads":
        with psycopg.connect(place.application()) as connection:
            return reap_stale(connection, callback, namespaces=namespaces, **options)

    async def run():
        async with await psycopg.AsyncConnection.connect(place.application()) as connection:
            async def awaited(connection, lease):
                statements = []

                class Link:
                    execute = staticmethod(lambda *call: statements.append(call))

                try:
                    callback(Link, lease)
                finally:
                    for each in statements:
                        await connection.execute(*each)

            return await reap_stale_async(connection, awaited, namespaces=namespaces, **options)

    return asyncio.run(run())


def reaping_calls_back(place):
    namespace, keys = fresh("reap"), [f"job-{n}" for n in range(5)]
    place.psql("create table if not exists reaped (key text, owner text, token bigint)")
    for key in keys:
        place.psql(f"select from leasehold.acquire('{namespace}', '{key}', '30 s', 'worker-{key}')")
    tokens = place.psql(f"select token from leasehold.scope where namespace = '{namespace}' order by key").split()
    place.psql(f"update leasehold.scope set acquired_at = acquired_at - interval '1 h', heartbeat_at = heartbeat_at - interval '1 h', "
               f"deadline = deadline - interval '1 h', check_at = check_at - interval '1 h' where namespace = '{namespace}' and key <> 'job-4'")

    def put_back(connection, lease):
        assert lease.namespace == namespace and lease.owner == f"worker-{lease.key}" and lease.acquired_at < lease.deadline
        connection.execute("insert into reaped values (%s, %s, %s)", [namespace + lease.key, lease.owner, lease.token])
        if lease.key == "job-1":
            raise RuntimeError("the disk is full")

    assert reap(place, put_back, [namespace]) == (3, 1)
    written = place.psql(f"select token from reaped where starts_with(key, '{namespace}') order by key").split()
    assert written == [tokens[0], tokens[2], tokens[3]]
    states = place.psql(f"select string_agg(state, ' ' order by key) from leasehold.scope where namespace = '{namespace}'")
    assert states == "free held free free held"
    assert "the disk is full" in place.psql(f"select reap_error from leasehold.scope where namespace = '{namespace}' and key = 'job-1'")
    with pytest.raises(ValueError, match="^namespaces must be a list of namespaces"):
        reap(place, put_back, namespace)
    assert reap(place, lambda connection, lease: None, [namespace.rpartition('-')[0]], children=True) == (0, 0)
    assert reap(place, lambda connection, lease: None, [namespace]) == (1, 0)


def callbacks_tell_of_a_lease(place):
    told, client = [], place.client()
    listeners = {f"on_{word}": lambda lease, word=word: told.append((word, lease.key)) for word in ("granted", "renewed", "released")}
    declared = client.declare(NAMESPACE, duration=9, **listeners)

    def words(key):
        found = [word for word, of in told if of == key]
        return [word for n, word in enumerate(found) if word != "renewed" or found[n - 1] != word]

    key, lost = fresh(), []
    with declared.lease(key):
        wait_until(lambda: told.count(("renewed", key)) >= 2)
    assert words(key) == ["granted", "renewed", "released"]
    forced = declared.acquire(fresh(), on_lost=lost.append)
    place.force(forced.key)
    wait_until(lambda: lost)
    assert lost == ["forced"] and "released" not in words(forced.key)
    tried = declared.acquire(fresh())
    tried.try_release()
    wait_until(lambda: ("released", tried.key) in told)
    moved = declared.lease(fresh())
    client.acquire_in(moved, place.application(), lambda run: None)
    client.release_in(moved, place.application(), lambda run: None)
    assert words(moved.key)[0] == "granted" and words(moved.key)[-1] == "released"

    def fails(lease):
        raise RuntimeError("a listener's")

    with client.lease(NAMESPACE, fresh(), duration=9, on_granted=fails, on_renewed=fails, on_released=fails) as lease:
        wait_until(lambda: place.heartbeats(lease.key) >= 2)
        assert lease.is_held()
    assert place.row(lease.key, "state") == "free"
    with pytest.raises(ValueError, match="^on_renewed must be a function"):
        client.declare(NAMESPACE, on_renewed="print")
