"""An upgrade while an older daemon goes on running: the daemon from before shared leases, with leases held and waiters in its queues, and
the present one beside it, which migrates the schema and is asked for shared leases of the same scopes.

The older one may refuse. It may not grant what others hold, lose a waiter, or tell a holder that its lease has ended."""
import concurrent.futures
import pathlib
import re
import sys
import threading
import time
import uuid

import grpc
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))

import harness  # noqa: E402
import older  # noqa: E402
from harness import acquire_request, heartbeat, pb, release_request, scope, wait_until  # noqa: E402

LIMIT_S = 60
WAIT_S = 240  # longer than any of the other bounds together
NS = "upgrade"
SHARED = {"mode": pb.MODE_SHARED}


class Daemon(harness.Client):
    """A daemon and a client of it."""

    def __init__(self, program, cluster, database):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(harness, "DAEMON", program)
            self.daemon = harness.Daemon(database=cluster.url(database))
        super().__init__(self.daemon.target)

    def acquire(self, key, **fields):
        """Called again while the daemon has no database: it connects again after a migration. The lease key makes that the same request."""
        request = acquire_request(NS, key, 600, lease_key=str(uuid.uuid4()), **fields)
        end = time.monotonic() + LIMIT_S
        while True:
            try:
                return self.lease.Acquire(request, timeout=WAIT_S + LIMIT_S).lease
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE or time.monotonic() > end:
                    raise

    def refuses(self, key, **fields):
        with pytest.raises(grpc.RpcError) as refused:
            self.acquire(key, **fields)
        assert refused.value.code() != grpc.StatusCode.UNAVAILABLE, refused.value
        return refused.value.code()

    def renews(self, *leases):
        """Whether all of them are still held."""
        return wait_until(lambda: self.outcomes(leases), LIMIT_S, "an answer to heartbeats") == [pb.OUTCOME_OK] * len(leases)

    def outcomes(self, leases):
        try:
            return [heartbeat(self, lease).outcome for lease in leases]
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNAVAILABLE, error
            return None

    def release(self, lease):
        """Also where another has the scope's row at that moment."""
        def done():
            outcome = self.lease.Release(release_request(lease), timeout=LIMIT_S).results[0].outcome
            assert outcome in (pb.OUTCOME_OK, pb.OUTCOME_RETRY), outcome
            return outcome == pb.OUTCOME_OK
        wait_until(done, LIMIT_S, "the release")

    def close(self):
        super().close()
        assert self.daemon.stop() == 0, self.daemon.log()
        assert self.errors() == [], self.daemon.log()
        self.daemon.destroy()

    def errors(self):
        return [line for line in self.daemon.log().splitlines() if "ERROR" in line]


class OlderDaemon(Daemon):
    def errors(self):
        """A call of its own that runs while the migration drops a function of before fails, and the next one does its work."""
        return [line for line in super().errors() if not re.search(r"a control call failed: function leasehold_internal.* \(42883\)$", line)]


class Site:
    def __init__(self):
        self.cluster = harness.Cluster()
        self.database = self.cluster.create_database()
        self.pool = concurrent.futures.ThreadPoolExecutor(32)
        self.old = OlderDaemon(older.daemon(), self.cluster, self.database)
        self.new = None

    def psql(self, sql):
        return self.cluster.psql(sql, self.database)

    def upgrade(self):
        assert self.psql("select to_regclass('leasehold.share') is null") == "t", "the older daemon knows shared leases"
        self.new = Daemon(harness.DAEMON, self.cluster, self.database)
        assert self.psql("select to_regclass('leasehold.share') is null") == "f"

    def waits(self, daemon, key, **fields):
        """A request that stands in the queue: its lease to come."""
        before = int(self.waiters(key))
        coming = self.pool.submit(daemon.acquire, key, wait=WAIT_S, **fields)
        wait_until(lambda: self.waiters(key) == str(before + 1), LIMIT_S, f"a waiter for {key}")
        return coming

    def waiters(self, key):
        return self.psql(f"select count(*) from leasehold.waiter where key = '{key}'")

    def holders(self, key):
        """Modes and tokens as the database has them, the oldest first."""
        return self.psql(f"select mode || ' ' || token from leasehold.lease where key = '{key}' order by token").splitlines()

    def close(self):
        for daemon in (self.old, self.new):
            daemon.close()
        self.pool.shutdown()


@pytest.fixture
def site():
    opened = Site()
    try:
        yield opened
        opened.close()
    finally:
        opened.cluster.destroy()


def granted(coming):
    return coming.result(LIMIT_S)


def test_an_older_daemon_goes_on_beside_shared_leases(site):
    old = site.old
    held = old.acquire("held")
    writer = old.acquire("queued")
    queued = [site.waits(old, "queued") for _ in range(2)]
    site.upgrade()
    new = site.new
    # What was held is held, through either.
    assert old.renews(held, writer) and new.renews(held, writer)
    queue_of_before(site, writer, queued)
    readers_and_an_older_writer(site)
    room_is_not_given_by_the_older_one(site)
    one_that_is_silent(site)
    at_random(site)
    assert old.renews(held)
    old.release(held)
    assert site.psql("select count(*) from leasehold.waiter") == "0"


