r"""Budgets that hold however each release is chosen after earlier ones were seen.

An analyst looks at one fit before deciding on the next.  Composition theorems for mechanisms that are fixed in advance
say nothing then; these two do.

**Plain Gaussian releases.**  *Theorem* (Smith and Thakurta 2022, arXiv:2210.17520, and Koskela, Tobaben and Honkela
2022, arXiv:2209.15596).  Let the i-th release be Gaussian with :math:`\mu_i` (sensitivity over standard deviation)
chosen from the transcript of earlier ones, and :math:`\sum \mu_i^2 \le \mu^2` for *every* transcript, whenever one
stops.  The whole is as private as one Gaussian release with :math:`\mu`.

*Proof.*  Fix neighbours and epsilon, and let :math:`h(l, r) = E (1 - e^{\epsilon - l - r/2 - \sqrt{r} Z})^+`, Z a
standard normal: what a transcript of log likelihood ratio l and one more Gaussian release of :math:`\mu^2 = r`
contribute to the hockey-stick divergence at :math:`e^\epsilon`.  A release moves l by :math:`\theta^2/2 + \theta Z`
with :math:`\theta^2 \le \mu_i^2`.  Normal variables add, so :math:`E\,h(l + \theta^2/2 + \theta Z,\; r - \mu_i^2) =
h(l,\; r - \mu_i^2 + \theta^2)`, and h grows in r, since with more noise divergences fall (data processing); so that
is at most :math:`h(l, r)`.  By induction over releases, with R what is left when one stops, the divergence is
:math:`E (1 - e^{\epsilon - L})^+ = E\,h(L, 0) \le E\,h(L, R) \le h(0, \mu^2)`.

**Any releases.**  *Theorem* (basic composition as a filter: Rogers, Roth, Ullman and Vadhan 2016, arXiv:1605.08294).
If the i-th is :math:`(\epsilon_i, \delta_i)`-private, both chosen from the transcript, and both sums stay within
epsilon and delta for every transcript, the whole is (epsilon, delta)-private.

*Proof.*  By induction over the number of releases.  Given the first one's outcome y the rest is
:math:`(\epsilon - \epsilon_1, \delta - \delta_1)`-private, so with g(y) = min(1, e^{\epsilon - \epsilon_1} Q(S | y)),
P(S) is at most :math:`E_P\,g + \delta - \delta_1 \le e^{\epsilon_1} E_Q\,g + \delta \le e^\epsilon Q(S) + \delta`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pgbb_fast.accountant import Guarantee, SubsampledGaussian, epsilon
from pgbb_fast.budget.gaussian import UP, multiplier_of, together
from pgbb_fast.budget.report import PLAIN
from pgbb_fast.errors import BudgetError, DomainError, PrivacyError

__all__ = ["FILTERS", "BasicFilter", "Charge", "GaussianFilter"]

NOTHING = 1e-9  # share of a budget that counts as none
LOWER = 1.0 - 1e-9  # a share's epsilon is lowered by this until calibrations at it fit


@dataclass(frozen=True, kw_only=True)
class Charge:
    """What one fit, or a release of the user's own, takes from a budget.

    Attributes
    ----------
    label : str
        Who; never computed from records.
    epsilon, delta : float
        An upper bound of what it spends alone.
    gaussians : tuple of SubsampledGaussian
        Its releases where all of them are plain Gaussian ones (sampling rate 1, replace-one); else empty.
    """

    label: str
    epsilon: float
    delta: float
    gaussians: tuple[SubsampledGaussian, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.label, str):
            raise DomainError("Charge: label must be a string")
        if not 0.0 < self.epsilon < math.inf or not 0.0 <= self.delta < 1.0:
            raise DomainError("Charge: epsilon must be positive and finite, and delta lie in [0, 1)")
        for one in self.gaussians:
            if (one.sampling_rate, one.adjacency) != (1.0, PLAIN.adjacency) or one.noise_multiplier is None:
                raise DomainError("Charge: gaussians must be calibrated, of all records, under replace-one adjacency")


class GaussianFilter:
    """Plain Gaussian releases of any number and size, within one Gaussian release's mu^2 (first theorem)."""

    def __init__(self, guarantee: Guarantee) -> None:
        self._guarantee = guarantee
        self._whole = multiplier_of(guarantee.epsilon, guarantee.delta)

    def require(self, charge: Charge) -> None:
        """Refuse what this theorem doesn't cover."""
        if not charge.gaussians:
            raise PrivacyError(
                f"{charge.label}: its releases are not plain Gaussian ones of all records, which this budget is for; "
                "use Budget(..., accounting='basic')"
            )

    def holds(self, charges: Sequence[Charge]) -> bool:
        """Whether all of them are within the budget."""
        return _together(charges) >= self._whole

    def total(self, charges: Sequence[Charge]) -> tuple[float, float]:
        """Epsilon (an upper bound) of at least one charge at the budget's delta, and that delta."""
        delta = self._guarantee.delta
        return epsilon(replace(PLAIN, noise_multiplier=_together(charges)), delta=delta), delta

    def share(self, charges: Sequence[Charge], fits: int) -> tuple[float, float]:
        """Epsilon and delta that each of so many equal further fits may be asked for."""
        free, delta = self._whole**-2, self._guarantee.delta
        if charges:
            free -= _together(charges) ** -2 * UP
        if free * self._whole**2 > NOTHING:
            multiplier = math.sqrt(fits / free) * UP
            found = epsilon(replace(PLAIN, noise_multiplier=multiplier), delta=delta) * LOWER
            for _ in range(60):  # calibrations stop within their tolerance of the least noise
                if multiplier_of(found, delta) >= multiplier * UP:
                    return found, delta
                found *= 1.0 - 1e-6
        raise BudgetError("Budget.share: nothing is left")


