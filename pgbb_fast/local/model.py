"""The noise-aware posterior: what the releases say, given that the privacy noise's law is known.

Near the optimum theta_0 a release is g = H (theta - theta_0) - sum_s (u_s - 1/S) h_s + noise (docs/refinement.md).
Least squares over the releases gives H and theta_0 with an error of known covariance, the privacy part.  The sampling
part is v H^-1 M H^-1, M the second moment of the scores and v known.  M comes from its own release where the budget has
a share for it; else from the spread of the block scores and from the minibatch part of the residuals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.local.curvature import Hessian, Slope
from pgbb_fast.local.exploration import known_hessian, release_variance
from pgbb_fast.local.prior import Prior
from pgbb_fast.local.statistics import Fit, ReleaseStatistics
from pgbb_fast.release.blocked import Problem

__all__ = [
    "LocalPosterior",
    "Scores",
    "estimated_moment",
    "estimated_response",
    "local_posteriors",
    "score_moment",
    "scores_posterior",
]

Array = NDArray[np.float64]
BURN = 0.1  # share of the run before which releases are not used for the slope
SETTLED = 0.2  # nor for the location
NEAR = 0.5  # segments whose centre is farther than so many residual scales in x'theta are not used
ROOTS = 500  # draws of M: its law is estimated, and roots of large matrices take time
HEAPED = 0.1  # share of the records within a bandwidth, f h, from which the bias of smoothing may be all of h
PRIOR = 0.5  # relative standard deviation of M around the shape of H


@dataclass(frozen=True)
class LocalPosterior:
    """theta_0 and H of one rule, in unit coordinates.

    Attributes
    ----------
    centre, gradient : (d,)
        As in :class:`~pgbb_fast.local.statistics.Fit`.
    hessian : Hessian
        Posterior of H.
    omega : (d, d)
        Covariance of one release's noise.
    count : float
        Releases that the fit rests on.
    drift : float
        Distance of theta_0 between the two halves of the releases used, in its standard errors (root mean square over
        coordinates; about 1.4 without drift).
    smoothing : float
        Bandwidth h of a smoothed quantile loss, else 0.
    public : (d, d) array, optional
        What is added to H: slope of a public part of the gradient.
    mapping : (d, d) array, optional
        The model's coordinates v are mapped ones, theta = mapping' v; by default they are those of theta.
    lost : bool
        Whether the search says itself that it has not arrived.
    """

    centre: Array
    gradient: Array
    hessian: Hessian
    omega: Array
    count: float
    drift: float
    smoothing: float = 0.0
    public: Array | None = None
    mapping: Array | None = None
    lost: bool = False

    @property
    def matrix(self) -> Array:
        """H with the public part, in the model's coordinates."""
        return self.hessian.matrix if self.public is None else self.hessian.matrix + self.public

    @property
    def heaped(self) -> float:
        """f h: about the share of the records' mass within a bandwidth of the fit."""
        return float(np.diag(self.hessian.matrix).max()) * self.smoothing

    @property
    def condition(self) -> float:
        """Largest over smallest eigenvalue of H."""
        values = np.linalg.eigvalsh(self.hessian.matrix)
        return float(values[-1] / values[0])

    @property
    def certainty(self) -> float:
        """Least eigenvalue of H over its standard error."""
        values, vectors = np.linalg.eigh(self.hessian.matrix)
        return float((values / np.maximum(self.hessian.along(vectors), 1e-300)).min())

    def draw(
        self,
        size: int,
        rng: np.random.Generator,
        prior: Prior,
        score: Array,
        moment: Array,
        error: Array | None = None,
    ) -> tuple[Array, Array]:
        """Draws of theta_0 from its posterior given the releases, and of the target's sampling deviation from it.

        H is drawn from its posterior.  Given H, the gradient at the centre is H (centre - theta) plus normal noise of
        known covariance; theta has a normal prior, by default as wide as the public box.  A direction in which H may be
        next to nothing keeps the prior; elsewhere the prior is forgotten.  (Joint draws of prior and noise, moved by
        the gain: the conditional law of a normal vector.)

        A smoothed loss's target is the quantile of y + h e, e the kernel's variable.  With a density that is smooth
        over h the two quantiles differ by about h (f h) z / 2 phi(z), z = Phi^-1(tau); where a heap of the responses
        covers the level, by h times a normal number, if the level may be anywhere in the heap's jump.  Both are allowed
        for by a normal deviation of h min(1, f h / ``HEAPED``) in each coordinate, next to nothing for data without
        heaps.

        Parameters
        ----------
        prior : Prior
            Of theta.
        score : (size, d) array
            Draws of the mean score's sampling error, with covariance ``moment`` (d, d), in the model's coordinates.
        error : (size, d) array, optional
            Standard normal numbers for the releases' noise: those of several rules may be correlated.

        Returns
        -------
        location, deviation : (size, d) arrays
            In the coordinates of theta.
        """
        d = len(self.centre)
        hessian = self.hessian.draw(size, rng)
        f = np.einsum("mii->mi", hessian).max(axis=1, keepdims=True)  # E x_j^2 <= 1, and 1 for the intercept
        if self.public is not None:
            hessian = hessian + self.public
        mean, root = prior.mean, prior.root
        if self.mapping is not None:
            mean, root = (np.asarray(np.linalg.solve(self.mapping.T, part), np.float64) for part in (mean, root))
        drawn = mean + rng.standard_normal((size, d)) @ root.T
        error = rng.standard_normal((size, d)) if error is None else error
        error = error @ np.linalg.cholesky(self.omega).T / math.sqrt(self.count)
        gain = _gain(hessian, root @ root.T, self.omega / self.count + moment)
        surprise = np.einsum("mij,mj->mi", hessian, self.centre - drawn) - self.gradient + error
        location = drawn + np.einsum("mij,mj->mi", gain, surprise)
        deviation = np.einsum("mij,mj->mi", gain, score)
        if self.mapping is not None:
            location, deviation = location @ self.mapping, deviation @ self.mapping
        if self.smoothing > 0.0:
            share = np.minimum(1.0, f * self.smoothing / HEAPED)
            deviation = deviation + self.smoothing * share * rng.standard_normal((size, d))
        return location, deviation

    def location(self, box: Array) -> Array:
        """Estimate of theta_0, with H at its estimate."""
        prior = Prior.of_box(box)
        hessian = self.hessian.matrix
        gain = _gain(hessian[None], prior.root @ prior.root.T, self.omega / self.count)[0]
        return np.asarray(prior.mean + gain @ (hessian @ (self.centre - prior.mean) - self.gradient))


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

    def draw(self, size: int, rng: np.random.Generator) -> Array:
        """(size, L d) draws R z of a stacked score, z normal, with at most ``ROOTS`` different R."""
        roots = self.draw_roots(min(size, ROOTS), rng)
        scores = rng.standard_normal((size, len(self.mean)))
        for start, root in enumerate(roots):
            scores[start :: len(roots)] = scores[start :: len(roots)] @ root.T
        return scores


