"""`leasehold watch`: what is held, then every change, also over a daemon that goes away."""
import concurrent.futures
import json
import os
import re
import select
import signal
import subprocess
import uuid

import grpc
import pytest
from google.protobuf import any_pb2, json_format

import harness
from harness import error_details_pb2, pb, pb_grpc, status_pb2, wait_until


class Watching:
    """`leasehold watch`, read line by line with a bound."""

    def __init__(self, server, *args):
        env = {name: value for name, value in os.environ.items() if not name.startswith("LEASEHOLD_")}
        self.process = subprocess.Popen([harness.CLI, "watch", *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env={**env, "LEASEHOLD_SERVER": server, "TZ": "UTC", "LC_ALL": "C.UTF-8"})
        self.rest = b""

    def line(self):
        def is_there():
            if b"\n" not in self.rest and select.select([self.process.stdout], [], [], 0)[0]:
                self.rest += os.read(self.process.stdout.fileno(), 65536)
            return b"\n" in self.rest

        wait_until(is_there, what="a line")
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode()

    def event(self):
        """Without the time before it."""
        line = self.line()
        assert re.match(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC  ", line), line
        return re.sub(r" +", " ", line[25:])

    def ends(self, number=signal.SIGINT):
        self.process.send_signal(number)
        self.out, self.err = (text.decode() for text in self.process.communicate(timeout=60))
        return self.process.returncode


@pytest.fixture
def watch():
    started = []

    def start(server, *args):
        started.append(Watching(server, *args))
        return started[-1]

    yield start
    for watching in started:
        if watching.process.poll() is None:
            watching.process.kill()
        watching.process.communicate()


@pytest.fixture
def ns():
    return "watch-" + uuid.uuid4().hex[:8]


def token(service, ns, key):
    return service.psql(f"select token from leasehold.scope where namespace = '{ns}' and key = '{key}'")


def test_a_line_for_each_event(service, watch, ns):
    acquire = lambda key: service.psql(f"select lease_key from leasehold.acquire('{ns}', '{key}', '30 s', owner => 'psql')")  # noqa: E731
    a = acquire("a")
    watching = watch(service.daemon.target, ns)
    assert watching.event() == f"held {ns}/a token {token(service, ns, 'a')} owner psql principal role:postgres"
    assert watching.event() == "synced"
    b = acquire("b")
    assert watching.event() == f"acquired {ns}/b token {token(service, ns, 'b')} owner psql principal role:postgres"
    acquire("c")
    assert watching.event().startswith(f"acquired {ns}/c ")
    service.psql(f"select leasehold.release_ok('{ns}', 'a', '{a}', '{{\"rows\": 3}}')")
    assert watching.event() == f"released {ns}/a token {token(service, ns, 'a')} owner psql principal role:postgres: {{\"rows\": 3}}"
    service.psql(f"select leasehold.release_fail('{ns}', 'b', '{b}', 'disk full')")
    assert watching.event() == f"failed {ns}/b token {token(service, ns, 'b')} owner psql principal role:postgres: disk full"
    service.psql(f"select leasehold.force_release('{ns}', 'c', 'maintenance')")
    assert watching.event() == f"forced {ns}/c token {token(service, ns, 'c')} owner psql principal role:postgres: maintenance"
    service.psql(f"select leasehold.acquire('{ns}.below', 'x', '30 s'), leasehold.acquire('{ns}', 'last', '30 s')")
    assert watching.event().startswith(f"acquired {ns}/last ")  # not the child's
    assert watching.ends() == 128 + signal.SIGINT and watching.err == ""


def test_what_the_policy_ended_is_told_from_what_expired(service, watch, ns):
    service.psql(f"select leasehold.set_policy('{ns}', max_hold => '2 s', end_at_max_hold => true)")
    watching = watch(service.daemon.target, ns)
    assert watching.event() == "synced"
    service.psql(f"select leasehold.acquire('{ns}', 'long', '30 s'), leasehold.acquire('{ns}', 'short', '1 s')")
    events = [watching.event().split()[:2] for _ in range(4)]
    assert sorted(events) == [["acquired", f"{ns}/long"], ["acquired", f"{ns}/short"], ["expired", f"{ns}/short"], ["max_hold", f"{ns}/long"]]


def test_children_as_json_one_object_a_line(service, watch, ns):
    watching = watch(service.daemon.target, ns, "--children", "-o", "json")
    assert json.loads(watching.line())["type"] == "TYPE_SYNCED"
    service.psql(f"select leasehold.acquire('{ns}.below', 'x', '30 s')")
    event = json_format.Parse(watching.line(), pb.LeaseEvent())
    assert event.type == pb.LeaseEvent.TYPE_ACQUIRED and list(event.lease.scope.namespace) == [ns, "below"]
    assert watching.ends(signal.SIGTERM) == 128 + signal.SIGTERM


def test_it_begins_again_when_the_daemon_comes_back(cluster, watch, ns):
    database = cluster.create_database()
    daemon = harness.Daemon(database=cluster.url(database))
    watching = watch(daemon.target, ns)
    assert watching.event() == "synced"
    daemon.kill()
    cluster.psql(f"select leasehold.acquire('{ns}', 'meanwhile', '30 s')", database)
    daemon.start()
    assert watching.event().startswith(f"held {ns}/meanwhile ")
    assert watching.event() == "synced"
    assert watching.ends() == 128 + signal.SIGINT
    assert watching.err.count("it starts again with the leases held then") == 1
    daemon.destroy()


class Lagging(pb_grpc.LeaseServiceServicer):
    """Ends the first watch with WATCH_LAGGED, keeps the second, refuses others."""

    def __init__(self):
        self.requests = []
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        pb_grpc.add_LeaseServiceServicer_to_server(self, self.server)
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def WatchLeases(self, request, context):
        self.requests.append(request)
        yield pb.LeaseEvent(type=pb.LeaseEvent.TYPE_SYNCED)
        if len(self.requests) == 1:
            status = status_pb2.Status(code=grpc.StatusCode.ABORTED.value[0], message="it fell behind")
            status.details.append(any_pb2.Any())
            status.details[0].Pack(error_details_pb2.ErrorInfo(reason="WATCH_LAGGED", domain="leasehold"))
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
            context.abort(grpc.StatusCode.ABORTED, "it fell behind")
        context.abort(grpc.StatusCode.PERMISSION_DENIED, "enough")


def test_who_fell_behind_begins_again_and_who_is_refused_ends(watch):
    server = Lagging()
    watching = watch(f"127.0.0.1:{server.port}", "a.b", "-r")
    assert [watching.event(), watching.event()] == ["synced", "synced"]
    out, err = watching.process.communicate(timeout=60)
    assert watching.process.returncode == 1 and out == b""
    assert b"the watch was interrupted (it fell behind)" in err and b"enough" in err
    assert [list(request.namespace) for request in server.requests] == [["a", "b"]] * 2
    assert all(request.include_initial and request.include_children for request in server.requests)
    server.server.stop(None)


def test_a_server_that_was_never_there_is_5(watch):
    watching = watch("127.0.0.1:1")
    assert watching.process.wait(60) == 5


def test_a_reader_that_has_seen_enough_ends_it(service, watch, ns):
    watching = watch(service.daemon.target, ns)
    assert watching.event() == "synced"
    watching.process.stdout.close()
    service.psql(f"select leasehold.acquire('{ns}', 'x', '30 s')")
    assert watching.process.wait(60) == 1
    assert watching.process.stderr.read() == b""
    watching.process.stdout = open(os.devnull)
