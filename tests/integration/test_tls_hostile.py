"""Bytes that no client would send, over TLS: sessions of HTTP/2 with errors in them, and TLS records with errors in them.

The same seed each time. A daemon that ends, hangs, or keeps a lease from others fails; so does, under sanitizers, one that reads or
writes where it must not.
"""
import pathlib
import random
import socket
import ssl
import sys

import pytest

from certificates import credentials, flags
from harness import Client, Daemon, acquire_request, release_request, wait_until
from test_daemon import get
from test_tls import closed

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fault"))
import flood  # noqa: E402

ROUNDS = 300


@pytest.fixture(scope="module")
def daemon(cluster, server, authority):
    daemon = Daemon(*flags(server, authority), database=cluster.url(cluster.create_database(migrated=True)))
    yield daemon
    daemon.destroy()


@pytest.fixture
def context(authority, worker):
    context = ssl.create_default_context(cafile=authority.cert)
    context.check_hostname = False
    context.load_cert_chain(worker.cert, worker.key)
    context.set_alpn_protocols(["h2"])
    return context


def session():
    """Calls as they should be: a grant, a place in the queue, a list, a watch, a stream of heartbeats."""
    methods = ("Acquire", "AcquireStream", "Hold", "KeepAlive", "ListLeases", "WatchLeases", "Heartbeat", "Release")
    request = flood.acquire("hostile", "key", 1, 1)
    return flood.BEGIN + b"".join(flood.call(2 * i + 1, flood.headers(flood.LEASE + method), request, method not in ("Hold", "KeepAlive"))
                                  for i, method in enumerate(methods)) + flood.frame(flood.PING, 0, 0, b"12345678")


def spoil(dice, data):
    """Some bytes changed, taken out, put in or repeated; now and then only the beginning is left."""
    data = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 5, 20))):
        at, size = dice.randrange(len(data)), dice.choice((1, 1, 2, 9, 60))
        what = dice.randrange(5)
        if what == 0:
            data[at] ^= 1 << dice.randrange(8)
        elif what == 1:
            data[at:at + size] = dice.randbytes(size)
        elif what == 2 and len(data) > 2 * size:
            del data[at:at + size]
        elif what == 3:
            data[at:at] = data[at:at + size]
        elif len(data) > 200:
            del data[dice.randrange(100, len(data)):]
    return bytes(data)


def connect(daemon):
    return socket.create_connection(("127.0.0.1", daemon.port), timeout=30)


def read_for_a_while(reader):
    try:
        while reader(65536):
            pass
    except (TimeoutError, OSError):
        pass


def others_are_served(daemon, authority, worker):
    client = Client(daemon.target, credentials(authority, worker))
    lease = client.lease.Acquire(acquire_request("hostile", "other", 30), timeout=60).lease
    client.lease.Release(release_request(lease), timeout=60)
    client.close()
    assert daemon.process.poll() is None, daemon.log()


def test_spoiled_sessions_over_tls(daemon, context, authority, worker):
    dice, whole = random.Random(1), session()
    for number in range(ROUNDS):
        with context.wrap_socket(connect(daemon)) as client:
            data = spoil(dice, whole)
            client.settimeout(0.05)
            try:
                while data:  # pieces as they come: within a record, a frame, a message
                    size = dice.choice((1, 9, 100, len(data)))
                    client.sendall(data[:size])
                    data = data[size:]
                    if size < 10 and dice.random() < 0.9:
                        client.sendall(data)
                        data = b""
            except OSError:
                continue  # the daemon has had enough
            if number % 10 == 0:
                read_for_a_while(client.recv)
        if number % 50 == 0:
            others_are_served(daemon, authority, worker)
    others_are_served(daemon, authority, worker)
    assert closed(daemon, "tls") == 0, "all came past the handshake"


def test_spoiled_records(daemon, context, authority, worker):
    """The handshake, or what comes after it, with errors beneath the encryption."""
    dice = random.Random(2)
    for number in range(ROUNDS):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing)
        spoiled = dice.randrange(4)  # which flight: the hello, the certificate, the session, more of it
        with connect(daemon) as client:
            client.settimeout(0.05 if spoiled == 0 else 30)  # the answer to a hello that is spoiled may not come
            for flight in range(4):
                try:
                    if flight < 2:
                        tls.do_handshake()
                    else:
                        tls.write(session())
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLError:
                    break
                data = outgoing.read()
                try:
                    client.sendall(spoil(dice, data) if flight == spoiled and data else data)
                    if flight < 1:
                        incoming.write(client.recv(65536))
                except OSError:
                    break
        if number % 50 == 0:
            others_are_served(daemon, authority, worker)
    others_are_served(daemon, authority, worker)
    assert closed(daemon, "tls") > ROUNDS / 4


def test_nothing_of_them_is_left(daemon):
    """Runs after the two above, on the same daemon."""
    wait_until(lambda: "\nleasehold_rpc_connections_open 0\n" in get(daemon, "/metrics")[1], 60, "the end of all connections")
    wait_until(lambda: "\nleasehold_waiters 0\n" in get(daemon, "/metrics")[1], 60, "the end of all waiters")
    assert daemon.stop() == 0, daemon.log()
