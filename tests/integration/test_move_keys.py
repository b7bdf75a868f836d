"""deploy/move-namespace keys: keys of a spread namespace move to another database while daemons serve them, and whatever is interrupted,
no key has two holders, no token goes back and no holder loses its lease."""
import collections
import contextlib
import os
import random
import signal
import subprocess
import threading
import time
import uuid

import grpc
import pytest

import harness
from databases import name, rows
from harness import acquire_request, fails, pb, release_request, wait_until
from streams import BOUND, Reading
from test_moves import PROGRAM, sleeps_in
from test_spread import KEYS, NAMES, place, write_spread

MORE = (*NAMES, "us")


class Spread:
    """Databases `home` and `eu` have jobs; `us` is there, and has no key. `first` has the sections of all, as `second` has."""

    def __init__(self, clusters, path):
        self.path, self.clusters = path, clusters
        self.databases = {name: cluster.create_database(migrated=True) for name, cluster in clusters.items()}
        self.daemons, self.clients = [], []
        with self.serving(NAMES):
            self.wait(NAMES)
        self.first, self.second = self.start(MORE), self.start(MORE)
        self.wait(MORE)

    def url(self, name):
        return self.clusters[name].url(self.databases[name])

    def psql(self, name, sql):
        return self.clusters[name].psql(sql, self.databases[name])

    def start(self, names):
        self.sections = [(name, self.url(name), "orders" if name == "eu" else "", "yes" if name == "home" else "no") for name in names]
        path = self.path / f"{len(self.daemons)}.ini"
        self.daemons.append(harness.Daemon("--config", write_spread(path, self)))
        self.clients.append(harness.Client(self.daemons[-1].target))
        return self.clients[-1]

    @contextlib.contextmanager
    def serving(self, names):
        yield self.start(names)
        self.stop()

    def stop(self):
        self.clients.pop().close()
        daemon = self.daemons.pop()
        assert daemon.stop() == 0, daemon.log()
        daemon.destroy()

    def wait(self, names):
        """Until the daemons serve every database, and each key."""
        for client in self.clients:
            for name in names:
                wait_until(lambda: harness.health(client, f"database/{name}") == "SERVING", BOUND, f"{name} being ready")
            for key in KEYS:
                wait_until(lambda: self.can_take(client, key), BOUND, f"{key} being served")

    @staticmethod
    def can_take(client, key):
        with contextlib.suppress(grpc.RpcError):
            client.lease.Release(release_request(client.lease.Acquire(acquire_request("jobs", key), timeout=BOUND).lease))
            return True
        return False

    def move(self, source, target, names, **environment):
        return subprocess.Popen([PROGRAM, "keys", "jobs", self.url(source), self.url(target), target, ",".join(names)],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, env={**os.environ, **environment})

    def moved(self, source, target, names):
        process = self.move(source, target, names)
        said = process.communicate(timeout=300)[0]
        assert process.returncode == 0, said
        return said

    def close(self):
        while self.daemons:
            self.stop()


@pytest.fixture
def spread(cluster, tmp_path):
    spread = Spread(dict.fromkeys(MORE, cluster), tmp_path)
    yield spread
    spread.close()


