"""`leasehold reap --plugin`: callbacks of a shared object, beside other reapers and a daemon, well-behaved or not."""
import json
import re

import pytest

import harness
from harness import wait_until
from reaping import compile_plugin


def test_two_reapers_at_once_commit_each_callback_once(stage, plugin):
    stage.expire(1500)
    reapers = [stage.start("reap", "jobs", "--plugin", plugin, "-o", "json") for _ in range(2)]
    reaped = 0
    for reaper in reapers:
        out, err = reaper.communicate(timeout=120)
        assert reaper.returncode == 0, err
        reaped += json.loads(out)["reaped"]
    assert reaped == 1500 and stage.counted() == (1500, 1500) and stage.held() == 0
    said = stage.done("reap", "jobs", "--plugin", plugin, "-v")
    assert said.stdout == "reaped 0 leases\n" and said.stderr == ""


def test_a_callback_beside_a_daemon(stage, plugin):
    """The daemon leaves the namespace to the reaper that names it, and takes the others; it says nothing about either."""
    stage.psql("select leasehold.set_policy('jobs', reaper => 'external')")
    daemon = harness.Daemon(database=stage.url)
    try:
        stage.expire(200)
        stage.expire(50, namespace="others")
        wait_until(lambda: stage.number("select count(*) from leasehold.scope where namespace = 'others' and state = 'held'") == 0,
                   what="the daemon's reaping")
        assert stage.held() == 200
        assert stage.done("reap", "jobs", "--plugin", plugin).stdout == "reaped 200 leases\n"
        assert stage.counted() == (200, 200)
    finally:
        daemon.destroy()


def test_a_callback_that_fails_every_third_time(stage, plugin):
    stage.expire(90)
    said = stage("reap", "--plugin", plugin, "-v", REAP_MODE="third")
    assert said.returncode == 1 and said.stdout == "reaped 60 leases\n"
    assert said.stderr.count("leasehold: reaped jobs/k") == 60
    assert "could not reap jobs/k30 (1 times so far): every third of them: k30; next try: 20" in said.stderr
    assert stage.counted() == (60, 60) and stage.held() == 30
    assert stage.failures() == {f"k{n}": f"every third of them: k{n}" for n in range(3, 91, 3)}
    # Nothing is due before the backoff has passed; a reap that names the namespace tries at once.
    stage.put_off()
    counts = lambda: dict(line.split("|") for line in stage.psql("select key, reap_failures from leasehold.reap_failure").splitlines())
    before = counts()  # on a slow machine the first backoff may pass within the pass
    assert stage("reap", "--plugin", plugin, REAP_MODE="third").stdout == "reaped 0 leases\n"
    assert counts() == before and len(before) == 30
    said = stage("reap", "jobs", "--plugin", plugin, "-o", "json", REAP_MODE="third")
    failures = json.loads(said.stdout)["failures"]
    assert said.returncode == 1 and {f["lease"]["scope"]["key"] for f in failures} == set(before)
    assert all(f["reap_failures"] > int(before[f["lease"]["scope"]["key"]]) for f in failures)
    assert failures[0]["lease"]["owner"].startswith("worker-") and failures[0]["lease"]["liveness"] == "LIVENESS_EXPIRED"
    assert stage.done("reap", "jobs", "--plugin", plugin).stdout == "reaped 30 leases\n"
    assert stage.counted() == (90, 90) and stage.failures() == {}


def test_after_too_many_failures_it_waits_for_a_person(stage, plugin):
    stage.psql("select leasehold.set_policy('jobs', max_reap_failures => 2)")
    stage.expire(1, first=3)
    assert stage("reap", "--plugin", plugin, REAP_MODE="third").returncode == 1
    stage.let_retry()
    said = stage("reap", "--plugin", plugin, REAP_MODE="third")
    assert said.returncode == 1 and "(2 times so far)" in said.stderr and "next try: none, an administrator must act" in said.stderr
    assert stage.done("reap", "--plugin", plugin).stdout == "reaped 0 leases\n" and stage.held() == 1
    assert stage.done("reap", "jobs", "--plugin", plugin).stdout == "reaped 1 lease\n"


@pytest.mark.parametrize("mode,words", [
    ("kill", "the connection was lost while the callback ran"),
    ("rollback", "the callback ended the transaction that it was called in"),
    ("deferred", 'insert or update on table "child" violates foreign key constraint "child_id_fkey"'),
    ("quiet", "division by zero"),
])
def test_a_callback_that_breaks_its_transaction_harms_its_own_lease_alone(stage, plugin, mode, words):
    stage.expire(50)
    said = stage("reap", "jobs", "--plugin", plugin, REAP_MODE=mode)
    assert said.returncode == 1 and said.stdout == "reaped 45 leases\n", said.stderr
    assert stage.counted() == (45, 45) and stage.held() == 5
    failures = stage.failures()
    assert sorted(failures) == ["k10", "k20", "k30", "k40", "k50"] and all(words in text for text in failures.values())
    assert stage.done("reap", "jobs", "--plugin", plugin).stdout == "reaped 5 leases\n"


