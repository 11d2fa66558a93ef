r"""Self- and heterogeneous composition of lattices: tilting, window, FFT, and hockey-stick values with all errors.

With K(t) = log E e^{tL} of one release, the t-tilted law is composed in a window that holds it but for a bounded
part, and tilted back: :math:`\delta(\epsilon) = E (1 - e^{\epsilon - L})_+` is then a sum of positive terms around
the window's middle, where the round-off is relative to the result itself, however small delta is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.accountant.convolve import UNIT, circular_power, smooth_size
from pgbb_fast.accountant.lattice import Lattice

Array = NDArray[Any]

LARGEST = 2**21
_TOP = 1e-6  # untilted mass above the window, relative to delta
_OUTSIDE = 1e-15  # tilted mass below, and above, the window
_GENTLE = 3.0  # see _gentlest
_FINE = 2e-11  # round-off expected of a transform, as a share of what is transformed: eta times a root of the length
_ROOM = -11.0  # log of the share of delta that round-off should stay below
_LARGEST_LOG = 650.0  # masses tilted back by more are not looked at
_WIDEST = 600.0  # losses further than this above the first one looked at are not searched


@dataclass(frozen=True)
class Cumulants:
    """K(t), K'(t), K''(t) of one release, or their sums over several."""

    value: float
    mean: float
    variance: float


@dataclass(frozen=True)
class Atoms:
    """Losses and logarithms of masses of one release, and how often it is composed."""

    loss: Array
    log_mass: Array
    count: int


def atoms_of(loss: Array, mass: Array, count: int) -> Atoms:
    """``Atoms`` from masses; those that are zero are left out."""
    seen = mass > 0
    return Atoms(loss[seen], np.log(mass[seen]), count)


def cumulants(parts: Sequence[Atoms], tilt: float) -> Cumulants:
    """Composed cumulants at ``tilt``."""
    value = mean = variance = 0.0
    for part in parts:
        exponent = tilt * part.loss + part.log_mass
        top = float(exponent.max())
        weight = np.exp(exponent - top)
        total = float(weight.sum())
        m = float((weight * part.loss).sum()) / total  # sums, not dot products: those start threads
        value += part.count * (top + math.log(total))
        mean += part.count * m
        variance += part.count * max(float((weight * np.square(part.loss - m)).sum()) / total, 0.0)
    return Cumulants(value, mean, variance)


def tilt_for_delta(parts: Sequence[Atoms], log_delta: float) -> tuple[float, float]:
    """The tilt with which to look for the epsilon at which delta is exp(``log_delta``).

    Chernoff's epsilon is the least (K(t) - log delta) / t, where K(t) - t K'(t) = log delta; then as ``_gentlest``.
    Returns the tilt and that epsilon, at least 0.
    """
    log_delta = min(log_delta, -1e-3)
    steepest = _solve_tilt(parts, lambda c, t: c.value - t * c.mean, log_delta)
    if steepest <= 0:
        return 0.0, 0.0
    epsilon = (cumulants(parts, steepest).value - log_delta) / steepest
    return _gentlest(parts, epsilon, steepest, log_delta), max(epsilon, 0.0)


def tilt_for_epsilon(parts: Sequence[Atoms], epsilon: float) -> float:
    """The tilt with which to look for delta at ``epsilon``; 0 where the mean loss is larger at once."""
    if cumulants(parts, 0.0).mean >= epsilon:
        return 0.0
    steepest = _solve_tilt(parts, lambda c, _: -c.mean, -epsilon)
    return _gentlest(parts, epsilon, steepest, cumulants(parts, steepest).value - steepest * epsilon)


def _gentlest(parts: Sequence[Atoms], epsilon: float, steepest: float, least: float) -> float:
    """About the smallest t in [0, steepest] with K(t) - t epsilon <= least + _GENTLE.

    Chernoff's bound at t is then within e^_GENTLE of the best one, so round-off relative to it stays relative to
    delta, and rare huge losses are not made more of than needed.
    """
    low, high = 0.0, steepest
    if least + _GENTLE >= 0.0:
        return min(steepest, 1.0 / math.sqrt(max(cumulants(parts, 0.0).variance, 1e-300)))
    for _ in range(6):
        middle = 0.5 * (low + high)
        if cumulants(parts, middle).value - middle * epsilon <= least + _GENTLE:
            high = middle
        else:
            low = middle
    return high


