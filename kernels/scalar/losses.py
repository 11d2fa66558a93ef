"""Slopes of the losses, one record at a time.

A regression slope is ``f(y, eta, a, b, c) -> (d loss/d eta, d loss/d scale)`` with ``eta = x'beta``; its three
constants come from ``CONSTANTS[name](scale, first, second)``: once for each draw, from theta's scale and the loss's
own two constants, all public.  A location slope is ``f(theta_j, x_j) -> d loss/d theta_j``.  Bounds on them are
proved beside the names users see, in ``pgbb_fast.losses``.  Numbers have names here because the devices bind them
to single precision.
"""

from pgbb_fast.kernels.scalar.arithmetic import fma
from pgbb_fast.kernels.scalar.smooth import exponential, half_logistic, half_normal, within

ZERO = 0.0
ONE = 1.0
HALF = 0.5


def quantile_gaussian(y: float, eta: float, a: float, b: float, c: float) -> tuple[float, float]:
    """Check loss convolved with a normal kernel of bandwidth h = 1/a: Phi(-r/h) - tau, r = y - eta, b = 1/2 - tau.

    Tan, Wang and Zhou (2022), JRSS-B 84(1); in [-tau, 1 - tau].
    """
    return half_normal((eta - y) * a) + b, ZERO


def quantile_logistic(y: float, eta: float, a: float, b: float, c: float) -> tuple[float, float]:
    """Check loss convolved with a logistic kernel of bandwidth h = 1/a; b = 1/2 - tau; in [-tau, 1 - tau]."""
    return half_logistic((eta - y) * a) + b, ZERO


def huber_concomitant(y: float, eta: float, a: float, b: float, c: float) -> tuple[float, float]:
    """s rho_b(r/s) + kappa s/2 in (eta, s), a = 1/s, c = kappa/2: (psi_b(-z), c - min(z^2, b^2)/2), z = r/s.

    Huber (1981), chapter 7.7.
    """
    psi = within((eta - y) * a, b)
    return psi, fma(-HALF * psi, psi, c)


def huber_fixed(y: float, eta: float, a: float, b: float, c: float) -> tuple[float, float]:
    """rho_b(r): psi_b(-r); |slope| <= b (Huber 1964)."""
    return within(eta - y, b), ZERO


def logistic(y: float, eta: float, a: float, b: float, c: float) -> tuple[float, float]:
    """Negative log likelihood of a Bernoulli response ``y`` in {0, 1}: sigmoid(eta) - y; in [-1, 1]."""
    return half_logistic(eta) + (HALF - y), ZERO


def linear(y: float, eta: float, a: float, b: float, c: float) -> tuple[float, float]:
    """The predictor itself as loss: 1.  Its gradient is x, so its second moment is that of the features."""
    return ONE, ZERO


def expectile(y: float, eta: float, a: float, b: float, c: float) -> tuple[float, float]:
    """Asymmetric square |tau - 1(r < 0)| r^2 / 2, r = y - eta moved into [-a, a]; b = tau, c = 1 - tau.

    Newey and Powell (1987), Econometrica 55(4); in [-tau a, (1 - tau) a].
    """
    psi = within(y - eta, a)
    return -(b if psi > ZERO else c) * psi, ZERO


def poisson(y: float, eta: float, a: float, b: float, c: float) -> tuple[float, float]:
    """Negative log likelihood of a Poisson count, over its bound 1/a: a e^eta - y, y the count times a, at least 0.

    eta counts as b where it is larger (the loss goes on as a line); in [-1, max(a e^b, 0)].  McCullagh and Nelder
    (1989), chapter 6.
    """
    return a * exponential(b if eta > b else eta) - (ZERO if y < ZERO else y), ZERO


REGRESSION = (quantile_gaussian, quantile_logistic, huber_concomitant, huber_fixed, logistic, expectile, poisson)
WITH_SCALE = frozenset({"huber_concomitant"})   # theta ends with a scale


def quantile_constants(scale: float, tau: float, h: float) -> tuple[float, float, float]:
    """(1/h, 1/2 - tau, 0)."""
    return 1.0 / h, 0.5 - tau, 0.0


def huber_concomitant_constants(scale: float, c: float, kappa: float) -> tuple[float, float, float]:
    """(1/s, c, kappa/2)."""
    return 1.0 / scale, c, 0.5 * kappa


def huber_fixed_constants(scale: float, c: float, unused: float) -> tuple[float, float, float]:
    """(0, c, 0)."""
    return 0.0, c, 0.0


def expectile_constants(scale: float, tau: float, reach: float) -> tuple[float, float, float]:
    """(reach, tau, 1 - tau)."""
    return reach, tau, 1.0 - tau


def poisson_constants(scale: float, bound: float, unit: float) -> tuple[float, float, float]:
    """(unit, bound, 0)."""
    return unit, bound, 0.0


def no_constants(scale: float, first: float, second: float) -> tuple[float, float, float]:
    """(0, 0, 0)."""
    return 0.0, 0.0, 0.0


def mean(theta: float, x: float) -> float:
    """(theta - x)^2 / 2: theta - x."""
    return theta - x


def exponential_mean(theta: float, x: float) -> float:
    """Exponential law with mean theta > 0, log theta + x/theta: 1/theta - x/theta^2."""
    return (theta - x) / (theta * theta)


LOCATION = (mean, exponential_mean)
CONSTANTS = {
    "quantile_gaussian": quantile_constants,
    "quantile_logistic": quantile_constants,
    "huber_concomitant": huber_concomitant_constants,
    "huber_fixed": huber_fixed_constants,
    "logistic": no_constants,
    "linear": no_constants,
    "expectile": expectile_constants,
    "poisson": poisson_constants,
    "mean": no_constants,
    "exponential_mean": no_constants,
}
