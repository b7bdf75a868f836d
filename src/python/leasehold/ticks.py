"""The ticks of a schedule, as a worker's loop gets them: each is a lease that ends with its work."""
from __future__ import annotations

import datetime
import logging
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar

from .errors import LeaseholdError
from .lease import BaseLease

if TYPE_CHECKING:
    from .aio import AsyncLease
    from .client import Lease

log = logging.getLogger("leasehold")

LEFT = "the loop was left before the end of its body; a body in `with tick` ends the tick by itself"
L = TypeVar("L", bound=BaseLease)


@dataclass(frozen=True)
class Claimed:
    """Of a claim."""

    key: str  # of the tick's lease
    at: datetime.datetime  # in UTC
    attempt: int


class BaseTick(Generic[L]):
    """An instant of a schedule, and the lease of its work.

    at       the instant, a datetime in UTC: what the work is for, whenever it runs
    attempt  1 for the first; a tick whose work failed comes again, as the schedule says
    lease    is renewed while the work runs; its result, a JSON value of 8 KiB at most, is kept with the tick
    """

    def __init__(self, lease: L) -> None:
        assert lease._claimed is not None
        self.lease, self.at, self.attempt = lease, lease._claimed.at, lease._claimed.attempt

    def __repr__(self) -> str:
        return f"<tick {self.lease._name()}, attempt {self.attempt}>"

    def _is_over(self, error: BaseException | None) -> bool:
        """Of a body that ended with this. True: the loop goes on. What ends the program, or its task, ends the loop."""
        if not isinstance(error, Exception):
            return False
        log.error("%r has failed", self, exc_info=error)
        return True


class Tick(BaseTick["Lease"]):
    __doc__ = (BaseTick.__doc__ or "") + """
    `with tick` is for its work. The body's end makes the tick done; an error in it makes the tick failed, is logged, and the loop goes on."""

    def __enter__(self) -> Lease:
        return self.lease.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        try:
            self.lease.__exit__(kind, error, trace)
        except Exception as trouble:  # the lease is lost, or its result is none
            return self._is_over(trouble)
        return self._is_over(error)

    def _end(self, failure: str | None = None) -> None:
        """What no `with` has ended."""
        try:
            self.lease.release(None if failure else self.lease.result, failure)
        except (LeaseholdError, TypeError) as trouble:
            self._is_over(trouble)


class AsyncTick(BaseTick["AsyncLease"]):
    __doc__ = (BaseTick.__doc__ or "") + """
    `async with tick` is for its work. The body's end makes the tick done; an error in it, or the loss of its lease, which cancels the body, makes
    the tick failed, is logged, and the loop goes on."""

    async def __aenter__(self) -> AsyncLease:
        return await self.lease.__aenter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        try:
            await self.lease.__aexit__(kind, error, trace)
        except Exception as trouble:
            return self._is_over(trouble)
        return self._is_over(error)

    async def _end(self, failure: str | None = None) -> None:
        try:
            await self.lease.release(None if failure else self.lease.result, failure)
        except (LeaseholdError, TypeError) as trouble:
            self._is_over(trouble)
