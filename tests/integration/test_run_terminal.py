"""`leasehold run` and its surroundings: signals, hang-ups, process groups, a terminal with a shell in it."""
import contextlib
import os
import pathlib
import pty
import re
import select
import shlex
import signal
import subprocess
import uuid

import pytest

import harness
from harness import wait_until
from running import is_up, marked, scope, state_and_parent


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2,
                                    signal.SIGWINCH], ids=lambda number: number.name)
def test_signals_are_passed_on(runs, ns, tmp_path, number):
    run = runs(ns, "k", f"trap 'echo got it; exit 5' {int(number)}; touch up; while :; do sleep 0.02; done", cwd=tmp_path)
    is_up(tmp_path / "up")
    run.process.send_signal(number)
    assert run.ends() == 5 and run.out == "got it\n"


def test_what_nohup_ignores_is_ignored(runs, ns, tmp_path):
    run = runs(ns, "k", "touch up; while [ ! -e go ]; do sleep 0.02; done; echo still here", cwd=tmp_path,
               preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    is_up(tmp_path / "up")
    run.process.send_signal(signal.SIGHUP)
    (tmp_path / "go").touch()
    assert run.ends() == 0 and run.out == "still here\n"


def test_its_end_hangs_up_nobody_of_a_group_that_has_a_stopped_member(service, ns):
    script = (f"trap 'echo hung up' HUP; sleep 60 & kill -STOP $!; {shlex.quote(str(harness.CLI))} run {ns} k -- true; "
              "echo ended $?; kill -KILL $!")
    done = subprocess.run(["bash", "-c", script], start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env={**os.environ, "LEASEHOLD_SERVER": service.daemon.target}, timeout=60)
    assert done.stdout == "ended 0\n"


def test_a_hangup_that_the_kernel_tells_its_session_leader_is_passed_on(service, ns, tmp_path):
    pid, file = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execve(harness.CLI, ["leasehold", "run", ns, "k", "--", "bash", "-c",
                                "trap 'echo hup > heard; exit 4' HUP; touch up; while :; do sleep 0.02; done"],
                  {**os.environ, "LEASEHOLD_SERVER": service.daemon.target})
    is_up(tmp_path / "up")
    os.close(file)
    try:
        ended, status = wait_until(lambda: (found := os.waitpid(pid, os.WNOHANG))[0] and found, what="the end of leasehold run")
    except AssertionError:
        os.kill(pid, signal.SIGKILL)  # which ends the command
        os.waitpid(pid, 0)
        raise
    assert (tmp_path / "heard").read_text() == "hup\n" and os.waitstatus_to_exitcode(status) == 4
    assert scope(service, ns) == "free|failed"


class Terminal:
    """A terminal with an interactive shell in it, for job control."""

    def __init__(self, server, mark):
        self.pid, self.file = pty.fork()
        self.seen = ""
        self.mark = mark
        if self.pid == 0:
            env = {**os.environ, "LEASEHOLD_SERVER": server, "PS1": "$ ", "LEASE_TEST_MARK": mark,
                   "PATH": f"{harness.CLI.parent}:{os.environ['PATH']}"}
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"], env)

    def types(self, text):
        os.write(self.file, text.encode())

    def shows(self, pattern, seconds=60):
        """Read until the pattern comes; what was read before it is forgotten."""

        def is_there():
            if select.select([self.file], [], [], 0)[0]:
                self.seen += os.read(self.file, 65536).decode(errors="replace")
            return re.search(pattern, self.seen)

        try:
            found = wait_until(is_there, seconds, pattern)
        except AssertionError:
            raise AssertionError(f"no {pattern!r} in {self.seen!r}")
        self.seen = self.seen[found.end():]
        return found

    def close(self):
        os.close(self.file)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


@pytest.fixture
def terminal(service):
    mark = uuid.uuid4().hex
    terminal = Terminal(service.daemon.target, mark)
    yield terminal
    for pid in marked(mark):
        if pid != terminal.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    terminal.close()


def is_running(pid, *words):
    try:
        return (pathlib.Path("/proc") / str(pid) / "cmdline").read_bytes().split(b"\0")[:len(words)] == list(words)
    except OSError:
        return False


def test_in_a_terminal_the_command_reads_stops_and_goes_on(service, terminal, ns):
    terminal.types(f"leasehold run {ns} k -- sh -c 'read a; echo one-$a; read b; echo two-$b; exit 6'\n")
    wait_until(lambda: scope(service, ns, "state") == "held", what="the lease")
    terminal.types("alpha\n")
    terminal.shows("one-alpha")
    terminal.types("\x1a")
    terminal.shows("Stopped")
    # The shell is told of the outer process; the command might still take what is typed next.
    wait_until(lambda: [state_and_parent(pid)[0] for pid in marked(terminal.mark) if is_running(pid, b"sh", b"-c")] == ["T"],
               what="the command being stopped")
    terminal.types("fg\n")
    terminal.shows("leasehold run .*\n")
    terminal.types("beta\n")
    terminal.shows("two-beta")
    terminal.types("echo status-$?\n")
    terminal.shows("status-6")
    assert scope(service, ns) == "free|failed"


def test_ctrl_c_reaches_the_command_once_and_ends_a_script(service, terminal, ns, tmp_path):
    inner = tmp_path / "inner"
    inner.write_text("trap 'n=$((n+1))' INT\necho up-up\nwhile [ ! -e go ]; do sleep 0.02; done\necho count-$n\n")
    terminal.types(f"cd {tmp_path}; leasehold run {ns} k -- bash inner\n")
    terminal.shows("up-up")
    terminal.types("\x03")
    terminal.shows(r"\^C")
    (tmp_path / "go").touch()
    terminal.shows("count-1")
    script = tmp_path / "script"
    script.write_text(f"leasehold run {ns} k -- sleep 100\necho not-reached\n")
    terminal.types("bash script\n")
    wait_until(lambda: [pid for pid in marked(terminal.mark) if is_running(pid, b"sleep", b"100")], what="sleep being executed")
    terminal.types("\x03")
    terminal.shows(r"\^C")
    terminal.types("echo script-$?\n")
    assert "not-reached" not in terminal.shows("script-130").string


def test_on_a_terminal_it_says_whom_it_waits_for(service, runs, terminal, ns):
    holder = runs(ns, "k", "while :; do sleep 0.02; done", "--owner", "the-first")
    wait_until(lambda: scope(service, ns, "state") == "held", what="the lease")
    terminal.types(f"leasehold run {ns} k --wait forever -- echo it-is-mine\n")
    terminal.shows(rf"leasehold: waiting for {ns}/k: held by the-first, alive; 0 ahead; held for")
    holder.process.terminate()
    terminal.shows(r"\nit-is-mine")
    assert holder.ends() == 128 + signal.SIGTERM


def test_a_command_that_took_the_terminal_gives_it_back_when_it_is_killed(service, terminal, ns):
    terminal.types(f"leasehold run {ns} k -d 3s --kill-after 100ms -- bash --norc --noprofile --noediting -i\n")
    terminal.types("stty -echo; trap '' TERM; echo inner-$((40+2))\n")
    terminal.shows("inner-42")
    service.psql(f"select leasehold.force_release('{ns}', 'k', 'maintenance')")
    terminal.shows("the command was ended")
    terminal.types("echo outer-$((40+3))-$?; stty -a\n")
    terminal.shows("outer-43-4")
    terminal.shows(" echo ")
