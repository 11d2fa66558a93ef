"""Privacy-loss-distribution queries: tune lattice and tilt to the question, bound, and answer on the stated side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.accountant.compose import (
    Atoms,
    Cumulants,
    atoms_of,
    compose,
    cumulants,
    lowest_likely,
    tilt_for_delta,
    tilt_for_epsilon,
    transform_tilt,
)
from pgbb_fast.accountant.jumps import expansions
from pgbb_fast.accountant.lattice import Lattice
from pgbb_fast.accountant.pairs import Focus, Pair, Quality

Array = NDArray[Any]
Part = tuple[Pair, int]

_CAPPED = 1e-4  # mass of P above the largest loss kept, relative to delta
_FAR = 14.0  # see _cap
_FINEST = 1e-10  # spacing below which nothing is gained
_STEEPEST = 4.0  # tilts above this times log(1/delta) / epsilon aren't met where delta is of that size
_CUT = 1e-5  # mass of P cut to infinite loss, relative to delta
_SMALLEST_LOG_DELTA = -700.0
_BLUR = 1e-3  # share of delta that round-off and window margins may make up before something else is tried
_ATTEMPTS = 6
_SAME = 0.02
_MAX_CELLS = 1.5e6  # cells, over all nodes
_FEW_CELLS = 3e5  # so many need not be made fewer
_MAX_WINDOW = 1e5  # lattice points in one composed standard deviation
_CHEAP_CELLS = 3e4  # what is always affordable, of both kinds
_CHEAP_WINDOW = 1e-3


@dataclass(frozen=True)
class Plan:
    """Lattice spacing and focus."""

    h: float
    focus: Focus


def epsilon_bound(parts: Sequence[Part], delta: float, quality: Quality, *, upper: bool) -> float:
    """Upper (lower) bound of epsilon at ``delta``, at least 0; may be infinite (upper)."""
    best = 0.0
    for direction in _directions(parts):
        most = _most(parts, direction)
        if not most <= best:
            best = max(best, min(most, _one_epsilon(parts, direction, delta, quality, upper)))
    return best


def _one_epsilon(parts: Sequence[Part], direction: int, delta: float, quality: Quality, upper: bool) -> float:
    """One direction: look where a sketch says, then, if the answer lies elsewhere or is blurred, look there."""
    log_delta = math.log(delta)
    sketches = _sketches(parts, direction, log_delta)
    guess = _rough_epsilon(sketches, log_delta)
    found = math.inf if upper else 0.0
    fine, quality = quality, quality.coarser()  # a coarse look first, to see where
    for _ in range(_ATTEMPTS):
        lattices = _lattices(parts, direction, _plan(parts, sketches, log_delta, guess, quality, upper), quality, upper)
        value, blur = _look(lattices, guess, log_delta, upper)
        found = min(found, value) if upper else max(found, value)
        near = blur < _BLUR and 0.6 * guess < found < 1.7 * guess
        # another look at the same place would see the same
        same = abs(found - guess) <= _SAME * guess if math.isfinite(found) else False
        if quality is fine and (near or same or found == 0.0):
            break
        if near or 0.2 * guess < found < 5 * guess or found == 0.0:
            quality = fine
        guess = found if 0 < found < math.inf else 2 * guess if found else guess
    return found


def epsilon_near(parts: Sequence[Part], delta: float, guess: float, quality: Quality, *, upper: bool) -> float:
    """Upper (lower) bound of epsilon at ``delta``, sharp only if it is near ``guess``: one look, for root finding."""
    log_delta, best = math.log(delta), 0.0
    for direction in _directions(parts):
        most = _most(parts, direction)
        if most < 0.9 * guess:
            best = max(best, most if upper else 0.0)
            continue
        sketches = _sketches(parts, direction, log_delta)
        plan = _plan(parts, sketches, log_delta, guess, quality, upper)
        best = max(best, _look(_lattices(parts, direction, plan, quality, upper), guess, log_delta, upper)[0])
    return best


def _rough_epsilon(sketches: Sequence[Atoms], log_delta: float) -> float:
    """Chernoff's epsilon without the losses that are too rare to matter together, half of delta being theirs.

    Losses that rare would have Chernoff's bound look where they are, however little they count.
    """
    count = sum(part.count for part in sketches)
    seen = []
    for part in sketches:
        keep = part.loss <= _quantile(part, log_delta - math.log(2.0 * count))
        seen.append(Atoms(part.loss[keep], part.log_mass[keep], part.count))
    return tilt_for_delta(seen, log_delta - math.log(2.0))[1]


def _look(lattices: Sequence[tuple[Lattice, int]], guess: float, log_delta: float, upper: bool) -> tuple[float, float]:
    """Epsilon by one transform and, where round-off blurs that, by expansions; and the share of delta that it is."""
    delta = math.exp(log_delta)
    if upper and sum(n * part.infinity for part, n in lattices) > delta:
        return math.inf, 0.0
    if not all(part.mass.any() for part, _ in lattices):  # nothing is known of a part's losses
        return (math.inf if upper else 0.0), 0.0
    exact = [atoms_of(part.h * (part.first + np.arange(len(part.mass))), part.mass, n) for part, n in lattices]
    tilt = transform_tilt(exact, guess, log_delta)
    here = cumulants(exact, tilt)
    low = max(0.0, min(here.mean - 6 * math.sqrt(here.variance), 0.5 * guess))
    value, blur = _read(lattices, tilt, log_delta, low, upper)
    if blur < _BLUR:
        return value, blur
    for expansion in expansions(lattices, guess if value in (0.0, math.inf) else value, log_delta, upper=upper):
        other = expansion.epsilon_at(delta)
        if (other <= value) if upper else (other >= value):
            value = other
            blur = min(blur, expansion.margin_at(other) / delta) if math.isfinite(other) else blur
        if blur < _BLUR:
            break
    return value, blur


def _read(
    lattices: Sequence[tuple[Lattice, int]], tilt: float, log_delta: float, low: float, upper: bool
) -> tuple[float, float]:
    """Epsilon where delta is reached, and the share of delta that the round-off and window margins make up."""
    delta = math.exp(log_delta)
    composed = compose(lattices, tilt, log_delta)
    profile = composed.profile(low, upper=upper)
    value = profile.epsilon_at(delta)
    if profile.origin > 0 and value <= profile.origin:
        profile = composed.profile(0.0, upper=upper)
        value = profile.epsilon_at(delta)
    known = value > profile.origin or profile.origin <= 0
    if not upper and not (known and math.isfinite(value)):
        value = 0.0 if value <= profile.origin else profile.origin + float(profile.x[-1])
    if not known or not math.isfinite(value):
        return value, 1.0
    return max(value, 0.0), profile.blur_at(value - profile.origin) / delta


def delta_bound(parts: Sequence[Part], epsilon: float, quality: Quality, *, upper: bool) -> float:
    """Upper (lower) bound of delta at ``epsilon`` >= 0."""
    best = 0.0
    for direction in _directions(parts):
        if epsilon < _most(parts, direction):
            best = max(best, _one_delta(parts, direction, epsilon, quality, upper, best))
    return min(1.0, best)


def _most(parts: Sequence[Part], direction: int) -> float:
    """No composed loss is above this."""
    return sum(n * pair.most[min(direction, pair.directions - 1)] * (1 + 1e-12) for pair, n in parts)


def _one_delta(
    parts: Sequence[Part], direction: int, epsilon: float, quality: Quality, upper: bool, known: float = 0.0
) -> float:
    """One direction: guess the size of delta, on which the cut depends, until the answer bears it out.

    Values far below ``known`` (another direction's) needn't be sharp.
    """
    log_delta = -25.0
    least = max(_SMALLEST_LOG_DELTA, math.log(known) - 3.0) if known > 0 else _SMALLEST_LOG_DELTA
    value = math.nan
    for _ in range(8):
        sketches = _sketches(parts, direction, log_delta)
        tilt = tilt_for_epsilon(sketches, epsilon)
        guess = min(log_delta + 5, _saddle(cumulants(sketches, tilt), tilt, epsilon))
        if guess < log_delta - 5 and log_delta > least:
            log_delta = max(guess, least)
            continue
        plan = _plan(parts, sketches, log_delta, epsilon, quality, upper)
        lattices = _lattices(parts, direction, plan, quality, upper)
        if not all(part.mass.any() for part, _ in lattices):  # nothing is known of a part's losses
            return 1.0 if upper else 0.0
        exact = [atoms_of(part.h * (part.first + np.arange(len(part.mass))), part.mass, n) for part, n in lattices]
        tilt = transform_tilt(exact, epsilon, log_delta)
        profile = compose(lattices, tilt, log_delta).profile(epsilon, upper=upper)
        value = profile.delta_at(epsilon)
        if not profile.blur_at(epsilon - profile.origin) < _BLUR * value:
            for expansion in expansions(lattices, epsilon, log_delta, upper=upper):
                better = expansion.delta_at(epsilon)
                value = better if value != value else (min if upper else max)(value, better)
                if expansion.margin_at(epsilon) < _BLUR * value:
                    break
        if not value < math.exp(log_delta) * 0.05 or log_delta <= least:
            break
        log_delta = max(least, math.log(value) if value > 0 else log_delta - 15)
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


def _plan(
    parts: Sequence[Part], sketches: Sequence[Atoms], log_delta: float, epsilon: float, quality: Quality, upper: bool
) -> Plan:
    """Spacing at which connecting the dots moves epsilon by about ``tolerance``.

    It multiplies delta by about exp(t (t + 1) V / 2), V the variance it adds to the tilted composition, and delta
    falls with epsilon like exp(-t epsilon).
    """
    count = sum(n for _, n in parts)
    cap = _cap(sketches, log_delta, epsilon, upper)
    seen = [_capped(part, cap) for part in sketches]
    # where what is finite can't reach epsilon any tilt will do, but not an endless one
    tilt = min(tilt_for_epsilon(seen, epsilon), _STEEPEST * (5 - log_delta) / max(epsilon, 1e-9))
    spread = math.sqrt(max(cumulants(seen, tilt).variance, 1e-300))
    budget = 2 * quality.tolerance * max(epsilon, 0.3 * spread) / (tilt + 1)
    h = math.sqrt(6 * budget / count)
    while _added(seen, tilt, 1.5 * h) < budget and h < 1.0:
        h *= 1.5
    h = min(h, math.sqrt(8 * quality.tolerance) / (tilt + 1))
    wide = _widths(seen, tilt, budget, 0.5 * math.sqrt(8 * quality.tolerance) / (tilt + 1))
    focus = Focus(tilt, epsilon, _cut(parts, log_delta), cap, wide, log_delta)
    lengths = np.concatenate([pair.lengths(focus, quality) for pair, _ in parts])
    h = min(h, max(_CHEAP_WINDOW * spread, float(lengths.sum()) / _CHEAP_CELLS))  # finer where it costs next to nothing
    h = max(h, cap / _MAX_CELLS, spread / _MAX_WINDOW, _FINEST)
    if float(lengths.sum()) / h < _FEW_CELLS:  # even cells are balanced better, and cheap
        return Plan(h, replace(focus, wide=np.zeros_like))
    while focus.cells(lengths, h) > _MAX_CELLS:
        h *= 1.25
    return Plan(h, focus)


def _cap(sketches: Sequence[Atoms], log_delta: float, epsilon: float, upper: bool) -> float:
    """Largest loss that need be told apart.

    In an upper bound what is above the cap is exact as long as the other losses don't take the sum below epsilon,
    which they do with probability e^-14 or less.  In a lower bound it counts as the cap, which costs e^-14.  Either
    way rarer losses than a small part of delta don't matter.
    """
    count = sum(part.count for part in sketches)
    spread = math.sqrt(cumulants(sketches, 0.0).variance)
    rarest = max(2 * epsilon, *(_quantile(part, log_delta + math.log(_CAPPED / count)) for part in sketches))
    if not upper:
        return min(epsilon + _FAR + 6 * spread, rarest)
    return min(epsilon + max(0.1 * epsilon, lowest_likely(sketches, spread, _FAR)), rarest)


def _capped(part: Atoms, cap: float) -> Atoms:
    """A sketch with what is above the cap moved to it, but for what then counts as infinite."""
    loss = np.minimum(part.loss, cap)
    return Atoms(loss, part.log_mass + (loss - part.loss), part.count)


def _widths(sketches: Sequence[Atoms], tilt: float, budget: float, most: float) -> Callable[[Array], Array]:
    """How wide cells may be, given that the tilted losses in them and beyond add a part of ``budget`` in variance.

    n losses in cells of width w add about n w^2 / 6, so w^2 may be budget / (n + 1), n the expected number of
    them beyond; ``most`` holds where a single one matters.
    """
    loss = np.concatenate([np.abs(part.loss) for part in sketches])
    number = []
    for part in sketches:
        exponent = tilt * part.loss + part.log_mass
        weight = np.exp(exponent - exponent.max())
        number.append(part.count * weight / weight.sum())
    order = np.argsort(loss)
    loss = loss[order]
    beyond = np.append(np.cumsum(np.concatenate(number)[order][::-1])[::-1], 0.0)

    def wide(at: Array) -> Array:
        n = beyond[np.searchsorted(loss, 0.8 * at)]
        result: Array = np.minimum(np.sqrt(0.5 * budget / (n + 1.0)), most)
        return result

    return wide


def _quantile(part: Atoms, log_tail: float) -> float:
    """Least loss of the sketch with at most exp(``log_tail``) of the mass of one release above it."""
    above = np.cumsum(np.exp(part.log_mass)[::-1])[::-1]
    place = int(np.searchsorted(-above, -math.exp(log_tail)))
    return float(part.loss[min(place, len(part.loss) - 1)])


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
    parts: Sequence[Part], direction: int, plan: Plan, quality: Quality, upper: bool
) -> list[tuple[Lattice, int]]:
    return [
        (pair.build(min(direction, pair.directions - 1), plan.h, plan.focus, quality, upper), count)
        for pair, count in parts
    ]
