"""`leasehold run` as a stranger uses it: the real program, a real daemon, and /proc. Where a lease is lost, a watcher notes when the
last process of the command went, and what the clock said then. Signals and the terminal are in test_run_terminal.py."""
import os
import re
import signal
import subprocess
import time

import pytest

import harness
from harness import wait_until
from running import is_up, scope, state_and_parent

NOWHERE = "127.0.0.1:1"


# --- flock's habits ---


def test_the_options_of_flock(service, runs, ns, tmp_path):
    target = ["--server", service.daemon.target]
    flock = lambda *args: subprocess.run([harness.CLI, "run", *target, *args], capture_output=True, text=True, timeout=60)
    said = flock(ns, "k", "-x", "-c", "echo $LEASEHOLD_KEY; exit 7")
    assert said.returncode == 7 and said.stdout == "k\n", said.stderr
    holder = runs(ns, "k", "touch up; while [ ! -e go ]; do sleep 0.02; done", cwd=tmp_path)
    is_up(tmp_path / "up")
    assert flock("-n", ns, "k", "-c", "true").returncode == 3
    for mode in ("-s", "-s2"):
        reader = flock("-n", mode, ns, "read", "-c", f"{harness.CLI} show --server {service.daemon.target} {ns} read -o json")
        assert '"mode": "MODE_SHARED"' in reader.stdout and f'"units": {mode[2:] or 1}' in reader.stdout, reader.stderr
    assert flock("-n", "-E", "9", ns, "k", "-c", "true").returncode == 9
    assert flock("-w", "0.2", ns, "k", "-c", "true").returncode == 3  # a number is seconds
    (tmp_path / "go").touch()
    assert holder.ends() == 0, holder.err
    assert flock("-w", "20", "-E", "9", ns, "k", "--", "sh", "-c", "exit 5").returncode == 5


@pytest.mark.parametrize("words, sentence", [
    (["-n", "-w", "1", "a", "b", "-c", "true"], "--nonblock and --wait cannot be combined"),
    (["a", "b", "-c", "true", "--", "true"], "--command and COMMAND cannot be combined"),
])
def test_options_that_contradict_each_other_are_refused(words, sentence):
    said = subprocess.run([harness.CLI, "run", *words], capture_output=True, text=True, timeout=60)
    assert said.returncode == 2 and sentence in said.stderr


@pytest.mark.parametrize("words", [["--", "echo", "touch", "it-ran"], ["sudo", "touch", "it-ran"], ["--repeat", "--", "sudo", "touch", "it-ran"],
                                   ["--also", "b:k", "--", "echo", "touch", "it-ran"],
                                   ["-c", "touch it-ran", "--", "k"], ["--terraform", "--", "echo", "touch", "it-ran"]], ids=" ".join)
def test_without_a_key_nothing_is_run(service, ns, tmp_path, words):
    """What follows the word that would be the key is another command than the one that was typed."""
    said = subprocess.run([harness.CLI, "run", "--server", service.daemon.target, ns, *words], cwd=tmp_path, capture_output=True, text=True,
                          timeout=60)
    assert said.returncode == 2 and "usage: leasehold run NAMESPACE KEY -- COMMAND" in said.stderr
    assert list(tmp_path.iterdir()) == []
    assert service.psql(f"select count(*) from leasehold.scope where namespace = '{ns}'") == "0"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_do_not_end_the_command(service, ns, tmp_path, closed):
    said = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", harness.CLI, "run", "--server", service.daemon.target, ns, "k", "--",
                           "sh", "-c", "sleep 0.2; touch done; exit 7"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert said.returncode == 7 and (tmp_path / "done").exists(), said.stderr


