"""Root finding for calibration: few evaluations, and ends that were themselves evaluated."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from pgbb_fast.errors import PrivacyError


class Bracket(NamedTuple):
    """Neighbouring tested points: the target is missed at ``bad`` and met at ``good``."""

    bad: float
    good: float


def bracket_root(
    value: Callable[[float], float],
    start: float,
    *,
    who: str,
    low: float,
    high: float,
    tolerance: float = 1e-5,
) -> Bracket:
    """Bracket, to within ``tolerance``, the point from which a decreasing ``value`` is at most 0.

    ``x`` is a logarithm, on which ``value`` falls with a slope of about -1; values may be infinite.  If the target
    is met even at ``low``, both ends are ``low``; if it is missed even at ``high``, the call is refused.
    """
    x = min(max(start, low), high)
    fx = value(x)
    good = bad = None
    size = 0.3
    while good is None or bad is None:
        if fx > 0:
            bad = (x, fx)
        else:
            good = (x, fx)
        if good is not None and bad is not None:
            break
        if good is not None and x <= low:
            return Bracket(low, low)
        if bad is not None and x >= high:
            raise PrivacyError(f"{who}: no value between e^{low:.0f} and e^{high:.0f} meets the target")
        move = 1.1 * abs(fx) + tolerance if math.isfinite(fx) else math.inf
        step = min(size, move)
        size *= 2
        x = min(max(x + math.copysign(step, fx), low), high)
        fx = value(x)
    return _illinois(value, bad, good, tolerance)


def _illinois(
    value: Callable[[float], float], bad: tuple[float, float], good: tuple[float, float], tolerance: float
) -> Bracket:
    (b, f_b), (g, f_g) = bad, good
    last = 0
    for iteration in range(200):
        width = g - b
        if abs(width) <= tolerance:
            break
        if math.isfinite(f_b) and math.isfinite(f_g) and f_g < f_b and iteration % 5 != 4:
            x = g - f_g * width / (f_g - f_b)
            # past the root by a fraction of the tolerance, on the side of the end that moved last
            x += math.copysign(0.4 * tolerance, width) * (1.0 if last >= 0 else -1.0)
            margin = 0.1 * tolerance
            x = min(max(x, min(b, g) + margin), max(b, g) - margin)
        else:
            x = 0.5 * (b + g)
        f = value(x)
        if f > 0:
            b, f_b = x, f
            if last == 1:
                f_g /= 2
            last = 1
        else:
            g, f_g = x, f
            if last == -1:
                f_b /= 2
            last = -1
    return Bracket(b, g)


def largest_integer(fits: Callable[[int], bool], low: int, high: int) -> int:
    """Largest integer in [low, high) at which ``fits`` holds, given that it holds at ``low`` and not at ``high``."""
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low
