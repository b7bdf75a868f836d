"""One connection to PostgreSQL, by libpq's own calls (psycopg.pq): nothing waits longer than its caller wants, which DB-API cannot say,
and blocking and asynchronous programs share the code."""
from __future__ import annotations

import contextlib
import os
import re
import socket
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

# libpq tells no SQLSTATE of a connection that was refused, and psycopg cannot make it tell. In another language than English it is asked again.
REFUSED = {"28P01": "authentication failed", "28000": 'no pg_hba.conf entry|role ".*" does not exist', "3D000": 'database ".*" does not exist'}
STARTING = "the database system is "  # starting up, shutting down, not yet accepting connections, in recovery mode (57P03)


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
            self.close()  # what it was to do may still happen
            raise Unavailable("PostgreSQL does not answer in time", "DATABASE_UNAVAILABLE")

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
            raise Unavailable(str(broken).strip(), "DATABASE_UNAVAILABLE") from None
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
                raise Unavailable(str(error).strip(), "DATABASE_UNAVAILABLE") from None
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


def refusal(words: str) -> LeaseholdError:
    """Of a connection. Where several servers were asked, one that starts may take it later; else the last one's words count."""
    last = words.rsplit("connection to server ", 1)[-1]
    state = "" if STARTING in words else next((state for state, said in REFUSED.items() if re.search(said, last)), "")
    return translated(state, words) if state else Unavailable(words, "DATABASE_UNAVAILABLE")


def text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def failure(result: Any) -> LeaseholdError | None:
    if result.status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
        return None

    def field(which: Any) -> str:
        return (result.error_field(which) or b"").decode("utf-8", "replace")

    state, words = field(pq.DiagnosticField.SQLSTATE), field(pq.DiagnosticField.MESSAGE_PRIMARY)
    if not state:  # libpq's own: the connection broke
        return Unavailable(result.error_message.decode("utf-8", "replace").strip(), "DATABASE_UNAVAILABLE")
    return translated(state, words)


def translated(state: str, words: str) -> LeaseholdError:
    kind, reason = next((kind, reason) for beginning, kind, reason in STATES if state.startswith(beginning))
    return kind(words, reason) if reason else kind(f"{words} (SQLSTATE {state})", state)
