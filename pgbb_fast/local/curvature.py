"""What is known of the Hessian H of a rule: its own slope with an error, and a shape it should have.

For a linear model whose errors don't depend on the features, the Hessians H_tau = f_tau E[x x'] of all rules have one
shape.  That shape is released once for all of them where the budget has a share for it
(:func:`pgbb_fast.release.blocked.release_design`), and the other rules' slopes say more about it.  In the basis B where
the shape is the identity, H = B W B', the prior of an entry of W is normal around f I with relative standard deviation
``PRIOR`` (more where the shape is uncertain itself).  It is combined entry by entry with the rule's own estimate:
directions that the releases leave uncertain are drawn to the shape, others keep their own.  f itself has a posterior
with mass near nothing (:class:`Level`), so that where the curvature can't be seen intervals revert to theta's prior.

On real data (bench/results/real_data.md) entries of W differ from those of the identity by .03 to .2.

H is positive definite.  An eigenvalue of the shape is measured with a normal error; under a prior proportional to
x^(``FLATNESS`` - 1) on the positive numbers its posterior mean and standard deviation are used.  Draws of H take f and
then each diagonal entry of W from their posteriors, and what is off the diagonal from matrix exponentials.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtri_exp, pbdv

__all__ = ["Hessian", "Slope", "combined", "learnt"]

Array = NDArray[np.float64]
PRIOR = 0.3     # standard deviation of a diagonal entry of W around 1
OFF = 0.3       # over sqrt(d): of one off the diagonal around 0
TYPICAL_OFF, WEIGHT = 0.1, 10.0     # a guess of what `learnt` learns, and for how many entries it counts
MIN_OFF = 0.01
LARGEST = 0.5   # its largest standard deviation: |W_ab| < 1 for a positive definite W with a unit diagonal
FLATNESS = 0.6  # of the prior of an eigenvalue: 1 is flat, 0 scale-free
FAR = 15.0
LEAST = 1e-9    # of the largest eigenvalue: eigenvalues are not below it
TINY = 1e-12    # of the largest measurement: errors are not below it
POINTS = 600    # of the grid of log f
FINER = 8       # times that it is made finer at most
NEGLIGIBLE = 12.0   # below the largest log density
FARTHEST = 6.0  # the highest point is so many errors above the measurements, and so many times their sum


@dataclass(frozen=True)
class Slope:
    """An unbiased estimate of a symmetric matrix; v' matrix v has error variance ``noise`` v' spread v.

    Attributes
    ----------
    matrix : (d, d)
        Symmetric, not necessarily positive definite.
    spread : (d, d)
        Positive definite.
    noise : float
        Variance of one release's noise in a coordinate.
    """

    matrix: Array
    spread: Array
    noise: float

    def along(self, vectors: Array) -> Array:
        """Error variances of v_a' matrix v_a, v_a the columns of ``vectors``."""
        return np.asarray(self.noise * np.einsum("ij,ik,kj->j", vectors, self.spread, vectors))

    def first(self, m: int) -> Slope:
        """The leading (m, m) block."""
        return Slope(self.matrix[:m, :m], self.spread[:m, :m], self.noise)

    @property
    def weight(self) -> float:
        """In an estimate of a common shape E, for matrices f_k E with error variance s_k: f_k / s_k."""
        return max(float(np.trace(self.matrix)), 0.0) / (self.noise * float(np.trace(self.spread)))


