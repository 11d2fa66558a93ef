"""Checks of scalar parameters, each in the form that refuses nan.

Every function takes ``who`` (the caller's public name) and ``name`` (the argument) and returns the checked
value, so a check reads ``epsilon = positive("fit", "epsilon", epsilon)``.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Mapping, Sequence
from numbers import Integral, Real
from typing import SupportsIndex, TypeVar

import numpy as np

from pgbb_fast.errors import DomainError

T = TypeVar("T")
SHORT = 60  # characters of a text that a message repeats


def shown(value: object) -> str:
    """``value`` for a message if it is one number, truth value or short text; else what it is, by words of ours.

    A parameter is public, but what was passed in its place by mistake may be records.
    """
    if value is None or isinstance(value, (bool, np.bool_)):
        return repr(value)
    if isinstance(value, (int, float, complex, np.number, str)):
        try:
            text = repr(value)
        except Exception:
            text = ""
        if text and len(text) <= SHORT:
            return text
        return "a long text" if isinstance(value, str) else "a long number"
    if isinstance(value, np.ndarray):
        return "an array"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (Sequence, set, frozenset)):
        return f"a {type(value).__name__}" if type(value) in (list, tuple, set, frozenset, bytes) else "a sequence"
    return "another object"


def items(value: object) -> tuple[object, ...] | None:
    """What a list, tuple, range or array holds, one by one; None for all else (text, sets, iterators, frames)."""
    if isinstance(value, np.ndarray):
        return tuple(value) if value.ndim else None
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else None


def real(who: str, name: str, value: object) -> float:
    """``value`` as a finite float; refuses bool, complex, strings, nan and infinities."""
    if isinstance(value, np.ndarray) and value.ndim == 0 and not isinstance(value, np.ma.MaskedArray):
        value = value[()]
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise DomainError(f"{who}: {name} must be a real number, got {shown(value)}")
    try:
        number = float(value)
    except Exception:  # a whole number beyond double precision, or what only claims to be a number
        number = math.nan
    if not math.isfinite(number):
        raise DomainError(f"{who}: {name} must be finite, got {shown(value)}")
    return number


def between(who: str, name: str, value: object, low: float, high: float, why: str = "") -> float:
    """``value`` as a float with ``low < value < high`` (open interval)."""
    number = real(who, name, value)
    if not low < number < high:
        because = f": {why}" if why else ""
        raise DomainError(f"{who}: {name} must lie in ({low:g}, {high:g}), got {shown(value)}{because}")
    return number


def positive(who: str, name: str, value: object, why: str = "") -> float:
    """``value`` as a float with ``0 < value < inf``."""
    return between(who, name, value, 0.0, math.inf, why)


def probability(who: str, name: str, value: object, why: str = "") -> float:
    """``value`` as a float with ``0 < value <= 1``."""
    number = real(who, name, value)
    if not 0.0 < number <= 1.0:
        raise DomainError(f"{who}: {name} must lie in (0, 1], got {shown(value)}" + (f": {why}" if why else ""))
    return number


def integer(who: str, name: str, value: object, low: int, high: int | None = None, why: str = "") -> int:
    """``value`` as an int with ``low <= value`` (``<= high``); refuses bool and floats such as 3.0."""
    if isinstance(value, bool) or not isinstance(value, (Integral, SupportsIndex)):
        raise DomainError(f"{who}: {name} must be an integer, got {shown(value)}")
    try:
        number = operator.index(value)
    except Exception:  # an array of several numbers has the method, too
        raise DomainError(f"{who}: {name} must be an integer, got {shown(value)}") from None
    if number < low or (high is not None and number > high):
        top = "" if high is None else f" and at most {high}"
        because = f": {why}" if why else ""
        raise DomainError(f"{who}: {name} must be at least {low}{top}, got {shown(value)}{because}")
    return number


def one_of(who: str, name: str, value: T, choices: Collection[T]) -> T:
    """``value`` if it is one of ``choices``."""
    if not any(isinstance(value, type(choice)) and value == choice for choice in choices):
        raise DomainError(f"{who}: {name} must be one of {', '.join(map(repr, choices))}, got {shown(value)}")
    return value


def flag(who: str, name: str, value: object) -> bool:
    """``value`` as a bool; refuses all but True and False (0 and 1 count as them)."""
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, Integral) and value in (0, 1)):
        return bool(value)
    raise DomainError(f"{who}: {name} must be True or False, got {shown(value)}")


def ordered_pair(who: str, name: str, value: object) -> tuple[float, float]:
    """``value`` as ``(low, high)``, both finite, ``low < high``."""
    ends = items(value)
    if ends is None or len(ends) != 2:
        raise DomainError(f"{who}: {name} must be a pair (low, high), got {shown(value)}")
    low, high = real(who, f"{name}[0]", ends[0]), real(who, f"{name}[1]", ends[1])
    if not low < high:
        raise DomainError(f"{who}: {name} must have low < high, got ({low:g}, {high:g})")
    return low, high
