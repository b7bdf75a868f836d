"""Transactions that guard a lease and stay open: max_guard and force-release end their sessions."""
import grpc
import pytest

import harness
from harness import acquire_request, fails, heartbeat, pb, wait_until
from test_metrics import Metrics


@pytest.fixture
def guarded(cluster, request):
    service = harness.Service(cluster, "--max-guard", getattr(request, "param", "60s"))
    service.psql("""do $$ begin create role guard_user login in role leasehold_client; exception when duplicate_object then null; end $$;
                    grant pg_signal_backend to leasehold_owner""")
    yield service
    service.psql("revoke pg_signal_backend from leasehold_owner")
    service.close()


def guard(service, lease):
    session = service.session("guard_user")
    session.run("begin")
    session.run(f"select leasehold.guard('{'.'.join(lease.scope.namespace)}', '{lease.scope.key}', {lease.token})")
    return session


def sessions(service):
    return int(service.psql("select count(*) from pg_stat_activity where usename = 'guard_user' and datname = current_database()"))


def overdue(service):
    metrics = Metrics(service.daemon)
    return metrics.get("leasehold_guards_ended_total") == 0 and metrics.get("leasehold_guards_overdue") == 1


@pytest.mark.parametrize("guarded", ["1s"], indirect=True)
def test_a_guard_that_stays_open_is_ended_with_its_session(guarded):
    lease = guarded.client.lease.Acquire(acquire_request("g", "open", 30)).lease
    bystander = guarded.session("guard_user")
    bystander.run("begin; select pg_backend_pid()")
    guard(guarded, lease)
    assert heartbeat(guarded.client, lease).outcome == pb.OUTCOME_OK
    wait_until(lambda: sessions(guarded) == 1, what="the guard's session to end")
    wait_until(lambda: Metrics(guarded.daemon).get("leasehold_guards_ended_total") == 1, what="it to be counted")
    assert "a session guarded a lease for over 1.0 s (max_guard) and was ended: pid " in guarded.daemon.log()
    assert '(user guard_user, application "psql"' in guarded.daemon.log()
    assert guarded.client.lease.Release(harness.release_request(lease)).results[0].outcome == pb.OUTCOME_OK
    bystander.run("commit")
    bystander.close()


@pytest.mark.parametrize("guarded", ["1s"], indirect=True)
def test_without_the_right_a_long_guard_is_named(guarded):
    guarded.psql("revoke pg_signal_backend from leasehold_owner")
    lease = guarded.client.lease.Acquire(acquire_request("g", "named", 30)).lease
    session = guard(guarded, lease)
    wait_until(lambda: overdue(guarded), what="the guard to be overdue")
    assert "unless somebody runs: grant pg_signal_backend to leasehold_owner" in guarded.daemon.log()
    with fails() as refused:
        guarded.client.admin.ForceRelease(pb.ForceReleaseRequest(scope=lease.scope, reason="stuck"))
    assert refused.value.code == grpc.StatusCode.ABORTED and "(user guard_user" in refused.value.message
    assert "grant pg_signal_backend to leasehold_owner" in refused.value.message
    session.run("commit")
    session.close()
    wait_until(lambda: Metrics(guarded.daemon).get("leasehold_guards_overdue") == 0, what="no guard to be overdue")


@pytest.mark.parametrize("force", ["rpc", "sql"])
def test_force_release_ends_a_session_that_guards(cluster, guarded, force):
    lease = guarded.client.lease.Acquire(acquire_request("g", "forced", 30, owner="stuck")).lease
    other = guarded.client.lease.Acquire(acquire_request("g", "other", 30)).lease
    guard(guarded, lease)
    assert sessions(guarded) == 1
    if force == "rpc":
        ended = guarded.client.admin.ForceRelease(pb.ForceReleaseRequest(scope=lease.scope, reason="stuck", token=lease.token)).lease
        assert ended.token == lease.token and ended.owner == "stuck"
    else:
        assert guarded.psql("select owner, token from leasehold.force_release('g', 'forced', 'stuck')") == f"stuck|{lease.token}"
    assert sessions(guarded) == 0
    result = heartbeat(guarded.client, lease)
    assert (result.outcome, result.end_reason) == (pb.OUTCOME_LOST, pb.END_REASON_FORCED)
    assert heartbeat(guarded.client, other).outcome == pb.OUTCOME_OK
    assert "guard ended by force scope=g/forced" in (cluster.data / "log").read_text()


