"""The stock Java client, grpc-java, over TLS and with a token."""
import os
import re
import subprocess

import pytest

from test_node import authority, certificates, cluster, harness, start, wait_until  # noqa: F401
import stock_java


@pytest.fixture(scope="module")
def client():
    return stock_java.compiled()


def run_once(client, daemon, *files, token=""):
    done = subprocess.run([*client, "once", daemon.target, *map(str, files)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=120, env={**os.environ, "LEASEHOLD_TEST_TOKEN": token}, check=False)
    print(done.stdout)
    return done.returncode, done.stdout


def test_the_stock_java_client_over_mutual_tls(client, start, authority):  # noqa: F811
    own, worker = authority.issue("server", certificates.SERVER_NAMES), authority.issue("java", "DNS:java.example")
    daemon = start(*certificates.flags(own, authority))
    assert run_once(client, daemon, authority.cert, worker.key, worker.cert) == (0, "ok pair\n")


@pytest.mark.parametrize("kind, words, logged", [
    ("no certificate", "", "the client shows no certificate"),
    ("expired", "", "the client's certificate dns:late has expired"),
    ("plaintext", "", "the client speaks without TLS"),
    ("another authority's server", "unable to find valid certification path|General OpenSslEngine|certificate", ""),
    ("another name", "No subject alternative|No name matching|doesn't match", ""),
])
def test_a_stock_java_client_and_a_daemon_that_do_not_fit(client, start, authority, kind, words, logged):  # noqa: F811
    own = authority.issue("server", certificates.SERVER_NAMES)
    if kind == "another authority's server":
        own = certificates.Authority(authority.dir, "other-ca").issue("foreign-server", certificates.SERVER_NAMES)
    if kind == "another name":
        own = authority.issue("elsewhere", "DNS:elsewhere.example")
    worker = authority.issue("late", "DNS:late", -7200, -3600) if kind == "expired" else authority.issue("java", "DNS:java.example")
    files = {"no certificate": [authority.cert], "plaintext": []}.get(kind, [authority.cert, worker.key, worker.cert])
    daemon = start(*certificates.flags(own, authority))
    status, output = run_once(client, daemon, *files)
    # INTERNAL: grpc-java reads the server's TLS alert as a frame.
    assert status == 1 and output.startswith("failed INTERNAL" if kind == "plaintext" else "failed UNAVAILABLE"), output
    assert re.search(words, output), output
    wait_until(lambda: logged in daemon.log(), what=f"'{logged}' in the log")


def test_the_stock_java_client_shows_a_token(client, start):  # noqa: F811
    daemon = start("--authorization", "yes")
    token = daemon.psql("select leasehold.access_grant('token:java', 'restart', 'lease', 'read'); select token from leasehold.token_create('java')").split()[-1]
    status, output = run_once(client, daemon)
    assert status == 1 and output.startswith("failed PERMISSION_DENIED"), output
    wait_until(lambda: run_once(client, daemon, token=token)[0] == 0, 60, "the token and its rule")
    daemon.psql("select leasehold.token_revoke('java')")
    wait_until(lambda: "failed UNAUTHENTICATED: the token is unknown, expired or revoked" in run_once(client, daemon, token=token)[1], 60,
               "the end of the token")
