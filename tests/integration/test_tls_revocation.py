"""Revocation lists: who is refused, on which port, which streams end, and what a list that is wrong or late does. Each list is made by `openssl ca`."""
import http.client
import os
import signal
import ssl

import grpc
import pytest

import commandline
import harness
from certificates import SERVER_NAMES, credentials, flags
from harness import Client, acquire_request, fails, pb, wait_until
from streams import Reading, keys
from test_daemon import run
from test_tls import closed, expect_logged

LOOKS = "revocation lists in force"


def with_list(server, authority, path):
    return [*flags(server, authority), "--tls-crl", path]


@pytest.fixture
def site(cluster, database, start, server, authority):
    """start(crl=PATH) gives a daemon; connect(daemon, certificate) a client of it."""
    clients = []

    class Site:
        worker = authority.issue("holder", "DNS:holder")
        gone = authority.issue("gone", "DNS:gone")

        @staticmethod
        def start(crl):
            return start(*with_list(server, authority, crl), database=cluster.url(database))

        @staticmethod
        def connect(daemon, certificate):
            clients.append(Client(daemon.target, credentials(authority, certificate)))
            return clients[-1]

    yield Site
    for client in clients:
        client.close()


def reload(daemon):
    seen = daemon.log().count(LOOKS)
    os.kill(daemon.process.pid, signal.SIGHUP)
    wait_until(lambda: daemon.log().count(LOOKS) > seen, 60, "the lists to be read again")


def acquires(client):
    return client.lease.Acquire(acquire_request("crl", keys()), timeout=20).lease


def is_refused(client):
    with fails() as failure:
        acquires(client)
    return failure.value.code == grpc.StatusCode.UNAVAILABLE


def asks_admin(daemon, authority, certificate, path="/api/v1/session"):
    """A connection of the console with its first answer; ssl.SSLError or ConnectionError where it is refused."""
    context = ssl.create_default_context(cafile=authority.cert)
    context.load_cert_chain(certificate.cert, certificate.key)
    connection = http.client.HTTPSConnection("127.0.0.1", daemon.admin_port, timeout=30, context=context)
    connection.request("GET", path)
    return connection, connection.getresponse()


def test_a_revoked_client_is_refused_on_both_ports_and_others_are_not(site, authority):
    daemon = site.start(authority.revoke(site.gone))
    assert acquires(site.connect(daemon, site.worker)).token > 0
    assert is_refused(site.connect(daemon, site.gone))
    expect_logged(daemon, "the client's certificate dns:gone is revoked")
    connection, answer = asks_admin(daemon, authority, site.worker)
    assert answer.status == 200
    connection.close()
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
        asks_admin(daemon, authority, site.gone)


def test_streams_of_a_client_end_when_it_is_revoked_and_those_of_others_go_on(site, authority):
    daemon = site.start(authority.list())
    watches = {}
    for certificate in (site.worker, site.gone):
        client = site.connect(daemon, certificate)
        acquires(client)
        watches[certificate] = Reading(client.lease.WatchLeases(pb.WatchLeasesRequest(namespace=["crl"], include_initial=True)))
        watches[certificate].read()
        watches[certificate].next()
    connection, events = asks_admin(daemon, authority, site.gone, "/api/v1/events")
    assert events.status == 200 and events.read(1)
    other_connection, other_events = asks_admin(daemon, authority, site.worker, "/api/v1/events")
    assert other_events.read(1)

    authority.revoke(site.gone)
    reload(daemon)
    wait_until(lambda: watches[site.gone].error is not None, 30, "the end of the stream")
    assert closed(daemon, "certificate") == 1
    assert is_refused(site.connect(daemon, site.gone))
    while events.read(1000):
        pass
    assert watches[site.worker].error is None
    other = site.connect(daemon, site.worker)
    assert acquires(other).token > 0
    connection.close()
    other_connection.close()


def test_a_list_that_is_wrong_leaves_the_one_before_in_force(site, authority, other_authority):
    path = authority.revoke(site.gone)
    daemon = site.start(path)
    for wrong, words in ((other_authority.list(), "there is no revocation list of the authority "), (authority.cert, "there is no revocation list in it")):
        text = harness.pathlib.Path(wrong).read_text()
        kept = harness.pathlib.Path(path).read_text()
        since = len(daemon.log())
        harness.pathlib.Path(path).write_text(text)
        os.kill(daemon.process.pid, signal.SIGHUP)
        expect_logged(daemon, words, since)
        expect_logged(daemon, "what was read before stays in force", since)
        assert is_refused(site.connect(daemon, site.gone))
        assert acquires(site.connect(daemon, site.worker)).token > 0
        harness.pathlib.Path(path).write_text(kept)


def test_a_list_that_is_overdue_refuses_what_it_names_and_nobody_else(site, authority):
    daemon = site.start(authority.revoke(site.gone, begins=-7200, ends=-3600))
    expect_logged(daemon, "a revocation list is overdue: it stays in force")
    assert is_refused(site.connect(daemon, site.gone))
    assert acquires(site.connect(daemon, site.worker)).token > 0


@pytest.mark.parametrize("options, words", [
    (lambda server, authority, other: [*flags(server), "--tls-crl", authority.list()], "set tls_client_ca too"),
    (lambda server, authority, other: with_list(server, authority, other.list()), "there is no revocation list of the authority "),
    (lambda server, authority, other: with_list(server, authority, authority.cert), "there is no revocation list in it; PEM is expected"),
    (lambda server, authority, other: with_list(server, authority, "/nowhere.crl"), "/nowhere.crl: cannot be opened: No such file or directory"),
])
def test_what_does_not_fit_is_refused_when_the_configuration_is_checked(server, authority, other_authority, options, words):
    done = run("--check-config", "--embedded", "/nowhere", *options(server, authority, other_authority))
    assert done.returncode == 2 and words in done.stdout + done.stderr, done.stdout + done.stderr


def test_the_command_line_refuses_a_daemon_whose_certificate_is_revoked(cluster, database, start, authority):
    """It has an authority of its own here: the daemon's certificate is revoked while the daemon runs."""
    revoked = authority.issue("revoked-server", SERVER_NAMES)
    daemon = start(*flags(revoked), database=cluster.url(database))
    ask = lambda *options: commandline.cli("status", "--server", daemon.target, *options)  # noqa: E731
    files = ("--ca", authority.cert, "--crl", authority.list())
    assert ask(*files).returncode == 0
    authority.revoke(revoked)
    done = ask(*files)
    assert done.returncode == 1 and "the server's certificate dns:localhost is revoked" in done.stderr, done.stderr
    assert ask("--ca", authority.cert).returncode == 0
    done = ask("--crl", authority.list())
    assert done.returncode == 1 and "a revocation list needs the file of its authorities" in done.stderr, done.stderr
