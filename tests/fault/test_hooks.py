"""Hooks that fail, break their connection, take too long; daemons that die while they run. Each lease is reaped once, and nobody
else is the worse for it."""
import queue
import threading
import uuid

import grpc
import pytest

from harness import acquire_request, fails, lease_ref, pb, release_request, wait_until
from place import BOUND, metric

SETUP = """
create table public.hit (event text not null, key text not null, token bigint not null);
create table public.parent (key text primary key);
create table public.child (key text references public.parent deferrable initially deferred);
create function public.hook(e leasehold.lease_event) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if e.key ~ '^fifth-[0-9]*[05]$' and not exists (select from leasehold.scope s where s.key = e.key and s.reap_failures > 0) then
    raise exception 'it is the first time';
  elsif e.key like 'late%' then
    insert into public.child values (e.key);
  elsif e.key like 'fatal%' then
    perform pg_terminate_backend(pg_backend_pid());
    perform pg_sleep(60);
  elsif e.key like 'slow%' then
    perform pg_sleep(60);
  elsif e.key like 'nap%' then
    perform pg_sleep(0.002);
  end if;
  insert into public.hit values (e.event, e.key, e.token);
end
$$;
insert into leasehold.policy (namespace, min_duration, grace, hook_timeout)
values ('hooked', '100 ms', '0 s', '2 s'), ('beside', '100 ms', '0 s', '10 s');
select leasehold.add_hook(n, e, 'public.hook(leasehold.lease_event)')
  from unnest(array['hooked', 'beside']) n, unnest(array['acquire', 'heartbeat', 'release_ok', 'release_fail', 'reap']) e;
"""

# Expired all at once, when the policy is changed: until then nobody may end them. Written straight into the table, as many
# acquires of a second ago would have left them.
LEASES = """
select leasehold.set_policy('{namespace}', expiry => 'manual');
select leasehold.remove_hook('{namespace}', 'acquire', 'public.hook(leasehold.lease_event)');
insert into leasehold.scope (namespace, key, state, lease_key, token, owner, labels, duration, grace, acquired_at, heartbeat_at,
                             deadline, incarnation, check_at)
select '{namespace}', '{prefix}-' || i, 'held', gen_random_uuid(), nextval('leasehold.token'), 'gone', '{{}}', '100 ms', '0 s',
       clock_timestamp() - interval '1 s', clock_timestamp() - interval '1 s', clock_timestamp() - interval '900 ms',
       (leasehold_internal.life(null)).id, 'infinity'
  from generate_series(1, {count}) i;
"""


class Hooked:
    def __init__(self, place):
        self.place = place
        self.psql = place.psql
        self.daemon = place.daemon()
        self.client = place.clients[0]
        self.psql(SETUP)

    def leases(self, count, prefix, namespace="hooked"):
        self.psql(LEASES.format(namespace=namespace, count=count, prefix=prefix))

    def expire(self, namespace="hooked"):
        self.psql(f"select leasehold.set_policy('{namespace}', expiry => 'takeover')")

    def held(self, prefix="", namespace="hooked"):
        return int(self.psql(f"select count(*) from leasehold.lease where namespace = '{namespace}' and key like '{prefix}%'"))

    def hits(self, prefix=""):
        return int(self.psql(f"select count(*) from public.hit where event = 'reap' and key like '{prefix}%'"))

    def twice(self):
        return self.psql("select key, count(*) from public.hit where event = 'reap' group by key, token having count(*) > 1 limit 5")


@pytest.fixture
def hooked(place):
    return Hooked(place)


