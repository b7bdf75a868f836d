"""Reaping from outside of a daemon: `leasehold reap` with plugins and commands, `leasehold hook`, the library over a PGconn, and
what calls them: systemd, cron, pg_cron.
"""
import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import uuid

import pytest

import harness
from harness import wait_until

SOURCE = pathlib.Path(__file__).parent / "reap_plugin.c"
EXAMPLES = harness.ROOT / "deploy/examples"


class Stage:
    """A database of its own, with expired leases in it as many as one likes, and the command line on it."""

    def __init__(self, cluster, template=None):
        self.cluster = cluster
        self.name = "reap_" + uuid.uuid4().hex[:12]
        cluster.psql(f"create database {self.name}" + (f" template {template.name}" if template else ""), "postgres")
        self.url = cluster.url(self.name)

    def build(self):
        self.done("migrate")
        self.psql("create table counted (token bigint primary key, key text not null, pid integer not null)")
        self.psql("create table parent (id integer primary key);"
                  "create table child (id integer references parent deferrable initially deferred)")
        self.psql("select * from leasehold.reap()")  # notices that the database is new
        return self

    def psql(self, sql, **more):
        return self.cluster.psql(sql, self.name, **more)

    def number(self, sql):
        return int(self.psql(sql))

    def expire(self, count, namespace="jobs", first=1):
        """Leases k1, k2 ... whose holders went away an hour ago."""
        for start in range(first, first + count, 500):
            end = min(start + 500, first + count) - 1
            self.psql("select count(*) from (select array_agg('k' || n) as keys, array_agg('worker-' || n) as owners, array_agg(gen_random_uuid()) as ids,"
                      f" array_agg('{namespace}'::text) as namespaces, array_agg('{{}}'::text) as labels, array_agg(30000000::bigint) as durations,"
                      f" array_agg(false) as queue, array_agg(null::bigint) as nothing from generate_series({start}, {end}) n) a,"
                      " leasehold.acquire_batch(null, null, a.namespaces, a.keys, a.ids, a.owners, a.labels, a.durations, a.queue, a.nothing,"
                      " a.nothing)")
        self.psql(f"update leasehold.scope set acquired_at = acquired_at - interval '1 h', heartbeat_at = heartbeat_at - interval '1 h',"
                  f" deadline = deadline - interval '1 h', check_at = check_at - interval '1 h'"
                  f" where namespace = '{namespace}' and state = 'held' and deadline > now()")

    def held(self):
        return self.number("select count(*) from leasehold.scope where state = 'held'")

    def counted(self):
        """(committed callbacks, leases that they were for): equal when nothing was done twice."""
        return tuple(map(int, self.psql("select count(*), count(distinct key) from counted").split("|")))

    def command(self, *args):
        return [str(harness.CLI), *map(str, args), "--database", self.url]

    def environment(self, **more):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("LEASEHOLD_", "REAP_"))}
        return {**kept, "TZ": "UTC", "LC_ALL": "C.UTF-8", **more}

    def __call__(self, *args, seconds=60, **env):
        return subprocess.run(self.command(*args), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds,
                              env=self.environment(**env))

    def done(self, *args, **more):
        said = self(*args, **more)
        assert said.returncode == 0, f"{args}: exit {said.returncode}: {said.stderr}"
        return said

    def start(self, *args, **env):
        return subprocess.Popen(self.command(*args), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env=self.environment(**env))

    def failures(self):
        return dict(line.split("|", 1) for line in self.psql("select key, error from leasehold.reap_failure").splitlines())

    def let_retry(self):
        """As if the backoff of what has failed had passed."""
        self.psql("update leasehold.scope set next_try_at = now() - interval '1 s', check_at = now() - interval '1 s',"
                  " reap_failed_at = now() - interval '1 min' where reap_failures > 0")


@pytest.fixture(scope="module")
def template(cluster):
    return Stage(cluster).build()


@pytest.fixture
def stage(cluster, template):
    return Stage(cluster, template)


def compile_plugin(directory, source, name="plugin.so"):
    where = directory / name
    include = subprocess.run(["pg_config", "--includedir"], check=True, capture_output=True, text=True).stdout.strip()
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Werror", f"-I{harness.ROOT / 'src'}", f"-I{include}", "-o", where,
                    source, "-lpq"], check=True)
    return where


