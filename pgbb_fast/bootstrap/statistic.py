"""What is bootstrapped: estimates with a stated sensitivity l / m to replacing one of their m records.

The privacy of everything in this package rests on that number.  :class:`Mean` and :class:`RegularisedRegression` come
with a proof; :class:`Custom` takes the user's word.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb_fast import validation as check
from pgbb_fast.bootstrap.solver import Curve, Rows, accuracy, huber_curve, logistic_curve, minimise
from pgbb_fast.coordinates import AffineMap
from pgbb_fast.errors import DataError, DomainError
from pgbb_fast.estimators.generalised import two_classes
from pgbb_fast.intake.design import Bounds, Design, different_names, interval, pairs
from pgbb_fast.intake.records import features, given_names, require_finite, require_host, target
from pgbb_fast.kernels.arguments import as_double
from pgbb_fast.release.statistic import ROUNDING, Indices, Task
from pgbb_fast.silence import FAILURES

__all__ = ["Custom", "Mean", "RegularisedRegression", "Statistic"]

Array = NDArray[np.float64]
RECORD_BITS = 30  # a mean's records are rounded to their range / 2^30, and added as integers


class Statistic(ABC):
    """Base of the statistics."""

    @property
    @abstractmethod
    def l(self) -> float:  # noqa: E743
        """l of the sensitivity l / m."""

    @abstractmethod
    def task(self, who: str, X: Any, y: Any) -> Task:
        """Shapes and settings checked; no record's value is looked at."""


def _names(who: str, x_bounds: Any, names: Any) -> tuple[str, ...] | None:
    """Names given, or those of bounds by name."""
    if names is None and isinstance(x_bounds, Mapping):
        names = x_bounds.keys()
    return given_names(who, "feature_names", names)


def _require_one_each(who: str, names: tuple[str, ...] | None, bounds: Array) -> None:
    if names is not None and len(names) != len(bounds):
        raise DomainError(f"{who}: got {len(names)} names for {len(bounds)} bounds")


def _chosen(array: NDArray[Any], index: Indices | None) -> NDArray[Any]:
    return array[None] if index is None else array[index]


class Mean(Statistic):
    """The mean of each column over public bounds; l is the norm of the ranges (replacing one record).

    Parameters
    ----------
    x_bounds : sequence of (low, high)
        Public bounds of each column, fixed in advance; values outside count as the nearest bound (the mean of a
        truncated law is that of records which lie inside).
    """

    def __init__(self, x_bounds: Bounds, feature_names: Sequence[str] | None = None) -> None:
        self._names = _names("Mean", x_bounds, feature_names)
        self._bounds = pairs("Mean", "x_bounds", x_bounds, self._names)
        _require_one_each("Mean", self._names, self._bounds)

    @property
    def l(self) -> float:  # noqa: E743
        return float(np.linalg.norm(self._bounds[:, 1] - self._bounds[:, 0]))

    def task(self, who: str, X: Any, y: Any) -> Task:
        require_host(who, X=X)
        array, names = features(who, X, len(self._bounds), self._names)
        _some(who, len(array))
        low, width = self._bounds[:, 0], self._bounds[:, 1] - self._bounds[:, 0]
        top = 1 << RECORD_BITS

        def load() -> NDArray[np.int64]:
            require_finite(who, X=array)
            inside = np.clip(as_double(array), self._bounds[:, 0], self._bounds[:, 1])
            return np.rint((inside - low) / width * top).astype(np.int64)

        def above(records: NDArray[np.int64], index: Indices | None) -> Array:
            chosen = _chosen(records, index)
            return np.asarray(chosen.sum(axis=1) / (chosen.shape[1] * top) * width)

        d = len(low)
        return Task(
            len(array),
            names,
            self.l,
            lambda m: self.l / m + _rounding(self._bounds),
            self._bounds,
            AffineMap(np.eye(d), np.zeros(d)),
            load,
            above,
        )


