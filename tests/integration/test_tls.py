"""TLS: the stock Python client with a certificate of its own, everything that is wrong with a certificate, and certificates
that are replaced while calls run."""
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.request

import grpc
import pytest

import harness
from certificates import SERVER_NAMES, credentials, flags
from harness import Client, Daemon, acquire_request, fails, heartbeat, lease_ref, pb, release_request, wait_until
from streams import Reading, keys
from test_daemon import get, run

@pytest.fixture(scope="module")
def daemon(cluster, server, authority):
    daemon = Daemon(*flags(server, authority), database=cluster.url(cluster.create_database(migrated=True)))
    yield daemon
    daemon.destroy()


@pytest.fixture
def connect():
    clients = []

    def connect(daemon, *args):
        clients.append(Client(daemon.target, credentials(*args) if args else None))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


def closed(daemon, reason):
    found = re.search(r'connections_closed_total\{reason="%s"\} (\d+)' % reason, get(daemon, "/metrics")[1])
    return int(found.group(1))


def expect_logged(daemon, words, since=0):
    wait_until(lambda: words in daemon.log()[since:], what=f"'{words}' in the log")


def refused_call(client):
    with fails() as failure:
        client.lease.Acquire(acquire_request("tls", keys()), timeout=20)
    return failure.value


# --- who comes in ---


def test_a_lease_lives_over_mutual_tls(daemon, connect, authority, worker):
    client = connect(daemon, authority, worker)
    lease = client.lease.Acquire(acquire_request("tls", keys())).lease
    assert heartbeat(client, lease).outcome == pb.OUTCOME_OK
    many = client.lease.Heartbeat(pb.HeartbeatRequest(leases=[lease_ref(lease)] * 1000)).results  # records of 16 KiB and more
    assert len(many) == 1000 and all(result.outcome == pb.OUTCOME_OK for result in many)
    assert client.lease.Release(release_request(lease)).results[0].outcome == pb.OUTCOME_OK


@pytest.mark.parametrize("kind, words", [
    ("none", "the client shows no certificate"),
    ("foreign", "the client's certificate dns:stranger is not signed by an authority of /"),
    ("expired", "the client's certificate dns:late has expired: it ended at "),
    ("early", "the client's certificate dns:early is not yet valid: it begins at "),
])
def test_a_client_that_is_refused_hears_it_and_the_log_says_why(daemon, connect, authority, other_authority, kind, words):
    certificate = {
        "none": lambda: None,
        "foreign": lambda: other_authority.issue("stranger", "DNS:stranger"),
        "expired": lambda: authority.issue("late", "DNS:late", -7200, -3600),
        "early": lambda: authority.issue("early", "DNS:early", 3600, 7200),
    }[kind]()
    since, before = len(daemon.log()), closed(daemon, "tls")
    error = refused_call(connect(daemon, authority, certificate))
    assert error.code == grpc.StatusCode.UNAVAILABLE
    expect_logged(daemon, words, since)
    assert closed(daemon, "tls") > before


@pytest.mark.parametrize("kind", ["foreign", "expired"])
def test_a_daemon_that_is_refused_says_so_in_its_log(cluster, database, start, connect, authority, other_authority, worker,
                                                     kind):
    certificate = {
        "foreign": lambda: other_authority.issue("foreign-server", SERVER_NAMES),
        "expired": lambda: authority.issue("old-server", SERVER_NAMES, -7200, -3600),
    }[kind]()
    daemon = start(*flags(certificate, authority), database=cluster.url(database))
    error = refused_call(connect(daemon, authority, worker))
    assert error.code == grpc.StatusCode.UNAVAILABLE
    expect_logged(daemon, "the client closed the connection in the handshake: it may refuse our certificate")
    if kind == "expired":
        expect_logged(daemon, "the TLS certificate has expired, clients will refuse it file=")


def test_a_client_refuses_a_daemon_of_another_name(cluster, database, start, connect, authority, worker):
    daemon = start(*flags(authority.issue("elsewhere", "DNS:elsewhere.example"), authority), database=cluster.url(database))
    error = refused_call(connect(daemon, authority, worker))
    assert error.code == grpc.StatusCode.UNAVAILABLE


