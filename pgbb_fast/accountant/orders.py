r"""From Renyi moments to (epsilon, delta): two conversions and the search for the best integer order.

With A the composed log moment at order lambda, for every lambda

* standard (Mironov 2017): :math:`\log \delta \le A - (\lambda - 1) \epsilon`;
* CKS (Canonne, Kamath and Steinke 2020, arXiv:2004.00010, proposition 12): the same times
  :math:`(1 - 1/\lambda)^\lambda / (\lambda - 1)`.

Any order gives a valid bound, so a search that stops early is safe and only loose.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

Conversion = Literal["standard", "cks"]

_WORK_LIMIT = 2**20  # orders above this are not tried


def log_factor(order: int, conversion: Conversion) -> float:
    """log of the conversion's factor: 0, or lambda log(1 - 1/lambda) - log(lambda - 1)."""
    if conversion == "standard":
        return 0.0
    return order * math.log1p(-1.0 / order) - math.log(order - 1.0)


def minimise_over_orders(objective: Callable[[int], float]) -> tuple[float, int]:
    """Smallest value of ``objective`` over integers >= 2 and where it was found.

    The orders grow by about a third at a time, without a cap, until the objective has risen or been infinite
    for four in a row; then the best bracket is searched to the integer, or to 1/256 of a large order.
    """
    seen: dict[int, float] = {}

    def value(order: int) -> float:
        if order not in seen:
            got = objective(order)
            seen[order] = got if got == got else math.inf
        return seen[order]

    order, best, worse = 2, 2, 0
    while worse < 4 and order <= _WORK_LIMIT:
        current = value(order)
        if current < value(best):
            best, worse = order, 0
        elif order > best:
            worse += 1
        order += max(1, order // 3)
    grid = sorted(seen)
    place = grid.index(best)
    low = grid[max(place - 1, 0)]
    high = grid[min(place + 1, len(grid) - 1)]
    while high - low > max(4, high // 256):
        left = low + (high - low) * 2 // 5
        right = low + (high - low) * 3 // 5
        if value(left) <= value(right):
            high = right
        else:
            low = left
    for order in range(low, high + 1, max(1, (high - low) // 4)):
        value(order)
    best = min(seen, key=lambda k: seen[k])
    return seen[best], best


def log_factor_real(order: float, conversion: Conversion) -> float:
    """``log_factor`` at a real order above 1."""
    if conversion == "standard":
        return 0.0
    return order * math.log1p(-1.0 / order) - math.log(order - 1.0)


def minimise_over_reals(objective: Callable[[float], float], low: float, high: float) -> float:
    """A small value of ``objective`` on [low, high], by golden sections; any point gives a valid bound."""
    ratio = (math.sqrt(5.0) - 1) / 2
    a, b = low, high
    best = min(objective(a), objective(b))
    c, d = b - ratio * (b - a), a + ratio * (b - a)
    f_c, f_d = objective(c), objective(d)
    for _ in range(40):
        best = min(best, f_c, f_d)
        if f_c <= f_d:
            b, d, f_d = d, c, f_c
            c = b - ratio * (b - a)
            f_c = objective(c)
        else:
            a, c, f_c = c, d, f_d
            d = a + ratio * (b - a)
            f_d = objective(d)
        if b - a < 1e-6 * b:
            break
    return best


def epsilon_from_moments(log_moment: Callable[[int], float], delta: float, conversion: Conversion) -> float:
    """Smallest epsilon over orders: (A + log factor - log delta) / (lambda - 1), at least 0; rounded up."""
    log_delta = math.log(delta)

    def objective(order: int) -> float:
        return (log_moment(order) + log_factor(order, conversion) - log_delta) / (order - 1)

    value, _ = minimise_over_orders(objective)
    return max(0.0, value + 1e-14 * abs(value))


def log_delta_from_moments(log_moment: Callable[[int], float], epsilon: float, conversion: Conversion) -> float:
    """Smallest log delta over orders, at most 0; rounded up."""

    def objective(order: int) -> float:
        return log_moment(order) + log_factor(order, conversion) - (order - 1) * epsilon

    value, _ = minimise_over_orders(objective)
    return min(0.0, value + 1e-14 * (1 + abs(value)))
