"""What a fit spends: the mechanism is fixed and calibrated before any record is touched."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import lru_cache
from typing import Any, Literal, Protocol

from pgbb_fast import validation as check
from pgbb_fast.accountant import BlockedGaussian, Ledger, SubsampledGaussian, epsilon, noise_multiplier
from pgbb_fast.accountant.remembered import remembered
from pgbb_fast.errors import DomainError, PrivacyError
from pgbb_fast.kernels.scalar.normal import MAX_SIGMA

__all__ = [
    "ADJACENCY",
    "Circumstances",
    "PrivacyReport",
    "Report",
    "calibrate",
    "guarantee",
    "outward",
    "require_accounted",
    "require_clip",
    "require_guarantee",
    "require_noise",
    "sampling_threshold",
    "spent",
    "suggested_rate",
]

ADJACENCY: Literal["replace-one"] = "replace-one"
WORD = 2**32
PLAIN = SubsampledGaussian(sampling_rate=1.0, steps=1, adjacency=ADJACENCY)  # one release of everything
MAX_RECORDS = 2**30
MAX_MULTIPLIER = MAX_SIGMA / WORD  # 2^24
MIN_CLIP, MAX_CLIP = 2.0**-50, 2.0**50
SEEDED = (
    "A seed was given: whoever knows it can undo the noise, so this is a guarantee only towards those who don't, and "
    "none at all if the seed can be guessed."
)
MIN_MULTIPLIER = 0.6
PASSES = 300.0  # expected visits of a record in a run; the minibatches then add about 2 / PASSES to sampling variances


def outward(value: float, digits: int = 6, *, down: bool = False) -> str:
    """``value`` in ``digits`` significant digits, rounded up (or ``down``), so that a printed bound is still one."""
    context = Context(prec=digits, rounding=ROUND_FLOOR if down else ROUND_CEILING)
    return f"{float(context.create_decimal(Decimal(value))):.{digits}g}"


def guarantee(report: Report, digits: int = 6) -> tuple[str, str]:
    """Epsilon and delta of a report as they are printed: an upper bound of what was spent, never above what was asked.

    Epsilon is rounded up, unless that exceeds the budget (``report.budget``), which is then printed as it was given.
    delta is a number that was given, so it is printed as it is, in the fewest digits that make the same float.
    """
    rounded = outward(report.epsilon, digits) if math.isfinite(report.epsilon) else repr(report.epsilon)
    asked = report.budget
    return (rounded if asked is None or float(rounded) <= asked else repr(float(asked))), repr(float(report.delta))


def require_guarantee(values: Mapping[str, Any]) -> None:
    """Refuse a saved report whose epsilon, delta, budget or adjacency no report of this package can have."""
    who = "privacy"
    spent = check.positive(who, "epsilon", values["epsilon"])
    check.between(who, "delta", values["delta"], 0.0, 1.0)
    check.one_of(who, "adjacency", values["adjacency"], (ADJACENCY,))
    budget = values.get("budget")
    if budget is not None and not spent <= check.positive(who, "budget", budget):
        raise DomainError("privacy: epsilon is above the budget")


def require_accounted(mechanism: Any) -> None:
    """Refuse a saved mechanism without noise, or accounted under another adjacency."""
    check.positive("privacy", "noise_multiplier", mechanism.noise_multiplier)
    check.one_of("privacy", "adjacency", getattr(mechanism, "adjacency", ADJACENCY), (ADJACENCY,))


def sampling_threshold(who: str, rate: float) -> int:
    """The largest t with t / 2^32 <= ``rate``: records are drawn with probability at most t / 2^32, and less by at most
    one part in 2^25 (``kernels.scalar.sampling``); t / 2^32 is what the accountant is told."""
    threshold = math.floor(rate * WORD)
    if threshold < 1:
        raise DomainError(f"{who}: sampling_rate must be at least 2^-32, got {rate!r}")
    return threshold


def require_noise(who: str, n: int, *multipliers: float) -> None:
    """Refuse, on public numbers, sums of n records or noise that don't fit into the integers of a release.

    A record's term is at most 2^32 units, the noise at most 16 standard deviations of 2^32 ``multipliers`` units
    (``kernels.scalar.normal``): n 2^32 + 16 2^56 < 2^63.
    """
    if not n <= MAX_RECORDS:
        raise DomainError(f"{who}: at most {MAX_RECORDS} records fit into the 64-bit sums of a release, got {n}")
    for multiplier in multipliers:
        if not 0.0 <= multiplier < MAX_MULTIPLIER:
            raise DomainError(
                f"{who}: the budget needs a noise multiplier of {multiplier:.4g}; noise fits into the 64-bit integers "
                f"of a release below {MAX_MULTIPLIER:.4g}: raise epsilon, delta, or the share of the second moments"
            )


def require_clip(who: str, *clips: float) -> None:
    """Refuse, on public numbers, bounds of a record's gradient with which single precision overflows or vanishes."""
    for clip in clips:
        if not MIN_CLIP <= clip <= MAX_CLIP:
            raise DomainError(
                f"{who}: a record's gradient is clipped at {clip:.4g}; single precision needs a bound in "
                f"[{MIN_CLIP:.4g}, {MAX_CLIP:.4g}]: rescale the loss"
            )