class Beside:
    """Others go on meanwhile: in a namespace without hooks, and in one whose hook is well."""

    def __init__(self, hooked):
        self.done = {"plain": 0, "beside": 0}
        self.errors = []
        self.stopped = threading.Event()
        self.client = hooked.client
        self.threads = [threading.Thread(target=self._work, args=(ns,)) for ns in self.done]

    def _answer(self, call):
        """As each client: neither UNAVAILABLE nor ABORTED nor RETRY is an answer. All hook lanes may be without a connection at once, and on a
        busy machine for longer than the second that a call waits for one."""
        while True:
            try:
                answer = call()
                if getattr(answer, "outcome", pb.OUTCOME_OK) != pb.OUTCOME_RETRY:
                    return answer
            except grpc.RpcError as error:
                if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED):
                    raise
            self.stopped.wait(0.05)

    def _work(self, namespace):
        calls = self.client.lease
        try:
            while not self.stopped.is_set():
                request = acquire_request(namespace, f"k-{uuid.uuid4()}", 30, lease_key=str(uuid.uuid4()))
                lease = self._answer(lambda: calls.Acquire(request).lease)  # noqa: B023
                beat = self._answer(lambda: calls.Heartbeat(pb.HeartbeatRequest(leases=[lease_ref(lease)])).results[0])  # noqa: B023
                assert beat.outcome == pb.OUTCOME_OK, beat
                given = self._answer(lambda: calls.Release(release_request(lease)).results[0])  # noqa: B023
                assert given.outcome == pb.OUTCOME_OK or given.end_reason == pb.END_REASON_RELEASED, given
                self.done[namespace] += 1
        except Exception as error:  # noqa: BLE001
            self.errors.append(error)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def more(self, count=10):
        """Both get on by so many from now."""
        goal = {namespace: done + count for namespace, done in self.done.items()}
        wait_until(lambda: self.errors or all(self.done[ns] >= goal[ns] for ns in goal), BOUND, "others to go on")
        assert not self.errors, self.errors[0]

    def __exit__(self, *unused):
        self.stopped.set()
        for thread in self.threads:
            thread.join(BOUND)
        assert not self.errors, self.errors[0]


# Promise 8.
def test_a_hook_that_fails_for_every_fifth_delays_its_own_lease_alone(hooked):
    hooked.leases(50, "fifth")
    hooked.leases(30, "good")
    with Beside(hooked) as beside:
        hooked.expire()
        wait_until(lambda: hooked.held("good") == 0, BOUND, "the others to be reaped")
        failed = hooked.psql("select count(*), min(reap_failures), bool_and(next_try_at is not null), min(error)"
                             " from leasehold.reap_failure where namespace = 'hooked'")
        beside.more()
        wait_until(lambda: hooked.held() == 0, BOUND, "the retries")
    assert hooked.hits("fifth") == 50 and hooked.hits("good") == 30 and hooked.twice() == ""
    assert failed == "0|||" or failed.endswith("|t|it is the first time"), failed
    failures = metric(hooked.daemon, "leasehold_reap_failures_total")
    assert failures == 10 and metric(hooked.daemon, 'leasehold_hook_rejections_total{event="reap"}') == failures
    assert hooked.daemon.log().count("reap failed scope=hooked/fifth-") == failures
    assert hooked.psql("select count(*) from leasehold.reap_failure") == "0"


def test_reaps_that_share_a_transaction_fail_each_by_itself(hooked):
    """Many go together once their hook is known for quick. One that vetoes, sleeps, fails at the commit or kills its backend
    has failed, and nobody beside it has, or waits for its next try."""
    culprits = ["fifth", "slow", "late", "fatal"]
    hooked.leases(1000, "good")
    hooked.expire()
    wait_until(lambda: hooked.held() == 0, BOUND, "the hook to be known")
    transactions, largest = hooked.psql("select count(*), max(n) from (select count(*) as n from public.hit group by xmin::text) t").split("|")
    assert int(transactions) < 500 and 2 <= int(largest) <= 32, "they did not go together, or too many of them"
    hooked.leases(1000, "middle")
    hooked.psql("update leasehold.scope set key = (array['fifth-5', 'slow', 'late', 'fatal'])[n.n]"
                " from generate_series(1, 4) n where key = 'middle-' || n.n * 200")
    hooked.expire()
    wait_until(lambda: hooked.held("middle") == 0, BOUND, "the others to be reaped")
    wait_until(lambda: metric(hooked.daemon, "leasehold_reap_failures_total") >= len(culprits), BOUND, "the failures to be told")
    wait_until(lambda: hooked.held("fifth") == 0, BOUND, "the one that may succeed at its second try")
    assert hooked.hits("middle") == 996 and hooked.twice() == ""
    assert hooked.psql("select string_agg(key, ' ' order by key) from leasehold.reap_failure") == "fatal late slow"
    log = hooked.daemon.log()
    assert all(f"reap failed scope=hooked/{key}" in log for key in culprits)
    assert "reap failed scope=hooked/middle" not in log and "reap failed scope=hooked/good" not in log
    assert metric(hooked.daemon, 'leasehold_reaps_total') == 1997


