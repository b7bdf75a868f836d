"""What can go wrong, as types. `reason` is the coordinator's word for it, such as LEASE_HELD or forced."""
from __future__ import annotations


def scope_name(namespace: str, key: str) -> str:
    """As errors and logs name a scope. A namespace that has a slash stands in quotes: a/b/k would name two scopes."""
    return f'"{namespace}"/{key}' if "/" in namespace else f"{namespace}/{key}"


class LeaseholdError(Exception):
    """Whatever this package raises, but ValueError for arguments out of bounds."""

    reason = "UNKNOWN"

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        if reason is not None:
            self.reason = reason


class Held(LeaseholdError):
    """Another holds the lease, or waits for it, and the wait has passed."""

    def __init__(self, message: str, holder: str | None = None, ahead: int = 0, reason: str = "LEASE_HELD", holder_count: int = 0,
                 units_free: int | None = None) -> None:
        super().__init__(message, reason)
        self.holder = holder  # the owner that the holder named, the oldest of several; None: not held, or the server did not say
        self.ahead = ahead  # live waiters before this one
        self.holder_count = holder_count
        self.units_free = units_free  # of the capacity; None: there is none
        self.is_alive: bool | None = None  # the holder; None: it is not held, or the server did not say, as with the next two
        self.silent_for: float | None = None  # seconds since its last heartbeat
        self.held_for: float | None = None  # seconds since it was acquired


class LeaseLost(LeaseholdError):
    """The lease has ended before it was released. Reasons: released and failed (by its lease key, elsewhere), expired, forced,
    max_hold (the policy ends it then), unreachable (no renewal was answered; the deadline is near), forked (this process is a child of the holder), unknown."""


class Denied(LeaseholdError):
    """The coordinator refuses: UNAUTHENTICATED, ACCESS_DENIED, NAMESPACE_FROZEN, HOOK_REJECTED, QUOTA_EXCEEDED, LEASE_ENDED, or an
    SQLSTATE."""


class LeaseEnded(Denied):
    """The lease key has ended. The package acquires with a new one where that can be its own earlier request."""


class Unavailable(LeaseholdError):
    """No server answered in time. Nothing is known to be lost. The reason is one of retry.REASONS, CLOSED, CREDENTIALS, WATCH_LAGGED or
    UNKNOWN_OUTCOME."""

    retry_after = 0.0  # seconds, as the server says


class InvalidArgument(LeaseholdError, ValueError):
    """An argument is out of bounds: the message names it and the bound."""
