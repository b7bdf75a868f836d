"""A lease that begins or ends in a transaction on the caller's own connection (psycopg 3): its row commits with the caller's, or neither does.

The package begins the transaction and commits it, so it knows the outcome: a lease is renewed from the commit that acquires it, and until
the commit that releases it. A connection that has a transaction open is refused: its COMMIT would be somebody else's, and the client would
believe in a lease that is gone, or stop renewing one that is not. When the connection breaks at COMMIT, a heartbeat tells whether the lease
is still held: the transaction has its row locked, so no answer comes before the transaction's end.
"""
from __future__ import annotations

import json
import re
import uuid
from types import TracebackType
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from . import arguments, telemetry
from .errors import InvalidArgument, LeaseLost, Unavailable, scope_name
from .lease import BaseLease
from .runtime import clock, run
from .session import translated
from .sql_transport import ACQUIRE, CONTENTION, granted, held, in_the_way, wanted
from .transport import Grant


class Blocking:
    """A psycopg.Connection, in the form of the other."""

    kind: Any = psycopg.Connection

    def __init__(self, connection: Any) -> None:
        if not isinstance(connection, self.kind):
            raise arguments.refused("connection", connection, f"a psycopg.{self.kind.__name__}")
        status = TransactionStatus(connection.info.transaction_status)
        if status != TransactionStatus.IDLE:
            raise InvalidArgument("connection must be open, with no transaction begun: this begins one, and commits it; it is "
                                  + status.name, "INVALID_ARGUMENT")
        self.connection = connection
        self.transaction: Any = connection.transaction()

    async def begin(self) -> None:
        self.transaction.__enter__()

    async def end(self, error: BaseException | None) -> bool:
        """Commits, or rolls back. True: the error has done what it was for."""
        return bool(self.transaction.__exit__(type(error) if error else None, error, error.__traceback__ if error else None))

    async def rows(self, sql: str, *values: Any) -> Any:
        with self.connection.cursor(row_factory=tuple_row) as cursor:
            return cursor.execute(*statement(sql, values)).fetchall()

    async def row(self, sql: str, *values: Any) -> Any:
        return next(iter(await self.rows(sql, *values)), None)


class Awaiting(Blocking):
    kind = psycopg.AsyncConnection

    async def begin(self) -> None:
        await self.transaction.__aenter__()

    async def end(self, error: BaseException | None) -> bool:
        return bool(await self.transaction.__aexit__(type(error) if error else None, error, error.__traceback__ if error else None))

    async def rows(self, sql: str, *values: Any) -> Any:
        async with self.connection.cursor(row_factory=tuple_row) as cursor:
            return await (await cursor.execute(*statement(sql, values))).fetchall()


def statement(sql: str, values: tuple[Any, ...]) -> tuple[str, dict[str, Any]]:
    """The statement with $1 as psycopg writes it, and its values by name."""
    return re.sub(r"\$(\d+)", r"%(p\1)s", sql), {f"p{n}": value for n, value in enumerate(values, 1)}


def is_answered(error: BaseException) -> bool:
    """PostgreSQL says that the transaction was rolled back. A server that shuts down says nothing of it."""
    state = getattr(error, "sqlstate", None) or ""
    return bool(state) and not state.startswith(("08", "57P"))


class Step:
    """For `with` or `async with`: the body is the rest of the transaction."""

    def __init__(self, lease: BaseLease, link: Blocking) -> None:
        if lease._asked.is_tied:
            raise InvalidArgument("a leader's lease neither begins nor ends in a transaction", "INVALID_ARGUMENT")
        lease._is_single("begin or end in a transaction")
        self.lease, self.core, self.link = lease, lease._core, link
        self.name = scope_name(lease.namespace, lease.key)
        self.is_sent = False  # nothing but COMMIT follows

    async def first(self) -> None:
        """Before the body."""

    async def last(self) -> None:
        """After the body, before COMMIT."""

    def done(self) -> None:
        raise NotImplementedError

    async def failed(self, error: BaseException) -> bool:
        """Whether it was committed all the same."""
        raise NotImplementedError

    async def enter(self) -> BaseLease:
        await self.link.begin()
        try:
            await self.first()
        except BaseException as error:
            if not await self.exit(error):
                raise
        return self.lease

    async def exit(self, body: BaseException | None) -> bool:
        """True: there is no error, or it is over."""
        try:
            return await self._exit(body)
        except BaseException:
            if self.lease._is_ending or self.lease._is_asked:  # torn away, as by Ctrl-C
                self.core.drop(self.lease)
            raise

    async def _exit(self, body: BaseException | None) -> bool:
        error = body
        try:
            if error is None:
                await self.last()
                self.is_sent = True
        except BaseException as trouble:
            error = trouble
        is_over = False
        try:
            is_over = await self.link.end(error)
        except BaseException as trouble:
            error = error or trouble
        if error is None:
            self.done()
            return True
        if await self.failed(error) and isinstance(error, Exception):
            return True
        if isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith("LH"):
            raise translated(str(error.sqlstate), error.diag.message_primary or str(error)) from error
        if error is not body:
            raise error
        return is_over

    def unknown(self, error: BaseException, consequence: str) -> Unavailable:
        return Unavailable(f"the outcome of the transaction is unknown, for COMMIT was not answered ({str(error).strip()}); the lease "
                           f"{self.name} {consequence}", "UNKNOWN_OUTCOME")

    def __enter__(self) -> BaseLease:
        return run(self.enter())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        return run(self.exit(error)) and error is not None

    async def __aenter__(self) -> BaseLease:
        return await self.enter()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        return await self.exit(error) and error is not None


