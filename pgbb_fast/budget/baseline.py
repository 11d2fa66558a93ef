"""What a baseline spends, or that it gives no guarantee at all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from pgbb_fast import validation as check
from pgbb_fast.accountant import SubsampledGaussian, epsilon, noise_multiplier
from pgbb_fast.budget.report import ADJACENCY, Circumstances, Report, guarantee, require_accounted, require_guarantee
from pgbb_fast.errors import DomainError, PrivacyError

__all__ = ["BaselineReport", "EitherReport", "NoGuarantee", "calibrated", "share_multiplier"]

WHOLE = 1.0 - 1e-12  # shares are scaled by this, so that rounding can't make them add up to more than one


@dataclass(frozen=True)
class BaselineReport(Circumstances):
    """What the noisy sums of a baseline spend.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee: an upper bound of epsilon at ``delta``, never above the budget asked for.
    n : int
        Records, public.
    mechanism : SubsampledGaussian
        The releases; with ``sampling_rate`` and ``steps`` of 1, one Gaussian whose squared parameter mu^2 is divided
        among several releases by ``shares``.
    what : str
        What is released, in words.
    shares : tuple of float
        Shares of mu^2, adding up to at most 1.
    adjacency : str
        "replace-one".
    budget : float, optional
        The epsilon that was asked for.
    """

    epsilon: float
    delta: float
    n: int
    mechanism: SubsampledGaussian
    what: str
    shares: tuple[float, ...] = (1.0,)
    adjacency: str = ADJACENCY
    budget: float | None = None

    @property
    def gaussians(self) -> tuple[SubsampledGaussian, ...]:
        """The one Gaussian that is divided; empty where minibatches are drawn."""
        return (self.mechanism,) if self.mechanism.sampling_rate == 1.0 else ()

    def recomputed(self) -> float:
        """Epsilon at ``delta`` of the mechanism named, by this version's accountant."""
        return epsilon(self.mechanism, delta=self.delta)

    def sentence(self) -> str:
        """The guarantee in a sentence, for a publication."""
        m = self.mechanism
        epsilon, delta = guarantee(self)
        return (
            f"({epsilon}, {delta})-differential privacy under {self.adjacency} adjacency "
            f"(n = {self.n} public): {self.what}; {m.steps} step(s), Poisson sampling rate {m.sampling_rate:.6g}, "
            f"noise multiplier {m.noise_multiplier:.6g}."
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return asdict(self)


@dataclass(frozen=True)
class NoGuarantee:
    """The account of what is computed from records without noise: there is no privacy."""

    n: int

    @property
    def epsilon(self) -> float:
        """Infinite: no guarantee."""
        return math.inf

    @property
    def delta(self) -> float:
        """1: no guarantee."""
        return 1.0

    @property
    def budget(self) -> None:
        """None was asked for."""
        return None

    @property
    def adjacency(self) -> str:
        """None: no guarantee."""
        return "none"

    def recomputed(self) -> float:
        """Infinite: no guarantee."""
        return math.inf

    def statement(self) -> str:
        """That there is no guarantee."""
        return f"NOT PRIVATE: computed from {self.n} records without any noise; not for publication."

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {"guarantee": "none", "n": self.n}


class EitherReport:
    """Reads what ``to_dict`` of either report wrote."""

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Report:
        """Inverse of ``to_dict``."""
        if values.get("guarantee") == "none":
            return NoGuarantee(check.integer("privacy", "n", values["n"], 1))
        require_guarantee(values)
        check.integer("privacy", "n", values["n"], 1)
        mechanism, shares = SubsampledGaussian(**values["mechanism"]), tuple(values["shares"])
        require_accounted(mechanism)
        if not all(check.positive("privacy", "shares", share) for share in shares) or math.fsum(shares) > 1.0 + 1e-13:
            raise DomainError("privacy: shares must be positive and add up to at most 1")
        parts = {"mechanism": mechanism, "shares": shares, "what": str(values["what"])}
        return BaselineReport(**{**values, **parts})


@lru_cache(maxsize=64)
def calibrated(
    mechanism: SubsampledGaussian, *, budget_epsilon: float, budget_delta: float
) -> tuple[SubsampledGaussian, float]:
    """``mechanism`` with the least noise within the budget, and the epsilon that it then spends (upper bound)."""
    multiplier = noise_multiplier(mechanism, epsilon=budget_epsilon, delta=budget_delta)
    done = replace(mechanism, noise_multiplier=multiplier)
    total = epsilon(done, delta=budget_delta)
    if not total <= budget_epsilon:
        raise PrivacyError(
            f"calibrated: the accountant gives epsilon {total:.9g} for a budget of {budget_epsilon:.9g}; nothing was "
            "released. This is a defect of the accountant, please report it"
        )
    return done, total


def share_multiplier(mechanism: SubsampledGaussian, shares: Sequence[float], number: int) -> float:
    """Noise multiplier of release ``number`` when mu^2 of one plain Gaussian is divided by ``shares``.

    Gaussian mechanisms compose, adaptively too, to one with mu^2 = sum mu_j^2 (Dong, Roth and Su 2022, corollary 3.3);
    with mu = 2 / multiplier under replace-one, release j has the whole's multiplier over sqrt(share_j).
    """
    if mechanism.sampling_rate != 1.0 or mechanism.steps != 1 or mechanism.noise_multiplier is None:
        raise DomainError("share_multiplier: only one calibrated plain Gaussian can be divided")
    if not all(share > 0.0 for share in shares) or not math.fsum(shares) <= 1.0 + 1e-13:
        raise DomainError(f"share_multiplier: shares must be positive and add up to at most 1, got {list(shares)}")
    return mechanism.noise_multiplier / math.sqrt(WHOLE * shares[number])
