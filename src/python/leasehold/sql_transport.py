"""Leases in SQL, without a daemon.

Renewals have a connection of their own. So has each call that acquires or releases, for as long as it lasts; one of these is kept
for the next. A call that waits has a place in the queue (join_queue) and hears by LISTEN when its turn has come. It looks by
itself too, seldom: an expired lease is nobody's to announce. Behind a pooler that gives each transaction another session LISTEN hears
nothing: then the client says so and looks twice a second.
"""
from __future__ import annotations

import contextlib
import datetime
import json
import logging
import math
from typing import Any, Sequence

from . import arguments
from .errors import Held, LeaseholdError, Unavailable, scope_name
from .hand_over import HandOver
from .lease import BaseLease
from .look import Explanation, explanation
from .runtime import Runtime, clock, interval
from .session import Session
from .ticks import Claimed
from .transport import Answer, Grant, Ref, Release, together

log = logging.getLogger("leasehold")

POLL_S, POOLED_POLL_S = 2.0, 0.5
CLAIM_POLL_S, BUSY_S = 30.0, 0.25  # a tick may be due, and no more may run at the same time
GRANT = "select g.token, g.left_s, g.units, to_json(g.slots)::text, g.is_final::text"
ACQUIRE = GRANT + " from leasehold.acquire_one($1, $2, $3::float8, $4, $5::uuid, $6::jsonb, $7::float8, $8, $9::integer, $10::integer) g"
ACQUIRE_ALL = GRANT + " from leasehold.acquire_all($1::text[], $2::text[], $3::interval, $4, $5::uuid, $6::jsonb, $7::text[], $8::integer[]) a, leasehold.granted(a) g"
CLAIM = GRANT + ", (c.lease).key, extract(epoch from c.at), c.attempt from leasehold.claim_tick($1, $2, $3::interval, $4::uuid, $5::jsonb) c, leasehold.granted(c.lease) g"
UNTIL_TICK = "select extract(epoch from leasehold.until_tick($1))"
DOWNGRADE = GRANT + " from leasehold.downgrade_soon($1, $2, $3::uuid, $4::integer) a, leasehold.granted(a) g"
CONTENTION = """
select n, state, holder, waiters, advice, holders, units_free, is_alive::text, silent_s, held_s, holders_now
  from leasehold.contention($1::text[], $2::text[], $3::text[])"""
HEARTBEAT = "select left_s, given_s, reason from leasehold.heartbeat_each($1::text[], $2::text[], $3::uuid[])"
RELEASE = "select reason from leasehold.release_each($1::text[], $2::text[], $3::uuid[], $4::boolean[], $5::text[]) reason"
ASKED = "select * from leasehold.asked_each($1::text[], $2::text[], $3::uuid[])"
ASK = "select * from leasehold.ask_each($1, $2, $3::uuid, $4)"
END_REASON = "select leasehold.end_reason($1, $2, $3::uuid)"
LEAVE = "select leasehold.leave_each(array[$1], array[$2], array[$3::uuid])"


def array(values: Sequence[str | None]) -> str:
    return "{" + ",".join("null" if each is None else '"' + each.replace("\\", "\\\\").replace('"', '\\"') + '"' for each in values) + "}"


def wanted(lease: BaseLease) -> tuple[str | None, ...]:
    """The parameters of ACQUIRE."""
    asked = lease._asked
    return (asked.namespace, asked.key, str(asked.duration), asked.owner, lease.lease_key, json.dumps(asked.labels),
            None if asked.at_least is None else str(asked.at_least), asked.mode, str(asked.units or 1), str(asked.priority))


