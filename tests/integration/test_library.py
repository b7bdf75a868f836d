"""libleasehold against real daemons: library_driver does what it is told, by both ways in."""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid

import pytest

import harness
from library import Driver
from harness import acquire_request, freeze, pb, release_request, scope, wait_until

sys.path.insert(0, str(harness.ROOT / "tests/lib"))
from flaky_proxy import FlakyProxy  # noqa: E402


@pytest.fixture
def namespace():
    return "n" + uuid.uuid4().hex


both = pytest.mark.parametrize("mode", ["thread", "base"])
every = pytest.mark.parametrize("mode", ["thread", "base", "blocking"])


@every
def test_a_lease_is_taken_renewed_and_given_back(drive, service, namespace, mode):
    driver = drive(mode)
    driver.declare(namespace=namespace, duration_ms=1500)
    assert driver.ask("acquire a d k").startswith("acquire a OK token=")
    assert driver.ask("acquire b d k").startswith(f"acquire b LEASE_HELD token=0 lease {namespace}/k is held by ")
    assert "WAIT_TIMEOUT" in driver.ask("acquire b d k wait_ms=100")
    wait_until(lambda: service.client.lease.GetLease(pb.GetLeaseRequest(scope=scope(namespace, "k"))).lease.heartbeats >= 3)
    assert "held=1" in driver.ask("show a")
    assert driver.ask("heartbeat a") == "heartbeat a OK"
    assert driver.ask('release a result={"n":1}') == "release a OK"
    assert driver.ask("release a").startswith("release a LOST ")
    assert driver.ask("heartbeat a").startswith("heartbeat a LOST")
    last = service.client.lease.GetLease(pb.GetLeaseRequest(scope=scope(namespace, "k"))).last
    assert last.result == '{"n": 1}' and last.end_reason == pb.END_REASON_RELEASED
    assert driver.ask("acquire b d k").startswith("acquire b OK")
    assert driver.stats()["lost"] == 0


@both
def test_a_lease_that_was_forced_away_is_told_once_with_all_that_depends_on_it(drive, service, namespace, mode):
    driver = drive(mode)
    driver.declare(namespace=namespace, duration_ms=1000)
    driver.ask("acquire a d a")
    driver.ask("acquire b d b under=a")
    driver.ask("acquire c d c under=b")
    for name in "abc":
        driver.say(f"watch {name}")
    service.client.admin.ForceRelease(pb.ForceReleaseRequest(scope=scope(namespace, "a"), reason="test"))
    line = driver.hear("lost a")
    assert line.startswith("lost a forced held=0 cancelled=1")
    for name in "abc":
        driver.hear(f"cancelled {name}")
    assert "held=1" in driver.ask("show b") and "cancelled=1" in driver.ask("show c")
    assert "LOST" in driver.ask("release a")
    assert driver.ask("release c") == "release c OK"
    assert driver.stats()["lost"] == 1
    assert not [line for line in driver.unread if line.startswith("lost")]


def test_a_release_takes_the_time_away_and_cancels_nothing(drive, namespace):
    driver = drive()
    driver.declare(namespace=namespace, duration_ms=1000)
    driver.ask("acquire a d a")
    driver.say("watch a")
    assert 0 < int(re.search(r"context_ms=(\d+)", driver.ask("show a")).group(1)) <= 900
    driver.ask("release a")
    assert "cancelled=0" in driver.ask("show a")
    assert int(re.search(r"context_ms=(\d+)", driver.ask("show a")).group(1)) > 10**9


def test_a_release_by_another_with_the_lease_key_is_a_loss(drive, service, namespace):
    driver = drive()
    driver.declare(namespace=namespace, duration_ms=1000)
    driver.ask("acquire a d a")
    key = re.search(r"key=(\S+)", driver.ask("show a")).group(1)
    ref = pb.LeaseRef(scope=scope(namespace, "a"), lease_key=key)
    service.client.lease.Release(pb.ReleaseRequest(items=[pb.ReleaseItem(lease=ref)]))
    assert driver.hear("lost a").startswith("lost a released")


