r"""The law of the radius R = |w| of one release's weights, as finitely many nodes on the safe side.

A release shifts the worst pair by r = R / s: R = u for one draw, :math:`R = (\sum_k u_k^2)^{1/2}` for K draws that
share a minibatch, R = 1 for the deterministic weight.  Rounding R up is safe but of first order in the width
of the bins.  The following is safe and of second order.

**Lemma.** With :math:`\psi(r) = 2 \Phi(r) - 1`, the hockey-stick divergence :math:`\delta_r(\epsilon)` of the pair
(1-q) N(0,1) + q N(+-r,1) is, for every epsilon, an increasing *convex* function of psi(r).

*Proof.* For epsilon >= 0 let x be the threshold, :math:`r x = \epsilon/2 + \operatorname{asinh}(a \sinh(\epsilon/2))`,
:math:`a = e^{r^2/2} (1-q)/q`.  As x maximises, :math:`f' = d\delta/dr = q[\phi(x-r) + e^\epsilon \phi(x+r)] > 0`.
Put :math:`\tau = \tanh(r x - \epsilon/2)`; then :math:`x' = \tau - x/r`, and differentiating once more,
:math:`f''/f' = -(x x' + r) + (x + r x') \tau = -r + (x^2 - x r \tau + r^2 \tau^2) / r \ge -r = \psi''/\psi'`.
Negative epsilon: :math:`\delta(-\epsilon) = 1 - e^{-\epsilon} + e^{-\epsilon} \delta(\epsilon)`.  QED

So within a bin [a, b] the law of R may be replaced by its two end points, with the weights that keep (or raise)
the mean of psi: an upper bound.  By Jensen's inequality the single point with at most the mean of psi gives a
lower bound.  The mean of psi is itself bracketed through the mean of R, psi being concave.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.accountant.mechanisms import BlockedGaussian, SubsampledGaussian
from pgbb_fast.accountant.squared_sums import ROUND, beta_quantile, square_sum

Array = NDArray[Any]

OMITTED = 1e-78  # allowed for mass above the quantile of ``_TAIL``, which is in no bin and counts as infinite loss
_TAIL = 1e-80  # above the quantile of this tail the weight is left out


@dataclass(frozen=True)
class RadiusLaw:
    """Bins of R, each from ``low`` to ``high``, with outward-rounded masses and means; neighbours may overlap.

    The upper masses may sum to a little more than one.  ``omitted`` bounds the mass that is in no bin.
    """

    low: Array
    high: Array
    upper_mass: Array
    upper_mean: Array
    lower_mass: Array
    lower_mean: Array
    omitted: float


Weight = Callable[[Array], Array]


def typical_radius(mechanism: BlockedGaussian | SubsampledGaussian) -> float:
    """Root mean square of R."""
    if isinstance(mechanism, SubsampledGaussian):
        return 1.0
    gamma, blocks = mechanism.concentration, mechanism.n_blocks
    return math.sqrt(mechanism.draws_per_release * (gamma + 1) / (blocks * (blocks * gamma + 1)))


def radius_law(
    mechanism: BlockedGaussian | SubsampledGaussian, bins: int, weight: Weight, cut: float = 0.0
) -> RadiusLaw:
    """Law of R in about ``bins`` bins.

    ``weight(R)`` is the logarithm of the curvature there, for the placement of the bins only; about ``cut`` of
    mass may be omitted.
    """
    if isinstance(mechanism, SubsampledGaussian):
        return _atom(1.0)
    gamma, blocks, draws = mechanism.concentration, mechanism.n_blocks, mechanism.draws_per_release
    if draws == 1:
        return _beta_law(gamma, blocks, bins, weight)
    return _shared_law(gamma, blocks, draws, bins, weight, cut)


def _atom(value: float) -> RadiusLaw:
    one = np.ones(1)
    return RadiusLaw(value * one, value * one, one, value * one, one, value * one, 0.0)


def upper_nodes(law: RadiusLaw, noise: float) -> tuple[Array, Array]:
    """Nodes r and weights whose mixture dominates the law of R / ``noise``; weights sum to 1 (up to rounding)."""
    low, high = law.low / noise, law.high / noise
    psi_low, psi_high = _complement(low), _complement(high)
    span = psi_low - psi_high
    with np.errstate(divide="ignore", invalid="ignore"):
        up = np.where(span > 0, (psi_low - _complement(law.upper_mean / noise)) / span, 1.0)
        # roundings of psi, relative to the span
        up = np.clip(up + np.where(span > 0, 1e-14 * psi_low / span, 0.0), 0.0, 1.0)
    r, place = np.unique(np.concatenate((low, high)), return_inverse=True)
    weight = np.bincount(place.ravel(), np.concatenate((law.upper_mass * (1 - up), law.upper_mass * up)), len(r))
    weight = trimmed(weight)
    keep = weight > 0
    return r[keep], weight[keep]


def trimmed(mass: Array) -> Array:
    """``mass`` (by rising radius) with what exceeds one taken from the smallest radii.

    Of the laws with at most these masses it is the stochastically largest.
    """
    excess = float(mass.sum()) - 1.0
    if excess <= 0:
        return mass
    below = np.cumsum(mass)
    result: Array = np.minimum(mass, np.maximum(below - excess, 0.0))
    return result


def lower_nodes(law: RadiusLaw, noise: float) -> tuple[Array, Array]:
    """Nodes r and weights whose mixture is dominated by the law of R / ``noise``."""
    if len(law.low) == 1 and law.low[0] == law.high[0]:
        return law.low / noise, np.ones(1)
    from scipy.special import erfcinv

    low, high = law.low / noise, law.high / noise
    psi_low, psi_high = _complement(low), _complement(high)
    share = np.clip((law.lower_mean - law.low) / (law.high - law.low), 0.0, 1.0)
    mean = psi_low + share * (psi_high - psi_low)
    with np.errstate(divide="ignore"):
        node = math.sqrt(2.0) * erfcinv(mean * (1 + 2e-15))
    node = np.maximum(np.where(np.isfinite(node), node * (1 - 1e-12), 0.0), low)
    node = np.minimum(node, np.maximum(law.lower_mean / noise, low))
    keep = law.lower_mass > 0
    return node[keep], law.lower_mass[keep]


def _complement(r: Array) -> Array:
    """1 - psi(r) = erfc(r / sqrt 2)."""
    from scipy.special import erfc

    result: Array = erfc(r / math.sqrt(2.0))
    return result


@lru_cache(maxsize=64)
def _beta_grid(gamma: float, blocks: int) -> tuple[Array, Array]:
    """Points in (0, 1] and the logarithm of u's density there, up to a constant."""
    a, b = gamma, (blocks - 1) * gamma
    grid = beta_quantile(a, b, _TAIL) * np.linspace(0.0, 1.0, 2001)[1:] ** 2
    with np.errstate(divide="ignore"):
        log_f = (a - 1) * np.log(grid) + (b - 1) * np.log1p(-np.minimum(grid, 1 - 1e-16))
    return grid, log_f


