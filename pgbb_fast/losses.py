"""The losses users can ask for: which kernel, which constants, and a proved bound on one record's gradient.

A regression loss l(y, x'beta[, s]) has gradient (a x, b) with ``a`` its slope in the linear predictor and ``b`` its
slope in the scale, so its norm is at most ``sqrt(A^2 B_x^2 + B^2)`` where ``|a| <= A``, ``|b| <= B``, ``|x| <= B_x``
(method.md section 6).  The kernel clips at this bound all the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from pgbb_fast import validation as check

__all__ = [
    "Loss",
    "exponential_mean",
    "huber",
    "huber_fixed_scale",
    "logistic",
    "mean",
    "smoothed_quantile",
]

QUANTILE_KERNELS = ("gaussian", "logistic")
LOCATION = frozenset({"mean", "exponential_mean"})  # kernels of losses without a response


@dataclass(frozen=True)
class Loss:
    """A loss, or a family of losses indexed by a rule (quantile levels).

    Attributes
    ----------
    kernel : str
        Name of the scalar slope in ``pgbb_fast.kernels.scalar.losses``.
    rules : tuple of float
        Index of each rule of the family, as users know it (quantile levels); ``(nan,)`` stands for no index.
    constants : tuple of pairs
        The slope's two constants for each rule.
    slope_bound, scale_bound : float
        Bounds of |d loss / d eta| and |d loss / d scale| over all rules; ``math.inf`` when there is none.
    has_scale : bool
        Whether theta ends with a scale.
    additive : bool
        Whether the gradient is theta plus a function of the record.  Then theta, which is public, is left out of the
        release and added afterwards: only the record's part is clipped, with half the bound.
    """

    kernel: str
    rules: tuple[float, ...]
    constants: tuple[tuple[float, float], ...]
    slope_bound: float
    scale_bound: float = 0.0
    has_scale: bool = False
    additive: bool = False

    @property
    def regression(self) -> bool:
        """Whether a record has a response."""
        return self.kernel not in LOCATION

    def rule_probabilities(self) -> NDArray[np.float64]:
        """P_tau over the rules, proportional to 1 / (tau (1 - tau)) (method.md section 5)."""
        if len(self.rules) == 1:
            return np.ones(1)
        tau = np.asarray(self.rules)
        p = 1.0 / (tau * (1.0 - tau))
        return np.asarray(p / p.sum())

    def density(self, rule: int) -> float:
        """f times the residual scale at the fitted rule, for normal errors: how H = f E[x x'] reveals the scale.

        phi(Phi^-1(tau)) for a quantile; for the other losses 0.4, which is on the small side.
        """
        tau = self.rules[rule]
        return 0.4 if math.isnan(tau) else float(np.exp(-0.5 * ndtri(tau) ** 2) / math.sqrt(2.0 * math.pi))

    def gradient_bound(self, feature_bound: float) -> float:
        """Bound C of one record's gradient norm, given ``|x| <= feature_bound``."""
        return math.hypot(self.slope_bound * feature_bound, self.scale_bound)


def smoothed_quantile(levels: Sequence[float], bandwidth: float, kernel: str = "gaussian") -> Loss:
    """Check loss convolved with a kernel of ``bandwidth`` h (units of y): slope Kbar(-r/h) - tau in [-tau, 1 - tau].

    Tan, Wang and Zhou (2022), JRSS-B 84(1), 205-233.  Bound max(tau, 1 - tau), over all ``levels``.
    """
    h = check.positive("smoothed_quantile", "bandwidth", bandwidth)
    check.one_of("smoothed_quantile", "kernel", kernel, QUANTILE_KERNELS)
    taus = tuple(check.between("smoothed_quantile", "tau", tau, 0.0, 1.0) for tau in levels)
    bound = max(max(tau, 1.0 - tau) for tau in taus)
    return Loss(f"quantile_{kernel}", taus, tuple((tau, h) for tau in taus), bound)


def huber(c: float = 1.345, kappa: float = 0.71) -> Loss:
    """Huber's loss with concomitant scale s: s rho_c(r/s) + kappa s/2, jointly in (beta, s) (Huber 1981, ch. 7.7).

    Slopes: -psi_c(z), |.| <= c, and (kappa - psi_c(z)^2)/2, between (kappa - c^2)/2 and kappa/2.  ``kappa`` =
    E psi_c(Z)^2 = 0.71 makes s consistent for normal errors.
    """
    check.positive("huber", "c", c)
    check.positive("huber", "kappa", kappa)
    scale_bound = max(kappa / 2.0, (c * c - kappa) / 2.0)
    return Loss("huber_concomitant", (math.nan,), ((c, kappa),), c, scale_bound, has_scale=True)


def huber_fixed_scale(c: float) -> Loss:
    """Huber's rho_c of the residual itself, ``c`` in units of y: |slope| <= c."""
    return Loss("huber_fixed", (math.nan,), ((check.positive("huber_fixed_scale", "c", c), 0.0),), c)


def logistic() -> Loss:
    """Bernoulli negative log likelihood, y in {0, 1}: |sigmoid(eta) - y| <= 1."""
    return Loss("logistic", (math.nan,), ((0.0, 0.0),), 1.0)


def mean() -> Loss:
    """|theta - x|^2 / 2, gradient theta - x: no bound of its own; the kernel clips -x."""
    return Loss("mean", (math.nan,), ((0.0, 0.0),), math.inf, additive=True)


def exponential_mean() -> Loss:
    """Exponential law with mean theta > 0: gradient 1/theta - x/theta^2, no bound of its own."""
    return Loss("exponential_mean", (math.nan,), ((0.0, 0.0),), math.inf)
