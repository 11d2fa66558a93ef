"""Ridge-regularised M-estimates of many resamples at once, to a proved distance from the minimum.

F(b) = (1/m) sum_i loss(y_i, x_i'b) + (ridge/2) |b|^2 is ridge-strongly convex, so |b - b*| <= |grad F(b)| / ridge:
iterations go on until the gradient is below a quarter of a public tolerance, which the sensitivity then counts.  The
rest of it is for rounding.  In units of A B (|slope| <= A, |x| <= B) and v = 2^-53, a gradient over N rows is off by
at most (N + 8) v for its sum (Higham 2002, section 4.2) and 2 v for the ridge's part, .47 tolerances for N <= 2^22
(more rows are refused for the grid's sake).  eta is off by (p + 2) v B |b| with |b| <= A B / ridge, the slopes by
c_max (p + 2) v B^2 / ridge, which :func:`accuracy` adds.

A step is Newton's where it lowers F by at least what the quadratic majoriser with curvature c_max promises (Boehning
and Lindsay 1988), g' M^-1 g / 2, else the majoriser's: F - F* falls by a factor 1 - ridge / (c_max B^2 + ridge) a step
at least.  All start from 0: a resample without a record must not depend on it, so no start may be fitted to all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from pgbb_fast import validation as check

__all__ = ["TOLERANCE", "Curve", "accuracy", "huber_curve", "logistic_curve", "minimise"]

Array = NDArray[np.float64]
Function = Callable[[Array, Array], Array]
TOLERANCE = 1e-9  # of |grad F|, in units of the slope bound times the features' bound
LOG_RANGE = 60.0  # F - F* falls by exp(-60) before the number of steps is enough by the rate above


@dataclass(frozen=True)
class Curve:
    """A convex loss of (y, eta): value, slope and curvature in eta, with |slope| <= slope_bound and
    0 <= curvature <= curvature_bound."""

    value: Function
    slope: Function
    curvature: Function
    slope_bound: float
    curvature_bound: float


def logistic_curve() -> Curve:
    """Bernoulli negative log likelihood, y in {0, 1}: slope sigmoid(eta) - y in [-1, 1], curvature at most 1/4."""

    def curvature(y: Array, eta: Array) -> Array:
        p = expit(eta)
        return np.asarray(p * (1.0 - p))

    return Curve(lambda y, eta: np.logaddexp(0.0, eta) - y * eta, lambda y, eta: expit(eta) - y, curvature, 1.0, 0.25)


def huber_curve(c: float) -> Curve:
    """Huber's rho_c of y - eta (Huber 1964): |slope| <= c, curvature at most 1."""
    bound = check.positive("huber_curve", "c", c)

    def value(y: Array, eta: Array) -> Array:
        r = np.abs(y - eta)
        return np.where(r <= bound, r * r / 2.0, bound * r - bound * bound / 2.0)

    return Curve(
        value,
        lambda y, eta: -np.clip(y - eta, -bound, bound),
        lambda y, eta: (np.abs(y - eta) <= bound).astype(np.float64),
        bound,
        1.0,
    )


@dataclass(frozen=True)
class Rows:
    """b weighted samples: either ``x`` (b, m, p), ``y`` (b, m), each row once, or ``x`` (n, p), ``y`` (n,) shared, with
    ``count`` (b, n) how often each row is in each sample."""

    x: Array
    y: Array
    count: Array | None = None

    @property
    def samples(self) -> int:
        return len(self.x) if self.count is None else len(self.count)

    @property
    def size(self) -> float:
        """m."""
        return float(self.x.shape[1] if self.count is None else self.count[0].sum())

    def predict(self, b: Array) -> Array:
        """x'b, (b, m) or (b, n)."""
        if self.count is None:
            return np.asarray(np.matmul(self.x, b[:, :, None])[:, :, 0])
        return np.asarray(b @ self.x.T)

    def mean(self, values: Array) -> Array:
        """Mean of ``values`` over each sample, (b,)."""
        return np.asarray((values if self.count is None else values * self.count).sum(axis=1) / self.size)

    def first(self, values: Array) -> Array:
        """Mean of values * x, (b, p)."""
        if self.count is None:
            return np.asarray(np.matmul(values[:, None, :], self.x)[:, 0] / self.size)
        return np.asarray((values * self.count) @ self.x / self.size)

    def second(self, values: Array) -> Array:
        """Mean of values * x x', (b, p, p)."""
        p = self.x.shape[-1]
        if self.count is None:
            return np.asarray(np.matmul((self.x * values[:, :, None]).transpose(0, 2, 1), self.x) / self.size)
        pairs = (self.x[:, :, None] * self.x[:, None, :]).reshape(len(self.x), p * p)
        return np.asarray(((values * self.count) @ pairs).reshape(-1, p, p) / self.size)


def accuracy(curve: Curve, ridge: float, feature_bound: float, p: int) -> float:
    """Bound of |grad F| at what :func:`minimise` returns, in units of slope_bound feature_bound, rounding included."""
    return TOLERANCE + curve.curvature_bound * feature_bound**2 * (p + 2) * 2.0**-53 / ridge


def minimise(rows: Rows, curve: Curve, ridge: float, feature_bound: float) -> Array:
    """Minimisers of F, (b, p), with |grad F| <= :func:`accuracy` slope_bound feature_bound.

    Parameters
    ----------
    rows : Rows
        Samples with |x| <= ``feature_bound``.
    ridge : float
        Weight of |b|^2 / 2, positive.
    """
    p = rows.x.shape[-1]
    b = np.zeros((rows.samples, p))
    ones = np.ones_like(rows.predict(b))  # b = 0 for all
    penalty = ridge * np.eye(p)
    majoriser = curve.curvature_bound * rows.second(ones) + penalty
    tolerance = TOLERANCE / 4.0 * curve.slope_bound * feature_bound
    ratio = (curve.curvature_bound * feature_bound**2 + ridge) / ridge

    def objective(b: Array, eta: Array) -> Array:
        return np.asarray(rows.mean(curve.value(rows.y, eta)) + ridge / 2.0 * (b * b).sum(axis=1))

    eta = rows.predict(b)
    value = objective(b, eta)
    for _ in range(math.ceil(LOG_RANGE * ratio)):
        gradient = rows.first(curve.slope(rows.y, eta)) + ridge * b
        away = np.sqrt((gradient**2).sum(axis=1)) > tolerance
        if not away.any():
            break
        hessian = rows.second(curve.curvature(rows.y, eta)) + penalty
        newton, safe = (np.linalg.solve(matrix, gradient[:, :, None])[:, :, 0] for matrix in (hessian, majoriser))
        promised = (gradient * safe).sum(axis=1) / 2.0
        trial = b - newton
        enough = objective(trial, rows.predict(trial)) <= value - promised + 1e-14 * np.abs(value)
        b = b - np.where(away[:, None], np.where(enough[:, None], newton, safe), 0.0)
        eta = rows.predict(b)
        value = objective(b, eta)
    return b
