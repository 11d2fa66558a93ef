"""Smooth distribution functions without a library call, evaluated in single precision.

F(x) - 1/2 = u / (2 sqrt(1 + u^2)) with u an odd polynomial in x (u = sinh(x/2) is the logistic function).  Where u is
large the quotient forgives its errors, which a quotient of polynomials doesn't.  The coefficients are a least-maximum
fit of F on [0, b], rounded to single precision.  Beyond b the value at b is used; 1 - F(b) is 3.4e-8 (normal, b = 5.4)
and 6.2e-8 (logistic, b = 16.6).  The absolute error is below 1e-7 for every single-precision x, which the tests prove
by going through all of them.  Clipping, hence the accountant, depends on none of this.
"""

import math

from pgbb_fast.kernels.scalar.arithmetic import fma

NORMAL_END = 5.4
P0, P1, P2, P3, P4 = 0.7978845, 0.120994404, 0.014221947, 0.0011194134, 6.0484035e-05
P5, P6, P7, P8, P9 = 3.3586473e-06, 5.01802e-08, 1.294509e-08, -4.4727663e-10, 1.9935397e-11

LOGISTIC_END = 16.6
Q0, Q1, Q2, Q3 = 0.5, 0.020833315, 0.00026042335, 1.5492669e-06
Q4, Q5, Q6 = 5.425042e-09, 1.12796205e-11, 2.8319303e-14

EXPONENTIAL_END = 16.0
PART = 0.015625      # 2^-6
E2, E3, E4, E5, E6 = 0.5, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0

SQRT_HALF = math.sqrt(0.5)
HALF = 0.5
ONE = 1.0


def within(x: float, end: float) -> float:
    """``x`` moved into [-end, end]; nan stays nan."""
    x = end if x > end else x
    return -end if x < -end else x


def squash(u: float) -> float:
    """u / (2 sqrt(1 + u^2)), in (-1/2, 1/2)."""
    return HALF * u / math.sqrt(fma(u, u, ONE))


def half_normal(x: float) -> float:
    """Phi(x) - 1/2."""
    x = within(x, NORMAL_END)
    t = x * x
    high = fma(fma(fma(fma(P9, t, P8), t, P7), t, P6), t, P5)
    return squash(x * fma(fma(fma(fma(fma(high, t, P4), t, P3), t, P2), t, P1), t, P0))


def half_logistic(x: float) -> float:
    """1 / (1 + exp(-x)) - 1/2."""
    x = within(x, LOGISTIC_END)
    t = x * x
    return squash(x * fma(fma(fma(fma(fma(fma(Q6, t, Q5), t, Q4), t, Q3), t, Q2), t, Q1), t, Q0))


def exponential(x: float) -> float:
    """exp(x), x moved into [-16, 16]: Taylor's p = e^(x/64) - 1, then (1 + p)^2 - 1 = p (2 + p), six times.

    Within 2.5e-7 (1 + |x|) max(1, e^x) of it, which the tests prove by going through all single-precision numbers.
    """
    t = within(x, EXPONENTIAL_END) * PART
    p = t * fma(fma(fma(fma(fma(E6, t, E5), t, E4), t, E3), t, E2), t, ONE)
    p = fma(p, p, p + p)
    p = fma(p, p, p + p)
    p = fma(p, p, p + p)
    p = fma(p, p, p + p)
    p = fma(p, p, p + p)
    p = fma(p, p, p + p)
    return p + ONE


def half_normal_exact(x: float) -> float:
    """Phi(x) - 1/2 in double precision, by the error function."""
    return 0.5 * math.erf(x * SQRT_HALF)


def half_logistic_exact(x: float) -> float:
    """1 / (1 + exp(-x)) - 1/2 in double precision."""
    return 0.5 * math.tanh(0.5 * x)


def exponential_exact(x: float) -> float:
    """exp(x) in double precision, x moved into [-16, 16]."""
    return math.exp(min(max(x, -EXPONENTIAL_END), EXPONENTIAL_END))
