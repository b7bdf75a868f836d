"""`leasehold reap` where leases have hooks in SQL, and `leasehold hook`."""
import json

import pytest

import harness
from harness import wait_until


PUT_BACK = """
    create function put_back(e leasehold.lease_event) returns void language plpgsql security definer set search_path = public as $$
    begin
      insert into counted values (e.token, e.key, pg_backend_pid());
      if e.key = 'k3' then raise exception 'not k3'; end if;
      if e.key = 'k4' then perform pg_sleep(60); end if;
      if e.key = 'k5' then perform pg_terminate_backend(pg_backend_pid()); end if;
    end $$
"""


@pytest.mark.parametrize("how", [[], ["jobs"], ["jobs", "--exec", "true"]], ids=["all", "named", "exec"])
def test_hooks_run_each_by_itself_under_the_limit_of_its_policy(stage, how):
    stage.psql(PUT_BACK)
    stage.done("hook", "add", "jobs", "reap", "public.put_back")
    stage.psql("select leasehold.set_policy('jobs', hook_timeout => '300 ms')")
    stage.expire(20)
    stage.expire(30, namespace="plain")
    said = stage("reap", *how)
    assert said.returncode == 1 and said.stdout == f"reaped {17 if how else 47} leases\n", said.stderr
    assert stage.counted() == (17, 17)
    assert stage.failures() == {"k3": "not k3", "k4": "the hook ran over its limit of 0.3 s",
                                "k5": "the connection was lost while the hook ran"}


def test_two_reapers_a_daemon_and_a_call_in_sql_at_once_run_each_hook_once(stage):
    stage.psql("create function count_it(e leasehold.lease_event) returns void language sql security definer set search_path = public"
               " as 'insert into counted values (e.token, e.key, pg_backend_pid())'")
    stage.done("hook", "add", "jobs", "reap", "public.count_it")
    daemon = harness.Daemon(database=stage.url)  # before: the first one to come gives every lease its time once more
    try:
        stage.expire(10000)
        reapers = [stage.start("reap", *names) for names in ([], ["jobs"])]
        stage.psql("select count(*) from leasehold.reap(max => 1000)")
        for reaper in reapers:
            reaper.communicate(timeout=120)
            assert reaper.returncode == 0
        wait_until(lambda: stage.held() == 0, 60, "nothing is held")
    finally:
        assert daemon.stop() == 0, daemon.log()
        daemon.destroy()
    assert stage.counted() == (10000, 10000) and stage.failures() == {}


def test_a_hook_that_vetoes_keeps_the_command_from_running(stage, tmp_path):
    stage.psql(PUT_BACK)
    stage.done("hook", "add", "jobs", "reap", "public.put_back")
    stage.expire(1, first=3)
    assert stage("reap", "jobs", "--exec", f"touch {tmp_path}/ran").returncode == 1
    assert not (tmp_path / "ran").exists() and stage.failures() == {"k3": "not k3"}


def test_hooks_are_listed_added_and_removed(stage):
    assert stage.done("hook", "list").stderr == "no hooks\n"
    stage.psql(PUT_BACK)
    said = stage.done("hook", "add", "jobs", "reap", "public.put_back")
    assert said.stdout == "jobs: public.put_back(leasehold.lease_event) now runs at reap\n" and said.stderr == ""
    assert "already" in stage.done("hook", "add", "jobs", "reap", "public.put_back(leasehold.lease_event)").stdout
    stage.done("hook", "add", ".", "acquire", "public.put_back")
    stage.done("hook", "add", "other", "reap", "public.put_back")
    rows = [line.split()[:3] for line in stage.done("hook", "list", "jobs.child").stdout.splitlines()]
    assert rows == [["NAMESPACE", "EVENT", "FUNCTION"], ["(root)", "acquire", "public.put_back(leasehold.lease_event)"],
                    ["jobs", "reap", "public.put_back(leasehold.lease_event)"]]
    listed = json.loads(stage.done("hook", "list", "-o", "json").stdout)["hooks"]
    assert [(h["namespace"], h["event"], h["position"], h["exists"]) for h in listed] == [
        ("", "acquire", 1, True), ("jobs", "reap", 1, True), ("other", "reap", 1, True)]
    assert "no longer runs at acquire" in stage.done("hook", "remove", ".", "acquire", "public.put_back").stdout
    stage.psql("drop function put_back")
    assert "does not exist: vetoes every change" in stage.done("hook", "list", "jobs").stdout
    stage.done("hook", "remove", "jobs", "reap", "public.put_back")
    said = stage("hook", "remove", "jobs", "reap", "public.put_back")
    assert said.returncode == 1 and "jobs has no hook public.put_back(leasehold.lease_event) for reap of its own" in said.stderr


@pytest.mark.parametrize("args,words", [
    (["add", "jobs", "reap", "public.nothing"], "the database has no function public.nothing(leasehold.lease_event)"),
    (["add", "jobs", "reap", "public.number"], "function must be a function f(leasehold.lease_event) returns void"),
    (["add", "jobs", "reap", "public.foreign_one"], "function must be a function whose owner is a member of leasehold_owner"),
    (["add", "jobs", "reap", "public.o ops("], "the database has no function public.o ops("),
    (["add", "jobs", "reep", "public.number"], "did you mean reap"),
    (["add", "a..b", "reap", "public.number"], "segment 2 of namespace must be 1 to 63 bytes, has 0"),
    (["add", "jobs", "reap"], "usage: leasehold hook add NAMESPACE EVENT FUNCTION"),
    (["list", "jobs", "reap"], "unexpected argument: reap"),
    (["delete", "jobs"], "unknown subcommand: hook delete; use list, add or remove"),
])
def test_wrong_hooks_are_refused(stage, args, words):
    stage.psql("create function number(leasehold.lease_event) returns integer language sql as 'select 1';"
               "create function foreign_one(leasehold.lease_event) returns void language sql security definer as '';"
               "do $$ begin create role reap_nobody; exception when duplicate_object then null; end $$;"
               "alter function foreign_one owner to reap_nobody")
    said = stage("hook", *args)
    assert said.returncode == 2 and words in said.stderr, said.stderr