class Releasing(Step):
    def __init__(self, lease: BaseLease, link: Blocking, result: Any, failure: str | None) -> None:
        super().__init__(lease, link)
        if failure is not None and not isinstance(failure, str):
            raise arguments.refused("failure", failure, "a string")
        self.result, self.failure = result, failure

    async def first(self) -> None:
        self.lease.check()

    async def last(self) -> None:
        lease, result = self.lease, self.lease.result if self.result is None else self.result
        value = None if result is None else json.dumps(result)
        call = "release_ok($1, $2, $3::uuid, $4::jsonb)"
        if self.failure is not None:
            value, call = arguments.shown(self.failure), "release_fail($1, $2, $3::uuid, $4::text)"
        self.core.leave(lease)
        row = await self.link.row("select leasehold." + call, lease.namespace, lease.key, lease.lease_key, value)
        if not row[0]:
            self.core.stay(lease)
            lease._lose(await self.core.settle(lease) or "unknown")
            lease.check()

    async def failed(self, error: BaseException) -> bool:
        """Else the lease goes on, if it is still there."""
        reason = None
        if self.is_sent and not is_answered(error):
            reason = await self.core.settle(self.lease)
        if reason == "unknown":
            self.core.unsure(self.lease)
            raise self.unknown(error, "counts as lost") from error
        if reason == ("released" if self.failure is None else "failed"):
            self.done()
            return True
        self.core.stay(self.lease)
        if reason is not None:
            self.lease._lose(reason)
        return False

    def done(self) -> None:
        self.lease._is_ending = False
        self.lease._tell("on_released")


class Acquiring(Step):
    grant: Grant
    has_claimed = False

    def __init__(self, lease: BaseLease, link: Blocking) -> None:
        super().__init__(lease, link)
        if lease._asked.wait or lease._asked.while_alive:
            raise arguments.refused("wait", lease._asked.wait, "0 in a transaction, without while_alive")

    async def first(self) -> None:
        lease = self.lease
        lease._claim(is_entering=False)
        self.has_claimed = True
        lease._story = telemetry.begin(lease._asked)
        lease.lease_key, lease.lost = str(uuid.uuid4()), None
        await self.core.orphans.follow(lease, clock() + self.core.timeout)
        sent = clock()
        row = await self.link.row(ACQUIRE, *wanted(lease))
        if row is None:
            raise held(lease, await self.link.row(CONTENTION, *in_the_way(lease)))
        self.grant = granted(row, sent)
        lease.token, lease.units, lease.slots = self.grant.token, self.grant.units, self.grant.slots

    async def last(self) -> None:
        if clock() >= self.grant.deadline - self.lease._margin:
            raise LeaseLost(f"the transaction took longer than the lease {self.name} lasts: it is rolled back", "expired")

    async def failed(self, error: BaseException) -> bool:
        """Else nobody holds it."""
        if self.is_sent and not is_answered(error):
            if await self.core.settle(self.lease) is None:
                self.grant.deadline, self.grant.is_final = self.lease._deadline, self.lease._is_final
                self.done()
                return True
            self.lease.token = 0
            self.core.drop(self.lease)
            unknown = self.unknown(error, "is given back if it was acquired")
            self.lease._story.refused(unknown)
            raise unknown from error
        if self.has_claimed:
            self.lease._is_asked, self.lease.token = False, 0
            self.lease._story.refused(error)
        return False

    def done(self) -> None:
        self.core.hold(self.lease, self.grant)
        self.lease._is_asked = False
