"""The noise-aware posterior: what the releases say, given that the privacy noise's law is known.

Near the optimum theta_0 a release is g = H (theta - theta_0) - sum_s (u_s - 1/S) h_s + noise (refinement.md).  Least
squares over the releases gives H and theta_0 with an error of known covariance, the privacy part.  The sampling part
is v H^-1 M H^-1, M the second moment of the scores and v known.  M comes from its own release where the budget has
a share for it; else from the spread of the block scores and from the minibatch part of the residuals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.exploration import certain_eigenvalues
from pgbb_fast.releases import Problem
from pgbb_fast.statistics import Fit, ReleaseStatistics

__all__ = [
    "LocalPosterior",
    "Scores",
    "estimated_moment",
    "estimated_response",
    "local_posterior",
    "score_moment",
    "scores_posterior",
]

Array = NDArray[np.float64]
BURN = 0.1  # share of the run before which releases are not used for the slope
SETTLED = 0.3  # nor for the location
NEAR = 0.5  # segments whose centre is farther than so many residual scales in x'theta are not used
PRIOR = 0.5  # relative standard deviation of M around the shape of H
RELATIVE = 3.0  # draws of H stay within this factor of its estimate, in every direction


@dataclass(frozen=True)
class LocalPosterior:
    """theta_0 and H of one rule, in unit coordinates.

    Attributes
    ----------
    centre, gradient, hessian, spread, omega
        As in :class:`~pgbb_fast.statistics.Fit`; ``hessian`` with its eigenvalues raised to what is certain, ``omega``
        (d, d) the covariance of one release's noise.
    count : float
        Releases that the fit rests on.
    condition : float
        Largest over smallest eigenvalue of H.
    certainty : float
        Least eigenvalue of H over its standard error.
    drift : float
        Distance of theta_0 between the two halves of the releases used, in its standard errors (root mean square over
        coordinates; about 1.4 without drift).
    """

    centre: Array
    gradient: Array
    hessian: Array
    spread: Array
    omega: Array
    count: float
    condition: float
    certainty: float
    drift: float

    def draw(self, size: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draws of theta_0 (size, d) and of H^-1 (size, d, d) from their posterior (flat prior, known noise)."""
        d = len(self.centre)
        root = np.linalg.cholesky(self.omega)
        left = np.linalg.cholesky(self.spread)
        noise = left @ rng.standard_normal((size, d, d)) @ root.T
        hessian = self.hessian + (noise + noise.transpose(0, 2, 1)) / 2.0
        inverse = _bounded_inverse(hessian, self.hessian)
        gradient = self.gradient + rng.standard_normal((size, d)) @ root.T / math.sqrt(self.count)
        return self.centre - np.einsum("mij,mj->mi", inverse, gradient), inverse

    @property
    def location(self) -> Array:
        """Estimate of theta_0."""
        return np.asarray(self.centre - np.linalg.solve(self.hessian, self.gradient))

    @property
    def privacy_covariance(self) -> Array:
        """Covariance of theta_0 from the noise of the releases, H known."""
        inverse = np.linalg.inv(self.hessian)
        return np.asarray(inverse @ self.omega @ inverse / self.count)


@dataclass(frozen=True)
class Scores:
    """Posterior of M, the second moment of the stacked scores of all rules, (L d, L d).

    M = B W B' with independent normal entries of the symmetric W.

    Attributes
    ----------
    basis : (L d, L d) array
        B, block diagonal: square roots of the rules' Hessians.
    mean, sd : (L d, L d) arrays
        Of W, symmetric.
    """

    basis: Array
    mean: Array
    sd: Array

    @property
    def moment(self) -> Array:
        """Posterior mean of M, projected to be positive semidefinite."""
        root = self.basis @ _root(self.mean[None])[0]
        return np.asarray(root @ root.T)

    @property
    def freedom(self) -> float:
        """How well the variances are known, as degrees of freedom: 2 over the mean relative variance of diag W."""
        diagonal = np.maximum(np.diag(self.mean), np.diag(self.sd))
        return float(2.0 / np.mean((np.diag(self.sd) / diagonal) ** 2))

    def draw_roots(self, size: int, rng: np.random.Generator) -> Array:
        """Square roots R of draws of M, M = R R': (size, L d, L d)."""
        d = len(self.mean)
        normal = np.triu(rng.standard_normal((size, d, d)))
        normal = normal + np.triu(normal, 1).transpose(0, 2, 1)
        return np.asarray(self.basis @ _root(self.mean + self.sd * normal))


