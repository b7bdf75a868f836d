"""The example client of deploy/examples, for Node, against a daemon and through a proxy that loses their replies."""
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


@pytest.fixture
def start(node_modules):  # noqa: F811
    """start(target, key, duration, wait): the example."""
    programs = []

    def run(target, key, duration=30, wait=0):
        shutil.copy(EXAMPLES / "node/lease_client.js", node_modules / "lease_client.js")
        command = ["node", "lease_client.js", target, "examples", key, str(duration), str(wait)]
        env = {"LEASEHOLD_PROTO": str(harness.ROOT / "proto")}
        programs.append(Program(command, env, node_modules))
        return programs[-1]

    yield run
    for program in programs:
        if program.process.poll() is None:
            program.process.send_signal(signal.SIGCONT)
            program.process.kill()
        program.end()


def row(service, key, columns):
    return service.psql(f"select {columns} from leasehold.scope where namespace = 'examples' and key = '{key}'")


def test_a_lease_lives_through_lost_replies_and_is_given_back(service, proxy, start):
    key = "flaky"
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
    assert row(service, key, "state, last_outcome, last_result ->> 'by'") == "free|ok|node"


def test_who_waits_is_granted_with_a_larger_token(service, start):
    key = "wait"
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
    key = "forced"
    program = start(service.daemon.target, key, duration=3)
    program.wait_for("working")
    service.psql(f"select leasehold.force_release('examples', '{key}', 'a test')")
    assert program.wait_for("lost").split()[1] == "forced"
    assert program.end() == 4
    assert program.lines[-1].startswith("lost")


def test_who_hears_nothing_any_more_stops_before_its_deadline(service, proxy, start):
    key = "silent"
    program = start(proxy.target, key, duration=3)
    program.wait_for("working")
    proxy.is_frozen = True
    assert program.wait_for("lost") == "lost unreachable in time"
    assert program.end() == 4


def test_who_was_stopped_past_its_deadline_wakes_up_without_the_lease(service, start):
    key = "stopped"
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


def test_a_grant_that_the_daemon_took_back_is_acquired_anew(service, proxy, start):
    """The reply of the grant is lost, and the lease has ended before the client asks again: LEASE_ENDED is no answer to it."""
    key = "back"
    proxy.decide = lambda: "drop"
    program = start(proxy.target, key, wait=60)
    wait_until(lambda: row(service, key, "state") == "held")
    first = row(service, key, "lease_key, token")
    proxy.is_refusing = True
    proxy.cut_all()
    wait_until(lambda: not proxy.connections)
    if row(service, key, "state") == "held":  # the daemon wrote its answer before the connection broke
        service.client.lease.Release(harness.pb.ReleaseRequest(items=[harness.pb.ReleaseItem(
            lease=harness.pb.LeaseRef(scope=harness.scope("examples", key), lease_key=first.split("|")[0]))]))
    proxy.decide = lambda: "pass"
    proxy.is_refusing = False
    assert int(program.wait_for("acquired").split()[1]) > int(first.split("|")[1])
    assert row(service, key, "lease_key") != first.split("|")[0]
    program.process.terminate()
    assert program.end() == 0, program.lines[-3:]


def test_a_daemon_that_hangs_costs_no_lease_where_there_is_another(service, start):
    key = "hangs"
    hanging = harness.Daemon(database=service.cluster.url(service.database))
    program = start(f"ipv4:{hanging.target},{service.daemon.target}", key, duration=12)
    token = program.wait_for("acquired").split()[1]
    try:
        hanging.process.send_signal(signal.SIGSTOP)
        before = int(row(service, key, "heartbeats"))
        # More than its deadline allows without a renewal.
        wait_until(lambda: int(row(service, key, "heartbeats")) >= before + 5 or program.process.poll() is not None, 60)
        assert program.process.poll() is None, program.lines[-3:]
        assert row(service, key, "state, token") == f"held|{token}"
        program.process.terminate()
        assert program.end() == 0, program.lines[-3:]
    finally:
        hanging.process.send_signal(signal.SIGCONT)
        hanging.destroy()