@pytest.fixture(scope="session")
def plugin(tmp_path_factory):
    return compile_plugin(tmp_path_factory.mktemp("plugin"), SOURCE)


@pytest.fixture(scope="module", autouse=True)
def pg_cron():
    """pg_cron comes at full minutes: it is started first and looked at last."""
    cluster = harness.Cluster(["shared_preload_libraries = 'pg_cron'", "cron.database_name = 'postgres'",
                               "cron.use_background_workers = on"])
    psql = lambda sql: cluster.psql(sql, "postgres")
    subprocess.run([harness.CLI, "migrate", "--database", cluster.url("postgres")], check=True, capture_output=True)
    psql("select leasehold.set_policy('', free_retention => '1 h'); select leasehold.reap()")
    psql("select leasehold.acquire('jobs', 'k', '30 s', owner => 'gone')")
    psql("update leasehold.scope set deadline = deadline - interval '1 h', check_at = now()")
    psql("create extension pg_cron")
    psql((EXAMPLES / "pg_cron.sql").read_text())
    yield psql
    cluster.destroy()


# --- plugins ---


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
    assert stage("reap", "--plugin", plugin, REAP_MODE="third").stdout == "reaped 0 leases\n"
    assert stage.psql("select max(reap_failures) from leasehold.reap_failure") == "1"
    said = stage("reap", "jobs", "--plugin", plugin, "-o", "json", REAP_MODE="third")
    failures = json.loads(said.stdout)["failures"]
    assert said.returncode == 1 and len(failures) == 30 and {f["reap_failures"] for f in failures} == {2}
    assert failures[0]["lease"]["owner"].startswith("worker-") and failures[0]["lease"]["liveness"] == "LIVENESS_EXPIRED"
    assert stage.done("reap", "jobs", "--plugin", plugin).stdout == "reaped 30 leases\n"
    assert stage.counted() == (90, 90) and stage.failures() == {}


def test_after_too_many_failures_it_waits_for_a_person(stage, plugin):
    stage.psql("select leasehold.set_policy('jobs', max_reap_failures => 2)")
    stage.expire(1, first=3)
    assert stage("reap", "--plugin", plugin, REAP_MODE="third").returncode == 1
    stage.let_retry()
    said = stage("reap", "--plugin", plugin, REAP_MODE="third")
    assert said.returncode == 1 and "(2 times so far)" in said.stderr and "next try: never by itself" in said.stderr
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


# --- commands ---