@dataclass(frozen=True)
class Hessian:
    """Posterior of H = B W B', W symmetric and positive definite.

    Entries of W have a normal measurement.  The prior of those with a shape is normal around f I, truncated to positive
    diagonals, f the level of H = f E, one positive number with the prior f^(``FLATNESS`` - 1) up to ``limit``; the
    diagonal entries without a shape have that prior themselves.

    Attributes
    ----------
    basis : (d, d)
        B.
    measured, error : (d, d)
        The measurement of W and its standard deviations, symmetric.
    relative : (d, d)
        Standard deviations of the prior over f; inf: no shape.
    typical : (d,)
        Scale of the prior of f, and of those of the diagonal entries without a shape.
    limit : float
        Public bound of f.
    """

    basis: Array
    measured: Array
    error: Array
    relative: Array
    typical: Array
    limit: float = math.inf

    @classmethod
    def known(cls, matrix: Array) -> Hessian:
        """H without error."""
        d = len(matrix)
        root = np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)
        return cls(root, np.eye(d), np.zeros((d, d)), np.full((d, d), np.inf), np.ones(d))

    @cached_property
    def _shaped(self) -> NDArray[np.bool_]:
        """Which coordinates have a shape."""
        return np.asarray(np.isfinite(np.diag(self.relative)))

    @cached_property
    def _errors(self) -> Array:
        """Standard deviations of the measured diagonal, away from zero."""
        return np.asarray(np.maximum(np.diag(self.error), TINY * np.abs(np.diag(self.measured)).max()))

    @cached_property
    def _level(self) -> Level:
        """Posterior of f."""
        here = self._shaped
        return Level.of(
            np.diag(self.measured)[here],
            self._errors[here],
            np.diag(self.relative)[here],
            float(self.typical[here].mean()),
            self.limit,
        )

    @cached_property
    def _plugged(self) -> tuple[Array, Array]:
        """Mean and standard deviation of W with f at its posterior mean."""
        d = len(self.basis)
        f = self._level.mean if self._shaped.any() else 1.0
        variance = np.maximum(self.error, TINY * np.abs(np.diag(self.measured)).max()) ** 2
        prior = np.eye(d) * f
        precision = 1.0 / variance + 1.0 / (f * self.relative) ** 2
        mean = (self.measured / variance + prior / (f * self.relative) ** 2) / precision
        sd = precision**-0.5
        here = np.diag_indices(d)
        mean[here], sd[here] = positive_mean(np.diag(mean), np.diag(sd))
        if self._shaped.any():  # of the level too
            sd[here] = np.hypot(sd[here], np.where(self._shaped, self._shrunk * self._level.sd, 0.0))
        return (mean + mean.T) / 2.0, sd

    @cached_property
    def _shrunk(self) -> Array:
        """Derivatives of the diagonal entries' conditional means in f: the prior's share of the precision."""
        prior = (self._level.mean * np.diag(self.relative)) ** 2
        return np.asarray(self._errors**2 / (self._errors**2 + prior))

    @property
    def mean(self) -> Array:
        """Of W, (d, d)."""
        return self._plugged[0]

    @property
    def sd(self) -> Array:
        """Of W's entries, (d, d)."""
        return self._plugged[1]

    @property
    def matrix(self) -> Array:
        """The estimate, positive definite."""
        root = self.basis @ _root(self.mean)
        return np.asarray(root @ root.T)

    def along(self, vectors: Array) -> Array:
        """Standard deviations of v_a' H v_a, v_a the columns of ``vectors``."""
        square = (self.basis.T @ vectors) ** 2
        pairs = np.where(np.eye(len(self.mean), dtype=bool), 1.0, 2.0) * self.sd**2
        return np.asarray(np.sqrt(np.einsum("aj,ab,bj->j", square, pairs, square)))

    def draw(self, size: int, rng: np.random.Generator) -> Array:
        """(size, d, d) draws, positive definite: B D^(1/2) R exp(G) R' D^(1/2) B'.

        D are draws of the diagonal of W, which may be next to nothing; R R' the mean of W over its diagonal, and G
        normal with nothing on its diagonal.
        """
        d = len(self.basis)
        root = np.sqrt(self._draw_diagonal(size, rng))
        scale = np.sqrt(np.diag(self.mean))
        normal = np.triu(rng.standard_normal((size, d, d)), 1)
        values, vectors = np.linalg.eigh(self.sd / np.outer(scale, scale) * (normal + normal.transpose(0, 2, 1)))
        inner = (vectors * np.exp(values)[:, None, :]) @ vectors.transpose(0, 2, 1)
        left = (self.basis * root[:, None, :]) @ _root(self.mean / np.outer(scale, scale))
        return np.asarray(left @ inner @ left.transpose(0, 2, 1))

    def _draw_diagonal(self, size: int, rng: np.random.Generator) -> Array:
        """Draws of W's diagonal, (size, d): of f, then of each entry given f."""
        out = np.empty((size, len(self.basis)))
        measured, error, relative = np.diag(self.measured), self._errors, np.diag(self.relative)
        for j in np.flatnonzero(~self._shaped):
            alone = Level.of(measured[[j]], error[[j]], np.zeros(1), float(self.typical[j]))
            out[:, j] = alone.draw(size, rng)
        here = self._shaped
        if here.any():
            f = self._level.draw(size, rng)[:, None]
            own, shape = error[here] ** 2, (f * relative[here]) ** 2
            mean = (measured[here] * shape + f * own) / (own + shape)
            sd = np.sqrt(own * shape / (own + shape))
            chance = np.log(rng.random(mean.shape)) + log_ndtr(mean / sd)
            out[:, here] = mean - sd * ndtri_exp(chance)
        return np.maximum(out, 0.0)


