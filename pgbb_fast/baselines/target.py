"""What a baseline shares with the estimator that it is compared with: budget, bounds, loss, maps and units."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb_fast import validation as check
from pgbb_fast.baselines.fitted import Fitted
from pgbb_fast.budget.baseline import BaselineReport
from pgbb_fast.errors import DomainError
from pgbb_fast.estimators.base import Prepared, PrivateEstimator
from pgbb_fast.intake.records import require_host
from pgbb_fast.kernels.arguments import Records
from pgbb_fast.posteriors.sampled import SampledPosterior
from pgbb_fast.release.blocked import Problem

__all__ = ["ModelBaseline", "Target", "target_of", "whole_batch"]

Array = NDArray[np.float64]
EVERY = 2**32  # sampling threshold that takes every record


@dataclass(frozen=True)
class Target(Prepared):
    """What an estimator would fit, for a baseline to fit instead."""

    @property
    def rules(self) -> tuple[float, ...]:
        """Quantile levels; empty when the loss has no index."""
        return tuple(rule for rule in self.loss.rules if not np.isnan(rule))

    def posterior(self, sample: Array, privacy: BaselineReport) -> SampledPosterior:
        """The released draws (m, L, d), in unit coordinates."""
        return SampledPosterior(
            sample, rules=self.rules, to_natural=self.to_natural, names=self.names, privacy=privacy
        )


def target_of(model: PrivateEstimator, X: Any, y: Any) -> Target:
    """What ``model.fit(X, y)`` would fit; every public setting checked, no record's value read."""
    require_host("baselines", X=X, y=y)
    prepared = model._prepare(X, y)
    prepared.natural_over_unit()    # refuses a loss whose unit isn't known
    return Target(**{field.name: getattr(prepared, field.name) for field in fields(prepared)})


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
