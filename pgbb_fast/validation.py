"""Checks of scalar parameters, each in the form that refuses nan.

Every function takes ``who`` (the caller's public name) and ``name`` (the argument) and returns the checked
value, so a check reads ``epsilon = positive("fit", "epsilon", epsilon)``.  Messages show numbers and short words, of
everything else its kind only (:func:`shown`): a data set may have been passed by mistake.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from numbers import Integral, Number, Real
from typing import TypeVar

import numpy as np

from pgbb_fast.errors import DomainError

T = TypeVar("T")
LONGEST = 60  # characters of an argument that a message repeats
MOST = 2**63
KINDS: tuple[tuple[type, str], ...] = (
    (Number, "another kind of number"),
    (np.ndarray, "an array"),
    (str, "a text"),
    (bytes, "bytes"),
    (Mapping, "a mapping"),
    (Set, "a set"),
    (Sequence, "a sequence"),
    (Iterator, "an iterator"),
    (type, "a class"),
)


def shown(value: object) -> str:
    """What a message may show of an argument: a number, a short word, or its kind from a fixed list."""
    if value is None or isinstance(value, (bool, np.bool_)):
        return str(value)
    if isinstance(value, (float, np.floating, np.integer)):
        return repr(value)
    if isinstance(value, int):
        return repr(value) if abs(value) < MOST else "a number beyond 2^63"
    if isinstance(value, str):
        return repr(value) if len(value) <= LONGEST and value.isprintable() else "a text"
    return next((name for kind, name in KINDS if isinstance(value, kind)), "an object of another type")


def scalar(value: object) -> object:
    """The one number in an array or tensor without dimensions; all else as it is."""
    bare = not isinstance(value, (np.generic, np.ma.MaskedArray))
    if bare and getattr(value, "shape", None) == () and hasattr(value, "item"):
        try:
            return value.item()
        except Exception:  # an array-like of somebody's own
            return value
    return value


def _because(why: str) -> str:
    return f": {why}" if why else ""


def items(value: object) -> tuple[object, ...] | None:
    """What a list, tuple, range or array holds, one by one; None for all else (text, sets, iterators, frames)."""
    if isinstance(value, np.ndarray):
        return tuple(value) if value.ndim else None
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else None


def real(who: str, name: str, value: object) -> float:
    """``value`` as a finite float; refuses bool, complex, strings, nan and infinities."""
    value = scalar(value)
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
        raise DomainError(f"{who}: {name} must lie in ({low:g}, {high:g}), got {shown(value)}" + _because(why))
    return number


def positive(who: str, name: str, value: object, why: str = "") -> float:
    """``value`` as a float with ``0 < value < inf``."""
    return between(who, name, value, 0.0, math.inf, why)


def probability(who: str, name: str, value: object, why: str = "") -> float:
    """``value`` as a float with ``0 < value <= 1``."""
    number = real(who, name, value)
    if not 0.0 < number <= 1.0:
        raise DomainError(f"{who}: {name} must lie in (0, 1], got {shown(value)}" + _because(why))
    return number


def integer(who: str, name: str, value: object, low: int, high: int | None = None, why: str = "") -> int:
    """``value`` as an int with ``low <= value`` (``<= high``); refuses bool and floats such as 3.0."""
    value = scalar(value)
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise DomainError(f"{who}: {name} must be an integer, got {shown(value)}")
    number = operator.index(value)
    if abs(number) >= MOST:
        raise DomainError(f"{who}: {name} must be below 2^63 in size")
    if number < low or (high is not None and number > high):
        top = "" if high is None else f" and at most {high}"
        raise DomainError(f"{who}: {name} must be at least {low}{top}, got {shown(value)}" + _because(why))
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
