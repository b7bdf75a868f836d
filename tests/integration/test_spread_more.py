"""Which keys of a spread namespace each database has, as its row of leasehold.spread says it: the first daemons claim them, daemons with
different sections never give one key to two, and keys go elsewhere while daemons run."""
import hashlib
import itertools
import re
import subprocess
import threading
import urllib.parse

import grpc
import pytest
from google.protobuf.wrappers_pb2 import BoolValue

import harness
from console import Console
from databases import listed, rows
from harness import acquire_request, fails, health, lease_ref, pb, release_request, wait_until
from streams import BOUND
from test_databases import checked_metrics
from test_spread import KEYS, NAMES, namespace, other, place, start, write_spread  # noqa: F401

MORE = (*NAMES, "us")


def slot(key):
    return int(hashlib.sha256(key.encode()).hexdigest()[:3], 16)


class Databases:
    """Three databases, and daemons with some of them as sections; none is the default."""

    def __init__(self, cluster, other, path):  # noqa: F811
        self.clusters = {"home": cluster, "eu": other, "us": cluster}
        self.databases = {name: cluster.create_database(migrated=True) for name, cluster in self.clusters.items()}
        self.path = path
        self.daemons = []
        self.numbers = itertools.count()

    def psql(self, name, sql):
        return self.clusters[name].psql(sql, self.databases[name])

    def daemon(self, names, wait=True):
        path = self.path / f"{next(self.numbers)}.ini"
        path.write_text("[leasehold]\n" + "".join(
            f"[database {name}]\ndatabase = {self.clusters[name].url(self.databases[name])}\nspread = jobs\n" for name in names))
        path.chmod(0o644)
        daemon = harness.Daemon("--config", str(path), wait=wait)
        if wait:
            daemon.client = harness.Client(daemon.target)
        self.daemons.append(daemon)
        return daemon

    def close(self):
        for daemon in self.daemons:
            if hasattr(daemon, "client"):
                daemon.client.close()
            assert daemon.stop() == 0, daemon.log()
            daemon.destroy()

    def sections(self):
        return {name: self.psql(name, "select array_to_string(sections, ' ') from leasehold.spread") for name in MORE}

    def set_slots(self, name, keys, bit):
        """Returns when every daemon acts on it."""
        new = "slots"
        for number in sorted(set(map(slot, keys))):
            new = f"set_bit({new}, {number}, {bit})"
        self.psql(name, f"update leasehold.spread set slots = {new}")
        wait_until(lambda: self.psql(name, """select count(*) from leasehold.coordinator
                                               where spread_read_at is distinct from (select max(changed_at) from leasehold.spread)""") == "0",
                   BOUND, f"all daemons acting on the row of {name}")


@pytest.fixture
def site(cluster, other, tmp_path):  # noqa: F811
    site = Databases(cluster, other, tmp_path)
    yield site
    site.close()


def acquire(daemon, key, **more):
    return daemon.client.lease.Acquire(acquire_request("jobs", key, **more), timeout=BOUND).lease


def refusal(daemon, key, **more):
    """The words of a DATABASE_UNAVAILABLE."""
    with fails() as failure:
        acquire(daemon, key, **more)
    assert failure.value.reason == "DATABASE_UNAVAILABLE", failure.value.message
    return failure.value.message


def granted(daemon, keys=KEYS):
    """Those of the keys that a daemon grants; each of the others is refused for a reason that daemons may have."""
    got = []
    for key in keys:
        try:
            got.append(acquire(daemon, key, seconds=600).scope.key)
        except grpc.RpcError as error:
            assert harness.Failure(error).reason in ("DATABASE_UNAVAILABLE", "LEASE_HELD"), error
    return got


# --- claims ---


def test_the_first_daemon_divides_the_keys(site):
    daemon = site.daemon(MORE)
    assert granted(daemon) == KEYS
    for name in MORE:
        assert rows_of(site, name) == [key for key in KEYS if place(key, MORE) == name]
        assert site.psql(name, "select section, settled, sections from leasehold.spread") == name + "|t|{eu,home,us}"
        assert site.psql(name, f"select slots = leasehold_internal.section_slots('{name}', sections) from leasehold.spread") == "t"
    assert "slots of spread namespace jobs: " in daemon.log() and "unserved=0" in daemon.log()
    assert sum(metric_slots(daemon, name) for name in MORE) == 4096 and metric_slots(daemon, "") == 0
    assert all(metric_slots(daemon, name) == int(site.psql(name, COUNT)) for name in MORE)
    slots = {name: int(site.psql(name, COUNT)) for name in sorted(MORE)}
    assert told_slots(daemon) == [("jobs", *each) for each in {**slots, "": 0}.items()]
    assert "slots of jobs " + ", ".join(f"{name} {count}" for name, count in slots.items()) in status_of(daemon)