@both
def test_without_any_server_a_lease_is_lost_before_its_deadline(drive, cluster, database, mode):
    daemon = harness.Daemon(database=cluster.url(database))
    driver = drive(mode, daemon.target)
    driver.declare(duration_ms=1500, margin_ms=400)
    driver.ask("acquire a d a")
    daemon.kill()
    line = driver.hear("lost a")
    assert line.startswith("lost a unreachable held=0 cancelled=1")
    assert driver.stats()["retries"] > 3
    daemon.destroy()


@both
def test_the_longest_hold_has_its_own_word(drive, mode):
    driver = drive(mode)
    driver.declare(duration_ms=1000, longest_ms=300, more_ms=200)
    driver.ask("acquire a d a")
    driver.hear("longest a")
    driver.hear("longest a")
    assert driver.hear("lost a").startswith("lost a longest hold held=0")
    assert driver.ask("release a") == "release a OK"


@both
def test_who_wakes_after_the_deadline_says_lost_first(drive, service, namespace, mode):
    driver = drive(mode)
    driver.declare(namespace=namespace, duration_ms=1000)
    driver.ask("acquire a d a")
    held = service.client.lease.Acquire(acquire_request(namespace, "b", 30)).lease
    driver.say("acquire b d b wait_ms=60000")
    wait_until(lambda: service.psql(f"select count(*) from leasehold.waiter where namespace = '{namespace}'") == "1")
    freeze(driver.process.pid)
    service.client.lease.Release(release_request(held))
    # Granted while it stands still: the answer is there when it wakes. Both are over by then.
    wait_until(lambda: service.psql(
        f"select count(*) from leasehold.scope where namespace = '{namespace}' and clock_timestamp() > deadline") == "2")
    driver.process.send_signal(signal.SIGCONT)
    assert driver.next().startswith("lost a expired held=0 cancelled=1")
    assert driver.hear("acquire b").startswith("acquire b LOST")
    assert driver.ask("heartbeat a").startswith("heartbeat a LOST")


def test_a_locked_row_costs_no_other_lease(drive, service, namespace):
    driver = drive("thread")
    driver.declare(namespace=namespace, duration_ms=2000)
    assert driver.ask("many k d 60", "many") == "many held=60"
    session = service.session()
    session.run("begin")
    session.run(f"select 1 from leasehold.scope where namespace = '{namespace}' and key = 'k7' for update")
    assert driver.hear("lost").startswith("lost k7 unreachable")
    seen = driver.stats()
    wait_until(lambda: driver.stats()["renewals"] >= seen["renewals"] + 59 * 3)
    assert driver.stats()["lost"] == 1
    session.run("rollback")
    session.close()


def test_ten_thousand_leases_survive_a_restart_and_cost_few_calls(drive, cluster, database):
    daemon = harness.Daemon(database=cluster.url(database))
    driver = drive("thread", daemon.target)
    driver.declare(duration_ms=20000)  # longer than a restart on a busy machine
    assert driver.ask("many k d 10000", "many", 60) == "many held=10000"
    before = driver.stats()
    assert before["leases"] == 10000
    assert daemon.stop() == 0
    daemon.start()
    wait_until(lambda: driver.stats()["renewals"] >= before["renewals"] + 20000, 120)
    after = driver.stats()
    assert after["leases"] == 10000 and after["lost"] == 0
    assert after["renewals"] - before["renewals"] > 100 * (after["rpcs"] - before["rpcs"])
    assert driver.ask("tries k", "tries") == "tries k 10000"
    wait_until(lambda: driver.stats()["releases"] == 0)
    assert cluster.psql("select count(*) from leasehold.scope where state = 'held'", database) == "0"
    daemon.destroy()


