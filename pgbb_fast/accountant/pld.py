"""Privacy-loss-distribution queries: tune lattice and tilt to the question, bound, and answer on the stated side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pgbb_fast.accountant.compose import (
    Atoms,
    Cumulants,
    atoms_of,
    compose,
    cumulants,
    tilt_for_delta,
    tilt_for_epsilon,
)
from pgbb_fast.accountant.lattice import Lattice
from pgbb_fast.accountant.pairs import Pair, Quality

Part = tuple[Pair, int]

_CUT = 1e-6            # mass of P cut to infinite loss, relative to delta
_SMALLEST_LOG_DELTA = -700.0
_MOST_CELLS = 2.5e6       # cells, over all nodes
_MOST_WINDOW = 1e5        # lattice points in one composed standard deviation
_CHEAP_CELLS = 3e4        # what is always affordable, of both kinds
_CHEAP_WINDOW = 1e-3


@dataclass(frozen=True)
class Plan:
    """Lattice spacing, mass cut off each node, tilt, and the size of delta they were chosen for."""

    h: float
    cut: float
    tilt: float
    log_delta: float


def epsilon_bound(parts: Sequence[Part], delta: float, quality: Quality, *, upper: bool) -> float:
    """Upper (lower) bound of epsilon at ``delta``, at least 0; may be infinite (upper)."""
    return max(0.0, *(_one_epsilon(parts, d, delta, quality, upper) for d in _directions(parts)))


def _one_epsilon(parts: Sequence[Part], direction: int, delta: float, quality: Quality, upper: bool) -> float:
    """One direction; the tilt is improved while the answer lies at an end of what the window shows."""
    log_delta = math.log(delta)
    sketches = _sketches(parts, direction, log_delta)
    tilt = tilt_for_delta(sketches, log_delta)
    plan = _plan(parts, sketches, tilt, log_delta, quality)
    lattices = _lattices(parts, direction, plan, quality, upper=upper)
    exact = [atoms_of(part.h * (part.first + np.arange(len(part.mass))), part.mass, n) for part, n in lattices]
    found = math.nan
    for attempt in range(3):
        here = cumulants(exact, tilt)
        if attempt > 0 or abs(here.value - tilt * here.mean - log_delta) > 0.2 * abs(log_delta) + 0.5:
            tilt = tilt_for_delta(exact, log_delta) * (1.0 if attempt < 2 else 0.7)
            here = cumulants(exact, tilt)
        low = max(0.0, here.mean - 6 * math.sqrt(here.variance))
        profile = compose(lattices, tilt, log_delta).profile(low, upper=upper)
        value = profile.epsilon_at(delta)
        inside = value > profile.origin or (profile.origin <= 0 and math.isfinite(value))
        if not inside:
            profile = compose(lattices, tilt, log_delta).profile(0.0, upper=upper)
            value = profile.epsilon_at(delta)
            inside = value > profile.origin or profile.origin <= 0
            if not upper and value <= profile.origin:
                value = 0.0
        if not upper and not math.isfinite(value):
            value, inside = float(profile.origin + profile.x[-1]), False
        if math.isnan(found) or (value < found if upper else value > found):
            found = value
        if inside and math.isfinite(value):
            break
    return found


def delta_bound(parts: Sequence[Part], epsilon: float, quality: Quality, *, upper: bool) -> float:
    """Upper (lower) bound of delta at ``epsilon`` >= 0."""
    return min(1.0, max(_one_delta(parts, d, epsilon, quality, upper) for d in _directions(parts)))


def _one_delta(parts: Sequence[Part], direction: int, epsilon: float, quality: Quality, upper: bool) -> float:
    """One direction: guess the size of delta, on which the cut depends, until the answer bears it out."""
    log_delta = -25.0
    value = math.nan
    for _ in range(8):
        sketches = _sketches(parts, direction, log_delta)
        tilt = tilt_for_epsilon(sketches, epsilon)
        guess = min(log_delta + 5, _saddle(cumulants(sketches, tilt), tilt, epsilon))
        if guess < log_delta - 5 and log_delta > _SMALLEST_LOG_DELTA:
            log_delta = max(guess, _SMALLEST_LOG_DELTA)
            continue
        plan = _plan(parts, sketches, tilt, log_delta, quality)
        lattices = _lattices(parts, direction, plan, quality, upper=upper)
        value = compose(lattices, tilt, log_delta).profile(epsilon, upper=upper).delta_at(epsilon)
        if not value < math.exp(log_delta) * 1e-3 or log_delta <= _SMALLEST_LOG_DELTA:
            break
        log_delta = max(_SMALLEST_LOG_DELTA, math.log(value) if value > 0 else log_delta - 100)
    if value != value:
        return 1.0 if upper else 0.0
    return max(0.0, value)


def _directions(parts: Sequence[Part]) -> range:
    return range(max(pair.directions for pair, _ in parts))


def _cut(parts: Sequence[Part], log_delta: float) -> float:
    """Mass to cut off each node so that, composed, a small part ``_CUT`` of delta goes to infinite loss."""
    nodes = 256
    return math.exp(log_delta + math.log(_CUT) - math.log(nodes * sum(n for _, n in parts)))


def _sketches(parts: Sequence[Part], direction: int, log_delta: float) -> list[Atoms]:
    cut = _cut(parts, log_delta)
    return [atoms_of(*pair.sketch(min(direction, pair.directions - 1), cut), count) for pair, count in parts]


def _saddle(here: Cumulants, tilt: float, epsilon: float) -> float:
    """log of the saddle-point size of delta."""
    spread = math.sqrt(max(here.variance, 1e-300))
    size = here.value - tilt * epsilon - math.log1p(tilt * spread * 2.5) - math.log1p(tilt)
    return min(size, -1e-3)


def _search_width(sketches: Sequence[Atoms], tilt: float) -> float:
    return 6 * math.sqrt(max(cumulants(sketches, tilt).variance, 0.0))


def _plan(
    parts: Sequence[Part], sketches: Sequence[Atoms], tilt: float, log_delta: float, quality: Quality
) -> Plan:
    """Spacing at which connecting the dots adds 2 ``tolerance`` of the composed tilted variance."""
    count = sum(n for _, n in parts)
    here = cumulants(sketches, tilt)
    spread = math.sqrt(max(here.variance, 1e-300))
    least = min(cumulants(sketches, share * tilt).variance for share in (0.0, 0.25, 0.5, 1.0))
    budget = 2 * quality.tolerance * max(least, 1e-300)
    h = math.sqrt(6 * budget / count)
    while _added(sketches, tilt, 1.5 * h) < budget and h < 1.0:
        h *= 1.5
    h = min(h, math.sqrt(8 * quality.tolerance) / (tilt + 1))
    cut = _cut(parts, log_delta)
    lengths = np.concatenate([pair.lengths(cut, quality) for pair, _ in parts])
    total = float(lengths.sum())
    h = min(h, max(_CHEAP_WINDOW * spread, total / _CHEAP_CELLS))        # finer where it costs next to nothing
    h = max(h, total / _MOST_CELLS, spread / _MOST_WINDOW)
    return Plan(h, cut, tilt, log_delta)


def _added(sketches: Sequence[Atoms], tilt: float, h: float) -> float:
    """Variance that splitting every loss between its lattice neighbours adds, composed and tilted."""
    total = 0.0
    for part in sketches:
        exponent = tilt * part.loss + part.log_mass
        weight = np.exp(exponent - exponent.max())
        rest = part.loss - h * np.floor(part.loss / h)
        total += part.count * float((weight * rest * (h - rest)).sum()) / float(weight.sum())
    return total


def _lattices(
    parts: Sequence[Part], direction: int, plan: Plan, quality: Quality, *, upper: bool
) -> list[tuple[Lattice, int]]:
    return [
        (pair.build(min(direction, pair.directions - 1), plan.h, plan.cut, quality, upper), count)
        for pair, count in parts
    ]
