"""What users call: epsilon, delta, noise multiplier and steps, each on the safe side, and brackets of them.

Everything is keyword-only but the mechanism, so that a noise multiplier cannot be passed for an epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from pgbb_fast.accountant._checks import Method, check_delta, check_epsilon, check_method
from pgbb_fast.accountant.mechanisms import (
    MIN_EPSILON,
    MOST,
    BlockedGaussian,
    Bounds,
    Mechanism,
    ResampledGaussian,
    SubsampledGaussian,
    check_mechanism,
    check_noise,
    with_count,
)
from pgbb_fast.accountant.orders import Conversion, epsilon_from_moments, log_delta_from_moments
from pgbb_fast.accountant.roots import bracket_root, largest_integer
from pgbb_fast.errors import PrivacyError
from pgbb_fast.validation import between, integer

MIN_NOISE = 1e-4  # smallest noise multiplier that calibration returns
_MAX_NOISE = 1e15
MAX_EPSILON = 1e5
_MAX_STEPS = 10**9


def log_moment(mechanism: Mechanism, *, order: int, method: Method = "renyi") -> float:
    """Upper bound of the composed log moment A of order ``order``: (order - 1) times the Renyi divergence.

    Parameters
    ----------
    mechanism : BlockedGaussian or SubsampledGaussian
    order : int
        At least 2, without a cap.
    method : {"renyi", "renyi-series"}
    """
    from pgbb_fast.accountant.moments import composed_moment

    who = "log_moment"
    check_mechanism(who, mechanism)
    order = integer(who, "order", order, 2, why="order 1 is the Kullback-Leibler divergence, which bounds no delta")
    check_method(who, method, None)
    if method == "pld":
        raise PrivacyError(f"{who}: method must be 'renyi' or 'renyi-series'")
    return composed_moment(who, mechanism, check_noise(who, mechanism), order, method)


def epsilon(
    mechanism: Mechanism, *, delta: float, method: Method = "pld", conversion: Conversion | None = None
) -> float:
    """An upper bound of the mechanism's epsilon at ``delta``.

    Parameters
    ----------
    mechanism : BlockedGaussian, SubsampledGaussian or ResampledGaussian
    delta : float
        In (0, 1).
    method : {"pld", "renyi", "renyi-series"}
        Privacy-loss distributions (see :func:`epsilon_bounds` for how near the truth); the Renyi closed form;
        Proposition 2.2's series.
    conversion : {"cks", "standard"}, optional
        Renyi methods only; "cks" where not given.

    Returns
    -------
    float
        At least 0.

    Notes
    -----
    *Edge of the domain.*  With "pld" the value is within 1% of the truth, and takes about 2 seconds at most, except
    where q is below 1e-3 and q T below 5.  There it was up to 1.7% above an independent convolution and, where that
    can't tell (delta of 1e-14, q T = 3), 57% above the lower end, which is loose itself; never below.
    ``bench/results/accountant_configurations.md`` has the 46 configurations measured.
    """
    who = "epsilon"
    check_mechanism(who, mechanism)
    noise = check_noise(who, mechanism)
    delta = check_delta(who, delta)
    conversion = check_method(who, method, conversion)
    value = epsilon_function(who, mechanism, delta, method, conversion)(noise)
    if not math.isfinite(value):
        raise PrivacyError(f"{who}: no finite bound at delta = {delta:g}; raise delta or the noise multiplier")
    return value


def delta(
    mechanism: Mechanism, *, epsilon: float, method: Method = "pld", conversion: Conversion | None = None
) -> float:
    """An upper bound of the mechanism's delta at ``epsilon`` (>= 0), at most 1; see :func:`epsilon` for the rest."""
    who = "delta"
    check_mechanism(who, mechanism)
    noise = check_noise(who, mechanism)
    epsilon = check_epsilon(who, epsilon)
    conversion = check_method(who, method, conversion)
    if method == "pld":
        from pgbb_fast.accountant.pairs import Quality, pair_for
        from pgbb_fast.accountant.pld import delta_bound

        return delta_bound([(pair_for(mechanism, noise), mechanism.releases)], epsilon, Quality(), upper=True)
    from pgbb_fast.accountant.moments import composed_moment

    log_delta = log_delta_from_moments(
        lambda order: composed_moment(who, mechanism, noise, order, method), epsilon, conversion
    )
    return min(1.0, math.exp(log_delta) * (1 + 1e-12) + 5e-324)


