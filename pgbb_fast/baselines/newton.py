"""Noisy Newton steps and a private sandwich: intervals of an M-estimator without a bootstrap."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pgbb_fast import validation as check
from pgbb_fast.accountant import SubsampledGaussian
from pgbb_fast.baselines.target import ModelBaseline, Target, target_of, whole_batch
from pgbb_fast.budget import Budget
from pgbb_fast.budget.baseline import BaselineReport, calibrated, share_multiplier
from pgbb_fast.budget.report import ADJACENCY, require_clip, require_noise
from pgbb_fast.errors import DomainError
from pgbb_fast.estimators.base import PrivateEstimator
from pgbb_fast.estimators.location import PrivateMean
from pgbb_fast.losses import Loss
from pgbb_fast.release.blocked import Keys, Problem, release_moment, release_step
from pgbb_fast.release.hessian import release_curvature
from pgbb_fast.silence import unseen

__all__ = ["NoisyNewton"]

Array = NDArray[np.float64]
FINAL_GRADIENT, FINAL_HESSIAN, MOMENT = 0.55, 0.2, 0.05     # shares of mu^2; the rest goes to the steps before
EARLY = 0.1         # share of the steps before, where curvatures are public
WIDEST = 0.5        # bandwidth of a smoothed quantile at the first step, in unit coordinates
DRAWS = 10_000
MIN_STEPS = 5
MAX_CURVATURE = 1e100
JOINT_STEPS = 4     # coefficients and scale together; before, in turn


@dataclass(frozen=True)
class _Rule:
    """One rule of the target: its loss alone, its own clip, and |x|'s bound."""

    loss: Loss
    clip: float
    feature_bound: float

    def at_step(self, step: int, steps: int) -> Loss:
        """A smoothed quantile's bandwidth comes down by halves, so that every step sees records near its fit."""
        if not self.loss.is_quantile:
            return self.loss
        ((tau, h),) = self.loss.constants
        wide = max(h, WIDEST * 0.5**step) if step < steps - 2 else h
        return replace(self.loss, constants=((tau, wide),))


class NoisyNewton(ModelBaseline):
    """An M-estimator by noisy Newton steps, with a normal law from noisy sandwich terms.

    Avella-Medina, Bradshaw and Loh (2023, Annals of Statistics 51(5)), "Differentially private inference via noisy
    optimization": gradients and Hessians of the whole sample with Gaussian noise, the scores' second moment likewise,
    and a covariance H^-1 (M / n + sigma_g^2 I) H^-1 that counts the last gradient's noise.  Ours: one budget mu^2 is
    divided so that most goes to the last gradient, which alone decides the result's noise; a scale first follows its
    own fixed-point equation; a quantile's bandwidth comes down by halves.

    Where the noise of the Hessian hides the curvature in some direction (several levels, many or nearly collinear
    features, a small budget) its eigenvalue is lifted to twice the noise: steps stay finite, but the estimate then
    moves too little in that direction and the intervals are too narrow.

    Parameters
    ----------
    model : PrivateEstimator
        An unfitted estimator: its budget, loss, bounds and seed are used, its blocks and training are not.  The levels
        of a joint quantile regression each get an equal part of the budget.
    steps : int
        T, at least 5.
    """

    _who = "NoisyNewton"

    def __init__(self, model: PrivateEstimator, *, steps: int = 10) -> None:
        super().__init__(model)
        self.steps = check.integer(self._who, "steps", steps, MIN_STEPS, 1000)

    @property
    def _shares(self) -> tuple[float, ...]:
        """For each rule: T gradients, T Hessians (unless they are public, as for a mean), one moment."""
        before = self.steps - 1
        if isinstance(self.model, PrivateMean):
            one = [*[EARLY / before] * before, 1.0 - EARLY - MOMENT, MOMENT]
        else:
            first = [(1.0 - FINAL_GRADIENT - FINAL_HESSIAN - MOMENT) / (2 * before)] * before
            one = [*first, FINAL_GRADIENT, *first, FINAL_HESSIAN, MOMENT]
        return tuple(share / self.model._rules for _ in range(self.model._rules) for share in one)

    def plan(self, n: int) -> BaselineReport:
        """What ``fit`` on n records will spend and with which noise; touches no record and spends nothing."""
        check.integer(self._who, "n", n, 1)
        mechanism, spent = calibrated(
            SubsampledGaussian(sampling_rate=1.0, steps=1, adjacency=ADJACENCY),
            budget_epsilon=self.model.epsilon,
            budget_delta=self.model.delta,
        )
        return BaselineReport(
            spent,
            self.model.delta,
            n,
            mechanism,
            "noisy gradients, Hessians and score moments (Newton)",
            self._shares,
            budget=self.model.epsilon,
            undone_by_seed=self.model.seed is not None,
        )

    @unseen()
    def fit(self, X: Any, y: Any = None, *, budget: Budget | None = None) -> Self:
        """Spend the budget on the records and keep draws of the normal law; errors as for the estimator's."""
        target = target_of(self.model, X, y)
        report = self.plan(target.n)
        self._afford(report, budget)
        multipliers = (share_multiplier(report.mechanism, report.shares, i) for i in range(len(report.shares)))
        require_noise(self._who, target.n, *multipliers)
        require_clip(self._who, target.clip)
        self._require_bounds(target)
        problem = whole_batch(target, noise_multiplier=1.0)
        report, keys = self._start(report, budget), Keys.fresh(self.model.seed)
        rng = np.random.default_rng(keys.weights)
        draws = []
        for number in range(len(target.loss.rules)):
            location, covariance = self._rule(target, problem, report, keys, number)
            normal = rng.multivariate_normal(location, covariance, DRAWS, method="eigh", check_valid="ignore")
            draws.append(np.clip(normal, *target.box.T))
        self._finish(report, _posterior=target.posterior(np.stack(draws, axis=1), report))
        return self

    def _require_bounds(self, target: Target) -> None:
        """Refuse a bandwidth or a scale so small that a root has no bound in double precision; public numbers only."""
        least = target.box[:, 0]
        for number in range(len(target.loss.rules)):
            one = _single(target, number)
            if one.loss.known_hessian(least) is None:
                bound = one.loss.root_bound(one.feature_bound, least)
                if not 0.0 < bound < MAX_CURVATURE:
                    raise DomainError(f"{self._who}: the loss is too sharp, its curvature reaches {bound:.3g}")

    def _rule(
        self, target: Target, problem: Problem, report: BaselineReport, keys: Keys, number: int
    ) -> tuple[Array, Array]:
        """Location and covariance of one rule, unit coordinates."""
        T, loss = self.steps, target.loss
        one = _single(target, number)
        size = len(report.shares) // len(loss.rules)
        base = number * size        # of this rule's releases, in the shares and in the random stream

        def multiplier(release: int) -> float:
            return share_multiplier(report.mechanism, report.shares, base + release)

        theta, low, high = target.box.mean(axis=1), *target.box.T
        hessian, noise = np.eye(len(theta)), 0.0
        weights, rule = np.array([[1.0, 0.0]]), np.zeros(1, dtype=np.int64)
        for step in range(T):
            here = replace(
                problem, loss=one.at_step(step, T), clip=one.clip, noise_multiplier=multiplier(step), steps=1
            )
            gradient = release_step(here, keys, base + step, theta[None, :], weights, rule)[0]
            known = here.loss.known_hessian(theta)
            if known is None:
                noisy, error = release_curvature(
                    here, keys, base + T + step, theta, one.feature_bound, multiplier(T + step)
                )
                hessian = _positive(noisy, 2.0 * error)
            else:
                hessian = known
            noise = here.noise
            theta = np.clip(_moved(theta, gradient, hessian, loss, joint=step >= T - JOINT_STEPS), low, high)
        last = replace(
            problem, loss=one.loss, clip=one.clip, steps=base + size - 1, moment_multiplier=multiplier(size - 1)
        )
        moment, _ = release_moment(last, keys, theta[None, :])
        middle = _positive(moment, 0.0) / target.n + noise**2 * np.eye(len(theta))
        inverse = np.linalg.inv(hessian)
        return theta, inverse @ middle @ inverse


