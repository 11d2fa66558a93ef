r"""Renyi accounting of the worst pair in closed form, for any integer order.

For order :math:`\lambda` the moment of one release is
:math:`H = E_0[(1 + q a)^\lambda (1 + q b)^{1-\lambda}]` with a = L1 - 1, b = L2 - 1 the likelihood ratios of
N(+-r, 1) to N(0, 1) less one (docs/accounting.md, sections 1 and 2), and ``log_moment`` returns an upper bound
of :math:`A = \log E_u H`.  A composes by addition.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.accountant.mechanisms import BlockedGaussian, SubsampledGaussian
from pgbb_fast.accountant.squares import EPS, BetaSquare, SquareLaw, UnitSquare, powered

Array = NDArray[Any]

_MANY_ORDERS = 256  # above, fewer numbers of terms are tried
_TERMS = (2, 4, 6, 8, 12, 16, 24)  # even numbers of terms P of (1 + q b)^(1 - lambda); the best bound wins


def square_law(mechanism: BlockedGaussian | SubsampledGaussian) -> tuple[SquareLaw, int]:
    """The law of one squared weight and the number of such weights in one release."""
    if isinstance(mechanism, BlockedGaussian):
        return BetaSquare(mechanism.concentration, mechanism.n_blocks), mechanism.draws_per_release
    return UnitSquare(), 1


def log_moment(mechanism: BlockedGaussian | SubsampledGaussian, order: int, noise: float) -> float:
    """Upper bound of A, the log moment of order ``order`` of **one** release at noise multiplier ``noise``.

    Antipodal pair (replace-one): the closed form of ``antipodal_log_moment``.  Add/remove:
    log sum_s Bin(s; lambda, q) exp((s^2 - s) / (2 sigma^2)), which bounds both directions (Mironov, Talwar and
    Zhang 2019, arXiv:1908.10530, section 3.3).
    """
    law, draws = square_law(mechanism)
    q = float(mechanism.sampling_rate)
    if mechanism.adjacency == "add-remove":
        s = np.arange(order + 1.0)
        excess = UnitSquare().excess((s * s - s) / (2 * noise * noise))
        log_pmf, relative = log_binomial(order, q)
        return _log1p_of_sum(log_pmf + excess.log, excess.sign, excess.error + relative)
    return antipodal_log_moment(order, q, noise**-2, law, draws)


def antipodal_log_moment(order: int, q: float, rho: float, law: SquareLaw, draws: int) -> float:
    r"""Upper bound of :math:`\log E_u H`, integer ``order`` >= 2, ``rho`` = 1 / s^2.

    .. math:: E_u H \le \sum_s Bin(s; \lambda, q) \sum_{t \le P} (-1)^t w_t\, F(e(s, t) \rho), \quad
              w_t = \sum_{l=t}^{P} |\kappa_l| \binom{l}{t}, \quad e(s, t) = ((s-t)^2 - (s+t)) / 2,

    :math:`F = 1 + G` the exponential moment of the squared weight, raised to the power K for a shared minibatch
    (docs/accounting.md, sections 2 and 4).  As the coefficients sum to one, G replaces F and gives H - 1 without
    cancelling the leading 1; what cancellation remains is bounded term by term and added.  Two further bounds
    are taken where they are smaller: H = E exp(2 lambda (lambda - 1) r^2) at q = 1, and joint convexity,
    :math:`H_q \le 1 - q + q H_1`.
    """
    full = powered(law.excess(np.array([2.0 * order * (order - 1) * rho])), draws)
    log_q = math.log(q)
    best = _log1p_of_sum(full.log + log_q, full.sign, full.error + 2 * EPS)
    if q == 1.0 or not math.isfinite(best):
        return best
    if order * q > 200:
        return best
    terms = _TERMS if order <= _MANY_ORDERS else _TERMS[:3]
    log_pmf, relative = log_binomial(order, q)
    weights = [_log_weights(order, q, p) for p in terms]
    top = terms[-1]
    s = np.arange(order + 1.0)
    # |G(x)| <= max(1, e^x), so a term is at most Bin(s) (sum of w) times this: small ones are bounded, not summed
    ceiling = log_pmf + max(float(np.logaddexp.reduce(w)) for w in weights)
    ceiling += draws * rho * np.maximum(s * (s - 1), top * (top - 1)) / 2
    scale = math.log(2.0 * order * (order - 1) * draws * rho) + 2 * log_q + float(law.log_moments(2)[1])
    kept = ceiling > scale + math.log(1e-14 / order)
    dropped = float(np.exp(np.minimum(ceiling[~kept], 0.0)).sum())
    s, log_pmf = s[kept], log_pmf[kept]
    t = np.arange(top + 1.0)[None, :]
    e = ((s[:, None] - t) ** 2 - (s[:, None] + t)) / 2
    unique, inverse = np.unique(e, return_inverse=True)
    g = powered(law.excess(unique * rho), draws)
    inverse = inverse.reshape(e.shape)
    for p, log_w in zip(terms, weights, strict=True):
        part = inverse[:, : p + 1]
        log = log_pmf[:, None] + log_w[None, :] + g.log[part]
        sign = g.sign[part] * (-1.0) ** np.arange(p + 1)
        bound = _log1p_of_sum(log.ravel(), sign.ravel(), (g.error[part] + relative).ravel())
        best = min(best, bound + dropped)
    return best


def log_binomial(order: int, q: float) -> tuple[Array, float]:
    """log Bin(s; order, q), s = 0..order, and a bound on its error beyond one rounding of the result."""
    if q == 1.0:
        out = np.full(order + 1, -np.inf)
        out[-1] = 0.0
        return out, 0.0
    k = np.arange(order + 1.0)
    log_choose, error = _log_choose(order)
    return log_choose + k * math.log(q) + (order - k) * math.log1p(-q), error + 32 * EPS


@lru_cache(maxsize=1024)
def _log_choose(order: int) -> tuple[Array, float]:
    """log C(order, s): from exact integers up to 512, from a cumulated sum beyond, with its error."""
    if order <= 512:
        return np.array([math.log(math.comb(order, s)) for s in range(order + 1)]), 2 * EPS * order
    s = np.arange(1.0, order + 1.0)
    value = np.concatenate(([0.0], np.cumsum(np.log((order + 1 - s) / s))))
    return value, 2 * EPS * order * float(value.max())


@lru_cache(maxsize=4096)
def _log_weights(order: int, q: float, p: int) -> Array:
    r"""log w_t, t = 0..P.  |kappa_l| = C(nu+l-1, l) q^l for l < P, and
    kappa_P = g_P q^P = (1-q)^{-nu} I_q(P, nu), the tail of the negative binomial series (nu = lambda - 1)."""
    from scipy.special import betainc, gammaln

    nu = order - 1
    l = np.arange(p + 0.0)  # noqa: E741
    log_kappa = gammaln(nu + l) - gammaln(nu) - gammaln(l + 1) + l * math.log(q)
    tail = float(betainc(p, nu, q))
    if tail > 0:
        last = math.log(tail) - nu * math.log1p(-q)
    else:  # underflow: sum_{l>=P} C(nu+l-1,l) q^l <= first term / (1 - ratio), or no bound at all
        ratio = q * (nu + p) / (p + 1)
        first = math.lgamma(nu + p) - math.lgamma(nu) - math.lgamma(p + 1) + p * math.log(q)
        last = first - math.log1p(-ratio) if ratio < 1 else math.inf
    log_kappa = np.concatenate((log_kappa, [last + 1e-12]))
    out = np.empty(p + 1)
    for t in range(p + 1):
        k = np.arange(t, p + 1.0)
        terms = log_kappa[t:] + gammaln(k + 1) - gammaln(t + 1.0) - gammaln(k - t + 1)
        out[t] = np.logaddexp.reduce(terms)
    return out


def _log1p_of_sum(log: Array, sign: Array, error: Array) -> float:
    """Upper bound of log(1 + sum sign exp(log)), every term off by at most the relative ``error``."""
    top = float(log.max(initial=-np.inf))
    if top == -math.inf:
        return 0.0
    if not top < math.inf:
        return math.inf
    log, sign, error = (x[log > top - 745] for x in (log, sign, error))  # the rest is below 5e-324 of the top
    size = np.exp(log - top)
    total = float((sign * size).sum() + (size * (error + EPS * (8 + math.log2(size.size) + np.abs(log)))).sum())
    if total <= 0:  # rounding below zero: the moment is at least one
        return 0.0
    large = top > 30
    value = top + math.log(total) + math.exp(-top) / total if large else math.log1p(math.exp(top) * total)
    return value * (1 + 8 * EPS)


def real_order_log_moment(order: float, q: float, noise: float) -> float:
    r"""Upper bound of log E_0[(1 - q + q e^{r x - r^2/2})^order], r = 1 / ``noise``, for any real ``order`` > 1.

    One release of the plain mechanism under add/remove: the direction of a removed record is the larger (Mironov,
    Talwar and Zhang 2019, theorem 5).  The integrand is analytic for :math:`|\mathrm{Im}\, x| < \pi / r`, where its
    modulus is at most :math:`e^{y^2/2}` times its value on the real line, so the trapezoidal sum I_h satisfies
    :math:`|I_h - I| \le 2 e^{d^2/2} I / (e^{2 \pi d / h} - 1)` (Trefethen and Weideman 2014, theorem 5.1).
    """
    r = 1.0 / noise
    strip = min(3.0, 0.98 * math.pi / r)
    h = strip / 12.0
    x = np.arange(math.floor(-10.0 / h), math.ceil((10.0 + order * r) / h) + 1.0) * h
    log_1q = math.log1p(-q) if q < 1 else -math.inf
    terms = order * np.logaddexp(log_1q, math.log(q) + r * x - r * r / 2) - x * x / 2
    top = float(terms.max())
    total = float(np.exp(terms - top).sum()) * h / math.sqrt(2 * math.pi)
    error = 2 * math.exp(strip * strip / 2) / math.expm1(2 * math.pi * strip / h)
    # both tails beyond 10 standard deviations, and roundings in the exponents
    return max(0.0, top + math.log(total)) + math.log1p(error) + 1e-12 + 8 * EPS * (abs(top) + order)