def test_a_command_is_told_of_its_lease_and_decides(stage, tmp_path):
    stage.expire(3, namespace="jobs.night")
    log = tmp_path / "log"
    command = (f'echo "$LEASEHOLD_NAMESPACE $LEASEHOLD_KEY $LEASEHOLD_LEASE_KEY $LEASEHOLD_TOKEN $LEASEHOLD_OWNER" >> {log};'
               'cat; echo checking; echo "no $LEASEHOLD_KEY" >&2; test $LEASEHOLD_KEY != k2')
    facts = stage.psql("select concat_ws(' ', namespace, key, lease_key, token, owner) from leasehold.scope order by key")
    said = stage("reap", "jobs", "--children", "--exec", command, "-v")
    assert said.returncode == 1 and said.stdout == "reaped 2 leases\n"
    assert sorted(log.read_text().splitlines()) == facts.splitlines()
    assert "leasehold: jobs.night/k1: checking\nleasehold: jobs.night/k1: no k1\nleasehold: reaped jobs.night/k1 of worker-1" in said.stderr
    assert stage.failures() == {"k2": "the command ended with status 1: checking no k2"}
    assert stage("reap", "jobs", "--children", "--exec", "kill -9 $$").returncode == 1
    assert stage.failures() == {"k2": "the command was ended by signal 9 (Killed)"}
    assert stage("reap", "jobs", "--children", "--exec", "/no/such/program").returncode == 1
    assert "ended with status 127" in stage.failures()["k2"]
    assert stage.done("reap", "jobs", "--children", "--exec", "true").stdout == "reaped 1 lease\n"


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_command_past_its_limit_is_killed_with_all_it_has_started(stage, tmp_path):
    stage.psql("select leasehold.set_policy('jobs', hook_timeout => '300 ms')")
    stage.expire(1)
    pids = tmp_path / "pids"
    command = f"trap '' TERM; sleep 300 & echo $! >> {pids}; echo $$ >> {pids}; echo slow; wait; sleep 300"
    said = stage("reap", "jobs", "--exec", command)
    assert said.returncode == 1
    assert stage.failures() == {"k1": "the command ran over its limit of 300 ms and was killed: slow"}
    assert stage("reap", "jobs", "--exec", command, "--exec-timeout", "100ms").returncode == 1
    assert "its limit of 100 ms" in stage.failures()["k1"]
    started = pids.read_text().split()
    assert len(started) == 4
    wait_until(lambda: not any(map(is_running, started)), what="the end of everything that was started")
    # What is left behind by one that succeeds goes too.
    assert stage.done("reap", "jobs", "--exec", f"sleep 300 & echo $! > {pids}").stdout == "reaped 1 lease\n"
    wait_until(lambda: not is_running(pids.read_text().strip()), what="the end of the child that was left")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_reaper_that_is_killed_takes_its_command_along(stage, tmp_path, number):
    stage.expire(1)
    pids = tmp_path / "pids"
    command = f"trap '' TERM; sleep 300 & echo $! $$ > {pids}; wait; sleep 300"
    reaper = stage.start("reap", "jobs", "--exec", command, "--exec-timeout", "5m")
    wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2, what="the command")
    reaper.send_signal(number)
    reaper.communicate(timeout=30)
    wait_until(lambda: not any(map(is_running, pids.read_text().split())), what="the command's end")
    wait_until(lambda: stage.number("select count(*) from pg_stat_activity where application_name = 'leasehold'") == 0,
               what="the end of its session")
    assert stage.held() == 1 and stage.done("reap", "jobs", "--exec", "true").stdout == "reaped 1 lease\n"


def test_a_command_whose_lease_is_lost_with_the_connection_is_killed(stage, tmp_path):
    stage.expire(1)
    pids = tmp_path / "pids"
    reaper = stage.start("reap", "jobs", "--exec", f"echo $$ > {pids}; sleep 300", "--exec-timeout", "5m")
    wait_until(lambda: pids.exists() and pids.read_text().strip(), what="the command")
    stage.psql("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'leasehold'")
    out, err = reaper.communicate(timeout=30)
    assert reaper.returncode == 1 and "the connection was lost while the callback ran" in err
    assert not is_running(pids.read_text().strip()) and stage.held() == 1


def test_two_reapers_with_commands_run_each_once(stage, tmp_path):
    stage.expire(60)
    log = tmp_path / "log"
    reapers = [stage.start("reap", "jobs", "--exec", f"echo $LEASEHOLD_KEY >> {log}") for _ in range(2)]
    for reaper in reapers:
        assert reaper.wait(60) == 0
        reaper.communicate()
    assert sorted(log.read_text().split()) == sorted(f"k{n}" for n in range(1, 61)) and stage.held() == 0


# --- hooks in SQL ---


