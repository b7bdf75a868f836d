"""What callers pass, looked at before anything is sent: an error names the argument, the value, and what it must be."""
from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from .errors import InvalidArgument

if TYPE_CHECKING:
    from .hand_over import HandOver
    from .retry import Strategy

MOST_UNITS = 1_000_000
MOST_PRIORITY = 1000
MOST_DURATION_S = 365 * 86_400
MOST_WAIT_S = 100 * 365 * 86_400
MOST_AT_LEAST_S = 86_400
MOST_SEGMENTS = 16
MOST_NAMESPACE_BYTES = 255
MOST_LABELS = 16
MOST_SCOPES = 100
# The daemon's bounds, which are those of C and SQL too.
BYTES = {"segment": (1, 63), "key": (1, 1024), "owner": (0, 255), "label_name": (1, 63), "label_value": (0, 255), "reason": (0, 1024)}


def refused(name: str, value: Any, wanted: str) -> InvalidArgument:
    return InvalidArgument(f"{name} must be {wanted}, not {value!r}", "INVALID_ARGUMENT")


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)


def is_text(value: Any) -> bool:
    """That arrives as it is: libpq cuts a string at its NUL, and two keys would be one."""
    return isinstance(value, str) and "\0" not in value and not any("\ud800" <= each <= "\udfff" for each in value)


def shown(words: str) -> str:
    """Words for people, as they can be sent."""
    return words.replace("\0", "").encode("utf-8", "replace").decode()


def text(name: str, value: Any) -> str:
    if not is_text(value) or not value:
        raise refused(name, value, "a string of Unicode that is not empty, without NUL")
    return str(value)


def out_of_bounds(words: str) -> InvalidArgument:
    return InvalidArgument(words, "INVALID_ARGUMENT")


def bounded(kind: str, field: str, value: Any) -> str:
    """Text within its bounds; else the daemon's own words, before anything is sent."""
    if not is_text(value):
        raise refused(field, value, "a string of Unicode without NUL")
    least, most = BYTES[kind]
    size = len(value.encode())
    if not least <= size <= most:
        raise out_of_bounds(f"{field} must be {f'{least} to' if least else 'at most'} {most} bytes, has {size}")
    if kind in ("segment", "key") and any(each < " " or "\x7f" <= each <= "\x9f" for each in value):
        raise out_of_bounds(f"{field} must not contain control characters")
    return str(value)


def namespace_text(value: Any) -> str:
    if not is_text(value):
        raise refused("namespace", value, "a string of Unicode without NUL")
    segments, size = value.split(".") if value else [], len(value.encode())
    if not 1 <= len(segments) <= MOST_SEGMENTS:
        raise out_of_bounds(f"namespace must have 1 to {MOST_SEGMENTS} segments, has {len(segments)}")
    if size > MOST_NAMESPACE_BYTES:
        raise out_of_bounds(f"namespace must be at most {MOST_NAMESPACE_BYTES} bytes with the dots between segments, has {size}")
    for n, segment in enumerate(segments, 1):
        bounded("segment", f"segment {n} of namespace", segment)
    return str(value)


def key_text(value: Any) -> str:
    return bounded("key", "key", value)


def owner_text(value: Any) -> str:
    return bounded("owner", "owner", value)


def reason_text(value: Any, least: int) -> str:
    """Of a request to hand over, or of its refusal."""
    if is_text(value) and len(value.encode()) < least:
        raise out_of_bounds(f"reason must be {least} to {BYTES['reason'][1]} bytes, has 0")
    return bounded("reason", "reason", value)


def given(name: str, value: Any) -> str | None:
    return None if value is None else text(name, value)


def more_than_zero(name: str, value: Any) -> float:
    if not is_number(value) or not 0 < value <= MOST_DURATION_S:
        raise refused(name, value, f"a number of seconds above 0, at most {MOST_DURATION_S} (365 days)")
    return float(value)


def seconds_to_wait(value: Any) -> float:
    """None: for ever."""
    if value is None:
        return math.inf
    if not is_number(value) or not (0 <= value <= MOST_WAIT_S or value == math.inf):
        raise refused("wait", value, f"a number of seconds from 0 to {MOST_WAIT_S} (100 years), or None to wait for ever")
    return float(value)


def minimum_hold(value: Any) -> float | None:
    """None: the policy's."""
    if value is None:
        return None
    if not is_number(value) or not 0 <= value <= MOST_AT_LEAST_S:
        raise refused("at_least", value, f"a number of seconds from 0 to {MOST_AT_LEAST_S} (a day), or None")
    return float(value)


