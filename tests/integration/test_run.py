"""`leasehold run` as a stranger uses it: the real program, a real daemon, and /proc.

Every command of these tests carries a mark of its own in its environment, so what is left of it is found in /proc, wherever
it went. Where a lease is lost, a watcher notes when the last marked process went, and what the clock said then.
"""
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import time
import uuid

import pytest

import harness
from harness import wait_until

NOWHERE = "127.0.0.1:1"


def boottime():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def marked(mark):
    """The processes that carry the mark, zombies not counted."""
    found = []
    needle = f"LEASE_TEST_MARK={mark}".encode()
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if needle in (entry / "environ").read_bytes().split(b"\0") and b") Z" not in (entry / "stat").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                pass
    return found


class Run:
    """One `leasehold run`, whose command is a shell script."""

    def __init__(self, server, namespace, key, script, *options, argv=None, **popen):
        self.mark = uuid.uuid4().hex
        env = {name: value for name, value in os.environ.items() if not name.startswith("LEASEHOLD_")}
        env.update(LEASEHOLD_SERVER=server, LC_ALL="C.UTF-8", LEASE_TEST_MARK=self.mark)
        popen.setdefault("stdin", subprocess.DEVNULL)
        popen.setdefault("stdout", subprocess.PIPE)
        popen.setdefault("stderr", subprocess.PIPE)
        self.process = subprocess.Popen(
            [harness.CLI, "run", namespace, key, *options, "--", *(argv or ["bash", "-c", script])],
            text=True, env=env, start_new_session=True, **popen)

    def ends(self, seconds=20):
        self.out, self.err = self.process.communicate(timeout=seconds)
        return self.process.returncode

    def inside(self):
        """The processes of the command and of its supervision, without the outer one."""
        return [pid for pid in marked(self.mark) if pid != self.process.pid]

    def nothing_is_left(self, seconds=20):
        wait_until(lambda: not self.inside(), seconds, "the end of all processes")
        return boottime()


@pytest.fixture
def ns(request):
    return "run." + re.sub(r"\W", "-", request.node.name)[:40] + "-" + uuid.uuid4().hex[:6]


@pytest.fixture
def runs(service):
    """Starts runs against the module's daemon; whatever a failed test leaves is killed."""
    started = []

    def start(namespace, key, script, *options, server=None, **more):
        run = Run(server or service.daemon.target, namespace, key, script, *options, **more)
        started.append(run)
        return run

    yield start
    for run in started:
        for pid in marked(run.mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if run.process.poll() is None:
            run.process.kill()
        run.process.wait(20)


def scope(service, ns, columns="state, last_outcome", key="k"):
    return service.psql(f"select {columns} from leasehold.scope where namespace = '{ns}' and key = '{key}'")


def is_up(path):
    wait_until(path.exists, what=f"{path.name} being written")


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
    run.out, run.err = run.process.communicate("typed\n", timeout=20)
    assert run.out == f"typed\n-d with spaces|{ns}|k|{token}|{lease_key}\n"
    assert "to stderr" in run.err
    assert owner.endswith(f"/{run.process.pid}")


def test_who_reads_sees_the_end_when_the_command_closes_its_output(runs, ns, tmp_path):
    run = runs(ns, "k", "echo last words; exec >&- 2>&-; while [ ! -e go ]; do sleep 0.02; done", cwd=tmp_path)
    assert run.process.stdout.read() == "last words\n"  # returns at the end of file
    assert run.process.poll() is None
    (tmp_path / "go").touch()
    assert run.process.wait(20) == 0
