"""Private means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from pgbb_fast import validation as check
from pgbb_fast.budget import Budget
from pgbb_fast.coordinates import AffineMap
from pgbb_fast.errors import DomainError
from pgbb_fast.estimators.base import OnStep, Prepared, PrivateEstimator, Unit
from pgbb_fast.intake.design import CHUNK, Bounds, given_bounds, pairs, require_reach, unit_map
from pgbb_fast.intake.records import as_stored, features, given_names, require_finite, require_records
from pgbb_fast.kernels.arguments import NO_MAP, as_double
from pgbb_fast.losses import exponential_mean, mean
from pgbb_fast.release.devices import on_device, unit_columns
from pgbb_fast.silence import unseen

__all__ = ["PrivateMean"]

LOSSES = ("squared", "exponential")


class PrivateMean(PrivateEstimator):
    """The mean of each column.

    Parameters
    ----------
    x_bounds : sequence or mapping of (low, high)
        Public bounds of each column.  Values outside count as the nearest bound.
    coef_bounds : sequence or mapping of (low, high), optional
        Public bounds of the means; ``x_bounds`` by default.
    loss : {"squared", "exponential"}
        Gradient theta - x, or that of an exponential law with mean theta (one column, low bound of theta above 0).
    clip : float, optional
        Bound of one record's contribution in unit coordinates, where each column is mapped to [-1, 1] (to [0, 1] for
        the exponential loss).  By default sqrt(d), which no record exceeds; a smaller one adds less noise but moves
        the estimate towards the middle of the bounds.  The exponential loss has no useful bound of its own,
        |1/theta - x/theta^2|, so there ``clip`` is required.
    **settings
        Budget and training: see :class:`~pgbb_fast.estimators.base.PrivateEstimator`.
    """

    _who = "PrivateMean"
    _no_scores = "records shortened to a bound in their own shape have another mean than the one that is asked for"

    def __init__(
        self,
        *,
        x_bounds: Bounds,
        coef_bounds: Bounds | None = None,
        loss: str = "squared",
        clip: float | None = None,
        feature_names: Sequence[str] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.loss = check.one_of(self._who, "loss", loss, LOSSES)
        self.clip = None if clip is None else check.positive(self._who, "clip", clip)
        self.x_bounds = given_bounds(self._who, "x_bounds", x_bounds)
        self.coef_bounds = None if coef_bounds is None else given_bounds(self._who, "coef_bounds", coef_bounds)
        self.feature_names = given_names(self._who, "feature_names", feature_names)

    @unseen()
    def fit(self, X: Any, y: None = None, *, on_step: OnStep | None = None, budget: Budget | None = None) -> Self:
        """Spend the budget on the (n, d) records; ``y`` is ignored.  Errors as for the regressors.

        An array on a GPU (torch, CuPy, DLPack) stays there.  It is read in place for the squared loss, unless a
        column's bounds lie far from zero for their width; else a copy of d float32 numbers a record is made there.
        """
        self._run(self._prepare(X, y), on_step, budget)
        return self

    def _prepare(self, X: Any, y: Any) -> Prepared:
        who = self._who
        array, names = features(who, X, len(self.x_bounds), self.feature_names)
        n, d = array.shape
        bounds = pairs(who, "x_bounds", self.x_bounds, names)
        theta = bounds if self.coef_bounds is None else pairs(who, "coef_bounds", self.coef_bounds, names)
        if len(theta) != d:
            raise DomainError(f"{who}: coef_bounds has {len(theta)} pairs for {d} columns")
        require_records(who, n, self.n_blocks)
        if self.loss == "exponential":
            centre, radius = np.zeros(d), bounds[:, 1]
            if d != 1 or not bounds[0, 0] >= 0.0 or not theta[0, 0] > 0.0:
                raise DomainError(f"{who}: the exponential loss takes one column with x >= 0 and coef_bounds above 0")
            if self.clip is None:
                raise DomainError(
                    f"{who}: the exponential loss needs clip, a bound of |1/theta - x/theta^2| for x in [0, 1]"
                )
            clip = self.clip
        else:
            centre, radius = bounds.mean(axis=1), (bounds[:, 1] - bounds[:, 0]) / 2
            clip = self.clip or np.sqrt(d)

        box = (theta - centre[:, None]) / radius[:, None]
        require_reach(who, box)
        on_gpu = on_device(array)

        def unit() -> Unit:
            require_finite(who, X=array)
            nothing = np.zeros(0, dtype=np.float32)
            table = unit_map(bounds[:, 0], bounds[:, 1]) if self.loss == "squared" else None
            if table is not None:
                return array if on_gpu else as_stored(array), nothing, np.concatenate([table, table[:1]])
            if on_gpu:
                return unit_columns(array, bounds, centre, radius), nothing, NO_MAP
            out = np.empty(array.shape, dtype=np.float32)
            for start in range(0, n, CHUNK):
                inside = np.clip(as_double(array[start : start + CHUNK]), bounds[:, 0], bounds[:, 1])
                out[start : start + CHUNK] = (inside - centre) / radius
            return out, nothing, NO_MAP

        return Prepared(
            unit,
            n,
            exponential_mean() if self.loss == "exponential" else mean(),
            clip=float(clip),
            intercept=False,
            box=box,
            to_natural=AffineMap(np.diag(radius), centre),
            names=names,
            in_place=on_gpu,
        )