COUNT = "select count(*) from leasehold.spread s, generate_series(0, 4095) n where get_bit(s.slots, n) = 1"


def metric_slots(daemon, name):
    return int(re.search(f'^leasehold_spread_slots{{namespace="jobs",database="{name}"}} (\\d+)$', checked_metrics(daemon), re.M)[1])


def told_slots(daemon):
    return [(".".join(each.namespace.segments), each.database, each.slots) for each in daemon.client.admin.GetStatus(pb.GetStatusRequest()).spread]


def status_of(daemon):
    """The card of the command line, with single spaces."""
    said = subprocess.run([harness.CLI, "status", "--server", daemon.target], stdout=subprocess.PIPE, text=True, check=True).stdout
    return " ".join(said.split())


def rows_of(site, name):
    return [row.split("/")[1] for row in rows(site, name)]


PAIRS = [(("home", "eu"), MORE), (MORE, ("home", "eu")), (("eu", "us"), MORE), (("home", "eu"), ("eu", "us")), (("eu",), NAMES), (NAMES, ("eu",)),
         (("home", "us"), ("eu", "us"))]


@pytest.mark.parametrize(("sections", "at_once"), [*((pair, False) for pair in PAIRS), *((pair, True) for pair in (PAIRS[0], PAIRS[3], PAIRS[6]))])
def test_daemons_with_different_sections_never_give_a_key_to_two(site, sections, at_once):
    """Each daemon is asked for all keys, through and through: a key is in one database at most."""
    if at_once:
        starting = [threading.Thread(target=site.daemon, args=(names,)) for names in sections]
        for thread in starting:
            thread.start()
        for thread in starting:
            thread.join()
    else:
        for names in sections:
            site.daemon(names)
    for round in range(2):
        got = [granted(daemon) for daemon in site.daemons]
        assert round > 0 or any(got)
        held = list(itertools.chain.from_iterable(rows_of(site, name) for name in MORE))
        assert len(held) == len(set(held)), site.sections()
        for daemon in site.daemons:  # what they have in memory changes nothing
            daemon.client.close()
            assert daemon.stop() == 0, daemon.log()
            daemon.start()
            daemon.client = harness.Client(daemon.target)


def test_nothing_is_divided_while_a_database_is_away(site):
    away = site.clusters["eu"]
    away.stop("immediate")
    try:
        daemon = site.daemon(NAMES, wait="listening")
        daemon.port = int(daemon.log().rsplit(" listening grpc=127.0.0.1:", 1)[1].split()[0])
        daemon.client = harness.Client(daemon.target)
        wait_until(lambda: health(daemon.client, "database/home") == "SERVING", BOUND, "home being ready")
        for key in KEYS[:8]:
            assert "the database eu is unavailable" in refusal(daemon, key)
        assert site.psql("home", "select count(*) from leasehold.spread") == "0"
    finally:
        away.start()
    wait_until(lambda: health(daemon.client, "database/eu") == "SERVING", BOUND, "eu being back")
    assert granted(daemon) == KEYS


def test_a_section_that_no_row_names_is_left_alone(site):
    assert granted(site.daemon(NAMES)) == KEYS
    daemon = site.daemon(MORE)
    assert granted(daemon) == []  # they are held, all of them, where the daemon finds them
    for key in KEYS:
        lease = daemon.client.lease.GetLease(pb.GetLeaseRequest(scope=harness.scope("jobs", key))).lease
        assert daemon.client.admin.ForceRelease(pb.ForceReleaseRequest(scope=lease.scope, reason="r")).lease.token == lease.token
    assert granted(daemon) == KEYS
    assert site.sections() == {"home": "eu home", "eu": "eu home", "us": ""}


