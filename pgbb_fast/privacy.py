"""What a fit spends: the mechanism is fixed and calibrated before any record is touched."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from pgbb_fast.accountant import BlockedGaussian, epsilon, noise_multiplier
from pgbb_fast.errors import DomainError, PrivacyError

__all__ = ["ADJACENCY", "PrivacyReport", "calibrate", "sampling_threshold"]

ADJACENCY = "replace-one"
WORD = 2**32


def sampling_threshold(who: str, rate: float) -> int:
    """The largest t with t / 2^32 <= ``rate``: records are drawn with probability at most t / 2^32, and less by at most
    one part in 2^25 (``kernels.scalar.sampling``); t / 2^32 is what the accountant is told."""
    threshold = math.floor(rate * WORD)
    if threshold < 1:
        raise DomainError(f"{who}: sampling_rate must be at least 2^-32, got {rate!r}")
    return threshold


@dataclass(frozen=True)
class PrivacyReport:
    """What was spent, on what, under which adjacency.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee: an upper bound of epsilon at ``delta``, never above the budget asked for.
    mechanism : BlockedGaussian
        Everything the guarantee rests on.
    adjacency : str
        "replace-one": two data sets of the same, public size that differ in the value of one record.
    """

    epsilon: float
    delta: float
    mechanism: BlockedGaussian
    adjacency: str = ADJACENCY

    def statement(self) -> str:
        """The guarantee in a sentence, for a publication."""
        m = self.mechanism
        return (
            f"({self.epsilon:.6g}, {self.delta:.6g})-differential privacy under {self.adjacency} adjacency "
            f"(n = {m.n} public): {m.steps} steps of {m.draws_per_step} noisy clipped gradient(s), Poisson sampling "
            f"rate {m.sampling_rate:.6g}, {m.n_blocks} blocks, noise multiplier {m.noise_multiplier:.6g}."
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> PrivacyReport:
        """Inverse of :meth:`to_dict`."""
        return cls(**{**values, "mechanism": BlockedGaussian(**values["mechanism"])})


def calibrate(mechanism: BlockedGaussian, *, budget_epsilon: float, budget_delta: float) -> PrivacyReport:
    """The least noise whose epsilon at ``budget_delta`` is within ``budget_epsilon``, and what it then spends."""
    multiplier = noise_multiplier(mechanism, epsilon=budget_epsilon, delta=budget_delta)
    calibrated = replace(mechanism, noise_multiplier=multiplier)
    spent = epsilon(calibrated, delta=budget_delta)
    if not spent <= budget_epsilon:
        raise PrivacyError(
            f"calibrate: the accountant gives epsilon {spent:.9g} for a budget of {budget_epsilon:.9g}; nothing was "
            "released. This is a defect of the accountant, please report it"
        )
    return PrivacyReport(spent, budget_delta, calibrated)
