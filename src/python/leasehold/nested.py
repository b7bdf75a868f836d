"""The lease in whose body something is called: its loss ends acquires that wait there, and its deadline goes on to calls of other services."""
from __future__ import annotations

import contextlib
from contextvars import ContextVar
from typing import TYPE_CHECKING, Iterator

if TYPE_CHECKING:
    from .lease import BaseLease

CURRENT: ContextVar[BaseLease | None] = ContextVar("leasehold", default=None)


def bodies() -> Iterator[BaseLease]:
    """The leases in whose bodies this is, the innermost first; in a fork those of its parent, too."""
    lease = CURRENT.get()
    while lease is not None:
        if lease._is_current:
            yield lease
        lease = lease._outer


def around() -> Iterator[BaseLease]:
    """Those that bound requests of this process."""
    return (lease for lease in bodies() if not lease._is_forked())


def remaining() -> float | None:
    """Seconds that are left of the lease in whose body this is called, and of those around it: the timeout of one call to another service, as in
    `stub.Pay(request, timeout=leasehold.remaining())`, which gRPC sends as grpc-timeout. None: there is no lease. An acquire in such a body ends
    with LeaseLost when one of these leases is lost."""
    return min((each.remaining() for each in bodies()), default=None)


def enter(lease: BaseLease) -> None:
    lease._outer, lease._is_current = CURRENT.get(), True
    lease._before = CURRENT.set(lease)


def leave(lease: BaseLease) -> None:
    lease._is_current = False
    if lease._before is not None:
        with contextlib.suppress(ValueError):  # a generator that ends elsewhere
            CURRENT.reset(lease._before)
    lease._before = None
