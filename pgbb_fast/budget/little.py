"""What private little bootstraps spend: exponential mechanisms for medians, one Gaussian release for the estimate."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from pgbb_fast import validation as check
from pgbb_fast.accountant.orders import epsilon_from_moments
from pgbb_fast.accountant.roots import bracket_root
from pgbb_fast.budget.report import ADJACENCY, Circumstances, guarantee, outward, require_guarantee

__all__ = ["LittleReport", "calibrate", "concentrated", "spent"]


@dataclass(frozen=True)
class LittleReport(Circumstances):
    """What was spent: ``medians`` exponential mechanisms of ``median_epsilon`` each, and one Gaussian release.

    Attributes
    ----------
    epsilon, delta : float
        An upper bound of epsilon at ``delta`` for everything together.
    estimate_multiplier : float
        Noise of the estimate over its sensitivity.
    budget : float, optional
        The epsilon that was asked for.
    """

    epsilon: float
    delta: float
    medians: int
    median_epsilon: float
    estimate_multiplier: float
    n: int
    subsets: int
    adjacency: str = ADJACENCY
    budget: float | None = None

    def recomputed(self) -> float:
        """Epsilon at ``delta`` of the mechanisms named, by this version's accountant."""
        return spent(concentrated(self.medians, self.median_epsilon, self.estimate_multiplier), self.delta)

    def sentence(self) -> str:
        """The guarantee in a sentence, for a publication."""
        epsilon, delta = guarantee(self)
        return (
            f"({epsilon}, {delta})-differential privacy under {self.adjacency} adjacency "
            f"(n = {self.n} public): one noisy estimate, noise multiplier {self.estimate_multiplier:.6g}, and "
            f"{self.medians} medians over {self.subsets} subsets by the exponential mechanism, each "
            f"{outward(self.median_epsilon)}-differentially private."
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> LittleReport:
        """Inverse of :meth:`to_dict`."""
        require_guarantee(values)
        for name in ("median_epsilon", "estimate_multiplier"):
            check.positive("privacy", name, values[name])
        for name, least in (("medians", 2), ("n", 1), ("subsets", 3)):
            check.integer("privacy", name, values[name], least)
        return cls(**values)


def concentrated(medians: int, median_epsilon: float, estimate_multiplier: float) -> float:
    """rho of zero-concentrated differential privacy: medians eps^2 / 8 + 1 / (2 nu^2).

    An exponential mechanism that is eps-private by its utility's sensitivity is eps-bounded-range, hence
    eps^2/8-zCDP (Cesar and Rogers 2021, ALT, PMLR 132); the Gaussian: Bun and Steinke (2016), proposition 1.6.
    """
    return medians * median_epsilon**2 / 8.0 + 0.5 / estimate_multiplier**2


def spent(rho: float, delta: float) -> float:
    """Epsilon at ``delta`` of rho-zCDP: Renyi moments order (order - 1) rho, converted as in accountant.orders."""
    return epsilon_from_moments(lambda order: order * (order - 1.0) * rho, delta, "cks")


def calibrate(n: int, subsets: int, medians: int, *, epsilon: float, delta: float, share: float) -> LittleReport:
    """``share`` of the budget's rho to the estimate, the rest evenly to the medians; within the budget, to 1e-5."""

    def excess(log_inverse: float) -> float:
        got = spent(math.exp(-log_inverse), delta)
        return math.log(got / epsilon) if got > 0.0 else -math.inf

    rho = math.exp(-bracket_root(excess, 0.0, who="BLBQuantiles", low=-20.0, high=60.0).good)
    each = math.sqrt(8.0 * rho * (1.0 - share) / medians) * (1.0 - 1e-12)
    multiplier = math.sqrt(0.5 / (rho * share)) * (1.0 + 1e-12)
    total = spent(concentrated(medians, each, multiplier), delta)
    return LittleReport(total, delta, medians, each, multiplier, n, subsets, budget=epsilon)
