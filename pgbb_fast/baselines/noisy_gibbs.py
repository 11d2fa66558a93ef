"""NoisyGibbs: perturbed sufficient statistics, and a Gibbs sampler that treats the exact ones as latent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pgbb_fast import validation as check
from pgbb_fast.accountant import SubsampledGaussian
from pgbb_fast.baselines.fitted import Fitted
from pgbb_fast.budget import Budget
from pgbb_fast.budget.baseline import BaselineReport, calibrated
from pgbb_fast.budget.report import ADJACENCY, require_noise
from pgbb_fast.coordinates import AffineMap
from pgbb_fast.errors import DomainError
from pgbb_fast.intake.design import Bounds, Design, given_bounds, interval, pairs
from pgbb_fast.intake.records import (
    features,
    given_names,
    require_finite,
    require_host,
    require_records,
    target,
)
from pgbb_fast.kernels.arguments import Records, as_double
from pgbb_fast.kernels.cpu.gibbs import gibbs
from pgbb_fast.kernels.reference.gibbs import normals_needed, statistics_of
from pgbb_fast.losses import mean
from pgbb_fast.posteriors.sampled import SampledPosterior
from pgbb_fast.release.blocked import Keys, Problem, release_moment, release_step
from pgbb_fast.silence import unseen

__all__ = ["NoisyGibbsMean", "NoisyGibbsRegressor"]

Array = NDArray[np.float64]
EVERY = 2**32
KEPT = 10_000
CHUNK = 4_000
PRIOR = 1e-2        # Psi = PRIOR I in unit coordinates, where n A is of order n
FLOOR = 1e-4        # least eigenvalue of the covariance from which the sampler starts
FAMILIES = ("normal", "exponential")


class _NoisyGibbs(Fitted):
    """What the samplers share: budget, settings, the calibrated release."""

    _who = "NoisyGibbs"
    _what: ClassVar[str] = "noisy first and second moments"

    def __init__(self, *, epsilon: float, delta: float, iterations: int, seed: int | None) -> None:
        self.epsilon = check.positive(self._who, "epsilon", epsilon)
        self.delta = check.between(self._who, "delta", delta, 0.0, 1.0)
        self.iterations = check.integer(self._who, "iterations", iterations, 100)
        self.seed = None if seed is None else check.integer(self._who, "seed", seed, 0)

    def __repr__(self) -> str:
        seed = "" if self.seed is None else ", undone by its seed"
        return f"{self._who}(epsilon={self.epsilon:g}, delta={self.delta:g}{seed}, {self._state()})"

    def plan(self, n: int) -> BaselineReport:
        """What ``fit`` on n records will spend and with which noise; touches no record and spends nothing."""
        check.integer(self._who, "n", n, 1)
        plain = SubsampledGaussian(sampling_rate=1.0, steps=1, adjacency=ADJACENCY)
        mechanism, spent = calibrated(plain, budget_epsilon=self.epsilon, budget_delta=self.delta)
        require_noise(self._who, n, mechanism.noise_multiplier or 0.0)
        budget, seeded = self.epsilon, self.seed is not None
        return BaselineReport(spent, self.delta, n, mechanism, self._what, budget=budget, undone_by_seed=seeded)

    def _normal_chain(self, moment: Array, noise: float, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Kept means (m, k) and covariances (m, k, k), the second half of the chain, thinned."""
        k = len(moment) - 1
        sd = noise * statistics_of(np.where(np.eye(k + 1, dtype=bool), 1.0, np.sqrt(0.5)))
        noisy = statistics_of(moment)
        state, prior = statistics_of(_possible(moment)), PRIOR * np.eye(k)
        degrees = (k + 1.0) + n - 1.0 - np.arange(k)
        burn = self.iterations // 2
        thin = max(1, -(-(self.iterations - burn) // KEPT))
        kept, done = [], 0
        while done < self.iterations:
            size = min(CHUNK, self.iterations - done)
            out = np.empty((size, k + k * k))
            chis = np.sqrt(rng.chisquare(degrees, (size, k)))
            normals = rng.standard_normal((size, normals_needed(k)))
            state = gibbs(state, noisy, sd, n, prior, normals, chis, out)
            numbers = np.arange(done, done + size)
            kept.append(out[(numbers >= burn) & ((numbers - burn) % thin == 0)])
            done += size
        every = np.concatenate(kept)
        return every[:, :k], every[:, k:].reshape(-1, k, k)


def _possible(moment: Array) -> Array:
    """The nearest thing to ``moment`` = E[v v'] with v = (1, x) whose covariance is positive definite."""
    first = np.clip(moment[0, 1:], -1.0, 1.0)
    values, vectors = np.linalg.eigh(moment[1:, 1:] - np.outer(first, first))
    covariance = (vectors * np.maximum(values, FLOOR)) @ vectors.T
    full = np.empty_like(moment)
    full[0, 0], full[0, 1:], full[1:, 0] = 1.0, first, first
    full[1:, 1:] = covariance + np.outer(first, first)
    return full


def _problem(unit: NDArray[np.float32], report: BaselineReport, clip: float, *, moment: bool) -> Problem:
    """The release of the mean (a whole batch at theta = 0) or of the second moment, of the rows of ``unit``."""
    multiplier = report.mechanism.noise_multiplier
    assert multiplier is not None
    n = len(unit)
    return Problem(
        records=Records(unit, np.zeros(0, dtype=np.float32), np.zeros(n, dtype=np.uint8)),
        loss=mean(),
        intercept=False,
        n_blocks=1,
        block_size=n,
        gamma=1.0,
        clip=clip,
        sampling_threshold=EVERY,
        noise_multiplier=multiplier,
        draws_per_step=1,
        steps=1,
        moment_multiplier=multiplier if moment else None,
    )


def _moments(unit: NDArray[np.float32], report: BaselineReport, keys: Keys) -> tuple[Array, float]:
    """Noisy E[v v'], v = (1, x) with x in [-1, 1]^k, and the noise's standard deviation on the diagonal."""
    v = np.ascontiguousarray(np.column_stack([np.ones(len(unit), dtype=np.float32), unit]))
    size = v.shape[1]
    moment, noise = release_moment(_problem(v, report, float(np.sqrt(size)), moment=True), keys, np.zeros((1, size)))
    return moment, float(noise[0, 0])


class NoisyGibbsRegressor(_NoisyGibbs):
    """Bayesian linear regression of y on X from noisy second moments.

    Bernstein and Sheldon (2019, NeurIPS 32), "Differentially private Bayesian linear regression", with a normal prior
    of the features updated along (their Gibbs-SS-Update): (x, y) is jointly normal, so the sampler is that of Bernstein
    and Sheldon (2018, NeurIPS 31) for the multivariate normal family with an inverse Wishart prior.  Gaussian noise in
    place of their Laplace noise, replace-one adjacency.  It estimates the conditional *mean*, under a Gaussian
    likelihood, from y clipped to its bounds.

    Parameters
    ----------
    x_bounds, y_bounds, feature_names
        As for :class:`~pgbb_fast.estimators.regression.PrivateRegressor`; the model has an intercept.
    epsilon, delta, seed
        Likewise.
    iterations : int
        Of the Gibbs sampler; the second half is kept, thinned to at most 10,000.  Costs no budget.
    """

    _who = "NoisyGibbsRegressor"

    def __init__(
        self,
        *,
        x_bounds: Bounds,
        y_bounds: tuple[float, float],
        epsilon: float,
        delta: float,
        iterations: int = 400_000,
        feature_names: Sequence[str] | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(epsilon=epsilon, delta=delta, iterations=iterations, seed=seed)
        self.x_bounds = given_bounds(self._who, "x_bounds", x_bounds)
        self.y_bounds = interval(self._who, "y_bounds", y_bounds)
        self.feature_names = given_names(self._who, "feature_names", feature_names)

    @unseen()
    def fit(self, X: Any, y: Any, *, budget: Budget | None = None) -> Self:
        """Spend the budget on the records and run the sampler; errors as for the other regressors."""
        who = self._who
        require_host(who, X=X, y=y)
        array, names = features(who, X, len(self.x_bounds), self.feature_names)
        response = target(who, y, len(array), X)
        n, p = array.shape
        design = Design(names, pairs(who, "x_bounds", self.x_bounds, names), self.y_bounds, True, (1,) * p)
        require_records(who, n, 3)
        report, keys = self.plan(n), Keys.fresh(self.seed)
        self._afford(report, budget)
        require_finite(who, X=array, y=response)
        unit = np.column_stack([design.unit_features(array), design.unit_target(response)])
        report = self._start(report, budget)
        moment, noise = _moments(unit, report, keys)
        means, covariances = self._normal_chain(moment, noise, n, np.random.default_rng(keys.weights))
        slopes = np.linalg.solve(covariances[:, :p, :p], covariances[:, :p, p:])[:, :, 0]
        intercepts = means[:, p] - np.einsum("ij,ij->i", slopes, means[:, :p])
        posterior = SampledPosterior(
            np.column_stack([intercepts, slopes])[:, None, :],
            rules=(),
            to_natural=design.to_natural(False),
            names=design.theta_names(False),
            privacy=report,
        )
        self._finish(report, _posterior=posterior)
        return self


class NoisyGibbsMean(_NoisyGibbs):
    """The mean of each column under a conjugate exponential family, from noisy sufficient statistics.

    Bernstein and Sheldon (2018, NeurIPS 31), "Differentially private Bayesian inference for exponential families".

    Parameters
    ----------
    x_bounds : sequence or mapping of (low, high)
        Public bounds of each column; outside values count as the nearest bound.
    family : {"normal", "exponential"}
        Multivariate normal with unknown mean and covariance (first and second moments are released); or one
        exponential column with bounds from 0 on (its mean is released).
    epsilon, delta, iterations, feature_names, seed
        As for :class:`NoisyGibbsRegressor`.
    """

    _who = "NoisyGibbsMean"

    def __init__(
        self,
        *,
        x_bounds: Bounds,
        epsilon: float,
        delta: float,
        family: str = "normal",
        iterations: int = 100_000,
        feature_names: Sequence[str] | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(epsilon=epsilon, delta=delta, iterations=iterations, seed=seed)
        self.x_bounds = given_bounds(self._who, "x_bounds", x_bounds)
        self.family = check.one_of(self._who, "family", family, FAMILIES)
        self.feature_names = given_names(self._who, "feature_names", feature_names)

    @unseen()
    def fit(self, X: Any, y: None = None, *, budget: Budget | None = None) -> Self:
        """Spend the budget on the (n, d) records and run the sampler; ``y`` is ignored."""
        who = self._who
        require_host(who, X=X)
        array, names = features(who, X, len(self.x_bounds), self.feature_names)
        n, d = array.shape
        bounds = pairs(who, "x_bounds", self.x_bounds, names)
        if self.family == "exponential" and (d != 1 or bounds[0, 0] != 0.0):
            raise DomainError(f"{who}: the exponential family takes one column with bounds (0, high)")
        require_records(who, n, 3)
        report, keys = self.plan(n), Keys.fresh(self.seed)
        self._afford(report, budget)
        rng = np.random.default_rng(keys.weights)
        require_finite(who, X=array)
        centre, radius = bounds.mean(axis=1), (bounds[:, 1] - bounds[:, 0]) / 2
        inside = np.clip(as_double(array), bounds[:, 0], bounds[:, 1])
        unit = ((inside - centre) / radius).astype(np.float32)
        run: Callable[..., Array] = self._exponential if self.family == "exponential" else self._normal
        report = self._start(report, budget)
        posterior = SampledPosterior(
            run(unit, report, keys, rng)[:, None, :],
            rules=(),
            to_natural=AffineMap(np.diag(radius), centre),
            names=names,
            privacy=report,
        )
        self._finish(report, _posterior=posterior)
        return self

    def _normal(
        self, unit: NDArray[np.float32], report: BaselineReport, keys: Keys, rng: np.random.Generator
    ) -> Array:
        moment, noise = _moments(unit, report, keys)
        return self._normal_chain(moment, noise, len(unit), rng)[0]

    def _exponential(
        self, unit: NDArray[np.float32], report: BaselineReport, keys: Keys, rng: np.random.Generator
    ) -> Array:
        """theta | s ~ InverseGamma(n + 1, n s), s | theta ~ N(theta, theta^2 / n) given the noisy mean, restricted to
        s > 0; over independent chains.  Units of half the range: x in [0, 2], unit coordinates are x - 1."""
        n = len(unit)
        problem = _problem(unit, report, 1.0, moment=False)
        zero, weights, rule = np.zeros((1, 1)), np.array([[1.0, 0.0]]), np.zeros(1, dtype=np.int64)
        noisy = 1.0 - float(release_step(problem, keys, 0, zero, weights, rule)[0, 0])
        chains = 500
        s = np.full(chains, max(noisy, 1.0 / n))
        kept = []
        for step in range(self.iterations // chains):
            theta = n * s / rng.gamma(n + 1.0, size=chains)
            variance = theta**2 / n
            share = variance / (variance + problem.noise**2)
            new = theta + share * (noisy - theta) + np.sqrt(share) * problem.noise * rng.standard_normal(chains)
            s = np.where(new > 0.0, new, s)
            if step >= self.iterations // chains // 2:
                kept.append(theta)
        return np.concatenate(kept)[-KEPT:, None] - 1.0
