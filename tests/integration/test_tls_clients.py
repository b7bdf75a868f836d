"""TLS from the library and the command line: flags, environment, and words that name the certificate that is wrong."""
import json
import pathlib
import shutil

import pytest

import harness
from certificates import SERVER_NAMES, credentials, flags
from commandline import cli
from harness import Client, pb, scope, wait_until
from streams import keys
from library import Driver


@pytest.fixture(scope="module")
def daemon(cluster, server, authority):
    daemon = harness.Daemon(*flags(server, authority), database=cluster.url(cluster.create_database(migrated=True)))
    yield daemon
    daemon.destroy()


def options(authority, certificate):
    return ["--ca", authority.cert, "--cert", certificate.cert, "--key", certificate.key]


def variables(authority, certificate):
    return {"LEASEHOLD_CA": authority.cert, "LEASEHOLD_CERT": certificate.cert, "LEASEHOLD_KEY": certificate.key}


# --- the command line ---


def test_commands_work_over_mutual_tls(daemon, authority, worker):
    target, tls, key = ["--server", daemon.target], options(authority, worker), keys()
    lease = json.loads(cli("acquire", "tls", key, "-o", "json", *target, *tls).stdout)
    assert cli("heartbeat", "tls", key, lease["lease_key"], *target, *tls).returncode == 0
    by_environment = {"LEASEHOLD_SERVER": daemon.target, **variables(authority, worker)}
    assert cli("release", "tls", key, lease["lease_key"], **by_environment).returncode == 0
    assert cli("run", "tls", key, *target, *tls, "--", "true").returncode == 0
    assert cli("run", "tls", key, "--", "true", **by_environment).returncode == 0
    inside = cli("run", "tls", key, "--", harness.CLI, "run", "tls", key + "2", "--", harness.CLI, "show", "tls", key, **by_environment)
    assert inside.returncode == 0 and key in inside.stdout, inside.stderr  # their LEASEHOLD_KEY is the key of a lease
    named = cli("status", "--server", f"localhost:{daemon.port}", "--server-name", "127.0.0.1", *tls)
    assert named.returncode == 0, named.stderr


@pytest.mark.parametrize("command", [["acquire", "tls", "wrong"], ["run", "tls", "wrong", "--", "true"]])
def test_a_wrong_certificate_is_an_error_that_names_it_and_ends_at_once(daemon, authority, other_authority, worker, command):
    def error(*tls):
        done = cli(command[0], "--server", daemon.target, *tls, *command[1:])
        assert done.returncode == 1, done.stderr
        return done.stderr

    prefix = f"leasehold: cannot connect to {daemon.target}: "
    assert error("--ca", authority.cert) == prefix + "the server wants a certificate, and none was shown\n"
    assert error(*options(other_authority, worker)) == \
        prefix + f"the server's certificate dns:localhost is not signed by an authority of {other_authority.cert}\n"
    assert error(*options(authority, authority.issue("late", "DNS:late", -7200, -3600))) == \
        prefix + "the server refuses our certificate: it has expired, or is not yet valid\n"
    assert error(*options(authority, other_authority.issue("stranger", "DNS:stranger"))) == \
        prefix + "the server does not know the authority that signed our certificate\n"
    assert error(*options(authority, worker), "--server-name", "leases.example") == \
        prefix + "the server's certificate is for localhost, 127.0.0.1, not for leases.example\n"
    assert error("--ca", "/nowhere/ca.pem") == prefix + "/nowhere/ca.pem: cannot be opened: No such file or directory\n"
    assert "not signed by an authority of the system" in error("--tls")


def test_a_side_without_tls_is_named(daemon, service, authority):
    plain = cli("status", "--server", daemon.target)
    assert plain.returncode == 5 and f"cannot connect to {daemon.target}: it expects TLS" in plain.stderr
    secure = cli("status", "--server", service.daemon.target, "--ca", authority.cert)
    assert secure.returncode == 5
    assert f"cannot connect to {service.daemon.target}: the server speaks without TLS" in secure.stderr


def test_options_that_do_not_fit_are_refused(authority, worker):
    done = cli("status", "--cert", worker.cert)
    assert done.returncode == 2 and "--cert and --key belong together: --key is missing" in done.stderr
    assert "LEASEHOLD_TLS is maybe; it takes yes or no" in cli("status", LEASEHOLD_TLS="maybe").stderr


def test_the_environment_can_turn_tls_off(service, authority):
    env = {"LEASEHOLD_SERVER": service.daemon.target, "LEASEHOLD_CA": authority.cert}
    assert cli("status", **env).returncode == 5
    assert cli("status", LEASEHOLD_TLS="no", **env).returncode == 0


# --- the library ---


@pytest.fixture
def drive(monkeypatch):
    drivers = []

    def start(daemon, authority, certificate, mode="thread"):
        for name, value in variables(authority, certificate).items():
            monkeypatch.setenv(name, value)
        drivers.append(Driver(mode, daemon.target, flush_ms=300))
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.close()


@pytest.mark.parametrize("mode", ["thread", "base", "blocking"])
def test_the_library_takes_renews_and_gives_back_over_tls(daemon, drive, authority, worker, mode):
    driver, namespace = drive(daemon, authority, worker, mode), "tls-" + keys()
    driver.declare(namespace=namespace, duration_ms=1000)
    assert driver.ask("acquire a d k").startswith("acquire a OK token=")
    client = Client(daemon.target, credentials(authority, worker))
    wait_until(lambda: client.lease.GetLease(pb.GetLeaseRequest(scope=scope(namespace, "k"))).lease.heartbeats >= 3)
    client.close()
    assert driver.ask("release a") == "release a OK"


def test_a_wrong_certificate_is_not_retried(daemon, drive, authority, other_authority):
    driver = drive(daemon, authority, other_authority.issue("library", "DNS:library"))
    driver.declare()
    assert "UNAUTHENTICATED" in driver.ask("acquire a d k wait_ms=60000")
    assert driver.stats()["retries"] == 0


def test_a_lease_that_is_kept_outlives_a_wrong_certificate_of_the_server(cluster, database, start, drive, authority,
                                                                         other_authority, worker):
    own = authority.issue("own-" + keys(), SERVER_NAMES)
    good, wrong = pathlib.Path(own.cert).read_bytes(), other_authority.issue("wrong-server", SERVER_NAMES)
    good_key = pathlib.Path(own.key).read_bytes()
    daemon = start(*flags(own, authority), database=cluster.url(database))
    driver = drive(daemon, authority, worker)
    driver.declare(duration_ms=20000)
    assert driver.ask("acquire a d k").startswith("acquire a OK")
    shutil.copy(wrong.cert, own.cert)
    shutil.copy(wrong.key, own.key)
    daemon.stop()
    daemon.start()
    wait_until(lambda: any("renewal failed" in line and "UNAUTHENTICATED" in line for line in driver.log), 30, "a refused renewal")
    assert "held=1" in driver.ask("show a")
    pathlib.Path(own.cert).write_bytes(good)
    pathlib.Path(own.key).write_bytes(good_key)
    daemon.stop()
    daemon.start()
    assert driver.ask("heartbeat a") == "heartbeat a OK"
    assert driver.ask("release a") == "release a OK"
