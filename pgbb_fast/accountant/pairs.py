"""Worst pairs of distributions of one release: a sketch for tuning, and lattices that bound them.

A pair has one direction when it is symmetric (replace-one) and two otherwise (record removed, record added);
a direction stays the same through a composition, and the guarantee is the worse of the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.accountant import cells, lattice
from pgbb_fast.accountant.lattice import Lattice
from pgbb_fast.accountant.mechanisms import BlockedGaussian, Mechanism, ResampledGaussian, SubsampledGaussian
from pgbb_fast.accountant.radius import OMITTED, RadiusLaw, lower_nodes, radius_law, typical_radius, upper_nodes

Array = NDArray[Any]

_SKETCH_BINS = 32
_BINOMIAL_TAIL = 1e-85


@dataclass(frozen=True)
class Quality:
    """How fine: ``tolerance`` for the lattice (about the relative error of epsilon), ``bins`` of the radius."""

    tolerance: float = 1.5e-4
    bins: int = 160

    def finer(self) -> Quality:
        """Half the bin width and a quarter of the lattice's error."""
        return Quality(self.tolerance / 4, self.bins * 2)

    def coarser(self) -> Quality:
        """Good enough to see where to look."""
        return Quality(self.tolerance * 10, self.bins // 2)


@dataclass(frozen=True)
class Focus:
    """What is looked for: near the loss ``epsilon``, with tilt ``tilt``.

    ``cut`` is the mass of each node's upper tail that counts as infinite loss (in a lower bound: as none), and
    losses above ``cap`` count as infinite (in a lower bound: as ``cap``).  ``wide(loss)`` is how wide a cell may be
    there: losses that are rarely met add little variance however they are rounded.
    """

    tilt: float
    epsilon: float
    cut: float
    cap: float
    wide: Callable[[Array], Array]
    log_delta: float

    def edges(self, h: float) -> NDArray[np.int64]:
        """Ends of cells from 0 to ``cap`` in units of ``h``: 1 apart, then 2, 4, ..., as soon as ``wide`` allows it."""
        starts = self._doublings(h)
        blocks, at = [], 0
        for j, stop in enumerate([*starts[1:], self.cap]):
            gap = 2**j
            count = max(0, math.ceil((stop / h - at) / gap))
            blocks.append(at + gap * np.arange(count))
            at += gap * count
        return np.append(np.concatenate(blocks), at)

    def cells(self, lengths: Array, h: float) -> float:
        """About the number of cells of nodes followed up to the losses ``lengths``."""
        starts = self._doublings(h)
        total = 0.0
        for j, (start, stop) in enumerate(zip(starts, [*starts[1:], self.cap], strict=True)):
            total += float(np.clip(lengths - start, 0.0, stop - start).sum()) / (h * 2**j)
        return total

    def _doublings(self, h: float) -> list[float]:
        """Losses from which cells may be 1, 2, 4, ... times ``h`` wide."""
        loss = np.linspace(0.0, self.cap, 1025)
        wide = np.minimum.accumulate(self.wide(loss)[::-1])[::-1]
        starts = [0.0]
        while wide[-1] >= h * 2 ** len(starts):
            starts.append(float(loss[np.searchsorted(wide, h * 2 ** len(starts))]))
        return starts


@dataclass(frozen=True)
class Pair:
    """Functions of one release's worst pair; ``direction`` is 0 or, where there are two, 1.

    ``sketch(direction, cut)`` gives losses and masses, roughly; ``lengths(focus, quality)`` the largest loss of each
    node, for the cost; ``build(direction, h, focus, quality, upper)`` a lattice that bounds the pair.  No loss is
    above ``most[direction]``.
    """

    directions: int
    most: tuple[float, ...]
    sketch: Callable[[int, float], tuple[Array, Array]]
    lengths: Callable[[Focus, Quality], Array]
    build: Callable[[int, float, Focus, Quality, bool], Lattice]


def pair_for(mechanism: Mechanism, noise: float) -> Pair:
    """The worst pair of one release at noise multiplier ``noise``."""
    if isinstance(mechanism, ResampledGaussian):
        return _resampled(mechanism, noise)
    if mechanism.adjacency == "add-remove":
        return _one_sided(float(mechanism.sampling_rate), 1.0 / noise)
    return _antipodal(mechanism, noise)


def _antipodal(mechanism: BlockedGaussian | SubsampledGaussian, noise: float) -> Pair:
    q = float(mechanism.sampling_rate)

    typical = typical_radius(mechanism)

    def rough(radius: Array) -> Array:
        result: Array = np.log1p((radius / typical) ** 4)
        return result

    def law(focus: Focus, quality: Quality) -> RadiusLaw:
        return radius_law(mechanism, quality.bins, lambda radius: _curvature(radius, q, noise, focus), focus.cut)

    def sketch(direction: int, cut: float) -> tuple[Array, Array]:
        del direction
        r, w = upper_nodes(radius_law(mechanism, _SKETCH_BINS, rough, cut), noise)
        x, inside = _sketch_points(r, w, cut)
        r = r[:, None]
        if q == 1 and x[0, -1] < r.max():  # all of N(r, 1) lies beyond
            x = r + x[:1, x[0] < 8.1]
            inside = np.broadcast_to(inside.any(axis=1, keepdims=True), x.shape)
        density = ((1 - q) * np.exp(-x * x / 2) + q * np.exp(-((x - r) ** 2) / 2)) * inside
        mass = w[:, None] * density / np.maximum(density.sum(axis=1, keepdims=True), 1e-300)
        return _sorted(cells.largest_loss(r, q, x - r).ravel(), mass.ravel())

    def lengths(focus: Focus, quality: Quality) -> Array:
        r, w = upper_nodes(law(focus, quality), noise)
        reach = cells.node_reach(w, focus.cut)
        return np.minimum(cells.largest_loss(r[reach > 0], q, reach[reach > 0]), focus.cap)

    def build(direction: int, h: float, focus: Focus, quality: Quality, upper: bool) -> Lattice:
        del direction
        if upper:
            bins = law(focus, quality)
            r, w = upper_nodes(bins, noise)
            half = cells.antipodal_cells(r, w, q, h, focus.cut, focus.cap, focus.edges(h))
            return lattice.upper_from_half(replace(half, beyond=half.beyond + bins.omitted))
        r, w = lower_nodes(law(focus, quality), noise)
        return lattice.lower_from_half(cells.antipodal_cells(r, w, q, h, focus.cut, focus.cap, focus.edges(h)))

    return Pair(1, (math.inf,), sketch, lengths, build)


def _curvature(radius: Array, q: float, noise: float, focus: Focus) -> Array:
    r"""log of the curvature in R of :math:`E [e^{t \min(L, \epsilon)} + (1 - e^{\epsilon - L})_+ / \delta]`, roughly.

    That is about how delta changes, relatively, with the law of one release: the losses that many make together, and
    those that one is enough for.  Bins are placed where it matters.
    """
    few = np.linspace(0.0, 1.0, 65) ** 1.5 * float(radius[-1])
    r = (few / noise)[:, None]
    top = min(float(r[-1, 0]) + 8.0, 60.0)
    x = np.linspace(-8.0, top, 56)[None, :]
    density = (1 - q) * np.exp(-x * x / 2) + q * np.exp(-((x - r) ** 2) / 2)
    loss = cells.largest_loss(r, q, x - r)
    influence = np.exp(focus.tilt * (np.minimum(loss, focus.epsilon) - focus.epsilon))
    alone = min(-focus.log_delta - focus.tilt * focus.epsilon, 600.0)
    influence += np.maximum(-np.expm1(np.minimum(focus.epsilon - loss, 0.0)), 0.0) * math.exp(alone)
    value = (density * influence).sum(axis=1)
    slope = np.diff(value) / np.diff(few)
    bend = np.abs(np.diff(slope)) / (0.5 * (few[2:] - few[:-2]))
    bend = np.maximum(bend, 1e-9 * value[1:-1] + 1e-300)
    result: Array = np.interp(radius, few[1:-1], np.log(bend))
    return result


def _one_sided(q: float, r: float) -> Pair:
    log_1q = math.log1p(-q) if q < 1 else -math.inf

    def sketch(direction: int, cut: float) -> tuple[Array, Array]:
        x = _sketch_points(np.array([r]), np.ones(1), cut)[0][0]
        if x[-1] < r + 8.0:  # N(r, 1) lies beyond
            x = np.append(x[x < 8.1], r + x[x < 8.1])
        density = np.exp(-x * x / 2)
        loss = np.logaddexp(log_1q, math.log(q) + r * x - r * r / 2)
        if direction == 0:
            density = (1 - q) * density + q * np.exp(-((x - r) ** 2) / 2)
        else:
            loss = -loss
        return _sorted(loss, density / density.sum())

    def lengths(focus: Focus, quality: Quality) -> Array:
        del quality
        reach = float(cells.node_reach(np.ones(1), focus.cut)[0])
        high = float(np.logaddexp(log_1q, math.log(q) + r * (r / 2 + reach)))
        low = float(np.logaddexp(log_1q, math.log(q) - r * (r / 2 + reach)))
        result: Array = np.minimum(np.array([high, -low]), focus.cap)
        return result

    def build(direction: int, h: float, focus: Focus, quality: Quality, upper: bool) -> Lattice:
        del quality
        full = cells.one_sided_cells(r, q, h, focus.cut, focus.cap)
        return (lattice.upper_from_full if upper else lattice.lower_from_full)(full)[direction]

    return Pair(2, (math.inf, -log_1q), sketch, lengths, build)


def _resampled(mechanism: ResampledGaussian, noise: float) -> Pair:
    weight, count = _binomial_positive(mechanism.n, mechanism.resample_size)
    r = count / noise
    p = -math.expm1(mechanism.log_exclusion)

    def sketch(direction: int, cut: float) -> tuple[Array, Array]:
        del direction
        x, inside = _sketch_points(r, weight, cut)
        rr = r[:, None]
        log_p = math.log(p)
        log_1p = mechanism.log_exclusion
        loss = np.logaddexp(log_1p, log_p + rr * x - rr * rr / 2)
        base = np.exp(-x * x / 2)
        mixed = (1 - p) * base + p * np.exp(-((x - rr) ** 2) / 2)
        total = base.sum(axis=1, keepdims=True)
        up = np.where(loss > 0, mixed * inside, 0.0) * weight[:, None] / total
        down = np.where(loss > 0, base * inside, 0.0) * weight[:, None] / total
        rest = max(0.0, 1.0 - float(up.sum()) - float(down.sum()))
        losses = np.concatenate((loss.ravel(), -loss.ravel(), [0.0]))
        mass = np.concatenate((up.ravel(), down.ravel(), [rest]))
        return _sorted(losses, mass / mass.sum())

    def lengths(focus: Focus, quality: Quality) -> Array:
        del quality
        reach = cells.node_reach(weight, focus.cut)
        top = np.logaddexp(mechanism.log_exclusion, math.log(p) + r * (r / 2 + reach))
        return np.clip(top[reach > 0], 0.0, focus.cap)

    def build(direction: int, h: float, focus: Focus, quality: Quality, upper: bool) -> Lattice:
        del direction, quality
        # the weights are known to a few roundings: a lower bound takes them smaller
        used = weight if upper else weight * (1 - 4 * _binomial_error(mechanism.resample_size))
        half = cells.resampled_cells(r, used, p, h, focus.cut, focus.cap, focus.edges(h))
        half = replace(half, beyond=half.beyond + OMITTED)
        return lattice.upper_from_half(half) if upper else lattice.lower_from_half(half)

    return Pair(1, (math.inf,), sketch, lengths, build)


def _binomial_error(m: int) -> float:
    """Relative error allowed to a binomial probability from logarithms of factorials up to m."""
    return 1e-15 * m * (1 + math.log(m + 1.0))


def _binomial_positive(n: int, m: int) -> tuple[Array, Array]:
    """P(i | i >= 1), i ~ Binomial(m, 1/n), and i, for all i but tails of at most 1e-78 in all (``OMITTED``)."""
    log_q, log_1q = -math.log(n), math.log1p(-1.0 / n)
    centre = m / n
    span = 20 * math.sqrt(centre) + 100
    i = np.arange(max(1, math.floor(centre - span)), min(m, math.ceil(centre + span)) + 1.0)
    from scipy.special import gammaln

    log = gammaln(m + 1.0) - gammaln(i + 1) - gammaln(m - i + 1) + i * log_q + (m - i) * log_1q
    mass = np.exp(log - math.log(-math.expm1(m * log_1q)))
    keep = mass > _BINOMIAL_TAIL
    i, mass = i[keep], mass[keep]
    mass = mass * (1 + _binomial_error(m))
    excess = float(mass.sum()) - 1.0
    if excess > 0:
        mass[0] = max(mass[0] - excess, 0.0)
    else:
        mass[-1] -= excess
    return mass, i


def _sketch_points(r: Array, weight: Array, cut: float) -> tuple[Array, Array]:
    """x covering N(0,1) and every N(r,1), at most 0.3 apart, and which of them are within each node's reach."""
    reach = cells.node_reach(weight, cut)
    top = min(float((r + reach)[reach > 0].max(initial=1.0)), 200.0)
    x = 0.3 * (np.arange(-27, math.ceil(top / 0.3)) + 0.5)[None, :] + np.zeros((len(r), 1))
    return x, ((x <= (r + reach)[:, None]) & (reach > 0)[:, None]).astype(np.float64)


def _sorted(loss: Array, mass: Array) -> tuple[Array, Array]:
    order = np.argsort(loss)
    return loss[order], mass[order]