def test_a_client_without_tls_is_told_at_once(daemon, connect):
    since = len(daemon.log())
    error = refused_call(connect(daemon))
    assert error.code == grpc.StatusCode.UNAVAILABLE
    expect_logged(daemon, "the client speaks without TLS", since)


def test_a_client_with_tls_is_told_at_once_where_there_is_none(service, connect, authority, worker):
    error = refused_call(connect(service.daemon, authority, worker))
    assert error.code == grpc.StatusCode.UNAVAILABLE
    expect_logged(service.daemon, "the client speaks TLS, and this address does not: set tls_cert and tls_key")


def s_client(daemon, *args):
    return subprocess.run(["openssl", "s_client", "-connect", daemon.target, *args], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30).stdout


def test_old_versions_of_tls_and_other_protocols_are_refused(daemon, worker):
    since = len(daemon.log())
    assert "alert protocol version" in s_client(daemon, "-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0")
    expect_logged(daemon, "the client does not speak a version of TLS that is allowed here", since)
    assert "no application protocol" in s_client(daemon, "-alpn", "http/1.1", "-cert", worker.cert, "-key", worker.key)
    expect_logged(daemon, "the client does not speak HTTP/2 (ALPN h2)", since)
    assert "alert handshake failure" in s_client(daemon, "-tls1_2", "-cipher", "AES128-GCM-SHA256")
    expect_logged(daemon, "the client has no cipher with ECDHE and AEAD", since)
    accepted = s_client(daemon, "-tls1_2", "-alpn", "h2", "-cert", worker.cert, "-key", worker.key)
    assert "ALPN protocol: h2" in accepted and "Verify return code" in accepted


def test_the_lowest_version_can_be_1_3(cluster, database, start, connect, server, authority):
    daemon = start(*flags(server), "--tls-min-version", "1.3", database=cluster.url(database))
    assert "alert protocol version" in s_client(daemon, "-tls1_2", "-alpn", "h2")
    assert connect(daemon, authority).lease.Acquire(acquire_request("tls", keys())).lease.token > 0


def test_a_certificate_can_be_asked_for_and_not_required(cluster, database, start, connect, server, authority, worker,
                                                         other_authority):
    daemon = start(*flags(server, authority), "--tls-client-auth", "request", database=cluster.url(database))
    for certificate in (None, worker):
        assert connect(daemon, authority, certificate).lease.Acquire(acquire_request("tls", keys())).lease.token > 0
    assert refused_call(connect(daemon, authority, other_authority.issue("guest", "DNS:guest"))).code == grpc.StatusCode.UNAVAILABLE
    expect_logged(daemon, "the client's certificate dns:guest is not signed by an authority of")


def test_a_unix_socket_speaks_no_tls(cluster, database, start, server, authority):
    path = authority.dir / "own.sock"
    daemon = start(*flags(server, authority), "--listen", f"127.0.0.1:0,unix:{path}", database=cluster.url(database))
    client = Client(f"unix:{path}")
    assert client.lease.Acquire(acquire_request("tls", keys())).lease.token > 0
    client.close()
    assert daemon.stop() == 0


def test_the_admin_port_speaks_tls_and_asks_for_no_certificate(daemon, authority):
    context = ssl.create_default_context(cafile=authority.cert)
    wait_until(lambda: get(daemon, "/readyz")[0] == 200, what="a daemon that is ready")
    for path in ("/healthz", "/readyz", "/metrics"):
        with urllib.request.urlopen(f"https://127.0.0.1:{daemon.admin_port}{path}", timeout=30, context=context) as answer:
            assert answer.status == 200 and answer.read()
    since = len(daemon.log())
    with socket.create_connection(("127.0.0.1", daemon.admin_port), timeout=30) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert plain.recv(100)[:2] == b"\x15\x03"  # a TLS alert
    expect_logged(daemon, "admin: connection refused: the client speaks without TLS", since)


# --- the daemon's files ---