def test_force_release_of_another_token_ends_no_session(guarded):
    lease = guarded.client.lease.Acquire(acquire_request("g", "kept", 30)).lease
    session = guard(guarded, lease)
    with fails() as refused:
        guarded.client.admin.ForceRelease(pb.ForceReleaseRequest(scope=lease.scope, reason="stuck", token=lease.token - 1))
    assert refused.value.reason == "NOT_HELD" and sessions(guarded) == 1
    session.close()


def test_force_release_of_one_of_several_leaves_the_guards_of_the_others(guarded):
    def share():
        return guarded.client.lease.Acquire(acquire_request("g", "shared", 30, mode=pb.MODE_SHARED)).lease

    ours, theirs = share(), share()
    guard(guarded, ours)
    bystander = guard(guarded, theirs)
    assert sessions(guarded) == 2
    ended = guarded.client.admin.ForceRelease(pb.ForceReleaseRequest(scope=ours.scope, reason="stuck", token=ours.token)).lease
    assert ended.token == ours.token and sessions(guarded) == 1
    bystander.run("commit")
    bystander.close()
    assert heartbeat(guarded.client, theirs).outcome == pb.OUTCOME_OK


# What uses up one number of a multixact: a row that is locked twice in one transaction.
BURN = """create table if not exists public.burnt (n integer primary key);
insert into public.burnt select generate_series(1, 20000) on conflict do nothing;
do $$ declare v_n integer; begin
  for v_n in 1 .. {count} loop
    perform 1 from public.burnt where n = v_n for key share;
    begin
      perform 1 from public.burnt where n = v_n for no key update;
    exception when division_by_zero then
      null;
    end;
  end loop;
end $$; checkpoint"""


def next_multixact(service):
    service.psql("checkpoint")
    return int(service.psql("select next_multixact_id from pg_control_checkpoint()"))


def test_force_release_tells_a_multixact_from_a_transaction_of_the_same_number(guarded):
    lease = guarded.client.lease.Acquire(acquire_request("g", "twice", 30)).lease
    other = guarded.client.lease.Acquire(acquire_request("g", "innocent", 30)).lease
    innocent = guard(guarded, other)
    number = int(guarded.psql("select transactionid from pg_locks l join pg_stat_activity a using (pid) where a.usename = 'guard_user' "
                              "and l.locktype = 'transactionid' and l.granted"))
    missing = number - next_multixact(guarded)
    assert 0 < missing < 20000, "the numbers of transactions are ahead of those of multixacts"
    guarded.psql(BURN.format(count=missing))
    assert next_multixact(guarded) == number
    guard(guarded, lease)
    guard(guarded, lease)
    assert int(guarded.psql("select xmax from leasehold.scope where key = 'twice'")) == number
    assert guarded.client.admin.ForceRelease(pb.ForceReleaseRequest(scope=lease.scope, reason="stuck")).lease.token == lease.token
    assert sessions(guarded) == 1, "who guards another lease goes on"
    innocent.run("commit")
    innocent.close()


def test_a_guard_in_a_prepared_transaction_is_named():
    cluster = harness.Cluster(["max_prepared_transactions = 3"], migrated=True)
    service = harness.Service(cluster, "--max-guard", "1s")
    try:
        lease = service.client.lease.Acquire(acquire_request("g", "prepared", 30)).lease
        service.psql(f"begin; select leasehold.guard('g', 'prepared', {lease.token}); prepare transaction 'it''s forgotten'")
        wait_until(lambda: overdue(service), what="the guard to be overdue")
        assert "the prepared transaction 'it''s forgotten' (user " in service.daemon.log()
        with fails() as refused:
            service.client.admin.ForceRelease(pb.ForceReleaseRequest(scope=lease.scope, reason="stuck"))
        assert "rollback prepared 'it''s forgotten'" in refused.value.message
        assert heartbeat(service.client, lease).outcome == pb.OUTCOME_OK
        service.psql("rollback prepared 'it''s forgotten'")
        wait_until(lambda: Metrics(service.daemon).get("leasehold_guards_overdue") == 0, what="no guard to be overdue")
        assert service.client.admin.ForceRelease(pb.ForceReleaseRequest(scope=lease.scope, reason="stuck")).lease.token == lease.token
    finally:
        service.close()
        cluster.stop()
        cluster.destroy()
