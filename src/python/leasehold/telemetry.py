"""Spans and metrics by OpenTelemetry's API, where the program has it (opentelemetry-api); else nothing is done.

Spans: leasehold.acquire, until the lease is granted or refused; leasehold.hold, from the grant to the end; leasehold.release. All are below
the caller's span. A metric has the namespace and the mode. The key is on spans alone: nothing bounds how many there are. The lease key, which
is the credential, is nowhere.
"""
from __future__ import annotations

import contextlib
from typing import Any, ContextManager

from .arguments import Asked
from .errors import Denied, Held, InvalidArgument, LeaseLost, Unavailable
from .runtime import clock

try:
    from opentelemetry import context, metrics, trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    IS_ON = True
except ImportError:
    IS_ON = False

ERRORS = ((Held, "held"), (LeaseLost, "lost"), (Denied, "denied"), (Unavailable, "unavailable"), (InvalidArgument, "invalid"))

if IS_ON:  # these find the program's SDK, also one that is set later
    tracer, meter = trace.get_tracer("leasehold"), metrics.get_meter("leasehold")
    waiting = meter.create_up_down_counter("leasehold.waiting", "{acquire}", "Acquires that are under way")
    held = meter.create_up_down_counter("leasehold.held", "{lease}", "Leases that this process holds")
    duration = meter.create_histogram("leasehold.acquire.duration", "s", "From an acquire to its grant or refusal")
    failures = meter.create_counter("leasehold.acquire.failures", "{acquire}", "Acquires that were not granted")


def error_type(error: BaseException) -> str:
    if not isinstance(error, Exception):  # Ctrl-C, or a task that is cancelled
        return "cancelled"
    return next((word for kind, word in ERRORS if isinstance(error, kind)), "_OTHER")  # OpenTelemetry's word for what is not listed


class Silent:
    """One acquisition that nobody looks at."""

    def current(self, name: str) -> ContextManager[Any]:
        """This span is the current one."""
        return contextlib.nullcontext()

    def granted(self, token: int) -> None:
        pass

    def refused(self, error: BaseException) -> None:
        pass

    def downgraded(self, token: int) -> None:
        pass

    def releasing(self) -> None:
        pass

    def stayed(self, words: str) -> None:
        """A release that was not done: the lease is held as before."""

    def ended(self, reason: str | None = None) -> None:
        """Of a lease that was held; None: it was released."""


class Story(Silent):
    """One acquisition. Whichever thread takes a span out of `spans` ends it."""

    def __init__(self, asked: Asked) -> None:
        self.key, self.begun = asked.key, clock()
        self.around = context.get_current()
        self.labels = {"leasehold.namespace": asked.namespace, "leasehold.mode": asked.mode}
        self.spans: dict[str, Any] = {}
        self._begin("acquire")
        waiting.add(1, self.labels)

    def _begin(self, name: str) -> None:
        self.spans[name] = tracer.start_span(f"leasehold.{name}", self.around, attributes={**self.labels, "leasehold.key": self.key})

    def current(self, name: str) -> ContextManager[Any]:
        # A span that has ended meanwhile is no harm; that of none is.
        current: ContextManager[Any] = trace.use_span(self.spans.get(name) or trace.get_current_span(), record_exception=False, set_status_on_exception=False)
        return current

    def _end(self, name: str, words: str | None = None, **attributes: Any) -> bool:
        """Whether this call has ended it. `words`: what went wrong."""
        span = self.spans.pop(name, None)
        if span is None:
            return False
        span.set_attributes({each.replace("_", "."): value for each, value in attributes.items()})
        if words is not None:
            span.set_status(trace.StatusCode.ERROR, words)
        span.end()
        return True

    def granted(self, token: int) -> None:
        seconds = clock() - self.begun
        if self._end("acquire", leasehold_waited=seconds, leasehold_token=token):
            waiting.add(-1, self.labels)
            duration.record(seconds, self.labels)
        self._begin("hold")
        self.spans["hold"].set_attribute("leasehold.token", token)
        held.add(1, self.labels)

    def refused(self, error: BaseException) -> None:
        kind, seconds = error_type(error), clock() - self.begun
        # Losing a race is an outcome, and no error of the span.
        if self._end("acquire", None if isinstance(error, Held) else str(error) or type(error).__name__, leasehold_waited=seconds, error_type=kind):
            waiting.add(-1, self.labels)
            labels = {**self.labels, "error.type": kind}
            duration.record(seconds, labels)
            failures.add(1, labels)

    def downgraded(self, token: int) -> None:
        if "hold" in self.spans:
            held.add(-1, self.labels)
            self.labels = {**self.labels, "leasehold.mode": "shared"}
            held.add(1, self.labels)
            self.spans["hold"].set_attributes({"leasehold.mode": "shared", "leasehold.token": token})

    def releasing(self) -> None:
        self.around = context.get_current()
        self._begin("release")

    def stayed(self, words: str) -> None:
        self._end("release", words)

    def ended(self, reason: str | None = None) -> None:
        words = None if reason is None else f"lost: {reason}"
        why = {} if reason is None else {"error_type": "lost", "leasehold_reason": reason}
        self._end("release", words, **why)
        if self._end("hold", words, **why):
            held.add(-1, self.labels)


SILENT = Silent()


def begin(asked: Asked) -> Silent:
    """An acquire begins."""
    return Story(asked) if IS_ON else SILENT


def traceparent() -> list[tuple[str, str]]:
    """Metadata for a daemon, which reads nothing else of the caller's context."""
    carrier: dict[str, str] = {}
    if IS_ON:
        TraceContextTextMapPropagator().inject(carrier)
    return [(name, value) for name, value in carrier.items() if name == "traceparent"]


def leave() -> None:
    """What this task does from now on belongs to no span: it began below one, of whoever acquired first."""
    if IS_ON:
        context.attach(context.Context())