def test_a_callback_that_commits_has_committed(stage, plugin):
    stage.expire(50)
    assert stage.done("reap", "jobs", "--plugin", plugin, REAP_MODE="commit").stdout == "reaped 50 leases\n"
    assert stage.counted() == (50, 50) and stage.held() == 0


@pytest.mark.parametrize("mode", ["query", "sleep"])
def test_a_callback_that_runs_over_its_limit_has_failed(stage, plugin, mode):
    """A statement is cancelled; a callback that sleeps is found out when it comes back."""
    stage.psql("select leasehold.set_policy('jobs', hook_timeout => '200 ms')")
    stage.expire(20)
    said = stage("reap", "jobs", "--plugin", plugin, REAP_MODE=mode)
    assert said.returncode == 1 and said.stdout == "reaped 18 leases\n", said.stderr
    assert set(stage.failures().values()) == {"the callback ran over its limit of 200 ms"} and stage.counted() == (18, 18)


def test_a_plugin_that_crashes_is_found_out(stage, plugin):
    stage.expire(30)
    said = stage("reap", "jobs", "--plugin", plugin, REAP_MODE="crash")
    assert said.returncode == 1, said
    assert stage.counted() == (27, 27) and stage.held() == 3
    assert set(stage.failures().values()) == {"the plugin crashed: signal 6 (Aborted)"}
    assert said.stderr.count("the plugin crashed: signal 6 (Aborted)") == 3
    assert sum(map(int, re.findall(r"^reaped (\d+) leases?$", said.stdout, re.M))) == 27


def test_a_reaper_killed_in_the_middle_leaves_nothing_half_done(stage, plugin, tmp_path):
    stage.expire(50)
    gate = tmp_path / "gate"
    reaper = stage.start("reap", "jobs", "--plugin", plugin, REAP_MODE="gate", REAP_GATE=str(gate))
    wait_until(lambda: stage.number("select count(*) from pg_stat_activity where application_name = 'leasehold'"
                                    " and state = 'idle in transaction'") == 1, what="the reaper inside of its transaction")
    before = stage.counted()
    reaper.kill()
    reaper.communicate(timeout=30)
    wait_until(lambda: stage.number("select count(*) from pg_stat_activity where application_name = 'leasehold'") == 0,
               what="the end of its session")
    assert stage.counted() == before and stage.held() == 50 - before[0]
    assert stage.done("reap", "jobs", "--plugin", plugin).returncode == 0
    assert stage.counted() == (50, 50) and stage.held() == 0 and stage.failures() == {}


def test_wrong_plugins_are_refused_before_anything_is_reaped(stage, tmp_path):
    def source(text):
        path = tmp_path / "p.c"
        path.write_text(text)
        return compile_plugin(tmp_path, path, f"p{abs(hash(text))}.so")

    stage.expire(1)
    text = tmp_path / "text.so"
    text.write_text("no library")
    for path, words in (
        (tmp_path / "none.so", "cannot open shared object file"),
        (text, "file too short"),
        (source("int x;"), "it has no symbol leasehold_reap_plugin"),
        (source("#include <leasehold.h>\nconst struct lh_reap_plugin leasehold_reap_plugin = {.version = 99};"),
         "is made for version 99 of plugins, this program has version 1"),
        (source("#include <leasehold.h>\nconst struct lh_reap_plugin leasehold_reap_plugin = {.version = 1};"),
         "has no callback on_lease"),
    ):
        said = stage("reap", "--plugin", path)
        assert said.returncode == 2 and words in said.stderr, said.stderr
    assert stage.held() == 1


def test_the_example_of_a_plugin_puts_the_job_back(stage):
    stage.psql("create table job (id text primary key, state text not null, attempts integer not null default 0);"
               "insert into job values ('k1', 'running'), ('k2', 'running'), ('other', 'running')")
    stage.expire(2)
    stage.done("reap", "jobs", "--plugin", harness.BUILD / "deploy/examples/put_back.so")
    assert stage.psql("select string_agg(id || state || attempts, ' ' order by id) from job") == "k1queued1 k2queued1 otherrunning0"
    stage.psql("drop table job")
    stage.expire(1)
    said = stage("reap", "jobs", "--plugin", harness.BUILD / "deploy/examples/put_back.so")
    assert said.returncode == 1 and "cannot put job k1 back" in said.stderr and stage.held() == 1
