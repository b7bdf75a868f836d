"""Requests to hand over on the command line: ask-hand-over, refuse-hand-over, and what `leasehold run` does when it is asked."""
import json
import os
import signal
import subprocess

import pytest

import harness
from commandline import SOME_KEY, Shell, cli, ends, environment
from harness import wait_until
from streams import keys

NS = "handover-run"
LEADER = "trap 'echo stopped >> log; exit 0' TERM; echo $1 >> log; while :; do sleep 0.02; done"


@pytest.fixture
def shell(service):
    return Shell(service)


@pytest.fixture
def start(shell):
    """Start the program; what still runs at the end is ended as a user ends it."""
    started = []

    def one(*args):
        started.append(shell.start(*args))
        return started[-1]

    yield one
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            ends(process)


def run(start, key, script, *options, cwd):
    """A run with a short duration, whose renewals are soon: it hears of a request in a third of that."""
    return start("run", NS, key, "-d", "6s", *options, "--", "sh", "-c", f"cd {cwd}; {script}", "sh")


def lines(path):
    return path.read_text().splitlines() if path.exists() else []


def show(shell, key):
    return json.loads(shell.done("show", NS, key, "-o", "json").stdout)


def ask(shell, key, *more):
    return shell("ask-hand-over", NS, key, "--reason", "zone b is back", *more)


def test_the_holder_is_asked_and_refuses_and_the_asker_sees_why(shell):
    key = keys()
    nobody = ask(shell, key)
    assert nobody.returncode == 4 and "not held" in nobody.stderr
    held = shell.acquire(NS, key, "--owner", "first")
    none = shell("refuse-hand-over", NS, key, "--lease-key", held["lease_key"], "--reason", "no")
    assert none.returncode == 1 and "nobody asked" in none.stderr, none.stderr
    asked = ask(shell, key)
    assert asked.returncode == 0 and asked.stdout.startswith(f"asked first, token {held['token']}, to answer within "), asked
    refused = shell("refuse-hand-over", NS, key, "--reason", "done in a minute", LEASEHOLD_LEASE_KEY=held["lease_key"])
    assert (refused.returncode, refused.stdout) == (0, "refused\n"), refused.stderr
    assert ask(shell, key, "--token", held["token"]).stdout == f"first, token {held['token']}, refused: done in a minute\n"
    as_json = json.loads(ask(shell, key, "-o", "json").stdout)
    assert as_json["holders"][0]["asked"]["refusal"] == "done in a minute"
    shell.done("heartbeat", NS, key, held["lease_key"])
    assert ask(shell, key, "--token", int(held["token"]) + 1).returncode == 4
    wrong = shell("refuse-hand-over", NS, key, "--reason", "no", "--lease-key", SOME_KEY)
    assert wrong.returncode == 4, wrong.stderr


@pytest.mark.parametrize("words, sentence", [
    (["ask-hand-over", "a", "k"], "ask-hand-over needs --reason TEXT"),
    (["refuse-hand-over", "a", "k", "--lease-key", SOME_KEY], "refuse-hand-over needs --reason TEXT"),
    (["ask-hand-over", "a", "k", "--reason", ""], "reason must be 1 to 1024 bytes, has 0"),
    (["ask-hand-over", "a", "k", "--reason", "w" * 1025], "reason must be 1 to 1024 bytes, has 1025"),
    (["ask-hand-over", "a", "k", "--reason", "w", "--token", "0"], "token"),
    (["ask-hand-over", "a", "k", "--reason", "w", "--lease-key", "x"], "UUID"),
    (["run", "a", "k", "--preferred", "--", "true"], "--preferred is for a run that waits for the lease"),
    (["run", "a", "k", "--preferred", "--repeat", "-n", "--", "true"], "--preferred is for a run that waits for the lease"),
    (["run", "a", "k", "--preferred", "-w", "1s", "--when-asked", "stop", "--", "true"], "--when-asked and --preferred cannot be combined"),
    (["run", "a", "k", "--preferred", "-w", "1s", "--also", "a:l", "--", "true"], "--also and --preferred cannot be combined"),
    (["run", "--schedule", "s", "--when-asked", "stop", "--", "true"], "--schedule and --when-asked cannot be combined"),
    (["run", "a", "k", "--when-asked", "SIGFOO", "--", "true"], "--when-asked 'SIGFOO' is no signal"),
    (["run", "a", "k", "--when-asked", "KILL", "--", "true"], "--when-asked 'KILL' is no signal"),
    (["run", "a", "k", "--when-asked", " ", "--", "true"], "--when-asked is empty"),
])
def test_words_that_cannot_be_are_refused(words, sentence):
    said = cli(*words)
    assert said.returncode == 2 and sentence in said.stderr, said.stderr


def test_a_leader_gives_back_to_the_preferred_one_which_refuses_the_next(shell, start, tmp_path):
    key = keys()
    other = run(start, key, LEADER.replace("$1", "other"), "--repeat", "--when-asked", "stop", "--owner", "host-2", cwd=tmp_path)
    wait_until(lambda: lines(tmp_path / "log") == ["other"], what="the leader that is not preferred")
    run(start, key, LEADER.replace("$1", "preferred"), "--repeat", "--preferred", "--owner", "host-1", cwd=tmp_path)
    wait_until(lambda: lines(tmp_path / "log") == ["other", "stopped", "preferred"], what="the preferred leader")
    shell.is_waiting(NS, key)  # the other stands behind it
    assert show(shell, key)["lease"]["owner"] == "host-1"
    shell.done("ask-hand-over", NS, key, "--reason", "maintenance")
    wait_until(lambda: show(shell, key)["lease"]["asked"]["refusal"] == "this is the preferred holder", what="the refusal")
    assert lines(tmp_path / "log") == ["other", "stopped", "preferred"] and other.poll() is None