def transform_tilt(parts: Sequence[Atoms], epsilon: float, log_delta: float) -> float:
    """About the smallest tilt at which the transform's round-off at ``epsilon`` is a small part of exp(``log_delta``).

    Round-off is some |c| T eta of the tilted law (``convolve``), which tilted back is K(t) - t epsilon in logarithms.
    Where no tilt is enough, the one with the least of that.
    """
    floor = _FINE + sum(part.count * _FINE * _deviation(part) for part in parts)
    wanted = log_delta + _ROOM - math.log(floor)
    if wanted >= 0.0 or cumulants(parts, 0.0).mean >= epsilon:
        return 0.0
    low, high = 0.0, _solve_tilt(parts, lambda c, _: -c.mean, -epsilon)
    if _log_mgf(parts, high) - high * epsilon > wanted:
        return high
    for _ in range(6):
        middle = 0.5 * (low + high)
        if _log_mgf(parts, middle) - middle * epsilon <= wanted:
            high = middle
        else:
            low = middle
    return high


def _deviation(part: Atoms) -> float:
    """2-norm of the law less a unit at its largest mass, or of the law where none is above one half."""
    mass = np.exp(part.log_mass - part.log_mass.max())
    mass /= mass.sum()
    top = float(mass.max())
    size = float(np.square(mass).sum())
    return math.sqrt(min(size, max(size - top * top, 0.0) + (1.0 - top) ** 2))


def _log_mgf(parts: Sequence[Atoms], tilt: float) -> float:
    """Composed K at ``tilt``."""
    value = 0.0
    for part in parts:
        exponent = tilt * part.loss + part.log_mass
        top = float(exponent.max())
        value += part.count * (top + math.log(float(np.exp(exponent - top).sum())))
    return value


def _solve_tilt(parts: Sequence[Atoms], function: Callable[[Cumulants, float], float], target: float) -> float:
    """Root of the decreasing ``function(cumulants, t) = target`` to 2%: any tilt is valid."""
    base = cumulants(parts, 0.0)
    if base.variance <= 0:
        return 0.0
    scale = 1.0 / math.sqrt(base.variance)
    low, high = 0.0, scale
    f_low = function(base, 0.0) - target
    limit = 600.0 * scale + 1e6
    f_high = function(cumulants(parts, high), high) - target
    while f_high > 0 and high < limit:
        low, f_low = high, f_high
        high *= 2.5
        f_high = function(cumulants(parts, high), high) - target
    if f_high > 0:
        return high
    for iteration in range(30):
        if high - low < 0.02 * high:
            break
        if iteration % 3 == 2 or not math.isfinite(f_low) or f_low <= f_high:
            middle = 0.5 * (low + high)
        else:
            middle = low + (high - low) * f_low / (f_low - f_high)
            middle = min(max(middle, low + 0.02 * (high - low)), high - 0.02 * (high - low))
        f = function(cumulants(parts, middle), middle) - target
        if f > 0:
            low, f_low = middle, f
        else:
            high, f_high = middle, f
    return high


@dataclass(frozen=True)
class Composed:
    """A composed privacy-loss distribution, tilted; see ``compose``.

    ``mass[i]`` is the tilted mass at loss ``(first + i) h``; the untilted one is
    ``mass[i] exp(log_scale - tilt (first + i) h)``, with ``log_scale`` the composed K(tilt).
    """

    h: float
    first: int
    mass: Array
    tilt: float
    log_scale: float
    rounding: float  # bound on the 2-norm of the error of ``mass``
    relative: float  # further relative error of every mass
    above: float  # untilted mass above the window and at infinity (upper bound)
    wrapped: float  # tilted mass below the window, which wraps into it
    infinity: float  # what of ``above`` is at infinity already before composing

    def _log_noise_norm(self) -> float:
        r"""log of a bound on the 2-norm of :math:`e^{-t x} (1 - e^{-x})` over x = h, 2h, ..., at most N terms.

        In logarithms, because what it multiplies may be as large as it is small.
        """
        t, h, n = self.tilt, self.h, float(len(self.mass))
        if t <= 0:
            return 0.5 * math.log(n)
        log_gap = math.log(-math.expm1(-2 * t * h))
        third = 2 * math.log(h) - 2 * t * h + math.log1p(math.exp(-2 * t * h)) - 3 * log_gap
        return 0.5 * min(math.log(n), -log_gap, third)

    def profile(self, low: float, *, upper: bool) -> Profile:
        """Bounds of delta at lattice losses from about ``low`` on, or from where the masses can be tilted back."""
        start = math.floor(low / self.h) - self.first
        if self.tilt > 0:  # below, what is tilted back overflows, and nothing is known
            start = max(start, math.ceil((self.log_scale - _LARGEST_LOG) / self.tilt / self.h) - self.first)
        start = int(np.clip(start, 0, len(self.mass) - 2))
        n = len(self.mass) - start
        x = self.h * np.arange(n)
        origin = self.h * (self.first + start)
        log_factor = self.log_scale - self.tilt * (origin + x)
        unknown = log_factor > _LARGEST_LOG + 1.0
        weight = np.maximum(self.mass[start:], 0.0) * np.exp(np.minimum(log_factor, _LARGEST_LOG + 1.0))
        s1 = np.cumsum(weight[::-1])[::-1]
        s2 = np.cumsum((weight * np.exp(-np.minimum(x, 740.0)))[::-1])[::-1]
        n = int(np.searchsorted(x, _WIDEST))
        s1, s2, x, log_factor, unknown = s1[:n], s2[:n], x[:n], log_factor[:n], unknown[:n]
        slack = self.relative + 4 * UNIT * len(weight)
        local = np.exp(np.minimum(log_factor, _LARGEST_LOG + 1.0))
        noise = self.rounding * np.exp(np.minimum(log_factor + self._log_noise_norm(), _LARGEST_LOG + 1.0))
        noise = np.where(unknown, 1.0, noise)  # delta is at most 1
        if upper:
            s1, s2 = (1 + slack) * s1, (1 - slack) * s2
            margin = noise + self.above
        else:
            s1, s2 = (1 - slack) * s1, (1 + slack) * s2
            margin = -noise - self.wrapped * local
        value = np.where(unknown, 1.0 if upper else 0.0, s1 - np.exp(x) * s2 + margin)
        return Profile(origin, x, s1, s2, margin, value, upper, self.above, self.infinity if upper else 0.0)


