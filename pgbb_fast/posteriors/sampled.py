"""A posterior that is a set of released draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.budget.baseline import EitherReport
from pgbb_fast.budget.report import Report
from pgbb_fast.coordinates import AffineMap
from pgbb_fast.errors import DomainError
from pgbb_fast.posteriors.base import Posterior, Shapes

__all__ = ["SampledPosterior"]

Array = NDArray[np.float64]


class SampledPosterior(Posterior):
    """Draws that a method has released (or, for a reference that is not private, computed).

    Parameters
    ----------
    sample : (m, L, d) array
        Draws in unit coordinates, L = 1 without rules.  A chain's draws may be dependent.
    rules, to_natural, names, privacy
        As for :class:`~pgbb_fast.posteriors.base.Posterior`.
    """

    kind = "sampled"
    _report = EitherReport

    def __init__(
        self, sample: Array, *, rules: Sequence[float], to_natural: AffineMap, names: Sequence[str], privacy: Report
    ) -> None:
        super().__init__(rules=rules, to_natural=to_natural, names=names, privacy=privacy)
        self._sample = sample

    @property
    def sample(self) -> Array:
        """All draws in natural units, in the order made: (m, d), or (m, L, d) for several rules."""
        natural = self._to_natural(self._sample)
        return natural if len(self.rules) > 1 else np.asarray(natural[:, 0])

    def _unit_draws(self, size: int, rules: Sequence[float], rng: np.random.Generator) -> Array:
        """Taken at random from the sample, without replacement as far as it goes."""
        unknown = [rule for rule in rules if rule not in self.rules]
        if unknown:
            raise DomainError(f"draws: this posterior has draws at the levels {list(self.rules)}, not at {unknown}")
        columns = [self.rules.index(rule) for rule in rules] or [0]
        take = rng.choice(len(self._sample), size, replace=size > len(self._sample))
        return np.asarray(self._sample[take][:, columns])

    def _saved(self) -> tuple[dict[str, Array], dict[str, Any]]:
        return {"sample": self._sample}, {}

    @classmethod
    def _shapes(cls, d: int, rules: int, settings: dict[str, Any]) -> Shapes:
        return {"sample": (-1, rules, d)}

    @classmethod
    def _restored(cls, arrays: dict[str, Array], settings: dict[str, Any], common: dict[str, Any]) -> Self:
        return cls(arrays["sample"], **common)
