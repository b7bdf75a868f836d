"""What only reads answers on a hot standby, and says that it is one; what must write says so plainly."""
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import harness  # noqa: E402
from harness import acquire_request, release_request, wait_until  # noqa: E402
from place import Standby  # noqa: E402


class Pair:
    """A primary with everything in it that a view can show, and its standby."""

    def __init__(self):
        self.primary = harness.Cluster(migrated=True)
        self.database = self.primary.create_database(migrated=True)
        self.daemon = harness.Daemon(database=self.primary.url(self.database))
        client = harness.Client(self.daemon.target)
        self.psql("select leasehold.set_policy('jobs', history => true); select leasehold.set_policy('shares', capacity => 3); "
                  "select leasehold.access_grant('token:ci', 'jobs', 'lease'); select leasehold.token_create('ci'); "
                  "create function public.note(p leasehold.lease_event) returns void language sql as 'select'; "
                  "alter function public.note owner to leasehold_owner; select leasehold.add_hook('hooked', 'reap', 'public.note(leasehold.lease_event)')")
        client.lease.Release(release_request(client.lease.Acquire(acquire_request("jobs", "done", 60)).lease))
        client.lease.Acquire(acquire_request("jobs", "held", 600, owner="w1"))
        self.waiting = client.lease.Acquire.future(acquire_request("jobs", "held", 600, wait_forever=True, owner="w2"))
        wait_until(lambda: self.psql("select count(*) from leasehold.waiter") == "1")
        self.psql("select leasehold.acquire('shares', 's', '10 min', mode => 'shared'), leasehold.acquire('jobs', 'rests', '10 min', at_least => '1 min')")
        self.standby = Standby(self.primary)
        self.standby.catch_up()

    def psql(self, sql, user="postgres"):
        return self.primary.psql(sql, self.database, user=user)

    def read(self, sql, user="postgres"):
        return self.standby.psql(sql, self.database, user=user)

    def cli(self, *words):
        return subprocess.run([harness.CLI, *words, "--database", self.standby.url(self.database)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=60)

    def close(self):
        self.waiting.cancel()
        self.daemon.destroy()
        self.standby.destroy()
        self.primary.destroy()


@pytest.fixture(scope="module")
def pair():
    pair = Pair()
    yield pair
    pair.close()


def test_each_view_shows_what_it_shows_on_the_primary(pair):
    views = pair.psql("select viewname from pg_views where schemaname = 'leasehold' order by 1").split()
    assert {"lease", "queue", "lease_summary", "effective_policy", "hook", "reap_failure", "hand_over_request"} <= set(views)
    for view in [*views, "history", "audit", "policy", "coordinator", "migration"]:
        count = f"select count(*) from leasehold.{view}"
        assert pair.read(f"select * from leasehold.{view}") is not None
        assert pair.read(count) == pair.psql(count), view
    live = "select key, liveness, owner from leasehold.lease where namespace = 'jobs' order by 1"
    assert pair.read(live) == pair.psql(live) == "held|alive|w1\nrests|alive|"
    assert pair.read("select position, owner from leasehold.queue") == "1|w2"


def test_readers_of_each_role_read_there(pair):
    for role in ("leasehold_reader", "leasehold_client", "leasehold_admin"):
        assert pair.read(f"set role {role}; select count(*) from leasehold.lease where namespace = 'jobs'") == "2", role


# A balancer such as pgpool-II sends to a standby whatever calls no volatile function, and does not look into a view.
def test_no_view_hides_a_volatile_function_and_explain_is_none(pair):
    hidden = pair.psql("select distinct r.ev_class::regclass, p.oid::regprocedure from pg_rewrite r join pg_depend d on d.classid = 'pg_rewrite'::regclass "
                       "and d.objid = r.oid and d.refclassid = 'pg_proc'::regclass join pg_proc p on p.oid = d.refobjid "
                       "where r.ev_class::regclass::text like 'leasehold.%' and p.provolatile = 'v'")
    assert hidden == ""
    # clock_timestamp() is the server's own, and no dependency of a view.
    assert pair.psql("select viewname from pg_views where schemaname = 'leasehold' and definition ~ 'clock_timestamp|random|nextval'") == ""
    assert pair.psql("select provolatile from pg_proc where oid = 'leasehold.explain(text, text)'::regprocedure") == "s"


def test_explain_answers_for_each_state_and_says_that_it_is_a_standby(pair):
    for namespace, key, state in (("jobs", "held", "held"), ("shares", "s", "shared"), ("jobs", "done", "free"), ("jobs", "unknown", "free")):
        answer = pair.read(f"select state, advice from leasehold.explain('{namespace}', '{key}')")
        assert answer.startswith(f"{state}|") and "; this server is a standby, and the last transaction that it has replayed is " in answer, answer
        assert "standby" not in pair.psql(f"select advice from leasehold.explain('{namespace}', '{key}')")


# What the daemon asks for lists and the console, as far as it only reads.
def test_each_function_for_readers_answers(pair):
    views = pair.psql("select proname from pg_proc where pronamespace = 'leasehold_internal'::regnamespace and proname like 'view\\_%'").split()
    assert len(views) >= 9
    calls = [f"{name}(array['jobs'], true, 'held', 10, null)" for name in views] + [
        "get_scope('jobs', 'held')", "get_holders('shares', 's', 10)", "list_leases('', true, 10, null, null, null)", "policy_get('jobs')", "survey()"]
    for call in calls:
        count = f"select count(*) from leasehold_internal.{call}"
        assert pair.read(count) == pair.psql(count), call


@pytest.mark.parametrize("words", [
    ["list"], ["list", "jobs", "--children", "-o", "json"], ["queue"], ["queue", "jobs", "held"], ["explain", "jobs", "held"], ["history"], ["daemons"],
    ["policy", "show", "jobs"], ["access", "list"], ["token", "list"], ["hook", "list"]])
def test_each_command_that_reads_answers(pair, words):
    done = pair.cli(*words)
    assert done.returncode == 0 and done.stdout, done.stderr
    assert "this server is a standby: the last transaction that it has replayed is " in done.stderr


@pytest.mark.parametrize("words", [
    ["policy", "set", "jobs", "grace=1s"], ["force-release", "jobs", "held", "--reason", "why"], ["reap", "--once"],
    ["hook", "add", "jobs", "reap", "public.note(leasehold.lease_event)"]])
def test_each_command_that_writes_says_that_it_reached_a_standby(pair, words):
    done = pair.cli(*words)
    assert done.returncode == 5 and ("standby" in done.stderr or "read-only" in done.stderr or "read-write" in done.stderr), (done.returncode, done.stderr)
    assert "this server is a standby: the last" not in done.stderr


def test_nothing_is_shown_as_expired_while_the_replay_is_late(pair):
    pair.standby.psql("select pg_wal_replay_pause()", "postgres")
    try:
        pair.psql("select leasehold.acquire('late', 'k', '1 s')")
        wait_until(lambda: pair.read("select max(seen_at) < clock_timestamp() - interval '5 s' from leasehold.coordinator") == "t")
        assert pair.read("select count(*) from leasehold.lease where liveness = 'expired'") == "0"
    finally:
        pair.standby.psql("select pg_wal_replay_resume()", "postgres")
