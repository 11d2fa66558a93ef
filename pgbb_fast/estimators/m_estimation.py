"""Private M-estimators: any differentiable loss of one record."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from pgbb_fast import validation as check
from pgbb_fast.budget import Budget
from pgbb_fast.budget.report import require_clip
from pgbb_fast.coordinates import AffineMap
from pgbb_fast.errors import DataError, DomainError
from pgbb_fast.estimators.base import OnStep, Prepared, PrivateEstimator, Unit
from pgbb_fast.intake.design import Bounds, given_bounds, interval, pairs
from pgbb_fast.intake.records import features, given_names, require_finite, require_host, require_records, target
from pgbb_fast.kernels.arguments import NO_MAP
from pgbb_fast.losses import user_loss
from pgbb_fast.silence import unseen

if TYPE_CHECKING:
    from pgbb_fast.estimators.autograd import RecordGradients

__all__ = ["PrivateMEstimator"]

Array = NDArray[np.float64]
TRIALS, TRIAL_THETAS = 64, 5


class PrivateMEstimator(PrivateEstimator):
    """theta that minimises the mean of a loss of your own, written in torch (docs/method.md section 6).

    Each record's gradient comes from torch.func and is clipped to ``clip``; minibatches, fixed-point sums, noise and
    account are those of the built-in losses.  It runs on the CPU, in torch and NumPy.  The mean loss should have one
    minimum inside ``coef_bounds``, where it is smooth and curved in every direction.

    Parameters
    ----------
    loss : callable
        (theta, x, y) -> loss of one record, a scalar tensor: theta (d,), x (p,) and y () are float64 tensors in your
        units; without ``y_bounds`` it is (theta, x).  torch.func.vmap runs it, so it branches on values with
        torch.where, not if.  It must not remember records or show them.  It is tried first, on made-up records within
        the public bounds; later a record for which it raises, or whose gradient is not finite, counts as zero,
        silently.
    x_bounds : sequence or mapping of (low, high)
        Public bounds of each column of X.  Values outside count as the nearest bound.
    y_bounds : (low, high), optional
        Public bounds of y, likewise; leave them out when a record has no response.
    coef_bounds : sequence of (low, high), or mapping from name to (low, high)
        Public bounds of each coordinate of theta, in their order.
    clip : float
        Bound C of one record's gradient, in units in which each of ``coef_bounds`` has half-width 1: of the norm of
        (r_1 dl/dtheta_1, ..., r_d dl/dtheta_d), r_j = (high_j - low_j) / 2.  Longer gradients are shortened to it, so
        privacy does not rest on it.  What is estimated, and what the intervals are for, is the zero of the mean
        *clipped* gradient: where records exceed ``clip`` on one side it differs from the loss's own minimum, by an
        amount that does not shrink with n and is in no interval (a Poisson regression, n = 5,000: a quarter of a
        posterior standard deviation at clip = 8, nothing at 40).  Noise is proportional to ``clip``
        (:func:`pgbb_fast.plan` prices it); a clip that next to no record exceeds is safe, and a smaller one is worth it
        only while privacy makes up most of the variance.
    feature_names : sequence of str, optional
        Names of the columns of X, for ``x_bounds`` by name; a data frame brings its own.
    **settings
        Budget and training: see :class:`~pgbb_fast.estimators.base.PrivateEstimator`.
    """

    _who = "PrivateMEstimator"
    _no_scores = (
        "whole gradients can't be shortened to a bound in their own shape without moving the estimate; a loss of a "
        "linear predictor can be whitened, by PrivateGeneralisedRegressor"
    )
    _slow = True

    def __init__(
        self,
        loss: Callable[..., Any],
        *,
        x_bounds: Bounds,
        coef_bounds: Bounds,
        clip: float,
        y_bounds: tuple[float, float] | None = None,
        feature_names: Sequence[str] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        if not callable(loss):
            raise DomainError(f"{self._who}: loss must be callable, (theta, x, y) -> scalar, got {check.shown(loss)}")
        self.loss = loss
        self.clip = check.positive(self._who, "clip", clip)
        require_clip(self._who, self.clip)
        self.y_bounds = None if y_bounds is None else interval(self._who, "y_bounds", y_bounds)
        names = given_names(self._who, "coef_bounds", coef_bounds.keys()) if isinstance(coef_bounds, Mapping) else None
        self._box = pairs(self._who, "coef_bounds", coef_bounds, names)
        self._names = names or tuple(f"theta{j + 1}" for j in range(len(self._box)))
        self.x_bounds, self.coef_bounds = given_bounds(self._who, "x_bounds", x_bounds), coef_bounds
        self.feature_names = given_names(self._who, "feature_names", feature_names)

    @unseen()
    def fit(self, X: Any, y: Any = None, *, on_step: OnStep | None = None, budget: Budget | None = None) -> Self:
        """Spend the budget on the (n, p) records and, with ``y_bounds``, their (n,) responses.

        Arrays of any real type are read where they are.  Errors as for the regressors; a loss that fails on the
        made-up records is a DomainError, and nothing was spent.
        """
        self._run(self._prepare(X, y), on_step, budget)
        return self

    def _prepare(self, X: Any, y: Any) -> Prepared:
        from pgbb_fast.estimators.autograd import RecordGradients  # here: estimators may be imported without torch

        who = self._who
        require_host(who, X=X, y=y)
        if (y is None) != (self.y_bounds is None):
            raise DataError(f"{who}: pass y together with y_bounds, or neither")
        array, columns = features(who, X, len(self.x_bounds), self.feature_names)
        n = len(array)
        response = np.zeros(0, dtype=np.float32) if y is None else target(who, y, n, X)
        bounds = pairs(who, "x_bounds", self.x_bounds, columns)
        require_records(who, n, self.n_blocks)
        y_low, y_high = self.y_bounds or (0.0, 0.0)
        gradients = RecordGradients(self.loss, len(bounds), response=self.y_bounds is not None)
        self._try(gradients, bounds)
        centre, radius = self._box.mean(axis=1), (self._box[:, 1] - self._box[:, 0]) / 2

        # as of a linear predictor's loss with slopes of at most 1 over the unit box: exploration reads scales off that
        bound = math.sqrt(len(radius))
        scale = radius * (bound / self.clip)

        def by_unit_theta(theta: Array, x: Array, y: Array) -> Array:
            inside = np.clip(x, bounds[:, 0], bounds[:, 1])
            return gradients(centre + radius * theta, inside, np.clip(y, y_low, y_high)) * scale

        def unit() -> Unit:
            require_finite(who, X=array, y=response)
            return array, response, NO_MAP

        return Prepared(
            unit,
            n,
            user_loss(by_unit_theta),
            clip=bound,
            intercept=False,
            box=np.tile([-1.0, 1.0], (len(radius), 1)),
            to_natural=AffineMap(np.diag(radius), centre),
            names=self._names,
        )

    def _try(self, gradients: RecordGradients, bounds: Array) -> None:
        """Gradients of made-up records at public theta: refuses a loss that fails, or that isn't one of theta."""
        who, rng = self._who, np.random.default_rng(0)
        (low, high), (y_low, y_high) = self._box.T, self.y_bounds or (0.0, 0.0)
        x = np.vstack([bounds.T, rng.uniform(bounds[:, 0], bounds[:, 1], (TRIALS, len(bounds)))])
        y = np.concatenate([[y_low, y_high], rng.uniform(y_low, y_high, TRIALS)])
        moved, rows = False, gradients.rows(len(low))
        for theta in (self._box.mean(axis=1), *rng.uniform(low, high, (TRIAL_THETAS - 1, len(low)))):
            try:
                found = gradients.tried(theta, x, y)
                if not moved:  # as many as there will ever be at once, for the memory
                    gradients.tried(theta, np.resize(x, (rows, x.shape[1])), np.resize(y, rows))
            except Exception as error:
                said = str(error).partition("\n")[0]
                raise DomainError(f"{who}: loss fails on made-up records: {type(error).__name__}: {said}") from error
            strange = ~np.isfinite(found).all(axis=1)
            if strange.any():
                i = int(np.argmax(strange))
                record = f"x = {x[i].tolist()}" + (f", y = {y[i]:g}" if self.y_bounds else "")
                raise DomainError(
                    f"{who}: loss has no finite gradient at theta = {theta.tolist()} for a made-up record, {record}; "
                    "change the loss, or the public bounds"
                )
            moved = moved or bool(found.any())
        if not moved:
            raise DomainError(f"{who}: loss does not change with theta")
