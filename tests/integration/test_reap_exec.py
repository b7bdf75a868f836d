"""`leasehold reap --exec`: a command for each lease, its limits, and what becomes of what it has started."""
import pathlib
import signal

import pytest

import harness
from harness import wait_until


def test_a_command_is_told_of_its_lease_and_decides(stage, tmp_path):
    stage.expire(3, namespace="jobs.night")
    stage.psql("update leasehold.scope set principal = 'dns:' || owner")
    log = tmp_path / "log"
    command = ('echo "$LEASEHOLD_NAMESPACE $LEASEHOLD_KEY $LEASEHOLD_LEASE_KEY $LEASEHOLD_TOKEN $LEASEHOLD_OWNER $LEASEHOLD_PRINCIPAL"'
               f' >> {log};'
               'cat; echo checking; echo "no $LEASEHOLD_KEY" >&2; test $LEASEHOLD_KEY != k2')
    facts = stage.psql("select concat_ws(' ', namespace, key, lease_key, token, owner, principal) from leasehold.scope order by key")
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
    # What is reaped without a name is everyday, and not in it.
    audited = ("select principal = 'role:' || session_user, namespace, outcome, sum(count) from leasehold.audit where action = 'reap'"
               " group by principal, namespace, outcome")
    assert stage.psql(audited) == "t|jobs.night|done|3"
    stage.expire(1, namespace="jobs.night")
    assert stage.done("reap", "--exec", "true").stdout == "reaped 1 lease\n"
    assert stage.psql(audited) == "t|jobs.night|done|3"


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


def test_the_example_of_a_command_cleans_up(stage, tmp_path):
    stage.expire(1)
    token = stage.psql("select token from leasehold.scope")
    (tmp_path / f"k1-{token}").mkdir()
    (tmp_path / "k1-1").mkdir()
    command = str(harness.ROOT / "deploy/examples/reap-exec/gone-runner")
    said = stage.done("reap", "jobs", "--exec", command, SCRATCH=str(tmp_path))
    assert f"leasehold: jobs/k1: runner k1 (token {token}, worker-1) is gone" in said.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["k1-1"]
    stage.psql("select count(*) from leasehold.acquire('evil', '../etc', '30 s')")
    stage.psql("update leasehold.scope set deadline = deadline - interval '1 h', heartbeat_at = heartbeat_at - interval '1 h', check_at = now() where key = '../etc'")
    said = stage("reap", "evil", "--exec", command, SCRATCH=str(tmp_path))
    assert said.returncode == 1 and "is no runner's name" in said.stderr
