"""Private regression by the slope of the linear predictor alone: logistic, and a slope of the user's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb_fast import validation as check
from pgbb_fast.errors import DomainError
from pgbb_fast.estimators.base import Unit
from pgbb_fast.estimators.regression import PrivateRegressor
from pgbb_fast.intake.design import MAX_REACH, Design, interval
from pgbb_fast.kernels.arguments import NO_MAP, as_double
from pgbb_fast.losses import Loss, logistic, user_slope, with_curvature

__all__ = ["PrivateGeneralisedRegressor", "PrivateLogisticRegressor", "two_classes"]


def two_classes(who: str, classes: Any) -> tuple[float, float]:
    """Two different numbers (zero, one) that y is a class by, in either order."""
    ends = check.items(classes)
    if ends is None or len(ends) != 2:
        raise DomainError(f"{who}: classes must be two numbers (zero, one), got {check.shown(classes)}")
    zero, one = (check.real(who, f"classes[{i}]", end) for i, end in enumerate(ends))
    interval(who, "classes", (min(zero, one), max(zero, one)))
    return zero, one


class PrivateLogisticRegressor(PrivateRegressor):
    """Logistic regression of a class, one of two numbers.

    Parameters
    ----------
    classes : (zero, one)
        The two values of y, public: (0, 1) by default, (1, 2) for classes 1 and 2.  Coefficients are of the log odds of
        the second.  Any other y counts as the nearer of them (half way, as the first), silently, like a value outside
        bounds: that it occurs would be a release.  So classes 1 and 2 without a word of it would all count as 1.
    ridge : float
        Weight of |slopes|^2 / 2 beside the mean loss, on features mapped to [-1, 1].  It is public, so it takes no part
        in the clipped sum.
    **settings
        See :class:`PrivateRegressor` (without ``y_bounds``) and
        :class:`~pgbb_fast.estimators.base.PrivateEstimator`.  By default each feature moves the log odds by at most 10
        over its range.
    """

    _who = "PrivateLogisticRegressor"
    _classes = True
    _reach = 5.0

    def __init__(self, *, classes: tuple[float, float] = (0, 1), ridge: float = 0.0, **settings: Any) -> None:
        self.ridge = check.real(self._who, "ridge", ridge)
        if not 0.0 <= self.ridge <= MAX_REACH:
            raise DomainError(f"{self._who}: ridge must lie in [0, {MAX_REACH:g}], got {ridge!r}")
        self.classes = two_classes(self._who, classes)
        super().__init__(**settings)

    def _design(self, names: tuple[str, ...], bounds: NDArray[np.float64], degrees: tuple[int, ...]) -> Design:
        return Design(names, bounds, None, self.fit_intercept, degrees, self.classes)

    @property
    def _moments(self) -> int:
        """Only the scores' with a ridge: H then has not the shape of the features' moment."""
        return 1 if self.ridge > 0.0 else 2

    def _loss(self, n: int, p: int, reach: float) -> Loss:
        return logistic(self.ridge)


class PrivateGeneralisedRegressor(PrivateRegressor):
    """A generalised linear loss of your own, by its slope in the linear predictor eta = x'b (Poisson, probit, ...).

    It runs on the NumPy reference, one record at a time: some ten times slower than the built-in losses.

    Parameters
    ----------
    slope : callable
        (y, eta) -> d loss / d eta of one record, plain numbers.  It must not remember records or show them.  It is
        tried first, without records, over the public ranges of y and eta; later a record for which it fails or is not
        finite counts as zero, silently.
    slope_bound : float
        Stated bound of |slope|; what exceeds it is clipped with the whole gradient, so privacy does not rest on it.
    y_bounds : (low, high)
        Public bounds of y, which is passed on in its own units.
    eta_reach : float
        Public bound of the intercept and of each slope times half its feature's range, in units of eta.
    **settings
        See :class:`PrivateRegressor` and :class:`~pgbb_fast.estimators.base.PrivateEstimator`.
    """

    _who = "PrivateGeneralisedRegressor"
    _slow = True

    def __init__(
        self, *, slope: Callable[[float, float], float], slope_bound: float, eta_reach: float, **settings: Any
    ) -> None:
        super().__init__(**settings)
        self._own = user_slope(slope, slope_bound)
        self._reach = check.between(self._who, "eta_reach", eta_reach, 0.0, MAX_REACH)

    def _design(self, names: tuple[str, ...], bounds: NDArray[np.float64], degrees: tuple[int, ...]) -> Design:
        return Design(names, bounds, None, self.fit_intercept, degrees)

    def _unit_records(self, design: Design, X: NDArray[Any], y: NDArray[Any]) -> Unit:
        assert self.y_bounds is not None
        return design.unit_features(X), np.clip(as_double(y), *self.y_bounds).astype(np.float32), NO_MAP

    def _loss(self, n: int, p: int, reach: float) -> Loss:
        assert self.y_bounds is not None
        assert self._own.slope is not None
        ys = np.linspace(*self.y_bounds, 5).tolist()
        for y in ys:
            for eta in np.linspace(1.0 - reach, reach - 1.0, 9).tolist():
                if not math.isfinite(self._own.slope(y, eta)):
                    raise DomainError(f"{self._who}: slope({y:g}, {eta:g}) fails or is not finite")
        return with_curvature(self._own, ys, reach - 1.0, min(self._reach, reach - 1.0))
