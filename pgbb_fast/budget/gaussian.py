"""The report of a fit that is nothing but plain Gaussian releases of all records.

Adaptively composed Gaussian releases with noise multipliers m_i (standard deviation over half the sensitivity) are
together no less private than one release with the multiplier (sum_i m_i^-2)^(-1/2) (Dong, Roth and Su 2022, corollary
3.3; docs/geometry.md, section 2), so a budget is split into shares of mu^2 = sum_i (2 / m_i)^2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from pgbb_fast import validation as check
from pgbb_fast.accountant import SubsampledGaussian, epsilon, noise_multiplier
from pgbb_fast.accountant.remembered import remembered
from pgbb_fast.budget.report import (
    ADJACENCY,
    PLAIN,
    Circumstances,
    PrivacyReport,
    guarantee,
    require_guarantee,
    require_noise,
)
from pgbb_fast.errors import DomainError

__all__ = ["AnyReport", "GaussianReport", "multiplier_of", "report_of", "together"]

UP = 1.0 + 1e-12  # by which multipliers and sums of shares are rounded to the safe side
FEATURES, GRADIENT = "second moment of the features", "noisy clipped gradient"
SCORE = "second moment of the scores"
NAMES = (FEATURES, GRADIENT, SCORE)


@dataclass(frozen=True)
class GaussianReport(Circumstances):
    """What was spent: Gaussian releases, each of all records, and nothing else.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee: an upper bound of epsilon at ``delta``, never above the budget asked for.
    n : int
        Records, public.
    releases : tuple of SubsampledGaussian
        Groups of releases with one noise multiplier each (sampling rate 1), in their order.
    names : tuple of str
        What each group releases.
    adjacency : str
        "replace-one": two data sets of the same, public size that differ in the value of one record.
    budget : float, optional
        The epsilon that was asked for.
    """

    epsilon: float
    delta: float
    n: int
    releases: tuple[SubsampledGaussian, ...]
    names: tuple[str, ...]
    adjacency: str = ADJACENCY
    budget: float | None = None

    def recomputed(self) -> float:
        """Epsilon at ``delta`` of the releases named, by this version's accountant."""
        return epsilon(replace(PLAIN, noise_multiplier=self.multiplier), delta=self.delta)

    @property
    def gaussians(self) -> tuple[SubsampledGaussian, ...]:
        """All of its releases."""
        return self.releases

    @property
    def multiplier(self) -> float:
        """Noise multiplier of the one Gaussian release that all of them are together, rounded down."""
        return together(self.releases)

    @property
    def steps(self) -> int:
        """Releases in all, each a pass over the records."""
        return sum(release.steps for release in self.releases)

    def sentence(self) -> str:
        """The guarantee in a sentence, for a publication."""
        told, delta = guarantee(self)
        parts = "; ".join(
            f"{release.steps} of the {name}, noise multiplier {release.noise_multiplier:.6g}"
            for release, name in zip(self.releases, self.names, strict=True)
        )
        return (
            f"({told}, {delta})-differential privacy under {self.adjacency} adjacency (n = {self.n} public): "
            f"{self.steps} Gaussian releases, each of all records: {parts}."
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> GaussianReport:
        """Inverse of :meth:`to_dict`."""
        require_guarantee(values)
        releases = tuple(SubsampledGaussian(**release) for release in values["releases"])
        names = tuple(check.one_of("privacy", "names", name, NAMES) for name in values["names"])
        if not releases or len(names) != len(releases):
            raise DomainError("privacy: releases and names don't fit together")
        for release in releases:
            check.positive("privacy", "noise_multiplier", release.noise_multiplier)
            if release.sampling_rate != 1.0 or release.adjacency != ADJACENCY:
                raise DomainError("privacy: every release must be of all records, under replace-one adjacency")
        check.integer("privacy", "n", values["n"], 1)
        return cls(**{**values, "releases": releases, "names": names})


class AnyReport:
    """Reads a saved report of either kind."""

    @staticmethod
    def from_dict(values: dict[str, Any]) -> PrivacyReport | GaussianReport:
        """The report that :meth:`to_dict` of one of them wrote."""
        return GaussianReport.from_dict(values) if "releases" in values else PrivacyReport.from_dict(values)


def together(releases: Iterable[SubsampledGaussian]) -> float:
    """Noise multiplier of the one Gaussian release that calibrated ones of all records are together, rounded down."""
    return float(math.fsum(r.steps / float(r.noise_multiplier or 0.0) ** 2 for r in releases) ** -0.5 / UP)


@lru_cache(maxsize=64)
def multiplier_of(budget_epsilon: float, budget_delta: float) -> float:
    """Noise multiplier of one plain Gaussian release at the budget (standard deviation over half the sensitivity)."""

    def search() -> list[float]:
        return [noise_multiplier(PLAIN, epsilon=budget_epsilon, delta=budget_delta)]

    def holds(found: list[float]) -> float | None:
        within = epsilon(replace(PLAIN, noise_multiplier=float(found[0])), delta=budget_delta) <= budget_epsilon
        return float(found[0]) if within else None

    found = remembered("multiplier_of", [budget_epsilon, budget_delta], search, holds)
    if found is None:
        raise DomainError(f"multiplier_of: the accountant finds no noise for epsilon {budget_epsilon:.9g}")
    return found


def report_of(
    groups: Iterable[tuple[str, int, float]], *, n: int, budget_epsilon: float, budget_delta: float
) -> GaussianReport:
    """The report of groups of releases (name, steps, share of mu^2 of each step) whose shares sum to at most 1.

    Raises
    ------
    DomainError
        More noise or more records than the integers of a release hold.
    """
    whole = multiplier_of(budget_epsilon, budget_delta)
    releases, names = [], []
    for name, steps, share in groups:
        multiplier = whole * UP**2 / math.sqrt(share)
        require_noise("calibrate", n, multiplier)
        releases.append(replace(PLAIN, steps=steps, noise_multiplier=multiplier))
        names.append(name)
    all_of_them = together(releases)
    if not all_of_them >= whole:
        raise DomainError("report_of: the shares of the releases exceed the budget")
    # `whole` was found to be within the budget, and more noise than that is no less private
    spent = min(budget_epsilon, epsilon(replace(PLAIN, noise_multiplier=all_of_them), delta=budget_delta))
    return GaussianReport(spent, budget_delta, n, tuple(releases), tuple(names), budget=budget_epsilon)