class RegularisedRegression(Statistic):
    """Logistic or Huber regression with a ridge inside the mean: (1/m) sum loss(y, x'b) + (ridge/2) |b|^2.

    l = 2 A B_x / ridge, with |slope| <= A and |x| <= B_x (Chaudhuri, Monteleoni and Sarwate 2011, corollary 8):
    the estimate itself is what has this sensitivity, so the ridge is part of the target.  Features are mapped to
    [-1, 1] and the ridge is on their coefficients there, the intercept's included.

    Parameters
    ----------
    x_bounds : sequence of (low, high)
    ridge : float
        Positive.
    loss : {"logistic", "huber"}
        Two classes, or rho_c.
    y_bounds : (low, high), optional
        For Huber's loss, public bounds of y.
    c : float
        Huber's constant, in units of y.
    classes : (zero, one)
        For the logistic loss, the two values of y, public; any other counts as the nearer.
    """

    def __init__(
        self,
        x_bounds: Bounds,
        ridge: float,
        loss: str = "logistic",
        *,
        y_bounds: tuple[float, float] | None = None,
        c: float | None = None,
        fit_intercept: bool = True,
        feature_names: Sequence[str] | None = None,
        classes: tuple[float, float] = (0, 1),
    ) -> None:
        who = "RegularisedRegression"
        check.one_of(who, "loss", loss, ("logistic", "huber"))
        if (loss == "huber") != (y_bounds is not None and c is not None):
            raise DomainError(f"{who}: y_bounds and c belong to the huber loss, which needs both")
        self._names = _names(who, x_bounds, feature_names)
        bounds = pairs(who, "x_bounds", x_bounds, self._names)
        _require_one_each(who, self._names, bounds)
        self._ridge = check.positive(who, "ridge", ridge)
        ends = None if y_bounds is None else interval(who, "y_bounds", y_bounds)
        given = self._names or tuple(f"x{j + 1}" for j in range(len(bounds)))
        intercept = check.flag(who, "fit_intercept", fit_intercept)
        self._design = Design(given, bounds, ends, intercept, (1,) * len(bounds), two_classes(who, classes))
        self._c = None if c is None else check.positive(who, "c", c)

    @property
    def _curve(self) -> Curve:
        return logistic_curve() if self._c is None else huber_curve(self._c / self._design.y_map[1])

    @property
    def _reach(self) -> float:
        """Bound of |b|: at the minimum ridge |b| = |mean slope x| <= A B_x."""
        return self._curve.slope_bound * self._design.feature_bound / self._ridge

    @property
    def l(self) -> float:  # noqa: E743
        return 2.0 * self._reach

    def task(self, who: str, X: Any, y: Any) -> Task:
        design = self._design
        require_host(who, X=X, y=y)
        array, names = features(who, X, len(design.x_bounds), self._names)
        _some(who, len(array))
        response = target(who, y, len(array), X)
        first = int(design.intercept)
        d = first + array.shape[1]
        off = accuracy(self._curve, self._ridge, design.feature_bound, d)

        def load() -> tuple[Array, Array]:
            require_finite(who, X=array, y=response)
            unit = design.unit_features(array).astype(np.float64)
            x = np.column_stack([np.ones(len(unit)), unit]) if first else unit
            return x, design.unit_target(response).astype(np.float64)

        box = np.tile([-self._reach, self._reach], (d, 1))

        def above(records: tuple[Array, Array], index: Indices | None) -> Array:
            x, t = records
            if index is None:
                rows = Rows(x, t, np.ones((1, len(x))))
            elif 4 * index.shape[1] >= len(x):
                place = index + len(x) * np.arange(len(index))[:, None]
                count = np.bincount(place.reshape(-1), minlength=len(index) * len(x)).reshape(len(index), len(x))
                used = count.any(axis=0)
                rows = Rows(x[used], t[used], count[:, used].astype(np.float64))
            else:
                rows = Rows(x[index], t[index])
            return minimise(rows, self._curve, self._ridge, design.feature_bound) + self._reach

        return Task(
            len(array),
            different_names((("intercept",) if first else ()) + names),
            self.l,
            # two estimates, each within |grad| / ridge of the minimum
            lambda m: self.l * (1.0 / m + off) + _rounding(box),
            box,
            design.to_natural(False),
            load,
            above,
        )