def test_a_hook_that_kills_its_backend_costs_a_hook_lane_its_connection_and_nobody_else(hooked):
    hooked.leases(2, "fatal")
    hooked.leases(40, "good")
    with Beside(hooked) as beside:
        hooked.expire()
        wait_until(lambda: hooked.held("good") == 0, BOUND, "the others to be reaped")
        wait_until(lambda: hooked.psql("select count(*) from leasehold.reap_failure where key like 'fatal%'"
                                       " and error like '%connection%lost%'") == "2", BOUND, "the failures to be recorded")
        beside.more()
        # A call that runs the same hook gets an answer. The server's words are those of an administrator who ended the session,
        # so the hook is not blamed.
        hooked.psql("select leasehold.add_hook('hooked', 'acquire', 'public.hook(leasehold.lease_event)')")
        with fails() as failure:
            hooked.client.lease.Acquire(acquire_request("hooked", "fatal-call", 30), timeout=BOUND)
        assert failure.value.reason in ("SCOPE_BUSY", "DATABASE_UNAVAILABLE")  # or no hook lane was back within a second
        beside.more()
    assert hooked.hits("good") == 40 and hooked.hits("fatal") == 0 and hooked.twice() == ""
    assert metric(hooked.daemon, "leasehold_hook_connection_losses_total") >= 3
    assert metric(hooked.daemon, 'leasehold_database_reconnects_total{role="lane"}') == 0
    assert metric(hooked.daemon, 'leasehold_database_reconnects_total{role="control"}') == 0
    # One that lost its reason to kill is reaped at its next turn.
    hooked.psql("create or replace function public.hook(e leasehold.lease_event) returns void language plpgsql security definer"
                " set search_path = pg_catalog, pg_temp as"
                " $$ begin insert into public.hit values (e.event, e.key, e.token); end $$")
    wait_until(lambda: hooked.held("fatal") == 0, BOUND, "the others at last")
    assert hooked.hits("fatal") == 2 and hooked.twice() == ""


def refusal(client, key):
    with fails() as failure:
        client.lease.Acquire(acquire_request("hooked", key, 30), timeout=BOUND)
    return failure.value


def in_turn(call, has_run):
    """The answer of a call whose hook has run. Behind slow hooks its turn may come too late, and it is to be asked again."""
    for _ in range(BOUND):
        answer = call()
        if has_run(answer):
            return answer
        assert "the hooks of the namespace are slow" in answer.message, answer.message
    raise AssertionError(f"not in its turn at {BOUND} tries")


def test_a_hook_that_sleeps_past_its_limit_is_ended_there(hooked):
    client = hooked.client
    hooked.leases(4, "slow")
    hooked.leases(20, "good")
    with Beside(hooked) as beside:
        hooked.expire()
        wait_until(lambda: hooked.held("good") == 0, BOUND, "the others to be reaped")
        wait_until(lambda: hooked.psql("select count(*) from leasehold.reap_failure where key like 'slow%'"
                                       " and error like 'the hook ran over its limit%'") == "4", BOUND, "the failures")
        hooked.psql("select leasehold.add_hook('hooked', 'acquire', 'public.hook(leasehold.lease_event)')")
        failure = in_turn(lambda: refusal(client, "slow-call"), lambda failure: failure.reason != "SCOPE_BUSY")
        assert failure.reason == "HOOK_REJECTED" and "ran over its limit" in failure.message
        # Who holds a lease already is refused a heartbeat and a release, and holds it on.
        hooked.psql("select leasehold.remove_hook('hooked', 'acquire', 'public.hook(leasehold.lease_event)')")
        lease = client.lease.Acquire(acquire_request("hooked", "slow-hold", 60)).lease
        for call in (lambda: client.lease.Heartbeat(pb.HeartbeatRequest(leases=[lease_ref(lease)])).results[0],
                     lambda: client.lease.Release(release_request(lease)).results[0]):
            result = in_turn(call, lambda result: result.outcome != pb.OUTCOME_RETRY)
            assert result.outcome == pb.OUTCOME_REJECTED and "ran over its limit" in result.message
        assert hooked.held("slow-hold") == 1
        beside.more()
    assert metric(hooked.daemon, 'leasehold_hook_timeouts_total{event="reap"}') >= 4
    assert metric(hooked.daemon, 'leasehold_hook_timeouts_total{event="acquire"}') >= 1
    assert hooked.hits("good") == 20 and hooked.hits("slow") == 0


