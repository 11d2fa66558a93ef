r"""The law of V = u_1^2 + ... + u_K^2, u_k independent Beta(gamma, (S-1) gamma): one minibatch for K draws.

Each u_k^2 is rounded down to a lattice c Z, and the sum V' of the rounded ones has tails with proved error bounds from
``convolve.power_tail``.  V lies between V' and V' + K c.  Where the density of u^2 falls (gamma <= 2 and
(S-1) gamma >= 1) its mean within a cell is at most the cell's middle, so :math:`E(V | V') \le V' + K c / 2`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.accountant.convolve import power_tail

Array = NDArray[Any]

ROUND = 3e-11  # relative error allowed to the incomplete beta function (tested to be a tenth of it)
_CELL = 2e-3  # width of cells of u^2 in units of E u^2
_NARROW = 6e-4  # the same where the density is not known to fall
_MAX_CELLS = 2**18
_GROUPS = 4096


@dataclass(frozen=True)
class SquareSum:
    """Groups of points of the lattice, the i-th from ``start[i]`` to below ``start[i + 1]``.

    ``tail_low``, ``tail_high`` bracket P(V' >= start c) at every start.  ``upper_root``, ``lower_root`` at a start are
    bounds g, h of E(R | V') there, and ``upper_sum``, ``lower_sum`` the sums over a group's points k of
    (g(k+1) - g(k)) P(V' > k c), rounded up, and of the same with h, rounded down.  ``omitted`` is in no group.
    """

    cell: float
    start: NDArray[np.int64]
    tail_low: Array
    tail_high: Array
    upper_root: Array
    lower_root: Array
    upper_sum: Array
    lower_sum: Array
    omitted: float


@lru_cache(maxsize=8)
def square_sum(gamma: float, blocks: int, draws: int, exponent: int) -> SquareSum:
    """The law of V but for about K 10^-exponent of it."""
    falling = gamma <= 2 and (blocks - 1) * gamma >= 1
    cell, low, high, omitted = _square_tails(gamma, blocks, draws, 10.0**-exponent, _CELL if falling else _NARROW)
    n = len(high)
    even = np.linspace(0.0, 1.0, _GROUPS + 1) ** 2
    typical = min(n, math.ceil(16 * draws * (gamma + 1) / (blocks * (blocks * gamma + 1)) / cell))
    start = np.unique(np.rint(np.concatenate((n * even, typical * even))).astype(np.int64))
    k = np.arange(n + 1.0)
    g, h = np.sqrt(cell * (k + draws * (0.5 if falling else 1.0))), np.sqrt(cell * k)
    return SquareSum(
        cell,
        start,
        np.append(1.0 - omitted - 1e-12, low)[start],
        np.append(1.0, high)[start],
        g[start],
        h[start],
        np.add.reduceat(np.diff(g) * high, start[:-1]),
        np.add.reduceat(np.diff(h) * low, start[:-1]),
        float(high[-1]) + omitted,
    )


def beta_quantile(a: float, b: float, tail: float) -> float:
    """A u with P(U > u) <= ``tail``, nearly the least; 1 where none below 1 is found."""
    from scipy.special import betaincc

    low, high = 0.0, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        if betaincc(a, b, middle) <= tail:
            high = middle
        else:
            low = middle
    return high if high < 1 - 1e-9 else 1.0


def _square_tails(
    gamma: float, blocks: int, draws: int, tail: float, width: float
) -> tuple[float, Array, Array, float]:
    """Cell width c, brackets of P(V' > k c, every u_k below a quantile), and the probability of the rest."""
    from scipy.special import betainc, betaincc

    a, b = gamma, (blocks - 1) * gamma
    second = (gamma + 1) / (blocks * (blocks * gamma + 1))
    top = beta_quantile(a, b, tail)
    cell = max(width * second, top * top / _MAX_CELLS)
    count = math.ceil(top * top / cell)
    root = np.minimum(np.sqrt(cell * np.arange(count + 1.0)), 1.0)
    # each tail where it is the smaller one; the cell in between is what both leave
    middle = int(np.searchsorted(root, beta_quantile(a, b, 0.5)))
    below, above = betainc(a, b, root[:middle]), betaincc(a, b, root[middle:])
    between = 1.0 - float(below[-1]) - float(above[0])
    mass = np.maximum(np.concatenate((np.diff(below), [between], -np.diff(above))), 0.0)
    return (cell, *power_tail(mass, draws, error=ROUND), draws * float(above[-1]) * (1 + ROUND))
