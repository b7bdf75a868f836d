"""The example clients of deploy/examples, Python and Node, against a daemon and through a proxy that loses their replies."""
import itertools
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))
sys.path.insert(0, str(HERE.parent / "lib"))
import harness  # noqa: E402
from flaky_proxy import FlakyProxy  # noqa: E402
from harness import acquire_request, wait_until  # noqa: E402
from test_node import node_modules  # noqa: E402, F401

EXAMPLES = harness.ROOT / "deploy/examples"


@pytest.fixture(scope="module")
def service():
    cluster = harness.Cluster()
    service = harness.Service(cluster)
    yield service
    service.close()
    cluster.destroy()


@pytest.fixture
def proxy(service):
    proxy = FlakyProxy(service.daemon.target)
    yield proxy
    proxy.close()


class Program:
    """One of the examples, running; the lines that it prints."""

    def __init__(self, command, env, directory):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=directory,
                                        env={**os.environ, **env})
        self.lines = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def wait_for(self, word):
        def found():
            return next((line for line in self.lines if line.startswith(word)), None) or self.process.poll() is not None

        wait_until(found, 60, f"a line of {word}")
        self.flush()
        line = next((line for line in self.lines if line.startswith(word)), None)
        assert line is not None, self.lines
        return line

    def flush(self):
        if self.process.poll() is not None:
            self.reader.join(10)

    def end(self):
        status = self.process.wait(60)
        self.flush()
        return status


@pytest.fixture(params=["python", "node"])
def start(request, node_modules):  # noqa: F811
    """start(target, key, duration, wait): the example of that language."""
    programs = []

    def run(target, key, duration=30, wait=0):
        if request.param == "python":
            command = [sys.executable, "-B", str(EXAMPLES / "python/lease_client.py"), target, "examples", key,
                       "--duration", str(duration), "--wait", str(wait)]
            env = {"PYTHONPATH": str(pathlib.Path(harness.pb.__file__).resolve().parents[2])}
        else:
            shutil.copy(EXAMPLES / "node/lease_client.js", node_modules / "lease_client.js")
            command = ["node", "lease_client.js", target, "examples", key, str(duration), str(wait)]
            env = {"LEASEHOLD_PROTO": str(harness.ROOT / "proto")}
        programs.append(Program(command, env, node_modules))
        return programs[-1]

    run.language = request.param
    yield run
    for program in programs:
        if program.process.poll() is None:
            program.process.send_signal(signal.SIGCONT)
            program.process.kill()
        program.end()


def row(service, key, columns):
    return service.psql(f"select {columns} from leasehold.scope where namespace = 'examples' and key = '{key}'")


def test_a_lease_lives_through_lost_replies_and_is_given_back(service, proxy, start):
    key = f"flaky-{start.language}"
    # Never two losses in a row: there is time for two tries between a renewal and the deadline.
    actions = itertools.cycle(["pass", "drop", "pass", "cut", "pass", ("delay", 0.2), "pass", "truncate"])
    proxy.decide = lambda: next(actions)
    program = start(proxy.target, key, duration=3)
    token = program.wait_for("acquired").split()[1]
    wait_until(lambda: int(row(service, key, "heartbeats") or 0) >= 4 or program.process.poll() is not None)
    assert program.process.poll() is None, (program.lines[-3:], proxy.actions)
    assert row(service, key, "state, token") == f"held|{token}"
    assert proxy.actions["drop"] and proxy.actions["cut"], proxy.actions
    program.process.terminate()
    assert program.end() == 0, program.lines[-3:]
    assert program.lines[-1] == "released"
    assert row(service, key, "state, last_outcome, last_result ->> 'by'") == f"free|ok|{start.language}"


def test_who_waits_is_granted_with_a_larger_token(service, start):
    key = f"wait-{start.language}"
    held = service.client.lease.Acquire(acquire_request("examples", key)).lease
    refused = start(service.daemon.target, key)
    assert refused.wait_for("refused").startswith("refused ABORTED")
    assert refused.end() == 3
    waiting = start(service.daemon.target, key, wait=60)
    wait_until(lambda: service.psql(f"select count(*) from leasehold.queue where key = '{key}'") == "1")
    service.client.lease.Release(harness.release_request(held))
    assert int(waiting.wait_for("acquired").split()[1]) > held.token
    waiting.process.terminate()
    assert waiting.end() == 0


def test_a_loss_stops_the_work_and_says_why(service, start):
    key = f"forced-{start.language}"
    program = start(service.daemon.target, key, duration=3)
    program.wait_for("working")
    service.psql(f"select leasehold.force_release('examples', '{key}', 'a test')")
    assert program.wait_for("lost").split()[1] == "forced"
    assert program.end() == 4
    assert program.lines[-1].startswith("lost")


def test_who_hears_nothing_any_more_stops_before_its_deadline(service, proxy, start):
    key = f"silent-{start.language}"
    program = start(proxy.target, key, duration=3)
    program.wait_for("working")
    proxy.is_frozen = True
    assert program.wait_for("lost") == "lost unreachable in time"
    assert program.end() == 4


def test_who_was_stopped_past_its_deadline_wakes_up_without_the_lease(service, start):
    key = f"stopped-{start.language}"
    program = start(service.daemon.target, key, duration=2)
    program.wait_for("working")
    program.process.send_signal(signal.SIGSTOP)
    other = service.client.lease.Acquire(acquire_request("examples", key, 30, wait=60)).lease
    before = len([line for line in program.lines if line == "working"])
    program.process.send_signal(signal.SIGCONT)
    program.wait_for("lost")
    assert program.end() == 4
    assert len([line for line in program.lines if line == "working"]) == before
    assert row(service, key, "state, token") == f"held|{other.token}"
