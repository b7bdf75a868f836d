"""What is asked of keys without holding them: who has one now, and what happens to all."""
from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any, AsyncIterator, Mapping

from . import arguments
from .core import Core
from .errors import InvalidArgument, Unavailable
from .retry import Retrying
from .runtime import clock

AGAIN_S = 0.3  # after a watch broke


@dataclass(frozen=True)
class Explanation:
    """Who holds a key, whether it is alive, who waits, and what to do."""

    state: str  # free, held, shared or resting
    advice: str  # in words
    waiters: int
    holders: int
    policy: Mapping[str, Any]  # in force, its settings by name
    holder: str | None = None  # the owner that the holder named, the oldest of several
    principal: str | None = None  # the holder's, as proved
    token: int | None = None
    liveness: str | None = None  # alive, suspected_dead, overdue or expired
    since: datetime.datetime | None = None  # the grant; of a free key, the end of the last lease
    heartbeats: int | None = None
    last_heartbeat_at: datetime.datetime | None = None
    expires_at: datetime.datetime | None = None
    first_waiter: str | None = None
    mode: str | None = None  # exclusive or shared
    units: int | None = None  # taken by all shared holders
    rests_until: datetime.datetime | None = None


TIMES = ("since", "last_heartbeat_at", "expires_at", "rests_until")


def explanation(row: Mapping[str, Any]) -> Explanation:
    """Of what SQL's explain returns as JSON."""
    times = {name: datetime.datetime.fromisoformat(row[name]) for name in TIMES if row[name] is not None}
    return Explanation(**{**row, **times})


@dataclass(frozen=True)
class Event:
    """What a watch tells. kind: held (it was, when the watch began), synced (that was all), acquired, downgraded, released, failed, expired,
    max_hold, forced."""

    kind: str
    namespace: str = ""
    key: str = ""
    token: int = 0
    owner: str = ""
    principal: str = ""
    mode: str = "exclusive"
    units: int = 0
    reason: str = ""  # the administrator's words, of a forced end
    result: str = ""  # JSON
    error: str = ""


async def explain(core: Core, namespace: str, key: str) -> Explanation:
    core.begin()
    namespace, key = arguments.namespace_text(namespace), arguments.key_text(key)
    until = clock() + core.time()
    found: Explanation = await core.repeat(Retrying("Explain", namespace, key, core.strategy), until, lambda: core.transport.explain(namespace, key, until))
    return found


async def watch(core: Core, namespace: str, key: str | None, children: bool) -> AsyncIterator[Event]:
    """Begins anew where the connection breaks, or the server says that this came too late to tell all."""
    namespace = arguments.namespace_text(namespace) if namespace else ""
    if key is not None and (children or not namespace):
        raise InvalidArgument("key must be None for children, or without a namespace", "INVALID_ARGUMENT")
    open_watch = getattr(core.transport, "watch", None)
    if open_watch is None:
        raise InvalidArgument("watch needs a server: in SQL nothing tells of each change", "INVALID_ARGUMENT")
    key = None if key is None else arguments.key_text(key)
    core.begin()
    while not core.is_closed:
        try:
            async for event in open_watch(namespace, key, children):
                yield event
        except Unavailable:
            if not core.is_closed:
                await core.runtime.sleep(AGAIN_S)