def epsilon_bounds(mechanism: Mechanism, *, delta: float) -> Bounds:
    """A bracket of the mechanism's epsilon at ``delta`` by privacy-loss distributions.

    The truth bracketed is that of the dominating pair: exact for the worst-case database, and the upper end is
    what may be claimed.  Refined until the ends are within 0.03% of each other or hardly come closer, four times
    at most: the width isn't promised, and is what the two ends say.  It is wide where a record is drawn seldom
    (q T of 1 to 100 and q below 1e-3): the lower end can be a third below the upper, or useless, even 0,
    under add-remove neighbours or at a delta below 1e-9.
    """
    from pgbb_fast.accountant.pairs import pair_for
    from pgbb_fast.accountant.pld import epsilon_bound

    who = "epsilon_bounds"
    check_mechanism(who, mechanism)
    parts = [(pair_for(mechanism, check_noise(who, mechanism)), mechanism.releases)]
    delta = check_delta(who, delta)
    return _refined(lambda quality, upper: epsilon_bound(parts, delta, quality, upper=upper))


def delta_bounds(mechanism: Mechanism, *, epsilon: float) -> Bounds:
    """A bracket of the mechanism's delta at ``epsilon`` (>= 0); see :func:`epsilon_bounds`.

    Refined until the ends are within 0.1% of each other or hardly come closer.  A small error of epsilon is a large
    one of delta where delta is small: below 1e-9 the upper end can be 9% above the lower one.
    """
    from pgbb_fast.accountant.pairs import pair_for
    from pgbb_fast.accountant.pld import delta_bound

    who = "delta_bounds"
    check_mechanism(who, mechanism)
    parts = [(pair_for(mechanism, check_noise(who, mechanism)), mechanism.releases)]
    epsilon = check_epsilon(who, epsilon)
    return _refined(lambda quality, upper: delta_bound(parts, epsilon, quality, upper=upper), 1e-3)


def noise_multiplier(
    mechanism: Mechanism,
    *,
    epsilon: float,
    delta: float,
    method: Method = "pld",
    conversion: Conversion | None = None,
) -> float:
    """A noise multiplier at which the mechanism is (epsilon, delta)-private.

    The smallest that the method can show, to within 1e-5 (relative), and at least 1e-4; where epsilon as computed
    jumps or is blurred (rarely drawn records at a small delta), to within 1e-3 or that blur.  The mechanism's own
    ``noise_multiplier`` is ignored and may be ``None``.  The value returned was itself accounted and found to
    meet the target; the search ends after at most 120 evaluations.

    *Edge of the domain.*  Of 46 configurations over the whole domain (see :func:`epsilon`) 31 took 2 seconds of
    processor time or less and 14 took 2.1 to 5.3: q below 2e-3, or several draws of a shared minibatch.  One took 19,
    and leaves 1.7% of epsilon unused: q T = 3 at delta = 1e-14 (q = 4.4e-5, T = 70,000, S = 10, K = 3, epsilon .1).

    Raises
    ------
    PrivacyError
        No noise multiplier up to 1e15 was found to meet the target.
    """
    who = "noise_multiplier"
    check_mechanism(who, mechanism)
    epsilon = between(who, "epsilon", epsilon, MIN_EPSILON, MAX_EPSILON, "more protects nothing")
    delta = check_delta(who, delta)
    conversion = check_method(who, method, conversion)
    function = epsilon_function(who, mechanism, delta, method, conversion)
    start, slope = first_guess(mechanism, epsilon, delta), 1.0
    if method == "pld":
        start, slope = _near(who, mechanism, epsilon, delta, start)
    return _calibrated(who, function, epsilon, start, slope=slope)[0].upper