@dataclass(frozen=True)
class Level:
    """Posterior of a positive number f on a grid of its logarithm.

    Attributes
    ----------
    log_f : (k,)
    below : (k,)
        Probability up to each point of the grid, from 0 to 1.
    """

    log_f: Array
    below: Array

    @classmethod
    def of(cls, measured: Array, error: Array, relative: Array, typical: float, limit: float = math.inf) -> Level:
        """From normal measurements (``measured``, ``error``) of numbers that are normal around f with standard
        deviation f ``relative``, truncated to be positive; prior f^(``FLATNESS`` - 1) / (1 + (f / ``typical``)^2) on
        (0, ``limit``].

        The likelihood of f is the product over measurements m of

            N(m; f, s^2 + f^2 r^2) Phi(mean / sd) / Phi(1 / r),

        mean and sd those of the number given f and m (r = 0: the second factor is 1).
        """
        spread = relative > 0.0

        def log_density(log_f: Array) -> Array:
            f = np.exp(log_f)[:, None]
            shape = (f * relative) ** 2
            total = error**2 + shape
            found = FLATNESS * log_f - np.log1p((f[:, 0] / typical) ** 2)
            found -= 0.5 * ((measured - f) ** 2 / total + np.log(total)).sum(axis=1)
            if spread.any():
                mean = (measured * shape + f * error**2) / total
                sd = np.sqrt(error**2 * shape / total)
                found += log_ndtr(mean[:, spread] / sd[:, spread]).sum(axis=1)
            return np.asarray(found)

        largest = float(np.maximum(measured, 0.0).max())
        by_error = FARTHEST * (largest + FARTHEST * float(error.max()))
        top = min(limit, by_error, max(FARTHEST * largest, typical / LEAST))
        ends = math.log(LEAST * min(top, typical)), math.log(top)
        for _ in range(FINER):
            log_f = np.linspace(*ends, POINTS)
            density = log_density(log_f)
            seen = np.flatnonzero(density >= density.max() - NEGLIGIBLE)
            ends = float(log_f[max(seen[0] - 1, 0)]), float(log_f[min(seen[-1] + 1, POINTS - 1)])
            if 2 * len(seen) > POINTS:
                break
        density = np.exp(density - density.max())
        below = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2.0)])
        return cls(log_f, below / below[-1])

    @property
    def mean(self) -> float:
        """E f."""
        return float(np.exp(self._middle) @ np.diff(self.below))

    @property
    def sd(self) -> float:
        """Standard deviation of f."""
        return math.sqrt(max(0.0, float(np.exp(2.0 * self._middle) @ np.diff(self.below)) - self.mean**2))

    @property
    def _middle(self) -> Array:
        return np.asarray((self.log_f[1:] + self.log_f[:-1]) / 2.0)

    def draw(self, size: int, rng: np.random.Generator) -> Array:
        """(size,) draws: the distribution function inverted, linear in log f between points."""
        return np.exp(np.interp(rng.random(size), self.below, self.log_f))


def _root(mean: Array) -> Array:
    """The symmetric root of ``mean``, its eigenvalues' signs taken off."""
    values, vectors = np.linalg.eigh(mean)
    values = np.abs(values)
    values = np.maximum(values, LEAST * values.max())
    return np.asarray((vectors * np.sqrt(values)) @ vectors.T)


def positive_mean(value: Array, error: Array) -> tuple[Array, Array]:
    """Posterior mean and standard deviation of a positive number with a normal measurement (``value``, ``error``).

    Prior proportional to x^(nu - 1), nu = ``FLATNESS``.  With a = value / error and D the parabolic cylinder function,
    int_0^inf x^(nu - 1) exp(-(x - a)^2 / 2) dx is proportional to Gamma(nu) exp(-a^2 / 4) D_{-nu}(-a) (Gradshteyn and
    Ryzhik 2007, 3.462.1), so E x = nu D_{-nu-1}(-a) / D_{-nu}(-a), and E x^2 likewise.  Beyond |a| = ``FAR`` two terms
    of the asymptotic series of the mean, and of its derivative in a, which is the variance.
    """
    nu, a = FLATNESS, np.asarray(value / error, dtype=np.float64)
    near = np.clip(a, -FAR, FAR)
    zero, one, two = (pbdv(-nu - k, -near)[0] for k in (0, 1, 2))
    mean, square = nu * one / zero, nu * (nu + 1.0) * two / zero
    variance = square - mean**2
    above, below, far = a > FAR, a < -FAR, np.where(np.abs(a) > FAR, np.abs(a), FAR)
    mean = np.where(above, far - (1.0 - nu) / far, np.where(below, nu / far - nu * (nu + 1.0) / far**3, mean))
    variance = np.where(above, 1.0 + (1.0 - nu) / far**2, variance)
    variance = np.where(below, nu / far**2 - 3.0 * nu * (nu + 1.0) / far**4, variance)
    return np.asarray(error * mean), np.asarray(error * np.sqrt(np.maximum(variance, 0.0)))


