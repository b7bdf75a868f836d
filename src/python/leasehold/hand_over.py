"""Requests to hand a lease over: a holder is asked to give its lease back, and does, or refuses, or does not answer. Nothing ends the lease for it."""
from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import arguments
from .errors import LeaseLost
from .retry import Retrying
from .runtime import clock

if TYPE_CHECKING:
    from .core import Core
    from .lease import BaseLease


@dataclass(frozen=True)
class HandOver:
    """A request to a holder. It ends with the holder's lease."""

    asked_at: datetime.datetime
    asked_by: str  # the asker, in its own words
    principal: str  # the asker, as proved
    reason: str  # in the asker's words, at most 1024 bytes
    answer_by: datetime.datetime  # as the policy says, 30 s after asked_at by default
    answer_in: float  # seconds that were left when the server answered; 0: the holder has not answered in time
    refusal: str = ""  # the holder's words; empty: it has not refused
    owner: str = ""  # of the lease, as client.ask_hand_over tells; so is the next
    token: int | None = None  # None: this caller may not see it


async def ask(core: Core, namespace: str, key: str, reason: str) -> list[HandOver]:
    namespace, key, reason = arguments.namespace_text(namespace), arguments.key_text(key), arguments.reason_text(reason, 0)
    core.begin()
    until = clock() + core.time()
    try:
        found: list[HandOver] = await core.repeat(Retrying("AskHandOver", namespace, key, core.strategy), until,
                                                  lambda: core.transport.ask_hand_over(namespace, key, reason, core.owner, until))
        return found
    except LeaseLost:  # nobody holds it
        return []


async def refuse(lease: BaseLease, words: Any) -> bool:
    words = arguments.reason_text(words, 1)
    lease._is_single("refuse")
    lease.check()
    core = lease._core
    until = clock() + core.time()
    refused: bool = await core.repeat(core._retrying("RefuseHandOver", lease), until, lambda: core.transport.refuse_hand_over(core._ref(lease), words, until))
    return refused
