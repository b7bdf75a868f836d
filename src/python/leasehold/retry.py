"""Whether and when a request that failed is repeated: the reasons, numbers and strategies of leasehold_retry.h."""
from __future__ import annotations

import contextlib
import logging
import math
from dataclasses import dataclass, replace
from typing import Callable, NamedTuple

from .errors import Held, LeaseholdError, Unavailable, scope_name
from .runtime import clock

log = logging.getLogger("leasehold")


class Reason(NamedTuple):
    """Of a failed attempt."""

    is_unsent: bool  # nothing was done: also a request that is not idempotent may be repeated
    is_always: bool  # repeated whatever the strategy says
    is_next: bool  # at the next address


REASONS = {
    "UNKNOWN": Reason(False, False, False),
    "SOCKET_NOT_AVAILABLE": Reason(True, False, True),
    "ENDPOINT_NOT_AVAILABLE": Reason(True, False, True),
    "SOCKET_CLOSED_WHILE_IN_FLIGHT": Reason(False, False, True),
    "CIRCUIT_BREAKER_OPEN": Reason(True, False, True),
    "BLOCKING_TIMEOUT": Reason(True, True, False),
    "SHUTTING_DOWN": Reason(True, True, True),
    "DATABASE_UNAVAILABLE": Reason(True, False, True),
    "OVERLOADED": Reason(True, False, True),
    "SCOPE_BUSY": Reason(True, False, False),
    "OUTCOME_RETRY": Reason(True, False, False),
    "LEASE_HELD": Reason(True, False, False),
    "RETRY_INFO": Reason(True, False, False),
}
CONTROLLED_MS = (1, 10, 50, 100, 500, 1000)
BLOCKED_S = 1.0  # a server that blocked for so long is asked again at once


@dataclass(frozen=True)
class Retry:
    """A request whose attempt has failed. All requests are idempotent by their lease keys."""

    verb: str  # Acquire, AcquireAll, ClaimTick, Downgrade, Release, Explain, AskHandOver or RefuseHandOver
    namespace: str
    key: str  # of several the first
    reason: str  # one of REASONS
    error: LeaseholdError
    attempts: int  # so far
    failures: int  # that the backoff counts, from 1 on: a wait that the server cut begins anew
    reasons: tuple[str, ...]  # so far, each once
    remaining: float  # seconds of the request's time; math.inf: no limit
    retry_after: float  # the server's RetryInfo; 0: none
    delay: float | None = None  # in the log: what was decided


# Seconds until the next attempt; None: the request fails with the error, as it does when the delay is longer than `remaining`.
Strategy = Callable[[Retry], "float | None"]


def best_effort(retry: Retry) -> float | None:
    """The default: repeats all but LEASE_HELD, after 1, 2, 4 ... 256, 500 ms."""
    return None if retry.reason == "LEASE_HELD" else best_effort_pause(retry.failures)


def best_effort_pause(failures: int) -> float:
    return min(2.0 ** min(failures - 1, 9), 500) / 1000


def fail_fast(retry: Retry) -> float | None:
    """Repeats nothing."""
    return None


def controlled_backoff(failures: int) -> float:
    """1, 10, 50, 100, 500, then 1000 ms."""
    return CONTROLLED_MS[min(max(failures, 1), len(CONTROLLED_MS)) - 1] / 1000


def reason_of(error: LeaseholdError) -> str | None:
    """None: it is final."""
    if isinstance(error, Held):
        return error.reason if error.reason in REASONS else None
    if not isinstance(error, Unavailable) or error.reason == "CLOSED":
        return None
    return error.reason if error.reason in REASONS else "UNKNOWN"


class Retrying:
    """One request and its attempts."""

    def __init__(self, verb: str, namespace: str, key: str, strategy: Strategy) -> None:
        self.verb, self.namespace, self.key, self.strategy = verb, namespace, key, strategy
        self.attempts = self.failures = 0
        self.reasons: tuple[str, ...] = ()
        self.begun = clock()  # the attempt

    def delay(self, error: LeaseholdError, remaining: float) -> float | None:
        """Before the next attempt; None: there is none."""
        reason = reason_of(error)
        if reason is None:
            return None
        self.attempts += 1
        self.failures += 1
        if reason not in self.reasons:
            self.reasons += (reason,)
        retry = Retry(self.verb, self.namespace, self.key, reason, error, self.attempts, self.failures, self.reasons, remaining,
                      getattr(error, "retry_after", 0.0))
        delay = self._decide(retry)
        decided = "fails" if delay is None else f"is repeated after {delay * 1000:g} ms"
        with contextlib.suppress(Exception):  # of a handler of the program's
            log.info("%s of %s %s: %s; attempts: %d, reasons: %s", self.verb, scope_name(self.namespace, self.key), decided, error, self.attempts,
                     ", ".join(self.reasons), extra={"retry": replace(retry, delay=delay)})
        self.begun = clock() + (delay or 0.0)  # the next one's
        return delay

    def _decide(self, retry: Retry) -> float | None:
        if retry.reason == "BLOCKING_TIMEOUT" and clock() - self.begun >= BLOCKED_S:
            self.failures = 0
            return 0.0
        always = REASONS[retry.reason].is_always
        delay = controlled_backoff(retry.failures) if always else self.strategy(retry)
        if delay is None or math.isnan(delay) or delay > retry.remaining:
            return None
        return max(delay, 0.0)