@both
def test_a_dead_server_is_left_for_the_next(drive, cluster, database, namespace, mode):
    first = harness.Daemon(database=cluster.url(database))
    second = harness.Daemon(database=cluster.url(database))
    driver = drive(mode, f"{first.target},{second.target}")
    driver.declare(namespace=namespace, duration_ms=1500)
    driver.ask("acquire a d a")
    client = harness.Client(second.target)
    first.kill()
    heartbeats = lambda: client.lease.GetLease(pb.GetLeaseRequest(scope=scope(namespace, "a"))).lease.heartbeats  # noqa: E731
    seen = heartbeats()
    wait_until(lambda: heartbeats() >= seen + 3)
    assert driver.ask("acquire b d b").startswith("acquire b OK")
    assert driver.ask("release a") == "release a OK"
    assert driver.stats()["lost"] == 0
    client.close()
    for daemon in (first, second):
        daemon.destroy()


def test_a_server_that_stands_still_is_left_for_the_next(drive, cluster, database):
    first = harness.Daemon(database=cluster.url(database))
    second = harness.Daemon(database=cluster.url(database))
    driver = drive("thread", f"{first.target},{second.target}", timeout_ms=2000)
    driver.declare(duration_ms=3000)
    driver.ask("acquire a d a")
    first.signal(signal.SIGSTOP)
    assert driver.ask("acquire b d b").startswith("acquire b OK")
    seen = driver.stats()["renewals"]
    wait_until(lambda: driver.stats()["renewals"] >= seen + 3)
    assert driver.stats()["lost"] == 0
    for daemon in (first, second):
        daemon.destroy()


def test_a_call_needs_no_server_to_be_made(drive, cluster, database):
    daemon = harness.Daemon(database=cluster.url(database))
    daemon.kill()
    driver = drive("thread", daemon.target)
    driver.declare(duration_ms=3000)
    assert driver.ask("acquire a d a timeout_ms=300").startswith("acquire a TIMED_OUT")
    driver.say("acquire b d b timeout_ms=20000")
    daemon.start()
    assert driver.hear("acquire b").startswith("acquire b OK")
    daemon.destroy()


@both
def test_a_wait_is_longer_than_the_server_blocks_and_keeps_its_place(drive, cluster, database, namespace, mode):
    daemon = harness.Daemon("--max-block", "1s", database=cluster.url(database))
    client = harness.Client(daemon.target)
    held = client.lease.Acquire(acquire_request(namespace, "a", 30)).lease
    driver, later = drive(mode, daemon.target), drive(mode, daemon.target)
    for each in (driver, later):
        each.declare(namespace=namespace, duration_ms=3000)
    waiters = lambda: cluster.psql("select count(*) from leasehold.waiter", database)  # noqa: E731
    driver.say("acquire a d a wait_ms=forever")
    wait_until(lambda: waiters() == "1")
    later.say("acquire b d a wait_ms=60000")
    wait_until(lambda: waiters() == "2")
    wait_until(lambda: driver.stats()["rpcs"] >= 3)
    client.lease.Release(release_request(held))
    assert driver.hear("acquire a").startswith("acquire a OK")
    later.say("cancel b")
    assert later.hear("acquire b").startswith("acquire b CANCELED")
    wait_until(lambda: waiters() == "0")
    client.close()
    daemon.destroy()


@both
def test_who_waits_is_told_for_whom(drive, service, namespace, mode):
    driver = drive(mode)
    driver.declare(namespace=namespace, duration_ms=1000)
    held = service.client.lease.Acquire(acquire_request(namespace, "a", 30, owner="worker-3")).lease
    driver.say("acquire a d a wait_ms=60000 waiting=1")
    assert driver.hear("waiting a") == "waiting a owner=worker-3 liveness=1 ahead=0 mode=0 units=0 holders=1 free=-1"
    service.client.lease.Release(release_request(held))
    assert driver.hear("acquire a").startswith("acquire a OK")
    wait_until(lambda: driver.stats()["renewals"] >= 2)
    driver.say("acquire b d a wait_ms=60000 waiting=1")
    driver.hear("waiting b")
    driver.say("cancel b")
    assert driver.hear("acquire b").startswith("acquire b CANCELED")
    assert "WAIT_TIMEOUT" in driver.ask("acquire c d a wait_ms=100 waiting=1")
    assert driver.ask("release a") == "release a OK"


