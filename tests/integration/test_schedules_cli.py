"""leasehold schedule and leasehold run --schedule: the real program, with a daemon and with the database alone."""
import json
import os
import pathlib
import random
import signal
import subprocess
import time
import uuid

import pytest

import harness
from commandline import Shell, cli, ends, environment
from harness import wait_until


@pytest.fixture(scope="module")
def shell(service):
    return Shell(service)


@pytest.fixture(params=["daemon", "database"])
def leasehold(request, service, shell):
    """The command line by a daemon, and without one."""
    env = shell.env if request.param == "daemon" else {"LEASEHOLD_DATABASE": service.cluster.url(service.database)}
    return lambda *args, **more: cli(*args, **{**env, **more})


@pytest.fixture
def name():
    return f"c.{uuid.uuid4().hex[:8]}"


def done(result):
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_add_list_show_pause_resume_run_now_remove(leasehold, name):
    said = done(leasehold("schedule", "add", name, "30", "3", "*", "*", "1-5", "--time-zone", "Europe/Berlin", "--starts-at", "2027-01-15T08:00:00Z",
                          "--catch-up", "all", "--catch-up-max", 7, "--overlap", 2, "--attempts", 4, "--backoff", "90s", "--jitter", "0"))
    assert said == f"{name}: 30 3 * * 1-5 in Europe/Berlin, next 2027-01-18T02:30:00Z\n"
    schedule, = json.loads(done(leasehold("schedule", "list", name, "-o", "json")))["schedules"]
    assert (schedule["catch_up"], schedule["catch_up_max"], schedule["overlap"], schedule["attempts"], schedule["backoff"]) == (
        "CATCH_UP_ALL", 7, 2, 4, "90s")
    assert name in done(leasehold("schedule", "list", "c"))
    assert done(leasehold("schedule", "pause", name)) == f"{name} is paused\n"
    assert "paused" in done(leasehold("schedule", "list", name))
    assert done(leasehold("schedule", "resume", name)) == f"{name} is resumed\n"
    at = done(leasehold("schedule", "run-now", name)).split()[-1]
    shown = done(leasehold("schedule", "show", name, "--next", 2))
    assert shown.startswith(f"schedule      {name}\nexpression    30 3 * * 1-5\n")
    assert "\nnext\n  2027-01-18T02:30:00Z\n  2027-01-19T02:30:00Z\n\nlast\n" in shown
    line, = [line for line in shown.splitlines() if line.strip().startswith(at)]
    assert line.split()[:2] == [at, "due"] and line.endswith("by hand")
    assert done(leasehold("schedule", "remove", name)) == f"{name} is removed\n"
    again = leasehold("schedule", "remove", name)
    assert again.returncode == 1 and f"there is no schedule {name}" in again.stderr
    assert leasehold("schedule", "show", name).returncode != 0


def test_a_missed_tick_stands_out(service, leasehold, name):
    done(leasehold("schedule", "add", name, "every", "1", "s", "--catch-up", "none", "--tick-deadline", "1s"))
    wait_until(lambda: service.psql(f"select leasehold.until_tick('{name}'); select 1 from leasehold.missed_tick where schedule = '{name}' limit 1")
               .endswith("1\n1") or "1" in service.psql(f"select 1 from leasehold.missed_tick where schedule = '{name}' limit 1"), what="a missed tick")
    assert " MISSED " in done(leasehold("schedule", "show", name, "--last", 1000))
    done(leasehold("schedule", "remove", name))


WRONG = [
    (("add", "a"), "missing argument; usage: leasehold schedule add NAME EXPRESSION"),
    (("add", "a..b", "@daily"), "segment 2 of namespace must be 1 to 63 bytes, has 0"),
    (("add", "a", "61 * * * *"), "expression"),
    (("add", "a", "@daily", "--time-zone", "Mars"), "Mars"),
    (("add", "a", "@daily", "--catch-up", "some"), "invalid catch-up 'some'; use none, last or all"),
    (("add", "a", "@daily", "--attempts", "0"), "attempts"),
    (("add", "a", "@daily", "--starts-at", "tomorrow"), "invalid starts-at 'tomorrow'; use a time such as 2026-11-28T03:00:00Z"),
    (("add", "a", "@daily", "--tick-deadline", "1ms"), "tick-deadline"),
    (("show", "a", "b"), "unexpected argument: b"),
    (("show",), "missing argument; usage: leasehold schedule show NAME"),
    (("list", "--next", "3"), "--next is for schedule show only"),
    (("tidy",), "unknown subcommand: schedule tidy; use add, list, show, pause, resume, run-now, remove or import"),
]


@pytest.mark.parametrize(("args", "words"), WRONG)
def test_a_mistake_is_named(leasehold, args, words):
    result = leasehold("schedule", *args)
    assert result.returncode == 2 and words in result.stderr, result.stderr


