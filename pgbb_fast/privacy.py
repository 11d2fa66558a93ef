"""What a fit spends: the mechanism is fixed and calibrated before any record is touched."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import lru_cache
from typing import Any, Literal, Protocol

from pgbb_fast.accountant import BlockedGaussian, Ledger, SubsampledGaussian, epsilon, noise_multiplier
from pgbb_fast.errors import DomainError, PrivacyError

__all__ = [
    "ADJACENCY",
    "Circumstances",
    "PrivacyReport",
    "Report",
    "calibrate",
    "outward",
    "sampling_threshold",
    "spent",
    "suggested_rate",
]

ADJACENCY: Literal["replace-one"] = "replace-one"
WORD = 2**32
SEEDED = (
    "A seed was given: whoever knows it can undo the noise, so this is a guarantee only towards those who don't, and "
    "none at all if the seed can be guessed."
)
LEAST_MULTIPLIER = 0.6
PASSES = 300.0  # expected visits of a record in a run; the minibatches then add about 2 / PASSES to sampling variances


def outward(value: float, digits: int = 6, *, down: bool = False) -> str:
    """``value`` in ``digits`` significant digits, rounded up (or ``down``), so that a printed bound is still one."""
    context = Context(prec=digits, rounding=ROUND_FLOOR if down else ROUND_CEILING)
    return f"{float(context.create_decimal(Decimal(value))):.{digits}g}"


def sampling_threshold(who: str, rate: float) -> int:
    """The largest t with t / 2^32 <= ``rate``: records are drawn with probability at most t / 2^32, and less by at most
    one part in 2^25 (``kernels.scalar.sampling``); t / 2^32 is what the accountant is told."""
    threshold = math.floor(rate * WORD)
    if threshold < 1:
        raise DomainError(f"{who}: sampling_rate must be at least 2^-32, got {rate!r}")
    return threshold


class Report(Protocol):
    """What every report of what was spent has: a guarantee, its adjacency, a sentence, and a form for JSON."""

    @property
    def epsilon(self) -> float:
        """Upper bound of epsilon at ``delta``; infinite where there is no guarantee."""

    @property
    def delta(self) -> float:
        """The delta of the guarantee."""

    @property
    def adjacency(self) -> str:
        """Which data sets are neighbours."""

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
    """

    epsilon: float
    delta: float
    undone_by_seed: bool = field(default=False, kw_only=True)
    earlier: tuple[tuple[float, float], ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        pairs = tuple((float(epsilon), float(delta)) for epsilon, delta in self.earlier)
        if not isinstance(self.undone_by_seed, bool) or not all(e > 0.0 and d >= 0.0 for e, d in pairs):
            raise DomainError("privacy: undone_by_seed must be a bool, and earlier hold (epsilon, delta) of fits")
        object.__setattr__(self, "earlier", pairs)

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
    """

    epsilon: float
    delta: float
    mechanism: BlockedGaussian
    moment: SubsampledGaussian | None = None
    adjacency: str = ADJACENCY

    def sentence(self) -> str:
        """The guarantee in a sentence, for a publication."""
        m = self.mechanism
        return (
            f"({outward(self.epsilon)}, {outward(self.delta)})-differential privacy under {self.adjacency} adjacency "
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
        moment = values.get("moment")
        parts = {
            "mechanism": BlockedGaussian(**values["mechanism"]),
            "moment": None if moment is None else SubsampledGaussian(**moment),
        }
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
    """
    multiplier = noise_multiplier(mechanism, epsilon=budget_epsilon, delta=budget_delta)
    moment = None
    if moment_share > 0.0:
        plain = SubsampledGaussian(sampling_rate=1.0, steps=1, adjacency=ADJACENCY)
        whole = noise_multiplier(plain, epsilon=budget_epsilon, delta=budget_delta)
        moment = replace(plain, steps=moments, noise_multiplier=whole * math.sqrt(moments / moment_share))
        multiplier = _multiplier_beside(mechanism, moment, multiplier, budget_epsilon, budget_delta)
    calibrated = replace(mechanism, noise_multiplier=multiplier)
    total = spent(calibrated, moment, budget_delta)
    if not total <= budget_epsilon:
        raise PrivacyError(
            f"calibrate: the accountant gives epsilon {total:.9g} for a budget of {budget_epsilon:.9g}; nothing was "
            "released. This is a defect of the accountant, please report it"
        )
    return PrivacyReport(total, budget_delta, calibrated, moment)


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
    """The sampling rate at which the steps' noise multiplier is about ``LEAST_MULTIPLIER``, or more.  Public numbers.

    Above that rate the noise per record hardly depends on it (the central limit of composition); below it subsampling
    stops helping.  A low rate is cheap, and its minibatches tell about the scores' second moment: a run without a
    release of that moment needs them.  A run with one (``with_moment``) visits every record ``PASSES`` times, so that
    minibatches add little to the variances.  ``mechanism.sampling_rate`` is where the accountant is asked for the
    slope.
    """
    at = noise_multiplier(mechanism, epsilon=budget_epsilon, delta=budget_delta)
    least = float(mechanism.sampling_rate) * LEAST_MULTIPLIER / at
    return min(1.0, max(least, PASSES / mechanism.steps) if with_moment else least)