def number_of_units(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_UNITS:
        raise refused("units", value, f"1 to {MOST_UNITS}")
    return value


def priority_of(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_PRIORITY:
        raise refused("priority", value, f"0 to {MOST_PRIORITY}")
    return value


def units_asked(shared: Any, value: Any) -> int:
    """0: of an exclusive lease."""
    if not isinstance(shared, bool):
        raise refused("shared", shared, "True or False")
    if not shared and value != 1:
        raise refused("units", value, "1 without shared")
    return number_of_units(value) if shared else 0


def labels_of(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(is_text(each) for pair in value.items() for each in pair):
        raise refused("labels", value, "a mapping of strings to strings, of Unicode without NUL")
    if len(value) > MOST_LABELS:
        raise out_of_bounds(f"labels must be at most {MOST_LABELS}, are {len(value)}")
    return {bounded("label_name", "label_name", name): bounded("label_value", "label_value", label) for name, label in value.items()}


def is_deferred(value: Any) -> bool:
    """Its call runs nothing of it yet."""
    return any(look(each) for each in (value, getattr(value, "__call__", None))
               for look in (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction))


def callback(name: str, value: Any) -> Callable[..., object] | None:
    if value is not None and (not callable(value) or is_deferred(value)):
        raise refused(name, value, "a function that does its work when it is called: none of `async def`, and no generator")
    return value  # type: ignore[no-any-return]


def strategy_of(value: Any) -> Strategy | None:
    callback("strategy", value)
    return value  # type: ignore[no-any-return]


class Scope(NamedTuple):
    """One of the keys that are acquired in one step. A pair (namespace, key) does where it is exclusive."""

    namespace: str
    key: str
    shared: bool = False
    units: int = 1


def scopes_of(value: Any) -> tuple[Scope, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise refused("scopes", value, "pairs of namespace and key")
    scopes = []
    for each in value:
        if not isinstance(each, tuple) or not 2 <= len(each) <= 4:
            raise refused("scopes", each, "pairs of namespace and key, or Scope(namespace, key, shared=True, units=2)")
        scope = Scope(*each)
        scopes.append(Scope(namespace_text(scope.namespace), key_text(scope.key), bool(units_asked(scope.shared, scope.units)), scope.units))
    if not 1 <= len(scopes) <= MOST_SCOPES:
        raise out_of_bounds(f"scopes must be 1 to {MOST_SCOPES}, are {len(scopes)}")
    if len({each[:2] for each in scopes}) < len(scopes):
        raise out_of_bounds("scopes must name each key once")
    return tuple(scopes)


class TickOptions(TypedDict, total=False):
    """Of the lease of a tick; Client.lease says what each means."""

    duration: float
    owner: str | None
    labels: Mapping[str, str] | None
    on_lost: Callable[[str], object] | None
    on_granted: Callable[[Any], object] | None
    on_renewed: Callable[[Any], object] | None
    on_released: Callable[[Any], object] | None
    strategy: Strategy | None
    on_asked: Callable[[HandOver], object] | None


class LeadOptions(TickOptions, total=False):
    """Of a leader's lease."""

    at_least: float | None
    priority: int
    ask_hand_over: bool


class Options(LeadOptions, total=False):
    """Of an acquire."""

    wait: float | None
    shared: bool
    units: int
    while_alive: bool


@dataclass(frozen=True)
class Asked:
    """What an acquire asks for."""

    namespace: str
    key: str  # empty: of a tick
    duration: float
    wait: float
    owner: str
    labels: dict[str, str]
    units: int  # 0: exclusive
    at_least: float | None  # nobody else gets it before, though it is released earlier; None: the policy's
    on_lost: Callable[[str], object] | None
    while_alive: bool  # wait begins to count once the holder is not alive
    is_tied: bool  # a stream ties the lease to this process: it ends with it
    listeners: Mapping[str, Callable[..., object] | None]
    strategy: Strategy | None  # None: the client's
    scopes: tuple[Scope, ...]  # acquired in one step, the first is the namespace and key above; empty: that alone
    priority: int  # of a waiter
    ask_hand_over: bool  # while it waits, the holders that it waits behind
    is_tick: bool  # the next one of the schedule with this name is claimed

    @property
    def mode(self) -> str:
        return "shared" if self.units else "exclusive"

    @property
    def waits(self) -> bool:
        return self.wait > 0 or self.while_alive or self.is_tied or self.is_tick


def asked(default_owner: str, namespace: Any, key: Any, *, duration: Any = 30, wait: Any = 0, owner: Any = None, labels: Any = None,
          on_lost: Any = None, shared: Any = False, units: Any = 1, at_least: Any = None, while_alive: Any = False,
          on_granted: Any = None, on_renewed: Any = None, on_released: Any = None, is_tied: bool = False, strategy: Any = None,
          scopes: tuple[Scope, ...] = (), is_tick: bool = False, priority: Any = 0, on_asked: Any = None,
          ask_hand_over: Any = False) -> Asked:
    for name, value in {"while_alive": while_alive, "ask_hand_over": ask_hand_over}.items():
        if not isinstance(value, bool):
            raise refused(name, value, "True or False")
    if ask_hand_over and seconds_to_wait(wait) == 0 and not while_alive and not is_tied:
        raise refused("ask_hand_over", ask_hand_over, "False without a wait")
    if while_alive and seconds_to_wait(wait) == math.inf:
        raise refused("wait", wait, "a number of seconds with while_alive")
    if is_tied and shared:
        raise refused("shared", shared, "False for a leader's lease")
    listeners = {"on_granted": on_granted, "on_renewed": on_renewed, "on_released": on_released, "on_asked": on_asked}
    for name, function in listeners.items():
        callback(name, function)
    return Asked(namespace_text(namespace), "" if is_tick else key_text(key), more_than_zero("duration", duration), seconds_to_wait(wait),
                 default_owner if owner is None else owner_text(owner), labels_of(labels), units_asked(shared, units),
                 minimum_hold(at_least), callback("on_lost", on_lost), while_alive, is_tied, listeners, strategy_of(strategy), scopes, priority_of(priority),
                 ask_hand_over, is_tick)
