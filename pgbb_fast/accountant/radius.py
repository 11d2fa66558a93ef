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

from pgbb_fast.accountant.convolve import power_tail
from pgbb_fast.accountant.mechanisms import BlockedGaussian, SubsampledGaussian

Array = NDArray[Any]

_ROUND = 3e-11  # relative error allowed to the incomplete beta function (tested to be a tenth of it)
OMITTED = 1e-78  # allowed for mass above the quantile of ``_TAIL``, which is in no bin and counts as infinite loss
_TAIL = 1e-80  # above the quantile of this tail the weight is left out
_CELL = 6e-4  # cells of u^2 for shared minibatches, in units of E u^2
_MOST_CELLS = 2**22


@dataclass(frozen=True)
class RadiusLaw:
    """Bins of R with outward-rounded masses and means; ``edges`` has one entry more than the others.

    ``omitted`` bounds the mass above the last edge, which is in no bin.
    """

    edges: Array
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


def radius_law(mechanism: BlockedGaussian | SubsampledGaussian, bins: int, weight: Weight) -> RadiusLaw:
    """Law of R in about ``bins`` bins.

    ``weight(R)`` is the logarithm of the curvature there, for the placement of the bins only.
    """
    if isinstance(mechanism, SubsampledGaussian):
        return _atom(1.0)
    gamma, blocks, draws = mechanism.concentration, mechanism.n_blocks, mechanism.draws_per_release
    if draws == 1:
        return _beta_law(gamma, blocks, bins, weight)
    return _shared_law(gamma, blocks, draws, bins, weight)


def _atom(value: float) -> RadiusLaw:
    one = np.ones(1)
    return RadiusLaw(np.array([value, value]), one, value * one, one, value * one, 0.0)