def test_a_message_that_nobody_reads_does_not_cost_the_lease(service, ns, tmp_path):
    """stderr is a full pipe: the run ends when its command does, though it has something to say."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    said = subprocess.run([harness.CLI, "run", "--server", service.daemon.target, ns, "k", "--", "./nowhere"], cwd=tmp_path, stderr=writer,
                          timeout=60)
    assert said.returncode == 127
    assert service.psql(f"select count(*) from leasehold.lease where namespace = '{ns}'") == "0"
    os.close(reader)
    os.close(writer)


# --- again and again ---


def lines_of(path):
    return path.read_text().split() if path.exists() else []


def test_a_repeated_run_stands_for_election_again(service, runs, ns, tmp_path):
    """Two candidates: each command ends at once, so that they take turns; each term has a token and a lease key of its own."""
    script = 'echo "$LEASEHOLD_TOKEN/$LEASEHOLD_LEASE_KEY" >> terms; read line; exit 3'
    candidates = [runs(ns, "k", script, "--repeat", cwd=tmp_path) for _ in range(2)]
    wait_until(lambda: len(lines_of(tmp_path / "terms")) >= 4, what="four terms")
    terms = lines_of(tmp_path / "terms")
    tokens = [int(term.split("/")[0]) for term in terms]
    assert tokens == sorted(tokens) and len(set(terms)) == len(terms)
    for candidate in candidates:
        candidate.process.terminate()
    assert {candidate.ends() for candidate in candidates} <= {3, 143}
    wait_until(lambda: scope(service, ns, "state") == "free", what="the release")


def test_a_repeated_run_comes_back_after_its_lease_was_lost(service, runs, ns, tmp_path):
    run = runs(ns, "k", "echo $LEASEHOLD_TOKEN >> terms; sleep 60", "--repeat", cwd=tmp_path)
    wait_until(lambda: len(lines_of(tmp_path / "terms")) == 1, what="the first term")
    service.psql(f"select leasehold.force_release('{ns}', 'k', 'maintenance')")
    wait_until(lambda: len(lines_of(tmp_path / "terms")) == 2, what="the second term")
    first, second = map(int, lines_of(tmp_path / "terms"))
    assert second > first and scope(service, ns, "state, token") == f"held|{second}"
    run.process.terminate()
    assert run.ends() == 143 and scope(service, ns, "state") == "free"
    run.nothing_is_left()


def test_a_repeated_run_ends_where_repeating_does_not_help(runs, ns):
    assert runs(ns, "k", None, "--repeat", argv=["/nonexistent/program"]).ends() == 127
    assert runs(ns + "..", "k", "true", "--repeat").ends() == 2
    assert runs(ns, "k", "true", "--repeat", "-d", "2d").ends() == 2


# --- the happy path ---


@pytest.mark.parametrize("script, status, outcome", [
    ("exit 0", 0, "ok|"),
    ("exit 3", 3, "failed|the command ended with status 3"),
    ("exit 255", 255, "failed|the command ended with status 255"),
    ("kill -9 $$", 137, "failed|the command was ended by signal 9 (Killed)"),
])
def test_the_status_is_the_commands(service, runs, ns, script, status, outcome):
    run = runs(ns, "k", script)
    assert run.ends() == status, run.err
    assert scope(service, ns, "state, last_outcome, coalesce(last_error, '')") == "free|" + outcome


def test_what_cannot_be_run_is_126_or_127(service, runs, ns, tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("no program")
    run = runs(ns, "k", None, argv=["/nonexistent/program"])
    assert run.ends() == 127 and "cannot run /nonexistent/program: No such file" in run.err
    run = runs(ns, "k", None, argv=[str(plain)])
    assert run.ends() == 126 and "Permission denied" in run.err
    assert scope(service, ns) == "free|failed"


def test_the_command_has_files_arguments_and_variables(service, runs, ns):
    run = runs(ns, "k", None, stdin=subprocess.PIPE,
               argv=["bash", "-c", 'cat; echo "$1|$LEASEHOLD_NAMESPACE|$LEASEHOLD_KEY|$LEASEHOLD_TOKEN|$LEASEHOLD_LEASE_KEY"; '
                     'echo to stderr >&2', "sh", "-d with spaces"])
    wait_until(lambda: scope(service, ns, "state") == "held", what="the lease")
    token, lease_key, owner = scope(service, ns, "token, lease_key, owner").split("|")
    run.out, run.err = run.process.communicate("typed\n", timeout=60)
    assert run.out == f"typed\n-d with spaces|{ns}|k|{token}|{lease_key}\n"
    assert "to stderr" in run.err
    assert owner.endswith(f"/{run.process.pid}")


def test_who_reads_sees_the_end_when_the_command_closes_its_output(runs, ns, tmp_path):
    run = runs(ns, "k", "echo last words; exec >&- 2>&-; while [ ! -e go ]; do sleep 0.02; done", cwd=tmp_path)
    assert run.process.stdout.read() == "last words\n"  # returns at the end of file
    assert run.process.poll() is None
    (tmp_path / "go").touch()
    assert run.process.wait(60) == 0


# --- not getting it ---


def test_held_is_3_and_E_replaces_it(service, runs, ns):
    holder = runs(ns, "k", "while :; do sleep 0.02; done")
    wait_until(lambda: scope(service, ns, "state") == "held", what="the lease")
    for options, status in (((), 3), (("-E", "75"), 75), (("-E", "0"), 0), (("--wait", "50ms", "-E", "9"), 9)):
        second = runs(ns, "k", "echo it ran", *options)
        assert second.ends() == status and second.out == ""
        assert f"{ns}/k is held by" in second.err
    holder.process.terminate()
    assert holder.ends() == 128 + signal.SIGTERM
    assert scope(service, ns) == "free|failed"


def test_quiet_hides_a_skip_and_nothing_else(service, runs, ns):
    """What cron would send by mail: nothing for a skip; the job's own errors, its status, and all that is wrong."""
    holder = runs(ns, "k", "while :; do sleep 0.02; done")
    wait_until(lambda: scope(service, ns, "state") == "held", what="the lease")
    for options, status in ((("-n", "-q", "-E", "0"), 0), (("--quiet",), 3), (("-q", "-w", "50ms"), 3)):
        skipped = runs(ns, "k", "echo it ran", *options)
        assert skipped.ends() == status and skipped.out == skipped.err == ""
    job = runs(ns, "other", "echo broken >&2; exit 7", "-q", "-E", "0")
    assert job.ends() == 7 and job.err == "broken\n"
    assert runs(ns, "k", "true", "-q", "-E", "0", server=NOWHERE).ends() == 5
    service.psql(f"select leasehold.set_policy('{ns}', frozen => true)")
    frozen = runs(ns, "other", "true", "-q", "-E", "0")
    assert frozen.ends() == 1 and "frozen" in frozen.err
    holder.process.terminate()
    holder.ends()


