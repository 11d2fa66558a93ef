r"""The central-limit claim for the m-out-of-n bootstrap: an asymptotic statement, **not a bound**.

As the replicates grow, the composition is claimed to approach mu-Gaussian differential privacy with
:math:`\mu = \mu_B \sqrt{B (1 - p_0) (m/n) (1 + (m-1)/n)}` (docs/method.md, section 8).  It needs B much larger than
(n/m)^2 and can otherwise be badly optimistic: at n = 1000, m = 10, B = 1000, mu = 1 it claims delta(1) = 0.127
where an explicit pair of databases gives 0.907.  The printed equation for mu_B is the reciprocal of this one.
"""

from __future__ import annotations

import math

from pgbb_fast.accountant._checks import check_epsilon
from pgbb_fast.accountant.mechanisms import ResampledGaussian, check_noise
from pgbb_fast.errors import DomainError
from pgbb_fast.validation import between, positive


def asymptotic_mu(mechanism: ResampledGaussian) -> float:
    """The limit's mu at the mechanism's noise multiplier; asymptotic, not a bound."""
    return _growth("asymptotic_mu", mechanism) / check_noise("asymptotic_mu", mechanism)


def asymptotic_delta(mechanism: ResampledGaussian, *, epsilon: float) -> float:
    """delta(epsilon) that the limit claims; asymptotic, not a bound."""
    epsilon = check_epsilon("asymptotic_delta", epsilon)
    return gaussian_delta(asymptotic_mu(mechanism), epsilon)


def asymptotic_noise_multiplier(mechanism: ResampledGaussian, *, epsilon: float, delta: float) -> float:
    """Noise multiplier at which the limit claims (epsilon, delta); asymptotic, not a bound."""
    who = "asymptotic_noise_multiplier"
    epsilon = positive(who, "epsilon", epsilon)
    delta = between(who, "delta", delta, 0.0, 1.0)
    growth = _growth(who, mechanism)
    low, high = 1e-12, 1e6
    for _ in range(200):
        middle = math.sqrt(low * high)
        if gaussian_delta(middle, epsilon) <= delta:
            low = middle
        else:
            high = middle
    return growth / low


def gaussian_delta(mu: float, epsilon: float) -> float:
    """delta(epsilon) of mu-Gaussian differential privacy (Balle and Wang 2018, arXiv:1805.06530, theorem 8)."""
    from scipy.special import log_ndtr

    first = float(log_ndtr(mu / 2 - epsilon / mu))
    second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return math.exp(first) * -math.expm1(min(second - first, 0.0))


def _growth(who: str, mechanism: ResampledGaussian) -> float:
    if not isinstance(mechanism, ResampledGaussian):
        raise DomainError(f"{who}: needs a ResampledGaussian, got {type(mechanism).__name__}")
    n, m, b = mechanism.n, mechanism.resample_size, mechanism.replicates
    included = -math.expm1(mechanism.log_exclusion)
    return math.sqrt(b * included * (m / n) * (1 + (m - 1) / n))