def _beta_law(gamma: float, blocks: int, bins: int, weight: Weight) -> RadiusLaw:
    """u ~ Beta(gamma, (S-1) gamma)."""
    from scipy.special import betainc, betaincc

    a, b = gamma, (blocks - 1) * gamma
    grid, log_f = _beta_grid(gamma, blocks)
    edges = _spaced(grid, log_f + weight(grid), bins)
    mean = 1.0 / blocks
    tail, head = betaincc(a, b, edges), betainc(a, b, edges)
    tail1, head1 = betaincc(a + 1, b, edges), betainc(a + 1, b, edges)
    upper_side = tail[:-1] < 0.5
    mass = np.where(upper_side, tail[:-1] - tail[1:], head[1:] - head[:-1])
    part = mean * np.where(upper_side, tail1[:-1] - tail1[1:], head1[1:] - head1[:-1])
    size = np.where(upper_side, tail[:-1], head[1:])
    size1 = mean * np.where(upper_side, tail1[:-1], head1[1:])
    return _rounded(edges, mass, part, ROUND * size, ROUND * size1)


def _rounded(edges: Array, mass: Array, part: Array, error: Array, part_error: Array) -> RadiusLaw:
    """Bins from masses and partial first moments known to the given absolute errors, rounded outward."""
    low, high = edges[:-1], edges[1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        upper_mean = np.where(mass > error, (part + part_error) / np.maximum(mass - error, 1e-320), high)
        lower_mean = np.where(mass > error, (part - part_error) / (mass + error), low)
    # every mass is raised by its error, and what exceeds one is taken from the smallest radii (``trimmed``)
    return RadiusLaw(
        low,
        high,
        mass + error,
        np.clip(upper_mean, low, high),
        np.maximum(mass - error, 0.0),
        np.clip(lower_mean, low, high),
        OMITTED,
    )


def _spaced(grid: Array, log_weight: Array, bins: int) -> Array:
    """Edges from 0 to ``grid[-1]``, with density proportional to weight^(1/3) (four fifths) and uniform (the rest).

    A second-order rule of cell width D has error f D^3 summed over cells, least for D ~ f^(-1/3).
    """
    left = np.concatenate(([0.0], grid[:-1]))
    usable = np.isfinite(log_weight)
    density = np.where(usable, np.exp((log_weight - log_weight[usable].max()) / 3), 0.0)
    step = (grid - left) * density
    cumulative = np.cumsum(0.8 * step / step.sum() + 0.2 * (grid - left) / grid[-1])
    cumulative /= cumulative[-1]
    wanted = np.linspace(0.0, 1.0, bins + 1)
    edges = np.interp(wanted, np.concatenate(([0.0], cumulative)), np.concatenate(([0.0], grid)))
    edges[-1] = grid[-1]
    result: Array = np.unique(edges)
    return result


def _shared_law(gamma: float, blocks: int, draws: int, bins: int, weight: Weight, cut: float) -> RadiusLaw:
    r"""R^2 = V = sum of K independent u_k^2, from ``squared_sums.square_sum``: bins are unions of its groups.

    Bin i holds the lattice's points k c with ``start[i] <= k < start[i + 1]``, so V from start[i] c to
    (start[i + 1] - 1 + K) c.  Means of R by summation by parts: for g increasing,
    :math:`\sum_{a \le k < b} p_k g_k = g_a (T_{a-1} - T_{b-1}) + \sum_{a \le k < b-1} (g_{k+1} - g_k)
    (T_k - T_{b-1})`, T the tails, each of which is taken on the safe side.
    """
    exponent = min(80, 10 * math.ceil(-math.log10(max(cut, 1e-300) / draws) / 10))
    law = square_sum(gamma, blocks, draws, exponent)
    root = np.sqrt(law.cell * law.start)
    width = np.diff(root)
    log_f = np.log(np.maximum(law.tail_high[:-1] - law.tail_high[1:], 1e-300) / width)
    wanted = _spaced(root[1:], log_f + weight(root[1:]), bins)
    place = np.unique(np.searchsorted(root, wanted))
    at, low_tail, high_tail = law.start[place], law.tail_low[place], law.tail_high[place]
    upper_mass = high_tail[:-1] - low_tail[1:]
    lower_mass = np.maximum(low_tail[:-1] - high_tail[1:], 0.0)
    g, h = law.upper_root[place], law.lower_root[place]
    upper_sum, lower_sum = (np.add.reduceat(x, place[:-1]) for x in (law.upper_sum, law.lower_sum))
    upper_part = g[:-1] * upper_mass + upper_sum - low_tail[1:] * (g[1:] - g[:-1])
    lower_part = h[:-1] * lower_mass + lower_sum - high_tail[1:] * (h[1:] - h[:-1])
    slack = 1e-14 * (upper_sum + g[:-1] * high_tail[:-1])
    low, high = root[place[:-1]], np.sqrt(law.cell * (at[1:] - 1 + draws))
    with np.errstate(divide="ignore", invalid="ignore"):
        upper_mean = np.where(lower_mass > 0, (upper_part + slack) / lower_mass, high)
        lower_mean = np.where(upper_mass > 0, (lower_part - slack) / upper_mass, low)
    return RadiusLaw(
        low,
        high,
        upper_mass,
        np.clip(upper_mean, low, high),
        lower_mass,
        np.clip(lower_mean, low, high),
        law.omitted,
    )
