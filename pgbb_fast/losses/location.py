"""Losses without a response: means."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pgbb_fast.losses.base import Array, Loss

__all__ = ["ExponentialMean", "Mean", "exponential_mean", "mean"]


@dataclass(frozen=True)
class Mean(Loss):
    """:func:`mean`."""

    additive: ClassVar[bool] = True
    regression: ClassVar[bool] = False

    def curvature_scale(self, rule: int) -> float:
        """None is needed."""
        return math.inf

    def known_hessian(self, theta: Array) -> Array:
        """I."""
        return np.eye(len(theta))

    def natural_over_unit(self, response: float, features: Array) -> Array:
        """The squared loss grows like x^2."""
        return features**2


@dataclass(frozen=True)
class ExponentialMean(Loss):
    """:func:`exponential_mean`."""

    regression: ClassVar[bool] = False

    def curvature_scale(self, rule: int) -> float:
        """Nothing public tells."""
        return math.inf

    def known_hessian(self, theta: Array) -> Array:
        """Fisher's 1 / theta^2."""
        return np.diag(theta**-2.0)

    def natural_over_unit(self, response: float, features: Array) -> Array:
        """A log likelihood has no unit."""
        return np.ones(len(features))


def mean() -> Mean:
    """|theta - x|^2 / 2, gradient theta - x: no bound of its own; the kernel clips -x."""
    return Mean("mean")


def exponential_mean() -> ExponentialMean:
    """Exponential law with mean theta > 0: gradient 1/theta - x/theta^2, no bound of its own."""
    return ExponentialMean("exponential_mean")
