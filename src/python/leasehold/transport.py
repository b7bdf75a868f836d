"""What a client and its transports tell each other: leases, releases, grants and answers."""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Sequence

if TYPE_CHECKING:
    from .hand_over import HandOver
    from .lease import BaseLease
    from .ticks import Claimed

BATCH = 10_000  # leases in one request

@dataclass(frozen=True)
class Ref:
    namespace: str
    key: str
    lease_key: str
    duration: float = 0.0
    is_listening: bool = False  # to requests to hand it over


@dataclass(frozen=True)
class Release:
    ref: Ref
    result: str | None = None  # JSON
    failure: str | None = None


@dataclass(frozen=True)
class Answer:
    """Of a renewal or a release. outcome: ok, lost, retry (not done), or denied."""

    outcome: str
    reason: str = "unknown"
    remaining: float = 0.0
    is_final: bool = False  # the policy ends it at this deadline
    asked: HandOver | None = None  # an open request


@dataclass
class Grant:
    token: int
    deadline: float
    units: int = 0  # 0: exclusive
    slots: tuple[int, ...] = ()
    tie: Any = None
    is_final: bool = False
    tokens: tuple[int, ...] = ()  # of several keys
    claimed: Claimed | None = None  # of a tick


def together(grants: Sequence[Grant]) -> Grant:
    """One lease of several keys: it lasts as long as all do."""
    return Grant(grants[0].token, min(each.deadline for each in grants), is_final=any(each.is_final for each in grants),
                 tokens=tuple(each.token for each in grants))


def combined(answers: Sequence[Answer]) -> Answer:
    """To the renewal of one lease, of one key or several."""
    for outcome in ("lost", "denied", "retry"):
        for each in answers:
            if each.outcome == outcome:
                return each
    return Answer("ok", "", min(each.remaining for each in answers), any(each.is_final for each in answers), answers[0].asked)


class Transport(Protocol):
    async def acquire(self, lease: BaseLease, wait_until: float, timeout: float) -> Grant:
        """One try. Held when another has it, Unavailable when it may be repeated. Of a tick: claims the next one."""

    async def downgrade(self, ref: Ref, units: int, until: float) -> Grant:
        """One try; a repeat gets the same answer. LeaseLost when it is not held."""

    async def heartbeat(self, refs: Sequence[Ref], until: float) -> list[Answer]: ...

    async def settle(self, ref: Ref, until: float) -> Answer:
        """A heartbeat of one lease, beside the renewals."""

    async def release(self, items: Sequence[Release], until: float) -> list[Answer]: ...

    async def end_reason(self, ref: Ref, until: float) -> str:
        """Of a lease that a release did not find, as far as that is known."""

    async def explain(self, namespace: str, key: str, until: float) -> Any: ...

    async def ask_hand_over(self, namespace: str, key: str, reason: str, owner: str, until: float) -> list[HandOver]: ...

    async def refuse_hand_over(self, ref: Ref, words: str, until: float) -> bool:
        """False: there is no request, or no lease."""

    async def interrupt(self) -> None:
        """Calls that are open end at once; later ones fail."""

    async def close(self) -> None:
        """When no call is open any more."""

    def forget(self) -> None:
        """In a child after a fork: the connections are the parent's."""