PUT_BACK = """
    create function put_back(e leasehold.lease_event) returns void language plpgsql set search_path = public as $$
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
    stage.psql("create function count_it(e leasehold.lease_event) returns void language sql set search_path = public"
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
    assert stage.done("hook", "list").stderr == "there are no hooks\n"
    stage.psql(PUT_BACK)
    said = stage.done("hook", "add", "jobs", "reap", "public.put_back")
    assert said.stdout == "jobs: public.put_back(leasehold.lease_event) runs at reap from now on\n" and said.stderr == ""
    assert "already" in stage.done("hook", "add", "jobs", "reap", "public.put_back(leasehold.lease_event)").stdout
    stage.done("hook", "add", ".", "acquire", "public.put_back")
    stage.done("hook", "add", "other", "reap", "public.put_back")
    rows = [line.split()[:3] for line in stage.done("hook", "list", "jobs.child").stdout.splitlines()]
    assert rows == [["NAMESPACE", "EVENT", "FUNCTION"], ["(root)", "acquire", "public.put_back(leasehold.lease_event)"],
                    ["jobs", "reap", "public.put_back(leasehold.lease_event)"]]
    listed = json.loads(stage.done("hook", "list", "-o", "json").stdout)["hooks"]
    assert [(h["namespace"], h["event"], h["position"], h["exists"]) for h in listed] == [
        ("", "acquire", 1, True), ("jobs", "reap", 1, True), ("other", "reap", 1, True)]
    assert "runs at acquire no more" in stage.done("hook", "remove", ".", "acquire", "public.put_back").stdout
    stage.psql("drop function put_back")
    assert "does not exist: vetoes everything" in stage.done("hook", "list", "jobs").stdout
    stage.done("hook", "remove", "jobs", "reap", "public.put_back")
    said = stage("hook", "remove", "jobs", "reap", "public.put_back")
    assert said.returncode == 1 and "jobs has no hook public.put_back(leasehold.lease_event) for reap of its own" in said.stderr


@pytest.mark.parametrize("args,words", [
    (["add", "jobs", "reap", "public.nothing"], "there is no function public.nothing(leasehold.lease_event)"),
    (["add", "jobs", "reap", "public.number"], "function must be a function f(leasehold.lease_event) returns void"),
    (["add", "jobs", "reap", "public.foreign_one"], "function must be a function whose owner is a member of leasehold_admin"),
    (["add", "jobs", "reap", "public.o ops("], "is no function's name"),
    (["add", "jobs", "reep", "public.number"], "did you mean reap"),
    (["add", "a..b", "reap", "public.number"], "empty segment"),
    (["add", "jobs", "reap"], "needs NAMESPACE EVENT FUNCTION"),
    (["list", "jobs", "reap"], "a word too many"),
    (["delete", "jobs"], "there are list, add and remove"),
])
def test_wrong_hooks_are_refused(stage, args, words):
    stage.psql("create function number(leasehold.lease_event) returns integer language sql as 'select 1';"
               "create function foreign_one(leasehold.lease_event) returns void language sql security definer as '';"
               "do $$ begin create role reap_nobody; exception when duplicate_object then null; end $$;"
               "alter function foreign_one owner to reap_nobody")
    said = stage("hook", *args)
    assert said.returncode == 2 and words in said.stderr, said.stderr


# --- the command line ---


def test_wrong_usage_of_reap(stage):
    for args, words in ((["--exec", "x", "--plugin", "y"], "exclude each other"), (["--exec-timeout", "1s"], "is for --exec"),
                        (["--exec", "x", "--exec-timeout", "never"], "not a duration")):
        said = stage("reap", *args)
        assert said.returncode == 2 and words in said.stderr
    for args in (["reap", "--exec", "true"], ["reap", "--plugin", "x.so"], ["hook", "list"]):
        said = subprocess.run([harness.CLI, *args], capture_output=True, text=True, env=stage.environment())
        assert said.returncode == 2 and "works on the database: --database URL" in said.stderr
    gone = subprocess.run([harness.CLI, "reap", "--exec", "true", "--database", "host=/nowhere"], capture_output=True, text=True,
                          env=stage.environment())
    assert gone.returncode == 5 and "the database is unavailable" in gone.stderr


def test_an_unknown_namespace_is_nothing_to_do(stage):
    stage.expire(1)
    said = stage.done("reap", "jibs", "jobs.child")
    assert said.stdout == "reaped 0 leases\n"
    assert said.stderr == ("leasehold: nothing to do in jibs: no lease, policy or hook is known there\n"
                           "leasehold: nothing to do in jobs.child: no lease, policy or hook is known there\n")
    assert stage.done("reap", "jobs").stderr == "" and stage.done("reap", "jobs").stderr == ""


def test_an_administrator_needs_no_more_than_its_role(stage, plugin):
    stage.psql("do $$ begin create role reap_admin login; exception when duplicate_object then null; end $$;"
               "grant leasehold_admin to reap_admin; grant insert on counted to reap_admin")
    stage.expire(9)
    as_admin = lambda *args, **env: subprocess.run([harness.CLI, *map(str, args), "--database", stage.url.replace("user=postgres", "user=reap_admin")],
                                                   capture_output=True, text=True, env=stage.environment(**env))
    assert as_admin("reap", "jobs", "--plugin", plugin, REAP_MODE="third").returncode == 1
    assert len(stage.failures()) == 3
    said = as_admin("reap", "jobs", "nowhere")
    assert said.returncode == 0 and said.stdout == "reaped 3 leases\n"
    said = as_admin("reap", "nowhere")
    assert said.returncode == 0 and "no lease, policy or hook is known there" in said.stderr
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
    reaper = subprocess.Popen(stage.command("reap", "jobs", "--exec", "sleep 0.1"), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=slave, env=stage.environment())
    os.close(slave)
    assert reaper.communicate(timeout=60)[0] == b"reaped 30 leases\n"
    shown = os.read(master, 65536).decode()
    os.close(master)
    assert re.search(r"\r\x1b\[Kreaped \d+, failed 0, \d+ s", shown)


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
        env = stage.environment(LEASEHOLD_DATABASE=stage.url, PATH=bin_dir + ":" + os.environ["PATH"])
        said = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, env=env, timeout=60)
        assert said.returncode == 0 and said.stderr == "" and stage.held() == 0
    env["LEASEHOLD_REAP_OPTIONS"] = "--exec false"
    stage.expire(1, namespace="jobs.night")
    said = subprocess.run(["/bin/sh", "-c", start.replace("%I", "jobs")], capture_output=True, text=True, env=env, timeout=60)
    assert said.returncode == 1 and "ended with status 1" in said.stderr


# --- the examples ---


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


def test_the_example_of_a_command_cleans_up(stage, tmp_path):
    stage.expire(1)
    token = stage.psql("select token from leasehold.scope")
    (tmp_path / f"k1-{token}").mkdir()
    (tmp_path / "k1-1").mkdir()
    command = str(EXAMPLES / "reap-exec/gone-runner")
    said = stage.done("reap", "jobs", "--exec", command, SCRATCH=str(tmp_path))
    assert f"leasehold: jobs/k1: runner k1 (token {token}, worker-1) is gone" in said.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["k1-1"]
    stage.psql("select count(*) from leasehold.acquire('evil', '../etc', '30 s')")
    stage.psql("update leasehold.scope set deadline = deadline - interval '1 h', check_at = now() where key = '../etc'")
    said = stage("reap", "evil", "--exec", command, SCRATCH=str(tmp_path))
    assert said.returncode == 1 and "is no runner's name" in said.stderr


def test_the_example_of_embedding_works_on_its_job(stage):
    worker = harness.BUILD / "deploy/examples/worker"
    stage.psql("create table job (id text primary key, state text not null, token bigint, steps integer not null default 0);"
               "insert into job values ('invoice-42', 'queued')")
    run = lambda key: subprocess.run([worker, stage.url, "jobs", key], capture_output=True, text=True, timeout=60)
    said = run("invoice-42")
    assert said.returncode == 0 and "done after 3 heartbeats" in said.stdout, said.stderr
    token = stage.psql("select token from leasehold.scope")
    assert stage.psql("select * from job") == f"invoice-42|done|{token}|3"
    assert stage.psql("select state, last_outcome, last_result from leasehold.scope") == 'free|ok|{"steps": 3}'
    said = run("no-such-job")
    assert said.returncode == 1 and "there is no such job" in said.stderr and stage.held() == 0
    # It waits for its turn, and is told by NOTIFY when that comes.
    stage.psql("insert into job values ('next', 'queued')")
    lease_key = stage.psql("select lease_key from leasehold.acquire('jobs', 'next', '1 h')")
    waiting = subprocess.Popen([worker, stage.url, "jobs", "next"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: stage.number("select count(*) from leasehold.waiter") == 1, what="the worker in the queue")
    stage.psql(f"select leasehold.release_ok('jobs', 'next', '{lease_key}')")
    out, err = waiting.communicate(timeout=60)
    assert waiting.returncode == 0 and "done" in out, err
    assert stage.number("select count(*) from leasehold.waiter") == 0


# --- pg_cron, which had the time of all the others ---


def test_pg_cron_reaps_each_minute(pg_cron):
    assert pg_cron("select schedule, command from cron.job order by jobid limit 1") == "* * * * *|select leasehold.reap()"
    wait_until(lambda: pg_cron("select state || last_outcome from leasehold.scope where key = 'k'") == "freeexpired", 90,
               "the reaping by pg_cron")
    wait_until(lambda: pg_cron("select count(*) from cron.job_run_details where status = 'succeeded'") != "0", 30, "its record")