class Load:
    """Workers that take keys of jobs for a moment through any daemon, some of them waiting, and holders that renew theirs all the time.

    What was not answered is asked again, with the same lease key, until it is."""

    def __init__(self, spread, keys, held=KEYS[:8]):
        self.keys, self.clients = keys, list(spread.clients)
        self.lock, self.holders, self.tokens, self.faults = threading.Lock(), {}, collections.Counter(), []
        self.grants, self.renewals = collections.Counter(), collections.Counter()
        self.is_over = threading.Event()
        self.held = [self.clients[0].lease.Acquire(acquire_request("jobs", key, seconds=60), timeout=BOUND).lease for key in held]
        self.threads = [threading.Thread(target=self.work, args=(keys, wait)) for wait in (None, None, BOUND, BOUND, BOUND)]
        self.threads += [threading.Thread(target=self.renew, args=(lease,)) for lease in self.held]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        for thread in self.threads:
            thread.join(BOUND)
            assert not thread.is_alive(), "a call waits for ever"

    def call(self, rpc, request):
        """The answer; None: the lease is held by another. A wait that a database's absence makes long begins again, as a client's."""
        began = time.monotonic()
        while True:
            try:
                answer = getattr(random.choice(self.clients).lease, rpc)(request, timeout=2 * BOUND)
                if rpc == "Acquire" or answer.results[0].outcome != pb.OUTCOME_RETRY:
                    return answer
                error = answer.results[0]
            except grpc.RpcError as failed:
                error = harness.Failure(failed)
                if rpc == "Acquire" and error.reason == ("WAIT_TIMEOUT" if request.HasField("wait") else "LEASE_HELD"):
                    return None
                if error.reason not in ("DATABASE_UNAVAILABLE", "SCOPE_BUSY", "BLOCKING_TIMEOUT") and error.code != grpc.StatusCode.UNAVAILABLE:
                    self.faults.append(f"{rpc}: {failed}")
                    return None
            if time.monotonic() > began + 5 * BOUND:
                self.faults.append(f"{rpc} of {request} is never answered: {error}")
                return None
            time.sleep(0.005)

    def work(self, keys, wait):
        while not self.is_over.is_set():
            key = random.choice(keys)
            answer = self.call("Acquire", acquire_request("jobs", key, seconds=60, wait=wait, lease_key=str(uuid.uuid4())))
            if answer is None:
                time.sleep(0.005)
                continue
            lease = answer.lease
            with self.lock:
                self.grants[key] += 1
                if key in self.holders or lease.token <= self.tokens[key]:
                    self.faults.append(f"{key}: token {lease.token} after {self.tokens[key]}, held by {self.holders.get(key)}")
                self.holders[key], self.tokens[key] = lease.token, lease.token
            time.sleep(random.random() / 100)
            with self.lock:
                del self.holders[key]
            answer = self.call("Release", release_request(lease))
            # The first one's answer may have got lost.
            if answer is not None and pb.OUTCOME_OK != answer.results[0].outcome and answer.results[0].end_reason != pb.END_REASON_RELEASED:
                self.faults.append(f"{key}: the release of token {lease.token} met {answer.results[0]}")

    def renew(self, lease):
        while not self.is_over.wait(0.05):
            answer = self.call("Heartbeat", pb.HeartbeatRequest(leases=[harness.lease_ref(lease)]))
            if answer is not None and answer.results[0].outcome != pb.OUTCOME_OK:
                self.faults.append(f"a renewal met {answer.results[0]}")
            self.renewals[lease.scope.key] += 1

    def go_on(self):
        """Until each key was granted, and each lease renewed, once more."""
        keys, held = self.keys, [lease.scope.key for lease in self.held]
        grants, renewals = collections.Counter(self.grants), collections.Counter(self.renewals)
        wait_until(lambda: self.faults or (all(self.grants[key] > grants[key] for key in keys) and all(self.renewals[key] > renewals[key] for key in held)),
                   BOUND, "grants of all keys, and renewals")
        self.check()

    def check(self):
        assert not self.faults, self.faults[:5]


@contextlib.contextmanager
def watched(client, keys):
    """A watch that has seen the end of each key's leases."""
    watch = Reading(client.lease.WatchLeases(pb.WatchLeasesRequest(namespace=["jobs"])))
    watch.read()
    yield
    last = {}
    while not all(last.get(key) == pb.LeaseEvent.TYPE_RELEASED for key in keys):
        event = watch.next()
        assert event, watch.error
        last[event.lease.scope.key] = event.type
    watch.call.cancel()


def check_slots(spread, names):
    """Each database has the slots that rendezvous hashing gives it among the names: what is new has its share, and nothing else has moved."""
    for name in MORE:
        wanted = f"leasehold_internal.section_slots('{name}', '{{{','.join(names)}}}')" if name in names else "decode(repeat('00', 512), 'hex')"
        assert spread.psql(name, f"select slots = {wanted} from leasehold.spread") in ("t", ""), name
    total = sum(int(spread.psql(name, "select count(*) from leasehold.spread, generate_series(0, 4095) n where get_bit(slots, n) = 1")) for name in MORE)
    assert total == 4096


def check_places(spread, load, names):
    load.check()
    for database in MORE:
        keys = sorted(name(lease) for lease in load.held if place(lease.scope.key, names) == database)
        assert [row for row in rows(spread, database) if row in keys] == keys
    for lease in load.held:
        assert harness.heartbeat(spread.first, lease).outcome == pb.OUTCOME_OK
    for key in KEYS[8:]:
        assert spread.second.lease.Acquire(acquire_request("jobs", key), timeout=BOUND).lease.token > load.tokens[key]
        assert f"jobs/{key}" in rows(spread, place(key, names))


def test_one_more_database_gets_its_keys_under_load(spread):
    assert 2 < len([key for key in KEYS if place(key, MORE) == "us"]) < len(KEYS) / 2
    spread.first.admin.SetPolicy(pb.SetPolicyRequest(
        policy=pb.Policy(namespace=pb.Namespace(segments=["jobs", "slow"]), grace=harness.duration(7)), update_mask={"paths": ["grace"]}))
    with watched(spread.first, KEYS[8:]), Load(spread, KEYS[8:]) as load:
        for source in NAMES:
            assert "has all keys of jobs" in spread.moved(source, "us", MORE)
        load.go_on()
    check_places(spread, load, MORE)
    check_slots(spread, MORE)
    assert all(spread.psql(name, "select sections from leasehold.spread") == "{eu,home,us}" for name in MORE)
    assert spread.psql("us", "select namespace, grace from leasehold.policy where namespace <> ''") == "jobs.slow|00:00:07"