def combined(own: Slope, others: Sequence[Slope], typical: float, limit: float = math.inf) -> Hessian:
    """Posterior of the matrix that ``own`` estimates, given the shape that ``others`` agree on.

    The others are (m, m) or larger: they speak of the first m coordinates, m <= d (a scale comes after them).
    ``limit`` is a bound of f in H = f E, E what the others estimate.
    """
    d = len(own.matrix)
    m = min((len(other.matrix) for other in others), default=0)
    values, vectors = np.empty(d), np.zeros((d, d))
    uncertain = np.full((d, d), np.inf)  # relative variances of the shape's entries
    if m:
        values[:m], vectors[:m, :m], uncertain[:m, :m] = _shape([other.first(m) for other in others])
    if m < d:  # no shape: the estimate's own eigenvectors
        rest = Slope(own.matrix[m:, m:], own.spread[m:, m:], own.noise)
        raw, vectors[m:, m:] = np.linalg.eigh(rest.matrix)
        values[m:], _ = positive_mean(raw, np.sqrt(rest.along(vectors[m:, m:])))
    for part in (slice(0, m), slice(m, d)):
        values[part] = np.maximum(values[part], LEAST * values[part].max(initial=0.0))
    along = own.along(vectors)
    whiten = vectors / np.sqrt(values)
    variance = np.add.outer(along, along) / np.outer(values, values) / 4.0
    prior = np.full((d, d), LARGEST**2)
    prior[:m, :m] = np.minimum(OFF**2 / d + uncertain[:m, :m], LARGEST**2)
    here = np.diag_indices(d)
    variance[here], prior[here] = along / values**2, PRIOR**2 + np.diag(uncertain)
    scale = np.full(d, 1.0)
    scale[:m] = ((vectors[:m, :m] ** 2) @ values[:m]).max(initial=0.0)
    scale[m:] = values[m:]
    return Hessian(
        vectors * np.sqrt(values),
        whiten.T @ own.matrix @ whiten,
        np.sqrt(variance),
        np.sqrt(prior),
        typical / scale,
        limit,
    )


def learnt(hessians: Sequence[Hessian]) -> list[Hessian]:
    """The same with a standard deviation of the entries off the diagonal that is learnt from all of them together.

    The mean of squares less errors' squares, ``TYPICAL_OFF``^2 counting for ``WEIGHT`` entries; entries that are known
    to ``TYPICAL_OFF`` or better weigh most.  Never above the deviation that they have.
    """
    total, weight = WEIGHT * TYPICAL_OFF**2, WEIGHT
    for hessian in hessians:
        f = hessian._level.mean if hessian._shaped.any() else 1.0
        upper = np.triu_indices(len(hessian.basis), 1)
        own = np.isfinite(hessian.relative[upper])
        entry, error = (part[upper][own] / f for part in (hessian.measured, hessian.error))
        precision = 1.0 / (1.0 + (error / TYPICAL_OFF) ** 2) ** 2
        total += float(precision @ (entry**2 - error**2))
        weight += float(precision.sum())
    off = math.sqrt(max(total / weight, MIN_OFF**2))
    found = []
    for hessian in hessians:
        diagonal = np.eye(len(hessian.basis), dtype=bool) | ~np.isfinite(hessian.relative)
        found.append(replace(hessian, relative=np.where(diagonal, hessian.relative, np.minimum(hessian.relative, off))))
    return found


def _shape(parts: Sequence[Slope]) -> tuple[Array, Array, Array]:
    """Eigenvalues and eigenvectors of the common shape, and relative variances of its entries in their basis.

    The error of an entry off the diagonal is that of a symmetrised estimate, (e_ab + e_ba) / 2.
    """
    total = sum(part.weight for part in parts)
    weights = [part.weight / total if total > 0.0 else 1.0 / len(parts) for part in parts]
    raw, vectors = np.linalg.eigh(sum(w * part.matrix for w, part in zip(weights, parts, strict=True)))
    error = np.sqrt(sum(w**2 * part.along(vectors) for w, part in zip(weights, parts, strict=True)))
    values, sd = positive_mean(raw, error)
    values = np.maximum(values, LEAST * values.max())
    uncertain = np.add.outer(error**2, error**2) / np.outer(values, values) / 4.0
    uncertain[np.diag_indices(len(values))] = (sd / values) ** 2
    return values, vectors, uncertain
