"""Keys of a spread namespace move, each of its databases a cluster of its own: a move that is repeated ends, whatever was killed at each of its
steps."""
import contextlib
import itertools
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

import harness
from databases import rows
from harness import pb, wait_until
from leasehold.v1 import console_pb2, console_pb2_grpc
from place import BOUND
from test_move_keys import KEYS, MORE, NAMES, Load, Spread, check_places, check_slots
from test_moves import PROGRAM
from test_spread import place

# In place of psql: it stops once, after the statements that contain some words; then the program hears that they failed, or their answer.
PAUSE = """#!/bin/bash
sql=$(cat)
if [[ $sql == *"$PAUSE_AT"* ]] && mkdir "$PAUSE_DIR/reached" 2> /dev/null; then
  answer=$("$PSQL" "$@" <<< "$sql")
  touch "$PAUSE_DIR/paused"
  until [ -e "$PAUSE_DIR/go" ]; do sleep 0.02; done
  [ "$PAUSE_HEARS" = failure ] && exit 1
  echo "$answer"
  exit
fi
exec "$PSQL" "$@" <<< "$sql"
"""

# Words of the statements that change something, in their order.
STEPS = {
    "slots are given up": "insert into leasehold_move.keys",
    "keys are taken": "create table leasehold_move.taken_scope",
    "tokens are raised": "setval('leasehold.ticket'",
    "keys are given": "insert into leasehold_move.target",
    "the source forgets": "drop table leasehold_move.taken_share",
    "the target forgets": "warning;\ndelete from leasehold_move.target",
}


def kill(cluster):
    """All of its processes, as the machine would."""
    postmaster = int((cluster.data / "postmaster.pid").read_text().split()[0])
    os.kill(postmaster, signal.SIGSTOP)  # so that it starts no more
    children = subprocess.run(["pgrep", "-P", str(postmaster)], stdout=subprocess.PIPE, text=True, check=False).stdout.split()
    for pid in [postmaster, *map(int, children)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in [postmaster, *children]), BOUND, "its processes having gone")


@pytest.fixture
def spread(tmp_path):
    clusters = {name: harness.Cluster(migrated=True) for name in MORE}
    spread = Spread(clusters, tmp_path)
    yield spread
    spread.close()
    for cluster in clusters.values():
        cluster.destroy()


class Pause:
    """A move that stands at one of its steps."""

    def __init__(self, spread, source, target, names, step, hears="failure"):
        self.dir = spread.path / f"{time.monotonic_ns()}"
        self.dir.mkdir()
        (self.dir / "psql").write_text(PAUSE)
        (self.dir / "psql").chmod(0o755)
        self.process = spread.move(source, target, names, PATH=f"{self.dir}:{os.environ['PATH']}", PSQL=spread.clusters[source].psql_program,
                                   PAUSE_AT=STEPS[step], PAUSE_DIR=str(self.dir), PAUSE_HEARS=hears)

    def reached(self):
        """False: it ended without that step."""
        wait_until(lambda: (self.dir / "paused").exists() or self.process.poll() is not None, BOUND, "the step")
        return (self.dir / "paused").exists()

    def go_on(self):
        """Returns its exit status, and what it said."""
        (self.dir / "go").touch()
        said = self.process.communicate(timeout=300)[0]
        shutil.rmtree(self.dir)
        return self.process.returncode, said


def restart(cluster):
    kill(cluster)
    cluster.start()


def hurt(spread, what, source, target, pause):
    """Returns the exit status of the program."""
    if what == "program":
        os.killpg(pause.process.pid, signal.SIGKILL)
    elif what == "daemon":
        spread.daemons[0].kill()
        spread.daemons[0].start()
    else:
        restart(spread.clusters[source if what == "source" else target])
    return pause.go_on()


@pytest.mark.parametrize("what", ["source", "target", "program", "daemon"])
def test_what_is_killed_at_each_step_of_a_move_loses_nothing(spread, what):
    """Called again, the program goes on where it was; its next part begins after the last step."""
    with Load(spread, KEYS[8:]) as load:
        for step in STEPS:
            pause = Pause(spread, "home", "us", MORE, step)
            assert pause.reached(), (step, pause.go_on())
            status, said = hurt(spread, what, "home", "us", pause)
            assert status != 0, (step, said)
            load.check()
        for source in NAMES:
            assert "has all keys of jobs" in spread.moved(source, "us", MORE)
        load.go_on()
    check_places(spread, load, MORE)
    check_slots(spread, MORE)


def test_each_cluster_is_killed_in_turn(spread):
    """The keys of the others go on meanwhile, and its own when it is back: a lease has its whole duration then."""
    for source in NAMES:
        spread.moved(source, "us", MORE)
    with contextlib.ExitStack() as stack:
        loads = {name: stack.enter_context(Load(spread, *([key for key in keys if place(key, MORE) == name] for keys in (KEYS[8:], KEYS[:8])))) for name in MORE}
        for killed in MORE:
            kill(spread.clusters[killed])
            for name in MORE:
                if name != killed:
                    loads[name].go_on()
            spread.clusters[killed].start()
            for load in loads.values():
                load.go_on()
    for load in loads.values():
        load.check()
    check_slots(spread, MORE)


def has_unread(port):
    """Has the kernel data of clients that the daemon has not read?"""
    lines = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(line[1].endswith(f":{port:04X}") and line[3] == "01" and not line[4].endswith(":00000000") for line in lines)


