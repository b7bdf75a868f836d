"""One lease, as its holder sees it: what it is called, until when it is held, how it was lost."""
from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, Callable, Literal, NoReturn

from . import arguments, telemetry
from .errors import InvalidArgument, LeaseholdError, LeaseLost, scope_name
from .runtime import clock

if TYPE_CHECKING:
    import datetime
    from .core import Core
    from .hand_over import HandOver
    from .ticks import Claimed
    from .transport import Grant

log = logging.getLogger("leasehold")

RENEWALS = 3  # in each duration
MARGIN = 6  # a loss is told a sixth of the duration before the deadline: one more renewal fits between two lost ones and it
GUARD = "leasehold.guard(%s, %s, %s)"


class Unique:
    """Neither copied nor pickled: a copy would say that it holds what nobody renews for it."""

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} belongs to the process that made it, and cannot be copied or pickled: make a client there, and hand on the token")


class BaseLease(Unique):
    """What Lease and AsyncLease share. The client's renewals and the caller's thread change it, under the client's lock."""

    def __init__(self, core: Core, namespace: str, key: str, **options: Any) -> None:
        self._asked = asked = arguments.asked(core.owner, namespace, key, **options)
        self.namespace, self.key, self.duration, self.owner, self.labels = asked.namespace, asked.key, asked.duration, asked.owner, asked.labels
        self.lease_key = ""  # the credential to renew and release
        self.token = 0  # the fencing token: pass it to whatever must refuse a holder that is late
        self.tokens: dict[tuple[str, str], int] = {}  # by namespace and key, of a lease of several; token is the first one's
        self.units = 0  # of the key's capacity, of a shared lease; 0: an exclusive one
        self.slots: tuple[int, ...] = ()  # of a shared lease where there is a capacity: numbers from 1 on that no other holder has
        self.lost: str | None = None  # why, once it is
        self.result: Any = None  # what `with` releases it with: anything that json can write
        self._core = core
        self._tie: Any = None  # of one that is_tied
        self._is_held = False
        self._is_asked = False  # an acquire is under way
        self._is_entered = False  # a body runs
        self._is_ending = False  # a release is under way
        self._margin = self.duration / MARGIN
        self._deadline = self._next_beat = 0.0
        self._is_final = False  # the policy ends it at its deadline
        self._claimed: Claimed | None = None  # of a tick
        self._asked_at: datetime.datetime | None = None  # the last request to hand it over
        self._outer: BaseLease | None = None  # in whose body this one's runs
        self._is_current: bool = False  # a body runs under it
        self._before: Any = None
        self._around: list[BaseLease] = []  # leases in whose bodies it is being acquired
        self._nested: set[BaseLease] = set()  # the reverse
        self._cancel: Callable[[], None] | None = None  # what its acquire waits for
        self._story: telemetry.Silent = telemetry.SILENT  # of its last acquisition

    def __repr__(self) -> str:
        state = "held" if self._is_held else f"lost: {self.lost}" if self.lost else "not held"
        return f"<lease {self._name()} token {self.token}, {state}>"

    def _scopes(self) -> list[tuple[str, str]]:
        """None as long as no tick is claimed."""
        if not self.key:
            return []
        return [each[:2] for each in self._asked.scopes] or [(self.namespace, self.key)]

    def _name(self) -> str:
        others = len(self._asked.scopes) - 1
        return scope_name(self.namespace, self.key) + (f" and {others} more" if others > 0 else "")

    def _is_single(self, what: str) -> None:
        if self._asked.scopes:
            raise InvalidArgument(f"a lease of several keys cannot {what}", "INVALID_ARGUMENT")

    @property
    def mode(self) -> Literal["exclusive", "shared"]:
        """Of the lease that is held."""
        return "shared" if self.units else "exclusive"

    def remaining(self) -> float:
        """Seconds until the work must have stopped, on this machine's clock; 0 when the lease is not held."""
        self._look()
        return max(self._deadline - clock(), 0.0) if self._is_held else 0.0

    def is_held(self) -> bool:
        self._look()
        return self._is_held

    def check(self) -> None:
        """Raises LeaseLost when the lease is not held: it was lost, or is about to be (its deadline is a sixth of its duration away), or
        was released."""
        self._look()
        if not self._is_held:
            raise self._loss()

    def try_release(self, result: Any = None, failure: str | None = None) -> bool:
        """As release, without waiting: from now on the lease is not held, and the client releases it in the background, with all others in one
        request, until its deadline; `close` sends what is left for a second. What is not delivered is logged, and ends by its deadline. False: it was
        not held any more. Also in an asyncio client it is an ordinary function."""
        return self._core.try_release(self, self.result if result is None and failure is None else result, failure)

    def _loss(self) -> LeaseLost:
        name = self._name()
        if self.lost is not None:
            why = f": the policy of {self.namespace} ends a lease after max_hold" if self.lost == "max_hold" else ""
            return LeaseLost(f"the lease {name} with token {self.token} was lost: {self.lost}{why}", self.lost)
        if self.token:
            return LeaseLost(f"the lease {name} with token {self.token} is not held: it was released", "released")
        return LeaseLost(f"the lease {name} is not held: it was never acquired", "unknown")

    def _claim(self, is_entering: bool) -> bool:
        """Before it is acquired, or entered by `with`: one object is one holder. Whether it must be acquired."""
        self._core.begin()
        self._look()  # before the lock: it may call on_lost
        with self._core.lock:
            if self._is_entered or self._is_asked or self._is_ending or (self._is_held and not is_entering):
                raise LeaseholdError(f"{self!r} is in use: an object is one holder, and can neither be acquired nor entered again before its "
                                     "end; make one for each thread, task and `with`: client.lease(...)", "IN_USE")
            self._is_entered, self._is_asked = is_entering, not self._is_held
            return self._is_asked

    def _is_forked(self) -> bool:
        """This process is a child of the one that holds it: then nothing is renewed, released or waited for, and no lock taken."""
        if os.getpid() == self._core.pid:
            return False
        self._is_held, self.lost = False, "forked"
        return True

    def _look(self) -> None:
        """Whoever asks after the deadline finds the lease lost, whether or not the renewals have noticed yet: they may have slept."""
        if self._is_held and not self._is_forked():
            now = clock()
            if now >= self._deadline - self._margin:
                self._lose("max_hold" if self._is_final else "expired" if now >= self._deadline else "unreachable")

    def _is_working(self) -> bool:
        """Is it held, as far as this process knows? Tells nobody: a thread of gRPC's asks."""
        return self._is_held and clock() < self._deadline - self._margin

    def _granted(self, grant: Grant) -> None:
        self.token, self.units, self.slots, self._deadline = grant.token, grant.units, grant.slots, grant.deadline
        if grant.claimed is not None:
            self._claimed, self.key = grant.claimed, grant.claimed.key
        self.tokens = dict(zip(self._scopes(), grant.tokens)) if self._asked.scopes else {}
        self._next_beat = clock() + self.duration / RENEWALS
        self._is_final = grant.is_final
        if grant.is_final:  # it may be for much less than its duration
            self._margin = min(self.duration, max(grant.deadline - clock(), 0.0)) / MARGIN
        self._is_held = True

    def _renewed(self, sent: float, remaining: float, is_final: bool = False) -> None:
        with self._core.lock:
            is_in_time = self._is_held and clock() < self._deadline  # an answer that is read too late saves nothing
            if is_in_time:
                self._deadline, self._is_final = sent + remaining, is_final
                self._next_beat = sent + self.duration / RENEWALS
        if is_in_time:
            self._tell("on_renewed")

    def _lose(self, reason: str) -> None:
        with self._core.lock:
            if not self._is_held:
                return
            self._is_held = False
            self._core.leases.pop(self.lease_key, None)
            self.lost = reason
            nested = list(self._nested)
        self._tell_loss(reason)
        for each in nested:
            each._cancel_if_lost()

    def _cancel_by(self, cancel: Callable[[], None]) -> None:
        """What its acquire waits for ends with this, should a lease around it be lost."""
        self._cancel = cancel
        self._cancel_if_lost()

    def _cancel_if_lost(self) -> None:
        cancel = self._cancel
        if cancel is not None and any(each.lost is not None for each in self._around):
            cancel()

    def _tell_loss(self, reason: str) -> None:
        log.warning("%r", self)
        self._story.ended(reason)
        if self._asked.on_lost is not None:
            try:
                self._asked.on_lost(reason)
            except (Exception, SystemExit):  # the renewals of other leases go on
                log.exception("on_lost of %r", self)

    def _was_asked(self, request: HandOver | None) -> None:
        """Tells of each request once, though renewals and the stream of a leader have it again and again."""
        with self._core.lock:
            if request is None or request.asked_at == self._asked_at or not self._is_held:
                return
            self._asked_at = request.asked_at
        self._tell("on_asked", request)

    def _tell(self, name: str, news: Any = None) -> None:
        """on_granted, on_renewed, on_released or on_asked."""
        if name == "on_released":
            self._story.ended()
        function = self._asked.listeners[name]
        if function is not None:
            try:
                function(self if news is None else news)
            except (Exception, SystemExit):
                log.exception("%s of %r", name, self)

    def _guard_arguments(self) -> tuple[str, tuple[str | int, ...]]:
        self.check()
        guarded = self.tokens or {(self.namespace, self.key): self.token}
        values: list[str | int] = []
        for (namespace, key), token in guarded.items():
            values += [namespace, key, token]
        return "select " + ", ".join([GUARD] * len(guarded)), tuple(values)

    def _guard_failed(self, error: Exception) -> NoReturn:
        """LeaseLost for the SQLSTATE LH001, by whatever name the driver keeps it; else the driver's own error."""
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        if state is None and error.args and isinstance(error.args[0], dict):
            state = error.args[0].get("C")
        if state == "LH001":
            raise LeaseLost(str(error), self.lost or "unknown") from error
        raise error
