"""For pytest: a daemon with an embedded PostgreSQL for the test run, and a namespace of its own for each test.

In conftest.py, `pytest_plugins = ["leasehold.testing"]`; then a test takes the fixture `leasehold_world`. The daemon is --leaseholdd, else
LEASEHOLDD, else leaseholdd in PATH. It ends when the process ends, also when that is killed.
"""
import contextlib
import importlib.resources
import itertools
import os
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

HEADERS = 1  # an answer begins with this frame (RFC 9113)
LONGEST_S = 365 * 86400
TIMES = ("acquired_at", "heartbeat_at", "deadline", "ended_at", "check_at")
AGE = "\n".join(
    f"update leasehold.{table} set " + ", ".join(f"{column} = {column} - make_interval(secs => :'seconds')" for column in TIMES)
    + " where namespace = :'namespace' or starts_with(namespace, :'namespace' || '.');" for table in ("scope", "share"))
FORCE = "select count(*) from leasehold.force_release(:'namespace', :'key', 'a test', all_holders => true);"
REAP = "select count(*) from leasehold.reap();"


class Daemon:
    """leaseholdd on a free port, its database in a temporary directory."""

    def __init__(self, program: str | None = None) -> None:
        found = shutil.which(program or os.environ.get("LEASEHOLDD") or "leaseholdd")
        if found is None:
            raise FileNotFoundError("leaseholdd is not in PATH: name it by --leaseholdd or LEASEHOLDD")
        with importlib.resources.as_file(importlib.resources.files("leasehold") / "keeper.sh") as keeper:
            self._keeper = subprocess.Popen(["/bin/sh", str(keeper), found], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                            start_new_session=True)
            self.server, directory = (self._answer().split() + [""])[:2]
        self.database = f"host={directory}/state/run user=leasehold dbname=leasehold"
        self._count = itertools.count(1)

    def _answer(self) -> str:
        assert self._keeper.stdout
        line = self._keeper.stdout.readline()
        if not line:
            raise RuntimeError(f"leaseholdd does not start: its log is above, and the status is {self._keeper.wait()}")
        return line

    def world(self) -> "World":
        return World(self, f"test-{next(self._count)}")

    def fail_over(self) -> None:
        """Every connection breaks; the daemon and its PostgreSQL start again, on the same address and a new timeline."""
        assert self._keeper.stdin
        self._keeper.stdin.write("fail over\n")
        self._keeper.stdin.flush()
        self._answer()

    def sql(self, script: str, **values: Any) -> str:
        """What psql prints; `:'name'` in the script is a value."""
        variables = [f"--set={name}={value}" for name, value in {"ON_ERROR_STOP": 1, **values}.items()]
        done = subprocess.run(["psql", "-qAtX", *variables, self.database], input=script, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return done.stdout.strip()

    def close(self) -> None:
        self._keeper.communicate()


class World:
    """The namespace of one test, and what the test does to those who hold leases there."""

    def __init__(self, daemon: Daemon, namespace: str) -> None:
        self.daemon, self.namespace, self.database = daemon, namespace, daemon.database
        self._proxy = _Proxy(daemon.server)
        self.server = self._proxy.address

    def lose(self, key: str) -> bool:
        """An administrator ends the lease of this key. False: nobody has it."""
        return self.daemon.sql(FORCE, namespace=self.namespace, key=key) != "0"

    def pass_time(self, seconds: float) -> None:
        """The leases here are so much older. Those whose time is over end."""
        if not 0 < seconds <= LONGEST_S:
            raise ValueError(f"seconds must be a number above 0, at most {LONGEST_S} (365 days), not {seconds!r}")
        self.daemon.sql(f"begin; {AGE} commit; {REAP}", namespace=self.namespace, seconds=seconds)

    def drop(self) -> None:
        """What is asked next is done, its answer gets lost, and the connection is cut."""
        self._proxy.faults.append("drop")

    def delay(self, seconds: float) -> None:
        """The next answer comes that much later, and what comes behind it on its connection."""
        if not 0 < seconds <= LONGEST_S:
            raise ValueError(f"seconds must be a number above 0, at most {LONGEST_S} (365 days), not {seconds!r}")
        self._proxy.faults.append(seconds)

    def silence(self, is_silent: bool = True) -> None:
        """No answer arrives any more; with False they arrive, late."""
        (self._proxy.speaks.clear if is_silent else self._proxy.speaks.set)()

    def close(self) -> None:
        self._proxy.close()


class _Proxy:
    """Between a client and the daemon. Two threads for each connection."""

    def __init__(self, server: str) -> None:
        host, _, port = server.rpartition(":")
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.faults: list[str | float] = []
        self.speaks = threading.Event()
        self.speaks.set()
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._start(self._accept)

    def _start(self, run: Any, *arguments: Any) -> None:
        threading.Thread(target=run, args=arguments, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(self._server)
                except OSError:  # it starts again
                    client.close()
                    continue
                with self._lock:
                    self._open += [client, server]
                self._start(self._pump, client, server, self._as_it_is)
                self._start(self._pump, server, client, self._answers())

    def _pump(self, source: socket.socket, target: socket.socket, each: Any) -> None:
        try:
            with contextlib.suppress(OSError):
                while data := source.recv(65536):
                    for part in each(data):
                        target.sendall(part)
        finally:
            self._cut(source, target)

    def _cut(self, *sockets: socket.socket) -> None:
        """At once: nothing that is on its way arrives."""
        for each in sockets:
            with contextlib.suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                each.shutdown(socket.SHUT_RDWR)

    def _as_it_is(self, data: bytes) -> Iterator[bytes]:
        yield data

    def _answers(self) -> Any:
        """Whole frames; those that begin an answer meet the faults."""
        held = bytearray()

        def feed(data: bytes) -> Iterator[bytes]:
            held.extend(data)
            while len(held) >= 9 and len(held) >= (size := 9 + int.from_bytes(held[:3], "big")):
                frame = bytes(held[:size])
                del held[:size]
                fault = self.faults.pop(0) if frame[3] == HEADERS and self.faults else None
                if fault == "drop":
                    raise OSError("dropped")
                if fault is not None:
                    time.sleep(float(fault))
                self.speaks.wait()
                yield frame

        return feed

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.speaks.set()
        with self._lock:
            self._cut(*self._open)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--leaseholdd", help="the daemon of the tests that take leases; by default LEASEHOLDD, or leaseholdd in PATH")


@pytest.fixture(scope="session")
def leasehold_daemon(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    daemon = Daemon(request.config.getoption("leaseholdd", None))
    yield daemon
    daemon.close()


@pytest.fixture
def leasehold_world(leasehold_daemon: Daemon) -> Iterator[World]:
    world = leasehold_daemon.world()
    yield world
    world.close()
