"""What users call: epsilon, delta and noise multiplier, each on the safe side.

Everything is keyword-only but the mechanism, so that a noise multiplier cannot be passed for an epsilon.
"""

from __future__ import annotations

import math
from typing import Literal

from pgbb_fast.accountant.mechanisms import (
    Mechanism,
    ResampledGaussian,
    check_mechanism,
    check_noise,
    with_noise,
)
from pgbb_fast.accountant.orders import Conversion, epsilon_from_moments, log_delta_from_moments
from pgbb_fast.accountant.roots import largest_safe_log
from pgbb_fast.errors import DomainError, PrivacyError
from pgbb_fast.validation import between, one_of, positive, real

Method = Literal["pld", "renyi", "renyi-series"]

_METHODS = ("pld", "renyi", "renyi-series")
_CONVERSIONS = ("standard", "cks")


def log_moment(mechanism: Mechanism, *, order: int, method: Method = "renyi") -> float:
    """Upper bound of the composed log moment A (of order ``order``) of the whole mechanism.

    ``(order - 1)`` times the Renyi divergence is at most A.  Orders are integers from 2 on.
    """
    from pgbb_fast.validation import integer

    who = "log_moment"
    check_mechanism(who, mechanism)
    order = integer(who, "order", order, 2, why="an order of 1 is the Kullback-Leibler divergence, which bounds no delta")
    return _composed_moment(who, mechanism, check_noise(who, mechanism), order, method)


def _composed_moment(who: str, mechanism: Mechanism, noise: float, order: int, method: Method) -> float:
    from pgbb_fast.accountant import renyi, series

    if isinstance(mechanism, ResampledGaussian):
        raise PrivacyError(f"{who}: Renyi accounting is not proved for ResampledGaussian; use method='pld'")
    if method == "renyi":
        return renyi.log_moment(mechanism, order, noise) * mechanism.releases
    law, draws = renyi.square_law(mechanism)
    if mechanism.adjacency == "add-remove":
        raise PrivacyError(f"{who}: Proposition 2.2's series is for replace-one; use method='renyi' or 'pld'")
    if draws > 1:
        raise PrivacyError(
            f"{who}: Proposition 2.2's series has no proof for a minibatch shared by several draws; "
            "use method='renyi' or 'pld'"
        )
    if mechanism.sampling_rate == 1.0:
        return renyi.log_moment(mechanism, order, noise) * mechanism.releases
    return series.series_log_moment(order, float(mechanism.sampling_rate), noise**-2, law) * mechanism.releases


def _renyi_epsilon(who: str, m: Mechanism, noise: float, delta: float, method: Method, conversion: Conversion) -> float:
    return epsilon_from_moments(lambda k: _composed_moment(who, m, noise, k, method), delta, conversion)


def epsilon(
    mechanism: Mechanism, *, delta: float, method: Method = "renyi", conversion: Conversion | None = None
) -> float:
    """An upper bound of the mechanism's epsilon at ``delta``.

    Parameters
    ----------
    mechanism : BlockedGaussian, SubsampledGaussian or ResampledGaussian
    delta : float
        In (0, 1).
    method : {"pld", "renyi", "renyi-series"}
        Privacy-loss distributions; the Renyi closed form; Proposition 2.2's series.
    conversion : {"cks", "standard"}, optional
        Renyi methods only; "cks" where not given.

    Returns
    -------
    float
        At least 0.
    """
    who = "epsilon"
    check_mechanism(who, mechanism)
    noise = check_noise(who, mechanism)
    delta = between(who, "delta", delta, 0.0, 1.0)
    conversion = _check_method(who, method, conversion)
    return _renyi_epsilon(who, mechanism, noise, delta, method, conversion)


def delta(
    mechanism: Mechanism, *, epsilon: float, method: Method = "renyi", conversion: Conversion | None = None
) -> float:
    """An upper bound of the mechanism's delta at ``epsilon`` (>= 0); see :func:`epsilon` for the rest."""
    who = "delta"
    check_mechanism(who, mechanism)
    noise = check_noise(who, mechanism)
    epsilon = check_epsilon(who, epsilon)
    conversion = _check_method(who, method, conversion)
    log_delta = log_delta_from_moments(
        lambda k: _composed_moment(who, mechanism, noise, k, method), epsilon, conversion
    )
    return min(1.0, math.exp(log_delta) * (1 + 1e-12) + 5e-324)


def noise_multiplier(
    mechanism: Mechanism,
    *,
    epsilon: float,
    delta: float,
    method: Method = "renyi",
    conversion: Conversion | None = None,
) -> float:
    """A noise multiplier at which the mechanism is (epsilon, delta)-private, the smallest to within 1e-5.

    The mechanism's own ``noise_multiplier`` is ignored and may be ``None``.  The value returned was itself
    accounted and found to meet the target.
    """
    who = "noise_multiplier"
    check_mechanism(who, mechanism)
    epsilon = positive(who, "epsilon", epsilon)
    delta = between(who, "delta", delta, 0.0, 1.0)
    conversion = _check_method(who, method, conversion)

    def excess(log_noise: float) -> float:
        got = _renyi_epsilon(who, mechanism, math.exp(log_noise), delta, method, conversion)
        if got == 0.0:
            return -math.inf
        return math.log(got / epsilon)

    return math.exp(largest_safe_log(excess, first_guess(mechanism, epsilon, delta), who=who))


def first_guess(mechanism: Mechanism, epsilon: float, delta: float) -> float:
    """Logarithm of a noise multiplier of the right size, from a central limit; a starting point, nothing more."""
    if isinstance(mechanism, ResampledGaussian):
        rate, second = mechanism.resample_size / mechanism.n, 0.25
    else:
        rate = float(mechanism.sampling_rate)
        second = 1.0
        if not hasattr(mechanism, "n_blocks"):
            second = 1.0 if mechanism.adjacency == "replace-one" else 0.25
        else:
            c = mechanism.concentration
            second = mechanism.draws_per_release * (c + 1) / (mechanism.n_blocks * (mechanism.n_blocks * c + 1))
    tail = math.sqrt(2 * max(0.2, -math.log(delta)))
    mu = math.sqrt(tail * tail + 2 * epsilon) - tail
    return math.log(2 * rate * math.sqrt(mechanism.releases * second) / mu)


def check_epsilon(who: str, epsilon: object) -> float:
    """``epsilon`` as a finite float, at least 0."""
    number = real(who, "epsilon", epsilon)
    if not number >= 0:
        raise DomainError(f"{who}: epsilon must be at least 0, got {number!r}")
    return number


def _check_method(who: str, method: Method, conversion: Conversion | None) -> Conversion:
    one_of(who, "method", method, _METHODS)
    if conversion is None:
        return "cks"
    one_of(who, "conversion", conversion, _CONVERSIONS)
    if method == "pld":
        raise DomainError(f"{who}: conversion={conversion!r} belongs to the Renyi methods; method='pld' needs none")
    return conversion
