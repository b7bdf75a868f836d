"""leasehold.history under a real daemon: what ended how, and that looking after its partitions is in nobody's way."""
import os
import pwd
import re
import urllib.request

import pytest
from google.protobuf.wrappers_pb2 import Int64Value

import harness
from harness import acquire_request, lease_ref, pb, release_request, wait_until
from test_metrics import Metrics


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
    *hold, by = holds(kept, "forced").split("|")
    assert hold == ["forced", "w", "", "host is gone"] and re.fullmatch(r"127\.0\.0\.1:\d+", by), by
    assert (f"LOG:  audit action=force_release outcome=done principal=anonymous peer={by} namespace=h key=forced token={forced.token} count=1: host is gone"
            in (cluster.data / "log").read_text())
    result = kept.client.lease.Heartbeat(pb.HeartbeatRequest(leases=[lease_ref(forced)])).results[0]
    assert (result.outcome, result.end_reason, result.message) == (pb.OUTCOME_LOST, pb.END_REASON_FORCED, "an administrator ended it")
    stranger = pb.LeaseRef(scope=forced.scope, lease_key="00000000-0000-4000-8000-0000000000ff")
    result = kept.client.lease.Heartbeat(pb.HeartbeatRequest(leases=[stranger])).results[0]
    assert (result.outcome, result.message) == (pb.OUTCOME_LOST, "the server does not know this lease any more, nor how it ended")
    kept.psql("set leasehold.ended_by = 'somebody else'; select leasehold.acquire('h', 'by sql', '30 s', 'w'); "
              "select leasehold.force_release('h', 'by sql', 'host is gone')")
    assert holds(kept, "by sql") == "forced|w||host is gone|postgres"


def test_history_and_audit_name_the_user_of_a_unix_socket(cluster, database, tmp_path):
    path = tmp_path / "s"
    daemon = harness.Daemon("--listen", f"unix:{path}", database=cluster.url(database), wait=False)
    wait_until(lambda: " serving grpc=" in daemon.log(), 60, "a daemon that serves")
    client = harness.Client(f"unix:{path}")
    psql = lambda sql: cluster.psql(sql, database)  # noqa: E731
    lease = client.lease.Acquire(acquire_request("u", "k", 30)).lease
    psql("select leasehold.set_policy('u', history => true)")
    client.admin.ForceRelease(pb.ForceReleaseRequest(scope=lease.scope, reason="host is gone"))
    user = f"user:{pwd.getpwuid(os.geteuid()).pw_name}"
    assert psql("select ended_by from leasehold.history") == user
    psql("select leasehold.set_policy('u', min_duration => '100 ms', grace => '0 s', reaper => 'external')")
    psql("delete from leasehold.audit")
    client.admin.SetPolicy(pb.SetPolicyRequest(policy=pb.Policy(namespace=pb.Namespace(segments=["u"]), max_leases=Int64Value(value=7))))
    client.lease.Acquire(acquire_request("u", "dead", 0.1))
    client.lease.Acquire(acquire_request("u", "alive", 30))
    wait_until(lambda: client.admin.Reap(pb.ReapRequest(namespaces=[pb.Namespace(segments=["u"])])).reaped == 1, what="the lease that is reaped by name")
    client.admin.ForceRelease(pb.ForceReleaseRequest(scope=acquire_request("u", "alive", 30).scope, reason="host is gone"))
    rows = psql("select action, principal, peer, namespace, key, count, reason from leasehold.audit order by at").splitlines()
    assert rows == [f"policy_set|{user}|unix:|u||1|max_leases = 7", f"reap|{user}|unix:|u||1|", f"force_release|{user}|unix:|u|alive|1|host is gone"]
    client.close()
    daemon.destroy()


def test_a_takeover_writes_down_the_hold_before(kept):
    kept.psql("select leasehold.set_policy('h.taken', reaper => 'external')")
    kept.client.lease.Acquire(acquire_request("h.taken", "k", 0.1, owner="first"))
    kept.client.lease.Acquire(acquire_request("h.taken", "k", 30, owner="second", wait=20))
    assert kept.psql("select outcome, owner from leasehold.history where namespace = 'h.taken'") == "expired|first"