def test_files_are_checked_with_the_settings(server, worker, authority):
    database = ["--database", "host=/nowhere"]
    assert run(*database, *flags(server, authority), "--listen", "0.0.0.0:7420", "--check-config").returncode == 0
    wrong = run(*database, "--tls-cert", server.cert, "--tls-key", worker.key, "--check-config")
    assert wrong.returncode == 2
    assert wrong.stderr == f"{worker.key}: this key does not belong to the certificate in {server.cert}\n"
    assert "set tls_key too" in run(*database, "--tls-cert", server.cert, "--check-config").stderr
    assert "set tls_cert too" in run(*database, "--tls-key", server.key, "--check-config").stderr
    assert "set tls_cert and tls_key too" in run(*database, "--tls-client-ca", authority.cert, "--check-config").stderr
    assert run(*database, *flags(server), "--admin", "0.0.0.0:7421", "--check-config").returncode == 0
    open_to_all = run(*database, "--listen", "0.0.0.0:7420", "--check-config")
    assert open_to_all.returncode == 2 and "set tls_cert and tls_key, or say insecure = yes" in open_to_all.stderr
    started = run(*database, "--tls-cert", authority.dir / "missing.pem", "--tls-key", server.key, "--listen", "127.0.0.1:0",
                  "--admin", "none")
    assert started.returncode == 1 and "missing.pem: cannot be opened: No such file or directory" in started.stderr


class Load:
    """Leases that are taken and given back by several clients, over old connections and new ones; every failure counts."""

    def __init__(self, daemon, tls, workers=4):
        self.failures, self.done, self.stopped = [], [0] * workers, threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(daemon, tls, i)) for i in range(workers)]
        for thread in self.threads:
            thread.start()

    def run(self, daemon, tls, i):
        client = Client(daemon.target, tls)
        while not self.stopped.is_set():
            try:
                lease = client.lease.Acquire(acquire_request("load", keys()), timeout=30).lease
                client.lease.Release(release_request(lease), timeout=30)
            except grpc.RpcError as error:
                self.failures.append(f"{error.code()}: {error.details()}")
            self.done[i] += 1
            if i % 2 and self.done[i] % 10 == 0:
                client.close()
                client = Client(daemon.target, tls)
        client.close()

    def wait(self, more=20):
        goals = [done + more for done in self.done]
        wait_until(lambda: all(done >= goal for done, goal in zip(self.done, goals)), 60, "calls going on")

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join(60)
        assert not self.failures


@pytest.fixture
def replaceable(authority):
    """A certificate of a daemon's whose files a test may replace."""
    own = authority.issue("own-" + keys(), SERVER_NAMES)

    def replace(fresh, cert=True, key=True):
        for wanted, old, new in ((cert, own.cert, fresh.cert), (key, own.key, fresh.key)):
            if wanted:
                shutil.copy(new, old + ".new")
                os.rename(old + ".new", old)

    own.replace = replace
    return own


def shown(daemon):
    """The certificate that a new connection gets."""
    return ssl.get_server_certificate(("127.0.0.1", daemon.port)).strip()


def test_certificates_are_replaced_under_load_and_no_call_fails(cluster, database, start, authority, replaceable):
    daemon = start(*flags(replaceable), database=cluster.url(database))
    load = Load(daemon, credentials(authority))
    for i in range(3):
        load.wait()
        fresh = authority.issue(f"fresh-{i}", SERVER_NAMES)
        replaceable.replace(fresh)
        daemon.signal(signal.SIGHUP)
        wanted = pathlib.Path(fresh.cert).read_text().strip()
        wait_until(lambda: shown(daemon) == wanted, what="the new certificate")
    load.wait()
    load.stop()


def test_changed_files_are_seen_without_a_signal(cluster, database, start, authority, replaceable):
    daemon = start(*flags(replaceable), database=cluster.url(database))
    fresh = authority.issue("seen", SERVER_NAMES)
    replaceable.replace(fresh)
    wanted = pathlib.Path(fresh.cert).read_text().strip()
    wait_until(lambda: shown(daemon) == wanted, what="the new certificate")