def _root(matrix: Array) -> Array:
    """Square roots of the projections of symmetric matrices to the positive semidefinite cone."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :])


def _bounded_inverse(hessian: Array, estimate: Array) -> Array:
    """Inverses of draws of H, each within a factor ``RELATIVE`` of the estimate in every direction."""
    root = np.linalg.cholesky(estimate)
    whiten = np.linalg.inv(root)
    values, vectors = np.linalg.eigh(whiten @ hessian @ whiten.T)
    values = np.clip(values, 1.0 / RELATIVE, RELATIVE)
    half = whiten.T @ vectors
    return np.asarray((half / values[:, None, :]) @ half.transpose(0, 2, 1))


def _used(statistics: ReleaseStatistics, problem: Problem, rule: int) -> tuple[Array, Array]:
    """Weights 0 and 1 of the segments for the slope and for the location: past the search, and near where it ended."""
    counts = statistics.counts(rule)
    share = np.arange(len(counts)) / len(counts)
    weight, location = (((share >= since) & (counts > 0)).astype(np.float64) for since in (BURN, SETTLED))
    fit = statistics.fit(rule, weight, location=location)
    values, vectors, _ = certain_eigenvalues(fit, problem.noise)
    hessian = (vectors * values) @ vectors.T
    end = fit.centre - vectors @ ((vectors.T @ fit.gradient) / values)
    density = float(hessian[0, 0]) if problem.intercept else float(np.trace(hessian) / len(hessian))
    away = np.nan_to_num(statistics.centres(rule)) - end
    # |x'(c - theta_0)|^2 averages away' H away / f, over the residual scale density(rule) / f
    square = np.maximum(0.0, np.einsum("si,ij,sj->s", away, hessian, away))
    distance = np.sqrt(square * max(density, 0.0)) / problem.loss.density(rule)
    near = distance < NEAR
    if (near * location).sum() < 0.25 * location.sum():
        return weight, location
    return weight * near, location * near


def local_posterior(statistics: ReleaseStatistics, problem: Problem, rule: int, moment: Array | None) -> LocalPosterior:
    """Posterior of theta_0 and H of one rule.  ``moment`` (d, d), M if known, adds the minibatch part to the noise."""
    weight, location = _used(statistics, problem, rule)
    fit = statistics.fit(rule, weight, location=location)
    values, vectors, error = certain_eigenvalues(fit, problem.noise)
    omega = problem.noise**2 * np.eye(statistics.d)
    if moment is not None:
        root = _root(moment[None])[0]
        omega = omega + problem.minibatch_factor * (root @ root.T + _left_out(problem, fit))
    return LocalPosterior(
        centre=fit.centre,
        gradient=fit.gradient,
        hessian=(vectors * values) @ vectors.T,
        spread=fit.spread,
        omega=omega,
        count=fit.count,
        condition=float(values.max() / values.min()),
        certainty=float((values / np.maximum(error, 1e-300)).min()),
        drift=_drift(statistics, rule, location, values, vectors, omega),
    )


def _left_out(problem: Problem, fit: Fit) -> Array:
    """What the second moment of the released part has beyond M: for an additive loss, theta - x, the release has -x,
    whose mean is -theta_0; else nothing, since scores average zero at theta_0."""
    if not problem.loss.additive:
        return np.zeros_like(fit.hessian)
    zero = fit.centre - fit.gradient
    return np.outer(zero, zero)


def _drift(
    statistics: ReleaseStatistics, rule: int, weight: Array, values: Array, vectors: Array, omega: Array
) -> float:
    """Distance of theta_0 between the halves of the run, in standard errors, root mean square over directions."""
    used = np.flatnonzero(weight)
    if len(used) < 4:
        return math.nan
    halves, variance = [], np.zeros(len(values))
    for part in (used[: len(used) // 2], used[len(used) // 2 :]):
        half = np.zeros(len(weight))
        half[part] = 1.0
        fit: Fit = statistics.fit(rule, half, location=half)
        halves.append(vectors.T @ fit.centre - (vectors.T @ fit.gradient) / values)
        variance += np.einsum("ij,ik,kj->j", vectors, omega, vectors) / values**2 / fit.count
    return float(np.sqrt(np.mean((halves[1] - halves[0]) ** 2 / variance)))


def estimated_response(statistics: ReleaseStatistics, problem: Problem, rule: int, local: LocalPosterior) -> Array:
    """B (d, S) with theta*(u) = theta_0 + B (u - 1/S): H^-1 h_s for each block (refinement.md), noise and all."""
    weight, location = _used(statistics, problem, rule)
    fit = statistics.fit(rule, weight, location=location, with_scores=True)
    return np.asarray(np.linalg.solve(local.hessian, fit.scores.T))


def scores_posterior(moment: Array, noise: Array, problem: Problem, local: Sequence[LocalPosterior]) -> Scores:
    """Posterior of M from a noisy measurement and a weak prior around the shape of H.

    In the basis B where H is the identity, the prior of an entry of W is normal around that of a correct model, c I
    (between rules with the correlation of their scores, :meth:`pgbb_fast.losses.Loss.score_correlation`), with relative
    standard deviation ``PRIOR``; c, one number for each rule, is estimated.  Where the measurement is good the prior
    is forgotten and the sandwich is M's own; where noise swamps a direction it keeps M from being all noise.

    Parameters
    ----------
    moment : (L d, L d) array
        Measurement of M, symmetric.
    noise : (L,) array
        Standard deviation of a diagonal entry of each rule's block (off-diagonal: over sqrt(2)).
    """
    L, d = len(local), len(local[0].centre)
    values, vectors = np.linalg.eigh(np.stack([part.hessian for part in local]))
    basis, whiten = np.zeros((L * d, L * d)), np.zeros((L * d, L * d))
    error = np.empty(L * d)
    for j in range(L):
        here = slice(j * d, (j + 1) * d)
        basis[here, here] = vectors[j] * np.sqrt(values[j])
        whiten[here, here] = (vectors[j] / np.sqrt(values[j])).T
        error[here] = math.sqrt(noise[j]) / np.sqrt(values[j])
    measured = whiten @ moment @ whiten.T
    measured_sd = np.outer(error, error) * np.where(np.eye(L * d, dtype=bool), 1.0, math.sqrt(0.5))
    level = np.empty(L)
    for j in range(L):
        diagonal, sd = (np.diag(a)[j * d : (j + 1) * d] for a in (measured, measured_sd))
        level[j] = max(float(diagonal.mean()), float(sd.min()))
        for _ in range(20):
            weight = 1.0 / (sd**2 + (PRIOR * level[j]) ** 2)
            level[j] = max(float(weight @ diagonal / weight.sum()), 0.5 * float(weight.sum() ** -0.5))
    rho = problem.loss.score_correlation()
    scale = np.sqrt(np.outer(level, level))
    prior = np.kron(rho * scale, np.eye(d))
    prior_sd = PRIOR * np.kron(scale, np.ones((d, d)))
    precision = 1.0 / prior_sd**2 + 1.0 / measured_sd**2
    mean = (prior / prior_sd**2 + measured / measured_sd**2) / precision
    return Scores(basis, mean, precision**-0.5)


def estimated_moment(statistics: ReleaseStatistics, problem: Problem) -> tuple[Array, Array]:
    """A measurement of M without a release of its own: blocks of :func:`score_moment`; between rules it says
    zero, as precisely as within, which draws differences between rules towards independence."""
    parts = [score_moment(statistics, problem, number) for number in range(len(problem.loss.rules))]
    L, d = len(parts), statistics.d
    moment = np.zeros((L * d, L * d))
    for j, (block, _) in enumerate(parts):
        moment[j * d : (j + 1) * d, j * d : (j + 1) * d] = block
    return moment, np.array([error for _, error in parts])


def score_moment(statistics: ReleaseStatistics, problem: Problem, rule: int) -> tuple[Array, float]:
    """M of one rule without a release of its own: (d, d), and the standard deviation of its diagonal entries.

    Two unbiased estimates, weighted by their information about the trace: the residuals' covariance less the known
    privacy noise, over the minibatch factor; and the spread of the S block scores less their noise,
    n_S / (S - 1) sum_s h_s h_s'.  Relative variances 2/R (omega / c m)^2 and 2/(S - 1) ((m + noise) / m)^2.
    """
    weight, location = _used(statistics, problem, rule)
    fit = statistics.fit(rule, weight, location=location, with_scores=True)
    used = float(weight @ statistics.counts(rule))
    d, S = statistics.d, statistics.n_blocks
    noise, c = problem.noise**2, problem.minibatch_factor
    by_residual = (fit.residual - noise * np.eye(d)) / c - _left_out(problem, fit) if c > 0.0 else np.zeros((d, d))
    score_noise = fit.scores_spread * fit.residual * problem.block_size
    by_blocks = problem.block_size * fit.scores.T @ fit.scores / (S - 1.0) - score_noise
    residual_noise = max(float(np.trace(fit.residual)), d * noise) / c if c > 0.0 else math.inf
    information = np.array([used / residual_noise**2, 0.0])
    level = max(float(np.trace(by_residual)), 1e-3 * residual_noise / math.sqrt(max(used, 1.0)))
    for _ in range(20):  # the blocks' weight depends on the level itself
        information[1] = (S - 1.0) / (level + float(np.trace(score_noise))) ** 2
        share = information / information.sum()
        found = share[0] * float(np.trace(by_residual)) + share[1] * float(np.trace(by_blocks))
        level = max(found, 1.0 / math.sqrt(float(information.sum())))
    moment = share[0] * by_residual + share[1] * by_blocks
    # the information is about the trace, a sum of d diagonal entries
    return np.asarray((moment + moment.T) / 2.0), 1.0 / math.sqrt(float(information.sum()) * d)
