"""Slopes of the losses, one record at a time.

A regression slope is ``f(y, eta, scale, a, b) -> (d loss/d eta, d loss/d scale)`` with ``eta = x'beta`` and two
constants; a location slope is ``f(theta_j, x_j) -> d loss/d theta_j``.  Bounds on them are proved beside the
names users see, in ``pgbb_fast.losses``.
"""

import math

SQRT_HALF = math.sqrt(0.5)


def normal_cdf(x: float) -> float:
    """Phi(x), by the complementary error function (no cancellation in the lower tail)."""
    return 0.5 * math.erfc(-x * SQRT_HALF)


def logistic_cdf(x: float) -> float:
    """1 / (1 + exp(-x)), without overflow."""
    if x >= 0.0:
        return 1.0 / (1.0 + math.exp(-x))
    e = math.exp(x)
    return e / (1.0 + e)


def huber_psi(z: float, c: float) -> float:
    """d/dz of Huber's rho_c; ``|psi| <= c`` (Huber 1964).  nan stays nan."""
    if z > c:
        return c
    if z < -c:
        return -c
    return z


def quantile_gaussian(y: float, eta: float, scale: float, tau: float, h: float) -> tuple[float, float]:
    """Check loss convolved with a normal kernel of bandwidth ``h``: Phi(-r/h) - tau, r = y - eta.

    Tan, Wang and Zhou (2022), JRSS-B 84(1); in [-tau, 1 - tau].
    """
    return normal_cdf((eta - y) / h) - tau, 0.0


def quantile_logistic(y: float, eta: float, scale: float, tau: float, h: float) -> tuple[float, float]:
    """Check loss convolved with a logistic kernel of bandwidth ``h``; in [-tau, 1 - tau]."""
    return logistic_cdf((eta - y) / h) - tau, 0.0


def huber_concomitant(y: float, eta: float, scale: float, c: float, kappa: float) -> tuple[float, float]:
    """s rho_c(r/s) + kappa s/2 in (eta, s): (-psi_c(z), kappa/2 - min(z^2, c^2)/2), z = r/s (Huber 1981, ch. 7.7)."""
    psi = huber_psi((y - eta) / scale, c)
    return -psi, 0.5 * (kappa - psi * psi)


def huber_fixed(y: float, eta: float, scale: float, c: float, b: float) -> tuple[float, float]:
    """rho_c(r): -psi_c(r); |slope| <= c."""
    return -huber_psi(y - eta, c), 0.0


def logistic(y: float, eta: float, scale: float, a: float, b: float) -> tuple[float, float]:
    """Negative log likelihood of a Bernoulli response ``y`` in {0, 1}: sigmoid(eta) - y; in [-1, 1]."""
    return logistic_cdf(eta) - y, 0.0


def mean(theta: float, x: float) -> float:
    """(theta - x)^2 / 2: theta - x."""
    return theta - x


def exponential_mean(theta: float, x: float) -> float:
    """Exponential law with mean theta > 0, log theta + x/theta: 1/theta - x/theta^2."""
    return (theta - x) / (theta * theta)