CRONTAB = """\
# the machines' jobs
SHELL=/bin/sh
MAILTO="ops@example.com"
*/10 * * * * /usr/local/bin/sync --all
CRON_TZ=Europe/Berlin
30 3 * * mon-fri\t/opt/Report.sh 50\\% done
@daily  cleanup '/tmp/a b'
@reboot /usr/bin/once
* * * *
61 * * * * late
GREETING = "good day"
0 0 1 * * mail -s hello ops%Dear all,%it is the first.
0 5 * * * /usr/local/bin/sync --rest
"""

PLAN = """\
leasehold schedule add cron.sync '*/10 * * * *' --time-zone UTC
  leasehold run --schedule cron.sync -c 'SHELL=/bin/sh /usr/local/bin/sync --all'
leasehold schedule add cron.report '30 3 * * mon-fri' --time-zone Europe/Berlin
  leasehold run --schedule cron.report -c 'SHELL=/bin/sh /opt/Report.sh 50% done'
leasehold schedule add cron.cleanup @daily --time-zone Europe/Berlin
  leasehold run --schedule cron.cleanup -c 'SHELL=/bin/sh cleanup '\\''/tmp/a b'\\'''
leasehold schedule add cron.late '61 * * * *' --time-zone Europe/Berlin
  leasehold run --schedule cron.late -c 'SHELL=/bin/sh late'
leasehold schedule add cron.mail '0 0 1 * *' --time-zone Europe/Berlin
  leasehold run --schedule cron.mail -c 'printf '\\''%s\\n'\\'' '\\''Dear all,
it is the first.'\\'' | { SHELL=/bin/sh GREETING='\\''good day'\\'' mail -s hello ops; }'
leasehold schedule add cron.sync-2 '0 5 * * *' --time-zone Europe/Berlin
  leasehold run --schedule cron.sync-2 -c 'SHELL=/bin/sh GREETING='\\''good day'\\'' /usr/local/bin/sync --rest'
"""


def test_import_says_what_it_would_do(shell, place):
    crontab = place / "crontab"
    crontab.write_text(CRONTAB)
    result = shell("schedule", "import", crontab)
    assert result.stdout == PLAN
    assert result.stderr.splitlines() == [
        "leasehold: line 8: @reboot is about one machine: leave it to that machine's init, such as a systemd unit",
        "leasehold: line 9: is neither an entry of five fields and a command nor NAME=value",
    ]
    assert result.returncode == 1
    assert shell("schedule", "list", "cron").stdout == ""


def test_import_of_the_systems_crontab(shell, place):
    crontab = place / "crontab"
    crontab.write_text("17 *\t* * *\troot    cd / && run-parts --report /etc/cron.hourly\n25 6 * * * backup\n")
    result = shell("schedule", "import", "--system", crontab, "--below", "hosts.db1")
    assert result.stdout == ("leasehold schedule add hosts.db1.cd '17 * * * *' --time-zone UTC\n"
                             "  leasehold run --schedule hosts.db1.cd -c 'cd / && run-parts --report /etc/cron.hourly'   # as root\n")
    assert "line 2: has no command" in result.stderr and result.returncode == 1


def test_import_applies(leasehold, place):
    below = f"i{uuid.uuid4().hex[:6]}"
    crontab = place / "crontab"
    crontab.write_text(CRONTAB)
    result = leasehold("schedule", "import", crontab, "--apply", "--below", below)
    assert result.returncode == 2 and "line 10: was not set" in result.stderr
    assert f"--schedule {below}.cleanup" in result.stdout and "late" not in result.stdout
    listed = json.loads(done(leasehold("schedule", "list", below, "-o", "json")))["schedules"]
    assert {".".join(each["namespace"]["segments"]): (each["expression"], each["time_zone"]) for each in listed} == {
        f"{below}.sync": ("*/10 * * * *", "UTC"), f"{below}.report": ("30 3 * * mon-fri", "Europe/Berlin"), f"{below}.cleanup": ("@daily", "Europe/Berlin"),
        f"{below}.mail": ("0 0 1 * *", "Europe/Berlin"), f"{below}.sync-2": ("0 5 * * *", "Europe/Berlin")}


@pytest.mark.parametrize("data", [b"\xff\xfe * * * * x\n", b"0 0 * * *\x00 x\n", b"= x\n", b"5 4 3 2 1\n"])
def test_import_of_what_is_no_crontab(shell, place, data):
    (place / "x").write_bytes(data)
    result = shell("schedule", "import", place / "x")
    assert result.returncode == 1 and "line 1" in result.stderr and result.stdout == ""
    assert shell("schedule", "import", place / "none").returncode == 1


# --- leasehold run --schedule ---