def _together(charges: Sequence[Charge]) -> float:
    """Noise multiplier of the one Gaussian release that all of them are, rounded down."""
    return together(one for charge in charges for one in charge.gaussians)


class BasicFilter:
    """Releases of any kind, whose epsilons and deltas add up (second theorem)."""

    def __init__(self, guarantee: Guarantee) -> None:
        self._guarantee = guarantee

    def require(self, charge: Charge) -> None:
        """Everything is covered."""

    def holds(self, charges: Sequence[Charge]) -> bool:
        """Whether all of them are within the budget."""
        epsilon, delta = self.total(charges)
        return epsilon <= self._guarantee.epsilon and delta <= self._guarantee.delta

    def total(self, charges: Sequence[Charge]) -> tuple[float, float]:
        """Sums of epsilon and of delta, exact but for a last rounding, which is up."""
        return _sum_up([c.epsilon for c in charges]), _sum_up([c.delta for c in charges])

    def share(self, charges: Sequence[Charge], fits: int) -> tuple[float, float]:
        """Epsilon and delta that each of so many equal further fits may be asked for."""
        whole = (self._guarantee.epsilon, self._guarantee.delta)
        free = [all_ - part for all_, part in zip(whole, self.total(charges), strict=True)]
        if any(part <= NOTHING * all_ for all_, part in zip(whole, free, strict=True)):
            raise BudgetError("Budget.share: nothing is left")
        epsilon, delta = (part / fits * (1.0 - 4.0 * math.ulp(1.0)) for part in free)
        return epsilon, delta


def _sum_up(parts: Sequence[float]) -> float:
    """Their sum, exactly rounded, and up where there is more than one part."""
    total = math.fsum(parts)
    return math.nextafter(total, math.inf) if len(parts) > 1 else total


FILTERS: dict[str, type[GaussianFilter] | type[BasicFilter]] = {"gaussian": GaussianFilter, "basic": BasicFilter}