def test_a_wait_is_named_as_it_was_asked_for(service, runs, ns):
    holder = runs(ns, "k", "while :; do sleep 0.02; done")
    wait_until(lambda: scope(service, ns, "state") == "held", what="the lease")
    waiter = runs(ns, "k", "true", "-w", "1")
    assert waiter.ends() == 3 and "the wait of 1.0 s has passed" in waiter.err, waiter.err
    holder.process.terminate()
    holder.ends()


def test_one_waits_for_the_other(service, runs, ns, tmp_path):
    first = runs(ns, "k", "while [ ! -e go ]; do sleep 0.02; done; echo first >> order", cwd=tmp_path)
    wait_until(lambda: scope(service, ns, "state") == "held", what="the lease")
    second = runs(ns, "k", "echo second >> order", "--wait", "20s", cwd=tmp_path)
    wait_until(lambda: service.psql(f"select count(*) from leasehold.waiter where namespace = '{ns}'") == "1", what="a waiter")
    (tmp_path / "go").touch()
    assert first.ends() == 0 and second.ends() == 0
    assert (tmp_path / "order").read_text() == "first\nsecond\n"


def test_a_signal_while_waiting_leaves_the_queue(service, runs, ns):
    holder = runs(ns, "k", "while :; do sleep 0.02; done")
    wait_until(lambda: scope(service, ns, "state") == "held", what="the lease")
    waiter = runs(ns, "k", "echo it ran", "--wait", "forever")
    wait_until(lambda: service.psql(f"select count(*) from leasehold.waiter where namespace = '{ns}'") == "1", what="a waiter")
    waiter.process.terminate()
    assert waiter.ends() == 128 + signal.SIGTERM and waiter.out == ""
    wait_until(lambda: service.psql(f"select count(*) from leasehold.waiter where namespace = '{ns}'") == "0", what="no waiter")
    waiter.nothing_is_left()
    holder.process.terminate()
    assert holder.ends() == 128 + signal.SIGTERM


