"""Renyi moments in multiple precision: the same formulas by their definitions, at any number of digits.

Slow and plain, to check the float path against and for parameters at its edge.  Binomial sums are written out;
the hypergeometric function is mpmath's.
"""

from __future__ import annotations

from typing import Any

import mpmath

from pgbb_fast.accountant.mechanisms import BlockedGaussian, SubsampledGaussian
from pgbb_fast.errors import DomainError, PrivacyError
from pgbb_fast.validation import integer


def precise_log_moment(
    mechanism: BlockedGaussian | SubsampledGaussian, *, order: int, terms: int = 6, digits: int = 50
) -> Any:
    """The closed form of docs/accounting.md, section 2, for one release, with ``terms`` (even) = P, as an ``mpf``."""
    who = "precise_log_moment"
    order = integer(who, "order", order, 2)
    _even(who, terms)
    if mechanism.noise_multiplier is None or mechanism.adjacency != "replace-one":
        raise PrivacyError(f"{who}: needs a replace-one mechanism with its noise multiplier set")
    with mpmath.workdps(digits):
        q, rho = mpmath.mpf(mechanism.sampling_rate), 1 / mpmath.mpf(mechanism.noise_multiplier) ** 2
        if q == 1:
            return mpmath.log(_exponential_moment(mechanism, 2 * order * (order - 1) * rho))
        nu = order - 1
        kappa = [(-1) ** l * mpmath.binomial(nu + l - 1, l) * q**l for l in range(terms)]  # noqa: E741
        kappa.append(
            (1 - q) ** (-nu) - mpmath.fsum(mpmath.binomial(nu + l - 1, l) * q**l for l in range(terms))  # noqa: E741
        )
        cache: dict[int, Any] = {}

        def moment(e: int) -> Any:
            if e not in cache:
                cache[e] = _exponential_moment(mechanism, e * rho)
            return cache[e]

        total = mpmath.mpf(0)
        for s in range(order + 1):
            pmf = mpmath.binomial(order, s) * q**s * (1 - q) ** (order - s)
            for l in range(terms + 1):  # noqa: E741
                inner = mpmath.fsum(
                    mpmath.binomial(l, t) * (-1) ** (l - t) * moment(((s - t) ** 2 - (s + t)) // 2)
                    for t in range(l + 1)
                )
                total += pmf * kappa[l] * inner
        return mpmath.log(total)


def precise_series_log_moment(
    mechanism: BlockedGaussian, *, order: int, moments: int = 32, terms: int = 6, digits: int = 60
) -> Any:
    """Proposition 2.2's series with the proved remainder, m = 5, ``moments`` = J, ``terms`` = P, as an ``mpf``."""
    who = "precise_series_log_moment"
    order = integer(who, "order", order, 2)
    _even(who, terms)
    if terms < 6:
        raise DomainError(f"{who}: terms must be at least 6, got {terms}")
    if mechanism.noise_multiplier is None or mechanism.draws_per_release != 1:
        raise PrivacyError(f"{who}: needs one draw per release and a noise multiplier")
    with mpmath.workdps(digits):
        q, rho = mpmath.mpf(mechanism.sampling_rate), 1 / mpmath.mpf(mechanism.noise_multiplier) ** 2
        last = 2 * moments + 1
        power = [_power_moment(mechanism, 2 * i) for i in range(last + 1)]
        nu = order - 1

        def bounded(k: int) -> Any:
            pairs = [l * (l - 1) // 2 for l in range(k + 1)]  # noqa: E741
            signs = [mpmath.binomial(k, l) * (-1) ** (k - l) for l in range(k + 1)]  # noqa: E741
            value = mpmath.fsum(c * mpmath.exp(p * rho) for c, p in zip(signs, pairs, strict=True))
            for i in range(last + 1):
                c = mpmath.fsum(b * mpmath.mpf(p) ** i for b, p in zip(signs, pairs, strict=True))
                value += c / mpmath.factorial(i) * rho**i * (power[i] - 1)
            return value

        odd = range(1, last + 1, 2)
        sinh = mpmath.sinh(rho) + mpmath.fsum(rho**i / mpmath.factorial(i) * (power[i] - 1) for i in odd)
        total = 2 * order * nu * q**2 * sinh
        g = (1 - q) ** (-nu) - mpmath.fsum(mpmath.binomial(nu + l - 1, l) * q**l for l in range(terms))  # noqa: E741
        coefficient: dict[int, Any] = {}
        for j in range(order + 1):
            for l in range(terms):  # noqa: E741
                if j + l >= 3:
                    value = mpmath.binomial(order, j) * mpmath.binomial(nu + l - 1, l) * q ** (j + l)
                    coefficient[j + l] = coefficient.get(j + l, mpmath.mpf(0)) + value
            value = mpmath.binomial(order, j) * g * q**j
            coefficient[j + terms] = coefficient.get(j + terms, mpmath.mpf(0)) + value
        total += mpmath.fsum(c * bounded(k) for k, c in coefficient.items())
        return mpmath.log1p(total)


def _even(who: str, terms: int) -> None:
    integer(who, "terms", terms, 2)
    if terms % 2:
        raise DomainError(f"{who}: terms must be even, got {terms}: an odd number gives no bound")


def _exponential_moment(mechanism: BlockedGaussian | SubsampledGaussian, x: Any) -> Any:
    """E exp(x R^2)."""
    if isinstance(mechanism, SubsampledGaussian):
        return mpmath.exp(x)
    c, blocks = mpmath.mpf(mechanism.concentration), mechanism.n_blocks
    one = mpmath.hyp2f2(c / 2, (c + 1) / 2, blocks * c / 2, (blocks * c + 1) / 2, x)
    return one**mechanism.draws_per_release


def _power_moment(mechanism: BlockedGaussian, k: int) -> Any:
    """E u^k = (gamma)_k / (S gamma)_k."""
    c = mpmath.mpf(mechanism.concentration)
    return mpmath.rf(c, k) / mpmath.rf(mechanism.n_blocks * c, k)
