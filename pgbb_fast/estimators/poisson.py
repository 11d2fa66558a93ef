"""Private Poisson regression of counts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pgbb_fast import validation as check
from pgbb_fast.errors import DomainError
from pgbb_fast.estimators.regression import PrivateRegressor
from pgbb_fast.intake.design import Design
from pgbb_fast.kernels.arguments import as_double
from pgbb_fast.losses.base import BENDS, Loss

__all__ = ["PrivatePoissonRegressor"]

Array = NDArray[np.float64]
LOG_RATE = 16.0  # largest, as far as the kernels' exponential goes
REACH = 5.0  # default bound of a log rate, and of what a feature moves it by over half its range


@dataclass(frozen=True)
class Poisson(Loss):
    """Poisson's negative log likelihood with a canonical link, over the counts' bound; constants are (b, 1/bound).

    With r = 1/bound the slope is r e^min(eta, b) - r y: in [-1, r e^b], since 0 <= y <= bound.  The second derivative
    is r e^eta up to b and 0 beyond.
    """

    one_slope: ClassVar[bool] = True

    @property
    def knows_curvature(self) -> bool:
        """r e^eta."""
        return True

    def curvature_at(self, eta: Array) -> Array:
        """r e^eta up to b, 0 beyond."""
        b, r = self.constants[0]
        return np.asarray(np.where(eta <= b, r * np.exp(np.minimum(eta, b)), 0.0))

    def range_of_quadratic(self, rule: int, f: float) -> float:
        """The rate changes by a factor e over a unit of eta."""
        return BENDS

    def curvature_limit(self, rule: int) -> float:
        """r e^b."""
        b, r = self.constants[0]
        return r * math.exp(b)

    def second_derivative(self, y: Array, eta: Array) -> Array:
        """r e^eta up to b, 0 beyond."""
        return self.curvature_at(eta)

    def natural_over_unit(self, response: float, features: Array) -> Array:
        """The bound."""
        return np.full(len(features), response)


@dataclass(frozen=True)
class _Counts(Design):
    """Features as ever; a count y enters as y / bound, and theta stays in units of the log rate."""

    bound: float = 1.0

    @property
    def maps(self) -> tuple[NDArray[np.float32] | None, NDArray[np.float32] | None]:
        """The kernels' maps; the kernels move what they get into [-1, 1], the loss what is negative to 0."""
        return super().maps[0], np.array([[1.0 / self.bound, 0.0]], dtype=np.float32)

    def unit_target(self, y: NDArray[Any]) -> NDArray[np.float32]:
        """The same in double precision."""
        return (np.clip(as_double(y), 0.0, self.bound) / self.bound).astype(np.float32)


class PrivatePoissonRegressor(PrivateRegressor):
    """Poisson regression of a count (or another amount of at least 0) with the log link: log E y = x'b.

    Intervals are those of a sandwich, so they hold for counts that are more, or less, dispersed than Poisson's.

    Parameters
    ----------
    y_bounds : (0, high)
        Public bounds of y; high at most e^16 = 8.9 million.  Counts above it count as it, and the noise is
        proportional to it: a high that next to no count exceeds is safe.
    rate_bound : float, optional
        Public bound of the fitted rate e^(x'b), by default ``high``.  Beyond it the loss goes on as a line, so a record
        whose rate is larger pulls with a slope that no longer grows.
    **settings
        See :class:`PrivateRegressor` and :class:`~pgbb_fast.estimators.base.PrivateEstimator`.  By default each feature
        moves the log rate by at most 10, or twice log high if that is more, over its range.
    """

    _who = "PrivatePoissonRegressor"

    def __init__(self, *, rate_bound: float | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        assert self.y_bounds is not None
        low, self._high = self.y_bounds
        if low != 0.0 or self._high > math.exp(LOG_RATE):
            raise DomainError(
                f"{self._who}: y_bounds must be (0, high) with high at most e^{LOG_RATE:g}, got {self.y_bounds}"
            )
        rate = self._high if rate_bound is None else check.positive(self._who, "rate_bound", rate_bound)
        if abs(math.log(rate)) > LOG_RATE:
            raise DomainError(f"{self._who}: rate_bound must lie between e^-{LOG_RATE:g} and e^{LOG_RATE:g}")
        self.rate_bound = rate_bound
        self._log_bound = math.log(rate)
        self._reach = max(REACH, abs(math.log(self._high)))

    @property
    def _y_radius(self) -> float:
        return self._high

    def _design(self, names: tuple[str, ...], bounds: Array, degrees: tuple[int, ...]) -> Design:
        return _Counts(names, bounds, None, self.fit_intercept, degrees, bound=self._high)

    def _loss(self, n: int, p: int, reach: float) -> Loss:
        unit = 1.0 / self._high
        slope_bound = max(1.0, math.exp(self._log_bound) * unit)
        return Poisson("poisson", constants=((self._log_bound, unit),), slope_bound=slope_bound)