def moment(epoch: str | float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(float(epoch), datetime.timezone.utc)


def hand_over(row: Sequence[Any]) -> HandOver:
    """Of ASK's row, or ASKED's."""
    _, asked_us, asked_by, principal, reason, answer_by_us, answer_in_us, refusal, owner, token = row
    at, answer_by, answer_in = (int(each) / 1e6 for each in (asked_us, answer_by_us, answer_in_us))
    return HandOver(moment(at), asked_by, principal, reason, moment(answer_by), answer_in, refusal, owner, int(token) or None)


def granted(row: Sequence[str | None], sent: float) -> Grant:
    token, left, units, slots, is_final = row
    return Grant(int(token or 0), sent + float(left or 0), int(units or 0), tuple(json.loads(slots or "[]")), is_final=is_final == "true")


def in_the_way(lease: BaseLease) -> tuple[str, str, str]:
    """The parameters of CONTENTION."""
    asked = lease._asked
    scopes = [(each.namespace, each.key, each.shared) for each in asked.scopes] or [(asked.namespace, asked.key, asked.mode == "shared")]
    return array([each[0] for each in scopes]), array([each[1] for each in scopes]), array(["shared" if each[2] else "exclusive" for each in scopes])


def held(lease: BaseLease, row: Sequence[Any]) -> Held:
    """Of CONTENTION's row."""
    n, state, holder, waiters, advice, holders, free, is_alive, silent_for, held_for, _ = row
    asked = lease._asked
    name = scope_name(*(asked.scopes[int(n) - 1][:2] if asked.scopes else (asked.namespace, asked.key)))
    words = f"lease {name} is {'held by ' + (holder or 'somebody') if state == 'held' else state}: {advice}"
    has_waited = asked.while_alive or 0 < asked.wait < math.inf
    found = Held(words, holder, int(waiters or 0), "WAIT_TIMEOUT" if has_waited else "LEASE_HELD", int(holders or 0), None if free is None else int(free))
    if is_alive is not None:
        found.is_alive, found.silent_for, found.held_for = is_alive == "true", float(silent_for or 0), float(held_for or 0)
    return found


class SqlTransport:
    def __init__(self, conninfo: str, runtime: Runtime, timeout: float) -> None:
        self.conninfo, self.runtime, self.timeout = conninfo, runtime, timeout
        self.poll_s, self.claim_poll_s = POLL_S, CLAIM_POLL_S
        self.idle: list[Session] = []
        self.used: set[Session] = set()
        self.renewal = Session(conninfo, runtime)
        self.is_closed = self.has_warned = self.is_deaf = False

    async def session(self, until: float) -> Session:
        try:
            session = self.idle.pop()
        except IndexError:
            session = Session(self.conninfo, self.runtime)
        self.used.add(session)
        try:
            await self._open(session, until)
            return session
        except BaseException:
            self.used.discard(session)
            raise

    async def _open(self, session: Session, until: float) -> None:
        if self.is_closed:
            raise Unavailable("the client is closed", "CLOSED")
        if session.conn is None:
            await session.open(until)

    def give_back(self, session: Session) -> None:
        self.used.discard(session)
        if self.idle or self.is_closed:
            session.close()
        elif session.conn is not None:
            self.idle.append(session)

    # -- acquire

    async def acquire(self, lease: BaseLease, wait_until: float, timeout: float) -> Grant:
        if lease._asked.scopes and lease._asked.wait:
            raise arguments.refused("wait", lease._asked.wait, "0 for several keys in SQL, which do not wait")
        session = await self.session(clock() + timeout)
        lease._cancel_by(session.interrupt)
        try:
            if lease._asked.scopes:
                return await self._try_all(session, lease, timeout)
            if lease._asked.is_tick:
                return await self._claim(session, lease, timeout)
            grant = await self._try(session, lease, timeout)
            if grant is None and wait_until > clock():
                grant = await self._wait(session, lease, wait_until, timeout)
            if grant is None:
                raise await self._held(session, lease, timeout)
            return grant
        finally:
            lease._cancel = None
            self.give_back(session)

    async def _try(self, session: Session, lease: BaseLease, timeout: float) -> Grant | None:
        sent = clock()
        rows = await session.query(ACQUIRE, wanted(lease), sent + timeout)
        return granted(rows[0], sent) if rows else None

    async def _try_all(self, session: Session, lease: BaseLease, timeout: float) -> Grant:
        asked, sent = lease._asked, clock()
        rows = await session.query(ACQUIRE_ALL, (
            array([each.namespace for each in asked.scopes]), array([each.key for each in asked.scopes]), interval(asked.duration), asked.owner,
            lease.lease_key, json.dumps(asked.labels), array(["shared" if each.shared else "exclusive" for each in asked.scopes]),
            array([str(each.units) for each in asked.scopes])), sent + timeout)
        if rows:
            return together([granted(row, sent) for row in rows])
        raise await self._held(session, lease, timeout)

    async def _wait(self, session: Session, lease: BaseLease, wait_until: float, timeout: float) -> Grant | None:
        where = (lease.namespace, lease.key, lease.lease_key)
        poll, is_listening, asked = self._poll(session, self.poll_s), False, ""
        try:
            while True:
                # A place that is not asked for again is free after this.
                ttl = min(max(4 * poll, 10.0), 86400.0)
                channel = (await session.query("select channel from leasehold.join_queue($1, $2, $3::uuid, $4::interval, $5, $6::integer, priority => $7::integer)",
                                               (*where, interval(ttl), lease._asked.mode, str(lease._asked.units or 1), str(lease._asked.priority)), clock() + timeout))[0][0]
                if not is_listening and not session.is_pooled:
                    await session.query(f'listen "{channel}"', (), clock() + timeout)
                is_listening = True
                grant = await self._try(session, lease, timeout)
                if lease._asked.ask_hand_over and grant is None:
                    asked = await self._ask(session, lease, asked, timeout)
                if lease._asked.while_alive:
                    is_alive = (await self._held(session, lease, timeout)).is_alive
                    wait_until = math.inf if is_alive is not False else min(wait_until, clock() + lease._asked.wait)
                left = wait_until - clock()
                if grant is not None or left <= 0:
                    return grant
                await session.notified(min(poll, left))
        finally:
            if session.conn is not None:
                await self._leave(session, lease, timeout)

    @staticmethod
    async def _ask(session: Session, lease: BaseLease, asked: str, timeout: float) -> str:
        """Asks the holders to hand over, once: `asked` says whom it has asked, and so does the answer."""
        now: str = (await session.query(CONTENTION, in_the_way(lease), clock() + timeout))[0][-1]
        if now != asked:
            await session.query(ASK, (lease.namespace, lease.key, lease.lease_key, ""), clock() + timeout)
        return now

    async def _claim(self, session: Session, lease: BaseLease, timeout: float) -> Grant:
        asked = lease._asked
        poll = self._poll(session, self.claim_poll_s)
        try:
            if not session.is_pooled:
                channel = (await session.query("select leasehold.tick_channel($1)", (asked.namespace,), clock() + timeout))[0][0]
                await session.query(f'listen "{channel}"', (), clock() + timeout)
            while True:
                sent = clock()
                values = (asked.namespace, asked.owner, interval(asked.duration), lease.lease_key, json.dumps(asked.labels))
                for *row, key, at, attempt in await session.query(CLAIM, values, sent + timeout):
                    grant = granted(row, sent)
                    grant.claimed = Claimed(key, moment(at), int(attempt))
                    return grant
                left = (await session.query(UNTIL_TICK, (asked.namespace,), clock() + timeout))[0][0]
                await session.notified(poll if left is None else min(poll, max(float(left), BUSY_S)))
        finally:
            if session.conn is not None and not session.is_pooled:
                await self._unlisten(session, timeout)

    @staticmethod
    async def _unlisten(session: Session, timeout: float) -> None:
        with contextlib.suppress(Unavailable):
            await session.query("unlisten *", (), clock() + timeout)

    async def _leave(self, session: Session, lease: BaseLease, timeout: float) -> None:
        try:
            await session.query("select leasehold.leave_queue($1, $2, $3::uuid)", (lease.namespace, lease.key, lease.lease_key),
                                clock() + timeout)
            if not session.is_pooled:
                await session.query("unlisten *", (), clock() + timeout)
        except Unavailable:
            log.info("the place in the queue of %s ends by itself", scope_name(lease.namespace, lease.key))

    def _poll(self, session: Session, usual: float) -> float:
        if not session.is_pooled:
            return usual
        if not self.has_warned:
            self.has_warned = True
            log.warning("a pooler is between this client and PostgreSQL: waiting for a lease polls every %s s instead of LISTEN",
                        POOLED_POLL_S)
        return POOLED_POLL_S

    async def _held(self, session: Session, lease: BaseLease, timeout: float) -> Held:
        return held(lease, (await session.query(CONTENTION, in_the_way(lease), clock() + timeout))[0])

    # -- downgrade

    async def downgrade(self, ref: Ref, units: int, until: float) -> Grant:
        sent = clock()
        session = await self.session(until)
        try:
            rows = await session.query(DOWNGRADE, (ref.namespace, ref.key, ref.lease_key, str(units)), until)
            return granted(rows[0], sent)
        finally:
            self.give_back(session)

    # -- renew and release, on the connection for renewals

    async def heartbeat(self, refs: Sequence[Ref], until: float) -> list[Answer]:
        try:
            return await self._heartbeat(refs, until)
        except Unavailable as error:
            if error.reason != "SCOPE_BUSY" or len(refs) == 1:
                raise
        # Somebody keeps the row of one of them locked: the others go without it.
        answers = []
        for ref in refs:
            try:
                answers += await self._heartbeat([ref], until)
            except Unavailable:
                answers.append(Answer("retry"))
        return answers

    async def _heartbeat(self, refs: Sequence[Ref], until: float) -> list[Answer]:
        await self._open(self.renewal, until)
        return await self._beat(self.renewal, refs, until)

    async def _beat(self, session: Session, refs: Sequence[Ref], until: float) -> list[Answer]:
        values = tuple(array(column) for column in zip(*((each.namespace, each.key, each.lease_key) for each in refs)))
        rows = await session.query(HEARTBEAT, values, until)
        asked = await self._requests(session, values, until) if any(ref.is_listening for ref in refs) else {}
        return [Answer("lost", reason) if reason else Answer("ok", "", float(left), float(given) < ref.duration, asked.get(n) if ref.is_listening else None)
                for n, ((left, given, reason), ref) in enumerate(zip(rows, refs), 1)]

    async def _requests(self, session: Session, values: tuple[str, ...], until: float) -> dict[int, HandOver]:
        """Of renewals that are committed, in half of the time that is left. Without an answer the next renewal reads them."""
        try:
            rows = await session.query(ASKED, values, (clock() + until) / 2)
        except LeaseholdError as error:
            if not self.is_deaf:
                self.is_deaf = True
                log.warning("requests to hand over are not heard: %s", error)
            return {}
        return {int(row[0]): hand_over(row) for row in rows}

    async def settle(self, ref: Ref, until: float) -> Answer:
        session = await self.session(until)
        try:
            return (await self._beat(session, [ref], until))[0]
        finally:
            self.give_back(session)

    async def release(self, items: Sequence[Release], until: float) -> list[Answer]:
        session = await self.session(until)
        try:
            if len(items) > 1:
                try:
                    return await self._release(session, items, until)
                except LeaseholdError:  # of one of them: then one by one
                    if session.conn is None:
                        raise
            return [await self._release_one(session, item, until) for item in items]
        finally:
            self.give_back(session)

    @staticmethod
    async def _release(session: Session, items: Sequence[Release], until: float) -> list[Answer]:
        """In one statement."""
        columns = zip(*((each.ref.namespace, each.ref.key, each.ref.lease_key, "f" if each.failure is None else "t",
                         each.result if each.failure is None else each.failure) for each in items))
        rows = await session.query(RELEASE, tuple(map(array, columns)), until)
        for (reason,), item in zip(rows, items):
            if reason:  # a caller who gave up in the middle of a statement may have left its place
                await session.query(LEAVE, (item.ref.namespace, item.ref.key, item.ref.lease_key), until)
        return [Answer("lost", reason) if reason else Answer("ok", "") for reason, in rows]

    async def _release_one(self, session: Session, item: Release, until: float) -> Answer:
        try:
            return (await self._release(session, [item], until))[0]
        except LeaseholdError as error:
            if isinstance(error, Unavailable) and error.reason != "SCOPE_BUSY":
                raise
            return Answer("retry") if isinstance(error, Unavailable) else Answer("denied", str(error))

    async def end_reason(self, ref: Ref, until: float) -> str:
        session = await self.session(until)
        try:
            return (await session.query(END_REASON, (ref.namespace, ref.key, ref.lease_key), until))[0][0] or "unknown"
        except LeaseholdError:  # what is known is that it is lost
            return "unknown"
        finally:
            self.give_back(session)

    async def ask_hand_over(self, namespace: str, key: str, reason: str, owner: str, until: float) -> list[HandOver]:
        session = await self.session(until)
        try:
            return [hand_over(row) for row in await session.query(ASK, (namespace, key, None, reason), until)]
        finally:
            self.give_back(session)

    async def refuse_hand_over(self, ref: Ref, words: str, until: float) -> bool:
        session = await self.session(until)
        try:
            rows = await session.query("select leasehold.refuse_hand_over($1, $2, $3::uuid, $4)", (ref.namespace, ref.key, ref.lease_key, words), until)
            return bool(rows[0][0] == "t")
        finally:
            self.give_back(session)

    async def explain(self, namespace: str, key: str, until: float) -> Explanation:
        session = await self.session(until)
        try:
            rows = await session.query("select to_jsonb(e)::text from leasehold.explain($1, $2) e", (namespace, key), until)
            return explanation(json.loads(rows[0][0]))
        finally:
            self.give_back(session)

    async def interrupt(self) -> None:
        self.is_closed = True
        for session in [self.renewal, *self.used]:
            session.interrupt()

    async def close(self) -> None:
        self.renewal.close()
        while self.idle:
            self.idle.pop().close()

    def forget(self) -> None:
        for session in [self.renewal, *self.idle, *self.used]:
            session.forget()