def noise_multiplier_bounds(mechanism: Mechanism, *, epsilon: float, delta: float) -> Bounds:
    """A bracket of the least noise multiplier for (epsilon, delta); see :func:`epsilon_bounds`.

    At ``lower`` a lower bound of epsilon was found to exceed the target, at ``upper`` an upper bound to meet it.
    """
    from pgbb_fast.accountant.pairs import Quality, pair_for
    from pgbb_fast.accountant.pld import epsilon_bound

    who = "noise_multiplier_bounds"
    check_mechanism(who, mechanism)
    epsilon = between(who, "epsilon", epsilon, MIN_EPSILON, MAX_EPSILON, "more protects nothing")
    delta = check_delta(who, delta)
    quality = replace(Quality().finer().finer(), bins=320)

    def side(upper: bool) -> Callable[[float], float]:
        return lambda noise: epsilon_bound(
            [(pair_for(mechanism, noise), mechanism.releases)], delta, quality, upper=upper
        )

    start, slope = _near(who, mechanism, epsilon, delta, first_guess(mechanism, epsilon, delta))
    high = _calibrated(who, side(True), epsilon, start, slope=slope)[0].upper
    low = _calibrated(who, side(False), epsilon, math.log(high) - 1e-4, slope=slope)[0].lower
    return Bounds(0.0 if low <= MIN_NOISE else min(low, high), high)