def test_an_acquire_under_a_lost_lease_is_cancelled(drive, service, namespace):
    driver = drive()
    driver.declare(namespace=namespace, duration_ms=1000)
    held = service.client.lease.Acquire(acquire_request(namespace, "b", 30)).lease
    driver.ask("acquire a d a")
    driver.say("acquire b d b wait_ms=60000 under=a")
    wait_until(lambda: service.psql(f"select count(*) from leasehold.waiter where namespace = '{namespace}'") == "1")
    service.client.admin.ForceRelease(pb.ForceReleaseRequest(scope=scope(namespace, "a"), reason="test"))
    assert driver.hear("acquire b").startswith("acquire b CANCELED")
    wait_until(lambda: service.psql(f"select count(*) from leasehold.waiter where namespace = '{namespace}'") == "0")
    service.client.lease.Release(release_request(held))


@both
def test_a_release_that_nobody_waits_for(drive, service, namespace, mode):
    driver = drive(mode)
    driver.declare(namespace=namespace, duration_ms=3000)
    for turn in range(20):  # each acquire goes after the release of the same scope
        assert driver.ask(f"acquire a{turn} d k").startswith(f"acquire a{turn} OK")
        assert driver.ask(f"try a{turn} result={turn}") == f"try a{turn} OK"
        assert driver.ask(f"try a{turn}") == f"try a{turn} LOST"
    wait_until(lambda: driver.stats()["releases"] == 0)
    last = service.client.lease.GetLease(pb.GetLeaseRequest(scope=scope(namespace, "k"))).last
    assert last.result == "19"


def test_releases_outlive_a_server_that_hangs_and_have_a_limit(drive, cluster, database):
    daemon = harness.Daemon(database=cluster.url(database))
    driver = drive("thread", daemon.target, timeout_ms=1000, max_releases=300)
    driver.declare(duration_ms=60000)
    driver.ask("many k d 400", "many")
    daemon.signal(signal.SIGSTOP)
    assert driver.ask("tries k", "tries") == "tries k 300"
    stats = driver.stats()
    assert stats["releases"] == 300 and stats["left"] == 100
    wait_until(lambda: any("release failed" in line for line in driver.log))
    daemon.signal(signal.SIGCONT)
    wait_until(lambda: driver.stats()["releases"] == 0)
    assert cluster.psql("select count(*) from leasehold.scope where state = 'held'", database) == "100"
    wait_until(lambda: len([line for line in driver.log if "left to expire" in line]) == 100)
    daemon.destroy()


@both
def test_close_sends_what_is_left_or_says_what_it_leaves(drive, cluster, database, mode):
    daemon = harness.Daemon(database=cluster.url(database))
    driver = drive(mode, daemon.target, timeout_ms=1000, flush_ms=1500)
    driver.declare(duration_ms=60000)
    driver.ask("many k d 50", "many")
    driver.say("tries k")
    driver.ask("close", "closed")
    assert driver.stats()["left"] == 0
    assert cluster.psql("select count(*) from leasehold.scope where state = 'held'", database) == "0"
    assert driver.ask("acquire x d x").startswith("acquire x CLOSED")
    driver = drive(mode, daemon.target, timeout_ms=1000, flush_ms=300)
    driver.declare(duration_ms=60000)
    driver.ask("many k d 50", "many")
    daemon.signal(signal.SIGSTOP)
    driver.say("tries k")
    driver.ask("close", "closed")
    assert driver.stats()["left"] == 50
    wait_until(lambda: len([line for line in driver.log if "left to expire" in line]) == 50)
    daemon.destroy()


def test_misuse_is_answered_with_words(drive, service):
    driver = Driver("thread", "nonsense")
    assert driver.hear("create").startswith("create INVALID_ARGUMENT an address is HOST:PORT")
    assert driver.process.wait(60) == 1
    driver = drive()
    for name, words, said in (
        ("a", "duration_ms=1", "duration_us must be at least 100 ms, is 1 ms"), ("b", "margin_ms=60000", "margin_us must be below duration_us, which is 30000000, is 60000000"),
    ):
        assert said in driver.ask(f"declare {name} n {words}")
    assert "segment 2 of namespace must be 1 to 63 bytes, has 0" in driver.ask("declare c a..b")
    driver.declare(duration_ms=3000)
    assert "key must be 1 to 1024 bytes, has 2000" in driver.ask(f"acquire a d {'k' * 2000}")
    assert "lease_key must be a UUID" in driver.ask("acquire a d k lease_key=7")
    driver.ask("acquire a d k")
    assert "exclude each other" in driver.ask("release a result=1 failure=2")
    assert driver.ask("try a result=" + "x" * 9000) == "try a INVALID_ARGUMENT"
    assert driver.ask("release a result={").startswith("release a INVALID_ARGUMENT")


