"""leasehold-verify: a site that keeps its promises passes, one that does not fails, and one that cannot be reached proves nothing."""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import threading

import grpc
import pytest

from harness import duration, pb, pb_grpc, wait_until

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "src/python"
RULES = ("two holders at once", "tokens that went back", "leases lost before their deadline", "waiters that were overtaken",
         "waiters that were forgotten", "events twice, or out of order", "events that a watcher missed", "clients that failed",
         "stale writes past the fence", "stale writes behind guard()")


@pytest.fixture
def verify():
    running = []

    def start(*words):
        running.append(subprocess.Popen([sys.executable, "-B", "-u", "-m", "leasehold.verify", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True, env={**os.environ, "PYTHONPATH": str(PACKAGE)}))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def end(process):
    told = process.communicate(timeout=150)[0]
    return process.returncode, told


def test_a_site_whose_daemon_is_killed_passes(service, start, verify, place):
    other = start(database=service.cluster.url(service.database))
    targets = service.daemon.target.replace("127.0.0.1", "localhost"), other.target
    process = verify("--server", ",".join(targets), "--seconds", "12", "--database", service.cluster.url(service.database),
                     "--history", place / "history.json", "--report", place / "report.html")
    wait_until(lambda: service.psql("select to_regclass('leasehold_verify_guarded') is not null") == "t", what="the table")
    wait_until(lambda: service.psql("select count(*) > 0 from leasehold_verify_guarded") == "t", what="a write behind guard()")
    other.kill()
    status, told = end(process)
    assert status == 0 and told.endswith("verify: 10 passed, 0 failed\n"), told
    assert [line.removeprefix("ok ").removesuffix(": 0") for line in told.splitlines() if line.startswith("ok ")] == list(RULES)
    seen = json.loads((place / "history.json").read_text())
    assert len({hold[0] for hold in seen["holds"]}) > 4 and seen["answers"][targets[0]] and {waiter[1] for waiter in seen["waiters"]} == set(targets)
    assert "grants a second" in (place / "report.html").read_text()
    assert service.psql("select to_regclass('leasehold_verify_guarded') is null") == "t"
    assert service.psql("select count(*) from leasehold.scope where namespace = 'verify' and state = 'held' and key ~ '^keeper'") == "0", "keepers give back"


class Broken(pb_grpc.LeaseServiceServicer):
    """Grants everything to everybody, each lease with the token before the last one's; its watchers hear of nothing."""
    def __init__(self):
        self.token, self.mutex, self.ended = 1000, threading.Lock(), threading.Event()

    def lease(self, request):
        with self.mutex:
            self.token -= 1
            return pb.Lease(scope=request.scope, lease_key=request.lease_key, token=self.token, remaining=request.duration)

    def Acquire(self, request, context):
        return pb.AcquireResponse(lease=self.lease(request))

    def AcquireStream(self, request, context):
        yield pb.AcquireEvent(granted=self.lease(request), waited=duration(0))

    def Heartbeat(self, request, context):
        return pb.HeartbeatResponse(results=[pb.HeartbeatResult(outcome=pb.OUTCOME_LOST, end_reason=pb.END_REASON_EXPIRED) for _ in request.leases])

    def Release(self, request, context):
        return pb.ReleaseResponse(results=[pb.ReleaseResult(outcome=pb.OUTCOME_OK) for _ in request.items])

    def WatchLeases(self, request, context):
        yield pb.LeaseEvent(type=pb.LeaseEvent.TYPE_SYNCED)
        self.ended.wait(60)


def test_a_site_that_breaks_its_promises_fails_and_is_drawn(verify, place):
    broken = Broken()
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(32))
    pb_grpc.add_LeaseServiceServicer_to_server(broken, server)
    target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        status, told = end(verify("--server", target, "--seconds", "4", "--report", place / "report.html"))
    finally:
        broken.ended.set()
        server.stop(None)
    assert status == 1, told
    for rule in RULES[:3]:
        assert f"not ok {rule}: " in told
    assert "    hold of s" in told and "; hold of s" in told
    report = (place / "report.html").read_text()
    assert report.count('class="bad"') >= 6 and '<h3 class="wrong">two holders at once' in report and '<h3 class="ok">clients that failed: 0' in report


def test_each_key_that_failed_is_drawn():
    """Also the last of many, and one of which only a watcher heard something wrong."""
    script = """
from types import SimpleNamespace
from leasehold.verify.history import Event, Grant, Hold
from leasehold.verify.load import Load, Site
from leasehold.verify.report import page
waiting = Load(Site("127.0.0.1:1"), 1)
waiting.waiting[3] = "the-lease-key", 0.0
pairs = [(Hold(f"s{key}", 1, 0, 2, 0), Hold(f"s{key}", 2, 1, 3, 1)) for key in [0] * 20 + list(range(15))]
told = Hold("told", 7, 0, 1, 0)
load = SimpleNamespace(holds=[told, *(hold for pair in pairs for hold in pair)], grants=[Grant(0, 1)], site=SimpleNamespace(servers=["a"], namespace="n"))
print(page(load, {"two": pairs, "events": [("daemon", None, Event("told", "acquired", 7))], "forgotten": waiting.end(0)}, "words", 0, 0))
"""
    said = subprocess.run([sys.executable, "-B", "-c", script], stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "PYTHONPATH": str(PACKAGE)}).stdout
    for scope in [*(f"s{key}" for key in range(15)), "told", "line"]:
        assert f'<text x="4" y="15">{scope}</text>' in said, scope
    assert said.count('<text x="4" y="15">s0</text>') == 10 and "<p>the-lease-key; waiter of line, token none, from 0.000 to " in said


def test_a_site_that_grants_nothing_proves_nothing(verify):
    status, told = end(verify("--server", "127.0.0.1:1", "--seconds", "2"))
    assert status == 2 and "no lease was granted: nothing is proven" in told and "UNAVAILABLE" in told, told


@pytest.mark.parametrize("words, error", (
    (("--seconds", "0"), "--seconds: must be from 1 to 604800 seconds, is 0"),
    (("--server", ","), "no address of a server is given"),
    (("--server", "db.example:7420", "--token-file", "/dev/null"), "a token is sent over TLS, unix sockets and loopback only"),
    (("--token-file", "/nowhere"), "/nowhere"),
    (("--database", "host=/nowhere"), "table leasehold_verify_guarded cannot be made: "),
))
def test_a_wrong_argument_is_named(verify, words, error):
    status, told = end(verify(*words))
    assert status == 2 and error in told and "Traceback" not in told, told