@dataclass(frozen=True)
class Profile:
    """delta(origin + x) at lattice points ``x``, and what gives it in between: S1 - e^(eps - origin) S2 + margin."""

    origin: float
    x: Array
    s1: Array
    s2: Array
    margin: Array
    value: Array
    upper: bool
    above: float = 0.0
    infinity: float = 0.0

    def blur_at(self, y: float) -> float:
        """What of the bound at ``origin + y`` is there for round-off and for the window's ends."""
        place = int(np.clip(np.searchsorted(self.x, y, side="left") - 1, 0, len(self.x) - 1))
        return max(0.0, abs(float(self.margin[place])) - self.infinity)

    def delta_at(self, epsilon: float) -> float:
        """The bound at ``epsilon``; nan below the first lattice point.  Beyond the last one delta is at most what it
        is there."""
        y = epsilon - self.origin
        if not y <= float(self.x[-1]):
            return float(self.value[-1]) if self.upper else 0.0
        if y < 0:  # delta falls with epsilon, by at most the difference of the e^epsilon: delta(eps) <= 1
            return math.nan
        j = int(np.searchsorted(self.x, y, side="left"))
        i = max(j - 1, 0)
        value = float(self.s1[j]) - math.exp(y) * float(self.s2[j])
        # the margin's size falls with epsilon: the point at or below epsilon has the larger one
        return value + float(self.margin[i])

    def epsilon_at(self, delta: float) -> float:
        """Where the bound falls to ``delta``: the first point if it is below there, +inf if above at the last.

        Both are safe for an upper bound: nothing is claimed below the first point or beyond the last.
        """
        # anything odd counts against the side claimed
        above = np.flatnonzero(~(self.value <= delta) if self.upper else self.value > delta)
        if len(above) == 0:
            return self.origin
        i = int(above[-1])
        if i == len(self.x) - 1:
            return math.inf
        top = float(self.s1[i + 1]) + float(self.margin[i]) - delta
        if self.s2[i + 1] <= 0 or top <= 0:
            y = float(self.x[i + 1] if top > 0 else self.x[i])
        else:
            y = min(max(math.log(top / float(self.s2[i + 1])), float(self.x[i])), float(self.x[i + 1]))
        return self.origin + y