def test_a_section_that_a_daemon_lacks_has_its_keys_for_itself(site):
    all_of_them, some = site.daemon(MORE), None
    leases = {key: acquire(all_of_them, key, seconds=600) for key in KEYS}
    some = site.daemon(NAMES)
    missing = [key for key in KEYS if place(key, MORE) == "us"]
    for key in missing:
        assert refusal(some, key) == (f"no database of this daemon has this key of jobs: its keys are in the sections eu, home, us, "
                                      f"this daemon has eu, home: call again with the same lease key")
        with fails() as failure:
            some.client.lease.GetLease(pb.GetLeaseRequest(scope=harness.scope("jobs", key)))
        assert failure.value.reason == "DATABASE_UNAVAILABLE"
    answer = some.client.lease.Heartbeat(pb.HeartbeatRequest(leases=map(lease_ref, leases.values())))
    assert [result.outcome for result in answer.results] == [pb.OUTCOME_RETRY if key in missing else pb.OUTCOME_OK for key in KEYS]
    assert harness.heartbeat(some.client, leases[missing[0]]).outcome == pb.OUTCOME_RETRY
    for lease in leases.values():
        assert harness.heartbeat(all_of_them.client, lease).outcome == pb.OUTCOME_OK


def test_a_daemon_that_does_not_spread_gets_no_key_of_others(site):
    site.daemon(NAMES)
    path = site.path / "alone.ini"
    path.write_text(f"[leasehold]\n[database home]\ndatabase = {site.clusters['home'].url(site.databases['home'])}\ndefault = yes\n")
    path.chmod(0o644)
    daemon = harness.Daemon("--config", str(path))
    daemon.client = harness.Client(daemon.target)
    site.daemons.append(daemon)
    for key in KEYS:
        if place(key) == "home":
            assert acquire(daemon, key).token > 0
        else:
            assert refusal(daemon, key, wait=BOUND).startswith(f"{key} of jobs is in another database; this one has the keys of section home")


# --- keys go elsewhere ---


def test_waiters_of_a_key_that_goes_elsewhere_ask_again(site, stream):
    daemon = site.daemon(NAMES)
    moved, kept = ([key for key in KEYS if place(key) == name][0] for name in ("eu", "home"))
    leases = [acquire(daemon, key, seconds=600) for key in (moved, kept)]
    waiting = [daemon.client.lease.Acquire.future(acquire_request("jobs", key, wait=BOUND)) for key in (moved, kept)]
    held = stream(daemon.client.lease.Hold, pb.HoldRequest(acquire=acquire_request("jobs", moved, wait=BOUND)))
    wait_until(lambda: daemon.client.admin.GetStatus(pb.GetStatusRequest()).waiters == 3, BOUND, "the waiters")
    site.set_slots("eu", [moved], 0)
    for failure in (harness.Failure(waiting[0].exception(BOUND)), held.fails()):
        assert failure.reason == "DATABASE_UNAVAILABLE", failure
        assert "this key of jobs is on its way from database eu to another" in failure.message
    assert harness.heartbeat(daemon.client, leases[0]).outcome == pb.OUTCOME_RETRY  # it may have left its database
    assert daemon.client.lease.Release(release_request(leases[0])).results[0].outcome == pb.OUTCOME_RETRY
    assert "is on its way" in refusal(daemon, moved)
    site.set_slots("home", [moved], 1)
    assert acquire(daemon, moved).token > 0 and moved in rows_of(site, "home")
    assert not waiting[1].done()
    daemon.client.lease.Release(release_request(leases[1]))
    assert waiting[1].result(BOUND).lease.scope.key == kept
    assert {lease.scope.key for lease in listed(daemon, "jobs")} == {moved, kept}


def test_a_key_that_two_databases_have_is_given_by_neither(site):
    """As after a restore of an older backup."""
    daemon = site.daemon(NAMES)
    key, alone = ([key for key in KEYS if place(key) == name][0] for name in ("eu", "home"))
    site.set_slots("home", [key], 1)
    assert refusal(daemon, key).startswith("the databases eu and home both say that they have this key of jobs: ")
    assert acquire(daemon, alone).token > 0
    assert metric_slots(daemon, "") == 1
    assert told_slots(daemon)[-1] == ("jobs", "", 1)
    assert status_of(daemon).endswith(", no database or several 1")
    site.set_slots("eu", [key], 0)
    assert acquire(daemon, key).token > 0 and key in rows_of(site, "home")


# --- pages of one daemon, asked of another ---