class Report(Protocol):
    """What every report of what was spent has: a guarantee, its adjacency, a sentence, and a form for JSON."""

    @property
    def epsilon(self) -> float:
        """Upper bound of epsilon at ``delta``; infinite where there is no guarantee."""

    @property
    def delta(self) -> float:
        """The delta of the guarantee."""

    @property
    def budget(self) -> float | None:
        """The epsilon that was asked for; None where none was."""

    @property
    def adjacency(self) -> str:
        """Which data sets are neighbours."""

    def recomputed(self) -> float:
        """Epsilon at ``delta`` of the mechanisms named, by this version's accountant."""

    def statement(self) -> str:
        """The guarantee, or that there is none, in a sentence."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""


@dataclass(frozen=True)
class Circumstances:
    """Base of the reports of a fit: what a reader must know beside epsilon and delta.

    Attributes
    ----------
    epsilon, delta : float
        Of this fit.
    undone_by_seed : bool
        A seed decided the noise: whoever knows it can undo the noise, and has no guarantee to give.
    earlier : tuple of (epsilon, delta)
        Of the same object's fits before this one, those included that were interrupted after their first release: each
        counts as having spent all of its budget.
    together : (epsilon, delta, count), optional
        Of everything that was charged to the fit's :class:`~pgbb_fast.Budget` up to and with this fit.
    """

    epsilon: float
    delta: float
    undone_by_seed: bool = field(default=False, kw_only=True)
    earlier: tuple[tuple[float, float], ...] = field(default=(), kw_only=True)
    together: tuple[float, float, int] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        pairs = tuple((float(epsilon), float(delta)) for epsilon, delta in self.earlier)
        if not isinstance(self.undone_by_seed, bool) or not all(e > 0.0 and d >= 0.0 for e, d in pairs):
            raise DomainError("privacy: undone_by_seed must be a bool, and earlier hold (epsilon, delta) of fits")
        object.__setattr__(self, "earlier", pairs)
        if self.together is not None:
            epsilon, delta, count = self.together
            epsilon, delta = check.positive("privacy", "together", epsilon), check.real("privacy", "together", delta)
            object.__setattr__(self, "together", (epsilon, delta, check.integer("privacy", "together", count, 1)))

    @property
    def gaussians(self) -> tuple[SubsampledGaussian, ...]:
        """All of its releases where they are plain Gaussian ones of all records; else empty."""
        return ()

    def sentence(self) -> str:
        """This fit's guarantee."""
        raise NotImplementedError

    def statement(self) -> str:
        """The guarantee for a publication: a sentence, and one for each circumstance that limits it."""
        said = [self.sentence()]
        if self.earlier:
            epsilon, delta = (
                math.nextafter(math.fsum(parts), math.inf)
                for parts in zip(*self.earlier, (self.epsilon, self.delta), strict=True)
            )
            said.append(
                f"Fit number {len(self.earlier) + 1} of the same object: records that were in every one are protected "
                f"by ({outward(epsilon)}, {outward(delta)}) in all (basic composition; a fit that was interrupted "
                "counts as spent)."
            )
        if self.together is not None:
            epsilon, delta, count = self.together
            said.append(
                f"Everything charged to its budget up to here, {count} charge(s), is "
                f"({outward(epsilon)}, {outward(delta)})-differentially private together."
            )
        if self.undone_by_seed:
            said.append(SEEDED)
        return " ".join(said)