def _root(matrix: Array) -> Array:
    """Square roots of the projections of symmetric matrices to the positive semidefinite cone."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :])


def _gain(hessian: Array, prior: Array, noise: Array) -> Array:
    """S H (H S H + noise)^-1 for H (m, d, d) and the prior's covariance S: regression of theta on H theta + noise."""
    left = hessian @ prior
    return np.asarray(np.linalg.solve(left @ hessian + noise, left).transpose(0, 2, 1))


def _used(statistics: ReleaseStatistics, problem: Problem, rule: int) -> tuple[Array, Array]:
    """Weights 0 and 1 of the segments for the slope and for the location: past the search, and near where it ended."""
    counts = statistics.counts(rule)
    share = np.arange(len(counts)) / len(counts)
    weight, location = (((share >= since) & (counts > 0)).astype(np.float64) for since in (BURN, SETTLED))
    location *= ~statistics.wide[rule]
    fit = statistics.fit(rule, weight, location=location)
    variance = release_variance(fit, problem)
    design = bool(statistics.design)
    hessian = known_hessian(fit, variance, statistics.design, problem.loss, rule, design=design).matrix
    end = fit.centre - np.linalg.solve(hessian, fit.gradient)
    density = float(hessian[0, 0]) if problem.intercept else float(np.trace(hessian) / len(hessian))
    away = np.nan_to_num(statistics.centres(rule)) - end
    # |x'(c - theta_0)|^2 averages away' H away / f, over the residual scale density(rule) / f
    square = np.maximum(0.0, np.einsum("si,ij,sj->s", away, hessian, away))
    density = max(density, 1e-12)
    distance = np.sqrt(square / density) / problem.loss.range_of_quadratic(rule, density)
    near = distance < NEAR
    if (near * location).sum() < 0.25 * location.sum():
        return weight, location
    return weight * near, location * near