def queue(daemon, page_token="", page_size=2, **more):
    more = urllib.parse.urlencode({"namespace": "jobs", "page_size": page_size, "page_token": page_token, **more})
    return Console(daemon.admin_port).get(f"/queue?{more}")


@pytest.fixture
def waiting(site):
    """Two daemons whose sections stand in another order, and a waiter for each key."""
    daemons = [site.daemon(names) for names in (MORE, MORE[::-1])]
    for key in KEYS:
        acquire(daemons[0], key, seconds=600)
    calls = [daemons[1].client.lease.Acquire.future(acquire_request("jobs", key, wait=BOUND)) for key in KEYS]
    wait_until(lambda: sum(int(site.psql(name, "select count(*) from leasehold.waiter")) for name in MORE) == len(KEYS), BOUND, "the waiters")
    yield daemons
    for call in calls:
        call.cancel()


@pytest.mark.parametrize("page_size", [1, 2, 5])
def test_pages_of_a_view_may_be_asked_of_daemons_in_turn(waiting, page_size):
    found, page_token = [], ""
    for daemon in itertools.cycle(waiting):
        page = queue(daemon, page_token, page_size).json
        found += [row["scope"]["key"] for row in page["waiters"]]
        page_token = page["next_page_token"]
        if not page_token:
            break
    assert found == sorted(KEYS, key=lambda key: (place(key, MORE), key))


def test_a_page_that_goes_on_where_a_daemon_has_no_database_is_refused(site, waiting):
    some, other, alone = site.daemon(NAMES), site.daemon(("home", "us")), site.daemon(("us",))  # noqa: F811
    page_token = queue(waiting[0], page_size=1).json["next_page_token"]  # of eu
    assert [row["scope"]["key"] for row in queue(some, page_token).json["waiters"]] == [key for key in KEYS if place(key, MORE) == "eu"][1:3]
    for daemon in (other, alone):
        answer = queue(daemon, page_token)
        assert answer.status == 400
        assert "page_token goes on in database eu, which this daemon does not have: ask for the first page" in answer.error["message"]
    of_key = queue(waiting[0], page_size=1, key=KEYS[0])
    assert of_key.json["waiters"] and not of_key.json["next_page_token"]


# --- other sections for all daemons, in a pause ---


def freeze(site, is_frozen):
    request = pb.SetPolicyRequest(policy=pb.Policy(namespace=namespace("jobs"), frozen=BoolValue(value=is_frozen)))
    request.update_mask.paths.append("frozen")
    site.client.admin.SetPolicy(request, timeout=BOUND)


def move(site, sections):
    """As docs/run/daemon.md tells it: freeze; wait until nothing is held; no row is left; new sections for all daemons; raise the tokens;
    thaw."""
    freeze(site, True)
    with fails() as failure:
        site.acquire("jobs", KEYS[0])
    assert failure.value.reason == "NAMESPACE_FROZEN"
    assert not listed(site, "jobs")
    site.close()
    for name in site.databases:
        site.psql(name, "delete from leasehold.spread where namespace = 'jobs'; select leasehold.bump_epoch()")
    site.sections = sections
    site.daemon = harness.Daemon("--config", write_spread(site.path, site))
    site.client = harness.Client(site.daemon.target)
    for name in (section[0] for section in sections):
        wait_until(lambda: health(site.client, f"database/{name}") == "SERVING", BOUND, f"{name} being ready")
    freeze(site, False)


def tokens(site):
    leases = [site.acquire("jobs", key) for key in KEYS]
    site.client.lease.Release(release_request(*leases))
    return {lease.scope.key: lease.token for lease in leases}


def test_keys_move_to_one_more_database_and_back(cluster, other, tmp_path):  # noqa: F811
    site = start(cluster, other, tmp_path / "leasehold.ini")
    site.clusters["us"] = other
    site.databases["us"] = other.create_database(migrated=True)
    two, three = site.sections, [*site.sections, ("us", site.url("us"), "", "no")]
    before = tokens(site)
    move(site, three)
    between = tokens(site)
    moved = [key for key in KEYS if place(key, MORE) == "us"]
    assert 2 < len(moved) < len(KEYS) / 2
    assert site.psql("us", "select array_agg(key order by key) from leasehold.scope") == "{" + ",".join(moved) + "}"
    move(site, two)
    after = tokens(site)
    assert all(before[key] < between[key] < after[key] for key in KEYS), (before, between, after)
    site.close()