class Custom(Statistic):
    """Any estimator whose sensitivity the user states.

    **The guarantee rests on that statement**: for all samples of any size m that differ in one record, the estimates
    must lie within l / m of each other in Euclidean norm, once moved to the box, as they are computed: a mean of
    numbers far from zero has roundings of their size, so subtract a public number first.  Nothing here can check it.

    Parameters
    ----------
    function : callable
        records (m, p) -> theta, a number or (d,).  With y given to ``fit``, records have it as the last column.  Each
        sample is a copy of its own, which the function may change (sort in place); it must not remember one.  It is
        tried first on made-up records; later, samples for which it fails or is not a number count as the middle of the
        box, silently: whether a fit succeeds must not depend on a record.
    l : float
        The statement above.
    box : sequence of (low, high)
        Public bounds of theta.
    """

    def __init__(
        self,
        function: Callable[[Array], Any],
        l: float,  # noqa: E741
        box: Sequence[tuple[float, float]],
        names: Sequence[str] | None = None,
    ) -> None:
        who = "Custom"
        if not callable(function):
            raise DomainError(f"{who}: function must be callable, got {check.shown(function)}")
        self._function = function
        self._l = check.positive(who, "l", l)
        self._box = pairs(who, "box", box)
        self._names = given_names(who, "names", names) or tuple(f"theta{j + 1}" for j in range(len(self._box)))
        if len(self._names) != len(self._box):
            raise DomainError(f"{who}: got {len(self._names)} names for {len(self._box)} bounds")

    @property
    def l(self) -> float:  # noqa: E743
        return self._l

    def task(self, who: str, X: Any, y: Any) -> Task:
        require_host(who, X=X, y=y)
        array, _ = features(who, X, None)
        _some(who, len(array))
        response = None if y is None else target(who, y, len(array), X)
        low = self._box[:, 0]
        middle = (self._box[:, 1] - low) / 2.0
        d = len(middle)

        def load() -> Array:
            require_finite(who, X=array)
            if response is None:
                return as_double(array)
            require_finite(who, y=response)
            return np.column_stack([as_double(array), as_double(response)])

        columns = array.shape[1] + (response is not None)
        try:
            trial = np.asarray(self._function(np.random.default_rng(0).normal(size=(50, columns))), dtype=np.float64)
        except FAILURES as error:
            name = type(error).__name__
            raise DomainError(f"{who}: the function given to Custom fails on made-up records: {name}") from error
        if trial.size != d:
            raise DomainError(f"{who}: the function given to Custom must return {d} number(s), got shape {trial.shape}")

        def one(records: Array) -> Array:
            try:
                theta = np.asarray(self._function(records.copy()), dtype=np.float64).reshape(d) - low
            except FAILURES:
                return np.asarray(middle)
            return np.where(np.isnan(theta), middle, theta)

        def above(records: Array, index: Indices | None) -> Array:
            return np.stack([one(sample) for sample in _chosen(records, index)])

        return Task(
            len(array),
            self._names,
            self._l,
            lambda m: self._l / m + _rounding(self._box),
            self._box,
            AffineMap(np.eye(d), np.zeros(d)),
            load,
            above,
        )


def _rounding(box: Array) -> float:
    """``ROUNDING`` in the units of theta."""
    return ROUNDING * float(np.linalg.norm(box[:, 1] - box[:, 0]))


def _some(who: str, n: int) -> None:
    if n < 2:
        raise DataError(f"{who}: needs at least 2 records")
