"""Promises 2 and 9 under real faults: a standby that lost commits is promoted, a dump is restored elsewhere, PostgreSQL is away for longer
than every lease lives, its clock is stepped, no daemon runs while cron reaps. Tokens grow through all of it, and nobody who
could not renew loses a lease."""
import os
import pathlib
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import harness  # noqa: E402
from harness import acquire_request, heartbeat, lease_ref, pb, release_request, wait_until  # noqa: E402
from place import Standby, SteppedCluster  # noqa: E402


def cli(*args):
    return subprocess.run([harness.CLI, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)


def migrate(cluster, database):
    done = cli("migrate", "--database", cluster.url(database))
    assert done.returncode == 0, done.stderr


def key_of(number):
    return f"00000000-0000-4000-8000-{number:012d}"


def until_expired(cluster, database, namespace):
    wait_until(lambda: cluster.psql("select clock_timestamp() > max(deadline + grace) from leasehold.scope "
                                    f"where namespace = '{namespace}'", database) == "t", 60, "the expiry of every lease there")


# Promise 2, promise 9. With the source epoch nobody raises it here: the start of the new server is enough.
@pytest.mark.parametrize("source", ["wal", "epoch"])
def test_a_standby_that_lost_commits_is_promoted(cluster, source):
    database = cluster.create_database()
    migrate(cluster, database)
    if source == "epoch":
        cluster.psql("revoke execute on function pg_control_system(), pg_walfile_name(pg_lsn), pg_current_wal_lsn() from public; "
                     "select leasehold.set_life_source('epoch')", database)
    standby = Standby(cluster)
    try:
        daemon = harness.Daemon("--max-block", "0", database=f"host={cluster.sockets},{standby.sockets} dbname={database} user=postgres target_session_attrs=read-write")
        client = harness.Client(daemon.target)
        take = lambda key, seconds=12: client.lease.Acquire(acquire_request("life", key, seconds, owner=key)).lease  # noqa: E731
        kept, handed, ended = take("kept"), take("handed"), take("ended")
        standby.catch_up()
        standby.cut()
        # What the standby will not know: heartbeats, a release with the next grant, a release, and grants of new scopes.
        client.lease.Release(release_request(handed, ended))
        lost = [take("handed", 60)] + [take(f"new{n}", 60) for n in range(100)]
        highest = max(lease.token for lease in lost)

        def is_renewed_for_longer_than_its_duration():
            assert heartbeat(client, kept).outcome == pb.OUTCOME_OK
            return cluster.psql("select clock_timestamp() > acquired_at + interval '14 s' from leasehold.scope where key = 'kept'", database) == "t"
        wait_until(is_renewed_for_longer_than_its_duration, 60)
        cluster.stop("immediate")
        standby.promote()
        wait_until(lambda: heartbeat(client, kept).outcome != pb.OUTCOME_RETRY, 60, "the daemon on the promoted standby")
        assert heartbeat(client, kept).outcome == pb.OUTCOME_OK, "its heartbeats were lost, its lease is not"
        # The new database believes that these are held as they were, and by whom they were: for a whole duration.
        assert heartbeat(client, lost[0]).outcome == pb.OUTCOME_LOST
        assert standby.psql("select count(*) from leasehold.scope where state = 'held' and key in ('handed', 'ended', 'kept')", database) == "3"
        waiter = client.lease.Acquire.future(acquire_request("life", "handed", 60, wait=60))
        again = [take(f"new{n}", 60) for n in range(100)]
        assert min(lease.token for lease in again) > highest, "a token came again after a failover that lost commits"
        assert waiter.result(60).lease.token > highest
        assert len({lease.token for lease in again}) == 100
        assert daemon.stop() == 0
    finally:
        standby.destroy()


# Promise 9.
def test_postgresql_stops_for_longer_than_every_lease_and_cron_reaps_at_once(cluster):
    database = cluster.create_database()
    migrate(cluster, database)
    cluster.psql("select leasehold.set_policy('', min_duration => '100 ms', grace => '500 ms')", database)
    cluster.psql("select leasehold.reap()", database)
    cluster.psql("select leasehold.acquire('life', 'k' || n, '12 s', lease_key => ('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid) "
                 "from generate_series(1, 50) n", database)
    expiry = float(cluster.psql("select extract(epoch from max(deadline + grace)) from leasehold.scope where namespace = 'life'", database))
    cluster.stop("fast")
    wait_until(lambda: time.time() > expiry, what="the expiry of every lease, as nobody but us can know while it is away")
    cluster.start()
    session = cluster.session(database)
    # Cron is first: again and again, by SQL and by the command line, and an acquirer as well.
    for unused in range(3):
        assert session.run("select count(*) from leasehold.reap()") == "0"
    done = cli("reap", "--once", "--database", cluster.url(database))
    assert done.returncode == 0 and session.run("select count(*) from leasehold.lease") == "50", done.stdout + done.stderr
    assert session.run("select count(*) from generate_series(1, 50) n, leasehold.acquire('life', 'k' || n, '12 s')") == "0"
    renewed = session.run("select count(leasehold.heartbeat('life', 'k' || n, ('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid)) "
                          "from generate_series(1, 50) n")
    assert renewed == "50", "a stop cost somebody a lease"
    # It was a delay, no amnesty: who does not renew now is reaped.
    until_expired(cluster, database, "life")
    assert cluster.psql("select count(*) from leasehold.reap()", database) == "50"


def test_no_daemon_runs_while_cron_reaps(cluster):
    database = cluster.create_database()
    daemon = harness.Daemon(database=cluster.url(database))
    cluster.psql("select leasehold.set_policy('', grace => '500 ms')", database)
    client = harness.Client(daemon.target)
    leases = [client.lease.Acquire(acquire_request("life", f"k{n}", 12)).lease for n in range(20)]
    daemon.kill()
    until_expired(cluster, database, "life")
    wait_until(lambda: cluster.psql("select max(seen_at) < clock_timestamp() - interval '5 s' from leasehold.coordinator", database) == "t")
    done = cli("reap", "--once", "--database", cluster.url(database))
    assert done.returncode == 0 and cluster.psql("select count(*) from leasehold.reap()", database) == "0"
    assert cluster.psql("select count(*) from leasehold.acquire('life', 'k0', '2 s')", database) == "0"
    assert cluster.psql("select state from leasehold.scope where key = 'k0'", database) == "held"
    daemon.start()
    assert cluster.psql("select count(*) from leasehold.reap()", database) == "0", "nobody could renew: cron has to wait for them"
    client = harness.Client(daemon.target)
    results = client.lease.Heartbeat(pb.HeartbeatRequest(leases=[lease_ref(lease) for lease in leases])).results
    assert {result.outcome for result in results} == {pb.OUTCOME_OK}
    # A daemon that goes cleanly says so, and gives each a whole duration: then cron alone decides, by the time alone. (The killed one is forgotten after 15 s.)
    cluster.psql("delete from leasehold.coordinator where seen_at < clock_timestamp() - interval '5 s'", database)
    assert daemon.stop() == 0
    until_expired(cluster, database, "life")
    wait_until(lambda: cluster.psql("select clock_timestamp() > i.started_at + max(s.duration + s.grace) from leasehold.incarnation i, leasehold.scope s "
                                    "where s.namespace = 'life' group by i.id, i.started_at order by i.id desc limit 1", database) == "t", 60, "what its leaving gave them")
    assert cluster.psql("select count(*) from leasehold.reap()", database) == "20"


# Promise 9.
def test_the_clock_of_the_database_is_stepped():
    cluster = SteppedCluster()
    try:
        database = cluster.create_database(migrated=True)
        daemon = harness.Daemon(database=cluster.url(database))
        client = harness.Client(daemon.target)
        leases = [client.lease.Acquire(acquire_request("life", f"k{n}", 20)).lease for n in range(50)]
        rival = client.lease.Acquire.future(acquire_request("life", "k0", 20, wait_forever=True))
        wait_until(lambda: cluster.psql("select count(*) from leasehold.waiter", database) == "1")
        tokens = [lease.token for lease in leases]
        life = lambda: int(cluster.psql("select id from leasehold.incarnation", database))  # noqa: E731
        before = life()
        renew = lambda some: {result.outcome for result in client.lease.Heartbeat(  # noqa: E731
            pb.HeartbeatRequest(leases=[lease_ref(lease) for lease in some])).results}
        cluster.step(3600)
        # From the first moment, before anybody can have noticed.
        assert renew(leases[:25]) == {pb.OUTCOME_OK}, "a step cost somebody a lease"
        assert cluster.psql("select bool_or(deadline + grace < clock_timestamp()) from leasehold.scope where state = 'held'", database) == "t"
        wait_until(lambda: renew(leases[:25]) == {pb.OUTCOME_OK} and life() > before, what="the step noticed")
        assert cluster.psql("select count(*) from leasehold.reap()", database) == "0"
        assert renew(leases) == {pb.OUTCOME_OK} and not rival.done(), "a step cost somebody a lease"
        # And back: nobody is lost either, the daemon is not taken for dead, and who waits is served.
        cluster.step(0)
        assert renew(leases) == {pb.OUTCOME_OK} and not rival.done()
        wait_until(lambda: cluster.psql("select count(*) from leasehold.coordinator where seen_at > clock_timestamp()", database) == "0",
                   what="no sign of life from the future")
        client.lease.Release(release_request(leases[0]))
        assert rival.result(30).lease.token > max(tokens)
        assert daemon.stop() == 0
    finally:
        cluster.destroy()


def dump(cluster, database):
    pg_dump = os.path.join(harness._pg_bin(), "pg_dump")
    return subprocess.run([pg_dump, "-d", cluster.url(database)], stdout=subprocess.PIPE, text=True, check=True).stdout


# Promise 2.
def test_a_dump_with_everything_in_it_is_restored_elsewhere(cluster):
    database = cluster.create_database()
    daemon = harness.Daemon(database=cluster.url(database))
    client = harness.Client(daemon.target)
    cluster.psql("select leasehold.set_policy('life', history => true, grace => '700 ms', max_leases => 100)", database)
    # A hook in a schema of its own that comes after ours in the dump.
    cluster.psql("create schema work; create table work.ended (key text, event text); "
                 "grant usage on schema work to leasehold_owner; grant all on work.ended to leasehold_owner; "
                 "create function work.note(p_event leasehold.lease_event) returns void language sql as "
                 "$$ insert into work.ended values (p_event.key, p_event.event) $$; "
                 "select leasehold.add_hook('life', event, 'work.note(leasehold.lease_event)') from unnest(array['release_ok', 'reap']) event", database)
    held = client.lease.Acquire(acquire_request("life", "held", 12, owner="w")).lease
    done = client.lease.Acquire(acquire_request("life", "done", 30)).lease
    client.lease.Release(release_request(done, success='{"n": 1}'))
    shared = [key_of(number) for number in (1, 2, 3)]
    cluster.psql("select leasehold.set_policy('shares', capacity => 3)", database)
    for key in shared[:2]:
        cluster.psql(f"select leasehold.acquire('shares', 'k', '1 hour', lease_key => '{key}', mode => 'shared')", database)
    text = dump(cluster, database)
    highest = max(client.lease.Acquire(acquire_request("life", f"later{n}", 3)).lease.token for n in range(50))
    assert daemon.stop() == 0
    other = harness.Cluster()
    try:
        for role in ("owner", "client", "reader", "coordinator", "admin"):
            other.psql(f"create role leasehold_{role}", "postgres")
        restored = other.create_database()
        other.psql(text, restored)
        until_expired(other, restored, "life")
        assert other.psql("select count(*) from leasehold.reap()", restored) == "0" and other.psql("select key from leasehold.lease where namespace = 'life'", restored) == "held"
        elsewhere = harness.Daemon(database=other.url(restored))
        client = harness.Client(elsewhere.target)
        assert heartbeat(client, held).outcome == pb.OUTCOME_OK, "a restored lease can be renewed"
        lease = client.lease.Acquire(acquire_request("life", "done", 30)).lease
        assert lease.token > highest, "and tokens are larger than what the old place gave after the dump"
        assert lease.grace.ToMilliseconds() == 700
        for key in shared[:2]:
            assert other.psql(f"select leasehold.heartbeat('shares', 'k', '{key}') is not null", restored) == "t", "shared ones too"
        third = f"select slots, token > {highest} from leasehold.acquire('shares', 'k', '30 s', lease_key => '{shared[2]}', mode => 'shared')"
        assert other.psql(third, restored) == "{3}|t", "and others share it with them"
        client.lease.Release(release_request(lease))
        wait_until(lambda: other.psql("select count(*) from leasehold.lease where namespace = 'life'", restored) == "0", 60, "the end of what was restored and then left")
        assert other.psql("select key, outcome, result from leasehold.history order by ended_at", restored) == 'done|ok|{"n": 1}\ndone|ok|\nheld|expired|'
        assert other.psql("select key, event from work.ended", restored) == "done|release_ok\ndone|release_ok\nheld|reap"
        assert elsewhere.stop() == 0
    finally:
        other.destroy()
