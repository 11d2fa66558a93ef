"""Losses of a residual with slopes that end: Huber's, with its scale or a fixed one, and expectiles within reach."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from pgbb_fast import validation as check
from pgbb_fast.losses.base import TYPICAL, Array, Loss

__all__ = [
    "Expectile",
    "Huber",
    "HuberFixedScale",
    "expectile",
    "huber",
    "huber_fixed_scale",
    "huber_kappa",
    "normal_expectile",
]


def _correlation(slopes: Sequence[Array], density: Array) -> tuple[tuple[float, ...], ...]:
    """Correlation of mean-zero ``slopes`` given on a grid of residuals with weights ``density``."""
    moment = np.array([[float((a * b) @ density) for b in slopes] for a in slopes])
    sd = np.sqrt(np.diag(moment))
    return tuple(map(tuple, (moment / np.outer(sd, sd)).tolist()))


@dataclass(frozen=True)
class Huber(Loss):
    """:func:`huber`; constants are (c, kappa)."""

    has_scale: ClassVar[bool] = True
    rule_name: ClassVar[str] = "c"

    def f_at(self, theta: Array) -> Array:
        """The share of residuals within c scales, some .8, over the scale."""
        return np.asarray(0.8 / theta[:, -1])

    def hessian_roots(self, design: Array, y: Array, theta: Array) -> Array:
        """1(|z| <= c) (x, z) / sqrt(s), z = r / s (Huber 1981, ch. 7.7)."""
        z = (y - design @ theta[:-1]) / theta[-1]
        inside = (np.abs(z) <= self.constants[0][0]) / math.sqrt(theta[-1])
        return np.asarray(np.column_stack([design, z]) * inside[:, None])

    def root_bound(self, feature_bound: float, theta: Array) -> float:
        """(|x|^2 + c^2) / s."""
        return float((feature_bound**2 + self.constants[0][0] ** 2) / theta[-1])

    def central(self) -> Loss:
        """The middle c."""
        return self if len(self.rules) == 1 else huber(*self.constants[len(self.rules) // 2])

    def natural_over_unit(self, response: float, features: Array) -> Array:
        """With its scale it grows like y."""
        return np.full(len(features), response)


def huber_kappa(c: float) -> float:
    """E psi_c(Z)^2 for a standard normal Z: P(|Z| < c) - 2 c phi(c) + 2 c^2 P(Z > c)."""
    tail, density = float(ndtr(-c)), math.exp(-0.5 * c * c) / math.sqrt(2.0 * math.pi)
    return 1.0 - 2.0 * tail - 2.0 * c * density + 2.0 * c * c * tail


def huber(c: float | Sequence[float] = 1.345, kappa: float | Sequence[float] = 0.71) -> Huber:
    """Huber's loss with concomitant scale s: s rho_c(r/s) + kappa s/2, jointly in (beta, s) (Huber 1981, ch. 7.7).

    Slopes: -psi_c(z), |.| <= c, and (kappa - psi_c(z)^2)/2, between (kappa - c^2)/2 and kappa/2.  ``kappa`` =
    E psi_c(Z)^2 = 0.71 makes s consistent for normal errors.  Several c, each with its kappa, are a family of rules.
    """
    cs, kappas = ((v,) if isinstance(v, (int, float)) else tuple(v) for v in (c, kappa))
    pairs = tuple(
        (check.positive("huber", "c", one), check.positive("huber", "kappa", k))
        for one, k in zip(cs, kappas, strict=True)
    )
    z = np.linspace(-8.0, 8.0, 4001)
    return Huber(
        "huber_concomitant",
        (math.nan,) if len(pairs) == 1 else tuple(one for one, _ in pairs),
        pairs,
        max(one for one, _ in pairs),
        max(max(k / 2.0, (one * one - k) / 2.0) for one, k in pairs),
        correlation=_correlation([np.clip(z, -one, one) for one, _ in pairs], np.exp(-0.5 * z * z)),
    )


@dataclass(frozen=True)
class HuberFixedScale(Loss):
    """:func:`huber_fixed_scale`; constants are (c, 0)."""

    def curvature_limit(self, rule: int) -> float:
        """1."""
        return 1.0

    def second_derivative(self, y: Array, eta: Array) -> Array:
        """1(|r| <= c)."""
        return (np.abs(y - eta) <= self.constants[0][0]).astype(np.float64)


def huber_fixed_scale(c: float) -> HuberFixedScale:
    """Huber's rho_c of the residual itself, ``c`` in units of y: |slope| <= c."""
    c = check.positive("huber_fixed_scale", "c", c)
    return HuberFixedScale("huber_fixed", constants=((c, 0.0),), slope_bound=c)


@dataclass(frozen=True)
class Expectile(Loss):
    """:func:`expectile`; constants are (tau, reach)."""

    def f_at(self, theta: Array) -> Array:
        """Some 1/2, whatever the residuals."""
        return np.full(len(theta), 0.5)

    def density(self, rule: int) -> float:
        """H, about E[x x'] / 2, does not reveal the residual scale: a quarter of their bound is taken for it."""
        return self.constants[rule][1] / 8.0

    def curvature_limit(self, rule: int) -> float:
        """max(tau, 1 - tau)."""
        return max(self.rules[rule], 1.0 - self.rules[rule])

    def standardised(self, rule: int) -> tuple[float, tuple[float, float], float]:
        """Residuals of a standard deviation of ``TYPICAL``, over that."""
        tau, reach = self.constants[rule]
        return normal_expectile(tau), (tau, reach / TYPICAL), TYPICAL

    @property
    def farthest(self) -> float:
        """The reach, from the outermost expectile."""
        reach = max(second for _, second in self.constants) / TYPICAL
        return reach + 2.0 * max(abs(normal_expectile(rule)) for rule in self.rules)

    def central(self) -> Loss:
        """The mean."""
        return expectile([0.5], self.constants[0][1])


def normal_expectile(tau: float) -> float:
    """The expectile e of a standard normal: tau E(Z - e)_+ = (1 - tau) E(e - Z)_+ (Newey and Powell 1987)."""

    def excess(e: float) -> float:
        above = math.exp(-0.5 * e * e) / math.sqrt(2.0 * math.pi) - e * float(ndtr(-e))  # E(Z - e)_+
        return tau * above - (1.0 - tau) * (above + e)

    return float(brentq(excess, -40.0, 40.0))


def expectile(levels: Sequence[float], reach: float) -> Expectile:
    """Asymmetric squares |tau - 1(r < 0)| r^2 / 2 with the residual moved into [-reach, reach] (unit of y).

    |slope| <= max(tau, 1 - tau) reach over all levels.  Where |y - x'b| <= reach for every record this is the expectile
    loss itself (Newey and Powell 1987); beyond, its slope is constant, an M-quantile's (Breckling and Chambers 1988).
    """
    r = check.positive("expectile", "reach", reach)
    taus = tuple(check.between("expectile", "level", tau, 0.0, 1.0) for tau in levels)
    bound = r * max(max(tau, 1.0 - tau) for tau in taus)
    z = np.linspace(-8.0, 8.0, 4001)
    residuals = [z - normal_expectile(tau) for tau in taus]
    slopes = [np.where(e > 0.0, tau, 1.0 - tau) * e for tau, e in zip(taus, residuals, strict=True)]
    correlation = _correlation(slopes, np.exp(-0.5 * z * z))
    return Expectile("expectile", taus, tuple((tau, r) for tau in taus), bound, correlation=correlation)
