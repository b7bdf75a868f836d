"""Floods: whatever one client sends, the daemon stays within `memory`, and a lease of somebody else's is renewed.

Each is sent by a process of its own (flood.py), from an address of its own. Nothing is measured: a lease of 5 s that is
renewed at a third of that must live, an acquire of the neighbour's must be granted, and the bound that stops the flood
must have counted.
"""
import contextlib
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import threading

import grpc
import pytest

from place import BOUND, Place, harness, metric
from flood import BEGIN, HANDSHAKES, KINDS
import certificates
from harness import acquire_request, heartbeat, pb, release_request, wait_until
import rundir

MEMORY_MIB = 128
LEASE_S = 5
RENEWALS = 4  # longer than the lease lives by itself
LISTED = 2000


# A connection may have a 32nd of the memory, as by default.
BOUNDED = ["--memory", f"{MEMORY_MIB} MiB", "--connection-memory", f"{MEMORY_MIB // 32} MiB", "--request-timeout", "2s",
           "--stall-timeout", "2s", "--max-pending", "4000", "--max-waiters", "5000"]


@contextlib.contextmanager
def running(*args, authority=None):
    place = Place()
    daemon = place.daemon(*BOUNDED, *args)
    place.psql("select count(*) from generate_series(1, 2000) n, lateral leasehold.acquire('many', 'key' || n, interval '1 day', "
               "owner => repeat('o', 200))")
    daemon.place, daemon.authority, daemon.memory_mib = place, authority, MEMORY_MIB
    yield daemon
    assert daemon.stop() == 0, daemon.log()
    place.close()


@pytest.fixture(scope="module")
def daemon():
    with running() as daemon:
        yield daemon


@pytest.fixture(scope="module")
def tls_directory():
    directory = pathlib.Path(rundir.mkdtemp("lh-tls-"))
    authority = certificates.Authority(directory)
    yield authority, certificates.flags(authority.issue("server", certificates.SERVER_NAMES))
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def tls_daemon(tls_directory):
    authority, flags = tls_directory
    with running(*flags, authority=authority) as daemon:
        yield daemon


class Neighbour:
    """One lease that it renews, and another that it takes and gives back, until it is closed."""

    def __init__(self, daemon):
        self.client = harness.Client(daemon.target, daemon.authority and certificates.credentials(daemon.authority))
        self.renewals = self.pairs = 0
        self.fault = None
        self.stop = threading.Event()
        self.lease = self.client.lease.Acquire(acquire_request("next-door", "own", LEASE_S), timeout=BOUND).lease
        self.threads = [threading.Thread(target=self.guarded, args=(work,)) for work in (self.renew, self.take_and_give)]
        for thread in self.threads:
            thread.start()

    def guarded(self, work):
        try:
            while not self.stop.is_set():
                work()
        except Exception as error:  # said by whoever waits
            self.fault = self.fault or error

    def renew(self):
        result = heartbeat(self.client, self.lease)
        assert result.outcome in (pb.OUTCOME_OK, pb.OUTCOME_RETRY), result
        self.renewals += result.outcome == pb.OUTCOME_OK
        self.stop.wait(LEASE_S / 3 if result.outcome == pb.OUTCOME_OK else 0.1)

    def take_and_give(self):
        try:
            lease = self.client.lease.Acquire(acquire_request("next-door", "pair", LEASE_S, wait=BOUND), timeout=BOUND).lease
        except grpc.RpcError as error:  # of a machine that is so busy that the database is silent for seconds
            assert error.code() == grpc.StatusCode.UNAVAILABLE, error
            self.stop.wait(0.1)
            return
        assert self.client.lease.Release(release_request(lease), timeout=BOUND).results[0].outcome in (pb.OUTCOME_OK, pb.OUTCOME_RETRY)
        self.pairs += 1
        self.stop.wait(0.1)

    def has_lived(self):
        assert self.fault is None, self.fault
        return self.renewals >= RENEWALS and self.pairs >= RENEWALS

    def close(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()
        self.client.lease.Release(release_request(self.lease), timeout=BOUND)
        self.client.close()


@contextlib.contextmanager
def flooded(daemon, kind):
    flood = subprocess.Popen([sys.executable, "-B", pathlib.Path(__file__).with_name("flood.py"), kind, str(daemon.port),
                              *([daemon.authority.cert] if daemon.authority and kind in KINDS else [])], stdout=subprocess.PIPE)
    try:
        assert flood.stdout.readline() == b"begun\n"
        threading.Thread(target=flood.stdout.read, daemon=True).start()
        yield
        assert flood.poll() is None, "the flood ended by itself"
    finally:
        flood.kill()
        flood.wait()


def peak_kib(daemon):
    return int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text()).group(1))