def test_a_daemon_that_stood_still_while_keys_moved_calls_no_lease_lost(spread):
    """After 5 s the program no longer waits for it."""
    moving = [key for key in KEYS if place(key) == "home" and place(key, MORE) == "us"]
    leases = [spread.first.lease.Acquire(harness.acquire_request("jobs", key, 60), timeout=BOUND).lease for key in moving]
    spread.daemons[0].signal(signal.SIGSTOP)
    try:
        spread.moved("home", "us", MORE)
        calls = [spread.first.lease.Heartbeat.future(pb.HeartbeatRequest(leases=[harness.lease_ref(lease)])) for lease in leases]
        calls.append(spread.first.lease.Heartbeat.future(pb.HeartbeatRequest(leases=map(harness.lease_ref, leases))))
        wait_until(lambda: has_unread(spread.daemons[0].port), BOUND, "the requests at its socket")
    finally:
        spread.daemons[0].signal(signal.SIGCONT)
    outcomes = {result.outcome for call in calls for result in call.result(BOUND).results}
    assert outcomes <= {pb.OUTCOME_OK, pb.OUTCOME_RETRY}, outcomes
    for lease in leases:
        wait_until(lambda: harness.heartbeat(spread.first, lease).outcome != pb.OUTCOME_RETRY, BOUND, "an answer")
        assert harness.heartbeat(spread.first, lease).outcome == pb.OUTCOME_OK


def listed(client):
    return sorted(lease.scope.key for lease in client.lease.ListLeases(pb.ListLeasesRequest(namespace=["jobs"]), timeout=BOUND).leases)


def initial(client):
    call = client.lease.WatchLeases(pb.WatchLeasesRequest(namespace=["jobs"], include_initial=True), timeout=BOUND)
    keys = [event.lease.scope.key for event in itertools.takewhile(lambda event: event.type != pb.LeaseEvent.TYPE_SYNCED, call)]
    call.cancel()
    return sorted(keys)


def refused(read, *arguments):
    with harness.fails() as failure:
        read(*arguments)
    assert failure.value.reason == "DATABASE_UNAVAILABLE", failure.value.message
    return failure.value.message


def console(client):
    return console_pb2_grpc.ConsoleServiceStub(client.channel)


def explained(client, key):
    return console(client).Explain(console_pb2.ExplainRequest(scope=harness.scope("jobs", key)), timeout=BOUND)


def history(client):
    return console(client).ListHistory(console_pb2.ListRequest(namespace=["jobs"]), timeout=BOUND).holds


def failures(client):
    return console(client).ListFailures(console_pb2.ListRequest(), timeout=BOUND).failures


def counts(client):
    return console(client).ListNamespaces(console_pb2.ListRequest(), timeout=BOUND).namespaces


def test_a_list_does_not_lack_leases_that_are_on_their_way(spread):
    for key in KEYS:
        spread.first.lease.Acquire(harness.acquire_request("jobs", key, 600), timeout=BOUND)
    pause = Pause(spread, "home", "us", MORE, "tokens are raised", hears="answer")
    assert pause.reached()
    spread.daemons[0].kill()
    spread.daemons[0].start()
    for key in (next(key for key in map(str, range(1000)) if place(key, MORE) == name) for name in NAMES):
        wait_until(lambda key=key: spread.can_take(spread.first, key), BOUND, "the daemon being back")
    moving = next(key for key in KEYS if place(key) == "home" and place(key, MORE) == "us" and f"jobs/{key}" not in rows(spread, "home"))
    for client, begin in zip(spread.clients, ("no database has this key of jobs: a move of keys is under way", "this key of jobs is on its way from database home")):
        assert refused(explained, client, moving).startswith(begin)
    lock = spread.clusters["eu"].session(spread.databases["eu"])

    def refused_unread(read, client):
        lock.run("begin; lock table leasehold.scope")  # keys might come while a database is read
        words = refused(read, client)
        lock.run("rollback")
        return words

    for client, begin in zip(spread.clients, ("no database has some keys of jobs: a move of keys is under way", "keys of jobs are on their way")):
        for read in (history, failures, listed, initial):  # a daemon that has waited for the lock says that eu is unavailable
            wait_until(lambda client=client, read=read, begin=begin: refused_unread(read, client).startswith(begin), BOUND, begin)
    for client in spread.clients:
        assert [(row.partial, row.held < len(KEYS)) for row in counts(client)] == [(True, True)]
    assert pause.go_on()[0] == 0
    for client in spread.clients:
        wait_until(lambda: spread.can_take(client, "free"), BOUND, "the keys being served")
        for read in (listed, initial):
            assert read(client) == sorted(KEYS)
        assert [(row.partial, row.held) for row in counts(client)] == [(False, len(KEYS))]
        assert explained(client, moving).state == "held" and not history(client) and not failures(client)


def test_a_list_names_the_command_that_goes_on_with_an_interrupted_move(spread):
    pause = Pause(spread, "home", "us", MORE, "tokens are raised")
    assert pause.reached()
    assert hurt(spread, "program", "home", "us", pause)[0] != 0
    key = next(key for key in map(str, range(10000)) if place(key) == "home" and place(key, MORE) == "us" and not spread.can_take(spread.first, key))
    wait_until(lambda: "deploy/move-namespace keys jobs FROM TO goes on" in refused(listed, spread.first), BOUND, "the command")

    def go_on(source, target):
        return subprocess.run([PROGRAM, "keys", "jobs", spread.url(source), spread.url(target)], capture_output=True, text=True, timeout=300)

    assert "no move of keys of jobs from FROM was interrupted: try the other sections as FROM" in go_on("eu", "us").stderr
    assert "TO is section eu, not us" in go_on("home", "eu").stderr
    assert "section us has all keys of jobs" in go_on("home", "us").stdout
    wait_until(lambda: spread.can_take(spread.first, key), BOUND, "the keys being served")
    assert listed(spread.first) == []
    spread.moved("eu", "us", MORE)
    check_slots(spread, MORE)
