"""Private regression: smoothed quantiles and Huber's M-estimator."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pgbb_fast import validation as check
from pgbb_fast.devices import on_device
from pgbb_fast.errors import DataError, DomainError
from pgbb_fast.estimators.base import OnStep, PrivateEstimator
from pgbb_fast.estimators.design import Bounds, Design, pairs
from pgbb_fast.estimators.records import feature_names, features, require_finite, require_records, target
from pgbb_fast.kernels.arguments import NO_MAP
from pgbb_fast.losses import QUANTILE_KERNELS, Loss, huber, smoothed_quantile

__all__ = ["PrivateHuberRegressor", "PrivateQuantileRegressor"]

MOST_DEGREE = 6


class PrivateRegressor(PrivateEstimator):
    """A linear model of y on X, with public bounds.

    Parameters
    ----------
    x_bounds : sequence of (low, high), or mapping from feature name to (low, high)
        Public bounds of each feature, fixed in advance.  Values outside count as the nearest bound.
    y_bounds : (low, high)
        Public bounds of y, likewise.
    coef_bounds : sequence or mapping of (low, high), optional
        Public bounds of each slope, in natural units.  By default no feature moves y by more than twice its range.
    degrees : mapping from feature name to int, optional
        Features that enter with their powers up to a degree, {"exper": 2}.  X has the feature itself only; powers are
        made inside, on an orthogonal basis of the public range, and coefficients are reported for exper and exper^2.
    fit_intercept : bool
        Whether the model has an intercept.
    feature_names : sequence of str, optional
        Names of the features; a data frame brings its own.
    **settings
        Budget and training: see :class:`~pgbb_fast.estimators.base.PrivateEstimator`.
    """

    _scale: ClassVar[bool] = False

    def __init__(
        self,
        *,
        x_bounds: Bounds,
        y_bounds: tuple[float, float],
        coef_bounds: Bounds | None = None,
        degrees: Mapping[str, int] | None = None,
        fit_intercept: bool = True,
        feature_names: Sequence[str] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        if y_bounds is None:
            raise DomainError(f"{self._who}: y_bounds is required: a public (low, high), fixed in advance")
        self.x_bounds, self.coef_bounds, self.fit_intercept = x_bounds, coef_bounds, bool(fit_intercept)
        self.degrees = {
            name: check.integer(self._who, f"degrees[{name!r}]", degree, 1, MOST_DEGREE)
            for name, degree in (degrees or {}).items()
        }
        self.y_bounds = check.ordered_pair(self._who, "y_bounds", y_bounds)
        self.feature_names = None if feature_names is None else tuple(feature_names)
        if x_bounds is None or not hasattr(x_bounds, "keys"):
            pairs(self._who, "x_bounds", x_bounds)

    @abstractmethod
    def _loss(self, n: int, p: int) -> Loss:
        """The loss in unit coordinates."""

    def fit(self, X: Any, y: Any, *, on_step: OnStep | None = None) -> Self:
        """Spend the budget on the records and keep the released posterior.

        Parameters
        ----------
        X : (n, p) array or data frame
            Finite real features.  Arrays on a GPU (torch, CuPy, DLPack) are read in place, both X and y.
        y : (n,) array
            Finite real response.
        on_step : callable, optional
            Called with the number of steps done (public).

        Raises
        ------
        DataError
            Wrong shape or type, or a value that is nan or infinite.  Nothing was computed and nothing spent.
        DomainError, PrivacyError
            A setting is out of its domain, or the guarantee can't be given.  Nothing was spent.
        """
        who = self._who
        array = features(who, X, len(self.x_bounds))
        response = target(who, y, len(array))
        n = len(array)
        names = feature_names(who, X, self.feature_names, array.shape[1])
        unknown = sorted(set(self.degrees) - set(names))
        if unknown:
            raise DomainError(f"{who}: degrees names {unknown}, which are no features; they are {list(names)}")
        degrees = tuple(self.degrees.get(name, 1) for name in names)
        bounds = pairs(who, "x_bounds", self.x_bounds, names)
        design = Design(names, bounds, self.y_bounds, self.fit_intercept, degrees)
        box = design.box(who, self.coef_bounds, self._scale)
        require_records(who, n, self.n_blocks)
        loss = self._loss(n, sum(degrees))

        in_place = on_device(array)
        if on_device(response) != in_place:
            raise DataError(f"{who}: of X and y one is on a GPU and the other on the host; pass both from one place")
        table_map = design.affine_map(who) if in_place else NO_MAP

        def unit() -> tuple[Any, Any, NDArray[np.float32]]:
            require_finite(who, X=array, y=response)
            if in_place:
                return array, response, table_map
            return design.unit_features(array), design.unit_target(response), NO_MAP

        self._run(
            unit,
            n,
            loss,
            clip=loss.gradient_bound(design.feature_bound),
            intercept=self.fit_intercept,
            box=box,
            to_natural=design.to_natural(self._scale),
            names=design.theta_names(self._scale),
            on_step=on_step,
            in_place=in_place,
        )
        return self


class PrivateQuantileRegressor(PrivateRegressor):
    """Quantile regression with a convolution-smoothed check loss, at one level or jointly over several.

    Parameters
    ----------
    tau : float or sequence of float
        Quantile level(s), each in (0, 1).  One budget pays for all of them (method.md section 5).
    bandwidth : float, optional
        Bandwidth h of the smoothing, in units of y.  By default a quarter of half the range of y times
        ((p + 1 + log n) / n)^0.4, the rate of Tan, Wang and Zhou (2022); it depends on public numbers only.
    kernel : {"gaussian", "logistic"}
        Smoothing kernel.
    **settings
        See :class:`PrivateRegressor` and :class:`~pgbb_fast.estimators.base.PrivateEstimator`.

    Examples
    --------
    >>> model = PrivateQuantileRegressor(tau=0.5, x_bounds=[(0, 20)], y_bounds=(2, 12), epsilon=1.0, delta=1e-5)
    >>> model.fit(X, y).posterior_.summary()                                    # doctest: +SKIP
    """

    _who = "PrivateQuantileRegressor"

    def __init__(
        self,
        *,
        tau: float | Sequence[float] = 0.5,
        bandwidth: float | None = None,
        kernel: str = "gaussian",
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        levels = (tau,) if isinstance(tau, (int, float)) else tuple(tau)
        if not levels or len(set(levels)) != len(levels):
            raise DomainError(f"{self._who}: tau must be one or more different levels, got {tau!r}")
        self.tau = tuple(check.between(self._who, "tau", level, 0.0, 1.0) for level in levels)
        self.bandwidth = None if bandwidth is None else check.positive(self._who, "bandwidth", bandwidth)
        self.kernel = check.one_of(self._who, "kernel", kernel, QUANTILE_KERNELS)

    @property
    def _rules(self) -> int:
        return len(self.tau)

    def _loss(self, n: int, p: int) -> Loss:
        low, high = self.y_bounds
        radius = (high - low) / 2 if self.fit_intercept else max(abs(low), abs(high))
        default = 0.25 * min(1.0, (p + 1 + math.log(n)) / n) ** 0.4
        h = default if self.bandwidth is None else self.bandwidth / radius
        return smoothed_quantile(self.tau, h, self.kernel)


class PrivateHuberRegressor(PrivateRegressor):
    """Huber's robust regression with concomitant scale (theta ends with ``scale``).

    Parameters
    ----------
    c, kappa : float
        Huber's constant (in units of the scale) and the consistency constant of the scale.
    **settings
        See :class:`PrivateRegressor` and :class:`~pgbb_fast.estimators.base.PrivateEstimator`.
    """

    _who = "PrivateHuberRegressor"
    _scale = True

    def __init__(self, *, c: float = 1.345, kappa: float = 0.71, **settings: Any) -> None:
        super().__init__(**settings)
        self.c = check.positive(self._who, "c", c)
        self.kappa = check.positive(self._who, "kappa", kappa)

    def _loss(self, n: int, p: int) -> Loss:
        return huber(self.c, self.kappa)
