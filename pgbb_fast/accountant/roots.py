"""Root finding for calibration: few evaluations, and ends that were themselves evaluated."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from pgbb_fast.errors import PrivacyError


class Bracket(NamedTuple):
    """Neighbouring points: the target is missed at ``bad`` and met, by a test, at ``good``."""

    bad: float
    good: float
    slope: float = 1.0  # of the value's fall about there, at least 1: a hint for the next search


_MAX_STEPS = 30  # evaluations until both ends are known, and as many until they are close
_FARTHER = 1.5
_CLOSE = 1e-3  # ends this close need not come closer where the value jumps between them
_JUMP = 8.0  # a jump: as many times steeper than the first bracket


def bracket_root(
    value: Callable[[float], float],
    start: float,
    *,
    who: str,
    low: float,
    high: float,
    tolerance: float = 1e-5,
    slope: float = 1.0,
) -> Bracket:
    """Bracket, to within ``tolerance``, the point from which a decreasing ``value`` is at most 0.

    ``x`` is a logarithm, on which ``value`` falls with a slope of about -``slope``; values may be infinite.  If
    the target is met even at ``low``, both ends are ``low``; if it is missed even at ``high``, the call is refused.

    A ``value`` need not fall everywhere: after at most 60 evaluations the search ends, and the good end is the
    smallest point seen that met the target.  The ends are then further apart than ``tolerance``: by as much as
    ``value`` was seen to rise over its slope, by 1e-3 where it jumps, or, where no point missed the target, with
    ``low`` (untested) as the bad end.  Where none met it, the call is refused.  nan counts as missed.
    """

    def seen(x: float) -> float:
        fx = value(x)
        return math.inf if math.isnan(fx) else fx

    x = min(max(start, low), high)
    good = bad = None
    size = 0.3
    for looks in range(_MAX_STEPS):
        fx = seen(x)
        if fx > 0:
            bad = (x, fx)
        else:
            good = (x, fx)
        if good is not None and bad is not None:
            return _illinois(seen, bad, good, tolerance)
        if good is not None and x <= low:
            return Bracket(low, low)
        if bad is not None and x >= high:
            raise PrivacyError(f"{who}: no value between e^{low:.0f} and e^{high:.0f} meets the target")
        # farther each time: a slope far below the one assumed would only be crept along
        move = 1.1 * abs(fx) / slope * _FARTHER**looks + tolerance if math.isfinite(fx) else math.inf
        step = min(size, move)
        size *= 2
        x = min(max(x + (step if fx > 0 else -step), low), high)
    if good is None:
        raise PrivacyError(f"{who}: no value that meets the target in {_MAX_STEPS} looks; raise epsilon or delta")
    return Bracket(low, good[0])


def _illinois(
    value: Callable[[float], float], bad: tuple[float, float], good: tuple[float, float], tolerance: float
) -> Bracket:
    (b, f_b), (g, f_g) = (b, raw_b), (g, raw_g) = bad, good
    drop = f_b - f_g
    slope, blur = max(1.0, drop / (g - b)) if math.isfinite(drop) else math.nan, 0.0
    last = 0
    for iteration in range(_MAX_STEPS):
        width = g - b
        if math.isnan(slope) and math.isfinite(raw_b - raw_g):
            slope = max(1.0, (raw_b - raw_g) / width)
        jumps = abs(width) <= _CLOSE and _JUMP * slope * abs(width) < raw_b - raw_g < math.inf
        if abs(width) <= tolerance or abs(width) <= blur / slope or jumps:
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
        if math.isfinite(f):
            blur = max(blur, f - raw_b, raw_g - f if math.isfinite(raw_g) else 0.0)
        if f > 0:
            b, f_b, raw_b = x, f, f
            if last == 1:
                f_g /= 2
            last = 1
        else:
            g, f_g, raw_g = x, f, f
            if last == -1:
                f_b /= 2
            last = -1
    return Bracket(b, g, 1.0 if math.isnan(slope) else slope)


def largest_integer(fits: Callable[[int], bool], low: int, high: int) -> int:
    """Largest integer in [low, high) at which ``fits`` holds, given that it holds at ``low`` and not at ``high``."""
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low
