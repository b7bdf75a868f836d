"""Ends what holders left to expire, with something of the caller's own in each lease's transaction, on a connection of psycopg 3.

    def put_back(connection, lease):
        connection.execute("update call set state = 'queued' where id = %s", [lease.key])

    with psycopg.connect("postgresql:///app") as connection:
        reap_stale(connection, put_back, namespaces=["calls"])
"""
from __future__ import annotations

import datetime
import inspect
import math
from dataclasses import dataclass
from typing import Any, Awaitable, Callable, NamedTuple, Sequence

from . import arguments
from .client import describe
from .runtime import clock, run
from .transaction import Awaiting, Blocking

MOST = 1000  # in a list
LIST = """
select is_stale, until_us, check_at_us, namespace, key, owner, token, acquired_at_us, deadline_at_us, limit_us
  from leasehold_internal.reap_stale_list($1::text[], $2::boolean, $3::integer, $4::bigint, $5::bigint, $6::text, $7::text, $8::bigint)"""
LIMIT = "select set_config('statement_timeout', $1::text, true)"
END = "select kind from leasehold_internal.reap_hooked(null, null, $1::text, $2::text, $3::bigint)"
AUDIT = "select leasehold_internal.audit_reaped(array[$1::text])"
FAILED = "select 1 from leasehold_internal.reap_failed(null, $1::text, $2::text, $3::bigint, $4::text)"


@dataclass(frozen=True)
class StaleLease:
    namespace: str
    key: str
    owner: str | None
    token: int
    acquired_at: datetime.datetime  # by the database's clock, as the deadline
    deadline: datetime.datetime
    limit: float  # seconds for the callback: hook_timeout of the policy; 0: none


class Reaped(NamedTuple):
    ended: int
    failed: int  # a hook or the callback failed: they stay expired, the words are written down, and they are tried again later


def reap_stale(connection: Any, callback: Callable[[Any, StaleLease], object], *, namespaces: Sequence[str] = (), children: bool = False) -> Reaped:
    """Ends each expired lease of these namespaces (none: of all but those with reaper = external; children: and below them) in a transaction of its
    own, in which callback(connection, lease) is called, after the hooks in SQL. What the callback does commits with the end; it must not end the
    transaction. What it raises rolls both back and is written down in leasehold.reap_failure; other leases go on. What was not committed may be
    called again. The connection has no transaction open, and its role is a member of leasehold_admin or leasehold_coordinator."""
    arguments.callback("callback", callback)
    return run(Reaper(Blocking, connection, callback, namespaces, children).run())


async def reap_stale_async(connection: Any, callback: Callable[[Any, StaleLease], Awaitable[object]], *, namespaces: Sequence[str] = (),
                           children: bool = False) -> Reaped:
    """As reap_stale, on a psycopg.AsyncConnection and with a coroutine function."""
    return await Reaper(Awaiting, connection, callback, namespaces, children).run()


def at(micros: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(0, datetime.timezone.utc) + datetime.timedelta(microseconds=micros)


class Reaper:
    def __init__(self, kind: type[Blocking], connection: Any, callback: Any, namespaces: Sequence[str], children: bool) -> None:
        if isinstance(namespaces, str):
            raise arguments.refused("namespaces", namespaces, "a list of namespaces")
        self.kind, self.connection, self.callback, self.children = kind, connection, callback, children
        self.namespaces = [arguments.namespace_text(each) for each in namespaces]
        self.until: int | None = None  # a sweep by name passes over what has failed since the first began
        self.ended = self.failed = 0

    async def run(self) -> Reaped:
        before = -1
        while self.ended > before:
            before = self.ended
            await self._sweep()
        return Reaped(self.ended, self.failed)

    async def _sweep(self) -> None:
        """Looks at everything once."""
        if not self.namespaces:
            self.until = None
        after: tuple[Any, ...] = (None, None, None, None)
        while True:
            rows = await self._in_transaction(lambda link: link.rows(LIST, self.namespaces or None, self.children, MOST, self.until, *after))
            for is_stale, until, check_at, namespace, key, owner, token, acquired_at, deadline, limit in rows:
                self.until, after = until, (check_at, namespace, key, token)
                if is_stale:
                    await self._visit(StaleLease(namespace, key, owner, token, at(acquired_at), at(deadline), (limit or 0) / 1e6))
            if len(rows) < MOST:
                return

    async def _in_transaction(self, work: Callable[[Blocking], Awaitable[Any]]) -> Any:
        link = self.kind(self.connection)
        await link.begin()
        try:
            done = await work(link)
        except BaseException as error:
            await link.end(error)
            raise
        await link.end(None)
        return done

    async def _visit(self, lease: StaleLease) -> None:
        try:
            kind = await self._in_transaction(lambda link: self._end(link, lease))
        except Exception as error:
            if self.connection.broken or self.connection.closed:
                raise
            words = describe(error)
            await self._in_transaction(lambda link: link.rows(FAILED, lease.namespace, lease.key, lease.token, words))
            kind = "failed"
        self.ended += kind == "reaped"
        self.failed += kind == "failed"

    async def _end(self, link: Blocking, lease: StaleLease) -> str:
        await link.rows(LIMIT, str(math.ceil(lease.limit * 1000)))
        rows = await link.rows(END, lease.namespace, lease.key, lease.token)
        kind = str(rows[0][0]) if rows else ""
        if kind == "reaped":
            begun = clock()
            done = self.callback(self.connection, lease)
            if inspect.isawaitable(done):
                await done
            if lease.limit and clock() - begun > lease.limit:
                raise TimeoutError(f"it ran over its limit of {lease.limit} s")
            if self.namespaces:
                await link.rows(AUDIT, lease.namespace)
        return kind
