"""Keys of a spread namespace move while the primary of one of its clusters dies and the standby, which was synchronous, is promoted: at each of the
steps of a move, and for each of both clusters."""
import contextlib
import pathlib
import shutil
import threading
import uuid

import grpc
import pytest

import harness
import rundir
from harness import acquire_request, pb, release_request, wait_until
from pair import Standby
from place import BOUND
from test_move_keys import KEYS, MORE, NAMES, Load, Spread, check_places, check_slots
from test_moving_keys import STEPS, Pause, kill
from test_spread import place


class Replicated:
    """A primary and its synchronous standby, under two addresses."""

    def __init__(self):
        self.dir = pathlib.Path(rundir.mkdtemp("lh-ha-"))
        self.dir.chmod(0o755)
        self.primary, self.standby = harness.Cluster(migrated=True), None
        (self.dir / "a").symlink_to(self.primary.sockets)
        self.free = self.dir / "b"

    def follow(self):
        self.standby = Standby(self.primary)
        self.free.unlink(missing_ok=True)
        self.free.symlink_to(self.standby.sockets)
        for sql in ("alter system reset synchronous_standby_names", "select pg_reload_conf()"):  # a copy of the primary's
            self.standby.psql(sql, "postgres")
        for sql in ("alter system set synchronous_standby_names = '*'", "select pg_reload_conf()"):
            self.primary.psql(sql, "postgres")
        wait_until(lambda: self.primary.psql("select sync_state from pg_stat_replication", "postgres") == "sync", BOUND, "the standby being synchronous")

    def fail_over(self):
        kill(self.primary)
        self.standby.promote()
        self.primary.destroy()
        self.primary, self.standby = self.standby, None
        self.free = next(link for link in (self.dir / "a", self.dir / "b") if link.resolve() != self.primary.sockets.resolve())

    def url(self, database, user="postgres"):
        return f"host={self.dir / 'a'},{self.dir / 'b'} dbname={database} user={user} target_session_attrs=read-write"

    def psql(self, sql, database, **more):
        return self.primary.psql(sql, database, **more)

    def create_database(self, migrated=False):
        return self.primary.create_database(migrated)

    @property
    def psql_program(self):
        return self.primary.psql_program

    def destroy(self):
        for cluster in filter(None, (self.standby, self.primary)):
            cluster.destroy()
        shutil.rmtree(self.dir)


class Queue:
    """Waiters of a key, in their order. One that is told to ask again does so with the same lease key."""

    def __init__(self, spread, client, key):
        self.client, self.key, self.granted, self.faults = client, key, [], []
        self.held = client.lease.Acquire(acquire_request("jobs", key, 60), timeout=BOUND).lease
        self.threads = []
        for number in range(3):
            self.threads.append(threading.Thread(target=self.wait, args=(f"w{number}",), daemon=True))
            self.threads[-1].start()
            wait_until(lambda: spread.psql("home", f"select count(*) from leasehold.waiter where key = '{key}'") == str(number + 1), BOUND, "its place")

    def wait(self, owner):
        request = acquire_request("jobs", self.key, 60, wait=5 * BOUND, owner=owner, lease_key=str(uuid.uuid4()))
        while True:
            try:
                lease = self.client.lease.Acquire(request, timeout=10 * BOUND).lease
                self.granted.append(owner)
                self.held = lease
                return
            except grpc.RpcError as error:
                if harness.Failure(error).reason not in ("DATABASE_UNAVAILABLE", "BLOCKING_TIMEOUT"):
                    self.faults.append(error)
                    return

    def renew(self):
        assert not self.faults, self.faults
        return harness.heartbeat(self.client, self.held).outcome

    def finish(self):
        """Each gets it, in the order in which they came."""
        for number in range(len(self.threads) + 1):
            wait_until(lambda: self.faults or len(self.granted) == number, BOUND, f"the grant of waiter {number}")
            assert not self.faults, self.faults
            with contextlib.suppress(grpc.RpcError):
                wait_until(lambda: self.client.lease.Release(release_request(self.held)).results[0].outcome != pb.OUTCOME_RETRY, BOUND, "the release")
        assert self.granted == [f"w{number}" for number in range(len(self.threads))]
        for thread in self.threads:
            thread.join(BOUND)


@pytest.fixture
def spread(tmp_path):
    clusters = {name: harness.Cluster(migrated=True) if name == "eu" else Replicated() for name in MORE}
    spread = Spread(clusters, tmp_path)
    yield spread
    spread.close()
    for cluster in clusters.values():
        cluster.destroy()


@pytest.mark.parametrize("promoted", ["source", "target"])
def test_a_standby_that_is_promoted_in_a_move_loses_nothing(spread, promoted):
    """The move goes there and back, so that each step is at one of its parts. A program that heard no answer is called again."""
    stays = next(key for key in KEYS[8:] if place(key) == place(key, MORE) == "home")
    keys = [key for key in KEYS[8:] if key != stays]
    queue = Queue(spread, spread.second, stays)
    with Load(spread, keys) as load:
        for number, step in enumerate(STEPS):
            source, target, names = ("us", "home", NAMES) if number % 2 else ("home", "us", MORE)
            cluster = spread.clusters[source if promoted == "source" else target]
            cluster.follow()
            hears = "answer" if (number % 4 < 2) == (promoted == "source") else "failure"
            pause = Pause(spread, source, target, names, step, hears)
            assert pause.reached(), (step, pause.go_on())
            cluster.fail_over()
            assert queue.renew() != pb.OUTCOME_LOST, step
            status, said = pause.go_on()
            assert (status == 0) == (hears == "answer"), (step, said)
            if status != 0:
                said = spread.moved(source, target, names)
            assert "has all keys of jobs" in said, (step, said)
            load.go_on()
            assert queue.renew() != pb.OUTCOME_LOST, step
    queue.finish()
    check_places(spread, load, NAMES)
    check_slots(spread, NAMES)
