"""What a client does, over either transport and in either way of waiting: acquire, renew, release, and clean up after itself.

One renewal loop (a thread or a task) looks after all leases of a client. A lease that leaves it, released or lost, is never
renewed again. The loop also releases what orphans.py has.
"""
from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import socket
import sys
import threading
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, Coroutine, TypeVar

from . import arguments, telemetry
from .errors import Denied, Held, InvalidArgument, LeaseEnded, LeaseholdError, LeaseLost, Unavailable, scope_name
from .forks import CORES
from .lease import BaseLease
from .nested import around
from .orphans import FLUSH_S, MOST_RELEASES, Orphans
from .retry import Retrying, Strategy, best_effort, best_effort_pause
from .runtime import Runtime, clock
from .transport import BATCH, Answer, Grant, Ref, Release, Transport, combined

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")
log = logging.getLogger("leasehold")

PATIENCE = 4  # a renewal waits a quarter of a duration for its answer, then it is sent anew
LOOK_S = 0.5  # the longest sleep of the loop: a machine that was suspended is noticed so soon


class Core:
    def __init__(self, transport: Transport, runtime: Runtime, owner: str | None, timeout: float, strategy: Strategy = best_effort) -> None:
        self.transport, self.runtime, self.timeout, self.strategy = transport, runtime, timeout, strategy
        self.given_owner = arguments.owner_text(owner) if owner is not None else ""
        self.live_here()
        self.leases: dict[str, BaseLease] = {}
        self.orphans = Orphans(self)
        self.is_closed = False
        self.wake = runtime.flag()
        self.loop: Any = None  # the renewals
        self.place: Any = None
        self.readers: set[Any] = set()  # of ties
        CORES.add(self)

    def live_here(self) -> None:
        self.pid, self.lock = os.getpid(), threading.RLock()
        self.owner = self.given_owner or f"{socket.gethostname()}/{os.path.basename(sys.argv[0] or 'python')}/{self.pid}"

    def is_forked(self) -> bool:
        return self.pid != os.getpid()

    # -- acquire

    async def acquire(self, lease: BaseLease) -> None:
        """Fills in the lease, or raises. The caller has claimed it. Of a tick it tells the telemetry when it has come: before, nothing is awaited but time."""
        lease._story = story = telemetry.SILENT if lease._asked.is_tick else telemetry.begin(lease._asked)
        try:
            with story.current("acquire"):
                await self._acquire(lease)
        except BaseException as error:
            story.refused(error)
            raise

    async def _acquire(self, lease: BaseLease) -> None:
        """Repeats what was not answered under the same lease key: the same acquisition."""
        wait_until = math.inf if lease._asked.while_alive else clock() + lease._asked.wait
        give_up = wait_until + self.timeout
        verb = "AcquireAll" if lease._asked.scopes else "ClaimTick" if lease._asked.is_tick else "Acquire"
        retrying, is_repeated = self._retrying(verb, lease), False
        first: Unavailable | None = None  # it often says more than the last: gRPC forgets why a handshake failed
        lease.lease_key, lease.lost = str(uuid.uuid4()), None
        lease._around = list(around())
        for each in lease._around:
            each._nested.add(lease)
        try:
            await self.orphans.follow(lease, clock() + self.timeout)
            while True:
                for each in lease._around:
                    if each.lost is not None:
                        raise each._loss()
                try:
                    grant = await self.transport.acquire(lease, wait_until, self.timeout if lease._asked.waits else self.time())
                    break
                except LeaseEnded:
                    # The daemon had granted it, saw the connection break and took the lease back; or one of several has ended.
                    if not is_repeated:
                        raise
                    if lease._asked.scopes:
                        await self._give_back(lease, clock() + self.timeout)
                    lease.lease_key, is_repeated = str(uuid.uuid4()), False
                except (Held, Unavailable) as error:
                    if isinstance(error, Unavailable):
                        is_repeated, first = True, first or error
                    if any(each.lost is not None for each in lease._around):
                        continue
                    delay = None if self.is_closed else retrying.delay(error, give_up - clock())
                    if delay is None:
                        if first is None or isinstance(error, Held) or str(first) == str(error):
                            raise
                        raise Unavailable(f"{error}; at first: {first}", error.reason) from None
                    await self.runtime.sleep(delay)
            self.hold(lease, grant)
        except BaseException as error:
            lease._is_entered = False
            if is_repeated or not isinstance(error, (Held, Denied, InvalidArgument)):
                self.drop(lease)  # the grant may be on its way
            raise
        finally:
            lease._is_asked, lease._cancel = False, None
            for each in lease._around:
                each._nested.discard(lease)

    async def _give_back(self, lease: BaseLease, until: float) -> None:
        """What is left of several under a lease key, before they are acquired with another: they would wait for it. After `until` the loop goes on."""
        items = [Release(each) for each in self._refs(lease)]
        failures = 0
        while items and clock() < until and not self.is_closed:
            with contextlib.suppress(Unavailable):
                answers = await self.transport.release(items, self._try_until(lease, until))
                items = [item for item, answer in zip(items, answers) if answer.outcome == "retry"]
            if items:
                failures += 1
                await self.runtime.sleep(best_effort_pause(failures))
        self.orphans.give_up(items, lease.duration)

    def hold(self, lease: BaseLease, grant: Grant) -> None:
        """From now on it is renewed."""
        with self.lock:
            lease._granted(grant)
            if grant.claimed is not None:
                lease._story = telemetry.begin(replace(lease._asked, key=lease.key))
            lease._story.granted(grant.token)
            lease._tie = grant.tie
            self.leases[lease.lease_key] = lease
            if grant.tie is not None:
                self._read(lease, grant.tie)
        self.wake.set()
        lease._tell("on_granted")

    def _retrying(self, verb: str, lease: BaseLease) -> Retrying:
        return Retrying(verb, lease.namespace, lease.key, lease._asked.strategy or self.strategy)

    async def repeat(self, retrying: Retrying, until: float, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Repeats what was not answered."""
        while True:
            try:
                return await call()
            except Unavailable as error:
                delay = None if self.is_closed else retrying.delay(error, until - clock())
                if delay is None:
                    raise
            await self.runtime.sleep(delay)

    def time(self) -> float:
        """Of a request that does not wait: what is left of the leases in whose bodies it is made, too. One that waits ends when such a lease is lost,
        as renewals move its deadline."""
        return min([self.timeout, *(left for each in around() if (left := each.remaining()))])

    def begin(self) -> None:
        if self.is_forked():
            raise LeaseholdError(f"this client was used in process {self.pid}, of which process {os.getpid()} is a fork: make a new one here", "FORKED")
        with self.lock:
            if self.is_closed:
                raise LeaseholdError("this client is closed", "CLOSED")
            if self.loop is not None and self.place is not self.runtime.place():  # its renewals ended with it, or go on there
                raise LeaseholdError("this client belongs to another event loop: make one for each", "OTHER_LOOP")
            if self.loop is None or _is_over(self.loop):  # a program may cancel each task that it finds
                self.place = self.runtime.place()
                self.loop = self.runtime.spawn(self._run(), "leasehold-renewal")

    @staticmethod
    def _ref(lease: BaseLease) -> Ref:
        return Ref(lease.namespace, lease.key, lease.lease_key, lease.duration, lease._asked.listeners["on_asked"] is not None)

    @staticmethod
    def _refs(lease: BaseLease) -> list[Ref]:
        return [Ref(namespace, key, lease.lease_key, lease.duration, lease._asked.listeners["on_asked"] is not None) for namespace, key in lease._scopes()]

    # -- downgrade

    async def downgrade(self, lease: BaseLease, units: int) -> None:
        """Repeats what was not answered. Renewals go on meanwhile: the lease key stays."""
        arguments.number_of_units(units)
        lease._is_single("be downgraded")
        if lease._asked.is_tied:
            raise InvalidArgument("a leader's lease stays exclusive", "INVALID_ARGUMENT")
        self.begin()
        end = clock() + self.time()

        async def once() -> Grant:
            lease.check()
            return await self.transport.downgrade(self._ref(lease), units, self._try_until(lease, end))

        try:
            grant = await self.repeat(self._retrying("Downgrade", lease), end, once)
        except LeaseLost as error:
            lease._lose(str(error.reason))
            lease.check()
            raise
        lease._look()  # before the lock: it may call on_lost
        with self.lock:
            if lease._is_held:
                lease._granted(grant)
                lease._story.downgraded(grant.token)
        lease.check()

    # -- release

    async def release(self, lease: BaseLease, result: Any = None, failure: str | None = None) -> bool:
        """True: given back. False: it was not held any more. The lease leaves the renewals first."""
        if lease._is_forked():
            return False
        try:
            items = self._items(lease, result, failure)
        except (TypeError, ValueError) as error:
            if not isinstance(error, InvalidArgument):
                await self.release(lease, failure=f"the result is no JSON: {error}")
            raise
        lease._look()
        with self.lock:
            if not lease._is_held:
                if lease.lost == "unreachable" or (lease.lost and lease._asked.scopes):
                    self.orphans.give_up(items, self.timeout)  # the server may still keep it for us, or the others of several
                if not lease._is_ending:
                    self._untie(lease)  # now, and not at the loss: until its stream ends, the next leader waits for this one's work
                return False
            lease._is_held, lease._is_ending = False, True
            self.leases.pop(lease.lease_key, None)
        lease._story.releasing()
        try:
            with lease._story.current("release"):
                return await self._release(lease, items)
        except BaseException as error:
            self.orphans.give_up(items, max(lease._deadline - clock(), 0))
            lease._story.ended(telemetry.error_type(error))
            raise
        finally:
            lease._is_ending = False
            self._untie(lease)

    def _items(self, lease: BaseLease, result: Any, failure: str | None) -> list[Release]:
        if failure is not None and not isinstance(failure, str):
            raise arguments.refused("failure", failure, "a string")
        value, words = None if result is None else json.dumps(result), failure and arguments.shown(failure)
        return [Release(each, value, words) for each in self._refs(lease)]

    def try_release(self, lease: BaseLease, result: Any, failure: str | None) -> bool:
        """The loop releases it, all of its kind in one request, until its deadline."""
        if lease._is_forked():
            return False
        items = self._items(lease, result, failure)
        lease._look()
        with self.lock:
            if not lease._is_held:
                return False
            if len(self.orphans) >= MOST_RELEASES:
                raise Unavailable(f"{MOST_RELEASES} releases wait already: the lease {lease._name()} ends by its deadline", "OVERLOADED")
            lease._is_held = False
            self.leases.pop(lease.lease_key, None)
            lease._story.releasing()
            self.orphans.add(items, lease._deadline, lease)
        self.wake.set()
        return True

    async def _release(self, lease: BaseLease, items: list[Release]) -> bool:
        is_repeated, lost, end = False, "", min(lease._deadline, clock() + self.timeout)
        retrying = self._retrying("Release", lease)
        delay: float | None = 0.0
        while delay is not None and not self.is_closed:
            await self.runtime.sleep(delay)
            try:
                answers = await self.transport.release(items, self._try_until(lease, end))
                for item, answer in zip(items, answers):
                    if answer.outcome == "denied":
                        raise Denied(f"the release of {scope_name(item.ref.namespace, item.ref.key)} was refused: {answer.reason}", answer.reason)
                    if answer.outcome == "lost":
                        reason = answer.reason if answer.reason != "unknown" else await self._end_reason(item.ref, end)
                        # A release that was asked before, and whose answer was lost on its way here or to the server, has ended the lease.
                        lost = lost or ("" if is_repeated and reason in ("released", "failed") else reason)
                items = [item for item, answer in zip(items, answers) if answer.outcome == "retry"]
                if not items and not lost:
                    lease._tell("on_released")
                    return True
                if not items:
                    lease.lost = lost
                    lease._tell_loss(lost)
                    return False
                delay = retrying.delay(Unavailable("not done yet", "OUTCOME_RETRY"), end - clock())
            except Unavailable as error:
                delay = retrying.delay(error, end - clock())
            is_repeated = True
        self.orphans.give_up(items, max(lease._deadline - clock(), 0))
        if self.is_closed:
            raise Unavailable(f"the client is closed: the lease {lease._name()} ends by its deadline", "CLOSED")
        raise Unavailable(f"no server answered the release of {lease._name()} in time; the lease ends by its deadline")

    async def _end_reason(self, ref: Ref, until: float) -> str:
        with contextlib.suppress(LeaseholdError):
            return await self.transport.end_reason(ref, until)
        return "unknown"

    def _try_until(self, lease: BaseLease, end: float) -> float:
        return min(end, clock() + min(max(lease.duration, 1.0), self.timeout) / PATIENCE)

    # -- released in a transaction of the caller's: transaction.py

    def leave(self, lease: BaseLease) -> None:
        """The renewals: the next statement of the transaction releases it."""
        lease.check()
        with self.lock:
            lease._is_held, lease._is_ending = False, True
            self.leases.pop(lease.lease_key, None)
        lease._story.releasing()

    def stay(self, lease: BaseLease) -> None:
        """Its release was rolled back: it is renewed again, if there is time."""
        with self.lock:
            if lease._is_ending:
                lease._is_held, lease._is_ending = True, False
                self.leases[lease.lease_key] = lease
        lease._story.stayed("rolled back")
        self.wake.set()
        lease._look()

    def unsure(self, lease: BaseLease) -> None:
        """Whether it was released nobody can say in time: so it is lost, and given back if it was not."""
        self.orphans.give_up([Release(self._ref(lease), failure="the outcome of the transaction that released it is unknown")], max(lease._deadline - clock(), self.timeout))
        lease._is_ending, lease.lost = False, "unreachable"
        lease._tell_loss("unreachable")

    async def settle(self, lease: BaseLease) -> str | None:
        """After a COMMIT without an answer: how the lease has ended; None: it is held, and was renewed. The transaction has the lease's row
        locked, so no answer comes before its end."""
        end, ref = clock() + self.timeout, self._ref(lease)
        while clock() < end:
            sent = clock()
            with contextlib.suppress(Unavailable):
                answer = await self.transport.settle(ref, min(end, sent + 1))
                if answer.outcome == "ok":
                    lease._deadline, lease._is_final = sent + answer.remaining, answer.is_final
                    lease._next_beat = sent
                    return None
                if answer.outcome == "lost":
                    return answer.reason
            await self.runtime.sleep(0.05)
        return "unknown"

    def drop(self, lease: BaseLease, failure: str | None = None) -> None:
        """Of a caller who was torn away, as Ctrl-C does at any instruction, so that nobody knows whether the lease is held: it is released."""
        if lease._is_forked():
            return
        with self.lock:
            if not (lease._is_held or lease._is_asked or lease._is_ending):
                return
            lease._is_held = lease._is_asked = lease._is_ending = lease._is_entered = lease._is_current = False
            self.leases.pop(lease.lease_key, None)
        lease._story.ended("abandoned")
        self.orphans.give_up([Release(each, failure=failure) for each in self._refs(lease)], max(lease.duration, self.timeout))
        self._untie(lease)

    # -- the loop

    async def _run(self) -> None:
        telemetry.leave()
        while not self.is_closed and not self.is_forked():  # a callback may fork
            self.wake.clear()
            with self.lock:
                leases = list(self.leases.values())
            for lease in leases:
                lease._look()
            await self._renew()
            await self.orphans.release(self._orphans_until())
            await self.runtime.wait(self.wake, self._pause())
        await self.orphans.flush()

    def _orphans_until(self) -> float:
        """Releases must not keep the loop from a renewal, or from telling a loss."""
        now = clock()
        with self.lock:
            nearest = min((min(each._next_beat, each._deadline - each._margin) for each in self.leases.values()), default=now + 1)
        return max(min(nearest, now + 1), now + 0.05)

    def _pause(self) -> float:
        with self.lock:
            times = [min(each._next_beat, each._deadline - each._margin) for each in self.leases.values()]
            times += self.orphans.next_tries()
        return min(max(min(times, default=clock() + LOOK_S) - clock(), 0.001), LOOK_S)

    async def _renew(self) -> None:
        """All leases in one request that are due, or nearly."""
        now = clock()
        with self.lock:
            held = list(self.leases.values())
        if not any(each._next_beat <= now for each in held):
            return
        batch: list[BaseLease] = []
        size = 0
        for lease in (each for each in held if each._next_beat <= now + each._margin):
            if size + len(lease._scopes()) > BATCH:
                await self._renew_batch(batch, held)
                batch, size = [], 0
            batch.append(lease)
            size += len(lease._scopes())
        await self._renew_batch(batch, held)

    async def _renew_batch(self, batch: list[BaseLease], held: Iterable[BaseLease]) -> None:
        sent = clock()
        shortest = min(each.duration for each in batch)
        # A server that hangs must not keep us from telling a loss in time, of any lease.
        until = min(sent + shortest / PATIENCE, *(each._deadline - each._margin for each in held))
        refs = [ref for lease in batch for ref in self._refs(lease)]
        try:
            answers = await self.transport.heartbeat(refs, max(until, sent + 0.01))
        except Exception as error:  # whatever it was: the deadline decides
            log.info("renewing %d leases: %s", len(refs), error)
            answers = [Answer("retry")] * len(refs)
        of_each = iter(answers)
        for lease in batch:
            answer = combined([next(of_each) for _ in lease._scopes()])
            if answer.outcome == "ok":
                lease._renewed(sent, answer.remaining, answer.is_final)
                lease._was_asked(answer.asked)
                self._tie_again(lease)
            elif answer.outcome == "lost":
                # Nobody else has its lease key: the daemon ended it because its stream broke.
                is_cut = answer.reason in ("released", "failed") and lease._asked.is_tied and lease._tie is None
                lease._lose("unreachable" if is_cut else answer.reason)
            else:
                lease._next_beat = clock() + min(shortest / 12, 0.25)

    # -- ties: a stream whose end ends the lease, for leaders

    def _read(self, lease: BaseLease, tie: Any) -> None:
        reader = self.runtime.spawn(self._read_tie(lease, tie), "leasehold-tie")
        self.readers.add(reader)
        self.readers = {each for each in self.readers if not _is_over(each)} | {reader}

    async def _read_tie(self, lease: BaseLease, tie: Any) -> None:
        """Until the stream ends. Whether the lease has ended too the next renewal tells, soon."""
        reason = await tie.read()
        if reason is not None:
            lease._lose(reason)
        with self.lock:
            if lease._tie is tie:
                lease._tie = None
            lease._next_beat = min(lease._next_beat, clock() + 0.1)
        self.wake.set()

    def _tie_again(self, lease: BaseLease) -> None:
        with self.lock:
            if not lease._asked.is_tied or lease._tie is not None or not lease._is_held or not hasattr(self.transport, "tie"):
                return
            try:
                lease._tie = self.transport.tie(lease)
            except LeaseholdError as error:  # such as a token file that is being written; the next renewal tries again
                log.info("the stream of %r: %s", lease, error)
                return
            self._read(lease, lease._tie)

    def _untie(self, lease: BaseLease) -> None:
        tie, lease._tie = lease._tie, None
        if tie is not None:
            tie.close()

    # -- the end

    async def close(self) -> None:
        """Ends renewals. Leases that are still held end by their deadline."""
        if self.is_forked():  # in a child another thread of the parent may have the lock, for ever
            return
        with self.lock:
            if self.is_closed:
                return
            self.is_closed = True
            leases = list(self.leases.values())
        self.wake.set()
        for lease in leases:
            lease._story.ended("closed")
            self._untie(lease)
        if self.loop is not None and self.orphans:
            await self.runtime.join(self.loop, 2 * FLUSH_S)
        await self.transport.interrupt()
        for each in {self.loop, *self.readers} - {None}:
            await self.runtime.join(each, 5)
        self.orphans.settle_all()
        await self.transport.close()


def _is_over(spawned: Any) -> bool:
    return bool(spawned.done() if hasattr(spawned, "done") else not spawned.is_alive())