def test_a_daemon_makes_and_drops_partitions_and_holds_up_nobody(kept, cluster):
    count = lambda day: kept.psql(f"select count(*) from leasehold_internal.kept_days('history') d where d = '{day}'")  # noqa: E731
    look = "update leasehold.keeping set look_at = clock_timestamp() where name = 'history'"
    kept.psql("set role leasehold_owner; select leasehold_internal.make_days('history', '2020-02-01 12:00+00')")  # as daemons do: they own what they drop
    kept.client.lease.Acquire(acquire_request("h", "open", 30, lease_key="00000000-0000-4000-8000-000000000001"))
    # An open transaction that has ended a lease, and an open report: a table cannot go under either.
    writer, reader = kept.session(), kept.session()
    writer.run("begin")
    assert writer.run("select leasehold.release_ok('h', 'open', '00000000-0000-4000-8000-000000000001')") == "t"
    reader.run("begin")
    reader.run("select count(*) from leasehold.history")
    for session in (writer, reader):
        kept.psql(look)
        wait_until(lambda: kept.psql("select look_at > clock_timestamp() from leasehold.keeping where name = 'history'") == "t", what="a daemon that looked")
        assert count("2020-02-01") == "1", "the partition is still there"
        lease = kept.client.lease.Acquire(acquire_request("h", "other")).lease
        assert kept.client.lease.Release(release_request(lease)).results[0].outcome == pb.OUTCOME_OK
        session.run("commit")
        session.close()

    def is_gone():
        kept.psql(look)
        return kept.psql("select count(*) from leasehold_internal.kept_days('history') d where d < '2021-01-01'") == "0"

    wait_until(is_gone, what="the old partitions dropped")
    # Made again by the daemon, where they are missing.
    kept.psql("do $$ begin execute (select 'drop table ' || string_agg(format('leasehold.%I', leasehold_internal.day_partition('history', d)), ', ') "
              "from leasehold_internal.kept_days('history') d where d > current_date + 1); end $$")
    kept.psql(look)
    wait_until(lambda: kept.psql("select count(*) from leasehold_internal.kept_days('history') d where d > current_date + 1") >= "2",
               what="the partitions of the next days")


def test_partitions_that_cannot_be_looked_after_are_told_of(kept, cluster):
    """As where a publication is for all tables and a table has no replica identity: nothing can be deleted."""
    look = "update leasehold.keeping set look_at = clock_timestamp() where name = 'history'"

    def readyz():
        with urllib.request.urlopen(f"http://127.0.0.1:{kept.daemon.admin_port}/readyz", timeout=30) as answer:
            return answer.read().decode()

    kept.psql("create function public.refuse() returns trigger language plpgsql as $$ begin raise exception 'not today'; end $$; "
              "create trigger refuse before delete on leasehold.history_default for each row execute function public.refuse(); "
              "insert into leasehold.history (namespace, key, token, acquired_at, ended_at, outcome) values ('gone', 'k', 1, '2019-01-01', '2019-01-01', 'ok'); " + look)
    wait_until(lambda: "\nwarning: the partitions of leasehold.history cannot be looked after since" in readyz(), 60, what="a warning")
    assert "old rows of the default partition cannot be deleted: not today" in readyz()
    assert Metrics(kept.daemon).get("leasehold_database_keeping_failed") == 1
    kept.psql("drop trigger refuse on leasehold.history_default; drop function public.refuse(); " + look)
    wait_until(lambda: "warning" not in readyz(), 60, what="a warning that is over")
    assert kept.psql("select count(*) from leasehold.history where namespace = 'gone'") == "0"


def test_the_history_is_for_readers_and_has_no_lease_keys(kept, cluster):
    kept.psql("do $$ begin create role h_reader login in role leasehold_reader; exception when duplicate_object then null; end $$")
    seen = cluster.psql("select count(*) > 0, count(*) filter (where to_jsonb(h) ? 'lease_key') from leasehold.history h", kept.database, user="h_reader")
    assert seen == "t|0"
    summary = cluster.psql("select namespace, held >= 0 from leasehold.lease_summary", kept.database, user="h_reader", check=False)
    assert summary.returncode == 0, summary.stderr
