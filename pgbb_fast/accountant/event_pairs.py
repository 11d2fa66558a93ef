r"""Worst pairs of Laplace noise and of the discrete Gaussian, for the same lattices as the others.

Both laws are log-concave and symmetric, so a likelihood ratio of two shifts is monotone, the best test is a half
line, and :math:`F(t) - e^\epsilon F(t - d)` grows with the shift d: the largest shift has the largest hockey-stick
divergence at every epsilon, and exchanging P and Q changes nothing.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.accountant import lattice
from pgbb_fast.accountant.cells import UNIT, HalfCells
from pgbb_fast.accountant.events import DiscreteGaussian, Event, LaplaceMechanism
from pgbb_fast.accountant.lattice import Lattice
from pgbb_fast.accountant.mechanisms import check_noise
from pgbb_fast.accountant.pairs import Focus, Pair, Quality, pair_for
from pgbb_fast.accountant.radius import OMITTED

Array = NDArray[Any]

_REACH = 20.0  # standard deviations listed: P(|x| > 20 sigma) <= 2 e^-200 < OMITTED (subgaussian tail)
_SKETCH = 400


def event_pair(event: Event) -> Pair:
    """The worst pair of one release of whatever a ledger holds."""
    if isinstance(event, LaplaceMechanism):
        return _laplace(float(event.scale_over_sensitivity))
    if isinstance(event, DiscreteGaussian):
        return _discrete(float(event.sigma), int(event.sensitivity))
    return pair_for(event, check_noise("Ledger", event))


def _laplace(scale: float) -> Pair:
    r"""Losses :math:`\pm\epsilon_0`, :math:`\epsilon_0` = 1 / scale, with masses 1/2 and :math:`e^{-\epsilon_0}/2`,
    and between them the density :math:`e^{-(\epsilon_0 - l)/2} / 4`."""
    high, low = math.nextafter(1.0 / scale, math.inf), math.nextafter(1.0 / scale, 0.0)

    def sketch(direction: int, cut: float) -> tuple[Array, Array]:
        del direction, cut
        ends = np.linspace(-high, high, _SKETCH + 1)
        middle = 0.5 * (ends[1:] + ends[:-1])
        mass = np.exp(-(high - middle) / 2) / 4 * np.diff(ends)
        losses = np.concatenate(([-high], middle, [high]))
        mass = np.concatenate(([math.exp(-high) / 2], mass, [0.5]))
        return losses, mass / mass.sum()

    def lengths(focus: Focus, quality: Quality) -> Array:
        del quality
        return np.array([min(high, focus.cap)])

    def build(direction: int, h: float, focus: Focus, quality: Quality, upper: bool) -> Lattice:
        del direction, quality
        cells = _laplace_cells(high if upper else low, h, focus.edges(h))
        return lattice.upper_from_half(cells) if upper else lattice.lower_from_half(cells)

    return Pair(1, (high,), sketch, lengths, build)


def _laplace_cells(top: float, h: float, edges: NDArray[np.int64]) -> HalfCells:
    """Cells of the Laplace pair with largest loss ``top``, the atom there in the cell that holds it."""
    edges = edges[: max(2, int(np.searchsorted(h * edges, top, side="right")) + 1)]
    e = h * edges
    start, stop = np.minimum(e[:-1], top), np.minimum(e[1:], top)
    share = -np.expm1(-(stop - start) / 2) / 2
    p, q = np.exp(-(top - stop) / 2) * share, np.exp(-(top + start) / 2) * share
    above, below = np.zeros(len(e)), np.zeros(len(e))
    if e[-1] > top:
        place = int(np.searchsorted(e, top, side="right")) - 1
        p[place] += 0.5
        q[place] += math.exp(-top) / 2
    else:
        above[-1] = 0.5 - math.expm1(-(top - float(e[-1])) / 2) / 2
        below[-1] = math.exp(-(top + float(e[-1])) / 2) / 2
    # exponentials are rounded in their arguments, and a cell's width to an ulp of its ends
    error = 16 * UNIT * (1 + top) * (p + np.exp(-(top - stop) / 2))
    error_q = 16 * UNIT * (1 + top) * (q + np.exp(-(top + start) / 2))
    beyond = float(above[-1]) * (1 + 1e-14)
    return HalfCells(h, edges, p, q, error, error_q, 0.0, 0.0, beyond, above, below)


@lru_cache(maxsize=8)
def _atoms(sigma: float, shift: int) -> tuple[Array, Array, Array, Array, float]:
    r"""Losses above 0, ascending, their masses under P and Q, a relative error, and the mass at loss 0.

    With u = Delta - 2 x > 0 the loss at x is :math:`\Delta u / (2 \sigma^2)`: the normalisers are the same for whole
    shifts and cancel.
    """
    reach = math.ceil(_REACH * sigma) + 1
    x = np.arange((shift - 1) // 2, -reach - 1, -1.0)
    around = np.arange(-reach, reach + 1.0)
    total = float(np.exp(-((around / sigma) ** 2) / 2).sum())
    a, b = (x / sigma) ** 2 / 2, ((x - shift) / sigma) ** 2 / 2
    p, q = np.exp(-a) / total, np.exp(-b) / total
    loss = shift * (shift - 2 * x) / sigma / sigma / 2
    relative = UNIT * (64 + 8 * (a + np.minimum(b, 750.0)))
    zero = math.exp(-((shift / 2 / sigma) ** 2) / 2) / total if shift % 2 == 0 else 0.0
    return loss, p, q, relative, zero


def _discrete(sigma: float, shift: int) -> Pair:
    loss, p, q, relative, zero = _atoms(sigma, shift)
    largest = float(loss[-1]) if len(loss) else 0.0

    def sketch(direction: int, cut: float) -> tuple[Array, Array]:
        del direction, cut
        starts = np.unique(np.linspace(0, len(loss) - 1, _SKETCH).astype(np.int64))
        up, down = np.add.reduceat(p, starts), np.add.reduceat(q, starts)
        weight = np.maximum(p, 1e-300)
        middle = np.add.reduceat(loss * weight, starts) / np.add.reduceat(weight, starts)
        losses = np.concatenate((-middle[::-1], [0.0], middle))
        mass = np.concatenate((down[::-1], [zero], up))
        return losses, mass / mass.sum()

    def lengths(focus: Focus, quality: Quality) -> Array:
        del quality
        return np.array([min(largest, focus.cap)])

    def build(direction: int, h: float, focus: Focus, quality: Quality, upper: bool) -> Lattice:
        del direction, quality
        edges = focus.edges(h)
        e = h * edges
        # a loss known to a few roundings counts on the side claimed
        place = np.searchsorted(e, loss * (1 + (16 if upper else -16) * UNIT), side="right") - 1
        seen = (place >= 0) & (place < len(e) - 1)
        beyond = place >= len(e) - 1
        n = len(e) - 1

        def summed(values: Array) -> Array:
            result: Array = np.bincount(place[seen], weights=values[seen], minlength=n)
            return result

        cells_p, cells_q = summed(p), summed(q)
        rounding = UNIT * (64 + seen.sum())
        error_p, error_q = summed(p * relative) + rounding * cells_p, summed(q * relative) + rounding * cells_q
        above, below = np.zeros(n + 1), np.zeros(n + 1)
        above[-1], below[-1] = float(p[beyond].sum()), float(q[beyond].sum())
        rest = float(above[-1]) * (1 + 1e-9) + OMITTED
        slack = 1e-12 * zero
        atom = zero + slack
        cells = HalfCells(h, edges, cells_p, cells_q, error_p, error_q, atom, 2 * slack, rest, above, below)
        return lattice.upper_from_half(cells) if upper else lattice.lower_from_half(cells)

    return Pair(1, (math.inf,), sketch, lengths, build)
