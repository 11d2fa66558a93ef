"""The logistic loss of a class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import expit

from pgbb_fast import validation as check
from pgbb_fast.errors import DomainError
from pgbb_fast.losses.base import BENDS, Array, Loss

__all__ = ["Logistic", "logistic"]


@dataclass(frozen=True)
class Logistic(Loss):
    """:func:`logistic`."""

    one_slope: ClassVar[bool] = True

    @property
    def knows_curvature(self) -> bool:
        """p (1 - p)."""
        return True

    def curvature_at(self, eta: Array) -> Array:
        """p (1 - p), p = 1 / (1 + e^-eta)."""
        p = expit(eta)
        return np.asarray(p * (1.0 - p))

    def range_of_quadratic(self, rule: int, f: float) -> float:
        """p (1 - p) changes by a factor e over a logit."""
        return BENDS

    def curvature_limit(self, rule: int) -> float:
        """1/4, and the ridge."""
        return 0.25 + self.ridge

    def second_derivative(self, y: Array, eta: Array) -> Array:
        """p (1 - p)."""
        return self.curvature_at(eta)

    def root_bound(self, feature_bound: float, theta: Array) -> float:
        """|x|^2 / 4."""
        return feature_bound**2 / 4.0


def logistic(ridge: float = 0.0) -> Logistic:
    """Bernoulli negative log likelihood, y in {0, 1}: |sigmoid(eta) - y| <= 1; a ridge on the slopes stays outside the
    clipped sum."""
    if not check.real("logistic", "ridge", ridge) >= 0.0:
        raise DomainError(f"logistic: ridge must be at least 0, got {ridge!r}")
    return Logistic("logistic", slope_bound=1.0, ridge=float(ridge))