def steps(
    mechanism: Mechanism,
    *,
    epsilon: float,
    delta: float,
    method: Method = "pld",
    conversion: Conversion | None = None,
) -> int:
    """Steps (replicates) that fit into (epsilon, delta) at the mechanism's noise multiplier; its own are ignored.

    The largest number that the method can show, exactly up to 1,000 and to within 0.1% beyond, at most 10^9.
    The number returned was itself accounted.  Refuses where not even one fits.
    """
    who = "steps"
    check_mechanism(who, mechanism)
    noise = check_noise(who, mechanism)
    epsilon = between(who, "epsilon", epsilon, MIN_EPSILON, MOST)
    delta = check_delta(who, delta)
    conversion = check_method(who, method, conversion)

    def fits(count: int) -> bool:
        return epsilon_function(who, with_count(mechanism, count), delta, method, conversion)(noise) <= epsilon

    if not fits(1):
        raise PrivacyError(f"{who}: not even one step fits into epsilon = {epsilon:g}, delta = {delta:g}")
    low, high = 1, 4
    while high <= _MAX_STEPS and fits(high):
        low, high = high, high * 4
    if high > _MAX_STEPS:
        return low
    while high - low > max(1, low // 1000):
        middle = math.isqrt(low * high) if high > 2 * low else (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return largest_integer(fits, low, high) if high - low > 1 and low < 1000 else low


def epsilon_function(
    who: str, mechanism: Mechanism, delta: float, method: Method, conversion: Conversion
) -> Callable[[float], float]:
    """Upper bound of epsilon as a function of the noise multiplier; +inf where there is none."""
    if method == "pld":
        from pgbb_fast.accountant.pairs import Quality, pair_for
        from pgbb_fast.accountant.pld import epsilon_bound

        quality = Quality()
        return lambda noise: epsilon_bound(
            [(pair_for(mechanism, noise), mechanism.releases)], delta, quality, upper=True
        )
    from pgbb_fast.accountant.moments import composed_moment

    def by_moments(noise: float) -> float:
        value = epsilon_from_moments(
            lambda order: composed_moment(who, mechanism, noise, order, method), delta, conversion
        )
        if method == "renyi" and mechanism.adjacency == "add-remove":
            value = min(value, _real_orders(mechanism, noise, delta, conversion))
        return value

    return by_moments


def _real_orders(mechanism: Mechanism, noise: float, delta: float, conversion: Conversion) -> float:
    """The plain mechanism's moments are known at real orders too, which matter where the best order is below 3."""
    if not isinstance(mechanism, SubsampledGaussian):
        return math.inf
    from pgbb_fast.accountant.orders import log_factor_real, minimise_over_reals
    from pgbb_fast.accountant.renyi import real_order_log_moment

    q, count, log_delta = float(mechanism.sampling_rate), mechanism.releases, math.log(delta)

    def objective(order: float) -> float:
        moment = count * real_order_log_moment(order, q, noise)
        return (moment + log_factor_real(order, conversion) - log_delta) / (order - 1)

    value = minimise_over_reals(objective, 1.0 + 1e-3, 4.0)
    return max(0.0, value + 1e-14 * abs(value))


def first_guess(mechanism: Mechanism, epsilon: float, delta: float) -> float:
    """Logarithm of a noise multiplier of the right size, from a central limit; a starting point, nothing more."""
    if isinstance(mechanism, ResampledGaussian):
        rate, second = mechanism.resample_size / mechanism.n, 0.25
    elif isinstance(mechanism, BlockedGaussian):
        rate, c, blocks = float(mechanism.sampling_rate), mechanism.concentration, mechanism.n_blocks
        second = mechanism.draws_per_release * (c + 1) / (blocks * (blocks * c + 1))
    else:
        rate, second = float(mechanism.sampling_rate), 1.0 if mechanism.adjacency == "replace-one" else 0.25
    tail = math.sqrt(2 * max(0.2, -math.log(delta)))
    mu = math.sqrt(tail * tail + 2 * epsilon) - tail
    return math.log(2 * rate * math.sqrt(mechanism.releases * second) / mu)


def _near(who: str, mechanism: Mechanism, epsilon: float, delta: float, start: float) -> tuple[float, float]:
    """Logarithm of a noise multiplier some 0.1% from the right one, by coarse looks at ``epsilon`` itself.

    And how steeply epsilon's logarithm falls there.
    """
    from pgbb_fast.accountant.pairs import Quality, pair_for
    from pgbb_fast.accountant.pld import epsilon_near

    def value(noise: float) -> float:
        parts = [(pair_for(mechanism, noise), mechanism.releases)]
        return epsilon_near(parts, delta, epsilon, Quality(tolerance=1e-3, bins=80), upper=True)

    found, slope = _calibrated(who, value, epsilon, start, tolerance=1e-3)
    return math.log(found.upper), slope


def _calibrated(
    who: str,
    function: Callable[[float], float],
    target: float,
    start: float,
    *,
    tolerance: float = 1e-5,
    slope: float = 1.0,
) -> tuple[Bounds, float]:
    """Tested noise multipliers, epsilon above ``target`` at the lower and not above at the upper; and the slope.

    Where epsilon is blurred they are as close as the blur lets them come (see ``bracket_root``).
    """

    def excess(log_noise: float) -> float:
        got = function(math.exp(log_noise))
        if math.isnan(got):
            return math.inf
        return math.log(got / target) if got > 0 else -math.inf

    found = bracket_root(
        excess,
        start,
        who=who,
        low=math.log(MIN_NOISE),
        high=math.log(_MAX_NOISE),
        tolerance=tolerance,
        slope=slope,
    )
    return Bounds(math.exp(found.bad), math.exp(found.good)), found.slope


def _refined(bound: Callable[..., float], width: float = 3e-4) -> Bounds:
    """Bracket at increasing quality until it is narrower than ``width`` or hardly narrows, four times at most."""
    from pgbb_fast.accountant.pairs import Quality

    quality = Quality()
    low, high = 0.0, math.inf
    for _ in range(4):
        before = high - low
        high = min(high, bound(quality, True))
        low = max(low, min(bound(quality, False), high))
        if high - low <= width * high or high - low > 0.6 * before:
            break
        quality = quality.finer()
    return Bounds(low, high)
