"""leasehold.history under a real daemon: what ended how, and that looking after its partitions is in nobody's way."""
import pytest

import harness
from harness import acquire_request, lease_ref, pb, release_request, wait_until


@pytest.fixture(scope="module")
def kept(service):
    service.psql("select leasehold.set_policy('h', history => true, min_duration => '100 ms', grace => '0 s')")
    return service


def holds(service, key):
    return service.psql(f"select outcome, owner, result, error, ended_by from leasehold.history where namespace = 'h' and key = '{key}' order by token")


def test_every_way_a_lease_ends_is_written_down(kept, cluster):
    take = lambda key, seconds=30: kept.client.lease.Acquire(acquire_request("h", key, seconds, owner="w")).lease  # noqa: E731
    kept.client.lease.Release(release_request(take("ok"), success='{"n": 1}'))
    kept.client.lease.Release(release_request(take("failed"), failure="disk full"))
    assert holds(kept, "ok") == 'ok|w|{"n": 1}||' and holds(kept, "failed") == "failed|w||disk full|"
    take("reaped", 0.1)
    wait_until(lambda: holds(kept, "reaped") == "expired|w|||", what="the reaped lease in the history")
    forced = take("forced")
    kept.client.admin.ForceRelease(pb.ForceReleaseRequest(scope=forced.scope, reason="host is gone"))
    assert holds(kept, "forced") == "forced|w||host is gone|postgres"
    assert f"LOG:  lease forced scope=h/forced token={forced.token} owner=w by=postgres: host is gone" in (cluster.data / "log").read_text()
    result = kept.client.lease.Heartbeat(pb.HeartbeatRequest(leases=[lease_ref(forced)])).results[0]
    assert (result.outcome, result.end_reason) == (pb.OUTCOME_LOST, pb.END_REASON_FORCED)


def test_a_takeover_writes_down_the_hold_before(kept):
    kept.psql("select leasehold.set_policy('h.taken', reaper => 'external')")
    kept.client.lease.Acquire(acquire_request("h.taken", "k", 0.1, owner="first"))
    kept.client.lease.Acquire(acquire_request("h.taken", "k", 30, owner="second", wait=20))
    assert kept.psql("select outcome, owner from leasehold.history where namespace = 'h.taken'") == "expired|first"


def test_a_daemon_makes_and_drops_partitions_and_holds_up_nobody(kept, cluster):
    count = lambda day: kept.psql(f"select count(*) from leasehold.history_days() d where d = '{day}'")  # noqa: E731
    look = "update leasehold.history_keeping set look_at = clock_timestamp()"
    kept.psql("select leasehold.make_history_days('2020-02-01 12:00+00')")
    kept.client.lease.Acquire(acquire_request("h", "open", 30, lease_key="00000000-0000-4000-8000-000000000001"))
    # An open transaction that has ended a lease, and an open report: a table cannot go under either.
    writer, reader = kept.session(), kept.session()
    writer.run("begin")
    assert writer.run("select leasehold.release_ok('h', 'open', '00000000-0000-4000-8000-000000000001')") == "t"
    reader.run("begin")
    reader.run("select count(*) from leasehold.history")
    for session in (writer, reader):
        kept.psql(look)
        wait_until(lambda: kept.psql("select look_at > clock_timestamp() from leasehold.history_keeping") == "t", what="a daemon that looked")
        assert count("2020-02-01") == "1", "the partition is still there"
        lease = kept.client.lease.Acquire(acquire_request("h", "other")).lease
        assert kept.client.lease.Release(release_request(lease)).results[0].outcome == pb.OUTCOME_OK
        session.run("commit")
        session.close()

    def is_gone():
        kept.psql(look)
        return kept.psql("select count(*) from leasehold.history_days() d where d < '2021-01-01'") == "0"

    wait_until(is_gone, what="the old partitions dropped")
    # Made again by the daemon, where they are missing.
    kept.psql("do $$ begin execute (select 'drop table ' || string_agg(format('leasehold.%I', leasehold.history_partition(d)), ', ') "
              "from leasehold.history_days() d where d > current_date + 1); end $$")
    kept.psql(look)
    wait_until(lambda: kept.psql("select count(*) from leasehold.history_days() d where d > current_date + 1") >= "2",
               what="the partitions of the next days")


def test_the_history_is_for_readers_and_has_no_lease_keys(kept, cluster):
    kept.psql("do $$ begin create role h_reader login in role leasehold_reader; exception when duplicate_object then null; end $$")
    seen = cluster.psql("select count(*) > 0, count(*) filter (where to_jsonb(h) ? 'lease_key') from leasehold.history h", kept.database, user="h_reader")
    assert seen == "t|0"
    summary = cluster.psql("select namespace, held >= 0 from leasehold.lease_summary", kept.database, user="h_reader", check=False)
    assert summary.returncode == 0, summary.stderr
