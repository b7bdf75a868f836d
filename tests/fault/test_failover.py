"""The primary hangs, is replaced, or comes back as an old one: where the daemon goes, and what its clients hear."""
import time

import grpc
import pytest

from harness import Client, Failure, acquire_request, fails, health, heartbeat, pb, readyz, release_request, wait_until
from pair import Pair

SERVES_WITHIN = 15  # seconds from when the new primary is there: a promise, so it is the bound here


@pytest.fixture
def pair():
    pair = Pair()
    yield pair
    pair.close()


def granted(client, key):
    try:
        return client.lease.Acquire(acquire_request("jobs", key, 60), timeout=10).lease
    except grpc.RpcError as error:
        assert Failure(error).code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED), error
        return None


def sessions(cluster, pair):
    return int(cluster.psql(f"select count(*) from pg_stat_activity where datname = '{pair.database}' and pid <> pg_backend_pid()"
                            " and backend_type = 'client backend' and application_name = 'leaseholdd'", "postgres"))


def test_a_frozen_primary_is_left_for_the_new_one(pair):
    daemon = pair.daemon()
    client = Client(daemon.target)
    held = client.lease.Acquire(acquire_request("jobs", "held", 60)).lease
    pair.wait_for_standby()
    pair.freeze(pair.old)
    # Promise: within 5 s each is answered, that nothing is known to be lost.
    beat = client.lease.Heartbeat.future(pb.HeartbeatRequest(leases=[{"scope": held.scope, "lease_key": held.lease_key}]), timeout=5.5)
    call = client.lease.Acquire.future(acquire_request("jobs", "k", 60), timeout=5.5)
    assert beat.result().results[0].outcome == pb.OUTCOME_RETRY
    with fails() as failure:
        call.result()
    # Why is known once the other server was asked.
    assert failure.value.reason == "DATABASE_UNAVAILABLE" and failure.value.message.startswith("the database is unavailable")
    wait_until(lambda: health(client) == "NOT_SERVING", SERVES_WITHIN, "gRPC health")
    pair.new.promote()
    lease = wait_until(lambda: granted(client, "k"), SERVES_WITHIN, "a grant by the new primary")
    assert lease.token > held.token
    assert wait_until(lambda: heartbeat(client, held), 15).outcome == pb.OUTCOME_OK
    assert "database primary changed" in daemon.log()
    # The old one wakes up: it is never used again, though it is listed first and takes itself for the primary.
    pair.thaw()
    wait_until(lambda: sessions(pair.old, pair) == 0, what="the sessions on the old primary to end")
    pair.new.stop("immediate")
    wait_until(lambda: "it is an old primary" in daemon.log())
    with fails() as failure:
        client.lease.Acquire(acquire_request("jobs", "k2", 60))
    assert failure.value.reason == "DATABASE_UNAVAILABLE"
    pair.new.start()
    wait_until(lambda: granted(client, "k2"), SERVES_WITHIN)
    client.close()


def test_a_daemon_starts_beside_silent_hosts_and_standbys(pair):
    pair.wait_for_standby()
    preparation = pair.daemon()  # brings the schema up to date
    assert preparation.stop() == 0
    pair.wait_for_standby()
    url = f"host={pair.silent_host()},{pair.silent_host()},{pair.new.sockets},{pair.old.sockets} dbname={pair.database} user=postgres"
    daemon = pair.daemon(url, "--migrate", "no")
    client = Client(daemon.target)
    assert wait_until(lambda: granted(client, "k"), SERVES_WITHIN)
    wait_until(lambda: sessions(pair.new, pair) == 0)
    assert "it is a standby" in daemon.log()
    client.close()


def test_a_standby_alone_is_refused_with_words_and_without_hurry(pair):
    preparation = pair.daemon()
    assert preparation.stop() == 0
    pair.wait_for_standby()
    daemon = pair.daemon(f"host={pair.new.sockets} dbname={pair.database} user=postgres target_session_attrs=any", "--migrate", "no", wait="listening")
    client = Client(daemon.target)
    wait_until(lambda: "session is read-only" in readyz(daemon)[1])
    assert health(client) == "NOT_SERVING"
    with fails() as failure:
        client.lease.Acquire(acquire_request("jobs", "k"))
    assert failure.value.reason == "DATABASE_UNAVAILABLE" and "the server takes no writes" in failure.value.message
    tries = lambda: int(pair.new.psql(f"select sessions from pg_stat_database where datname = '{pair.database}'", "postgres"))  # noqa: E731
    begun, before = time.monotonic(), tries()
    wait_until(lambda: tries() >= before + 3, 60, "three more tries")
    assert time.monotonic() > begun + 1, "it tries again without a pause"
    pair.new.promote()
    assert wait_until(lambda: granted(client, "k"), SERVES_WITHIN)
    client.close()


def test_no_two_sessions_are_ever_on_two_primaries(pair):
    daemon = pair.daemon()
    client = Client(daemon.target)
    held = client.lease.Acquire(acquire_request("jobs", "k", 60)).lease
    pair.wait_for_standby()
    pair.new.promote()  # and the old one goes on: a split brain
    before = sessions(pair.old, pair)
    pair.shut(pair.old)
    # One is ended by force and finds the new primary: all the others follow.
    wait_until(lambda: sessions(pair.old, pair) == before)
    pair.old.psql(f"select pg_terminate_backend(min(pid)) from pg_stat_activity where datname = '{pair.database}'"
                  " and application_name = 'leaseholdd'", "postgres")
    wait_until(lambda: sessions(pair.old, pair) == 0 and sessions(pair.new, pair) == before)
    assert heartbeat(client, held).outcome == pb.OUTCOME_OK
    assert client.lease.Release(release_request(held)).results[0].outcome == pb.OUTCOME_OK
    assert granted(client, "k").token > held.token
    assert pair.new.psql("select timeline from leasehold.incarnation", pair.database) == "2"
    client.close()