def compose(parts: Sequence[tuple[Lattice, int]], tilt: float, log_delta: float) -> Composed:
    """Compose ``count`` copies of each lattice (one common h) around the tilt ``tilt``.

    ``log_delta`` is the size of the delta of interest: the window's truncation is kept below a 1e-6 part of it.
    """
    h = parts[0][0].h
    atoms = [atoms_of(h * (p.first + np.arange(len(p.mass))), p.mass, n) for p, n in parts]
    here = cumulants(atoms, tilt)
    spread = math.sqrt(max(here.variance, 0.0)) + 2 * h
    top, log_above = _window_top(atoms, tilt, here, spread, log_delta + math.log(_TOP))
    bottom = _window_bottom(atoms, tilt, here, spread)
    first = math.floor(bottom / h)
    wanted = math.ceil(top / h) - first + 2
    size = smooth_size(min(wanted, LARGEST))
    log_below = log_tilted = math.log(_OUTSIDE)
    if size < wanted:  # keep the middle; what is cut is bounded at the actual edges
        first = math.floor(here.mean / h) - size // 2
        log_above = _chernoff_above(atoms, tilt, spread, h * (first + size - 1))
        log_tilted = _chernoff_tilted(atoms, tilt, here, spread, h * (first + size - 1), 1.0)
        log_below = _chernoff_tilted(atoms, tilt, here, spread, h * first, -1.0)
    last = first + size - 1
    highest = sum(n * (p.first + len(p.mass) - 1) for p, n in parts)
    lowest = sum(n * p.first for p, n in parts)
    factors = []
    exponent_size = 0.0
    for (part, times), atom in zip(parts, atoms, strict=True):
        k = cumulants([Atoms(atom.loss, atom.log_mass, 1)], tilt).value
        exponent = tilt * (h * (part.first + np.arange(len(part.mass)))) - k
        with np.errstate(divide="ignore"):
            weight = np.exp(np.log(part.mass) + exponent)
        seen = weight > 0
        logs = float(np.abs(atom.log_mass).max(initial=0.0))
        exponent_size += times * (2 + float(np.abs(exponent[seen]).max(initial=0.0)) + abs(k) + logs)
        factors.append((weight, part.first, times))
    values, rounding = circular_power(factors, size)
    values = np.roll(values, -(first % size))
    count = sum(n for _, n in parts)
    infinity = sum(n * p.infinity for p, n in parts)
    above = 0.0 if highest <= last else math.exp(min(0.0, log_above))
    wrapped = 0.0 if lowest >= first else math.exp(min(0.0, log_below))
    wrapped += 0.0 if highest <= last else math.exp(min(0.0, log_tilted))
    reach = abs(tilt * h * max(abs(first), abs(last)))
    relative = 8 * UNIT * exponent_size + 64 * UNIT * (count + abs(here.value) + reach)
    return Composed(h, first, values, tilt, here.value, rounding, relative, above + infinity, wrapped, infinity)


_STEPS = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0)  # tilts tried, in units of 1 / spread
_SMALL_STEPS = 10  # and smaller ones, a third each time, for laws with rare large losses, where the spread says little


def _steps(atoms: Sequence[Atoms], spread: float) -> list[float]:
    """Tilts to try, falling: from 10 / spread down to a part of one over the largest loss."""
    steps = [s / spread for s in reversed(_STEPS)]
    least = 0.5 / max(1e-300, *(float(np.abs(part.loss).max(initial=0.0)) for part in atoms))
    while steps[-1] > least and len(steps) < len(_STEPS) + _SMALL_STEPS:
        steps.append(steps[-1] / 3)
    return steps


def _window_top(
    atoms: Sequence[Atoms], tilt: float, here: Cumulants, spread: float, log_target: float
) -> tuple[float, float]:
    """Least x found with P(S > x) <= exp(log_target) and tilted P(S > x) <= _OUTSIDE, by Chernoff's bound."""
    best, best_tilted = math.inf, math.inf
    for step in reversed(_steps(atoms, spread)):
        value = _log_mgf(atoms, tilt + step)
        x, x_tilted = (value - log_target) / (tilt + step), (value - here.value - math.log(_OUTSIDE)) / step
        if x >= best and x_tilted >= best_tilted:
            break
        best, best_tilted = min(x, best), min(x_tilted, best_tilted)
    return max(best, best_tilted, here.mean + 2 * spread), log_target


def _window_bottom(atoms: Sequence[Atoms], tilt: float, here: Cumulants, spread: float) -> float:
    """Largest x found with tilted P(S < x) <= _OUTSIDE."""
    best = -math.inf
    for step in reversed(_steps(atoms, spread)):
        x = (math.log(_OUTSIDE) - _log_mgf(atoms, tilt - step) + here.value) / step
        if x <= best:
            break
        best = x
    return min(best, here.mean - 2 * spread)


def lowest_likely(atoms: Sequence[Atoms], spread: float, rarity: float) -> float:
    """A y found by Chernoff's bound with P(S < -y) <= e^-rarity."""
    steps = [s for s in _steps(atoms, max(spread, 1e-300)) if s < 1e6]
    return min(((rarity + _log_mgf(atoms, -s)) / s for s in steps), default=math.inf)


def _chernoff_above(atoms: Sequence[Atoms], tilt: float, spread: float, x: float) -> float:
    """log of a bound on P(S > x)."""
    return min(_log_mgf(atoms, tilt + s) - (tilt + s) * x for s in _steps(atoms, spread))


def _chernoff_tilted(
    atoms: Sequence[Atoms], tilt: float, here: Cumulants, spread: float, x: float, sign: float
) -> float:
    """log of a bound on the tilted P(S > x) (``sign`` 1) or P(S < x) (``sign`` -1)."""
    shifts = [sign * s for s in _steps(atoms, spread)]
    return min(_log_mgf(atoms, tilt + s) - here.value - s * x for s in shifts)