def counted(daemon, bounds):
    return sum(metric(daemon, f'leasehold_bound_refusals_total{{bound="{bound}"}}') for bound in bounds)


# As the database judges it.
LIVE = "select count(*) from leasehold.coordinator where seen_at > clock_timestamp() - interval '3.5 s'"

# Which bound stops which. Over TLS, handshakes keep a quarter of this memory before there are as many as an address may have.
BOUNDS = {
    "continuation": ["continuations"],
    "hpack-bomb": ["header_bytes"],
    "reset": ["resets"],
    "resets": ["resets", "new_streams_of_a_turn"],
    "ping": ["control_frames"],
    "settings": ["control_frames"],
    "window-update": ["control_frames"],
    "empty-data": ["control_frames"],
    "slow-headers": ["request_seconds"],
    "no-preface": ["handshakes_of_an_address", "memory_bytes"],
    "unfinished": ["memory_bytes_of_a_connection", "memory_bytes"],
    "lists": ["control_calls_of_a_client", "memory_bytes_of_a_connection", "memory_bytes"],
    "reflection": ["memory_bytes_of_a_connection", "memory_bytes"],
    "watches": ["watchers_of_a_client"],
    "eager": ["pending_items", "pending_items_of_a_client"],
    "places": ["waiters_of_a_client"],
    "hello": ["memory_bytes"],
}


def test_there_is_a_bound_for_each_flood():
    assert set(BOUNDS) == {*KINDS, *HANDSHAKES}


def survives(daemon, kind):
    neighbour = Neighbour(daemon)
    before = counted(daemon, BOUNDS[kind])
    try:
        with flooded(daemon, kind):
            wait_until(neighbour.has_lived, BOUND, "renewals")
            wait_until(lambda: counted(daemon, BOUNDS[kind]) > before, 2 * BOUND, f"a refusal by {BOUNDS[kind]}")
            wait_until(lambda: daemon.place.psql(LIVE) == "1", BOUND, "a daemon that the database takes for alive")
    finally:
        neighbour.close()
    assert peak_kib(daemon) < daemon.memory_mib * 1024
    # What it left behind goes with it.
    wait_until(lambda: metric(daemon, "leasehold_rpc_connections_open") == 0, BOUND, "the end of the flood's connections")
    wait_until(lambda: daemon.place.psql("select count(*) from leasehold.waiter") == "0", BOUND, "an empty queue")


@pytest.mark.parametrize("kind", KINDS)
def test_a_flood_costs_nobody_else_a_lease_and_the_daemon_no_more_than_its_memory(daemon, kind):
    survives(daemon, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_flood_over_tls_costs_the_same(tls_daemon, kind):
    survives(tls_daemon, kind)


def test_a_proxy_that_opens_connections_for_many_calls_at_once_is_served(daemon):
    """nginx opens one for each call, and writes on none before it has opened them all."""
    bound, before = BOUNDS["no-preface"], counted(daemon, BOUNDS["no-preface"])
    with contextlib.ExitStack() as opened:
        connections = [opened.enter_context(socket.create_connection(("127.0.0.1", daemon.port), BOUND)) for _ in range(400)]
        wait_until(lambda: metric(daemon, "leasehold_rpc_connections_open") + counted(daemon, bound) - before >= len(connections), BOUND, "all to be accepted")
        for connection in connections:
            connection.sendall(BEGIN)
        assert sum(bool(connection.recv(1)) for connection in connections) == len(connections)
    assert counted(daemon, bound) == before


def test_handshakes_that_stop_half_way_keep_a_quarter_of_the_memory(tls_directory):
    authority, flags = tls_directory
    with running(*flags, "--memory", "64 MiB", authority=authority) as daemon:
        daemon.memory_mib = 64
        survives(daemon, "hello")
