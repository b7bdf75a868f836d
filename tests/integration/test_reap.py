"""`leasehold reap` from its command line, and who calls it: systemd, cron, and pg_cron in SQL."""
import os
import pty
import re
import select
import subprocess

import pytest

import harness
from commandline import environment
from harness import wait_until

EXAMPLES = harness.ROOT / "deploy/examples"


@pytest.fixture(scope="module", autouse=True)
def pg_cron():
    """pg_cron comes at full minutes: it is started first and looked at last."""
    cluster = harness.Cluster(["shared_preload_libraries = 'pg_cron'", "cron.database_name = 'postgres'",
                               "cron.use_background_workers = on"])
    psql = lambda sql: cluster.psql(sql, "postgres")
    subprocess.run([harness.CLI, "migrate", "--database", cluster.url("postgres")], check=True, capture_output=True)
    psql("select leasehold.set_policy('', free_retention => '1 h'); select leasehold.reap()")
    psql("select leasehold.acquire('jobs', 'k', '30 s', owner => 'gone')")
    psql("update leasehold.scope set deadline = deadline - interval '1 h', heartbeat_at = heartbeat_at - interval '1 h', check_at = now()")
    psql("create extension pg_cron")
    psql((EXAMPLES / "pg_cron.sql").read_text())
    yield psql
    cluster.destroy()


# --- the command line ---


def test_wrong_usage_of_reap(stage):
    for args, words in ((["--exec", "x", "--plugin", "y"], "cannot be combined"), (["--exec-timeout", "1s"], "is for --exec"),
                        (["--exec", "x", "--exec-timeout", "never"], "not a duration")):
        said = stage("reap", *args)
        assert said.returncode == 2 and words in said.stderr
    for args in (["reap", "--exec", "true"], ["reap", "--plugin", "x.so"], ["hook", "list"]):
        said = subprocess.run([harness.CLI, *args], capture_output=True, text=True, env=environment())
        assert said.returncode == 2 and "works on a database: --database URL" in said.stderr
    gone = subprocess.run([harness.CLI, "reap", "--exec", "true", "--database", "host=/nowhere"], capture_output=True, text=True,
                          env=environment())
    assert gone.returncode == 5 and "the database is unavailable" in gone.stderr


def test_an_unknown_namespace_is_nothing_to_do(stage):
    stage.expire(1)
    said = stage.done("reap", "jibs", "jobs.child")
    assert said.stdout == "reaped 0 leases\n"
    assert said.stderr == ("leasehold: jibs has no lease, policy or hook: nothing to do\n"
                           "leasehold: jobs.child has no lease, policy or hook: nothing to do\n")
    assert stage.done("reap", "jobs").stderr == "" and stage.done("reap", "jobs").stderr == ""


def test_an_administrator_needs_no_more_than_its_role(stage, plugin):
    stage.psql("do $$ begin create role reap_admin login; exception when duplicate_object then null; end $$;"
               "grant leasehold_admin to reap_admin; grant insert on counted to reap_admin")
    stage.expire(9)
    as_admin = lambda *args, **env: subprocess.run([harness.CLI, *map(str, args), "--database", stage.url.replace("user=postgres", "user=reap_admin")],
                                                   capture_output=True, text=True, env=environment(**env))
    assert as_admin("reap", "jobs", "--plugin", plugin, REAP_MODE="third").returncode == 1
    assert len(stage.failures()) == 3
    said = as_admin("reap", "jobs", "nowhere")
    assert said.returncode == 0 and said.stdout == "reaped 3 leases\n"
    said = as_admin("reap", "nowhere")
    assert said.returncode == 0 and "has no lease, policy or hook: nothing to do" in said.stderr
    assert as_admin("hook", "list").returncode == 0


def test_what_only_reapers_visit_is_kept_in_order(stage, plugin):
    """No daemon and no leasehold.reap(): free rows go after their retention all the same, also of leases never reaped."""
    stage.psql("select leasehold.set_policy('', free_retention => '0 s')")
    stage.expire(20)
    stage.psql("select count(leasehold.release_ok(namespace, key, lease_key)) from leasehold.acquire('free', 'a', '30 s')")
    stage.psql("update leasehold.scope set check_at = now() - interval '1 s'")
    stage.done("reap", "--plugin", plugin)
    wait_until(lambda: stage.done("reap", "--plugin", plugin) and stage.number("select count(*) from leasehold.scope") == 0,
               what="no rows")


