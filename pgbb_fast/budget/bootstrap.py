"""What a bootstrap spends, how it is calibrated, and how m and B are chosen: public numbers only."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from scipy.special import stdtrit

from pgbb_fast import validation as check
from pgbb_fast.accountant import (
    Ledger,
    ResampledGaussian,
    SubsampledGaussian,
    epsilon,
    noise_multiplier,
)
from pgbb_fast.accountant.asymptotic import asymptotic_mu, gaussian_delta
from pgbb_fast.accountant.remembered import remembered
from pgbb_fast.accountant.roots import bracket_root
from pgbb_fast.budget.report import ADJACENCY, PLAIN, Circumstances, guarantee, require_accounted, require_guarantee
from pgbb_fast.errors import DomainError, PrivacyError

__all__ = [
    "BootstrapReport",
    "Sizes",
    "asymptotic_report",
    "calibrate",
    "predicted_width",
    "require_resamples_small",
    "rule_of_thumb",
    "sizes_of_least_width",
]

MIN_RESAMPLE = 10  # the m-out-of-n bootstrap of fewer records is no limit of anything
MAX_GROWTH = 0.25
REPLICATES = (100, 300, 1000)
SPREADS = (0.5, 1.0, 4.0, 16.0)  # candidates of m, in units of n / B


@dataclass(frozen=True)
class BootstrapReport(Circumstances):
    """What was spent, on what, under which adjacency.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee: an upper bound of epsilon at ``delta`` for everything released; for an asymptotic claim,
        ``epsilon`` is what the central limit claims and no bound.
    mechanism : ResampledGaussian
        The B replicates.
    estimate : SubsampledGaussian, optional
        The estimate on all records, a plain Gaussian release.  Its noise multiplier is in units of half the
        sensitivity (replace-one), so it is 2 / noise_multiplier Gaussian differentially private, exactly.
    asymptotic_mu : float, optional
        Set for the central-limit claim alone: the mu of the whole that it claims.
    budget : float, optional
        The epsilon that was asked for.
    """

    epsilon: float
    delta: float
    mechanism: ResampledGaussian
    estimate: SubsampledGaussian | None = None
    asymptotic_mu: float | None = None
    adjacency: str = ADJACENCY
    budget: float | None = None

    def recomputed(self) -> float:
        """Epsilon at ``delta`` of the mechanisms named, by this version's accountant; for an asymptotic claim, what the
        central limit claims."""
        if self.asymptotic_mu is not None:
            return gaussian_epsilon(self.asymptotic_mu, self.delta)
        return spent(self.mechanism, self.estimate, self.delta)

    @property
    def replicate_multiplier(self) -> float:
        """Noise of a replicate over the sensitivity of an estimate on m records."""
        assert self.mechanism.noise_multiplier is not None
        return self.mechanism.noise_multiplier

    @property
    def estimate_multiplier(self) -> float | None:
        """Noise of the estimate over its sensitivity."""
        if self.estimate is None:
            return None
        assert self.estimate.noise_multiplier is not None
        return self.estimate.noise_multiplier / 2.0

    def sentence(self) -> str:
        """The guarantee in a sentence, for a publication."""
        m = self.mechanism
        what = f"{m.replicates} noisy estimates on resamples of {m.resample_size} records, noise multiplier "
        what += f"{self.replicate_multiplier:.6g}"
        if self.estimate is not None:
            what += f"; one noisy estimate on all records, noise multiplier {self.estimate_multiplier:.6g}"
        if self.asymptotic_mu is not None:
            return (
                f"Claimed in the limit of many replicates, not a bound: {self.asymptotic_mu:.6g}-Gaussian differential "
                f"privacy under {self.adjacency} adjacency (n = {m.n} public): {what}."
            )
        epsilon, delta = guarantee(self)
        return (
            f"({epsilon}, {delta})-differential privacy under {self.adjacency} adjacency "
            f"(n = {m.n} public): {what}."
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> BootstrapReport:
        """Inverse of :meth:`to_dict`."""
        require_guarantee(values)
        estimate, mu = values.get("estimate"), values.get("asymptotic_mu")
        if mu is not None:
            check.positive("privacy", "asymptotic_mu", mu)
        parts = {
            "mechanism": ResampledGaussian(**values["mechanism"]),
            "estimate": None if estimate is None else SubsampledGaussian(**estimate),
        }
        for part in filter(None, parts.values()):
            require_accounted(part)
        return cls(**{**values, **parts})


def spent(mechanism: ResampledGaussian, estimate: SubsampledGaussian | None, delta: float) -> float:
    """Epsilon at ``delta`` of the replicates and the estimate together, an upper bound for finite B."""
    if estimate is None:
        return epsilon(mechanism, delta=delta)
    ledger = Ledger()
    ledger.record(mechanism)
    ledger.record(estimate)
    return ledger.epsilon(delta=delta)


@lru_cache(maxsize=256)
def calibrate(
    mechanism: ResampledGaussian, *, budget_epsilon: float, budget_delta: float, estimate_share: float
) -> BootstrapReport:
    """The least noise, to within 1e-5, whose epsilon at ``budget_delta`` is within ``budget_epsilon``, for finite B.

    ``estimate_share`` is the share of the squared privacy parameter mu^2 (the budget seen as a Gaussian mechanism's)
    that goes to the estimate; 0: no such release.  Its noise is the whole budget's over sqrt(share); the replicates
    get the least noise with which the composition is within the budget.
    """

    def search() -> list[float]:
        alone = noise_multiplier(mechanism, epsilon=budget_epsilon, delta=budget_delta)
        if estimate_share == 0.0:
            return [alone]
        whole = noise_multiplier(PLAIN, epsilon=budget_epsilon, delta=budget_delta)
        estimate = replace(PLAIN, noise_multiplier=whole / math.sqrt(estimate_share))

        def excess(log_noise: float) -> float:
            got = spent(replace(mechanism, noise_multiplier=math.exp(log_noise)), estimate, budget_delta)
            return math.log(got / budget_epsilon) if got > 0.0 else -math.inf

        start = math.log(alone / math.sqrt(1.0 - estimate_share))
        low, high = math.log(alone) - 1.0, math.log(alone) + 20.0
        beside = math.exp(bracket_root(excess, start, who="calibrate", low=low, high=high).good)
        return [beside, whole / math.sqrt(estimate_share)]

    def within_budget(found: list[float]) -> BootstrapReport | None:
        """The report of ``found`` noise multipliers; None where they spend more than the budget."""
        calibrated = replace(mechanism, noise_multiplier=float(found[0]))
        estimate = replace(PLAIN, noise_multiplier=float(found[1])) if estimate_share > 0.0 else None
        total = spent(calibrated, estimate, budget_delta)
        if not total <= budget_epsilon:
            return None
        return BootstrapReport(total, budget_delta, calibrated, estimate, budget=budget_epsilon)

    question = [asdict(mechanism), budget_epsilon, budget_delta, estimate_share]
    report = remembered("bootstrap.calibrate", question, search, within_budget)
    if report is None:
        raise PrivacyError(
            f"calibrate: the accountant gives more than the budget of epsilon {budget_epsilon:.9g}; nothing was "
            "released. This is a defect of the accountant, please report it"
        )
    return report


def asymptotic_report(
    mechanism: ResampledGaussian, *, mu: float, delta: float, estimate_share: float
) -> BootstrapReport:
    """The central limit's noise for mu-Gaussian differential privacy in all: what it claims as B grows, **no bound**.

    The replicates get mu sqrt(1 - share) (Dette and Graw, arXiv:2505.01197, with the scale of docs/method.md section
    8) and the estimate mu sqrt(share), which is exact.
    """
    unit = replace(mechanism, noise_multiplier=1.0)
    calibrated = replace(mechanism, noise_multiplier=asymptotic_mu(unit) / (mu * math.sqrt(1.0 - estimate_share)))
    estimate = None
    if estimate_share > 0.0:
        estimate = replace(PLAIN, noise_multiplier=2.0 / (mu * math.sqrt(estimate_share)))
    return BootstrapReport(gaussian_epsilon(mu, delta), delta, calibrated, estimate, mu)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Epsilon at ``delta`` of mu-Gaussian differential privacy, by bisection, rounded up."""
    low, high = 0.0, 1.0
    while gaussian_delta(mu, high) > delta:
        low, high = high, 2.0 * high
    for _ in range(200):
        middle = (low + high) / 2.0
        low, high = (middle, high) if gaussian_delta(mu, middle) > delta else (low, middle)
    return high


def growth(n: int, resample_size: int, replicates: int) -> float:
    """B (1 - p0) (1 + (m - 1)/n) / n: must vanish for the bootstrap to be consistent (docs/method.md section 8)."""
    mechanism = ResampledGaussian(n=n, resample_size=resample_size, replicates=replicates)
    return replicates * -math.expm1(mechanism.log_exclusion) * (1.0 + (resample_size - 1.0) / n) / n


def require_resamples_small(who: str, n: int, resample_size: int, replicates: int) -> None:
    """Refuse where m = o(n) is plainly broken.

    With mu = 1, the noise in sqrt(m) theta*_b has variance l^2 times :func:`growth` in the central limit.  Above 1/4
    that is more than sqrt(n) times a mean of records with range l can vary by itself (Popoviciu's inequality), so
    what was asked for is not the regime in which noise vanishes.  Public numbers only.
    """
    value = growth(n, resample_size, replicates)
    if not value <= MAX_GROWTH:
        raise DomainError(
            f"{who}: resample_size = {resample_size} and replicates = {replicates} for n = {n} records break "
            f"m = o(n): B (1 - p0) (1 + (m - 1)/n) / n is {value:.3g}, above {MAX_GROWTH:g}; take smaller resamples "
            f"(the rule of thumb is m = n / B) or fewer replicates"
        )


@dataclass(frozen=True)
class Sizes:
    """m, B and the estimate's share of the budget."""

    resample_size: int
    replicates: int
    estimate_share: float


def rule_of_thumb(n: int, resample_size: int | None, replicates: int | None, estimate_share: float) -> Sizes:
    """m about n / B, but at least 10 (and at most n); B = n / m, else n / 10 between 100 and 1000."""
    least = min(MIN_RESAMPLE, n)
    if replicates is None:
        by_size = n // MIN_RESAMPLE if resample_size is None else n // resample_size
        replicates = min(1000, max(100, by_size))
    if resample_size is None:
        resample_size = max(least, round(n / replicates))
    return Sizes(resample_size, replicates, estimate_share)


def predicted_width(
    n: int, spread: float, *, resample_size: int, replicates: int, replicate: float, estimate: float, level: float
) -> float:
    """Width, over l, of the noise-aware interval of a scalar, given noise multipliers (over the sensitivity).

    The sampling variance of sqrt(n) times the estimate, spread^2, is estimated as the replicates' variance less their
    noise's, v_b = nu^2 / m, on B - 1 degrees of freedom; the estimate's noise, v_e = nu_e^2 / n, is known.
    Satterthwaite's degrees of freedom of the sum are (B - 1) (s^2 + v_e)^2 / (s^2 + v_b)^2 (Satterthwaite 1946).
    """
    sampling = spread**2
    noise, own = replicate**2 / resample_size, estimate**2 / n
    freedom = (replicates - 1.0) * ((sampling + own) / (sampling + noise)) ** 2
    quantile = float(stdtrit(freedom, (1.0 + level) / 2.0))
    return 2.0 * quantile * math.sqrt((sampling + own) / n)


@lru_cache(maxsize=64)
def sizes_of_least_width(n: int, *, budget_epsilon: float, budget_delta: float, spread: float, level: float) -> Sizes:
    """m, B and the estimate's share with the least :func:`predicted_width` under the finite-B noise, over a grid.

    While searching, the noise for a share of mu^2 is taken to be the whole budget's over the root of the share.
    """
    question = [n, budget_epsilon, budget_delta, spread, level, REPLICATES, SPREADS]

    def search() -> list[float]:
        return _search_sizes(n, budget_epsilon, budget_delta, spread, level)

    def sizes(found: list[float]) -> Sizes | None:
        size, replicates, share = found or (0.0, 0.0, 0.0)
        inside = 1 <= size <= n and replicates in REPLICATES and 0.0 < share < 1.0
        return Sizes(int(size), int(replicates), float(share)) if inside else None

    best = remembered("sizes_of_least_width", question, search, sizes)
    if best is None:
        raise DomainError(f"sizes_of_least_width: {n} records are too few for 100 resamples; give both sizes")
    return best


def _search_sizes(n: int, budget_epsilon: float, budget_delta: float, spread: float, level: float) -> list[float]:
    """m, B and the estimate's share; nothing where no size on the grid will do."""
    whole = noise_multiplier(PLAIN, epsilon=budget_epsilon, delta=budget_delta) / 2.0
    best: float = math.inf
    found: list[float] = []
    for replicates in REPLICATES:
        for size in sorted({min(n, max(MIN_RESAMPLE, round(k * n / replicates))) for k in SPREADS}):
            if growth(n, size, replicates) > MAX_GROWTH:
                continue
            mechanism = ResampledGaussian(n=n, resample_size=size, replicates=replicates)
            alone = noise_multiplier(mechanism, epsilon=budget_epsilon, delta=budget_delta)
            for share in (0.2, 0.35, 0.5, 0.65, 0.8):
                width = predicted_width(
                    n,
                    spread,
                    resample_size=size,
                    replicates=replicates,
                    replicate=alone / math.sqrt(1.0 - share),
                    estimate=whole / math.sqrt(share),
                    level=level,
                )
                if width < best:
                    best, found = width, [size, replicates, share]
    return found
