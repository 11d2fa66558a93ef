r"""Exponential moments of a squared weight, :math:`G(x) = E\,e^{x U^2} - 1`, without cancellation.

U is the Beta(gamma, (S-1) gamma) weight of one block, or the constant 1.  The moments
:math:`E\,U^{2i} = (\gamma)_{2i} / (S\gamma)_{2i}` (rising factorials) give
:math:`1 + G(x) = {}_2F_2(\gamma/2, (\gamma+1)/2; S\gamma/2, (S\gamma+1)/2; x)` (docs/accounting.md, section 2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

EPS = float(np.finfo(np.float64).eps)
_LINEAR = 500.0  # above this the series is summed in logarithms
_NEGATIVE = 12.0  # below minus this the alternating series is summed in multiple precision
_LARGEST = 2.0e6  # above this an order is of no use: +inf is returned, which is safe
_STEP = 1.03  # ratio of the knots between which log E exp(x U^2) is bounded by convexity


@dataclass(frozen=True)
class Excess:
    """Signed logarithms of values ``sign * exp(log)`` with relative error at most ``error``."""

    log: Array
    sign: Array
    error: Array


@dataclass(frozen=True)
class BetaSquare:
    """U ~ Beta(gamma, (S-1) gamma)."""

    gamma: float
    n_blocks: int

    def log_moments(self, count: int) -> Array:
        """log E U^{2i} for i < count."""
        i = 2.0 * np.arange(count - 1)
        a, b = self.gamma, self.n_blocks * self.gamma
        steps = np.log((a + i) / (b + i)) + np.log((a + i + 1) / (b + i + 1))
        return np.concatenate(([0.0], np.cumsum(steps)))

    def excess(self, x: Array) -> Excess:
        """G at every ``x`` (any sign, finite)."""
        x = np.asarray(x, dtype=np.float64)
        log = np.full(x.shape, -np.inf)
        sign = np.sign(x)
        error = np.zeros(x.shape)
        small = (x <= _LINEAR) & (x >= -_NEGATIVE) & (x != 0)
        if small.any():
            value, bound = self._series(x[small])
            with np.errstate(divide="ignore"):
                log[small] = np.log(np.abs(value))
            error[small] = bound
        large = np.flatnonzero(x > _LINEAR)
        if large.size > 2 + math.log(float(x.max(initial=_LINEAR)) / _LINEAR) / math.log(_STEP):
            log[large], error[large] = self._between_knots(x[large])
        else:
            for index in large:
                log[index], error[index] = self._log_series(float(x[index]))
        for index in np.flatnonzero(x < -_NEGATIVE):
            log[index], error[index] = self._precise(float(x[index]))
        return Excess(log, sign, error)

    def _series(self, x: Array) -> tuple[Array, Array]:
        """Sum of x^i/i! E U^{2i}, i >= 1, and a relative error bound: 8 i roundings in term i."""
        a, b = self.gamma, self.n_blocks * self.gamma
        term = x * (a / b) * ((a + 1) / (b + 1))
        total, magnitude = term.copy(), np.abs(term)
        rounding = 8 * np.abs(term)
        i = 1
        while True:
            j = 2.0 * i
            ratio = x * (((a + j) / (b + j)) * ((a + j + 1) / (b + j + 1)) / (i + 1))
            term = term * ratio
            i += 1
            total += term
            size = np.abs(term)
            magnitude += size
            rounding += 8 * i * size
            if (np.abs(ratio) < 0.5).all() and (size <= 1e-18 * magnitude).all():
                break
        bound = (EPS * rounding + 2 * size) / np.maximum(np.abs(total), 1e-300)
        return total, bound

    def _log_series(self, x: float) -> tuple[float, float]:
        """log G for large positive x, all terms positive: a log-sum-exp over every term that counts."""
        if not x <= _LARGEST:
            return math.inf, 0.0
        from scipy.special import gammaln

        count = int(x + 12 * math.sqrt(x) + 60)
        i = np.arange(1, count)
        terms = i * math.log(x) - gammaln(i + 1.0) + self.log_moments(count)[1:]
        top = float(terms.max())
        total = float(np.exp(terms - top).sum())
        tail = (
            1e-15  # from x + 12 sqrt(x) + 60 on the terms are below e^-60 of the top and fall faster than 1 - 1/sqrt(x)
        )
        return top + math.log(total), tail + EPS * 16 * (x * abs(math.log(x)) + count)

    def _between_knots(self, x: Array) -> tuple[Array, Array]:
        """log G and its relative error at many large positive x, from sums at few.

        f(x) = log E exp(x U^2) is convex, as every cumulant generating function: it lies below the chord between
        two knots, which is returned, and above the chords beside it, continued.
        """
        top = min(float(x.max()), _LARGEST)
        knots = np.geomspace(_LINEAR, top, 2 + math.ceil(math.log(top / _LINEAR) / math.log(_STEP)))
        knots = np.concatenate(([_LINEAR / _STEP], knots, [min(top * _STEP, _LARGEST)]))
        knots = np.unique(knots)
        sums = [self._log_series(float(knot)) for knot in knots]
        f = np.logaddexp(0.0, np.array([log for log, _ in sums]))
        slope = np.diff(f) / np.diff(knots)
        inside = x <= knots[-1]
        i = np.clip(np.searchsorted(knots, x) - 1, 0, len(slope) - 1)
        upper = f[i] + slope[i] * (x - knots[i])
        before, after = np.maximum(i - 1, 0), np.minimum(i + 1, len(slope) - 1)
        lower = np.maximum(f[i] + slope[before] * (x - knots[i]), f[i + 1] - slope[after] * (knots[i + 1] - x))
        lower = np.where((before < i) & (after > i), lower, f[i])  # without both neighbours: f increases
        gap = np.maximum(upper - lower, 0.0) + 4 * max(error for _, error in sums) + 4 * EPS * upper
        log = upper + np.log(-np.expm1(-upper))
        error = gap / -np.expm1(-upper)
        return np.where(inside, log, np.inf), np.where(inside, error, 0.0)

    def _precise(self, x: float) -> tuple[float, float]:
        """log |G| for large negative x: the alternating series with as many digits as it cancels."""
        import mpmath

        with mpmath.workdps(30 + int(abs(x) / 2.3)):
            a, b = mpmath.mpf(self.gamma), self.n_blocks * mpmath.mpf(self.gamma)
            value = mpmath.hyp2f2(a / 2, (a + 1) / 2, b / 2, (b + 1) / 2, mpmath.mpf(x)) - 1
            return float(mpmath.log(-value)), 4 * EPS


@dataclass(frozen=True)
class UnitSquare:
    """U = 1: the deterministic weight."""

    def log_moments(self, count: int) -> Array:
        """log E U^{2i} = 0 for i < count."""
        return np.zeros(count)

    def excess(self, x: Array) -> Excess:
        """e^x - 1 at every ``x``."""
        x = np.asarray(x, dtype=np.float64)
        with np.errstate(divide="ignore", over="ignore"):
            log = np.where(x > 30, x + np.log1p(-np.exp(-np.abs(x))), np.log(np.abs(np.expm1(np.minimum(x, 30.0)))))
        return Excess(log, np.sign(x), EPS * (4 + np.abs(x)))


SquareLaw = BetaSquare | UnitSquare


def powered(excess: Excess, power: int) -> Excess:
    r"""Excess of the K-fold product, :math:`(1 + G)^K - 1`: the squared norm of K independent weights."""
    if power == 1:
        return excess
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        g = excess.sign * np.exp(np.minimum(excess.log, 700.0))
        log1p = np.where(excess.log > 30, np.logaddexp(0.0, excess.log), np.log1p(np.maximum(g, -1.0)))
        y = power * log1p
        # d log1p / d log g = |g| / (1 + g): absolute error of log(1 + G)
        slope = np.where(excess.log > 30, 1.0, np.abs(g) / np.maximum(1.0 + g, 1e-300))
        absolute = power * (excess.error * slope + 2 * EPS * np.abs(log1p))
        log = np.where(y > 30, y + np.log1p(-np.exp(-np.abs(y))), np.log(np.abs(np.expm1(np.minimum(y, 30.0)))))
        value = np.abs(np.expm1(np.minimum(y, 30.0)))
        relative = np.where(y > 30, absolute, absolute * np.exp(np.minimum(y, 30.0)) / np.maximum(value, 1e-300))
    return Excess(
        np.where(excess.sign == 0, -np.inf, log),
        excess.sign,
        np.where(excess.sign == 0, 0.0, 2 * relative + 4 * EPS),
    )