def _single(target: Target, number: int) -> _Rule:
    """Rule ``number`` alone; a lower or higher level's own bound is smaller than the joint one."""
    loss, joint = target.loss, target.loss.slope_bound
    one = loss.only(number)
    bound = 0.0 if math.isinf(joint) else math.sqrt(max(target.clip**2 - loss.scale_bound**2, 0.0)) / joint
    if not loss.is_quantile:
        return _Rule(one, target.clip, bound)
    tau = loss.rules[number]
    own = max(tau, 1.0 - tau)
    return _Rule(replace(one, slope_bound=own), target.clip * own / joint, bound)


def _positive(matrix: Array, floor: float) -> Array:
    """Symmetric ``matrix`` with eigenvalues no lower than ``floor``."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, floor)) @ vectors.T)


def _moved(theta: Array, gradient: Array, hessian: Array, loss: Loss, *, joint: bool) -> Array:
    """A Newton step; coefficients move by at most 1 (unit coordinates), a scale by at most a factor 2 (4 at first).

    Until the last steps a scale follows its own equation instead, E min(z^2, c^2) = kappa, whose left side the gradient
    tells (slope in s: (kappa - min(z^2, c^2)) / 2): s <- s sqrt(E min(z^2, c^2) / kappa) (Huber 1981, chapter 7.8).
    """
    if not loss.has_scale:
        step = np.linalg.solve(hessian, gradient)
        return np.asarray(theta - step / max(1.0, float(np.linalg.norm(step))))
    kappa, s = loss.constants[0][1], float(theta[-1])
    if joint:
        step = np.linalg.solve(hessian, gradient)
        scale = s - step[-1]
    else:
        step = np.append(np.linalg.solve(hessian[:-1, :-1], gradient[:-1]), 0.0)
        scale = s * math.sqrt(max(kappa - 2.0 * gradient[-1], 0.0) / kappa)
    out = theta - step / max(1.0, float(np.linalg.norm(step[:-1])))
    out[-1] = min(max(scale, s / (2.0 if joint else 4.0)), 2.0 * s)
    return np.asarray(out)