def test_a_database_gives_all_its_keys_away(spread):
    with Load(spread, KEYS[8:]) as load:
        spread.moved("eu", "home", ["home"])
    check_places(spread, load, ["home"])
    assert not [row for row in rows(spread, "eu") if row.startswith("jobs")]
    refused = spread.clusters["eu"].psql("select leasehold.acquire('jobs', 'k00', '1 s')", spread.databases["eu"], check=False)
    assert "k00 of jobs is in another database" in refused.stderr


@pytest.mark.parametrize("seed", range(2))
def test_a_move_that_was_killed_goes_on(spread, seed):
    """Anywhere in it: the time of the kill is drawn, and whether it may give back what it has not taken."""
    drawn = random.Random(seed)
    kills = 0
    with Load(spread, KEYS[8:]) as load:
        for source in NAMES:
            while True:
                process = spread.move(source, "us", MORE)
                try:
                    said = process.communicate(timeout=drawn.uniform(0.1, 3) if kills < 6 else 300)[0]
                    assert process.returncode == 0, said
                    break
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, drawn.choice((signal.SIGKILL, signal.SIGTERM)))
                    process.communicate(timeout=300)
                    kills += 1
    assert kills > 2
    check_places(spread, load, MORE)


def test_a_daemon_without_the_section_gives_no_key_of_it(spread):
    with spread.serving(NAMES) as old:
        spread.moved("home", "us", MORE)
        key = next(key for key in KEYS if place(key) == "home" and place(key, MORE) == "us")
        spread.first.lease.Acquire(acquire_request("jobs", key), timeout=BOUND)
        with fails() as failure:
            old.lease.Acquire(acquire_request("jobs", key), timeout=BOUND)
        assert failure.value.reason == "DATABASE_UNAVAILABLE"
        stays = next(key for key in KEYS if place(key, MORE) == "eu")
        assert old.lease.Acquire(acquire_request("jobs", stays), timeout=BOUND).lease.token > 0


def test_what_cannot_move_is_refused(spread):
    def refused(source, target, section, sections, words):
        said = subprocess.run([PROGRAM, "keys", "jobs", spread.url(source), spread.url(target), section, sections],
                              capture_output=True, text=True, timeout=300)
        assert said.returncode == 1 and words in said.stderr, said

    refused("home", "home", "us", "us,home", "FROM and TO are the same database")
    refused("us", "home", "home", "home", "jobs is not spread in FROM")
    refused("home", "eu", "us", "home,us", "TO is section eu, not us")
    refused("home", "us", "us", "home,eu", "SECTION is us, and not one of SECTIONS, home,eu")
    key = next(key for key in KEYS if place(key) == "home" and place(key, MORE) == "us")
    spread.psql("us", f"select leasehold.acquire('jobs', '{key}', '60 s')")  # nobody had told that database
    refused("home", "us", "us", "home,eu,us", "TO has 1 leases of keys that would move there")


def test_a_transaction_that_acquired_before_is_waited_for(spread):
    key = next(key for key in KEYS if place(key) == "home" and place(key, MORE) == "us")
    old = spread.clusters["home"].session(spread.databases["home"])
    old.run(f"begin; select leasehold.acquire('jobs', '{key}', '1 h')")
    process = spread.move("home", "us", MORE)
    wait_until(lambda: process.poll() is not None or sleeps_in(process), BOUND, "it to look again and again")
    assert process.poll() is None
    old.run("commit")
    said = process.communicate(timeout=300)[0]
    assert process.returncode == 0, said
    assert rows(spread, "us") == [f"jobs/{key}"]


def test_a_lease_that_a_transaction_guards_does_not_move_and_its_keys_stay(spread):
    key, other = [key for key in KEYS if place(key) == "home" and place(key, MORE) == "us"][:2]
    lease = spread.first.lease.Acquire(acquire_request("jobs", key, seconds=600), timeout=BOUND).lease
    old, guard = (spread.clusters["home"].session(spread.databases["home"]) for _ in range(2))
    old.run("begin; select txid_current()")
    process = spread.move("home", "us", MORE)
    looks = "select count(*) from pg_stat_activity where query ~ 'virtualtransaction = any' and pid <> pg_backend_pid()"
    wait_until(lambda: process.poll() is not None or spread.psql("home", looks) != "0", BOUND, "it to wait for the old transaction")
    guard.run(f"begin; select 1 from leasehold.scope where key = '{key}' for key share")
    old.run("commit")
    said = process.communicate(timeout=300)[0]
    guard.run("commit")
    assert process.returncode == 1 and "lock timeout" in said and "call this again" in said, said
    wait_until(lambda: spread.can_take(spread.second, other), BOUND, "the keys being served again")
    assert harness.heartbeat(spread.first, lease).outcome == pb.OUTCOME_OK
    spread.moved("home", "us", MORE)
    assert harness.heartbeat(spread.first, lease).outcome == pb.OUTCOME_OK
    assert rows(spread, "us") == [f"jobs/{key}"]