def test_the_signal_arrives_and_the_command_goes_on(shell, start, tmp_path):
    key = keys()
    holder = run(start, key, "trap 'echo asked >> log' USR1; echo up >> log; while [ ! -e go ]; do sleep 0.02; done",
                 "--when-asked", "SIGUSR1", cwd=tmp_path)
    wait_until(lambda: lines(tmp_path / "log") == ["up"], what="the command")
    shell.done("ask-hand-over", NS, key, "--reason", "please")
    wait_until(lambda: lines(tmp_path / "log") == ["up", "asked"], what="the signal")
    assert show(shell, key)["lease"]["asked"]["refusal"] == ""
    (tmp_path / "go").touch()
    assert ends(holder) == 0
    assert ": please" in holder.stderr_text


def test_without_the_option_nothing_answers(shell, start, tmp_path):
    key = keys()
    holder = run(start, key, "echo up > log; while [ ! -e go ]; do sleep 0.02; done", cwd=tmp_path)
    wait_until(lambda: lines(tmp_path / "log") == ["up"], what="the command")
    shell.done("ask-hand-over", NS, key, "--reason", "please")
    beats = int(show(shell, key)["lease"]["heartbeats"])
    wait_until(lambda: int(show(shell, key)["lease"]["heartbeats"]) >= beats + 3, what="three renewals")
    assert show(shell, key)["lease"]["asked"]["refusal"] == ""
    (tmp_path / "go").touch()
    assert (ends(holder), holder.stderr_text) == (0, "")


@pytest.mark.parametrize("answer, refusal", [("refuse", "leasehold run --when-asked refuse"),
                                             ("echo $LEASEHOLD_ASKED_BY: $LEASEHOLD_ASKED_REASON > heard; exit 3",
                                              "the command of --when-asked ended with status 3"),
                                             ("kill -9 $$", "the command of --when-asked was ended by signal 9")])
def test_a_refusal_is_seen_and_the_command_goes_on(shell, start, tmp_path, monkeypatch, answer, refusal):
    key = keys()
    monkeypatch.chdir(tmp_path)
    holder = run(start, key, "echo up > log; while [ ! -e go ]; do sleep 0.02; done", "--when-asked", answer, cwd=tmp_path)
    wait_until(lambda: lines(tmp_path / "log") == ["up"], what="the command")
    by = json.loads(ask(shell, key, "-o", "json").stdout)["holders"][0]["asked"]["asked_by"] if "heard" in answer else None
    shell.done("ask-hand-over", NS, key, "--reason", "zone b is back")
    wait_until(lambda: show(shell, key)["lease"]["asked"]["refusal"] == refusal, what="the refusal")
    assert by is None or lines(tmp_path / "heard") == [f"{by}: zone b is back"]
    (tmp_path / "go").touch()
    assert ends(holder) == 0


def test_status_0_of_the_answer_hands_over(shell, start, tmp_path):
    key = keys()
    answer = f"test \"$LEASEHOLD_NAMESPACE/$LEASEHOLD_KEY/$LEASEHOLD_TOKEN\" = \"$(cat {tmp_path}/lease)\" && test -n \"$LEASEHOLD_LEASE_KEY\""
    holder = run(start, key, "echo $LEASEHOLD_NAMESPACE/$LEASEHOLD_KEY/$LEASEHOLD_TOKEN > lease; exec sleep 600", "--when-asked", answer,
                 cwd=tmp_path)
    wait_until(lambda: lines(tmp_path / "lease"), what="the command")
    next_one = start("acquire", NS, key, "--wait", "60s", "--owner", "next")
    shell.is_waiting(NS, key)
    shell.done("ask-hand-over", NS, key, "--reason", "please")
    assert ends(next_one) == 0
    assert ends(holder) == 128 + signal.SIGTERM
    ended = json.loads(shell.done("show", NS, key, "-o", "json").stdout)
    assert ended["lease"]["owner"] == "next"
    history = shell.done("history", NS, key).stdout
    assert "failed" not in history.lower(), history


def test_status_fd_tells_of_a_request(shell):
    key = keys()
    reader, writer = os.pipe()
    holder = subprocess.Popen([harness.CLI, "run", NS, key, "-d", "6s", "-q", "--when-asked", "stop", "--status-fd", str(writer), "--",
                               "sleep", "600"], pass_fds=[writer], env=environment(**shell.env), stderr=subprocess.PIPE, text=True)
    os.close(writer)
    with os.fdopen(reader) as told:
        assert json.loads(told.readline())["event"] == "granted"
        shell.done("ask-hand-over", NS, key, "--reason", "please")
        asked = json.loads(told.readline())
        assert asked["event"] == "asked" and asked["message"] == "please" and asked["by"]
    assert holder.wait(60) == 128 + signal.SIGTERM
    assert holder.stderr.read() == ""
    holder.stderr.close()
