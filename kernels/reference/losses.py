"""Slopes of the losses over whole arrays (docs/method.md section 6)."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

from pgbb_fast.kernels.scalar import losses as scalar
from pgbb_fast.kernels.scalar import smooth
from pgbb_fast.kernels.specialise import specialise

Array = NDArray[np.float64]
RegressionSlope = Callable[[Array, Array, float, float, float], tuple[Array, Array]]


def quantile_gaussian(y: Array, eta: Array, scale: float, tau: float, h: float) -> tuple[Array, Array]:
    return ndtr(-(y - eta) / h) - tau, np.zeros_like(y)


def quantile_logistic(y: Array, eta: Array, scale: float, tau: float, h: float) -> tuple[Array, Array]:
    return expit(-(y - eta) / h) - tau, np.zeros_like(y)


def huber_concomitant(y: Array, eta: Array, scale: float, c: float, kappa: float) -> tuple[Array, Array]:
    z = (y - eta) / scale
    return -np.clip(z, -c, c), kappa / 2 - np.minimum(z**2, c**2) / 2


def huber_fixed(y: Array, eta: Array, scale: float, c: float, b: float) -> tuple[Array, Array]:
    return -np.clip(y - eta, -c, c), np.zeros_like(y)


def logistic(y: Array, eta: Array, scale: float, a: float, b: float) -> tuple[Array, Array]:
    return expit(eta) - y, np.zeros_like(y)


def linear(y: Array, eta: Array, scale: float, a: float, b: float) -> tuple[Array, Array]:
    return np.ones_like(y), np.zeros_like(y)


def expectile(y: Array, eta: Array, scale: float, tau: float, reach: float) -> tuple[Array, Array]:
    r = np.clip(y - eta, -reach, reach)
    return -np.where(r > 0, tau, 1 - tau) * r, np.zeros_like(y)


def mean(theta: Array, x: Array) -> Array:
    return theta - x


def exponential_mean(theta: Array, x: Array) -> Array:
    return 1 / theta - x / theta**2


def array_form(formula: Callable[..., tuple[float, float]]) -> RegressionSlope:
    """A loss whose formula stands in ``scalar.losses`` only, there one record at a time: that, record by record."""
    plain = specialise(formula, "plain", **EXACT)
    constants = scalar.CONSTANTS[formula.__name__]

    def slopes(y: Array, eta: Array, scale: float, first: float, second: float) -> tuple[Array, Array]:
        three = constants(scale, first, second)
        found = np.array([plain(one, at, *three) for one, at in zip(y.tolist(), eta.tolist(), strict=True)])
        psi, chi = found.reshape(-1, 2).T
        return psi, chi

    return slopes


EXACT = {
    "half_normal": smooth.half_normal_exact,
    "half_logistic": smooth.half_logistic_exact,
    "exponential": smooth.exponential_exact,
}
REGRESSION_SLOPES: dict[str, RegressionSlope] = {
    **{formula.__name__: array_form(formula) for formula in scalar.REGRESSION},
    "quantile_gaussian": quantile_gaussian,
    "quantile_logistic": quantile_logistic,
    "huber_concomitant": huber_concomitant,
    "huber_fixed": huber_fixed,
    "logistic": logistic,
    "expectile": expectile,
}
MOMENT_SLOPES: dict[str, RegressionSlope] = {**REGRESSION_SLOPES, "linear": linear}  # linear is no loss to train with
LOCATION_SLOPES: dict[str, Callable[[Array, Array], Array]] = {"mean": mean, "exponential_mean": exponential_mean}
