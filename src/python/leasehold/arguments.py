"""What callers pass, looked at before anything is sent: an error names the argument, the value, and what it must be."""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from .errors import InvalidArgument

MOST_UNITS = 1_000_000


def refused(name: str, value: Any, wanted: str) -> InvalidArgument:
    return InvalidArgument(f"{name} must be {wanted}, not {value!r}", "INVALID_ARGUMENT")


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)


def text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise refused(name, value, "a string that is not empty")
    return value


def owner(value: Any) -> str:
    if not isinstance(value, str):
        raise refused("owner", value, "a string")
    return value


def given(name: str, value: Any) -> str | None:
    return None if value is None else text(name, value)


def more_than_zero(name: str, value: Any) -> float:
    if not is_number(value) or not 0 < value < math.inf:
        raise refused(name, value, "a number of seconds above 0")
    return float(value)


def wait(value: Any) -> float:
    """None: for ever."""
    if value is None:
        return math.inf
    if not is_number(value) or value < 0:
        raise refused("wait", value, "a number of seconds from 0 on, or None to wait for ever")
    return float(value)


def at_least(value: Any) -> float | None:
    """None: the policy's."""
    if value is None:
        return None
    if not is_number(value) or not 0 <= value < math.inf:
        raise refused("at_least", value, "a number of seconds from 0 on, or None")
    return float(value)


def units(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_UNITS:
        raise refused("units", value, f"1 to {MOST_UNITS}")
    return value


def units_asked(shared: Any, value: Any) -> int:
    """0: of an exclusive lease."""
    if not isinstance(shared, bool):
        raise refused("shared", shared, "True or False")
    if not shared and value != 1:
        raise refused("units", value, "1 without shared")
    return units(value) if shared else 0


def labels(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for pair in value.items() for each in pair):
        raise refused("labels", value, "a mapping of strings to strings")
    return dict(value)


def callback(name: str, value: Any) -> Callable[..., object] | None:
    if value is not None and not callable(value):
        raise refused(name, value, "a function")
    return value  # type: ignore[no-any-return]