def test_every_goes_on_through_failures_and_a_restart(stage, plugin):
    reaper = stage.start("reap", "jobs", "--every", "100ms", "--plugin", plugin, REAP_MODE="third")
    try:
        stage.expire(3)
        wait_until(lambda: stage.held() == 1, what="the first reaping")
        stage.psql("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'leasehold'")
        stage.expire(2, first=4)
        wait_until(lambda: stage.held() == 1, what="the second")
        assert reaper.poll() is None
    finally:
        reaper.terminate()
    out, err = reaper.communicate(timeout=30)
    # By its name it is tried at once, then by its backoff: not ten times a second.
    assert 1 <= err.count("could not reap jobs/k3") < 8


def test_progress_is_shown_where_somebody_looks_on(stage, tmp_path):
    stage.expire(30)
    master, slave = pty.openpty()
    seen = tmp_path / "seen"
    reaper = subprocess.Popen([harness.CLI, "reap", "jobs", "--exec", f"[ -e {seen} ] || sleep 0.1", "--database", stage.url],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=slave, env=environment())
    os.close(slave)
    shown = ""
    while not re.search(r"\r\x1b\[Kreaped \d+, failed 0, \d+ s", shown):
        assert select.select([master], [], [], 60)[0], shown
        shown += os.read(master, 65536).decode()
    seen.touch()
    assert reaper.communicate(timeout=60)[0] == b"reaped 30 leases\n"
    os.close(master)


# --- who calls it ---


def test_the_units_are_sound(tmp_path):
    for name in ("leasehold-reap@.service", "leasehold-reap@.timer"):
        text = (harness.ROOT / "deploy/systemd" / name).read_text()
        (tmp_path / name).write_text(text.replace("/usr/bin/leasehold", str(harness.CLI)))
    said = subprocess.run(["systemd-analyze", "verify", "--man=no", tmp_path / "leasehold-reap@jobs.service",
                           tmp_path / "leasehold-reap@jobs.timer"], capture_output=True, text=True)
    assert said.returncode == 0 and "leasehold-reap" not in said.stderr, said.stderr


def commands_of(path, pattern):
    return [match.group(1) for match in map(re.compile(pattern).match, path.read_text().splitlines()) if match]


def test_the_unit_and_the_crontab_say_what_the_program_understands(stage):
    bin_dir = str(harness.CLI.parent)
    unit = harness.ROOT / "deploy/systemd/leasehold-reap@.service"
    (start,) = commands_of(unit, r"ExecStart=/usr/bin/(leasehold .*)")
    (cron,) = commands_of(EXAMPLES / "leasehold.cron", r"\* \* \* \* \* postgres (leasehold .*)")
    for namespace, command in (("jobs.night", start.replace("%I", "jobs")), ("jobs", cron)):
        stage.expire(5, namespace=namespace)
        env = environment(LEASEHOLD_DATABASE=stage.url, PATH=bin_dir + ":" + os.environ["PATH"])
        said = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, env=env, timeout=60)
        assert said.returncode == 0 and said.stderr == "" and stage.held() == 0
    env["LEASEHOLD_REAP_OPTIONS"] = "--exec false"
    stage.expire(1, namespace="jobs.night")
    said = subprocess.run(["/bin/sh", "-c", start.replace("%I", "jobs")], capture_output=True, text=True, env=env, timeout=60)
    assert said.returncode == 1 and "ended with status 1" in said.stderr


# --- pg_cron, which had the time of all the others ---


def test_pg_cron_reaps_each_minute(pg_cron):
    assert pg_cron("select schedule, command from cron.job order by jobid limit 1") == "* * * * *|select leasehold.reap()"
    wait_until(lambda: pg_cron("select state || last_outcome from leasehold.scope where key = 'k'") == "freeexpired", 90,
               "the reaping by pg_cron")
    wait_until(lambda: pg_cron("select count(*) from cron.job_run_details where status = 'succeeded'") != "0", 30, "its record")