@dataclass(frozen=True)
class PrivacyReport(Circumstances):
    """What was spent, on what, under which adjacency.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee: an upper bound of epsilon at ``delta``, never above the budget asked for.
    mechanism : BlockedGaussian
        The steps' releases.
    moment : SubsampledGaussian, optional
        The releases of second moments (of the scores, of the features), if the budget had a share for them.
    adjacency : str
        "replace-one": two data sets of the same, public size that differ in the value of one record.
    budget : float, optional
        The epsilon that was asked for.
    """

    epsilon: float
    delta: float
    mechanism: BlockedGaussian
    moment: SubsampledGaussian | None = None
    adjacency: str = ADJACENCY
    budget: float | None = None

    @property
    def steps(self) -> int:
        """Steps of the search or training."""
        return self.mechanism.steps

    def recomputed(self) -> float:
        """Epsilon at ``delta`` of the mechanisms named, by this version's accountant."""
        return spent(self.mechanism, self.moment, self.delta)

    def sentence(self) -> str:
        """The guarantee in a sentence, for a publication."""
        m = self.mechanism
        epsilon, delta = guarantee(self)
        return (
            f"({epsilon}, {delta})-differential privacy under {self.adjacency} adjacency "
            f"(n = {m.n} public): {m.steps} steps of {m.draws_per_step} noisy clipped gradient(s), Poisson sampling "
            f"rate {m.sampling_rate:.6g}, {m.n_blocks} blocks, noise multiplier {m.noise_multiplier:.6g}"
            + (
                "."
                if self.moment is None
                else f"; {self.moment.steps} second moment(s), noise multiplier {self.moment.noise_multiplier:.6g}."
            )
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> PrivacyReport:
        """Inverse of :meth:`to_dict`."""
        require_guarantee(values)
        moment = values.get("moment")
        parts = {
            "mechanism": BlockedGaussian(**values["mechanism"]),
            "moment": None if moment is None else SubsampledGaussian(**moment),
        }
        for part in filter(None, parts.values()):
            require_accounted(part)
        return cls(**{**values, **parts})


def spent(mechanism: BlockedGaussian, moment: SubsampledGaussian | None, delta: float) -> float:
    """Epsilon at ``delta`` of the steps and the score moment together, an upper bound."""
    if moment is None:
        return epsilon(mechanism, delta=delta)
    ledger = Ledger()
    ledger.record(mechanism)
    ledger.record(moment)
    return ledger.epsilon(delta=delta)


@lru_cache(maxsize=64)
def calibrate(
    mechanism: BlockedGaussian,
    *,
    budget_epsilon: float,
    budget_delta: float,
    moment_share: float = 0.0,
    moments: int = 1,
) -> PrivacyReport:
    """The least noise whose epsilon at ``budget_delta`` is within ``budget_epsilon``, and what it then spends.

    ``moment_share`` is the share of the squared privacy parameter mu^2 (the budget seen as a Gaussian mechanism's) that
    goes to ``moments`` plain Gaussian releases of second moments, in equal parts: the noise of each is that of the
    whole budget over sqrt(share / moments).  The steps then get the least noise with which the *composition* is within
    the budget.

    Raises
    ------
    DomainError
        More noise or more records than the integers of a release hold (:func:`require_noise`).
    """
    plain = replace(PLAIN, steps=moments) if moment_share > 0.0 else None

    def search() -> list[float]:
        alone = noise_multiplier(mechanism, epsilon=budget_epsilon, delta=budget_delta)
        if plain is None:
            return [alone]
        whole = noise_multiplier(PLAIN, epsilon=budget_epsilon, delta=budget_delta)
        each = whole * math.sqrt(moments / moment_share)
        require_noise("calibrate", mechanism.n, each)
        moment = replace(plain, noise_multiplier=each)
        return [_multiplier_beside(mechanism, moment, alone, budget_epsilon, budget_delta), each]

    def within_budget(found: list[float]) -> PrivacyReport | None:
        """The report of ``found`` noise multipliers; None where they spend more than the budget."""
        calibrated = replace(mechanism, noise_multiplier=float(found[0]))
        moment = None if plain is None else replace(plain, noise_multiplier=float(found[1]))
        total = spent(calibrated, moment, budget_delta)
        if not total <= budget_epsilon:
            return None
        return PrivacyReport(total, budget_delta, calibrated, moment, budget=budget_epsilon)

    question = [asdict(mechanism), budget_epsilon, budget_delta, moment_share, moments]
    report = remembered("calibrate", question, search, within_budget)
    if report is None:
        raise PrivacyError(
            f"calibrate: the accountant gives more than the budget of epsilon {budget_epsilon:.9g}; nothing was "
            "released. This is a defect of the accountant, please report it"
        )
    for part in (report.mechanism, report.moment):
        if part is not None and part.noise_multiplier is not None:
            require_noise("calibrate", mechanism.n, part.noise_multiplier)
    return report


def _multiplier_beside(
    mechanism: BlockedGaussian, moment: SubsampledGaussian, alone: float, budget_epsilon: float, budget_delta: float
) -> float:
    """A noise multiplier with which ``mechanism`` and ``moment`` together are within the budget, at most 0.1% above the
    least; bisection between what ``mechanism`` needs alone and the first multiple of it that is enough."""

    def enough(multiplier: float) -> bool:
        return spent(replace(mechanism, noise_multiplier=multiplier), moment, budget_delta) <= budget_epsilon

    low, high = alone, 1.25 * alone
    while not enough(high):
        low, high = high, 2.0 * high
        if high > 1e6 * alone:
            raise PrivacyError("calibrate: the score moment's share leaves nothing for the steps; lower moment_share")
    while high > low * 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


@lru_cache(maxsize=64)
def suggested_rate(
    mechanism: BlockedGaussian, *, budget_epsilon: float, budget_delta: float, with_moment: bool
) -> float:
    """The sampling rate at which the steps' noise multiplier is about ``MIN_MULTIPLIER``, or more.  Public numbers.

    Above that rate the noise per record hardly depends on it (the central limit of composition); below it subsampling
    stops helping.  A low rate is cheap, and its minibatches tell about the scores' second moment: a run without a
    release of that moment needs them.  A run with one (``with_moment``) visits every record ``PASSES`` times, so that
    minibatches add little to the variances.  ``mechanism.sampling_rate`` is where the accountant is asked for the
    slope.
    """

    def search() -> float:
        at = noise_multiplier(mechanism, epsilon=budget_epsilon, delta=budget_delta)
        least = float(mechanism.sampling_rate) * MIN_MULTIPLIER / at
        return min(1.0, max(least, PASSES / mechanism.steps) if with_moment else least)

    def a_rate(found: float) -> float | None:
        return float(found) if 0.0 < float(found) <= 1.0 else None

    question = [asdict(mechanism), budget_epsilon, budget_delta, with_moment, MIN_MULTIPLIER, PASSES]
    rate = remembered("suggested_rate", question, search, a_rate)
    if rate is None:
        raise PrivacyError("suggested_rate: no rate suits this budget; give sampling_rate yourself")
    return rate
