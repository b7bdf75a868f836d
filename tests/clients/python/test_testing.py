"""leasehold.testing: what it does to a lease, seen by the client and by the rows; the daemon ends with its process."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap

import harness
import leasehold
import pytest
from harness import wait_until

pytest_plugins = ["leasehold.testing"]
os.environ.setdefault("LEASEHOLDD", str(harness.DAEMON))
# Behind xdist, one daemon for all of them.
pytestmark = pytest.mark.xdist_group("testing")
PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs/use/testing.md"


@pytest.fixture
def world(leasehold_world):
    return leasehold_world


@pytest.fixture
def client(request, world):
    with leasehold.Client(**{"server": world.server} if getattr(request, "param", "grpc") == "grpc" else {"database": world.database}) as client:
        yield client


both = pytest.mark.parametrize("client", ["grpc", "sql"], indirect=True)


def row(world, columns, key="k"):
    return world.daemon.sql(f"select {columns} from leasehold.scope where namespace = :'namespace' and key = :'key';", namespace=world.namespace, key=key)


def lost(lease):
    wait_until(lambda: not lease.is_held(), 60, "the loss")
    with pytest.raises(leasehold.LeaseLost) as told:
        lease.check()
    return told.value.reason


def test_the_example_of_the_page_works(tmp_path):
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["leasehold.testing"]\n')
    (tmp_path / "test_page.py").write_text(re.search(r"```python\n(.*?)```", PAGE.read_text(), re.S)[1])
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", tmp_path], capture_output=True, text=True,
                          check=False, cwd=tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_worlds_do_not_see_each_other(world, client):
    other = world.daemon.world()
    with client.lease(world.namespace, "k"), client.lease(other.namespace, "k"), pytest.raises(leasehold.Held):
        client.lease(world.namespace, "k").acquire()
    other.close()


def test_a_lease_that_is_lost_is_told(world, client):
    lease = client.lease(world.namespace, "k", duration=6)
    lease.acquire()
    assert world.lose("k")
    assert lost(lease) == "forced"
    assert not world.lose("k")


def test_time_passes_for_this_world_alone(world, client):
    lease = client.lease(world.namespace, "k", duration=6)
    beside = client.lease(world.namespace + "-beside", "k")
    below = client.lease(world.namespace + ".below", "k", duration=6, shared=True)
    for each in (lease, beside, below):
        each.acquire()
    world.pass_time(3600)
    assert row(world, "state") == "free"
    assert lost(lease) == "expired"
    assert lost(below) == "expired"
    assert beside.release()


@both
def test_an_answer_that_is_lost_costs_nothing(world, client):
    world.drop()
    lease = client.lease(world.namespace, "k")
    lease.acquire()
    assert row(world, "token") == str(lease.token)
    world.drop()
    assert lease.release()
    assert row(world, "state, last_outcome") == "free|ok"
    assert world._faults.next == []


@both
def test_a_late_answer_leaves_less_of_the_lease(world, client):
    world.delay(2)
    with client.lease(world.namespace, "k", duration=20) as lease:
        assert lease.remaining() <= 20 - 1.9


@both
def test_silence_is_told_before_the_deadline(world, client):
    lease = client.lease(world.namespace, "k", duration=6)
    lease.acquire()
    world.silence()
    assert lost(lease) == "unreachable"
    world.silence(False)


def test_a_failover_keeps_leases(world, client):
    with client.lease(world.namespace, "k", duration=30) as lease:
        timeline = world.daemon.sql("select timeline from leasehold.incarnation;")
        world.daemon.fail_over()
        assert world.daemon.sql("select timeline from leasehold.incarnation;") != timeline
        beats = int(row(world, "heartbeats"))
        wait_until(lambda: int(row(world, "heartbeats")) > beats, 60, "a renewal")
        assert row(world, "state, token") == f"held|{lease.token}"
    with client.lease(world.namespace, "k", duration=30) as following:
        assert following.token - lease.token >= 1 << 24  # a jump: what was drawn and lost stays behind


def test_the_daemon_ends_when_its_process_is_killed():
    program = textwrap.dedent("""
        import leasehold.testing, sys, time
        print(leasehold.testing.Daemon().database, flush=True)
        time.sleep(600)""")
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    directory = re.match(r"host=(\S+)/state/run ", child.stdout.readline())[1]
    running = lambda: subprocess.run(["pgrep", "-f", directory], stdout=subprocess.DEVNULL, check=False).returncode == 0  # noqa: E731
    assert running() and pathlib.Path(directory).exists()
    child.send_signal(signal.SIGKILL)
    child.wait()
    wait_until(lambda: not running() and not pathlib.Path(directory).exists(), 60, "the end of the daemon")


def test_wrong_use_is_refused_by_its_name(world):
    with pytest.raises(ValueError, match=r"seconds must be a number above 0, at most 31536000 \(365 days\), not -1"):
        world.pass_time(-1)
    with pytest.raises(FileNotFoundError, match="name it by --leaseholdd or LEASEHOLDD"):
        leasehold.testing.Daemon("/nowhere/leaseholdd")