def queue_of_before(site, writer, queued):
    """Behind the waiters of before the migration stand shared ones of the newer daemon, and behind those one of the older."""
    old, new = site.old, site.new
    wait_until(lambda: site.waiters("queued") == "2", LIMIT_S, "the waiters of before")
    shared = [site.waits(new, "queued", **SHARED) for _ in range(2)]
    last = site.waits(old, "queued")
    old.release(writer)
    for coming in queued:
        lease = granted(coming)
        assert site.holders("queued") == [f"exclusive {lease.token}"]
        # The older daemon ends its waiter's lease, and so hands over to those of the newer.
        old.release(lease)
    leases = sorted((granted(coming) for coming in shared), key=lambda lease: lease.token)
    assert site.holders("queued") == [f"shared {lease.token}" for lease in leases] and not last.done()
    assert new.renews(*leases)
    new.release(leases[0])
    assert site.holders("queued") == [f"shared {leases[1].token}"] and not last.done()
    new.release(leases[1])
    lease = granted(last)
    assert lease.token > leases[1].token and site.holders("queued") == [f"exclusive {lease.token}"]
    old.release(lease)


def readers_and_an_older_writer(site):
    old, new = site.old, site.new
    readers = [new.acquire("file", **SHARED) for _ in range(2)]
    assert old.refuses("file") == grpc.StatusCode.ABORTED
    writer = site.waits(old, "file")
    # Nobody overtakes it.
    assert new.refuses("file", **SHARED) == grpc.StatusCode.ABORTED
    behind = site.waits(new, "file", **SHARED)
    new.release(readers[0])
    # The older daemon renews and ends a shared lease like any other, wherever its holder calls.
    assert new.renews(readers[1]) and old.renews(readers[1]) and not writer.done()
    assert site.holders("file") == [f"shared {readers[1].token}"]
    old.release(readers[1])
    lease = granted(writer)
    assert site.holders("file") == [f"exclusive {lease.token}"] and not behind.done()
    assert old.renews(lease)
    old.release(lease)
    lease = granted(behind)
    assert site.holders("file") == [f"shared {lease.token}"]
    new.release(lease)


def room_is_not_given_by_the_older_one(site):
    """Units of a capacity, while waiters of both stand in the queue."""
    old, new = site.old, site.new
    site.psql(f"select leasehold.set_policy('{NS}', capacity => 3)")
    first, second = new.acquire("room", units=2, **SHARED), new.acquire("room", units=1, **SHARED)
    assert [list(first.slots), list(second.slots)] == [[1, 2], [3]]
    big = site.waits(new, "room", units=2, **SHARED)
    writer = site.waits(old, "room")
    old.release(second)
    assert not big.done() and site.holders("room") == [f"shared {first.token}"]
    old.release(first)
    lease = granted(big)
    assert list(lease.slots) == [1, 2] and not writer.done()
    new.release(lease)
    old.release(granted(writer))
    site.psql(f"select leasehold.set_policy('{NS}', capacity => null)")


def one_that_is_silent(site):
    """Of two shared holders one is silent; both daemons reap. The writer of the older one waits for the other."""
    new = site.new
    held = new.acquire("silent", **SHARED)
    new.lease.Acquire(acquire_request(NS, "silent", 1, **SHARED))
    writer = site.waits(site.old, "silent")
    wait_until(lambda: site.holders("silent") == [f"shared {held.token}"], LIMIT_S, "the end of the silent one")
    assert not writer.done() and new.renews(held)
    new.release(held)
    site.old.release(granted(writer))


class Ledger:
    """Who holds what, as the holders see it: from the answer to an acquire to the call of the release."""

    def __init__(self):
        self.lock = threading.Lock()
        self.held = {}
        self.wrong = []

    def change(self, lease, is_held):
        with self.lock:
            others = self.held.setdefault(lease.scope.key, {})
            if not is_held:
                del others[lease.token]
                return
            if others and (lease.mode != pb.MODE_SHARED or any(mode != pb.MODE_SHARED for mode in others.values())):
                self.wrong.append((lease.scope.key, lease.token, dict(others)))
            others[lease.token] = lease.mode


def at_random(site):
    """Through both, one behind the other as it comes. Each holder renews once."""
    ledger = Ledger()

    def work(daemon, fields):
        for key in ("x", "y") * 8:
            lease = daemon.acquire(key, wait=WAIT_S, **fields)
            ledger.change(lease, True)
            assert daemon.renews(lease)
            ledger.change(lease, False)
            daemon.release(lease)

    workers = [(site.old, {})] * 3 + [(site.new, {})] + [(site.new, SHARED)] * 4
    for done in [site.pool.submit(work, *worker) for worker in workers]:
        done.result(WAIT_S)
    assert ledger.wrong == []
    assert site.holders("x") + site.holders("y") == []
