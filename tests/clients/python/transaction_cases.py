"""The cases about leases that begin and end in a transaction of the application's; cases.py has the others."""
import leasehold
import psycopg
import pytest
from cases import LONG, NAMESPACE, fresh, in_background
from harness import wait_until

TABLE = "create table if not exists call (id text primary key, state text not null)"


class Broken(Exception):
    pass


def state_of(place, key):
    return place.psql(f"select state from call where id = '{key}'")


def call_of(place, state):
    """The key of a call: an application's row."""
    key = fresh()
    place.psql(TABLE)
    place.psql(f"insert into call values ('{key}', '{state}')")
    return key


def becomes(key, state):
    return f"update call set state = '{state}' where id = '{key}'"


def is_renewed(place, key):
    beats = place.heartbeats(key)
    wait_until(lambda: place.heartbeats(key) >= beats + 2)



def released_in_a_transaction(place):
    key, client = call_of(place, "running"), place.client()
    with client.lease(NAMESPACE, key, duration=6) as lease:
        def fails(run):
            run(becomes(key, "done"))
            raise Broken

        with pytest.raises(Broken):
            client.release_in(lease, place.application(), fails)
        assert state_of(place, key) == "running" and lease.is_held()
        is_renewed(place, key)
        client.release_in(lease, place.application(), lambda run: run(becomes(key, "done")), result={"rows": 3})
        assert not lease.is_held() and lease.lost is None
        assert (state_of(place, key), place.row(key, "state, last_outcome, last_result ->> 'rows'")) == ("done", "free|ok|3")
    lease.acquire()
    client.release_in(lease, place.application(), lambda run: run(becomes(key, "broken")), failure="no such payee")
    assert place.row(key, "state, last_outcome, last_error") == "free|failed|no such payee"


def acquired_in_a_transaction(place):
    key, client = call_of(place, "queued"), place.client()
    lease = client.lease(NAMESPACE, key, duration=6)

    def fails(run):
        run(becomes(key, "running"))
        assert lease.token > 0 and not lease._is_held
        raise Broken

    with pytest.raises(Broken):
        client.acquire_in(lease, place.application(), fails)
    assert state_of(place, key) == "queued" and place.row(key, "state") in ("", "free") and not lease.is_held()
    client.acquire_in(lease, place.application(), lambda run: run(becomes(key, f"token {lease.token}")))
    assert state_of(place, key) == f"token {lease.token}" and lease.is_held()
    is_renewed(place, key)
    with pytest.raises(leasehold.Held) as held:
        client.acquire_in(client.lease(NAMESPACE, key), place.application(), lambda run: pytest.fail("it ran"))
    assert held.value.holder == place.row(key, "owner")
    with pytest.raises(ValueError, match="wait must be 0 in a transaction"):
        client.acquire_in(client.lease(NAMESPACE, key, wait=3), place.application(), lambda run: pytest.fail("it ran"))
    assert lease.release()


def lost_lease_rolls_back(place):
    key, client = call_of(place, "running"), place.client()
    lease = client.lease(NAMESPACE, key, duration=LONG).acquire()

    def work(run):
        run(becomes(key, "done"))
        place.force(key)

    with pytest.raises(leasehold.LeaseLost) as lost:
        client.release_in(lease, place.application(), work)
    assert (lost.value.reason, lease.lost, state_of(place, key)) == ("forced", "forced", "running")


def open_transaction_is_refused(place):
    key, client = call_of(place, "running"), leasehold.Client(**({"server": place.target()} if place.transport == "grpc" else {"database": place.target()}))
    with client, client.lease(NAMESPACE, key) as lease, psycopg.connect(place.application()) as connection:
        connection.execute(becomes(key, "done"))
        for step in lambda: lease.release_in(connection), lambda: client.lease(NAMESPACE, fresh()).acquire_in(connection):
            with pytest.raises(ValueError, match="connection must be open, with no transaction begun"), step():
                pytest.fail("it ran")
        connection.commit()
        assert state_of(place, key) == "done" and lease.is_held()


def unanswered_commit_of_a_release_is_looked_up(place):
    key, client = call_of(place, "running"), place.client()
    with client.lease(NAMESPACE, key, duration=6) as lease:
        with pytest.raises(psycopg.OperationalError):
            client.release_in(lease, place.commit_proxy("before"), lambda run: run(becomes(key, "done")))
        assert state_of(place, key) == "running" and lease.is_held()
        is_renewed(place, key)
        waiting = in_background(place.client().lease(NAMESPACE, key, wait=60).acquire)
        wait_until(lambda: place.waiting(key) == 1)
        client.release_in(lease, place.commit_proxy("after"), lambda run: run(becomes(key, "done")))
        assert state_of(place, key) == "done" and not lease.is_held() and lease.lost is None
        assert waiting().release()


def unanswered_commit_of_an_acquire_is_looked_up(place):
    key, client = call_of(place, "queued"), place.client()
    lease = client.lease(NAMESPACE, key, duration=6)
    with pytest.raises(leasehold.Unavailable) as unknown:
        client.acquire_in(lease, place.commit_proxy("before"), lambda run: run(becomes(key, "running")))
    assert unknown.value.reason == "UNKNOWN_OUTCOME" and "COMMIT was not answered" in str(unknown.value)
    assert state_of(place, key) == "queued" and place.row(key, "state") in ("", "free") and not lease.is_held()
    client.acquire_in(lease, place.commit_proxy("after"), lambda run: run(becomes(key, "running")))
    assert state_of(place, key) == "running" and lease.is_held()
    is_renewed(place, key)
    assert lease.release()
