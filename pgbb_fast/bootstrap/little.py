"""The bag of little bootstraps with private quantiles: BLBquant (Chadha, Duchi and Kuditipudi 2024, arXiv:2402.07131).

The records are split at random into s subsets.  In each, bootstrap resamples of size n give the quantiles of
sqrt(n) (theta* - theta_subset); a record touches one subset, so the median over subsets of such a quantile changes its
rank by at most one and the exponential mechanism releases it.  This follows the paper's idea, not its code: the grid,
the utility and the budget's split are ours.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Self

from pgbb_fast import validation as check
from pgbb_fast.bootstrap.statistic import Statistic
from pgbb_fast.budget import Budget
from pgbb_fast.budget.little import LittleReport, calibrate
from pgbb_fast.budget.spending import Spender
from pgbb_fast.errors import DomainError
from pgbb_fast.posteriors.little import LittlePosterior
from pgbb_fast.release.blocked import Keys
from pgbb_fast.release.medians import release_sides
from pgbb_fast.release.resamples import Secret, noise_sd, release_estimate, require_grid
from pgbb_fast.silence import unseen

__all__ = ["BLBQuantiles", "LittlePosterior", "LittleReport"]

MIN_SUBSET = 10


class BLBQuantiles(Spender):
    """Confidence intervals at one level from private medians of little bootstraps' quantiles.

    Parameters
    ----------
    statistic : Mean, RegularisedRegression or Custom
        The estimate is released with Gaussian noise and rests on its sensitivity; the medians rest on nothing.
    epsilon, delta : float
    level : float
        Of the interval; fixed here, because the ends are what is released.
    subsets : int, optional
        s; by default 32 over a median's epsilon, but at least 10 and at most n / 10.
    resamples : int
        In each subset.
    estimate_share : float
        Share of the budget's rho that goes to the estimate.
    root_bound : float, optional
        Public bound of the size of a root's quantile, in unit coordinates; l by default (a mean's root has a standard
        deviation of at most l / 2).
        Its size is told to a factor of 2^(1/8), in 60 steps down from there, rounded up.
    seed : int, optional
        For tests and audits only.
    """

    _who = "BLBQuantiles"

    def __init__(
        self,
        statistic: Statistic,
        *,
        epsilon: float,
        delta: float,
        level: float = 0.95,
        subsets: int | None = None,
        resamples: int = 100,
        estimate_share: float = 0.5,
        root_bound: float | None = None,
        seed: int | None = None,
    ) -> None:
        who = self._who
        if not isinstance(statistic, Statistic):
            raise DomainError(f"{who}: statistic must be a Mean, RegularisedRegression or Custom")
        self.statistic = statistic
        self.epsilon = check.positive(who, "epsilon", epsilon)
        self.delta = check.between(who, "delta", delta, 0.0, 1.0)
        self.level = check.between(who, "level", level, 0.0, 1.0)
        self.subsets = None if subsets is None else check.integer(who, "subsets", subsets, 3)
        self.resamples = check.integer(who, "resamples", resamples, 20)
        self.estimate_share = check.between(who, "estimate_share", estimate_share, 0.0, 1.0)
        self.root_bound = None if root_bound is None else check.positive(who, "root_bound", root_bound)
        self.seed = None if seed is None else check.integer(who, "seed", seed, 0)

    def __repr__(self) -> str:
        seed = "" if self.seed is None else ", undone by its seed"
        return f"{self._who}({type(self.statistic).__name__}{seed}, {self._state()})"

    @property
    def posterior_(self) -> LittlePosterior:
        """The released posterior."""
        posterior: LittlePosterior = self._require_fitted()
        return posterior

    @property
    def privacy_(self) -> LittleReport:
        """What was spent, on what, under which adjacency."""
        report = self.posterior_.privacy
        assert isinstance(report, LittleReport)
        return report

    def plan(self, n: int, d: int = 1) -> LittleReport:
        """What ``fit`` on n records of a statistic with d coordinates will spend; touches no record."""
        check.integer(self._who, "n", n, 3 * MIN_SUBSET)
        check.integer(self._who, "d", d, 1)
        budget: dict[str, float] = {"epsilon": self.epsilon, "delta": self.delta, "share": self.estimate_share}
        first = calibrate(n, 0, 2 * d, **budget)
        most = n // MIN_SUBSET
        subsets = self.subsets or min(most, max(10, math.ceil(32.0 / first.median_epsilon)))
        if not 3 <= subsets <= most:
            raise DomainError(f"{self._who}: {n} records can't fill {subsets} subsets of {MIN_SUBSET}")
        return replace(calibrate(n, subsets, 2 * d, **budget), undone_by_seed=self.seed is not None)

    @unseen()
    def fit(self, X: Any, y: Any = None, *, budget: Budget | None = None) -> Self:
        """Spend the budget; errors as for :meth:`MOutOfNBootstrap.fit`."""
        task = self.statistic.task(self._who, X, y)
        report = self.plan(task.n, len(task.box))
        self._afford(report, budget)
        require_grid(self._who, task, task.n, report.estimate_multiplier)
        keys = Keys.fresh(self.seed)
        secret = Secret(keys.secret)
        records = task.load()
        report = self._start(report, budget)
        estimate = release_estimate(task, records, secret, report.estimate_multiplier)
        own = math.sqrt(task.n) * noise_sd(task, task.n, report.estimate_multiplier)
        sides = release_sides(
            task,
            records,
            secret,
            subsets=report.subsets,
            resamples=self.resamples,
            tail=(1.0 - self.level) / 2.0,
            noise=own,
            top=self.root_bound or task.l,
            epsilon=report.median_epsilon,
            partition=keys.partition,
        )
        posterior = LittlePosterior(
            estimate,
            sides / math.sqrt(task.n),
            level=self.level,
            to_natural=task.to_natural,
            names=task.names,
            privacy=report,
        )
        self._finish(report, _posterior=posterior)
        return self
