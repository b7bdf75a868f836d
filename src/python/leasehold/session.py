"""One connection to PostgreSQL, by libpq's own calls (psycopg.pq): nothing waits longer than its caller wants, which DB-API cannot say,
and blocking and asynchronous programs share the code."""
from __future__ import annotations

import contextlib
import ctypes
import os
import re
import socket
import sys
from typing import Any, Sequence

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from .errors import Denied, InvalidArgument, LeaseEnded, LeaseholdError, LeaseLost, Unavailable
from .runtime import Runtime, clock

# SQLSTATEs by their beginning; the first that fits counts.
STATES: tuple[tuple[str, type[LeaseholdError], str], ...] = (
    ("LH001", LeaseLost, "unknown"),
    ("LH002", InvalidArgument, "INVALID_ARGUMENT"),
    ("LH003", Denied, "NAMESPACE_FROZEN"),
    ("LH004", Denied, "QUOTA_EXCEEDED"),
    ("LH005", Denied, "HOOK_REJECTED"),
    ("LH006", LeaseEnded, "LEASE_ENDED"),
    ("LH007", Denied, "ACCESS_DENIED"),
    ("42501", Denied, "ACCESS_DENIED"),
    ("28", Denied, "UNAUTHENTICATED"),
    ("08", Unavailable, "DATABASE_UNAVAILABLE"),
    ("57P", Unavailable, "DATABASE_UNAVAILABLE"),
    ("25P03", Unavailable, "DATABASE_UNAVAILABLE"),  # this and the next: a limit of the server ended the session
    ("25P04", Unavailable, "DATABASE_UNAVAILABLE"),
    ("25006", Unavailable, "DATABASE_UNAVAILABLE"),  # this and the next: a standby
    ("0A000", Unavailable, "DATABASE_UNAVAILABLE"),
    ("53300", Unavailable, "DATABASE_UNAVAILABLE"),  # no connection is left
    ("53", Unavailable, "OVERLOADED"),
    ("58", Unavailable, "OVERLOADED"),
    ("57014", Unavailable, "OVERLOADED"),
    ("40", Unavailable, "SCOPE_BUSY"),
    ("55P03", Unavailable, "SCOPE_BUSY"),
    ("", Denied, ""),  # what would fail again; the reason is the SQLSTATE
)

# What libpq says of a server that refuses, in any language: "FATAL:  28P01: words", with the place in PostgreSQL's source below it.
STATE = re.compile(r"(?<=:  )([0-9A-Z]{5}): ")
SOURCE = re.compile(r"\n[^\n]+: {1,2}\w+, \w+\.c:\d+")
IN_FLIGHT = "SOCKET_CLOSED_WHILE_IN_FLIGHT"
VERBOSE = 2  # PQERRORS_VERBOSE of libpq-fe.h