def test_files_that_do_not_fit_leave_the_old_certificate_in_force(cluster, database, start, authority, connect, replaceable):
    daemon = start(*flags(replaceable), database=cluster.url(database))
    before, fresh = shown(daemon), authority.issue("half", SERVER_NAMES)
    replaceable.replace(fresh, key=False)
    daemon.signal(signal.SIGHUP)
    expect_logged(daemon, f"TLS: {replaceable.key}: this key does not belong to the certificate in {replaceable.cert}; "
                          "what was read before stays in force")
    assert shown(daemon) == before
    assert connect(daemon, authority).lease.Acquire(acquire_request("tls", keys())).lease.token > 0
    replaceable.replace(fresh, cert=False)
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: shown(daemon) != before, what="the new certificate")


# --- how long a connection lasts ---


def test_an_aged_connection_is_sent_away_and_no_call_fails(cluster, database, start, connect, server, authority):
    daemon = start(*flags(server), "--max-connection-age", "1s", database=cluster.url(database))
    client, key = connect(daemon, authority), keys()
    held = client.lease.Acquire(acquire_request("tls", key)).lease
    waiting = client.lease.Acquire.future(acquire_request("tls", key, wait=60), timeout=60)
    load = Load(daemon, credentials(authority), workers=2)
    wait_until(lambda: closed(daemon, "aged") >= 6, what="connections sent away")
    load.stop()
    assert not waiting.done()
    client.lease.Release(release_request(held))
    assert waiting.result(30).lease.token > held.token


def test_a_connection_ends_with_its_certificate(cluster, database, start, connect, server, authority):
    daemon = start(*flags(server, authority), database=cluster.url(database))
    client = connect(daemon, authority, authority.issue("short", "DNS:short", ends=5))
    watch = Reading(client.lease.WatchLeases(pb.WatchLeasesRequest(namespace=["tls"], include_initial=True)))
    watch.read()
    watch.next()
    wait_until(lambda: watch.error is not None, what="the end of the stream")
    assert watch.error.code() == grpc.StatusCode.UNAVAILABLE, watch.error.details()
    assert closed(daemon, "certificate") == 1, (watch.error.details(), daemon.log())
    assert refused_call(client).code == grpc.StatusCode.UNAVAILABLE
    expect_logged(daemon, "the client's certificate dns:short has expired")


# --- many at once ---


def test_hundreds_of_handshakes_at_once_are_all_finished_and_leases_are_renewed(cluster, database, start, connect, server,
                                                                               authority):
    daemon = start(*flags(server), "--handshake-timeout", "60s", database=cluster.url(database))
    client = connect(daemon, authority)
    lease = client.lease.Acquire(acquire_request("tls", keys(), 10)).lease
    context = ssl.create_default_context(cafile=authority.cert)
    context.set_alpn_protocols(["h2"])
    begun = []

    def renew_after_some(steps):
        """All is done by this one process: on a busy machine a whole round takes longer than the lease."""
        for number, step in enumerate(steps):
            if number % 25 == 0:
                assert heartbeat(client, lease).outcome == pb.OUTCOME_OK
            yield step

    for i in renew_after_some(range(500)):
        # 50 of an address: one may have 64 that are not finished
        plain = socket.create_connection(("127.0.0.1", daemon.port), source_address=(f"127.0.0.{2 + i // 50}", 0))
        begun.append(context.wrap_socket(plain, server_hostname="localhost", do_handshake_on_connect=False))
        begun[-1].setblocking(False)
    left = list(begun)
    deadline = time.monotonic() + 60
    while left and time.monotonic() < deadline:
        for each in renew_after_some(list(left)):
            try:
                each.do_handshake()
                left.remove(each)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
    assert not left
    for each in begun:
        each.close()


def test_a_silent_client_is_closed_and_does_not_keep_the_daemon_from_its_end(cluster, database, start, server, authority):
    daemon = start(*flags(server), "--handshake-timeout", "1s", database=cluster.url(database))
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=30) as silent:
        assert silent.recv(1) == b""
    assert closed(daemon, "no_preface") == 1
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=30):
        assert daemon.stop() == 0
