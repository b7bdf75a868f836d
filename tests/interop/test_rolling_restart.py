"""Daemons that are restarted one after the other under stock clients with the service config of deploy/examples.

A client is a program of tests/interop/rolling: it takes, renews and gives back leases on four threads or tasks until its
standard input ends, each with a lease key, so that a call may be repeated. It prints `pairs` and the number of pairs of each
every 100 ms, `failed` and the error for a call that failed, and `ended` with the numbers at last.

    LEASEHOLD_ROLLING_RESTARTS=10 LEASEHOLD_ROLLING_CALLS=100000 pytest tests/interop/test_rolling_restart.py

restarts more often, and goes on until each client has made so many calls.
"""
import os
import pathlib
import subprocess
import sys
import threading
import uuid

import grpc
import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "fault"))
from place import BOUND, STUBS, Place, harness, metric  # noqa: E402
from flaky_proxy import FlakyProxy  # noqa: E402
from harness import acquire_request, pb_grpc, wait_until  # noqa: E402
from test_node import node_modules  # noqa: E402, F401
import stock_java  # noqa: E402

CONFIG = harness.ROOT / "deploy/examples/grpc-service-config.json"
RESTARTS = int(os.environ.get("LEASEHOLD_ROLLING_RESTARTS", 4))
CALLS = int(os.environ.get("LEASEHOLD_ROLLING_CALLS", 0))
GO = harness.ROOT / "tests/lib/go"


@pytest.fixture
def place():
    place = Place()
    yield place
    place.close()


def python_client(request, targets):
    return ["/usr/bin/python3", "-B", HERE / "rolling/worker.py", targets, CONFIG], HERE, {"PYTHONPATH": STUBS}


def node_client(request, targets):
    directory = request.getfixturevalue("node_modules")
    return ["node", HERE / "rolling/worker.js", targets, CONFIG, harness.ROOT / "proto"], directory, {"NODE_PATH": str(directory / "node_modules")}


def go_client(request, targets):
    """With the race detector, as the Go package's tests: what they need is built once."""
    program = harness.BUILD / "rolling-go"
    done = subprocess.run([GO, "build", "-race", "-o", program, "."], cwd=HERE / "rolling/go", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, env={**os.environ, "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"})
    assert done.returncode == 0, done.stdout
    return [program, targets, CONFIG], HERE, {}


def java_client(request, targets):
    return [*stock_java.compiled(), CONFIG, targets], HERE, {}


class Client:
    def __init__(self, command, directory, environment):
        self.pairs, self.faults, self.words = [], [], []
        self.process = subprocess.Popen([str(word) for word in command], cwd=directory, env={**os.environ, **environment}, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            word, *numbers = line.split()
            if word in ("pairs", "ended"):
                self.pairs = [int(number) for number in numbers]
            else:
                (self.faults if word == "failed" else self.words).append(line)

    def goes_on(self, number=5):
        """Each of its threads makes so many pairs from now on."""
        wait_until(lambda: self.pairs or self.process.poll() is not None, BOUND, "the client's first word")
        before = list(self.pairs)
        wait_until(lambda: self.faults or self.process.poll() is not None or all(now > then + number for now, then in zip(self.pairs, before)),
                   BOUND, "pairs of each thread")
        assert not self.faults and self.process.poll() is None, self.faults + self.words

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=BOUND)
        finally:
            self.process.kill()
            self.reader.join()


@pytest.mark.parametrize("command", (python_client, node_client, go_client, java_client), ids=("python", "node", "go", "java"))
def test_no_call_fails_while_daemons_are_restarted_in_turn(request, place, command):
    daemons = [place.daemon(), place.daemon()]
    client = Client(*command(request, ",".join(daemon.target for daemon in daemons)))
    try:
        client.goes_on()
        restarts = 0
        while restarts < RESTARTS or 3 * sum(client.pairs) < CALLS:
            daemon = daemons[restarts % 2]
            assert daemon.stop() == 0, daemon.log()
            client.goes_on()
            daemon.start()
            # The client has found it again: then the next one may go.
            wait_until(lambda daemon=daemon: metric(daemon, "leasehold_rpc_connections_open") > 0, BOUND, "the client's connection")
            client.goes_on(5 if restarts < RESTARTS else 200)
            restarts += 1
    finally:
        client.end()
    assert client.process.returncode == 0 and not client.faults, client.faults + client.words
    print("%d restarts, %d calls, 0 failed" % (restarts, 3 * sum(client.pairs)))


def test_the_service_config_repeats_a_call_whose_connection_broke(place):
    """Without it the same calls fail: what saves them is the config."""
    proxy = FlakyProxy(place.daemon().target)
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 1), ("grpc.max_reconnect_backoff_ms", 500)]
    try:
        for more, survives in (([], False), ([("grpc.service_config", CONFIG.read_text())], True)):
            answers = iter(["cut", "cut"])
            proxy.decide = lambda answers=answers: next(answers, "pass")
            with grpc.insecure_channel(proxy.target, options=options + more) as channel:
                request = acquire_request("restart", f"cut-{survives}", 30, wait=20, lease_key=str(uuid.uuid4()))
                try:
                    assert pb_grpc.LeaseServiceStub(channel).Acquire(request, timeout=BOUND).lease.token > 0
                    assert survives
                except grpc.RpcError as error:
                    assert not survives and error.code() == grpc.StatusCode.UNAVAILABLE, error
        assert proxy.actions["cut"] >= 3, proxy.actions
    finally:
        proxy.close()
