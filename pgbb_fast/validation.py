"""Checks of scalar parameters, each in the form that refuses nan.

Every function takes ``who`` (the caller's public name) and ``name`` (the argument) and returns the checked
value, so a check reads ``epsilon = positive("fit", "epsilon", epsilon)``.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection
from numbers import Integral, Real
from typing import SupportsIndex, TypeVar

from pgbb_fast.errors import DomainError

T = TypeVar("T")


def real(who: str, name: str, value: object) -> float:
    """``value`` as a finite float; refuses bool, complex, strings, nan and infinities."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise DomainError(f"{who}: {name} must be a real number, got {value!r}")
    number = float(value)
    if not math.isfinite(number):
        raise DomainError(f"{who}: {name} must be finite, got {value!r}")
    return number


def between(who: str, name: str, value: object, low: float, high: float, why: str = "") -> float:
    """``value`` as a float with ``low < value < high`` (open interval)."""
    number = real(who, name, value)
    if not low < number < high:
        raise DomainError(f"{who}: {name} must lie in ({low:g}, {high:g}), got {value!r}" + (f": {why}" if why else ""))
    return number


def positive(who: str, name: str, value: object, why: str = "") -> float:
    """``value`` as a float with ``0 < value < inf``."""
    return between(who, name, value, 0.0, math.inf, why)


def probability(who: str, name: str, value: object, why: str = "") -> float:
    """``value`` as a float with ``0 < value <= 1``."""
    number = real(who, name, value)
    if not 0.0 < number <= 1.0:
        raise DomainError(f"{who}: {name} must lie in (0, 1], got {value!r}" + (f": {why}" if why else ""))
    return number


def integer(who: str, name: str, value: object, low: int, high: int | None = None, why: str = "") -> int:
    """``value`` as an int with ``low <= value`` (``<= high``); refuses bool and floats such as 3.0."""
    if isinstance(value, bool) or not isinstance(value, (Integral, SupportsIndex)):
        raise DomainError(f"{who}: {name} must be an integer, got {value!r}")
    number = operator.index(value)
    if number < low or (high is not None and number > high):
        top = "" if high is None else f" and at most {high}"
        raise DomainError(f"{who}: {name} must be at least {low}{top}, got {value!r}" + (f": {why}" if why else ""))
    return number


def one_of(who: str, name: str, value: T, choices: Collection[T]) -> T:
    """``value`` if it is one of ``choices``."""
    if value not in choices:
        raise DomainError(f"{who}: {name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def ordered_pair(who: str, name: str, value: object) -> tuple[float, float]:
    """``value`` as ``(low, high)``, both finite, ``low < high``."""
    try:
        ends: tuple[object, ...] = tuple(value)  # type: ignore[arg-type]
    except TypeError:
        ends = ()
    if len(ends) != 2:
        raise DomainError(f"{who}: {name} must be a pair (low, high), got {value!r}")
    low, high = real(who, f"{name}[0]", ends[0]), real(who, f"{name}[1]", ends[1])
    if not low < high:
        raise DomainError(f"{who}: {name} must have low < high, got ({low:g}, {high:g})")
    return low, high
