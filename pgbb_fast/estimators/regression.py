"""Private regression: smoothed quantiles, Huber's M-estimator, expectiles."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pgbb_fast import validation as check
from pgbb_fast.budget import Budget
from pgbb_fast.coordinates import AffineMap
from pgbb_fast.errors import DataError, DomainError
from pgbb_fast.estimators.base import OnStep, Prepared, PrivateEstimator, Unit
from pgbb_fast.intake.design import (
    DEFAULT_REACH,
    Bounds,
    Design,
    given_bounds,
    interval,
    pairs,
)
from pgbb_fast.intake.records import features, given_names, require_finite, require_records, target
from pgbb_fast.local.prior import Prior
from pgbb_fast.losses import (
    QUANTILE_KERNELS,
    Loss,
    expectile,
    huber,
    huber_kappa,
    smoothed_quantile,
)
from pgbb_fast.release.devices import on_device
from pgbb_fast.silence import unseen

__all__ = [
    "PrivateExpectileRegressor",
    "PrivateHuberRegressor",
    "PrivateQuantileRegressor",
    "PrivateRegressor",
]

MAX_DEGREE = 6


def different(who: str, name: str, rules: float | Sequence[float]) -> tuple[float, ...]:
    """One rule or several different ones as a tuple."""
    several = check.items(rules)
    chosen = tuple(check.real(who, name, rule) for rule in ((rules,) if several is None else several))
    if not chosen or len(set(chosen)) != len(chosen):
        raise DomainError(f"{who}: {name} must be one or more different numbers, got {check.shown(rules)}")
    return chosen


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
    coef_prior : mapping from coefficient name to (mean, sd), optional
        Normal priors of coefficients in natural units, "intercept" and "scale" among the names, fixed in advance; the
        same for all rules.  A coefficient without one has a normal prior as wide as its bounds.  Where the releases say
        little an interval is the prior's.
    degrees : mapping from feature name to int, optional
        Features that enter with their powers up to a degree, {"exper": 2}.  X has the feature itself only; powers are
        made inside, on an orthogonal basis of the public range, and coefficients are reported for exper and exper^2.
    fit_intercept : bool
        Whether the model has an intercept.
    feature_names : sequence of str, optional
        Names of the features.  A data frame brings its own: names given besides must be the same and say the order, in
        which its columns are then read.
    **settings
        Budget and training: see :class:`~pgbb_fast.estimators.base.PrivateEstimator`.
    """

    _scale: ClassVar[bool] = False
    _no_scores = ""

    @property
    def _moments(self) -> int:
        """Of the scores, and of the features."""
        return 2

    _reach: float = DEFAULT_REACH
    _classes: ClassVar[bool] = False  # y is 0 or 1, and has no bounds of its own

    def __init__(
        self,
        *,
        x_bounds: Bounds,
        y_bounds: tuple[float, float] | None = None,
        coef_bounds: Bounds | None = None,
        coef_prior: Mapping[str, tuple[float, float]] | None = None,
        degrees: Mapping[str, int] | None = None,
        fit_intercept: bool = True,
        feature_names: Sequence[str] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        if self._classes and y_bounds is not None:
            raise DomainError(f"{self._who}: y is a class, 0 or 1; leave y_bounds out")
        if y_bounds is None and not self._classes:
            raise DomainError(f"{self._who}: y_bounds is required: a public (low, high), fixed in advance")
        self.x_bounds = given_bounds(self._who, "x_bounds", x_bounds)
        self.coef_bounds = None if coef_bounds is None else given_bounds(self._who, "coef_bounds", coef_bounds)
        self.fit_intercept = check.flag(self._who, "fit_intercept", fit_intercept)
        self.degrees = self._given_degrees({} if degrees is None else degrees)
        self.y_bounds = None if y_bounds is None else interval(self._who, "y_bounds", y_bounds)
        self.feature_names = given_names(self._who, "feature_names", feature_names)
        self.coef_prior = self._given_prior({} if coef_prior is None else coef_prior)

    def _given_prior(self, prior: Any) -> dict[str, tuple[float, float]]:
        if not isinstance(prior, Mapping) or not all(isinstance(name, str) for name in prior):
            raise DomainError(
                f"{self._who}: coef_prior must be a mapping from coefficient name to (mean, sd), such as "
                f"{{'educ': (0, 0.5)}}, got {check.shown(prior)}"
            )
        if prior and self.geometry != "scores":
            raise DomainError(f"{self._who}: coef_prior belongs to geometry='scores'; leave it out")
        found = {}
        for name, pair in prior.items():
            ends = check.items(pair)
            if ends is None or len(ends) != 2:
                raise DomainError(f"{self._who}: coef_prior[{name!r}] must be (mean, sd), got {check.shown(pair)}")
            mean = check.real(self._who, f"coef_prior[{name!r}][0]", ends[0])
            found[str(name)] = mean, check.positive(self._who, f"coef_prior[{name!r}][1]", ends[1])
        return found

    def _require_prior(self, names: tuple[str, ...]) -> None:
        unknown = sorted(set(self.coef_prior) - set(names))
        if unknown:
            raise DomainError(
                f"{self._who}: coef_prior names {unknown}, which are no coefficients; they are {list(names)}"
            )

    def _prior(self, box: NDArray[np.float64], to_natural: AffineMap, names: tuple[str, ...]) -> Prior:
        """Stated coefficients are independent of the others, which keep the box's law."""
        wide = Prior.of_box(box)
        if not self.coef_prior:
            return wide
        matrix, offset = to_natural.matrix, to_natural.offset
        mean, root = matrix @ wide.mean + offset, matrix @ wide.root
        covariance = root @ root.T
        for name, (centre, sd) in self.coef_prior.items():
            j = names.index(name)
            mean[j], covariance[j], covariance[:, j] = centre, 0.0, 0.0
            covariance[j, j] = sd**2
        scale = np.sqrt(np.diag(covariance))
        root = scale[:, None] * np.linalg.cholesky(covariance / np.outer(scale, scale))
        unit = np.linalg.solve(matrix, mean - offset), np.linalg.solve(matrix, root)
        return Prior(np.asarray(unit[0], dtype=np.float64), np.asarray(unit[1], dtype=np.float64))

    def _given_degrees(self, degrees: Any) -> dict[str, int]:
        if not isinstance(degrees, Mapping) or not all(isinstance(name, str) for name in degrees):
            raise DomainError(
                f"{self._who}: degrees must be a mapping from feature name to degree, such as {{'exper': 2}}, got "
                f"{check.shown(degrees)}"
            )
        return {
            str(name): check.integer(self._who, f"degrees[{name!r}]", degree, 1, MAX_DEGREE)
            for name, degree in degrees.items()
        }

    @abstractmethod
    def _loss(self, n: int, p: int, reach: float) -> Loss:
        """The loss in unit coordinates; ``reach`` bounds |y - x'b| over the records' domain and the box of b."""

    def _design(self, names: tuple[str, ...], bounds: NDArray[np.float64], degrees: tuple[int, ...]) -> Design:
        return Design(names, bounds, self.y_bounds, self.fit_intercept, degrees)

    def _unit_records(self, design: Design, X: NDArray[Any], y: NDArray[Any]) -> Unit:
        return design.unit_records(X, y)

    @property
    def _y_radius(self) -> float:
        """Units of y in one unit coordinate."""
        if self.y_bounds is None:
            return 1.0
        low, high = self.y_bounds
        return (high - low) / 2 if self.fit_intercept else max(abs(low), abs(high))

    def _public(self, n: int, names: tuple[str, ...]) -> tuple[Design, NDArray[np.float64], Loss]:
        """The map of the records, the public box of theta and the loss, for n records of the features ``names``."""
        degrees = tuple(self.degrees.get(name, 1) for name in names)
        design = self._design(names, pairs(self._who, "x_bounds", self.x_bounds, names), degrees)
        box = design.box(self._who, self.coef_bounds, self._scale, self._reach)
        linear = box[: len(box) - self._scale]
        return design, box, self._loss(n, sum(degrees), 1.0 + float(np.abs(linear).max(axis=1).sum()))

    def _planned(self, n: int) -> tuple[Loss, int]:
        names = tuple(self.x_bounds) if isinstance(self.x_bounds, Mapping) else self.feature_names
        if names is None:
            names = tuple(self.degrees) + tuple(f"x{j}" for j in range(len(self.x_bounds)))
        _, box, loss = self._public(n, names[: len(self.x_bounds)])
        return loss, len(box)

    @unseen()
    def fit(self, X: Any, y: Any, *, on_step: OnStep | None = None, budget: Budget | None = None) -> Self:
        """Spend the budget on the records and keep the released posterior.

        Parameters
        ----------
        X : (n, p) array, tensor or data frame
            Finite real features: a NumPy array, what becomes one (``__array__``, buffers), a torch tensor, a pandas or
            polars frame, an Arrow table or record batch, a structured array, or a list of rows.  Columns of text,
            categories or dates, and missing values, are refused; so are sparse matrices and queries not yet run.

            Read where they are, without a copy, when the type is float64, float32, float16, bfloat16, bool or an
            integer of up to 16 bits or int32, the same for all columns; rows or columns lie together in memory; and no
            feature has a degree above 1 (``Design.unit_records`` has the rest).  Otherwise ``fit`` makes a copy of p
            float32 numbers a record.  Either way the same numbers give the same releases, whatever their type.  Arrays
            on a GPU (torch, CuPy, DLPack) are read in place, both X and y.
        y : (n,) array
            Finite real response, likewise.  Where X and y are both pandas objects their row labels must be the same.
        on_step : callable, optional
            Called with the number of steps done (public).
        budget : Budget, optional
            A budget shared by several fits of these records: charged before the first release, and what it doesn't hold
            is refused before a record is touched.

        Raises
        ------
        DataError
            Wrong shape or type, or a value that is nan or infinite.  Nothing was computed and nothing spent.
        DomainError, PrivacyError
            A setting is out of its domain, or the guarantee can't be given.  Nothing was spent.
        """
        self._run(self._prepare(X, y), on_step, budget)
        return self

    def _prepare(self, X: Any, y: Any) -> Prepared:
        who = self._who
        array, names = features(who, X, len(self.x_bounds), self.feature_names)
        response = target(who, y, len(array), X)
        n = len(array)
        unknown = sorted(set(self.degrees) - set(names))
        if unknown:
            raise DomainError(f"{who}: degrees names {unknown}, which are no features; they are {list(names)}")
        require_records(who, n, self._fewest)
        design, box, loss = self._public(n, names)
        self._require_prior(design.theta_names(self._scale))

        in_place = on_device(array)
        if on_device(response) != in_place:
            raise DataError(f"{who}: of X and y one is on a GPU and the other on the host; pass both from one place")
        if in_place and (self._classes or self._slow):
            raise DataError(f"{who}: X and y are on a GPU; this estimator takes host arrays")
        if in_place:
            design.require_on_device(who)

        def unit() -> Unit:
            require_finite(who, X=array, y=response)
            found = design.device_records if in_place else lambda x, y: self._unit_records(design, x, y)
            return found(array, response)

        return Prepared(
            unit,
            n,
            loss,
            clip=loss.gradient_bound(design.feature_bound),
            intercept=self.fit_intercept,
            box=box,
            to_natural=design.to_natural(self._scale),
            names=design.theta_names(self._scale),
            design_bound=design.feature_bound if self._moments == 2 else None,
            in_place=in_place,
            y_radius=self._y_radius,
        )


class PrivateQuantileRegressor(PrivateRegressor):
    """Quantile regression with a convolution-smoothed check loss, at one level or jointly over several.

    Parameters
    ----------
    tau : float or sequence of float
        Quantile level(s), each in (0, 1).  One budget pays for all of them (docs/method.md section 5).
    bandwidth : float, optional
        Bandwidth h of the smoothing, in units of y.  By default one 64th of half the range of y times
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
        self.tau = tuple(check.between(self._who, "tau", level, 0.0, 1.0) for level in different(self._who, "tau", tau))
        self.bandwidth = None if bandwidth is None else check.positive(self._who, "bandwidth", bandwidth)
        self.kernel = check.one_of(self._who, "kernel", kernel, QUANTILE_KERNELS)

    @property
    def _rules(self) -> int:
        return len(self.tau)

    def _loss(self, n: int, p: int, reach: float) -> Loss:
        default = 0.015625 * min(1.0, (p + 1 + math.log(n)) / n) ** 0.4
        h = default if self.bandwidth is None else self.bandwidth / self._y_radius
        return smoothed_quantile(self.tau, h, self.kernel)


class PrivateHuberRegressor(PrivateRegressor):
    """Huber's robust regression with concomitant scale (theta ends with ``scale``).

    Parameters
    ----------
    c : float or sequence of float
        Huber's constant(s), in units of the scale.  One budget pays for several (docs/method.md section 5).
    kappa : float, optional
        Consistency constant of the scale, for a single c; by default E psi_c(Z)^2, Z standard normal.
    **settings
        See :class:`PrivateRegressor` and :class:`~pgbb_fast.estimators.base.PrivateEstimator`.
    """

    _who = "PrivateHuberRegressor"
    _scale = True

    def __init__(self, *, c: float | Sequence[float] = 1.345, kappa: float | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.c = tuple(check.positive(self._who, "c", one) for one in different(self._who, "c", c))
        if kappa is not None and len(self.c) > 1:
            raise DomainError(f"{self._who}: kappa belongs to a single c; leave it out")
        self.kappa = (
            tuple(huber_kappa(one) for one in self.c) if kappa is None else (check.positive(self._who, "kappa", kappa),)
        )

    @property
    def _rules(self) -> int:
        return len(self.c)

    def _loss(self, n: int, p: int, reach: float) -> Loss:
        return huber(self.c, self.kappa)


class PrivateExpectileRegressor(PrivateRegressor):
    """Expectile regression, at one level or jointly over several (Newey and Powell 1987).

    Parameters
    ----------
    level : float or sequence of float
        Expectile level(s), each in (0, 1); .5 is least squares.  One budget pays for all of them.
    residual_bound : float, optional
        Size of a residual, in units of y, beyond which the loss's slope is constant (an M-quantile's); the gradient's
        bound is max(level, 1 - level) times it.  By default a quarter of the range of y.  math.inf stands for the
        largest residual over ``y_bounds`` and the whole box of b, half the range plus the largest |x'b|: then the loss
        is the expectile's own for every record, and the noise larger accordingly.
    **settings
        See :class:`PrivateRegressor` and :class:`~pgbb_fast.estimators.base.PrivateEstimator`.
    """

    _who = "PrivateExpectileRegressor"

    def __init__(
        self, *, level: float | Sequence[float] = 0.5, residual_bound: float | None = None, **settings: Any
    ) -> None:
        super().__init__(**settings)
        self.level = tuple(
            check.between(self._who, "level", one, 0.0, 1.0) for one in different(self._who, "level", level)
        )
        if residual_bound is not None and not (isinstance(residual_bound, float) and residual_bound == math.inf):
            residual_bound = check.positive(self._who, "residual_bound", residual_bound)
        self.residual_bound = residual_bound

    @property
    def _rules(self) -> int:
        return len(self.level)

    def _loss(self, n: int, p: int, reach: float) -> Loss:
        wanted = 0.5 if self.residual_bound is None else self.residual_bound / self._y_radius
        return expectile(self.level, min(wanted, reach))
