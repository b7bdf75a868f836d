"""`leasehold run`, started by tests.

Each command carries a mark of its own in its environment, so what is left of it is found in /proc, wherever it went."""
import os
import pathlib
import subprocess
import uuid

import harness
from harness import wait_until


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
            text=True, env=env, process_group=0, **popen)

    def ends(self, seconds=60):
        self.out, self.err = self.process.communicate(timeout=seconds)
        return self.process.returncode

    def inside(self):
        """The processes of the command and of its supervision, without the outer one and its witness of signals."""
        return [pid for pid in marked(self.mark) if pid != self.process.pid and not self.is_witness(pid)]

    def is_witness(self, pid):
        try:
            return state_and_parent(pid)[1] == self.process.pid and os.getpgid(pid) == self.process.pid
        except ProcessLookupError:
            return False

    def nothing_is_left(self, seconds=60):
        wait_until(lambda: not self.inside(), seconds, "the end of all processes")


def state_and_parent(pid):
    try:
        state, parent = (pathlib.Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[:2]
        return state, int(parent)
    except OSError:
        return None, None  # gone meanwhile


def scope(service, ns, columns="state, last_outcome", key="k"):
    return service.psql(f"select {columns} from leasehold.scope where namespace = '{ns}' and key = '{key}'")


def is_up(path):
    wait_until(path.exists, what=f"{path.name} being written")