def local_posteriors(
    statistics: ReleaseStatistics, problem: Problem, moment: Array | None = None
) -> list[LocalPosterior]:
    """Posterior of theta_0 and H of every rule.

    ``moment`` (L d, L d), M if known, adds the minibatch part to the noise.
    """
    d, rules = statistics.d, range(len(problem.loss.rules))
    used = [_used(statistics, problem, rule) for rule in rules]
    fits = [statistics.fit(rule, weight, location=location) for rule, (weight, location) in enumerate(used)]
    omegas = [problem.noise**2 * np.eye(d) for _ in rules]
    if moment is not None:
        for rule, fit in enumerate(fits):
            here = slice(rule * d, (rule + 1) * d)
            root = _root(moment[None, here, here])[0]
            omegas[rule] += problem.minibatch_factor * (root @ root.T + _left_out(problem, fit))
    noises = [float(np.trace(omega)) / d for omega in omegas]
    slopes = [Slope(fit.hessian, fit.spread, noise) for fit, noise in zip(fits, noises, strict=True)]
    found = []
    for rule, fit in enumerate(fits):
        others = [*statistics.design, *slopes[:rule], *slopes[rule + 1 :]]
        hessian = known_hessian(fit, noises[rule], others, problem.loss, rule, design=bool(statistics.design))
        drift = _drift(statistics, rule, used[rule][1], hessian.matrix, omegas[rule])
        smoothing = problem.loss.bandwidth(rule)
        found.append(LocalPosterior(fit.centre, fit.gradient, hessian, omegas[rule], fit.count, drift, smoothing))
    return found


def _left_out(problem: Problem, fit: Fit) -> Array:
    """What the second moment of the released part has beyond M: for an additive loss, theta - x, the release has -x,
    whose mean is -theta_0; else nothing, since scores average zero at theta_0."""
    if not problem.loss.additive:
        return np.zeros_like(fit.hessian)
    zero = fit.centre - fit.gradient
    return np.outer(zero, zero)