class Session:
    def __init__(self, conninfo: str, runtime: Runtime) -> None:
        try:
            # Of several hosts a standby may come first. What the caller or the environment says counts before this.
            wanted = {} if "target_session_attrs" in conninfo_to_dict(conninfo) else {"target_session_attrs": "read-write"}
            self.conninfo = make_conninfo(conninfo, fallback_application_name="leasehold", **wanted)
        except psycopg.Error as error:
            raise InvalidArgument(f"database: {str(error).strip()}", "INVALID_ARGUMENT") from None
        self.runtime = runtime
        self.conn: Any = None
        self.is_pooled = False  # each transaction may run in another backend: LISTEN hears nothing

    async def open(self, until: float) -> None:
        try:
            await self._open(until)
        except BaseException:  # the caller has given up, too
            self.close()
            raise

    async def _open(self, until: float) -> None:
        self.conn = pq.PGconn.connect_start(self.conninfo.encode())
        tell_states(self.conn)
        state: int = pq.PollingStatus.WRITING
        while state != pq.PollingStatus.OK:
            if self.conn.status == pq.ConnStatus.BAD or state == pq.PollingStatus.FAILED:
                words = self.conn.error_message.decode("utf-8", "replace").strip()
                raise refusal(words)
            await self._ready(state == pq.PollingStatus.WRITING, until)
            state = self.conn.connect_poll()
        self.conn.nonblocking = 1
        backend = (await self.query("select pg_backend_pid()", (), until))[0][0]
        self.is_pooled = backend != str(self.conn.backend_pid)

    async def _ready(self, write: bool, until: float) -> None:
        if not await self.runtime.ready(self.conn.socket, write, until - clock()):
            is_made = self.conn.status == pq.ConnStatus.OK
            self.close()  # what it was to do may still happen
            raise Unavailable("PostgreSQL does not answer in time", IN_FLIGHT if is_made else "SOCKET_NOT_AVAILABLE")

    async def query(self, sql: str, parameters: Sequence[str | None], until: float) -> list[tuple[Any, ...]]:
        """The rows, as text. Each is a transaction of its own. What breaks off in the middle closes the connection."""
        rows: list[tuple[Any, ...]] = []
        error: LeaseholdError | None = None
        try:
            self.conn.send_query_params(sql.encode(), [None if each is None else each.encode() for each in parameters])
            while self.conn.flush():
                await self._ready(True, until)
            while True:
                while self.conn.is_busy():
                    await self._ready(False, until)
                    self.conn.consume_input()
                result = self.conn.get_result()
                if result is None:
                    break
                error = failure(result) or error
                rows += [tuple(text(result.get_value(row, column)) for column in range(result.nfields)) for row in range(result.ntuples)]
        except psycopg.Error as broken:
            self.close()
            raise Unavailable(str(broken).strip(), IN_FLIGHT) from None
        except BaseException:  # the caller has given up; the statement may go on
            self.close()
            raise
        if self.conn.status == pq.ConnStatus.BAD:
            self.close()
        if error is not None:
            raise error
        return rows

    async def notified(self, seconds: float) -> None:
        """Until a notification comes, at most so long."""
        end = clock() + seconds
        while self.conn.notifies() is None:
            if not await self.runtime.ready(self.conn.socket, False, end - clock()):
                return
            try:
                self.conn.consume_input()
            except psycopg.Error as error:
                self.close()
                raise Unavailable(str(error).strip(), IN_FLIGHT) from None
        while self.conn.notifies() is not None:
            pass

    def interrupt(self) -> None:
        """Whoever uses it finds the connection broken, at once. From any thread."""
        conn = self.conn
        if conn is not None:
            with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(conn.socket)) as duplicate:
                duplicate.shutdown(socket.SHUT_RDWR)

    def forget(self) -> None:
        """In a child: the connection ends with the parent, whatever becomes of the child. libpq keeps the number of its socket."""
        if self.conn is not None:
            with contextlib.suppress(OSError, psycopg.Error), open(os.devnull, "rb+", buffering=0) as nothing:
                os.dup2(nothing.fileno(), self.conn.socket, inheritable=False)

    def close(self) -> None:
        if self.conn is not None:
            self.conn.finish()
            self.conn = None


def tell_states(conn: Any) -> None:
    """libpq keeps no SQLSTATE of a connection that is refused; this has it in the words, of which the server's are in its own language. psycopg lacks
    the call. A library has the symbols of those that it is linked with, such as the libpq of psycopg's wheels. Without one each refusal is asked again."""
    library = "libpq.so.5" if pq.__impl__ == "python" else sys.modules[type(conn).__module__].__file__
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(library).PQsetErrorVerbosity(ctypes.c_void_p(conn.pgconn_ptr), VERBOSE)


def refusal(words: str) -> LeaseholdError:
    """Of a connection. Where several servers were asked, one that is not ready (57P03) may take it later; else the last one counts."""
    states, words = STATE.findall(words), STATE.sub("", SOURCE.sub("", words))
    if not states:
        return Unavailable(words, "SOCKET_NOT_AVAILABLE")
    return translated("57P03" if "57P03" in states else states[-1], words)


def text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def failure(result: Any) -> LeaseholdError | None:
    if result.status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
        return None

    def field(which: Any) -> str:
        return (result.error_field(which) or b"").decode("utf-8", "replace")

    state, words = field(pq.DiagnosticField.SQLSTATE), field(pq.DiagnosticField.MESSAGE_PRIMARY)
    if not state:  # libpq's own: the connection broke
        return Unavailable(result.error_message.decode("utf-8", "replace").strip(), IN_FLIGHT)
    return translated(state, words)


def translated(state: str, words: str) -> LeaseholdError:
    kind, reason = next((kind, reason) for beginning, kind, reason in STATES if state.startswith(beginning))
    return kind(words, reason) if reason else kind(f"{words} (SQLSTATE {state})", state)
