"""For pytest: a daemon with an embedded PostgreSQL for the test run, and a namespace of its own for each test.

In conftest.py, `pytest_plugins = ["leasehold.testing"]`; then a test takes the fixture `leasehold_world`. The daemon is --leaseholdd, else
LEASEHOLDD, else leaseholdd in PATH. It ends when the process ends, also when that is killed.
"""
import contextlib
import functools
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
        self.socket = f"{directory}/state/run/.s.PGSQL.5432"
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
        self.daemon, self.namespace, self._faults = daemon, namespace, _Faults()
        self._proxies = [_Proxy(daemon.server, self._faults), _Proxy(daemon.socket, self._faults, is_sql=True)]
        self.server = f"127.0.0.1:{self._proxies[0].port}"
        self.database = f"host=127.0.0.1 port={self._proxies[1].port} user=leasehold dbname=leasehold sslmode=disable gssencmode=disable"

    def lose(self, key: str) -> bool:
        """An administrator ends the lease of this key. False: nobody has it."""
        return self.daemon.sql(FORCE, namespace=self.namespace, key=key) != "0"

    def pass_time(self, seconds: float) -> None:
        """The leases here are so much older. Those whose time is over end."""
        if not 0 < seconds <= LONGEST_S:
            raise ValueError(f"seconds must be a number above 0, at most {LONGEST_S} (365 days), not {seconds!r}")
        self.daemon.sql(f"begin; {AGE} commit; {REAP}", namespace=self.namespace, seconds=seconds)

    def drop(self) -> None:
        """What is asked of Leasehold next is done, its answer gets lost, and the connection is cut."""
        self._faults.next.append("drop")

    def delay(self, seconds: float) -> None:
        """The next answer of Leasehold comes that much later, and what comes behind it on its connection."""
        if not 0 < seconds <= LONGEST_S:
            raise ValueError(f"seconds must be a number above 0, at most {LONGEST_S} (365 days), not {seconds!r}")
        self._faults.next.append(seconds)

    def silence(self, is_silent: bool = True) -> None:
        """No answer arrives any more; with False they arrive, late."""
        (self._faults.speaks.clear if is_silent else self._faults.speaks.set)()

    def close(self) -> None:
        self._faults.speaks.set()
        for each in self._proxies:
            each.close()


class _Faults:
    """What happens to the answers of one world, whichever way they come."""

    def __init__(self) -> None:
        self.next: list[str | float] = []
        self.speaks = threading.Event()
        self.speaks.set()

    def meet(self, is_answer: bool) -> None:
        fault = self.next.pop(0) if is_answer and self.next else None
        if fault == "drop":
            raise OSError("dropped")
        if fault is not None:
            time.sleep(float(fault))
        self.speaks.wait()


class _Proxy:
    """Between clients and the daemon, or its PostgreSQL. Two threads for each connection."""

    def __init__(self, server: str, faults: _Faults, is_sql: bool = False) -> None:
        self._server, self._faults, self._is_sql = server, faults, is_sql
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
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
                    server = self._connect()
                except OSError:  # it starts again
                    client.close()
                    continue
                with self._lock:
                    self._open += [client, server]
                asked = threading.Event()  # something of Leasehold's, in SQL
                self._start(self._pump, client, server, functools.partial(self._questions, asked))
                self._start(self._pump, server, client, functools.partial(self._rows, asked) if self._is_sql else self._answers())

    def _connect(self) -> socket.socket:
        if not self._is_sql:
            host, _, port = self._server.rpartition(":")
            return socket.create_connection((host, int(port)))
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(self._server)
        except OSError:
            server.close()
            raise
        return server

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

    def _questions(self, asked: threading.Event, data: bytes) -> Iterator[bytes]:
        if b"leasehold." in data:
            asked.set()
        yield data

    def _rows(self, asked: threading.Event, data: bytes) -> Iterator[bytes]:
        is_answer = asked.is_set()
        asked.clear()
        self._faults.meet(is_answer)
        yield data

    def _answers(self) -> Any:
        """Whole frames; those that begin an answer meet the faults."""
        held = bytearray()

        def feed(data: bytes) -> Iterator[bytes]:
            held.extend(data)
            while len(held) >= 9 and len(held) >= (size := 9 + int.from_bytes(held[:3], "big")):
                frame = bytes(held[:size])
                del held[:size]
                self._faults.meet(frame[3] == HEADERS)
                yield frame

        return feed

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
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
