"""Differentially private stochastic gradient Langevin dynamics on a Gibbs posterior."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pgbb_fast import validation as check
from pgbb_fast.accountant import SubsampledGaussian
from pgbb_fast.baselines.target import ModelBaseline, Target, target_of, whole_batch
from pgbb_fast.budget import Budget
from pgbb_fast.budget.baseline import BaselineReport, calibrated
from pgbb_fast.budget.report import ADJACENCY, require_clip, require_noise, sampling_threshold
from pgbb_fast.estimators.base import PrivateEstimator
from pgbb_fast.release.blocked import Keys, Problem, release_step
from pgbb_fast.silence import unseen

__all__ = ["DPSGLD"]

Array = NDArray[np.float64]
MAX_KEPT = 10_000
MIXING = 40.0       # least step_size * steps by default: in unit coordinates, curvatures are about 1 or more
MAX_STEP = 0.05


class DPSGLD(ModelBaseline):
    """Langevin dynamics on exp(-omega sum_i l(theta, x_i)) over theta's box, from noisy clipped minibatch gradients.

    With g the released mean gradient (unit coordinates) and h the step size,

        theta <- theta - h g + sqrt(v) xi,   v = 2 h / (omega n) - h^2 sigma_g^2 (0 where negative),

    so that privacy noise, whose standard deviation sigma_g is public, counts as part of the Langevin noise as far as it
    goes (Wang, Fienberg and Smola 2015; Welling and Teh 2011; the Gibbs posterior: Bissiri, Holmes and Walker 2016).
    The steps are Poisson-subsampled Gaussian releases with all weights one: the accountant of the private generative
    bootstrap without the Dirichlet law.

    Parameters
    ----------
    model : PrivateEstimator
        An unfitted estimator: its budget, loss, bounds and seed are used, its blocks and training are not.  The levels
        of a joint quantile regression run side by side on shared minibatches, within one budget.
    omega : float
        Learning rate of the Gibbs posterior, for the loss in natural units.
    steps : int
        T.
    sampling_rate : float
        q; higher means less minibatch noise at nearly the same privacy noise, and slower steps.
    step_size : float, optional
        h in the second half, in unit coordinates.  By default the largest step at which the Langevin noise absorbs the
        privacy noise, 2 / (omega n sigma_g^2), but no less than 40 / T, so that the chain mixes, and no more than
        0.05.  The first half, which is discarded, starts at 0.05 and comes down geometrically.
    deduct_noise : bool
        False adds the whole Langevin noise to the privacy noise.
    """

    _who = "DPSGLD"

    def __init__(
        self,
        model: PrivateEstimator,
        *,
        omega: float = 1.0,
        steps: int = 20_000,
        sampling_rate: float = 0.05,
        step_size: float | None = None,
        deduct_noise: bool = True,
    ) -> None:
        super().__init__(model)
        self.omega = check.positive(self._who, "omega", omega)
        self.steps = check.integer(self._who, "steps", steps, 2, 2**32 - 2)
        self.sampling_rate = check.probability(self._who, "sampling_rate", sampling_rate)
        self.step_size = None if step_size is None else check.positive(self._who, "step_size", step_size)
        self.deduct_noise = bool(deduct_noise)

    def plan(self, n: int) -> BaselineReport:
        """What ``fit`` on n records will spend and with which noise; touches no record and spends nothing."""
        check.integer(self._who, "n", n, 1)
        mechanism, spent = calibrated(
            SubsampledGaussian(
                sampling_rate=sampling_threshold(self._who, self.sampling_rate) / 2**32,
                steps=self.steps,
                adjacency=ADJACENCY,
            ),
            budget_epsilon=self.model.epsilon,
            budget_delta=self.model.delta,
        )
        what, seeded = "noisy clipped minibatch gradients (SGLD)", self.model.seed is not None
        budget = self.model.epsilon
        return BaselineReport(spent, self.model.delta, n, mechanism, what, budget=budget, undone_by_seed=seeded)

    @unseen()
    def fit(self, X: Any, y: Any = None, *, budget: Budget | None = None) -> Self:
        """Spend the budget on the records and keep the second half of the chain; errors as for the estimator's."""
        target = target_of(self.model, X, y)
        report = self.plan(target.n)
        self._afford(report, budget)
        assert report.mechanism.noise_multiplier is not None
        rules = len(target.loss.rules)
        joint = report.mechanism.noise_multiplier * math.sqrt(rules) * (1.0 + 2.0**-50)  # rounded up
        require_noise(self._who, target.n, joint)
        require_clip(self._who, target.clip)
        problem = whole_batch(  # the L gradients of a step are one vector of norm sqrt(L) C
            target,
            sampling_threshold=round(report.mechanism.sampling_rate * 2**32),
            noise_multiplier=joint,
            draws_per_step=rules,
            steps=self.steps,
        )
        report = self._start(report, budget)
        self._finish(report, _posterior=target.posterior(self._chain(target, problem), report))
        return self

    def _step_sizes(self, temperature: float, noise: float) -> Array:
        """h of each step; ``temperature`` = 1 / (omega n) in unit coordinates."""
        last = self.step_size
        if last is None:
            free = 2.0 * temperature / noise**2 if noise > 0.0 else math.inf
            last = min(max(free, MIXING / self.steps), MAX_STEP)
        burn = self.steps // 2
        first = max(last, MAX_STEP) if self.step_size is None else last
        return np.concatenate([np.geomspace(first, last, burn), np.full(self.steps - burn, last)])

    def _chain(self, target: Target, problem: Problem) -> Array:
        """The kept draws, (m, L, d), unit coordinates."""
        keys = Keys.fresh(self.model.seed)
        rng = np.random.default_rng(keys.weights)
        rules, (low, high) = np.arange(len(target.loss.rules)), target.box.T
        weights = np.tile([1.0, 0.0], (len(rules), 1))
        temperature = 1.0 / (self.omega * target.natural_over_unit() * target.n)
        sizes = self._step_sizes(float(temperature.min()), problem.noise)
        burn = self.steps // 2
        thin = -(-(self.steps - burn) // MAX_KEPT)
        theta = np.tile(target.box.mean(axis=1), (len(rules), 1))
        kept = []
        for step, h in enumerate(sizes):
            gradient = release_step(problem, keys, step, theta, weights, rules)
            absorbed = (h * problem.noise) ** 2 if self.deduct_noise else 0.0
            spread = np.sqrt(np.maximum(2.0 * h * temperature - absorbed, 0.0))
            theta = np.clip(theta - h * gradient + spread * rng.standard_normal(theta.shape), low, high)
            if step >= burn and (step - burn) % thin == 0:
                kept.append(theta)
        return np.stack(kept)
