"""A signal reaches the command of `leasehold run` exactly once, whoever sends it to whatever: the process, its group, each process of a
service, each of a name. The command notes every signal that it hears; USR1, sent last and to run alone, says that no other is on its way."""
import contextlib
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import uuid

import pytest

import harness
from harness import wait_until
from running import is_up, marked
from test_run_terminal import Terminal

COUNTER = """
import os, signal, time
def note(number, frame):
    file = os.open("heard", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, signal.Signals(number).name.encode() + b"\\n")
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGCONT, signal.SIGUSR1):
    signal.signal(number, note)
open("number", "w").write(str(os.getpid()))
os.rename("number", "up")
while not os.path.exists("go"):
    time.sleep(0.02)
"""


class Job:
    """A `leasehold run` of the counter."""

    def __init__(self, ns, place, inside=()):
        self.place = place
        (place / "counter.py").write_text(COUNTER)
        self.argv = [str(harness.CLI), "run", ns, "k", "--", *inside, sys.executable, "-B", "counter.py"]

    def start(self, service, around):
        """Without a terminal, below what `around` names."""
        self.mark = uuid.uuid4().hex
        env = {**os.environ, "LEASEHOLD_SERVER": service.daemon.target, "LEASE_TEST_MARK": self.mark}
        self.process = subprocess.Popen([*around, *self.argv], env=env, cwd=self.place, start_new_session=True, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def is_up(self):
        is_up(self.place / "up")

    def heard(self):
        path = self.place / "heard"
        return path.read_text().split() if path.exists() else []

    def processes(self):
        """In the order in which they began."""
        return sorted(marked(self.mark))

    def run(self):
        """The outer process of leasehold run."""
        return [pid for pid in self.processes() if words_of(pid) == self.argv][0]

    def has_heard_once(self, name):
        wait_until(lambda: name in self.heard(), what=f"{name} being heard")
        os.kill(self.run(), signal.SIGUSR1)
        wait_until(lambda: "SIGUSR1" in self.heard(), what="USR1 being heard")
        heard = [word for word in self.heard() if word != "SIGCONT"]
        assert heard == [name, "SIGUSR1"]

    def ends(self):
        (self.place / "go").touch()
        out, _ = self.process.communicate(timeout=60)
        assert not marked(self.mark), out


def words_of(pid):
    with contextlib.suppress(OSError):
        return (pathlib.Path("/proc") / str(pid) / "cmdline").read_bytes().decode().split("\0")[:-1]


def name_of(pid):
    with contextlib.suppress(OSError):
        return (pathlib.Path("/proc") / str(pid) / "comm").read_text().strip()


@pytest.fixture
def jobs(service, ns, tmp_path):
    made = []

    def start(around=(), inside=()):
        made.append(Job(ns, tmp_path, inside))
        made[-1].start(service, around)
        made[-1].is_up()
        return made[-1]

    yield start
    for job in made:
        for pid in marked(job.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


# --- who sends it to whom ---


def to_run_alone(job):
    os.kill(job.run(), signal.SIGTERM)


def to_its_group(job):
    os.killpg(os.getpgid(job.run()), signal.SIGTERM)


def to_each_process(job):
    """As systemd does with KillMode=control-group, and Jenkins: by an ancestor, one after the other."""
    for pid in job.processes():
        os.kill(pid, signal.SIGTERM)


def to_all_of_its_name(job):
    """As killall leasehold and pkill do: the command has another name."""
    subprocess.run(["kill", "-TERM", *(str(pid) for pid in job.processes() if name_of(pid) == "leasehold")], check=True)


def to_its_command(job):
    os.kill(int((job.place / "up").read_text()), signal.SIGTERM)


WAYS = [to_run_alone, to_its_group, to_each_process, to_all_of_its_name, to_its_command]


@pytest.mark.parametrize("inside", [(), ("setsid",)], ids=["in its group", "in a session of its own"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_term_reaches_the_command_once(jobs, way, inside):
    job = jobs(inside=inside)
    way(job)
    job.has_heard_once("SIGTERM")
    job.ends()


@pytest.mark.parametrize("options", [(), ("--foreground",)], ids=["its group", "--foreground"])
def test_timeout_is_heard_once(jobs, options):
    """timeout(1) does on TERM what it does when the time is over: TERM to its child, and, without --foreground, to its group."""
    job = jobs(around=("timeout", *options, "1h"))
    job.process.terminate()
    job.has_heard_once("SIGTERM")
    job.ends()


def test_gnu_parallel_is_heard_once(jobs, tmp_path):
    """It signals the groups of its jobs."""
    (tmp_path / "other.sh").write_text("until [ -e fail ]; do sleep 0.05; done; exit 1\n")
    job = jobs(around=("sh", "-c", 'job="$*"; exec parallel --will-cite --halt now,fail=1 --termseq TERM,15000,KILL,25 ::: "exec $job" '
                                   '"sh other.sh"', "sh"))
    (tmp_path / "fail").touch()
    job.has_heard_once("SIGTERM")
    job.ends()


def test_the_first_process_of_a_container_is_heard_once(jobs):
    """docker stop: TERM to process 1, from outside of its namespace."""
    job = jobs(around=("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"))
    to_run_alone(job)
    job.has_heard_once("SIGTERM")
    job.ends()


@pytest.fixture
def typed(service, ns, tmp_path):
    """The job in the foreground of a terminal: the shell has a session, the job a group of its own in it."""
    terminal = Terminal(service.daemon.target, uuid.uuid4().hex)
    job = Job(ns, tmp_path)
    job.mark = terminal.mark
    terminal.types(f"cd {tmp_path}; {shlex.join(job.argv)}\n")
    job.is_up()
    job.shell = terminal.pid
    yield job
    for pid in job.processes():
        if pid != terminal.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    terminal.close()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_term_reaches_the_command_of_a_terminal_once(typed, tmp_path, way):
    way(typed)
    typed.has_heard_once("SIGTERM")
    (tmp_path / "go").touch()
    wait_until(lambda: typed.processes() == [typed.shell], what="the end of the job")


def test_a_hangup_is_heard_once(typed, tmp_path):
    """The kernel hangs the foreground up when the session ends."""
    os.kill(typed.shell, signal.SIGKILL)
    typed.has_heard_once("SIGHUP")
    (tmp_path / "go").touch()
    wait_until(lambda: not typed.processes(), what="the end of the job")