def worker(shell, name, *args):
    return subprocess.Popen([harness.CLI, "run", "--schedule", name, *map(str, args)], env=environment(**shell.env), stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def states(service, name):
    rows = service.psql(f"select to_char(at at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'), state, attempts from leasehold.tick"
                        f" where schedule = '{name}' order by at").splitlines()
    return {at: (state, int(attempts)) for at, state, attempts in (row.split("|") for row in rows)}


def test_a_worker_runs_the_ticks_with_their_names_in_the_environment(service, shell, place, name):
    shell.done("schedule", "add", name, "@yearly", "--backoff", "0s")
    log = place / "log"
    running = worker(shell, name, "-d", "5s", "-c",
                     f'echo "$LEASEHOLD_TICK $LEASEHOLD_ATTEMPT $LEASEHOLD_TOKEN $LEASEHOLD_NAMESPACE $LEASEHOLD_KEY" >> {log}; [ "$LEASEHOLD_ATTEMPT" = 2 ]')
    at = shell.done("schedule", "run-now", name).stdout.split()[-1]
    wait_until(lambda: states(service, name).get(at) == ("done", 2), what="a second attempt that succeeds")
    first, second = (line.split() for line in log.read_text().splitlines())
    assert first[:2] == [at, "1"] and second[:2] == [at, "2"] and int(first[2]) < int(second[2])
    assert first[3:] == [name, at]
    running.send_signal(signal.SIGTERM)
    assert ends(running) == 128 + signal.SIGTERM


def test_term_ends_a_worker_after_its_command(service, shell, place, name):
    shell.done("schedule", "add", name, "@yearly")
    started = place / "started"
    running = worker(shell, name, "--", "sh", "-c", f"trap 'exit 0' TERM; touch {started}; while :; do sleep 0.1; done")
    at = shell.done("schedule", "run-now", name).stdout.split()[-1]
    wait_until(started.exists, what="the command")
    running.send_signal(signal.SIGTERM)
    assert ends(running) == 0
    assert states(service, name)[at] == ("done", 1)


@pytest.mark.parametrize(("args", "words", "status"), [
    (("--schedule", "none.such", "--", "true"), "must be the name of a schedule, is none.such", 2),
    (("--schedule", "a", "b", "--", "true"), "unexpected argument: b", 2),
    (("--schedule", "a", "--also", "b:c", "--", "true"), "--schedule and --also cannot be combined", 2),
    (("--schedule", "a", "--wait", "5s", "--", "true"), "--schedule and --wait cannot be combined", 2),
    (("--schedule", "a..b", "--", "true"), "segment 2 of namespace", 2),
    (("--schedule", "a"), "missing command", 2),
])
def test_a_wrong_worker_ends_at_once(shell, args, words, status):
    result = shell("run", *args)
    assert result.returncode == status and words in result.stderr, result.stderr


def test_each_tick_runs_once_while_workers_are_killed(cluster, service, shell, place, name):
    """Two daemons, workers killed by SIGKILL at random: each tick is done or reported, and no token ran it twice."""
    other = harness.Daemon(database=cluster.url(service.database))
    targets = [service.daemon.target, other.target]
    log = place / "log"
    log.touch()
    rng = random.Random(20261128)
    # The command writes two lines in one append each: it began, it ended.
    command = ('echo "began $LEASEHOLD_TICK $LEASEHOLD_TOKEN" >> %s; sleep 0.3; echo "ended $LEASEHOLD_TICK $LEASEHOLD_TOKEN" >> %s' % (log, log))

    def start_worker():
        env = environment(LEASEHOLD_SERVER=rng.choice(targets))
        return subprocess.Popen([harness.CLI, "run", "--schedule", name, "-d", "2s", "-c", command], env=env, stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    shell.done("schedule", "add", name, "every", "1", "s", "--catch-up", "all", "--attempts", 20, "--backoff", "0s", "--overlap", 4,
               "--tick-deadline", "1h")
    workers = [start_worker() for _ in range(5)]
    try:
        kills = 0
        while kills < 30 or len(states(service, name)) < 18:
            time.sleep(rng.uniform(0.1, 0.6))
            kills += 1
            n = rng.randrange(len(workers))
            workers[n].kill()
            workers[n].wait()
            workers[n] = start_worker()
        last = service.psql(f"select to_char(max(at) at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') from leasehold.tick where schedule = '{name}'")
        wait_until(lambda: all(state in ("done", "missed", "dead", "skipped") for at, (state, _) in states(service, name).items() if at <= last),
                   120, "the end of all ticks until then")
        shell.done("schedule", "pause", name)
    finally:
        for each in workers:
            each.kill()
            each.wait()
        other.stop()
        other.destroy()
    ticks = {at: state for at, state in states(service, name).items() if at <= last}
    lines = [line.split() for line in log.read_text().splitlines()]
    began = [(at, token) for word, at, token in lines if word == "began"]
    ended = [(at, token) for word, at, token in lines if word == "ended"]
    assert len(ticks) >= 18
    assert len(began) == len(set(began)), "a token ran a tick twice"
    assert len(ended) == len(set(ended))
    for at, (state, attempts) in ticks.items():
        if state == "done":
            assert any(tick == at for tick, _ in ended), f"{at} is done and did not run to its end"
            assert attempts >= len([1 for tick, _ in began if tick == at])
        else:
            assert state in ("missed", "dead", "skipped"), (at, state)
    print(f"{len(ticks)} ticks, {sum(state == 'done' for state, _ in ticks.values())} done, {len(began)} began, {len(ended)} ended")
