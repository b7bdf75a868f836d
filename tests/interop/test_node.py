"""The stock Node client, @grpc/grpc-js. Its packages are installed by npm beside the build, never in the tree."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))
import certificates  # noqa: E402
import harness  # noqa: E402
from harness import wait_until  # noqa: E402
import rundir  # noqa: E402


@pytest.fixture(scope="module")
def node_modules():
    directory = harness.BUILD / "node-client"
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "client.js"):
        shutil.copy(HERE / "node" / name, directory / name)
    if not (directory / "node_modules/@grpc/proto-loader").exists():
        done = subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"],
            cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
        )
        assert done.returncode == 0, done.stdout
    return directory


@pytest.fixture(scope="module")
def cluster():
    cluster = harness.Cluster(migrated=True)
    yield cluster
    cluster.destroy()


@pytest.fixture(scope="module")
def authority():
    directory = pathlib.Path(rundir.mkdtemp("lh-tls-"))
    yield certificates.Authority(directory)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def start(cluster):
    """A daemon on a fresh database."""
    daemons = []

    def start(*args):
        database = cluster.create_database(migrated=True)
        daemons.append(harness.Daemon(*args, database=cluster.url(database)))
        daemons[-1].psql = lambda sql: cluster.psql(sql, database)
        return daemons[-1]

    yield start
    for daemon in daemons:
        assert daemon.stop() == 0, daemon.log()
        daemon.destroy()


def run_checks(node_modules, daemon, *files, token=""):
    done = subprocess.run(
        ["node", "client.js", daemon.target, str(harness.ROOT / "proto"), *files],
        cwd=node_modules, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
        env={**os.environ, "LEASEHOLD_TEST_TOKEN": token},
    )
    print(done.stdout)
    return done.returncode, re.findall(r"^ok (.*)", done.stdout, re.M), done.stdout


def test_the_stock_node_client_passes_its_checks(node_modules, start):
    status, passed, output = run_checks(node_modules, start())
    assert status == 0 and len(passed) >= 7, output


def test_the_stock_node_client_passes_its_checks_over_mutual_tls(node_modules, start, authority):
    own, worker = authority.issue("server", certificates.SERVER_NAMES), authority.issue("node", "DNS:node.example")
    status, passed, output = run_checks(node_modules, start(*certificates.flags(own, authority)), authority.cert, worker.key,
                                        worker.cert)
    assert status == 0 and len(passed) >= 7, output


@pytest.mark.parametrize("kind, words, logged", [
    ("no certificate", "", "the client shows no certificate"),
    ("expired", "", "the client's certificate dns:late has expired"),
    ("plaintext", "", "the client speaks without TLS"),
    ("another authority's server", "unable to verify|self.signed|unable to get", ""),
    ("another name", "altnames|does not match", ""),
])
def test_a_stock_node_client_and_a_daemon_that_do_not_fit(node_modules, start, authority, kind, words, logged):
    own = authority.issue("server", certificates.SERVER_NAMES)
    if kind == "another authority's server":
        own = certificates.Authority(authority.dir, "other-ca").issue("foreign-server", certificates.SERVER_NAMES)
    if kind == "another name":
        own = authority.issue("elsewhere", "DNS:elsewhere.example")
    worker = authority.issue("late", "DNS:late", -7200, -3600) if kind == "expired" else authority.issue("node", "DNS:node.example")
    files = {"no certificate": [authority.cert], "plaintext": []}.get(kind, [authority.cert, worker.key, worker.cert])
    daemon = start(*certificates.flags(own, authority))
    status, passed, output = run_checks(node_modules, daemon, *files)
    assert status == 1 and not passed, output
    assert re.search(words, output), output
    wait_until(lambda: logged in daemon.log(), what=f"'{logged}' in the log")


def test_the_stock_node_client_shows_a_token(node_modules, start):
    daemon = start("--authorization", "yes")
    token = daemon.psql("select leasehold.access_grant('token:node', 'node.test', 'lease', 'read'); select token from leasehold.token_create('node')").split()[-1]

    def refusal():
        with harness.fails() as failure:
            harness.Client(daemon.target).lease.Acquire(harness.acquire_request("node.test", "k"))
        return failure.value.reason

    wait_until(lambda: refusal() == "ACCESS_DENIED", what="the rules, which a daemon reads after its start")

    def passes():
        status, passed, _ = run_checks(node_modules, daemon, token=token)
        return status == 0 and len(passed) >= 7

    wait_until(passes, 60, "the token and its rule")
    daemon.psql("select leasehold.token_revoke('node')")
    wait_until(lambda: "UNAUTHENTICATED: the token is unknown, expired or revoked" in run_checks(node_modules, daemon, token=token)[2],
               60, "the end of the token")
