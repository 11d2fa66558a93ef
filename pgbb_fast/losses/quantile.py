"""Smoothed check losses: quantile regression at several levels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import expit, ndtri

from pgbb_fast import validation as check
from pgbb_fast.losses.base import Array, Loss

__all__ = ["QUANTILE_KERNELS", "SmoothedQuantile", "smoothed_quantile"]

QUANTILE_KERNELS = ("gaussian", "logistic")
NORMAL_PEAK = 1.0 / math.sqrt(2.0 * math.pi)


@dataclass(frozen=True)
class SmoothedQuantile(Loss):
    """:func:`smoothed_quantile`; constants are (tau, h)."""

    is_quantile: ClassVar[bool] = True

    def rule_probabilities(self) -> Array:
        """P_tau proportional to 1 / (tau (1 - tau)) (docs/method.md section 5)."""
        tau = np.asarray(self.rules)
        p = 1.0 / (tau * (1.0 - tau))
        return np.asarray(p / p.sum())

    def density(self, rule: int) -> float:
        """phi(Phi^-1(tau))."""
        return float(np.exp(-0.5 * ndtri(self.rules[rule]) ** 2) / math.sqrt(2.0 * math.pi))

    def bandwidth(self, rule: int) -> float:
        """h."""
        return self.constants[rule][1]

    def curvature_limit(self, rule: int) -> float:
        """The kernel's value at 0 over h: phi(0), or 1/4."""
        return (NORMAL_PEAK if self.kernel == "quantile_gaussian" else 0.25) / self.constants[rule][1]

    def second_derivative(self, y: Array, eta: Array) -> Array:
        """K_h(y - eta) (Tan, Wang and Zhou 2022)."""
        h = self.constants[0][1]
        z = (y - eta) / h
        if self.kernel == "quantile_gaussian":
            return np.asarray(np.exp(-(z**2) / 2.0) * (NORMAL_PEAK / h))
        share = expit(z)
        return np.asarray(share * (1.0 - share) / h)

    def score_correlation(self) -> Array:
        """Between levels t < t' it is sqrt(t (1 - t') / (t' (1 - t)))."""
        tau = np.asarray(self.rules)
        low, high = np.minimum.outer(tau, tau), np.maximum.outer(tau, tau)
        return np.asarray(np.sqrt(low * (1.0 - high) / (high * (1.0 - low))))

    def central(self) -> Loss:
        """The median."""
        return smoothed_quantile([0.5], self.bandwidth(0), self.kernel.removeprefix("quantile_"))

    def shifts(self) -> Array:
        """Normal quantiles."""
        return np.asarray(ndtri(np.asarray(self.rules)))

    def natural_over_unit(self, response: float, features: Array) -> Array:
        """The check loss grows like y."""
        return np.full(len(features), response)


def smoothed_quantile(levels: Sequence[float], bandwidth: float, kernel: str = "gaussian") -> SmoothedQuantile:
    """Check loss convolved with a kernel of ``bandwidth`` h (units of y): slope Kbar(-r/h) - tau in [-tau, 1 - tau].

    Tan, Wang and Zhou (2022), JRSS-B 84(1), 205-233.  Bound max(tau, 1 - tau), over all ``levels``.
    """
    h = check.positive("smoothed_quantile", "bandwidth", bandwidth)
    check.one_of("smoothed_quantile", "kernel", kernel, QUANTILE_KERNELS)
    taus = tuple(check.between("smoothed_quantile", "tau", tau, 0.0, 1.0) for tau in levels)
    bound = max(max(tau, 1.0 - tau) for tau in taus)
    return SmoothedQuantile(f"quantile_{kernel}", taus, tuple((tau, h) for tau in taus), bound)
