"""What a baseline shares with the estimator that it is compared with: budget, bounds, loss, maps and units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb_fast import validation as check
from pgbb_fast.baselines.fitted import Fitted
from pgbb_fast.budget.baseline import BaselineReport
from pgbb_fast.coordinates import AffineMap
from pgbb_fast.errors import DomainError
from pgbb_fast.estimators.base import PrivateEstimator, Unit
from pgbb_fast.estimators.regression import PrivateRegressor
from pgbb_fast.intake.records import require_host
from pgbb_fast.kernels.arguments import Records
from pgbb_fast.losses import Loss
from pgbb_fast.posteriors.sampled import SampledPosterior
from pgbb_fast.release.blocked import Problem

__all__ = ["ModelBaseline", "Target", "target_of", "whole_batch"]

Array = NDArray[np.float64]
EVERY = 2**32  # sampling threshold that takes every record


@dataclass(frozen=True)
class Target:
    """The public part of a fit, and ``unit()``, which checks the records and maps them to the unit box.

    Attributes
    ----------
    clip : float
        C, bound of one record's gradient.
    box : (d, 2) array
        Public bounds of theta in unit coordinates.
    loss_scale : (d,) array
        Natural loss over unit loss: the gradient of the loss in natural units, by unit coordinates, is this times the
        gradient of the loss in unit coordinates.
    """

    unit: Callable[[], Unit]
    n: int
    loss: Loss
    clip: float
    intercept: bool
    box: Array
    to_natural: AffineMap
    names: tuple[str, ...]
    loss_scale: Array

    @property
    def rules(self) -> tuple[float, ...]:
        """Quantile levels; empty when the loss has no index."""
        return tuple(rule for rule in self.loss.rules if not np.isnan(rule))

    def posterior(self, sample: Array, privacy: BaselineReport) -> SampledPosterior:
        """The released draws (m, L, d), in unit coordinates."""
        return SampledPosterior(
            sample, rules=self.rules, to_natural=self.to_natural, names=self.names, privacy=privacy
        )


class _Seam:
    """``model`` for its own ``fit``, but what it would run is kept instead: no budget is spent, no record read."""

    def __init__(self, model: PrivateEstimator) -> None:
        self._model = model
        self.kept: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def _run(self, unit: Callable[[], Unit], n: int, loss: Loss, **public: Any) -> None:
        self.kept = {"unit": unit, "n": n, "loss": loss, **public}


def target_of(model: PrivateEstimator, X: Any, y: Any = None) -> Target:
    """What ``model.fit(X, y)`` would fit; every public setting checked, no record's value read."""
    require_host("baselines", X=X, y=y)
    seam = _Seam(model)
    fit: Any = type(model).fit  # type: ignore[attr-defined]
    fit(seam, X, y)
    kept = {name: seam.kept[name] for name in ("unit", "n", "loss", "clip", "intercept", "box", "to_natural", "names")}
    return Target(**kept, loss_scale=_loss_scale(model, kept["loss"], kept["to_natural"], len(kept["box"])))


def _loss_scale(model: PrivateEstimator, loss: Loss, to_natural: AffineMap, d: int) -> Array:
    """The check loss and Huber's with its scale grow like y, the squared loss like its square; the exponential law's
    log likelihood has no unit."""
    if loss.kernel == "mean":
        return np.diag(to_natural.matrix) ** 2
    if loss.kernel == "exponential_mean":
        return np.ones(d)
    if isinstance(model, PrivateRegressor) and (loss.has_scale or loss.kernel.startswith("quantile")):
        return np.full(d, model._y_radius)
    raise DomainError(f"baselines: no unit is known for the loss {loss.kernel!r}")


class ModelBaseline(Fitted):
    """Base of the baselines that fit the loss of an (unfitted) estimator within that estimator's budget.

    Attributes
    ----------
    posterior_ : SampledPosterior
    privacy_ : BaselineReport
    """

    _who = "ModelBaseline"

    def __init__(self, model: PrivateEstimator) -> None:
        if not isinstance(model, PrivateEstimator):
            raise DomainError(f"{self._who}: model must be an estimator (PrivateMean), got {check.shown(model)}")
        self.model = model

    def __repr__(self) -> str:
        return f"{self._who}({self.model!r}, {self._state()})"


def whole_batch(target: Target, **changes: Any) -> Problem:
    """The problem with every record in one block of weight one: what the accounted releases need.

    Reads (checks, maps) the records: everything public must have been settled before.
    """
    x, y, table = target.unit()
    settings: dict[str, Any] = {
        "records": Records(x, y, np.zeros(target.n, dtype=np.uint8), map=table),
        "loss": target.loss,
        "intercept": target.intercept,
        "n_blocks": 1,
        "block_size": target.n,
        "gamma": 1.0,
        "clip": target.clip,
        "sampling_threshold": EVERY,
        "draws_per_step": 1,
        "steps": 1,
    }
    return Problem(**{**settings, **changes})
