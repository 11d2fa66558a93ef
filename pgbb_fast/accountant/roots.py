"""Root finding for calibration: few evaluations, and a result that was itself evaluated and found safe."""

from __future__ import annotations

import math
from collections.abc import Callable

from pgbb_fast.errors import PrivacyError


def largest_safe_log(
    value: Callable[[float], float], start: float, *, who: str, tolerance: float = 1e-5, step: float = 0.3
) -> float:
    """Least x, to within ``tolerance``, with ``value(x) <= 0`` for a decreasing ``value``; the x returned was tested.

    ``x`` is a logarithm.  Bracketing by growing steps, then a safeguarded secant (Illinois) iteration.  Values
    may be infinite.  Refuses if no bracket is found.
    """
    x, fx = start, value(start)
    direction = 1.0 if fx > 0 else -1.0
    other, f_other = x, fx
    size = step
    for _ in range(80):
        other = x + direction * size
        f_other = value(other)
        if (f_other > 0) != (fx > 0):
            break
        x, fx = other, f_other
        size *= 2
        if abs(other) > 690:
            break
    if (f_other > 0) == (fx > 0):
        raise PrivacyError(f"{who}: no noise multiplier between e-300 and e300 meets the target; check epsilon and delta")
    (bad, f_bad), (good, f_good) = ((x, fx), (other, f_other)) if fx > 0 else ((other, f_other), (x, fx))
    return _illinois(value, bad, f_bad, good, f_good, tolerance)


def _illinois(
    value: Callable[[float], float], bad: float, f_bad: float, good: float, f_good: float, tolerance: float
) -> float:
    """Shrink (bad, good] until it is shorter than ``tolerance``; return the tested good end."""
    last = 0
    for iteration in range(200):
        width = good - bad
        if abs(width) <= tolerance:
            break
        finite = math.isfinite(f_bad) and math.isfinite(f_good) and f_good < f_bad
        if finite and iteration % 4 != 3:
            guess = good - f_good * width / (f_good - f_bad)
            # aim a little to the good side, so that both ends close in
            guess += 0.3 * tolerance * math.copysign(1.0, width)
            inner = 0.05 * tolerance
            lo, hi = min(bad, good) + inner, max(bad, good) - inner
            guess = min(max(guess, lo), hi)
        else:
            guess = 0.5 * (bad + good)
        f_guess = value(guess)
        if f_guess > 0:
            bad, f_bad = guess, f_guess
            if last == 1 and math.isfinite(f_good):
                f_good /= 2
            last = 1
        else:
            good, f_good = guess, f_guess
            if last == -1 and math.isfinite(f_bad):
                f_bad /= 2
            last = -1
    return good


def largest_integer(fits: Callable[[int], bool], start: int, limit: int) -> int:
    """Largest integer in [0, limit] with ``fits`` true, for a ``fits`` that is true up to some point; 0 if none."""
    low, high = 0, max(1, min(start, limit))
    while fits(high):
        low = high
        if high == limit:
            return limit
        high = min(2 * high, limit)
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low
