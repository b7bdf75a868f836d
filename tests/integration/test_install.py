"""deploy/install beside a false apt-get, on a terminal, in a mount namespace where what it writes harms nothing."""
import os
import pty
import signal
import socket
import subprocess
import time

import pytest

import harness

POLICY = "usr/sbin/policy-rc.d"
DROP_IN = "etc/postgresql-common/createcluster.d/leasehold-quickstart.conf"
# No package is there, and apt-get does what the file `apt` says.
FALSE = {
    "dpkg-query": "exit 1",
    "sudo": "exit 1",
    "apt-get": """
case "$*" in
*--assume-no*) printf '0 upgraded, 7 newly installed, 0 to remove\\nNeed to get 9 MB of archives.\\nAfter this operation, 30 MB of disk.\\n' ;;
*update*) [ ! -e "$FALSE/locked" ] || { echo 'E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1' >&2; exit 100; } ;;
*install*) [ ! -e "$FALSE/downloading" ] || { echo 'E: Could not get lock /var/cache/apt/archives/lock. It is held by process 1' >&2; exit 100; }
    echo up >"$FALSE/up"; [ ! -e "$FALSE/slow" ] || exec sleep 300 ;;
esac""",
}


class Machine:
    """`root` is this machine's, with a /usr/sbin and a /etc/postgresql-common that nobody else sees."""

    def __init__(self, tmp_path):
        self.false = tmp_path / "false"
        self.false.mkdir()
        for name, script in FALSE.items():
            (self.false / name).write_text(f"#!/bin/sh\nFALSE={self.false}\n{script}\n")
            (self.false / name).chmod(0o755)
        layers = tmp_path / "layers"
        layers.mkdir()
        own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        script = (f"mount -t tmpfs none {layers} && mkdir {layers}/upper {layers}/work && mount -t overlay overlay -o "
                  f"lowerdir=/usr/sbin,upperdir={layers}/upper,workdir={layers}/work /usr/sbin && "
                  "mount -t tmpfs none /etc/postgresql-common && rm -f /usr/sbin/policy-rc.d && echo up && exec sleep 600")
        self.holder = subprocess.Popen(["unshare", "--mount", *own, "sh", "-c", script], stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout.readline() == "up\n"
        self.enter = ["nsenter", f"--target={self.holder.pid}", "--mount", *(["--user", "--preserve-credentials"] if own else [])]
        self.terminal = None

    def path(self, name):
        return harness.pathlib.Path(f"/proc/{self.holder.pid}/root/{name}")

    def left(self):
        return [name for name in (POLICY, DROP_IN) if self.path(name).exists()]

    def make(self, name):
        (self.false / name).touch()

    def start(self, *command):
        """On a terminal of its own, by a shell, which leads the session."""
        words = [*self.enter, "sh", "-c", '"$@"; exit $?', "sh", *command]
        pid, self.terminal = pty.fork()
        if pid == 0:
            os.environ["PATH"] = f"{self.false}:{os.environ['PATH']}"
            os.execvp(words[0], words)
        return pid

    def install(self):
        return self.run("install", "run")

    def run(self, name, *words):
        return subprocess.run([*self.enter, harness.ROOT / "deploy" / name, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=60, env={**os.environ, "PATH": f"{self.false}:{os.environ['PATH']}"})

    def close(self):
        if self.terminal is not None:
            os.close(self.terminal)
        self.holder.kill()
        self.holder.wait()


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path)
    yield machine
    machine.close()


def ended(pid):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(pid, signal.SIGKILL)
    raise AssertionError("it did not end")


def press_control_c(machine, pid):
    os.write(machine.terminal, b"\x03")


def terminate(machine, pid):
    os.killpg(pid, signal.SIGTERM)


def hang_up(machine, pid):
    os.close(machine.terminal)
    machine.terminal = None


@pytest.mark.parametrize("command", ["install", "quickstart"])
@pytest.mark.parametrize("interrupt", [press_control_c, terminate, hang_up])
def test_an_interrupted_installation_leaves_nothing_behind(machine, command, interrupt):
    machine.make("slow")
    pid = machine.start(harness.ROOT / "deploy" / command, *(["run"] if command == "install" else []))
    harness.wait_until(lambda: (machine.false / "up").exists(), 60, "apt-get installs")
    assert machine.left() == [POLICY, DROP_IN]
    interrupt(machine, pid)
    assert ended(pid) != 0
    harness.wait_until(lambda: machine.left() == [], 30, "both files are removed")


def test_what_a_killed_installation_left_is_removed_by_the_next(machine):
    machine.make("slow")
    pid = machine.start(harness.ROOT / "deploy/install", "run")
    harness.wait_until(lambda: (machine.false / "up").exists(), 60, "apt-get installs")
    os.killpg(pid, signal.SIGKILL)
    ended(pid)
    assert machine.left() == [POLICY, DROP_IN]
    (machine.false / "slow").unlink()
    # Where no package is missing any more, too.
    (machine.false / "dpkg-query").write_text("#!/bin/sh\necho installed\n")
    done = machine.install()
    assert done.returncode == 0 and machine.left() == [], done.stdout


def test_a_policy_of_the_machines_own_stays(machine):
    machine.path(POLICY).write_text("#!/bin/sh\nexit 101\n")
    done = machine.install()
    assert done.returncode == 0 and machine.left() == [POLICY], done.stdout
    assert "7 newly installed\nNeed to get 9 MB" in done.stdout


@pytest.mark.parametrize("lock", ["locked", "downloading"])
def test_an_installation_waits_for_another_apt(machine, lock):
    """Another one reads the lists, or downloads packages without installing them, as Debian's timer does."""
    machine.make(lock)
    machine.make("slow")
    pid = machine.start(harness.ROOT / "deploy/install", "run")
    said = b""
    while b"waiting for another apt" not in said:
        said += os.read(machine.terminal, 4096)
    (machine.false / lock).unlink()
    harness.wait_until(lambda: (machine.false / "up").exists(), 60, "apt-get installs")
    press_control_c(machine, pid)
    assert ended(pid) != 0
    harness.wait_until(lambda: machine.left() == [], 30, "both files are removed")


def test_quickstart_names_a_port_that_is_taken(machine):
    """By a program that never says a word."""
    for name, script in (("dpkg-query", "echo installed"), ("meson", "exit 0"), ("ninja", "exit 0")):
        (machine.false / name).write_text(f"#!/bin/sh\n{script}\n")
        (machine.false / name).chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        taken = silent.getsockname()[1]
        for port in (taken, taken - 1):
            done = machine.run("quickstart", "--port", str(port))
            assert done.returncode == 1, done.stdout
            assert f"another program listens on 127.0.0.1:{taken}; deploy/quickstart --port N takes N and N + 1\n" in done.stdout
