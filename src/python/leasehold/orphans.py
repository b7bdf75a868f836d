"""Leases that nobody awaits an answer about any more: what may have been granted to a caller who has given up, what a release could not
deliver, and what try_release gave back.

The renewal loop releases them. A release that is not answered is repeated by the default backoff of retry.py. A lease that the server
does not know may still be granted, because its request may arrive after its release: it is released again after 1, 2, 4 ... s, until it
would have ended by itself.
"""
from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Sequence

from .retry import best_effort_pause
from .runtime import clock
from .transport import BATCH, Answer, Ref, Release

if TYPE_CHECKING:
    from .core import Core
    from .lease import BaseLease

log = logging.getLogger("leasehold")

MOST_RELEASES = 2_097_152  # of try_release, not delivered yet
MOST_DOUBTS = 100_000
DOUBT_FIRST_S = 1.0
FLUSH_S = 1.0  # how long close() sends releases
FLUSH_PAUSE_S = 0.05
FOLLOW_PAUSE_S = 0.005


@dataclass
class Orphan:
    item: Release
    until: float
    next_try: float = 0.0
    lease: BaseLease | None = None  # of a try_release: it was held
    failures: int = 0  # releases that were not answered, one after another
    doubts: int = 0  # answers that the server does not know it

    def pause(self, answer: Answer, is_doubted: bool) -> float | None:
        """Until the next try; None: there is none. `is_doubted`: what the server does not know may still be granted."""
        if answer.outcome == "retry":
            self.failures += 1
            return best_effort_pause(self.failures)
        self.failures = 0
        # What try_release gave back was granted: then the server has ended it.
        if answer.outcome != "lost" or answer.reason != "unknown" or self.lease is not None or not is_doubted:
            return None
        self.doubts += 1
        return DOUBT_FIRST_S * float(2 ** min(self.doubts - 1, 60))


class Orphans:
    """Of one client. Its lock guards them."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.all: dict[Ref, Orphan] = {}
        self.followed: dict[tuple[str, str], set[Ref]] = {}  # by namespace and key: those of try_release
        self.failures = 0  # requests that no server answered, one after another
        self.again = 0.0  # none is released before

    def __len__(self) -> int:
        return len(self.all)

    def give_up(self, items: Sequence[Release], seconds: float) -> None:
        if not self.core.is_closed:
            with self.core.lock:
                self.add(items, clock() + seconds)
            self.core.wake.set()

    def add(self, items: Sequence[Release], until: float, lease: BaseLease | None = None) -> None:
        """One that was there before is replaced. The caller has the lock."""
        for item in items:
            self.remove(item.ref)
            self.all[item.ref] = Orphan(item, until, lease=lease)
            if lease is not None:
                self.followed.setdefault((item.ref.namespace, item.ref.key), set()).add(item.ref)

    def remove(self, ref: Ref) -> None:
        self.all.pop(ref, None)
        scope = (ref.namespace, ref.key)
        refs = self.followed.get(scope, set())
        refs.discard(ref)
        if not refs:
            self.followed.pop(scope, None)

    async def follow(self, lease: BaseLease, until: float) -> None:
        """A try_release of this client's own that is under way: else the acquire behind it finds the key held."""
        scopes = lease._scopes()
        while any(each in self.followed for each in scopes) and clock() < until and not self.core.is_closed:
            await self.core.runtime.sleep(FOLLOW_PAUSE_S)

    def next_tries(self) -> list[float]:
        """The caller has the lock."""
        return [max(each.next_try, self.again) for each in self.all.values()]

    async def release(self, until: float) -> None:
        """Those that are due."""
        now = clock()
        with self.core.lock:
            due = [each for each in self.all.values() if max(each.next_try, self.again) <= now][:BATCH]
        if due:
            await self._release(due, until)

    async def flush(self) -> None:
        """At the end: all, until those of try_release are delivered. Others are tried once more."""
        end = clock() + FLUSH_S
        while self.all and clock() < end and not self.core.is_forked():
            await self._release(list(self.all.values())[:BATCH], end)
            if not any(each.lease for each in self.all.values()):
                break
            await self.core.runtime.sleep(FLUSH_PAUSE_S)

    async def _release(self, due: list[Orphan], until: float) -> None:
        try:
            answers = await self.core.transport.release([each.item for each in due], until)
            self.failures, self.again = 0, 0.0
        except Exception as error:
            log.info("releasing %d leases that nobody holds any more: %s", len(due), error)
            self.failures += 1
            self.again = clock() + best_effort_pause(self.failures)
            answers = [Answer("retry")] * len(due)
        settled = []
        with self.core.lock:
            now = clock()
            for orphan, answer in zip(due, answers):
                pause = orphan.pause(answer, len(self.all) <= MOST_DOUBTS)
                orphan.next_try = now + (pause or 0.0)
                if pause is None or orphan.next_try >= orphan.until:
                    self.remove(orphan.item.ref)
                    settled.append((orphan, answer))
        for orphan, answer in settled:
            self.settle(orphan, answer)

    def settle_all(self) -> None:
        """None is released any more."""
        for orphan in self.all.values():
            self.settle(orphan, Answer("retry"))

    def settle(self, orphan: Orphan, answer: Answer) -> None:
        lease = orphan.lease
        if lease is None:
            return
        if answer.outcome == "ok" and orphan.item.ref == self.core._refs(lease)[0]:
            lease._tell("on_released")
        elif answer.outcome != "ok":
            lease._story.ended("unanswered" if answer.outcome == "retry" else answer.reason)
            log.warning("the release of %r: %s", lease, "not answered, it is left to expire" if answer.outcome == "retry" else answer.reason)
        self.core._untie(lease)
