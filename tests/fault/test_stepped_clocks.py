"""Promise 9 where SQL users meet a step of the clock, or a pause of the whole server, before any daemon does; and where clients keep transactions open
meanwhile. Nobody who could not renew loses a lease."""
import contextlib
import os
import pathlib
import signal
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import harness  # noqa: E402
from harness import acquire_request, lease_ref, pb, wait_until  # noqa: E402
from place import SteppedCluster  # noqa: E402

COUNT = 30


class Site:
    """A cluster whose clock can be stepped, a daemon that has granted leases, and an SQL user who wants them."""

    def __init__(self, seconds, settings=()):
        self.cluster = SteppedCluster(settings)
        self.database = self.cluster.create_database(migrated=True)
        self.daemon = harness.Daemon(database=self.cluster.url(self.database).replace(harness.PATIENCE, ""))
        self.client = harness.Client(self.daemon.target)
        self.leases = [self.client.lease.Acquire(acquire_request("life", f"k{n}", seconds)).lease for n in range(COUNT)]
        self.thieves = [self.cluster.session(self.database) for unused in range(2)]

    def psql(self, sql):
        return self.cluster.psql(sql, self.database)

    def life(self):
        return int(self.psql("select max(id) from leasehold.incarnation"))

    def steal(self, thief):
        """What an SQL user can take over, and what its reaper ends."""
        taken = thief.run(f"select count(*) from generate_series(0, {COUNT - 1}) n, leasehold.acquire('life', 'k' || n, '30 s', owner => 'thief')")
        return taken, thief.run("select count(*) from leasehold.reap()")

    def renew(self):
        return {result.outcome for result in self.client.lease.Heartbeat(
            pb.HeartbeatRequest(leases=[lease_ref(lease) for lease in self.leases])).results}

    def close(self):
        self.daemon.destroy()
        self.cluster.destroy()


@pytest.fixture
def site(request):
    site = Site(*request.param)
    yield site
    site.close()


def until_noticed(site, before):
    """Try to take everything until a daemon has seen what happened, and for as long again."""
    ends = None
    while ends is None or time.monotonic() < ends:
        for thief in site.thieves:
            assert site.steal(thief) == ("0", "0"), "somebody lost a lease that could not be renewed"
        if ends is None and site.life() > before:
            ends = time.monotonic() + 2


# Promise 9.
@pytest.mark.parametrize("site", [(60,)], indirect=True)
def test_sql_users_meet_a_step_of_the_clock_before_the_daemon(site):
    total = 0
    for step in (18, 200, 400, 86400):
        wait_until(lambda: site.renew() == {pb.OUTCOME_OK}, what="the daemon to be at work")
        before = site.life()
        total += step
        site.cluster.step(total)
        until_noticed(site, before)
        assert site.renew() == {pb.OUTCOME_OK}, f"a step of {step} s cost somebody a lease"
    assert site.psql("select count(*) from leasehold.coordinator") == "1"


@pytest.mark.parametrize("site", [(60,)], indirect=True)
def test_a_daemon_that_is_stopped_does_not_notice_a_step_and_sql_users_do(site):
    site.daemon.signal(signal.SIGSTOP)
    site.cluster.step(400)
    for thief in site.thieves:
        assert site.steal(thief) == ("0", "0")
    site.daemon.signal(signal.SIGCONT)
    wait_until(lambda: site.renew() == {pb.OUTCOME_OK}, what="every lease renewed")


@pytest.mark.parametrize("site", [(60,)], indirect=True)
def test_the_daemon_leaves_in_the_moment_of_a_step(site):
    site.daemon.signal(signal.SIGSTOP)
    site.cluster.step(400)
    site.psql("select leasehold_internal.coordinator_unregister(id) from leasehold.coordinator")
    for thief in site.thieves:
        assert site.steal(thief) == ("0", "0")
    site.daemon.signal(signal.SIGCONT)
    wait_until(lambda: site.renew() == {pb.OUTCOME_OK}, what="every lease renewed")