def upper_nodes(law: RadiusLaw, noise: float) -> tuple[Array, Array]:
    """Nodes r and weights whose mixture dominates the law of R / ``noise``; weights sum to 1 (up to rounding)."""
    if len(law.edges) == 2 and law.edges[0] == law.edges[1]:
        return law.edges[:1] / noise, np.ones(1)
    r = law.edges / noise
    psi = _complement(r)
    span = psi[:-1] - psi[1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        up = np.where(span > 0, (psi[:-1] - _complement(law.upper_mean / noise)) / span, 1.0)
        # roundings of psi, relative to the span
        up = np.clip(up + np.where(span > 0, 1e-14 * psi[:-1] / span, 0.0), 0.0, 1.0)
    weight = np.zeros(len(r))
    weight[:-1] += law.upper_mass * (1 - up)
    weight[1:] += law.upper_mass * up
    keep = weight > 0
    return r[keep], weight[keep]


def lower_nodes(law: RadiusLaw, noise: float) -> tuple[Array, Array]:
    """Nodes r and weights whose mixture is dominated by the law of R / ``noise``."""
    if len(law.edges) == 2 and law.edges[0] == law.edges[1]:
        return law.edges[:1] / noise, np.ones(1)
    from scipy.special import erfcinv

    r = law.edges / noise
    psi = _complement(r)
    share = np.clip((law.lower_mean - law.edges[:-1]) / (law.edges[1:] - law.edges[:-1]), 0.0, 1.0)
    mean = psi[:-1] + share * (psi[1:] - psi[:-1])
    with np.errstate(divide="ignore"):
        node = math.sqrt(2.0) * erfcinv(mean * (1 + 2e-15))
    node = np.maximum(np.where(np.isfinite(node), node * (1 - 1e-12), 0.0), r[:-1])
    node = np.minimum(node, np.maximum(law.lower_mean / noise, r[:-1]))
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
    return _rounded(edges, mass, part, _ROUND * size, _ROUND * size1)


def _rounded(edges: Array, mass: Array, part: Array, error: Array, part_error: Array) -> RadiusLaw:
    """Bins from masses and partial first moments known to the given absolute errors, rounded outward."""
    low, high = edges[:-1], edges[1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        upper_mean = np.where(mass > error, (part + part_error) / np.maximum(mass - error, 1e-320), high)
        lower_mean = np.where(mass > error, (part - part_error) / (mass + error), low)
    # an upper law needs tails at least the true ones: what the masses may lack goes to the larger bins, since
    # every mass is raised by its error and the excess over one is taken from the smallest radius
    upper_mass = mass + error
    excess = float(upper_mass.sum()) - 1.0
    upper_mass = _remove_from_bottom(upper_mass, excess)
    lower_mass = np.maximum(mass - error, 0.0)
    return RadiusLaw(
        edges, upper_mass, np.clip(upper_mean, low, high), lower_mass, np.clip(lower_mean, low, high), OMITTED
    )


def _remove_from_bottom(mass: Array, excess: float) -> Array:
    mass = mass.copy()
    for i in range(len(mass)):
        if excess <= 0:
            break
        taken = min(float(mass[i]), excess)
        mass[i] -= taken
        excess -= taken
    return mass


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


def _shared_law(gamma: float, blocks: int, draws: int, bins: int, weight: Weight) -> RadiusLaw:
    r"""R^2 = V = sum of K independent u_k^2: u_k^2 in cells of width h, rounded down or (K h more) up.

    The convolution's tails come with proved error bounds from ``convolve.power_tail``.
    """
    cell, tail_low, tail_high = _square_tails(gamma, blocks, draws)
    v = cell * np.arange(len(tail_high))
    mass = np.concatenate(([1.0], tail_high[:-1])) - tail_high  # P(V' = v), V' the lower-rounded sum
    with np.errstate(divide="ignore"):
        log_f = np.log(mass / cell)
    root = np.sqrt(v + cell)
    # density of R at R = sqrt(v) is 2 R times that of V
    thin = slice(None, None, max(1, len(root) // 4000))
    edges = _spaced(root[thin], (log_f + np.log(2 * root))[thin] + weight(root[thin]), bins)
    upper_r = np.sqrt(v + draws * cell)
    edges = np.append(edges[edges < upper_r[-1]], upper_r[-1])
    upper_mass, upper_mean = _binned(upper_r, mass, edges)
    low_mass_fine = np.maximum(np.concatenate(([1.0], tail_low[:-1])) - tail_low, 0.0)
    # masses of a lower law: tails at most the true ones
    lower_mass, lower_mean = _binned(np.sqrt(v), low_mass_fine, edges)
    return RadiusLaw(edges, upper_mass, upper_mean, lower_mass, lower_mean, float(tail_high[-1]) + draws * OMITTED)


def _binned(value: Array, mass: Array, edges: Array) -> tuple[Array, Array]:
    """Masses and means of a discrete law over bins (values on an edge belong to the bin below it)."""
    index = np.clip(np.searchsorted(edges, value, side="left") - 1, 0, len(edges) - 2)
    total = np.bincount(index, mass, minlength=len(edges) - 1)
    first = np.bincount(index, mass * value, minlength=len(edges) - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(total > 0, first / total, edges[:-1])
    return total, np.clip(mean, edges[:-1], edges[1:])


@lru_cache(maxsize=8)
def _square_tails(gamma: float, blocks: int, draws: int) -> tuple[float, Array, Array]:
    """Cell width h and brackets of P(V' > k h), V' = sum of K cells' lower ends of u^2."""
    from scipy.special import betainc, betaincc

    a, b = gamma, (blocks - 1) * gamma
    second = (gamma + 1) / (blocks * (blocks * gamma + 1))
    top = beta_quantile(a, b, _TAIL)
    cell = max(_CELL * second, top * top / _MOST_CELLS)
    count = math.ceil(top * top / cell)
    root = np.minimum(np.sqrt(cell * np.arange(count + 1.0)), 1.0)
    tail, head = betaincc(a, b, root), betainc(a, b, root)
    mass = np.where(tail[:-1] < 0.5, tail[:-1] - tail[1:], head[1:] - head[:-1])
    mass = np.maximum(mass, 0.0)
    mass[-1] += float(tail[-1])
    return (cell, *power_tail(mass, draws, error=_ROUND))
