"""The stock Node client, @grpc/grpc-js. Its packages are installed by npm beside the build, never in the tree."""
import pathlib
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))
import harness  # noqa: E402


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


def test_the_stock_node_client_passes_its_checks(node_modules):
    cluster = harness.Cluster()
    daemon = harness.Daemon(database=cluster.url(cluster.create_database()))
    done = subprocess.run(
        ["node", "client.js", daemon.target, str(harness.ROOT / "proto")],
        cwd=node_modules, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("\nok ") + done.stdout.startswith("ok ") >= 7
    assert daemon.stop() == 0
