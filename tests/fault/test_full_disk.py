"""The server cannot write renewals, while the daemon's own row can still be written: so it is on a full disk."""
import errno
import os
import pwd
import subprocess
import time

import pytest

import harness
from harness import acquire_request, lease_ref, pb, wait_until

LEASES = 30
LASTS_S = 6  # longer than it takes to acquire them all and to fill a disk on a busy machine


@pytest.fixture
def place(cluster):
    service = harness.Service(cluster)
    service.psql("""
      create function public.no_space() returns trigger language plpgsql as $$
      begin
        raise exception 'could not extend file "base/1/2": No space left on device' using errcode = '53100', hint = 'Check free disk space.';
      end $$;
      create trigger no_space before update on leasehold.scope for each row when (new.heartbeats > old.heartbeats)
        execute function public.no_space();
      alter table leasehold.scope disable trigger no_space""")
    yield service
    service.close()


def fill(place):
    place.psql("alter table leasehold.scope enable trigger no_space")


def make_room(place):
    place.psql("alter table leasehold.scope disable trigger no_space")


def renew(place, leases):
    return place.client.lease.Heartbeat(pb.HeartbeatRequest(leases=[lease_ref(lease) for lease in leases])).results


def are_overdue(place, which="every"):
    return place.psql(f"select {which}(deadline + grace + interval '2 s' < clock_timestamp()) from leasehold.scope where state = 'held'") == "t"


def test_a_full_disk_expires_nobody(place):
    leases = [place.client.lease.Acquire(acquire_request("full", f"k{i}", LASTS_S)).lease for i in range(LEASES)]
    waiting = place.client.lease.Acquire.future(acquire_request("full", "k0", LASTS_S, wait_forever=True))
    wait_until(lambda: place.psql("select count(*) from leasehold.waiter") == "1", what="a waiter")
    fill(place)

    def nothing_is_renewed():
        results = renew(place, leases)
        assert [result.outcome for result in results] == [pb.OUTCOME_RETRY] * LEASES
        assert "No space left on device" in results[0].message
        return are_overdue(place)

    wait_until(nothing_is_renewed, what="the time at which all would have expired")
    assert place.psql("select cannot_write from leasehold.coordinator") == "t"
    make_room(place)
    assert [result.outcome for result in renew(place, leases)] == [pb.OUTCOME_OK] * LEASES
    # Once it can write again, a holder that does not come back loses its lease by its expiry as ever.
    assert waiting.result(timeout=60).lease.scope.key == "k0"
    wait_until(lambda: place.psql("select count(*) from leasehold.scope where state = 'held'") == "1", what="the others to expire")
    assert place.psql("select cannot_write from leasehold.coordinator") == "f"
    waiting.cancel()


def test_a_daemon_that_dies_on_a_full_disk_expires_nobody(place):
    leases = [place.client.lease.Acquire(acquire_request("full", f"k{i}", LASTS_S)).lease for i in range(LEASES)]
    fill(place)
    renew(place, leases)
    wait_until(lambda: place.psql("select cannot_write from leasehold.coordinator") == "t", what="the daemon to say so")
    place.daemon.kill()
    wait_until(lambda: are_overdue(place), what="the time at which all would have expired")
    make_room(place)
    place.daemon.start()
    assert [result.outcome for result in renew(place, leases)] == [pb.OUTCOME_OK] * LEASES


@pytest.fixture
def small(cluster):
    """The database on a file system of 64 MB, the write-ahead log beside it: without room for that the server stops altogether."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root: a disk that is full was not tried")
    disk = cluster.dir / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=755,uid=%d" % pwd.getpwnam("postgres").pw_uid, "tmpfs", disk]).returncode != 0:
        pytest.skip("mounting is not permitted here: a disk that is full was not tried")
    try:
        cluster.psql(f"create tablespace small location '{disk}'", "postgres")
        cluster.psql(f"alter database {harness.TEMPLATE} set tablespace small", "postgres")
        service = harness.Service(cluster)
        yield service, disk / "filler"
        service.close()
    finally:
        cluster.stop("immediate")
        subprocess.run(["umount", "-l", disk], check=True)


def test_a_file_system_without_room_for_25_seconds_expires_nobody(small):
    service, filler = small
    leases = [service.client.lease.Acquire(acquire_request("full", f"k{i}", LASTS_S)).lease for i in range(LEASES)]
    # A transaction that stays open keeps old versions: renewals need new pages.
    stranger = service.cluster.session(service.database)
    stranger.run("begin isolation level repeatable read; select 1")
    with open(filler, "wb") as file:
        try:
            while True:
                file.write(b"x" * 65536)
                file.flush()
        except OSError as error:
            assert error.errno == errno.ENOSPC
    begun, words = time.monotonic(), set()

    def was_full_for_25_seconds():
        # A page may have room for another version of a few leases: those are renewed, and the others are not.
        results = renew(service, leases)
        words.update(result.message for result in results if result.outcome == pb.OUTCOME_RETRY)
        assert {result.outcome for result in results} <= {pb.OUTCOME_OK, pb.OUTCOME_RETRY}, results
        return time.monotonic() > begun + 25 and are_overdue(service, "bool_or")

    wait_until(was_full_for_25_seconds, 120, "a lease that was not renewed for longer than it lasts")
    assert any("No space left on device" in message for message in words), words
    filler.unlink()
    stranger.run("rollback")
    wait_until(lambda: {result.outcome for result in renew(service, leases)} <= {pb.OUTCOME_OK}, what="renewals")
