"""The private m-out-of-n bootstrap, behind ``fit(...).posterior_``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from pgbb_fast import validation as check
from pgbb_fast.accountant import ResampledGaussian
from pgbb_fast.bootstrap.statistic import Statistic
from pgbb_fast.budget import Budget
from pgbb_fast.budget.bootstrap import (
    BootstrapReport,
    Sizes,
    asymptotic_report,
    calibrate,
    predicted_width,
    require_resamples_small,
    rule_of_thumb,
    sizes_of_least_width,
)
from pgbb_fast.budget.spending import Spender
from pgbb_fast.errors import DomainError
from pgbb_fast.posteriors.base import Posterior
from pgbb_fast.posteriors.bootstrap import BootstrapPosterior
from pgbb_fast.posteriors.deconvolved import DeconvolvedPosterior
from pgbb_fast.release.blocked import Keys
from pgbb_fast.release.resamples import Secret, noise_sd, release_estimate, release_replicates, require_grid
from pgbb_fast.silence import unseen

__all__ = ["AsymptoticMOutOfNBootstrap", "BootstrapPlan", "DPBootstrap", "MOutOfNBootstrap"]

SHARE = 0.5
SPREAD = 0.25  # guess of the standard deviation of sqrt(n) times the estimate, over l


@dataclass(frozen=True)
class BootstrapPlan:
    """What ``fit`` on n records will do; touches no record.

    Attributes
    ----------
    privacy : BootstrapReport
        What will be spent, with m, B and the noise multipliers.
    estimate_sd, replicate_sd : float
        Noise of the estimate (0 where there is none) and of a replicate, in the statistic's unit coordinates, for the
        exact statistic.
    width : float
        Predicted width of the noise-aware interval of a scalar, in the same units.
    """

    privacy: BootstrapReport
    estimate_sd: float
    replicate_sd: float
    width: float


class _Bootstrap(Spender):
    """Settings, calibration and the fitted attributes."""

    _who: ClassVar[str]

    def __init__(self, statistic: Statistic, *, replicates: int | None, seed: int | None) -> None:
        if not isinstance(statistic, Statistic):
            raise DomainError(f"{self._who}: statistic must be a Mean, RegularisedRegression or Custom")
        self.statistic = statistic
        self.replicates = None if replicates is None else check.integer(self._who, "replicates", replicates, 2)
        self.seed = None if seed is None else check.integer(self._who, "seed", seed, 0)

    def __repr__(self) -> str:
        seed = "" if self.seed is None else ", undone by its seed"
        return f"{self._who}({type(self.statistic).__name__}{seed}, {self._state()})"

    @property
    def posterior_(self) -> Posterior:
        """The released posterior."""
        posterior: Posterior = self._require_fitted()
        return posterior

    @property
    def privacy_(self) -> BootstrapReport:
        """What was spent, on what, under which adjacency."""
        report = self.posterior_.privacy
        assert isinstance(report, BootstrapReport)
        return report

    def _report(self, n: int) -> BootstrapReport:
        raise NotImplementedError

    def _planned(self, n: int) -> BootstrapReport:
        return replace(self._report(n), undone_by_seed=self.seed is not None)

    def plan(self, n: int, *, spread: float = SPREAD, level: float = 0.95) -> BootstrapPlan:
        """What ``fit`` on n records will spend, with which noise, and how wide an interval to expect.

        ``spread`` guesses the standard deviation of sqrt(n) times the estimate over l (at most 1/2 for a mean of
        records with range l).
        """
        check.integer(self._who, "n", n, 2)
        check.positive(self._who, "spread", spread)
        check.between(self._who, "level", level, 0.0, 1.0)
        report = self._planned(n)
        m, own = report.mechanism.resample_size, report.estimate_multiplier or 0.0
        l = self.statistic.l  # noqa: E741
        width = predicted_width(
            n,
            spread,
            resample_size=m,
            replicates=report.mechanism.replicates,
            replicate=report.replicate_multiplier,
            estimate=own,
            level=level,
        )
        return BootstrapPlan(report, own * l / n, report.replicate_multiplier * l / m, l * width)

    @unseen()
    def fit(self, X: Any, y: Any = None, *, budget: Budget | None = None) -> Self:
        """Spend the budget on the (n, p) records (and y, where the statistic has one).

        Raises
        ------
        DataError
            Wrong shape or type, or a value that is nan or infinite.  Nothing was computed and nothing spent.
        DomainError, PrivacyError
            A setting is out of its domain, or the guarantee can't be given.  Nothing was spent.
        """
        task = self.statistic.task(self._who, X, y)
        report = self._planned(task.n)
        self._afford(report, budget)
        m, B = report.mechanism.resample_size, report.mechanism.replicates
        require_grid(self._who, task, m, report.replicate_multiplier)
        own = report.estimate_multiplier
        if own is not None:
            require_grid(self._who, task, task.n, own)
        secret = Secret(Keys.fresh(self.seed).secret)
        records = task.load()
        report = self._start(report, budget)
        replicates = release_replicates(task, records, secret, m, B, report.replicate_multiplier)
        common: dict[str, Any] = {"to_natural": task.to_natural, "names": task.names, "privacy": report}
        sd = noise_sd(task, m, report.replicate_multiplier)
        posterior: Posterior
        if own is None:
            posterior = DeconvolvedPosterior(replicates, noise_sd=sd, **common)
        else:
            posterior = BootstrapPosterior(
                release_estimate(task, records, secret, own),
                replicates,
                estimate_sd=noise_sd(task, task.n, own),
                replicate_sd=sd,
                n=task.n,
                resample_size=m,
                **common,
            )
        self._finish(report, _posterior=posterior)
        return self


class MOutOfNBootstrap(_Bootstrap):
    """Noisy estimates on B resamples of m records, and one on all n, within one (epsilon, delta) budget.

    The noise is the least for which the accountant's bound *for this B* is within the budget; the central limit's,
    which needs B much larger than (n/m)^2, is :class:`AsymptoticMOutOfNBootstrap`.  Replace-one adjacency.

    Parameters
    ----------
    statistic : Mean, RegularisedRegression or Custom
        What is estimated; the guarantee rests on its sensitivity l / m.
    epsilon, delta : float
        The budget of one ``fit``: estimate and replicates composed exactly.
    resample_size, replicates : int, optional
        m and B.  Those not given are chosen by ``sizes``.  m = n is the n-out-of-n bootstrap.
    sizes : {"rule", "width"}
        The rule of thumb m = n / B, or the least predicted width under the finite-B noise (which also chooses the
        estimate's share); both use public numbers only.
    estimate_share : float
        Share of the budget's mu^2 that goes to the estimate, in (0, 1).
    spread : float
        For ``sizes="width"``: see :meth:`plan`.
    seed : int, optional
        For tests and audits only: the seed decides resamples and noise, so whoever knows it can undo them.

    Raises
    ------
    DomainError
        Also where m = o(n) is plainly broken: B (1 - p0) (1 + (m-1)/n) > n / 4.

    Examples
    --------
    >>> model = MOutOfNBootstrap(Mean([(0.0, 10.0)]), epsilon=1.0, delta=1e-5)
    >>> model.fit(X).posterior_.summary(0.9)                                   # doctest: +SKIP
    """

    _who = "MOutOfNBootstrap"

    def __init__(
        self,
        statistic: Statistic,
        *,
        epsilon: float,
        delta: float,
        resample_size: int | None = None,
        replicates: int | None = None,
        sizes: str = "rule",
        estimate_share: float = SHARE,
        spread: float = SPREAD,
        seed: int | None = None,
    ) -> None:
        super().__init__(statistic, replicates=replicates, seed=seed)
        who = self._who
        self.epsilon = check.positive(who, "epsilon", epsilon)
        self.delta = check.between(who, "delta", delta, 0.0, 1.0)
        self.resample_size = None if resample_size is None else check.integer(who, "resample_size", resample_size, 1)
        self.sizes = check.one_of(who, "sizes", sizes, ("rule", "width"))
        if self.sizes == "width" and (resample_size is not None or replicates is not None):
            raise DomainError(f"{who}: sizes='width' chooses resample_size and replicates; leave both out")
        self.estimate_share = check.between(who, "estimate_share", estimate_share, 0.0, 1.0)
        self.spread = check.positive(who, "spread", spread)

    def _sizes(self, n: int) -> Sizes:
        if self.sizes == "width":
            return sizes_of_least_width(
                n, budget_epsilon=self.epsilon, budget_delta=self.delta, spread=self.spread, level=0.95
            )
        chosen = rule_of_thumb(n, self.resample_size, self.replicates, self.estimate_share)
        if not chosen.resample_size <= n:
            raise DomainError(f"{self._who}: resample_size must be at most n = {n}, got {chosen.resample_size}")
        require_resamples_small(self._who, n, chosen.resample_size, chosen.replicates)
        return chosen

    def _report(self, n: int) -> BootstrapReport:
        chosen = self._sizes(n)
        mechanism = ResampledGaussian(n=n, resample_size=chosen.resample_size, replicates=chosen.replicates)
        return calibrate(
            mechanism,
            budget_epsilon=self.epsilon,
            budget_delta=self.delta,
            estimate_share=chosen.estimate_share,
        )


class AsymptoticMOutOfNBootstrap(MOutOfNBootstrap):
    """The same with the noise of the papers' central limit: an asymptotic claim, **not a bound**.

    At n = 1000, m = 10, B = 1000 an explicit pair of data sets violates it by far (docs/accounting.md section 5).  For
    comparisons on data that need no protection.

    Parameters
    ----------
    mu : float
        The Gaussian differential privacy that the limit claims for estimate and replicates together.
    delta : float
        Where the claim is read as an epsilon, for the report.
    **settings
        As for :class:`MOutOfNBootstrap`, but for the budget and ``sizes``.
    """

    _who = "AsymptoticMOutOfNBootstrap"

    def __init__(self, statistic: Statistic, *, mu: float, delta: float, **settings: Any) -> None:
        if "sizes" in settings or "epsilon" in settings:
            raise DomainError(f"{self._who}: takes mu and delta, and neither epsilon nor sizes")
        super().__init__(statistic, epsilon=1.0, delta=delta, **settings)
        self.mu = check.positive(self._who, "mu", mu)

    def _report(self, n: int) -> BootstrapReport:
        chosen = self._sizes(n)
        mechanism = ResampledGaussian(n=n, resample_size=chosen.resample_size, replicates=chosen.replicates)
        return asymptotic_report(mechanism, mu=self.mu, delta=self.delta, estimate_share=chosen.estimate_share)


class DPBootstrap(_Bootstrap):
    """The n-out-of-n bootstrap of Wang, Cheng and Awan (2022, arXiv:2210.06140): B noisy estimates on resamples of n
    records, from which the noise is removed by deconvolution, coordinate by coordinate.

    The whole budget goes to the replicates, with the noise of the accountant's bound for this B (the paper's
    (2 - 2/e)^(1/2) is the central limit).  Intervals are percentiles of the deconvolved law.

    Parameters
    ----------
    statistic : Mean, RegularisedRegression or Custom
    epsilon, delta : float
    replicates : int
        B.
    seed : int, optional
        For tests and audits only.
    """

    _who = "DPBootstrap"

    def __init__(
        self, statistic: Statistic, *, epsilon: float, delta: float, replicates: int = 100, seed: int | None = None
    ) -> None:
        super().__init__(statistic, replicates=replicates, seed=seed)
        self.epsilon = check.positive(self._who, "epsilon", epsilon)
        self.delta = check.between(self._who, "delta", delta, 0.0, 1.0)

    def _report(self, n: int) -> BootstrapReport:
        assert self.replicates is not None
        mechanism = ResampledGaussian(n=n, resample_size=n, replicates=self.replicates)
        return calibrate(mechanism, budget_epsilon=self.epsilon, budget_delta=self.delta, estimate_share=0.0)