def test_a_daemon_killed_in_the_middle_of_a_run_of_reaps_leaves_each_lease_reaped_once(hooked):
    count = 3000
    hooked.leases(count, "nap")
    hooked.place.daemon()
    hooked.expire()
    wait_until(lambda: hooked.hits() > 200, BOUND, "the reaping to begin")
    hooked.daemon.kill()
    assert 0 < hooked.held() < count, "it was to be killed in the middle"
    wait_until(lambda: hooked.held() == 0, BOUND, "the other daemon to reap the rest")
    assert hooked.hits() == count and hooked.twice() == ""
    assert hooked.psql("select count(*) from leasehold.reap_failure") == "0"


def test_a_daemon_and_sql_reap_the_same_leases_and_each_is_reaped_once(hooked):
    count, by_sql, errors = 4000, [0], []
    hooked.leases(count, "nap")  # so long that the daemon is not done before SQL has begun

    def cron():
        try:
            while hooked.held() > 0:
                by_sql[0] += int(hooked.psql("select count(*) from leasehold.reap(array['hooked'], false, 50) where outcome = 'reaped'"))
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    thread = threading.Thread(target=cron)
    with Beside(hooked) as beside:
        thread.start()
        hooked.expire()
        beside.more()
        thread.join(BOUND)
    assert not errors, errors[0]
    assert not thread.is_alive()
    wait_until(lambda: hooked.held() == 0, BOUND)
    assert hooked.hits() == count and hooked.twice() == ""
    by_daemon = metric(hooked.daemon, "leasehold_reaps_total")
    assert by_sql[0] > 0 and by_daemon > 0 and by_sql[0] + by_daemon == count, (by_sql, by_daemon)


def test_a_reap_that_somebody_asks_for_waits_for_the_hooks_and_tells_what_failed(hooked):
    hooked.psql("select leasehold.set_policy('hooked', reaper => 'external', hook_timeout => '500 ms')")  # the call ends while hooks are left
    hooked.leases(6, "good")
    hooked.leases(2, "slow")
    hooked.expire()
    hooked.psql("alter function public.hook(leasehold.lease_event) owner to postgres")
    reply = hooked.client.admin.Reap(pb.ReapRequest(namespaces=[pb.Namespace(segments=["hooked"])]), timeout=BOUND)
    assert reply.reaped == 6 and not reply.more
    assert sorted(failure.lease.scope.key for failure in reply.failures) == ["slow-1", "slow-2"]
    for failure in reply.failures:
        assert failure.error.startswith("the hook ran over its limit") and failure.reap_failures == 1
        assert failure.HasField("next_try_at") and failure.lease.lease_key == ""
    assert hooked.hits() == 6 and hooked.held() == 2


def test_a_hold_whose_heartbeats_are_refused_goes_on_until_its_deadline(hooked):
    hooked.psql("create function public.no(e leasehold.lease_event) returns void language plpgsql security definer"
                " set search_path = pg_catalog, pg_temp as $$ begin raise exception 'not today'; end $$;"
                "select leasehold.add_hook('held', 'heartbeat', 'public.no(leasehold.lease_event)')")
    requests = queue.Queue()
    requests.put(pb.HoldRequest(acquire=acquire_request("held", "k", 9), by_ping=True))
    stream = hooked.client.lease.Hold(iter(requests.get, None))
    events = []
    granted = next(stream).granted
    assert granted.token > 0
    wait_until(lambda: metric(hooked.daemon, 'leasehold_hook_rejections_total{event="heartbeat"}') >= 2, BOUND)
    assert hooked.held(namespace="held") == 1
    for event in stream:
        events.append(event.WhichOneof("event"))
        last = event
    requests.put(None)
    assert events == ["lost"], events
    assert "not today" in last.lost.message