def stop_processes(cluster):
    """Returns them."""
    postmaster = int((cluster.data / "postmaster.pid").read_text().split()[0])
    os.kill(postmaster, signal.SIGSTOP)  # first, so that it starts no more
    children = [int(pid) for pid in pathlib.Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()]
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    return [postmaster, *children]


# As a machine that is moved: everything of the server stops and goes on, and its clock is right.
@pytest.mark.parametrize("site", [(15,)], indirect=True)
def test_the_whole_server_is_stopped_for_longer_than_leases_live(site):
    assert site.renew() == {pb.OUTCOME_OK}
    before = site.life()
    stopped = stop_processes(site.cluster)
    until = time.monotonic() + 18
    wait_until(lambda: time.monotonic() > until, what="the expiry of every lease, and the time after which a daemon is forgotten")
    for pid in reversed(stopped):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    thief = site.thieves[0]
    assert site.steal(thief) == ("0", "0")
    wait_until(lambda: site.renew() == {pb.OUTCOME_OK}, what="every lease renewed")
    assert site.life() > before and site.steal(thief) == ("0", "0")


# A client's open transaction, of whatever isolation, and a prepared one that outlives the server.
@pytest.mark.parametrize("site", [(20, ("max_prepared_transactions = 4",))], indirect=True)
@pytest.mark.parametrize("isolation", ["repeatable read", "serializable", "read committed"])
def test_a_client_keeps_a_transaction_open_while_a_new_life_begins(site, isolation):
    key = "00000000-0000-4000-8000-000000000001"
    renew = f"select count(*) from leasehold.acquire('x', 'r', '1 h', lease_key => '{key}', at_least => '1 min')"
    assert site.psql(renew) == "1"
    client = site.cluster.session(site.database)
    client.run(f"begin isolation level {isolation}")
    assert client.run(renew) == "1"
    before = site.life()
    site.cluster.step(60)
    until_noticed(site, before)
    assert site.renew() == {pb.OUTCOME_OK}, "a step cost somebody a lease"

    client.run("prepare transaction 'kept'")
    # A reaper that has noticed the restart and never ends its transaction.
    site.daemon.kill()
    site.cluster.stop("immediate")
    site.cluster.step(120)
    site.cluster.start()
    reaper = site.cluster.session(site.database)
    assert reaper.run("begin; select count(*) from leasehold.reap(); prepare transaction 'reaped'") == "0"
    site.daemon.start()
    site.client = harness.Client(site.daemon.target)
    site.thieves = [reaper]
    assert site.steal(reaper) == ("0", "0") and site.renew() == {pb.OUTCOME_OK}, "a restart cost somebody a lease"
    # It was a delay, no amnesty: whatever is prepared, who does not renew is reaped.
    wait_until(lambda: site.psql("select count(*) from leasehold.lease where namespace = 'life'") == "0", 120, "the end of every lease")
    assert site.psql("select count(*) from pg_prepared_xacts") == "2"


# Promise 5: only a guard that is open for max_guard is ended with its session.
@pytest.mark.parametrize("site", [(60,)], indirect=True)
def test_a_guard_is_not_ended_because_the_clock_stepped_forward(site):
    look = "select coalesce(min(seen_at), '-infinity') from leasehold.guard_session"
    site.psql("create role guard_user login in role leasehold_client; grant pg_signal_backend to leasehold_owner")
    client = site.cluster.session(site.database, "guard_user")
    client.run("begin")
    assert client.run(f"select leasehold.guard('life', 'k0', {site.leases[0].token})") == ""
    wait_until(lambda: site.psql(look) != "-infinity", what="a daemon to see the guard")
    before = site.life()
    site.cluster.step(3600)
    stepped_at = site.psql("select clock_timestamp() - interval '30 min'")
    wait_until(lambda: site.life() > before, what="a daemon to see the step")
    wait_until(lambda: site.psql(f"select ({look}) > '{stepped_at}'") == "t", what="the guard to be counted anew")
    assert client.run("select 'open'") == "open"
    client.run("commit")
