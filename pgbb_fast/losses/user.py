"""Losses of the user's own: a slope in the linear predictor, or the gradient of any loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pgbb_fast import validation as check
from pgbb_fast.errors import DomainError
from pgbb_fast.losses.base import BENDS, Array, Loss
from pgbb_fast.silence import FAILURES, unseen

__all__ = ["UserLoss", "user_loss", "user_slope", "with_curvature"]

CURVATURES, SAME = 401, 1e-6  # points of a curvature's grid; of the largest slope there: what counts as nothing
TOO_NEAR = 1e-6  # points of that grid
LONGEST = 2.0**100  # of the entries of a gradient of the user's own
RecordGradient = Callable[[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]


@dataclass(frozen=True)
class UserLoss(Loss):
    """A loss that no compiled kernel knows: one of ``slope`` and ``gradient`` is given.

    Attributes
    ----------
    slope : callable, optional
        (y, eta) -> d loss / d eta of one record, over its bound.
    gradient : callable, optional
        theta (d,), x (m, p), y (m,) -> (m, d), row i a function of theta and record i.
    curvature : (grid, values), optional
        Expected d slope / d eta on a grid of eta, where it is known (:func:`with_curvature`).
    """

    user_defined: ClassVar[bool] = True
    one_slope: ClassVar[bool] = True

    slope: Callable[[float, float], float] | None = None
    gradient: RecordGradient | None = None
    curvature: tuple[tuple[float, ...], tuple[float, ...]] | None = None

    @property
    def knows_curvature(self) -> bool:
        """Where the slope told it."""
        return self.curvature is not None

    def curvature_at(self, eta: Array) -> Array:
        """Interpolated."""
        assert self.curvature is not None
        return np.asarray(np.interp(eta, *self.curvature))

    def range_of_quadratic(self, rule: int, f: float) -> float:
        """By f, and by the curvature where it is known."""
        by_f = self.density(rule) / f
        return by_f if self.curvature is None else min(by_f, BENDS * _bend(*self.curvature))

    def curvature_scale(self, rule: int) -> float:
        """Nothing public tells."""
        return math.inf

    def user_gradient(self, theta: NDArray[Any], x: NDArray[Any], y: NDArray[Any], intercept: bool) -> NDArray[Any]:
        """Gradients (m, d) of a loss of the user's own; a slope is asked for record by record, so none can depend on
        another.  One that is not finite makes its record count as zero; one beyond 2^100, whose square may overflow, is
        shortened to that, which is far above any clipping bound."""
        with unseen():
            if self.gradient is not None:
                found = self.gradient(theta, x, y)
            else:
                assert self.slope is not None
                design = np.column_stack([np.ones(len(x)), x]) if intercept else x
                eta = design @ theta
                slope = np.fromiter(map(self.slope, y.tolist(), eta.tolist()), dtype=np.float64, count=len(y))
                found = slope[:, None] * design
            largest = np.abs(found).max(axis=1, keepdims=True, initial=0.0)
            return np.asarray(np.where(largest > LONGEST, found * (LONGEST / largest), found))


def _bend(grid: Sequence[float], values: Sequence[float]) -> float:
    """The shortest range of eta over which a curvature changes by a factor e, where it is not next to nothing."""
    height = np.asarray(values)
    middle = (height[1:] + height[:-1]) / 2.0
    seen = middle > 1e-3 * height.max()
    change = float(np.max(np.abs(np.diff(height)[seen]) / middle[seen] / np.diff(np.asarray(grid))[seen], initial=0.0))
    return 1.0 / max(change, 1e-300)


def with_curvature(loss: UserLoss, ys: Sequence[float], reach: float, needed: float) -> UserLoss:
    """``loss`` with the expected derivative of its slope, if the slope is linear in y, as the score of every
    generalised linear model (McCullagh and Nelder 1989, section 2.5): a(eta) + b(eta) y.  Public calls only.

    Where the model is right the slope's mean at given features is zero, so E y = -a/b, and the derivative's is
    a' - a b'/b.  With the canonical link b' = 0, and it is a' whether the model is right or not.  Differences over
    ``reach`` / 400, on a grid of eta in [-reach, reach]; it must be found in [-needed, needed] at least.
    """
    assert loss.slope is not None
    grid = np.linspace(-reach, reach, CURVATURES)
    step = float(grid[1] - grid[0]) / 2.0
    if not step > TOO_NEAR:  # differences would be of rounding errors
        return loss
    slopes, derivatives = np.empty((2, len(ys), len(grid)))
    for i, y in enumerate(ys):
        for j, eta in enumerate(grid.tolist()):
            low, high = loss.slope(y, eta - step), loss.slope(y, eta + step)
            slopes[i, j], derivatives[i, j] = (low + high) / 2.0, (high - low) / (2.0 * step)
    finite = np.isfinite(slopes).all(axis=0) & np.isfinite(derivatives).all(axis=0)
    slopes, derivatives = np.where(finite, slopes, 0.0), np.where(finite, derivatives, 0.0)
    design = np.column_stack([np.ones(len(ys)), np.asarray(ys) / max(map(abs, ys))])
    (a, b), (da, db) = (np.linalg.lstsq(design, part)[0] for part in (slopes, derivatives))
    off = np.abs(slopes - design @ np.stack([a, b])).max(axis=0)
    found = da - a * db / np.where(b == 0.0, 1.0, b)
    good = finite & (off <= SAME * np.abs(slopes).max(axis=0)) & (b != 0.0) & (found > 0.0)
    middle = len(grid) // 2
    wrong = np.flatnonzero(~good)
    first = int(wrong[wrong < middle].max(initial=-1)) + 1
    last = int(wrong[wrong >= middle].min(initial=len(grid)))
    if middle - first < needed / step / 2.0 or last - 1 - middle < needed / step / 2.0:  # about 0, as far as it matters
        return loss
    return replace(loss, curvature=(tuple(grid[first:last].tolist()), tuple(found[first:last].tolist())))


def user_slope(slope: Callable[[float, float], float], bound: float) -> UserLoss:
    """A generalised linear loss by its slope (y, eta) -> d loss / d eta, stated to lie in [-bound, bound] (what doesn't
    is clipped); the loss is taken over ``bound``, so the slope's bound is 1.  A record whose slope fails counts as
    zero, as one whose slope is not finite does: whether a fit succeeds must not depend on a record."""
    size = check.positive("user_slope", "bound", bound)
    if not callable(slope):
        raise DomainError(f"user_slope: slope must be callable, got {check.shown(slope)}")

    return UserLoss("user", slope_bound=1.0, slope=ScaledSlope(slope, size))


@dataclass(frozen=True)
class ScaledSlope:
    """``slope`` over ``size``, nan where it fails; can be pickled where the slope can."""

    slope: Callable[[float, float], float]
    size: float

    def __call__(self, y: float, eta: float) -> float:
        try:
            return float(self.slope(y, eta)) / self.size
        except FAILURES:
            return math.nan


def user_loss(gradient: RecordGradient) -> UserLoss:
    """Any loss by its records' gradients, theta (d,), x (m, p), y (m,) -> (m, d); what is not finite counts as zero."""
    return UserLoss("user", slope_bound=1.0, gradient=gradient)
