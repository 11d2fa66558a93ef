r"""Proposition 2.2's series for the Renyi moment, with the remainder proved in docs/accounting.md, section 2.

The part of order q^2 is exact, :math:`2 \lambda (\lambda - 1) q^2 E_u \sinh(r^2)`; every further term is bounded
through :math:`M_k(r) = E_0 (L - 1)^k = \sum_i c_{k,i} r^{2i}`, whose coefficients are non-negative:
:math:`i!\, c_{k,i}` counts the sequences of i pairs that cover k points, hence (by the last pair)

.. math:: c_{k,i+1} = \frac{1}{i+1} \binom{k}{2} (c_{k,i} + 2 c_{k-1,i} + c_{k-2,i}), \qquad c_{0,0} = 1.

Nothing cancels: all terms of the recurrence, the moments and the sums are positive.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.accountant.squares import SquareLaw

Array = NDArray[Any]

FIRST_BOUNDED = 5  # m: orders 3..m-1 in q are kept together (S_k), those from m on bounded
_TERMS = (6, 8, 12, 16, 24, 40)  # even P >= m + 1
_MAX_WORK = 2**23  # numbers of c_{k,i} summed for one order, some tenths of a second: above, no bound (+inf) is given
_ROUND_UP = 1 + 1e-10  # covers 3 (i + k) roundings of the recurrences below, tested against mpmath


def series_log_moment(
    order: int, q: float, rho: float, law: SquareLaw, *, moments: int | None = None, terms: int | None = None
) -> float:
    r"""Upper bound of the log moment A of one release, integer ``order`` >= 2 and q < 1.

    Parameters
    ----------
    order : int
        Renyi order lambda.
    q : float
        Sampling rate, below 1.
    rho : float
        1 / s^2.
    law : SquareLaw
        Law of the block's weight u.
    moments : int, optional
        J: powers of r^2 up to 2 J + 1 use the moments of u, later ones are bounded at u = 1.  ``None`` raises
        J until what is bounded at u = 1 is below 1e-9 of the whole.
    terms : int, optional
        P, even and at least 6; ``None`` takes the best of several.
    """
    candidates = _TERMS if terms is None else (terms,)
    log_mbar = _log_mbar(order + candidates[-1], rho, law, moments)
    leading = math.log(2.0 * order * (order - 1)) + 2 * math.log(q) + _log_sinh(rho, law, moments)
    best = math.inf
    for p in candidates:
        rem = _log_remainder(order, q, p, log_mbar)
        total = float(np.logaddexp(leading, rem))
        best = min(best, float(np.logaddexp(0.0, total)) if total > -30 else math.exp(total))
    return best * _ROUND_UP


def _log_sinh(rho: float, law: SquareLaw, moments: int | None) -> float:
    """log of M_J + R_J: E_u sinh(r^2), moments of u up to the power 2 J + 1 and u = 1 beyond."""
    log_rho = math.log(rho)
    total, term, i = -math.inf, 0.0, 0
    log_u = law.log_moments(64)
    while True:
        i += 1
        term += log_rho - math.log(i)
        if i >= len(log_u):
            log_u = law.log_moments(2 * len(log_u))
        if i % 2 == 1:
            value = term + (float(log_u[i]) if moments is None or i <= 2 * moments + 1 else 0.0)
            total = float(np.logaddexp(total, value))
            if i > 2 * rho and value < total - 45:
                return total


def _log_mbar(k_max: int, rho: float, law: SquareLaw, moments: int | None) -> Array:
    """log Mbar_k, k = 0..k_max: the moment series of M_k(u / s), u = 1 beyond the power 2 J + 1."""
    if max(rho * k_max * (k_max - 1), k_max) * k_max > _MAX_WORK:
        return np.full(k_max + 1, np.inf)
    k = np.arange(k_max + 1.0)
    with np.errstate(divide="ignore"):
        log_pairs = np.log(k * (k - 1) / 2)
    c = np.full(k_max + 1, -np.inf)
    c[0] = 0.0
    log_rho = math.log(rho)
    total: Array = np.full(k_max + 1, -np.inf)
    log_u = law.log_moments(256)
    least = k_max  # every k <= k_max has terms only from power ceil(k / 2) on
    i = 0
    while True:
        shifted = c.copy()
        shifted[1:] = np.logaddexp(shifted[1:], math.log(2.0) + c[:-1])
        shifted[2:] = np.logaddexp(shifted[2:], c[:-2])
        c = shifted + log_pairs + (log_rho - math.log(i + 1))
        i += 1
        if i >= len(log_u):
            log_u = law.log_moments(2 * len(log_u))
        value = c + (float(log_u[i]) if moments is None or i <= 2 * moments + 1 else 0.0)
        total = np.logaddexp(total, value)
        # once i exceeds twice C(k,2) rho and k, the ratio of successive terms is below 1/2 for good
        if i > least and bool((value[3:] < total[3:] - 40).all()) and i > rho * k_max * (k_max - 1):
            return total


def _log_remainder(order: int, q: float, p: int, log_mbar: Array) -> float:
    """log Rem: orders 3..m-1 in q with S_k, the bounded double sum from m on, and the tail with g_P."""
    from scipy.special import betainc, gammaln

    def log_choose(n: Array, k: Array) -> Array:
        result: Array = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
        return result

    nu = order - 1
    log_q = math.log(q)
    j = np.arange(order + 1.0)
    log_lambda = log_choose(np.full_like(j, order), j)  # C(lambda, j)
    i = np.arange(p + 0.0)
    log_nu = gammaln(nu + i) - gammaln(nu) - gammaln(i + 1)  # C(nu + l - 1, l) = C(lambda + l - 2, l)
    parts = []
    for l in range(p):  # noqa: E741
        first = max(0, 3 - l)  # j + l >= 3; S_k is the same sum over j + l = k < m <= P
        jj = np.arange(first, order + 1)
        parts.append(log_lambda[jj] + log_nu[l] + (jj + l) * log_q + log_mbar[jj + l])
    tail = float(betainc(p, nu, q))
    if not tail > 0:
        return math.inf
    log_g = math.log(tail) - nu * math.log1p(-q) - p * log_q
    jj = np.arange(order + 1)
    parts.append(log_lambda + log_g + (jj + p) * log_q + log_mbar[jj + p])
    return float(np.logaddexp.reduce(np.concatenate(parts)))
