"""The cases about the end of a client, and of its process, and about forks."""
import threading

from cases import NAMESPACE, fresh
from harness import wait_until


def close_leaves_nothing(place):
    key, client = fresh(), place.client()
    threads = {thread for thread in threading.enumerate()}
    lease = client.lease(NAMESPACE, key, duration=6).acquire()
    wait_until(lambda: place.heartbeats(key) >= 1)
    client.close()
    assert client.leftovers() == []
    beats = place.heartbeats(key)
    wait_until(lambda: place.row(key, "deadline < clock_timestamp()") != "f", 60)
    assert place.heartbeats(key) in (beats, 0) and not lease.is_held()
    if place.api.name == "threads":
        wait_until(lambda: {thread for thread in threading.enumerate()} <= threads, 30)
    if place.transport == "sql":
        wait_until(lambda: not place.connections())


def exit_leaves_nothing(place):
    key = fresh()
    program = place.program("exit", key, 3)
    assert program.end() == 7, program.lines
    # grpcio 1.51 has words of its own for an event loop that SystemExit leaves.
    assert program.find("acquired") and (len(program.lines) == 1 or place.api.name == "asyncio"), program.lines
    wait_until(lambda: place.row(key, "deadline < clock_timestamp()") != "f", 60)


def fork_renews_nothing(place):
    key = fresh()
    program = place.program("fork", key, 9)
    assert program.wait_for("child") == "child forked"
    assert program.find("refused") == "refused FORKED True"
    assert place.transport != "sql" or program.find("inherited") == "inherited connections 0"
    # An unused client is the child's, but grpcio is not after the parent has used it.
    assert place.api.name != "threads" or program.find("own lease") == {"grpc": "own lease FORKED True", "sql": "own lease True"}[place.transport], program.lines
    assert program.wait_for("parent waited") == "parent waited 0"
    beats = place.heartbeats(key)
    wait_until(lambda: place.heartbeats(key) > beats or program.process.poll() is not None)
    token = program.find("acquired").split()[1]
    assert place.row(key, "state, token") == f"held|{token}", program.lines[-5:]
    program.process.terminate()
    assert program.end() == 0, program.lines[-5:]
    assert place.row(key, "state, last_outcome") == "free|ok"


def unused_client_works_after_a_fork(place):
    program = place.program("fork-first", fresh(), 9)
    assert program.end() == 0, program.lines[-5:]
    assert program.lines == ["own lease True", "own lease True", "child ended 3"]


def fork_at_any_instant_ends(place):
    program = place.program("fork-locked", fresh(), 9)
    assert program.wait_for("child ended") == "child ended 3", program.lines
    program.process.terminate()
    assert program.end() == 0, program.lines[-5:]
