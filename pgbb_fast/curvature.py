"""What is known of the Hessian H of a rule: its own slope with an error, and a shape it should have.

For a linear model whose errors don't depend on the features, the Hessians H_tau = f_tau E[x x'] of all rules have one
shape.  That shape is released once for all of them where the budget has a share for it
(:func:`pgbb_fast.releases.release_design`), and the other rules' slopes say more about it.  In the basis B where the
shape is the identity, H = B W B', the prior of an entry of W is normal around f I with relative standard deviation
``PRIOR`` (more where the shape is uncertain itself).  It is combined entry by entry with the rule's own estimate:
directions that the releases leave uncertain are drawn to the shape, others keep their own.

On real data (bench/results/real_data.md) entries of W differ from those of the identity by .03 to .2.

H is positive definite.  An eigenvalue of the shape is measured with a normal error; under a prior proportional to
x^(``FLATNESS`` - 1) on the positive numbers its posterior mean and standard deviation are used, and draws are matrix
exponentials, so that an eigenvalue near nothing widens the intervals as it should.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import pbdv

__all__ = ["Hessian", "Slope", "combined"]

Array = NDArray[np.float64]
PRIOR = 0.3     # standard deviation of a diagonal entry of W around 1
OFF = 0.3       # over sqrt(d): of one off the diagonal around 0
LARGEST = 0.5   # its largest standard deviation: |W_ab| < 1 for a positive definite W with a unit diagonal
FLATNESS = 0.6  # of the prior of an eigenvalue: 1 is flat, 0 scale-free
FAR = 15.0
LEAST = 1e-9    # of the largest eigenvalue: eigenvalues are not below it


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
    """Posterior of H = B W B' with independent normal entries of the symmetric W.

    Attributes
    ----------
    basis : (d, d)
        B.
    mean, sd : (d, d)
        Of W, symmetric.
    """

    basis: Array
    mean: Array
    sd: Array

    @property
    def matrix(self) -> Array:
        """The estimate, positive definite."""
        root = self._root
        return np.asarray(root @ root.T)

    @property
    def _root(self) -> Array:
        """R (d, d) with R R' the estimate: B times the symmetric root of the mean, its eigenvalues' signs taken off."""
        values, vectors = np.linalg.eigh(self.mean)
        values = np.abs(values)
        values = np.maximum(values, LEAST * values.max())
        return np.asarray(self.basis @ (vectors * np.sqrt(values)) @ vectors.T)

    def along(self, vectors: Array) -> Array:
        """Standard deviations of v_a' H v_a, v_a the columns of ``vectors``."""
        square = (self.basis.T @ vectors) ** 2
        pairs = np.where(np.eye(len(self.mean), dtype=bool), 1.0, 2.0) * self.sd**2
        return np.asarray(np.sqrt(np.einsum("aj,ab,bj->j", square, pairs, square)))

    def draw(self, size: int, rng: np.random.Generator) -> Array:
        """(size, d, d) draws, positive definite: R exp(G) R' with R R' the estimate and G normal."""
        d = len(self.mean)
        normal = np.triu(rng.standard_normal((size, d, d)))
        normal = normal + np.triu(normal, 1).transpose(0, 2, 1)
        scale = np.sqrt(np.diag(self.mean))
        values, vectors = np.linalg.eigh(self.sd / np.outer(scale, scale) * normal)
        inner = (vectors * np.exp(values)[:, None, :]) @ vectors.transpose(0, 2, 1)
        root = self._root
        return np.asarray(root @ inner @ root.T)


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


def combined(own: Slope, others: Sequence[Slope]) -> Hessian:
    """Posterior of the matrix that ``own`` estimates, given the shape that ``others`` agree on.

    The others are (m, m) or larger: they speak of the first m coordinates, m <= d (a scale comes after them).
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
    along = own.along(vectors)
    if m:
        diagonal = np.einsum("ij,ik,kj->j", vectors, own.matrix, vectors)[:m] / values[:m]
        values[:m] *= _level(diagonal, along[:m] / values[:m] ** 2, PRIOR**2 + np.diag(uncertain)[:m])
    values = np.maximum(values, LEAST * values.max())
    whiten = vectors / np.sqrt(values)
    measured = whiten.T @ own.matrix @ whiten
    variance = np.add.outer(along, along) / np.outer(values, values) / 4.0
    prior = np.minimum(OFF**2 / d + uncertain, LARGEST**2)
    here = np.diag_indices(d)
    variance[here], prior[here] = along / values**2, PRIOR**2 + np.diag(uncertain)
    precision = 1.0 / variance + 1.0 / prior
    mean = (measured / variance + np.eye(d) / prior) / precision
    sd = precision**-0.5
    mean[here], sd[here] = positive_mean(np.diag(mean), np.diag(sd))
    return Hessian(vectors * np.sqrt(values), (mean + mean.T) / 2.0, sd)


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


def _level(diagonal: Array, variance: Array, relative: Array) -> float:
    """f of H = f E: weighted mean of ``diagonal`` with variances ``variance`` + f^2 ``relative``."""
    level = max(float(diagonal.mean()), float(np.sqrt(variance.min())))
    for _ in range(20):
        weight = 1.0 / (variance + level**2 * relative)
        level = max(float(weight @ diagonal / weight.sum()), float(weight.sum() ** -0.5))
    return level
