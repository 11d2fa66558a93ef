"""Checks shared by the public functions."""

from __future__ import annotations

from typing import Literal

from pgbb_fast.accountant.mechanisms import MIN_DELTA, MOST
from pgbb_fast.accountant.orders import Conversion
from pgbb_fast.errors import DomainError
from pgbb_fast.validation import between, one_of, real

Method = Literal["pld", "renyi", "renyi-series"]

_METHODS = ("pld", "renyi", "renyi-series")
_CONVERSIONS = ("standard", "cks")


def check_epsilon(who: str, epsilon: object) -> float:
    """``epsilon`` as a float in [0, ``MOST``]."""
    number = real(who, "epsilon", epsilon)
    if not 0 <= number <= MOST:
        raise DomainError(f"{who}: epsilon must lie in [0, {MOST:g}], got {number!r}")
    return number


def check_delta(who: str, delta: object) -> float:
    """``delta`` as a float in (``MIN_DELTA``, 1)."""
    return between(who, "delta", delta, MIN_DELTA, 1.0)


def check_method(who: str, method: Method, conversion: Conversion | None) -> Conversion:
    """The conversion in force; refuses unknown methods, and a conversion where there is none to choose."""
    one_of(who, "method", method, _METHODS)
    if conversion is None:
        return "cks"
    one_of(who, "conversion", conversion, _CONVERSIONS)
    if method == "pld":
        raise DomainError(
            f"{who}: conversion={conversion!r} belongs to the Renyi methods; leave it out, or choose one of them"
        )
    return conversion
