"""The posterior of private little bootstraps: an estimate and the two sides of an interval at one level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from pgbb_fast import validation as check
from pgbb_fast.budget.little import LittleReport
from pgbb_fast.coordinates import AffineMap
from pgbb_fast.errors import DomainError
from pgbb_fast.posteriors.base import Posterior, Shapes

__all__ = ["LittlePosterior"]

Array = NDArray[np.float64]


class LittlePosterior(Posterior):
    """An estimate and the sizes of the interval's two sides at one level, each as released.

    Draws are of the two-piece normal law (half below, half above the estimate) whose quantiles at that level are the
    interval's ends: the release says no more about the shape.
    """

    kind = "little-bootstraps"
    _report: ClassVar[Any] = LittleReport

    def __init__(
        self,
        estimate: Array,
        sides: Array,
        *,
        level: float,
        to_natural: AffineMap,
        names: Sequence[str],
        privacy: LittleReport,
        rules: Sequence[float] = (),
    ) -> None:
        super().__init__(rules=rules, to_natural=to_natural, names=names, privacy=privacy)
        self._estimate, self._sides, self.level = estimate, sides, level

    @property
    def _scales(self) -> Array:
        """Standard deviations below and above, (2, d)."""
        return np.asarray(self._sides / ndtri((1.0 + self.level) / 2.0))

    def interval(self, level: float = 0.95, **options: Any) -> Array:
        """The released interval at its own level; at others, scaled as a normal law's; (d, 2).  In units that mix the
        coordinates, quantiles of the draws instead."""
        z = float(ndtri((1.0 + check.between("interval", "level", level, 0.0, 1.0)) / 2.0))
        drawn = super().interval(level, **options) if options else None     # refuses options as the other kinds do
        matrix = self._to_natural.matrix
        if not np.array_equal(matrix, np.diag(np.diag(matrix))):
            return super().interval(level) if drawn is None else drawn
        below, above = z * self._scales
        ends = np.stack([self._estimate - below, self._estimate + above], axis=0)
        return np.asarray(self._to_natural(ends).T)

    def _unit_draws(self, size: int, rules: Sequence[float], rng: np.random.Generator) -> Array:
        z = rng.standard_normal((size, len(self._estimate)))
        return np.asarray(self._estimate + z * np.where(z < 0.0, *self._scales))[:, None, :]

    def _saved(self) -> tuple[dict[str, Array], dict[str, Any]]:
        return {"estimate": self._estimate, "sides": self._sides}, {"level": self.level}

    @classmethod
    def _shapes(cls, d: int, rules: int, settings: dict[str, Any]) -> Shapes:
        return {"estimate": (d,), "sides": (2, d)}

    @classmethod
    def _restored(cls, arrays: dict[str, Array], settings: dict[str, Any], common: dict[str, Any]) -> Self:
        check.between("little bootstraps", "level", settings["level"], 0.0, 1.0)
        if common["privacy"].medians != arrays["sides"].size or not (arrays["sides"] >= 0.0).all():
            raise DomainError("the sides are not the medians of the privacy report")
        return cls(arrays["estimate"], arrays["sides"], level=settings["level"], **common)