def _drift(statistics: ReleaseStatistics, rule: int, weight: Array, hessian: Array, omega: Array) -> float:
    """Distance of theta_0 between the halves of the run, in standard errors, root mean square over directions."""
    used = np.flatnonzero(weight)
    if len(used) < 4:
        return math.nan
    values, vectors = np.linalg.eigh(hessian)
    halves, variance = [], np.zeros(len(values))
    for part in (used[: len(used) // 2], used[len(used) // 2 :]):
        half = np.zeros(len(weight))
        half[part] = 1.0
        fit: Fit = statistics.fit(rule, half, location=half)
        halves.append(vectors.T @ fit.centre - (vectors.T @ fit.gradient) / values)
        variance += np.einsum("ij,ik,kj->j", vectors, omega, vectors) / values**2 / fit.count
    return float(np.sqrt(np.mean((halves[1] - halves[0]) ** 2 / variance)))


def estimated_response(statistics: ReleaseStatistics, problem: Problem, rule: int, local: LocalPosterior) -> Array:
    """B (d, S) with theta*(u) = theta_0 + B (u - 1/S): H^-1 h_s for each block (docs/refinement.md), noise and all."""
    weight, location = _used(statistics, problem, rule)
    fit = statistics.fit(rule, weight, location=location, with_scores=True)
    return np.asarray(np.linalg.solve(local.hessian.matrix, fit.scores.T))


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
    noise : (L, L) array
        Standard deviation of a diagonal entry of each block (off the diagonal of the whole: over sqrt(2)); inf where
        a block was not measured.
    """
    L, d = len(local), len(local[0].centre)
    values, vectors = np.linalg.eigh(np.stack([part.hessian.matrix for part in local]))
    basis, whiten = np.zeros((L * d, L * d)), np.zeros((L * d, L * d))
    scale = np.empty(L * d)
    for j in range(L):
        here = slice(j * d, (j + 1) * d)
        basis[here, here] = vectors[j] * np.sqrt(values[j])
        whiten[here, here] = (vectors[j] / np.sqrt(values[j])).T
        scale[here] = np.sqrt(values[j])
    measured = whiten @ moment @ whiten.T
    off = np.where(np.eye(L * d, dtype=bool), 1.0, math.sqrt(0.5))
    measured_sd = np.kron(noise, np.ones((d, d))) / np.outer(scale, scale) * off
    level = np.empty(L)
    for j in range(L):
        diagonal, sd = (np.diag(a)[j * d : (j + 1) * d] for a in (measured, measured_sd))
        level[j] = max(float(diagonal.mean()), float(sd.min()))
        for _ in range(20):
            weight = 1.0 / (sd**2 + (PRIOR * level[j]) ** 2)
            level[j] = max(float(weight @ diagonal / weight.sum()), 0.5 * float(weight.sum() ** -0.5))
    rho = problem.loss.score_correlation()
    levels = np.sqrt(np.outer(level, level))
    prior = np.kron(rho * levels, np.eye(d))
    prior_sd = PRIOR * np.kron(levels, np.ones((d, d)))
    precision = 1.0 / prior_sd**2 + 1.0 / measured_sd**2
    mean = (prior / prior_sd**2 + measured / measured_sd**2) / precision
    return Scores(basis, mean, precision**-0.5)


def estimated_moment(statistics: ReleaseStatistics, problem: Problem) -> tuple[Array, Array]:
    """A measurement of M without a release of its own: blocks of :func:`score_moment`, nothing between rules."""
    parts = [score_moment(statistics, problem, number) for number in range(len(problem.loss.rules))]
    L, d = len(parts), statistics.d
    moment = np.zeros((L * d, L * d))
    for j, (block, _) in enumerate(parts):
        moment[j * d : (j + 1) * d, j * d : (j + 1) * d] = block
    noise = np.full((L, L), np.inf)
    noise[np.diag_indices(L)] = [error for _, error in parts]
    return moment, noise


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
    if c > 0.0:
        level = max(float(np.trace(by_residual)), 1e-3 * residual_noise / math.sqrt(max(used, 1.0)))
    else:  # every record in every minibatch: the blocks alone tell
        level = max(float(np.trace(by_blocks)), 1e-3 * float(np.trace(score_noise)))
    for _ in range(20):  # the blocks' weight depends on the level itself
        information[1] = (S - 1.0) / (level + float(np.trace(score_noise))) ** 2
        share = information / information.sum()
        found = share[0] * float(np.trace(by_residual)) + share[1] * float(np.trace(by_blocks))
        level = max(found, 1.0 / math.sqrt(float(information.sum())))
    moment = share[0] * by_residual + share[1] * by_blocks
    # the information is about the trace, a sum of d diagonal entries
    return np.asarray((moment + moment.T) / 2.0), 1.0 / math.sqrt(float(information.sum()) * d)
