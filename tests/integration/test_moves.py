"""deploy/move-namespace: a namespace moves to another database with its leases, and nothing that goes wrong on the way gives a lease
to two."""
import contextlib
import os
import signal
import subprocess

import pytest

import harness
from databases import AGE, Site, listed, name, rows, write_settings
from harness import acquire_request, fails, lease_ref, pb, release_request, wait_until
from streams import BOUND

PROGRAM = str(harness.ROOT / "deploy/move-namespace")


def move(step, site, namespace="moving", source="home", target="eu"):
    return subprocess.run([PROGRAM, step, namespace, site.url(source), site.url(target)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)


@contextlib.contextmanager
def under_way(step, site):
    """The program in a process group of its own, which is killed when it has not ended by then."""
    process = subprocess.Popen([PROGRAM, step, "moving", site.url("home"), site.url("eu")],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
        process.stdout.close()


def sleeps_in(process):
    """Is one of its process group a sleep between two looks?"""
    return subprocess.run(["pgrep", "-g", str(process.pid), "-x", "sleep"], stdout=subprocess.DEVNULL).returncode == 0


def refused(words, *step, **more):
    said = move(*step, **more)
    assert said.returncode == 1 and words in said.stdout, said.stdout


def moved(step, site):
    said = move(step, site)
    assert said.returncode == 0, said.stdout


def restart(site, place):
    """`moving` is in `place` from now on."""
    write_settings(site.path, [("home", site.url("home"), "", "yes"), ("eu", site.url("eu"), "moving" if place == "eu" else "orders", "no")])
    site.client.close()
    assert site.daemon.stop() == 0, site.daemon.log()
    site.daemon.start()
    site.client = harness.Client(site.daemon.target)
    site.wait()


@pytest.fixture
def moving(cluster, tmp_path):
    """`moving` lives in home, whose tokens are ahead of those of eu."""
    site = Site(cluster, cluster, tmp_path / "leasehold.ini")
    site.psql("home", "select leasehold.bump_epoch(); select setval('leasehold.token', last_value + (1::bigint << 50)) from leasehold.token")
    yield site
    site.close()


def test_a_namespace_moves_with_its_leases_and_tokens_only_grow(moving):
    site = moving
    site.client.admin.SetPolicy(pb.SetPolicyRequest(
        policy=pb.Policy(namespace=pb.Namespace(segments=["moving", "slow"]), grace=harness.duration(7)), update_mask={"paths": ["grace"]}))
    held = [site.acquire(namespace, "held", seconds=120) for namespace in ("moving", "moving.slow", "movingx")]
    shared = [site.acquire("moving", "shared", seconds=120, mode=pb.MODE_SHARED) for _ in range(2)]
    free = site.acquire("moving", "free")
    site.client.lease.Release(release_request(free))
    ended = site.acquire("moving", "ended")
    smaller = site.acquire("moving", "smaller", seconds=120)
    leaves = [site.acquire("moving", "left", seconds=120, mode=pb.MODE_SHARED) for _ in range(2)]
    later = site.acquire("moving", "later", seconds=120)
    expired = site.acquire("moving", "expired", seconds=120)
    moved("start", site)
    refused("it was started already", "start", site)
    with fails() as failure:
        site.acquire("moving", "free")
    assert failure.value.reason == "NAMESPACE_FROZEN"
    for lease in (ended, leaves[0]):
        assert site.client.lease.Release(release_request(lease)).results[0].outcome == pb.OUTCOME_OK
    smaller = site.client.lease.Downgrade(pb.DowngradeRequest(lease=lease_ref(smaller))).lease
    site.psql("home", f"{AGE} where key = 'expired'")
    assert harness.heartbeat(site.client, expired).outcome == pb.OUTCOME_OK  # nothing expires
    refused("these daemons were not restarted", "finish", site)

    restart(site, "eu")
    for lease in (*held, *shared):
        beat = wait_until(lambda: harness.heartbeat(site.client, lease), BOUND)
        assert beat.outcome == pb.OUTCOME_OK, beat
    assert site.client.lease.Release(release_request(later)).results[0].outcome == pb.OUTCOME_OK
    with fails() as failure:
        site.acquire("moving", "free")
    assert failure.value.reason == "NAMESPACE_FROZEN"
    moved("finish", site)

    for lease in (*held, *shared, smaller, leaves[1]):
        assert harness.heartbeat(site.client, lease).outcome == pb.OUTCOME_OK
    assert [name(lease) for lease in listed(site, "moving", include_children=True)] == [
        "moving/expired", "moving/held", "moving/left", "moving/shared", "moving/shared", "moving/smaller", "moving.slow/held"]
    got = site.client.lease.GetLease(pb.GetLeaseRequest(scope=smaller.scope)).lease
    assert (got.token, got.mode) == (smaller.token, pb.MODE_SHARED)
    for key in ("ended", "later"):
        assert site.acquire("moving", key).token > ended.token
    assert site.acquire("moving", "smaller", mode=pb.MODE_SHARED).token > smaller.token
    assert rows(site, "home") == ["movingx/held"]
    assert "moving/held" in rows(site, "eu")
    assert site.acquire("moving", "free").token > max(lease.token for lease in (*held, *shared, free, expired, ended))
    waiting = site.client.lease.Acquire.future(acquire_request("moving", "held", wait=BOUND))
    wait_until(lambda: site.client.admin.GetStatus(pb.GetStatusRequest()).waiters == 1, BOUND, "the waiter")
    assert site.client.lease.Release(release_request(held[0])).results[0].outcome == pb.OUTCOME_OK
    assert waiting.result(BOUND).lease.token > held[0].token
    with fails() as failure:  # its lease key has ended
        site.acquire("moving", "free", lease_key=free.lease_key)
    assert failure.value.reason == "LEASE_ENDED"
    got = site.client.admin.GetPolicy(pb.GetPolicyRequest(namespace=pb.Namespace(segments=["moving", "slow"]))).effective
    assert (got.grace.seconds, got.frozen.value, got.expiry) == (7, False, pb.Policy.EXPIRY_TAKEOVER)
    late = site.clusters["home"].psql("select leasehold.acquire('moving', 'late', '1 s')", site.databases["home"], check=False)
    assert "namespace_frozen" in late.stderr  # where it was, for a daemon that was forgotten
    assert site.psql("home", "select count(*) from leasehold_move.source") == "0"


RUN_NOW = "select leasehold.run_schedule_now('moving.nightly')"


def claim(site, database):
    """(lease key, token) of the next tick."""
    return site.psql(database, "select (c.lease).lease_key, (c.lease).token from leasehold.claim_tick('moving.nightly', duration => '10 min') c").split("|")


def claim_new(site, database):
    """The same of one that is asked for now; a tick that runs has its second for itself."""
    return wait_until(lambda: site.psql(database, RUN_NOW) and (claimed := claim(site, database))[1:] and claimed, BOUND, "a tick")


def ticks(site, database):
    return site.psql(database, "select state || ' ' || attempts from leasehold.tick where schedule = 'moving.nightly' order by token nulls last, at").splitlines()


def end_tick(site, database, lease_key):
    assert site.psql(database, "select leasehold.release_ok(namespace, key, lease_key) from leasehold.scope "
                     f"where namespace = 'moving.nightly' and lease_key = '{lease_key}'") == "t"


def test_schedules_move_with_their_ticks(moving):
    site = moving
    site.psql("home", "select leasehold.set_schedule('moving.nightly', '@yearly', overlap => 2), leasehold.set_schedule('movingx', '@yearly')")
    claims = [claim_new(site, "home"), claim_new(site, "home")]
    moved("start", site)
    assert ticks(site, "eu") == ticks(site, "home") == ["running 1", "running 1"]
    end_tick(site, "home", claims[0][0])
    site.psql("home", RUN_NOW)  # while it is frozen
    frozen = site.clusters["home"].psql("select leasehold.claim_tick('moving.nightly')", site.databases["home"], check=False)
    assert "namespace_frozen" in frozen.stderr

    restart(site, "eu")
    end_tick(site, "eu", claims[1][0])
    moved("finish", site)
    assert ticks(site, "eu") == ["done 1", "done 1", "due 0"]
    assert int(claim(site, "eu")[1]) > max(int(token) for _, token in claims)
    claim_new(site, "eu")  # both places are free again
    count = "select count(*), (select count(*) from leasehold.registered_hook) from leasehold.schedule"
    assert (site.psql("home", count), site.psql("eu", count)) == ("1|4", "1|4")
    refused("TO has 1 leases, waiters and schedules in movingx", "start", site, namespace="movingx", source="eu", target="home")


def test_schedules_stay_when_a_move_is_undone(moving):
    site = moving
    site.psql("home", "select leasehold.set_schedule('moving.nightly', '@yearly'), leasehold.run_schedule_now('moving.nightly')")
    moved("start", site)
    moved("undo", site)
    assert (ticks(site, "home"), ticks(site, "eu")) == (["due 0"], [])
    assert site.psql("eu", "select count(*) from leasehold.schedule") == site.psql("eu", "select count(*) from leasehold.registered_hook") == "0"
    assert len(claim(site, "home")) == 2


def test_a_move_is_undone(moving):
    site = moving
    held = site.acquire("moving", "held", seconds=120)
    moved("start", site)
    moved("undo", site)
    assert rows(site, "eu") == [] and site.psql("eu", "select count(*) from leasehold_move.target") == "0"
    assert harness.heartbeat(site.client, held).outcome == pb.OUTCOME_OK
    assert site.acquire("moving", "free").token > held.token
    moved("start", site)
    moved("undo", site)
    held = site.acquire("moving", "again", seconds=120)
    moved("start", site)
    restart(site, "eu")
    moved("finish", site)
    assert harness.heartbeat(site.client, held).outcome == pb.OUTCOME_OK
    assert site.acquire("moving", "new").token > held.token


# --- and goes wrong ---


def holds_alone(site, lease):
    """It is held by this lease, and by nobody beside it."""
    assert harness.heartbeat(site.client, lease).outcome == pb.OUTCOME_OK
    with fails() as failure:
        site.acquire("moving", lease.scope.key)
    assert failure.value.reason == "LEASE_HELD"


def test_an_undo_after_a_daemon_was_restarted_gives_no_lease_to_two(moving):
    site = moving
    held, other = (site.acquire("moving", key, seconds=120) for key in ("held", "other"))
    moved("start", site)
    restart(site, "eu")
    assert harness.heartbeat(site.client, held).outcome == pb.OUTCOME_OK
    smaller = site.client.lease.Downgrade(pb.DowngradeRequest(lease=lease_ref(other))).lease
    moved("undo", site)
    for key in ("held", "free"):  # the daemon still asks eu
        with fails() as failure:
            site.acquire("moving", key)
        assert failure.value.reason == "NAMESPACE_FROZEN"
    restart(site, "home")
    holds_alone(site, held)
    assert site.acquire("moving", "free").token > smaller.token > held.token


def test_a_start_that_was_interrupted_is_not_finished(moving):
    site = moving
    held = site.acquire("moving", "held", seconds=120)
    old = site.clusters["home"].session(site.databases["home"])
    old.run("begin; select leasehold.acquire('elsewhere', 'k', '1 h')")
    with under_way("start", site):
        wait_until(lambda: site.psql("home", "select count(*) from leasehold.policy where frozen and namespace = 'moving'") == "1", BOUND)
    old.run("commit")
    restart(site, "eu")
    refused("start was interrupted", "finish", site)
    assert rows(site, "home") == ["elsewhere/k", "moving/held"]
    restart(site, "home")
    moved("undo", site)
    holds_alone(site, held)


def test_a_finish_that_was_interrupted_is_not_undone(moving):
    site = moving
    held = site.acquire("moving", "held", seconds=120)
    moved("start", site)
    restart(site, "eu")
    lock = site.clusters["eu"].session(site.databases["eu"])
    lock.run("begin; select from leasehold.policy where namespace = 'moving' for update")
    with under_way("finish", site):
        wait_until(lambda: rows(site, "home") == [], BOUND, "the leases being removed from where they were")
    lock.run("rollback")
    refused("finish has begun", "undo", site)
    assert rows(site, "eu") == ["moving/held"]
    for _ in range(2):
        said = move("finish", site)
    assert said.returncode == 1 and "it was not started" in said.stdout
    holds_alone(site, held)
    assert site.acquire("moving", "free").token > held.token


def test_a_transaction_that_acquired_before_the_freeze_is_waited_for(moving):
    site = moving
    old = site.clusters["home"].session(site.databases["home"])
    old.run("begin; select leasehold.acquire('moving', 'late', '1 h')")
    with under_way("start", site) as start:
        wait_until(lambda: site.psql("home", "select count(*) from leasehold.policy where frozen") == "1", BOUND)
        wait_until(lambda: start.poll() is not None or sleeps_in(start), BOUND, "it to look again and again")
        old.run("commit")
        assert start.wait(BOUND) == 0, start.stdout.read()
    assert rows(site, "home") == rows(site, "eu") == ["moving/late"]


def test_a_move_with_other_databases_is_refused(moving):
    site = moving
    held = site.acquire("moving", "held", seconds=120)
    refused("TO has 1 leases, waiters and schedules in moving", "start", site, source="eu", target="home")
    refused("FROM and TO are the same database", "start", site, source="eu", target="eu")
    moved("start", site)
    restart(site, "eu")
    site.clusters["third"] = site.clusters["eu"]
    site.databases["third"] = site.clusters["third"].create_database()
    refused("TO is another database", "finish", site, target="third")
    said = subprocess.run([PROGRAM, "finish", "moving", site.url("home") + "-gone", site.url("eu")],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    assert said.returncode != 0 and "it was not started" not in said.stdout and "does not exist" in said.stdout
    moved("finish", site)
    holds_alone(site, held)


def test_hooks_above_the_namespace_are_compared_too(moving):
    site = moving
    site.psql("home", """create function public.note(leasehold.lease_event) returns void language sql as '';
                         select leasehold.add_hook('', 'acquire', 'public.note(leasehold.lease_event)')""")
    refused("different hooks in moving or above it", "start", site)
    assert site.psql("home", "select count(*) from leasehold.policy where frozen") == "0"
