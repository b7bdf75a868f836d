"""tests/lib/rundir.py: the next run removes what a killed one left, and nothing else."""
import os
import pathlib
import subprocess
import sys

import pytest

import harness
import rundir
from harness import wait_until

RUN = """
import sys
sys.path[:0] = %r
import harness, rundir
cluster = harness.Cluster()
print(rundir.find_place(), (cluster.data / "postmaster.pid").read_text().split()[0], flush=True)
sys.stdin.read()
""" % [str(harness.ROOT / "tests/integration"), str(harness.ROOT / "tests/lib")]
NEXT = "import sys; sys.path.insert(0, %r); import rundir; rundir.find_place()" % str(harness.ROOT / "tests/lib")


@pytest.fixture
def run():
    """A run of its own, with a PostgreSQL."""
    process = subprocess.Popen([sys.executable, "-B", "-c", RUN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=alone())
    place, server = process.stdout.readline().split()
    yield process, pathlib.Path(place), pathlib.Path("/proc") / server
    process.kill()
    process.wait(30)
    rundir.remove(place)


def alone():
    return {name: value for name, value in os.environ.items() if name != rundir.NAME}


def begin_another():
    subprocess.run([sys.executable, "-B", "-c", NEXT], check=True, timeout=60, env=alone())


def test_the_next_run_ends_and_removes_what_a_killed_one_left(run):
    process, place, server = run
    process.kill()
    process.wait(30)
    assert place.exists() and server.exists()
    begin_another()
    assert not place.exists()
    wait_until(lambda: not server.exists(), what="the end of PostgreSQL")


def test_a_run_removes_its_own_and_no_other(run):
    process, place, server = run
    begin_another()
    assert server.exists() and list(place.glob("lh-pg-*/data/PG_VERSION"))
    process.stdin.close()
    assert process.wait(60) == 0
    assert not place.exists()
    wait_until(lambda: not server.exists(), what="the end of PostgreSQL")


SELF = f"{os.getpid()} {rundir.start_of('self')}"
BOOT, NUMBERS = rundir.here()


@pytest.mark.parametrize("owner, is_kept", [
    (f"{SELF} {BOOT} {NUMBERS}", True),
    (f"{os.getpid()} 1 {BOOT} {NUMBERS}", False),
    (f"4194999 1 {BOOT} {NUMBERS}", False),
    (f"{SELF} another-start-of-the-machine {NUMBERS}", False),
    (f"4194999 1 {BOOT} pid:[another]", True),
    (f"{os.getpid()} 1", True),
    ("", True),
    (None, True),
], ids=["lives", "number taken again", "gone", "before the last start", "another container", "half written", "empty", "none"])
def test_what_is_not_certain_is_kept(monkeypatch, tmp_path, owner, is_kept):
    monkeypatch.setattr(rundir, "PREFIX", str(tmp_path / "lh-run-"))
    monkeypatch.setenv(rundir.NAME, "")
    place = tmp_path / "lh-run-other"
    place.mkdir()
    if owner is not None:
        (place / "owner").write_text(owner)
    rundir.make_place()
    assert place.exists() == is_kept
