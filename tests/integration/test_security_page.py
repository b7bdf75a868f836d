"""The commands of docs/run/security.md, from the authority to the clients and the rotation."""
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import uuid

import grpc
import pytest

import harness
from harness import wait_until
import rundir

PAGE = (harness.ROOT / "docs/run/security.md").read_text()


def block_with(language, text):
    found = [block for block in re.findall(rf"```{language}\n(.*?)```", PAGE, re.S) if text in block]
    assert len(found) == 1, f"{len(found)} {language} blocks with {text!r}"
    return found[0]


@pytest.fixture
def place():
    directory = pathlib.Path(rundir.mkdtemp("lh-security-"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def run(script, place, **environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LEASEHOLD_")}
    env = {**clean, "PATH": f"{harness.CLI.parent}:{os.environ['PATH']}", **environment}
    done = subprocess.run(["bash", "-e", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, cwd=place,
                          timeout=120)
    assert done.returncode == 0, done.stdout
    return done.stdout


def give_to_daemon(place):
    """Started by root it becomes postgres."""
    place.chmod(0o755)
    if os.geteuid() == 0:
        shutil.chown(place / "daemon.key", "postgres")


def test_an_authority_a_daemon_two_clients_and_a_rotation(cluster, database, start, place):
    commands = block_with("sh", "openssl req").strip().splitlines()
    assert len(commands) == 5
    assert run("\n".join(commands), place).endswith("daemon.pem: OK\npayments.pem: OK\nreports.pem: OK\n")

    settings = block_with("ini", "tls_client_ca").replace("/etc/leasehold", str(place))
    (place / "leasehold.ini").write_text(settings)
    checked = subprocess.run([harness.DAEMON, "--config", place / "leasehold.ini", "--embedded", place / "data", "--check-config"],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert checked.returncode == 0, checked.stdout
    give_to_daemon(place)
    daemon = start("--config", place / "leasehold.ini", database=cluster.url(database))

    probe = block_with("sh", "curl").replace("7421", str(daemon.admin_port)).replace("curl", "curl -s")
    wait_until(lambda: run(probe, place).startswith("ready"), what="a daemon that is ready")

    client = block_with("sh", "leasehold status")
    out = run(client, place, LEASEHOLD_SERVER=daemon.target)
    assert "coordinator" in out and re.search(r"token +\d+", out)

    for name in ("daemon.pem", "daemon.key"):
        (place / name).unlink()
    run(commands[1], place)
    give_to_daemon(place)
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: daemon.log().count("TLS certificate in force") >= 2, what="the new certificate")
    assert "coordinator" in run(client.splitlines()[0], place, LEASEHOLD_SERVER=daemon.target)
    assert run(probe, place).startswith("ready")


def test_the_users_of_a_host_and_their_first_administrator(cluster, database, start, place):
    me = pwd.getpwuid(os.geteuid()).pw_name
    settings = block_with("ini", "unix:/run/leasehold").replace("/run/leasehold", str(place)).replace("user:root", f"user:{me}")
    (place / "leasehold.ini").write_text(settings)
    place.chmod(0o755)
    if os.geteuid() == 0:
        shutil.chown(place, "postgres")
    daemon = start("--listen", f"unix:{place}/leasehold.sock", "--config", place / "leasehold.ini", database=cluster.url(database), wait=False)
    wait_until(lambda: "serving grpc=unix:" in daemon.log(), what="serving")
    said = run(block_with("sh", "user:www-data").replace("/run/leasehold", str(place)), place)
    assert "user:www-data in web and below: read,lease\n" in said and "user:* in (root) and below: read\n" in said
    if os.geteuid() != 0:
        return
    shutil.copy(harness.CLI, place / "leasehold")  # where every user may run it
    leasehold = [place / "leasehold", "--server", f"unix:{place}/leasehold.sock"]
    other = lambda *args: subprocess.run([*leasehold, *args], capture_output=True, text=True, cwd=place,
                                         user="www-data", group="www-data", extra_groups=[])
    wait_until(lambda: other("acquire", "web", "deploy").returncode == 0, what="the right of another user")
    refused = other("acquire", "db", "deploy")
    assert refused.returncode == 1 and "user:www-data" in refused.stderr, refused.stderr
    assert other("list").returncode == 0
    assert other("access", "grant", "user:www-data", "db", "lease").returncode == 1


def test_rights_of_two_teams_a_token_and_the_audit(cluster, database, start, place):
    run(block_with("sh", "openssl req"), place)
    give_to_daemon(place)
    daemon = start("--tls-cert", place / "daemon.pem", "--tls-key", place / "daemon.key", "--tls-client-ca", place / "ca.pem", "--tls-client-auth",
                   "request", "--authorization", "yes", database=cluster.url(database))
    rules = run(block_with("sh", "access grant spiffe://example.org/payments"), place, LEASEHOLD_DATABASE=cluster.url(database))
    assert "spiffe://example.org/* in shared and below: read\n" in rules
    run(block_with("sh", "token create ci"), place, LEASEHOLD_DATABASE=cluster.url(database))
    assert re.fullmatch(r"lht_[A-Za-z0-9_-]{49}\n", (place / "ci.token").read_text()) and (place / "ci.token").stat().st_mode & 0o077 == 0

    def acquires(team, namespace):
        tls = ["--ca", place / "ca.pem", "--cert", place / f"{team}.pem", "--key", place / f"{team}.key"]
        return subprocess.run([harness.CLI, "acquire", namespace, uuid.uuid4().hex, "--server", daemon.target, *tls], capture_output=True, text=True)

    token = (place / "ci.token").read_text().strip()
    asked = harness.Client(daemon.target, grpc.ssl_channel_credentials((place / "ca.pem").read_bytes()))

    def is_known():  # what was changed last, and so everything
        try:
            asked.admin.GetStatus(harness.pb.GetStatusRequest(), metadata=(("authorization", f"Bearer {token}"),), timeout=60)
            return True
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNAUTHENTICATED, error
            return False

    wait_until(is_known, what="the token")
    asked.close()
    assert acquires("payments", "payments.invoices").returncode == acquires("reports", "reports").returncode == 0
    for team, namespace in (("payments", "reports"), ("reports", "payments"), ("payments", "payments-eu"), ("payments", "shared")):
        refused = acquires(team, namespace)
        assert refused.returncode == 1 and f"does not have the right lease in namespace {namespace}" in refused.stderr, refused.stderr
    assert re.search(r"token +\d+", run(block_with("sh", "acquire builds"), place, LEASEHOLD_SERVER=daemon.target))

    def audit():
        return cluster.psql(block_with("sql", "leasehold.audit"), database)

    wait_until(lambda: "|spiffe://example.org/payments|127.0.0.1" in audit() and "|dns:reports.example.org|127.0.0.1" in audit(), what="the denials")
    rows = audit()
    assert "|denied|" in rows and rows.count("|access_grant|") == 4 and rows.count("|token_create|") == 1


def test_the_errors_of_the_page_are_those_of_the_programs():
    source = "".join(path.read_text() for path in (harness.ROOT / "src").rglob("*.c"))
    source = re.sub(r'"\s*\n\s*"', "", source)
    words = re.findall(r"`(the (?:client|server)[^`]*|it expects TLS)`", PAGE)
    assert len(words) >= 12
    for sentence in words:
        parts = [part.strip(" :.") for part in re.split(r"NAMES?|FILE|DATE|\.\.\.", sentence)]
        for part in parts:
            plain = re.sub(r"^the (client|server)('s)? ?", "", part)
            assert plain in source, (sentence, plain)


def test_a_client_is_revoked_by_the_page(cluster, database, start, place):
    run(block_with("sh", "openssl req"), place)
    run("\n".join(block_with("sh", "-gencrl").splitlines()[:2]) + "\n" + block_with("sh", "-gencrl").splitlines()[3], place)
    give_to_daemon(place)
    daemon = start("--tls-cert", place / "daemon.pem", "--tls-key", place / "daemon.key", "--tls-client-ca", place / "ca.pem", "--tls-crl", place / "ca.crl",
                   database=cluster.url(database))
    ask = f"leasehold status --server {daemon.target} --ca ca.pem --cert reports.pem --key reports.key"
    assert "serving" in run(ask, place)
    run("\n".join(block_with("sh", "-gencrl").splitlines()[2:]), place)
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: "revoked=1" in daemon.log(), what="the list")
    assert "the server refuses our certificate: it is revoked" in run(ask + " 2>&1 || true", place)


def test_each_kind_of_fault_has_the_tests_that_are_named():
    table = (harness.ROOT / "SECURITY.md").read_text()
    named = re.findall(r"`([\w./]+\.py)::(\w+)`", table)
    assert len(named) > 10
    for file, test in named:
        assert f"def {test}(" in (harness.ROOT / "tests/integration" / file).read_text(), f"{file} has no {test}"