def test_an_endpoint_that_speaks_something_else(drive):
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            connection.close()

    threading.Thread(target=serve, daemon=True).start()
    driver = drive("thread", f"127.0.0.1:{listener.getsockname()[1]}")
    driver.declare(duration_ms=3000)
    assert driver.ask("acquire a d k timeout_ms=500").startswith("acquire a TIMED_OUT")
    assert driver.stats()["rpcs"] > 1
    listener.close()


PROGRAM = r"""
#include <leasehold.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    struct lh_error error = {0};
    struct lh_client *client = lh_client_create(&(struct lh_client_options){.endpoints = argv[1]}, &error);
    struct lh_declared *jobs = lh_declare(client, "installed", NULL, &error);
    struct lh_lease *lease;

    if (lh_acquire(jobs, "a", NULL, &lease, &error) != LH_OK || lh_release(lease, NULL, &error) != LH_OK)
        return printf("%s\n", error.message), 1;
    lh_lease_destroy(lease);
    lh_client_destroy(client);
    return 0;
}
"""


@pytest.mark.parametrize("kind", ["shared", "static"])
def test_what_is_installed_can_be_built_against(service, tmp_path, kind):
    subprocess.run(["meson", "install", "-C", str(harness.BUILD), "--no-rebuild", "--quiet", "--destdir", str(tmp_path / "root")],
                   check=True, stdout=subprocess.DEVNULL)
    pc = next(tmp_path.rglob("leasehold.pc"))
    environment = {**os.environ, "PKG_CONFIG_PATH": str(pc.parent), "PKG_CONFIG_SYSROOT_DIR": str(tmp_path / "root")}
    ask = ["pkg-config", "--cflags", "--libs", *(["--static"] if kind == "static" else []), "leasehold"]
    flags = subprocess.run(ask, check=True, env=environment, stdout=subprocess.PIPE, text=True).stdout.split()
    if kind == "static":
        flags = [str(pc.parent.parent / "libleasehold.a") if flag == "-lleasehold" else flag for flag in flags]
    options = json.loads(subprocess.run(["meson", "introspect", str(harness.BUILD), "--buildoptions"], check=True,
                                        stdout=subprocess.PIPE, text=True).stdout)
    sanitize = next(option["value"] for option in options if option["name"] == "b_sanitize")
    if sanitize != "none":
        flags.append(f"-fsanitize={sanitize}")
    (tmp_path / "program.c").write_text(PROGRAM)
    subprocess.run(["cc", "-Wall", "-Werror", str(tmp_path / "program.c"), "-o", str(tmp_path / "program"), *flags], check=True)
    environment["LD_LIBRARY_PATH"] = str(pc.parent.parent)
    done = subprocess.run([str(tmp_path / "program"), service.daemon.target], env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_no_deadline_is_later_than_the_databases(drive, service, namespace):
    proxy = FlakyProxy(service.daemon.target)
    driver = drive("thread", proxy.target)
    driver.declare(namespace=namespace, duration_ms=3000)
    held = service.client.lease.Acquire(acquire_request(namespace, "a", 30)).lease
    proxy.decide = lambda: ("delay", 0.25)
    driver.say("acquire a d a wait_ms=60000")
    wait_until(lambda: service.psql(f"select count(*) from leasehold.waiter where namespace = '{namespace}'") == "1")
    service.client.lease.Release(release_request(held))
    assert driver.hear("acquire a").startswith("acquire a OK")
    renewals = driver.stats()["renewals"]
    samples = 0
    while driver.stats()["renewals"] < renewals + 3:
        begun = time.monotonic()
        mine = int(re.search(r"remaining_ms=(-?\d+)", driver.ask("show a")).group(1)) / 1000
        database = float(service.psql("select extract(epoch from deadline - clock_timestamp()) from leasehold.scope "
                                      f"where namespace = '{namespace}' and key = 'a'"))
        assert mine <= database + time.monotonic() - begun
        samples += 1
    assert samples >= 5
    proxy.decide = lambda: "pass"
    proxy.close()


FAULTS = ["drop", "truncate", "cut", "stop", "duplicate", ("delay", 0.3)]


@pytest.mark.parametrize("fault", FAULTS, ids=[f if isinstance(f, str) else f[0] for f in FAULTS])
def test_every_verb_gets_through_what_a_proxy_does_to_its_first_reply(drive, service, namespace, fault):
    """The fault befalls the first reply of each verb: the second attempt, over the second endpoint or a new connection, tells
    what came of it, and nothing is done twice."""
    proxy = FlakyProxy(service.daemon.target)
    faults = []
    proxy.decide = lambda: faults.pop() if faults else "pass"
    driver = drive("thread", f"{proxy.target},{service.daemon.target}", timeout_ms=1200)
    driver.declare(namespace=namespace, duration_ms=20000)

    def struck(line):
        faults.append(fault)
        return driver.ask(line, seconds=60)

    assert struck("acquire a d a").startswith("acquire a OK")
    # The endpoint that failed was left; go back to the proxy for the next verb, by a client of its own.
    token = re.search(r"token=(\d+)", driver.ask("show a")).group(1)
    held = service.client.lease.GetLease(pb.GetLeaseRequest(scope=scope(namespace, "a"))).lease
    assert str(held.token) == token
    other = drive("thread", f"{proxy.target},{service.daemon.target}", timeout_ms=1200)
    other.declare(namespace=namespace, duration_ms=20000)
    faults.clear()
    assert other.ask("acquire b d b").startswith("acquire b OK")
    faults.append(fault)
    assert other.ask("heartbeat b", seconds=60) == "heartbeat b OK"
    third = drive("thread", f"{proxy.target},{service.daemon.target}", timeout_ms=1200)
    third.declare(namespace=namespace, duration_ms=20000)
    faults.clear()
    assert third.ask("acquire c d c").startswith("acquire c OK")
    faults.append(fault)
    assert third.ask("release c", seconds=60) == "release c OK"
    assert service.client.lease.GetLease(pb.GetLeaseRequest(scope=scope(namespace, "c"))).lease.token == 0
    fourth = drive("thread", f"{proxy.target},{service.daemon.target}", timeout_ms=1200)
    fourth.declare(namespace=namespace, duration_ms=20000)
    faults.clear()
    assert fourth.ask("acquire e d e").startswith("acquire e OK")
    faults.append(fault)
    assert fourth.ask("try e") == "try e OK"
    wait_until(lambda: fourth.stats()["releases"] == 0)
    assert service.client.lease.GetLease(pb.GetLeaseRequest(scope=scope(namespace, "e"))).lease.token == 0
    assert sum(d.stats()["lost"] for d in (driver, other, third, fourth)) == 0
    proxy.thaw()
    proxy.close()


def test_renewals_get_through_a_proxy_that_spoils_two_replies_of_three(drive, service, namespace):
    proxy = FlakyProxy(service.daemon.target)
    driver = drive("thread", proxy.target)
    driver.declare(namespace=namespace, duration_ms=3000)
    for name in "abc":
        driver.ask(f"acquire {name} d {name}")
    actions = ["drop", "pass", "cut", "truncate", "pass", ("delay", 0.2)]
    turn = [0]

    def decide():
        turn[0] += 1
        return actions[turn[0] % len(actions)]

    proxy.decide = decide
    seen = driver.stats()["renewals"]
    wait_until(lambda: driver.stats()["renewals"] >= seen + 9)
    assert driver.stats()["lost"] == 0
    proxy.decide = lambda: "pass"
    proxy.close()