def test_stopped_as_a_group_while_it_waits_it_goes_on_alone(service, runs, ns):
    holder = runs(ns, "k", "while :; do sleep 0.02; done")
    wait_until(lambda: scope(service, ns, "state") == "held", what="the lease")
    waiter = runs(ns, "k", "echo it ran", "--wait", "forever")
    wait_until(lambda: service.psql(f"select count(*) from leasehold.waiter where namespace = '{ns}'") == "1", what="a waiter")
    os.killpg(waiter.process.pid, signal.SIGSTOP)
    waiter.process.send_signal(signal.SIGCONT)
    holder.process.terminate()
    assert waiter.ends() == 0 and waiter.out == "it ran\n"
    assert holder.ends() == 128 + signal.SIGTERM


def test_without_a_server_it_is_5_and_nothing_runs(runs, ns):
    run = runs(ns, "k", "echo it ran", "--timeout", "300ms", server=NOWHERE)
    assert run.ends() == 5 and run.out == "" and run.err != ""
    run.nothing_is_left()


@pytest.mark.parametrize("words, said", [
    (["run", "a", "b"], "missing command; usage: leasehold run NAMESPACE KEY -- COMMAND"),
    (["run", "a", "b", "--kill-after", "soon", "--", "true"], "is not a duration"),
    (["run", "a", "b", "-E", "256", "--", "true"], "conflict-exit-code"),
    (["run", "a", "b", "--wait", "maybe", "--", "true"], "use a duration such as 5s, forever or alive"),
    (["run", "a..b", "b", "--", "true"], "segment 2 of namespace must be 1 to 63 bytes, has 0"),
    (["run", "a", "b", "-d", "1ms", "--", "true"], "duration must be at least 100 ms"),
])
def test_wrong_usage_is_2(words, said):
    done = subprocess.run([harness.CLI, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 2 and said in done.stderr and done.stdout == ""


# --- losing it: nothing runs after the deadline ---

# Ignores TERM, and so do a child in a session of its own and a grandchild that nobody waits for.
# Each notes when it was last alive.
STUBBORN = """
trap "" TERM HUP INT
stay='while :; do echo $EPOCHREALTIME >> beats; sleep 0.03; done'
setsid bash -c 'trap "" TERM HUP; echo $$ > session; '"$stay" &
( ( setsid bash -c 'trap "" TERM HUP; echo $$ > twice; '"$stay" & ) & )
while [ ! -s session ] || [ ! -s twice ]; do sleep 0.02; done
echo $$ > up
eval "$stay"
"""


def stubborn(runs, ns, tmp_path, *options, **more):
    run = runs(ns, "k", STUBBORN, *options, cwd=tmp_path, **more)
    is_up(tmp_path / "up")
    alive = run.inside()
    for name in ("up", "session", "twice"):
        assert int((tmp_path / name).read_text()) in alive, name
    return run


# What is left of the command is killed a tenth of the duration before the deadline, at most a second before: the machine may be busy.
LONGEST_MARGIN = "10s"


def deadline(psql, ns):
    return float(psql(f"select extract(epoch from deadline) from leasehold.scope where namespace = '{ns}'"))


def gone_before_the_deadline(run, psql, ns, tmp_path):
    run.nothing_is_left()
    beats = [float(line) for line in (tmp_path / "beats").read_text().split()]
    assert max(beats) <= deadline(psql, ns)


def is_released_at_once(run, service, ns, tmp_path, until):
    """By the supervisor, when nothing of the command is left: well before the lease's deadline."""
    wait_until(lambda: scope(service, ns, "state, last_outcome, last_error") ==
               "free|failed|leasehold run was killed; its command was ended", what="the release")
    run.nothing_is_left()
    assert max(float(line) for line in (tmp_path / "beats").read_text().split()) <= until
    assert float(service.psql("select extract(epoch from clock_timestamp())")) < until


def test_killed_outright_it_leaves_nothing_behind(service, runs, ns, tmp_path):
    run = stubborn(runs, ns, tmp_path, "-d", "40s", "--kill-after", "1s")
    until = deadline(service.psql, ns)
    run.process.kill()
    is_released_at_once(run, service, ns, tmp_path, until)


def test_killed_together_with_its_group_it_leaves_nothing_behind(service, runs, ns, tmp_path):
    run = stubborn(runs, ns, tmp_path, "-d", "60s", "--kill-after", "1s")
    until = deadline(service.psql, ns)
    os.killpg(run.process.pid, signal.SIGKILL)
    is_released_at_once(run, service, ns, tmp_path, until)


def test_stopped_past_its_deadline_nothing_runs_after_it(service, runs, ns, tmp_path):
    run = stubborn(runs, ns, tmp_path, "-d", LONGEST_MARGIN)
    run.process.send_signal(signal.SIGSTOP)
    gone_before_the_deadline(run, service.psql, ns, tmp_path)
    assert run.process.poll() is None
    run.process.send_signal(signal.SIGCONT)
    assert run.ends() == 4
    # The server could be reached all the time.
    assert re.search(r"the lease is lost \(stopped\): leasehold run did not run for \d+(\.\d)? s, so no renewal was sent; the command was ended", run.err)


def test_a_stopped_command_is_ended_too(service, runs, ns, tmp_path):
    run = stubborn(runs, ns, tmp_path, "-d", LONGEST_MARGIN, "-E", "99")
    for pid in run.inside():
        if pid in [int((tmp_path / name).read_text()) for name in ("up", "session", "twice")]:
            os.kill(pid, signal.SIGSTOP)
    run.process.send_signal(signal.SIGSTOP)
    run.nothing_is_left()
    assert time.time() <= deadline(service.psql, ns)  # what is stopped makes no notes
    run.process.send_signal(signal.SIGCONT)
    assert run.ends() == 99


def test_forced_it_ends_at_once(service, runs, ns, tmp_path):
    run = stubborn(runs, ns, tmp_path, "-d", LONGEST_MARGIN, "--kill-after", "200ms")
    until = deadline(service.psql, ns)
    service.psql(f"select leasehold.force_release('{ns}', 'k', 'maintenance')")
    run.nothing_is_left()
    assert max(float(line) for line in (tmp_path / "beats").read_text().split()) <= until
    assert run.ends() == 4 and "(forced)" in run.err
    assert scope(service, ns) == "free|forced"


def test_forced_the_command_hears_term_first(service, runs, ns, tmp_path):
    run = runs(ns, "k", "trap 'echo cleaned up; exit 0' TERM; touch up; while :; do sleep 0.02; done", "-d", "9s", cwd=tmp_path)
    is_up(tmp_path / "up")
    service.psql(f"select leasehold.force_release('{ns}', 'k', 'maintenance')")
    assert run.ends() == 4 and run.out == "cleaned up\n"


def test_the_daemon_dies_and_so_does_the_command_in_time(cluster, runs, ns, tmp_path):
    database = cluster.create_database()
    daemon = harness.Daemon(database=cluster.url(database))
    run = stubborn(runs, ns, tmp_path, "-d", LONGEST_MARGIN, server=daemon.target)
    daemon.kill()
    gone_before_the_deadline(run, lambda sql: cluster.psql(sql, database), ns, tmp_path)
    assert run.ends() == 4 and "(unreachable)" in run.err
    daemon.destroy()


def test_a_daemon_that_comes_back_in_time_costs_nothing(cluster, runs, ns, tmp_path):
    database = cluster.create_database()
    daemon = harness.Daemon(database=cluster.url(database))
    run = runs(ns, "k", "touch up; while [ ! -e go ]; do sleep 0.02; done", "-d", "18s", server=daemon.target, cwd=tmp_path)
    is_up(tmp_path / "up")
    daemon.kill()
    daemon.start()
    beats = lambda: int(cluster.psql(f"select heartbeats from leasehold.scope where namespace = '{ns}'", database))  # noqa: E731
    before = beats()
    wait_until(lambda: beats() > before, what="a heartbeat")
    (tmp_path / "go").touch()
    assert run.ends() == 0, run.err
    assert cluster.psql(f"select last_outcome from leasehold.scope where namespace = '{ns}'", database) == "ok"
    daemon.destroy()


def test_it_renews_by_itself(service, runs, ns, tmp_path):
    run = runs(ns, "k", "touch up; while [ ! -e go ]; do sleep 0.02; done", "-d", "9s", cwd=tmp_path)
    is_up(tmp_path / "up")
    wait_until(lambda: int(scope(service, ns, "heartbeats")) >= 2, what="two heartbeats")
    (tmp_path / "go").touch()
    assert run.ends() == 0, run.err
    assert scope(service, ns) == "free|ok"


# --- whom nobody can count on ---


def parent_of(pid):
    return state_and_parent(pid)[1]


def supervisor_of(run):
    children = [pid for pid in run.inside() if parent_of(pid) == run.process.pid]
    assert len(children) == 1
    return children[0]


def test_a_killed_supervisor_takes_the_command_along(service, runs, ns, tmp_path):
    run = stubborn(runs, ns, tmp_path, "-d", "9s")
    os.kill(supervisor_of(run), signal.SIGKILL)
    assert run.ends() == 1 and "supervisor" in run.err
    assert run.inside() == []
    assert scope(service, ns) == "free|failed"


def test_a_stopped_supervisor_and_a_dead_daemon_are_too_late_for_nobody(cluster, runs, ns, tmp_path):
    database = cluster.create_database()
    daemon = harness.Daemon(database=cluster.url(database))
    run = stubborn(runs, ns, tmp_path, "-d", LONGEST_MARGIN, server=daemon.target)
    os.kill(supervisor_of(run), signal.SIGSTOP)
    daemon.kill()
    gone_before_the_deadline(run, lambda sql: cluster.psql(sql, database), ns, tmp_path)
    assert run.ends() == 4
    daemon.destroy()


def test_what_the_command_leaves_in_the_background_is_ended_before_the_release(service, runs, ns, tmp_path):
    run = runs(ns, "k", "( ( setsid bash -c 'trap \"\" TERM; echo $$ > up; while :; do sleep 0.05; done' & ) & ); "
               "while [ ! -s up ]; do sleep 0.02; done; exit 7", "--kill-after", "100ms", cwd=tmp_path,
               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: scope(service, ns, "state") == "free", what="the release")
    # The supervisor has told that no child is left, and may be about to end itself.
    assert [pid for pid in run.inside() if parent_of(pid) not in (None, run.process.pid)] == []
    run.nothing_is_left()
    assert run.process.wait(60) == 7
