"""What a loss is: a scalar formula's name, its constants, proved bounds, and what is known of its scores and curvature.

A regression loss l(y, x'beta[, s]) has gradient (a x, b) with ``a`` its slope in the linear predictor and ``b`` its
slope in the scale, so its norm is at most ``sqrt(A^2 B_x^2 + B^2)`` where ``|a| <= A``, ``|b| <= B``, ``|x| <= B_x``
(docs/method.md section 6).  The kernel clips at this bound all the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.errors import DomainError

__all__ = ["BENDS", "TYPICAL", "Array", "Loss"]

Array = NDArray[np.float64]
TYPICAL = 0.1  # residual scale over half the range of y, as the planner guesses it
BENDS = 1.6  # of ranges over which a curvature changes by a factor e: as far as a quadratic is trusted


@dataclass(frozen=True)
class Loss:
    """A loss, or a family of losses indexed by a rule (quantile levels).

    A new loss is a subclass: a formula in ``pgbb_fast.kernels.scalar.losses`` computes its slope, the class says what
    is true of it, and the methods below answer for it; docs/extending.md goes through one.

    Attributes
    ----------
    kernel : str
        Name of the scalar slope in ``pgbb_fast.kernels.scalar.losses``.
    rules : tuple of float
        Index of each rule of the family, as users know it (quantile levels, Huber's c); ``(nan,)``: no index.
    constants : tuple of pairs
        The slope's two constants for each rule.
    slope_bound, scale_bound : float
        Bounds of |d loss / d eta| and |d loss / d scale| over all rules; ``math.inf`` when there is none.
    ridge : float
        Weight of |slopes|^2 / 2 beside the mean loss; its gradient is public and added after the release.
    correlation : tuple of tuples, optional
        Correlation of the rules' scores for normal residuals.
    has_scale : bool
        Whether theta ends with a scale.
    additive : bool
        Whether the gradient is theta plus a function of the record.  Then theta, which is public, is left out of the
        release and added afterwards: only the record's part is clipped, with half the bound.
    regression : bool
        Whether a record has a response.
    user_defined : bool
        Whether no compiled kernel knows the loss.
    is_quantile : bool
        Whether the rules are quantile levels.
    one_slope : bool
        Whether there is one rule, whose slope has no scale to be told by: stacks take half its bound for its size.
    rule_name : str
        What the index is called.
    """

    kernel: str
    rules: tuple[float, ...] = (math.nan,)
    constants: tuple[tuple[float, float], ...] = ((0.0, 0.0),)
    slope_bound: float = math.inf
    scale_bound: float = 0.0
    ridge: float = 0.0
    correlation: tuple[tuple[float, ...], ...] | None = None

    has_scale: ClassVar[bool] = False
    additive: ClassVar[bool] = False
    regression: ClassVar[bool] = True
    user_defined: ClassVar[bool] = False
    is_quantile: ClassVar[bool] = False
    one_slope: ClassVar[bool] = False
    rule_name: ClassVar[str] = "level"

    # bounds, and what the accountant's release needs

    def gradient_bound(self, feature_bound: float) -> float:
        """Bound C of one record's gradient norm, given ``|x| <= feature_bound``."""
        return math.hypot(self.slope_bound * feature_bound, self.scale_bound)

    def rule_probabilities(self) -> Array:
        """P over the rules with which a training step draws one: the same for all."""
        return np.full(len(self.rules), 1.0 / len(self.rules))

    # curvature: H = f E[x x'], in which f is nearly all that isn't known

    @property
    def knows_curvature(self) -> bool:
        """Whether a record's expected second derivative in eta is a known function of eta, :meth:`curvature_at`."""
        return False

    def curvature_at(self, eta: Array) -> Array:
        """That second derivative."""
        raise NotImplementedError

    def f_at(self, theta: Array) -> Array | None:
        """f of each rule at theta (L, d) where theta alone tells it, (L,), else None."""
        return None

    def density(self, rule: int) -> float:
        """f times the residual scale at the fitted rule, for normal errors: how H = f E[x x'] reveals the scale; by
        default 0.4, the normal density's peak, which is on the small side."""
        return 0.4

    def bandwidth(self, rule: int) -> float:
        """h of a smoothed loss (unit of y), over which its target may be off; else 0."""
        return 0.0

    def range_of_quadratic(self, rule: int, f: float) -> float:
        """A scale of x'theta over which the loss's mean gradient bends: by default the residual scale that f reveals;
        of a loss with a known curvature, ``BENDS`` times the range over which that changes by a factor e."""
        return self.density(rule) / f

    def curvature_limit(self, rule: int) -> float:
        """Largest second derivative of the loss in the linear predictor, a bound of f; inf where it has none."""
        return math.inf

    def curvature_scale(self, rule: int) -> float:
        """Scale of the prior of f: that of residuals a tenth of half the range of y, at most the loss's own limit; inf
        where nothing public tells."""
        return min(self.curvature_limit(rule), self.density(rule) / TYPICAL)

    def second_derivative(self, y: Array, eta: Array) -> Array:
        """Of each record's loss in eta, for the first rule (Newton's method); (n,)."""
        raise DomainError(f"Newton: no curvature is known for the loss {self.kernel!r}")

    def hessian_roots(self, design: Array, y: Array, theta: Array) -> Array:
        """(n, d): the Hessian of the mean loss is the mean of these rows' outer products; for the first rule."""
        eta = design @ theta[: design.shape[1]]
        return np.asarray(design * np.sqrt(self.second_derivative(y, eta))[:, None])

    def root_bound(self, feature_bound: float, theta: Array) -> float:
        """Bound of a root's squared norm given |x| <= ``feature_bound``; a function of public values."""
        return feature_bound**2 * self.curvature_limit(0)

    def known_hessian(self, theta: Array) -> Array | None:
        """The Hessian where it is public (a location's), else None."""
        return None

    # scores: covariance of the rules under a correct model, for stacks and bands

    def score_correlation(self) -> Array:
        """Correlation between the rules' scores under a correct model, (L, L)."""
        if self.correlation is None or len(self.rules) == 1:
            return np.eye(len(self.rules))
        return np.asarray(self.correlation)

    def standardised(self, rule: int) -> tuple[float, tuple[float, float], float]:
        """How a rule's slopes are found for standard normal residuals: the predictor at its minimum, its constants in
        units of the residuals' scale, and the slope's unit over that of the loss."""
        return 0.0, self.constants[rule], 1.0

    @property
    def farthest(self) -> float:
        """Standardised residual beyond which all rules' slopes are constant."""
        return 1.01 * max(first for first, _ in self.constants)

    # families

    def central(self) -> Loss:
        """The rule to look for first, alone, from where the others are near."""
        return self

    def shifts(self) -> Array:
        """Where the rules start from the central one, in residual scales of the intercept, (L,)."""
        return np.zeros(len(self.rules))

    def natural_over_unit(self, response: float, features: Array) -> Array:
        """Natural loss over unit loss, (d,): the gradient of the loss in natural units, by unit coordinates, is this
        times the gradient of the loss in unit coordinates.

        ``response`` and ``features`` (d,) are natural units in one unit coordinate, of y and of each theta.
        """
        raise DomainError(f"baselines: no unit is known for the loss {self.kernel!r}")

    def only(self, rule: int) -> Self:
        """The family with one of its rules."""
        return replace(self, rules=(self.rules[rule],), constants=(self.constants[rule],), correlation=None)
