r"""Groups of k records: exact where the worst pair is known, a generic bound where it is asked for.

*Exact.*  Noise with a log-concave density (or mass, for whole shifts) has monotone likelihood ratios, so the trade-off
function of its shift by a and then by b is that of its shift by a + b, and k neighbours in a row are at worst one shift
k times as long (Dong, Roth and Su 2022, doi:10.1111/rssb.12454, section 2.5).  That is the plain Gaussian, Laplace
noise and the discrete Gaussian; each release is divided so, and what is composed afterwards is exact again.

*Generic.*  :math:`P_0(S) \le e^\epsilon P_1(S) + \delta` k times over gives
:math:`(k \epsilon, \delta \sum_{i<k} e^{i \epsilon})`, at most :math:`k e^{(k-1)\epsilon} \delta` (Dwork and Roth 2014,
theorem 2.2; Vadhan 2017, lemma 2.2).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from pgbb_fast.accountant._checks import check_delta, check_epsilon
from pgbb_fast.accountant.api import MAX_EPSILON
from pgbb_fast.accountant.events import DiscreteGaussian, Event, LaplaceMechanism, check_event
from pgbb_fast.accountant.ledger import Ledger
from pgbb_fast.accountant.mechanisms import MAX_COUNT, SubsampledGaussian, check_noise
from pgbb_fast.errors import PrivacyError
from pgbb_fast.validation import integer, one_of

GroupBound = Literal["exact", "generic"]

_WIDTH = 1e-4  # relative, of the search for the generic epsilon
_SMALLEST = 1e-300  # delta that the accountant can tell from 0
_UP = 1 + 1e-12


def for_group(event: Event, *, size: int) -> Event:
    """The event as seen by a group of ``size`` records: the same release, its noise ``size`` times smaller.

    Parameters
    ----------
    event : SubsampledGaussian with sampling_rate 1, LaplaceMechanism or DiscreteGaussian
        Its guarantee is for one record, under its own neighbour relation.
    size : int
        Records that are replaced (or added and removed) together, at least 1.

    Returns
    -------
    Event
        Its epsilon, delta, moments and exports are those of the group, exactly (see the module's text); a quotient
        of noise is rounded down.

    Raises
    ------
    PrivacyError
        For subsampled, blocked and resampled mechanisms, whose worst pair for a group isn't known here: ask
        ``group_epsilon`` or ``group_delta`` for ``bound="generic"``.
    DomainError
        The group is so large that what remains is outside the event's domain.
    """
    return _for_group("for_group", event, size)


def group_delta(event: Event, *, size: int, epsilon: float, bound: GroupBound = "exact") -> float:
    """An upper bound of delta at ``epsilon`` for groups of ``size`` records; see ``for_group``.

    ``bound="generic"`` holds for every event and is far above the truth for large groups; it is never the default.
    """
    who = "group_delta"
    one_of(who, "bound", bound, ("exact", "generic"))
    epsilon = check_epsilon(who, epsilon)
    if bound == "exact":
        return _ledger(_for_group(who, event, size)).delta(epsilon=epsilon)
    size = _size(who, size)
    check_event(who, event)
    return _generic(event, size, math.nextafter(epsilon / size, 0.0) if size > 1 else epsilon)


def group_epsilon(event: Event, *, size: int, delta: float, bound: GroupBound = "exact") -> float:
    """An upper bound of epsilon at ``delta`` for groups of ``size`` records; see ``for_group`` and ``group_delta``.

    The generic one is ``size`` times an epsilon whose delta, times the sum, was itself found to be at most ``delta``;
    the search ends within 1e-4 of the smallest one in its bracket.
    """
    who = "group_epsilon"
    one_of(who, "bound", bound, ("exact", "generic"))
    delta = check_delta(who, delta)
    if bound == "exact":
        value = _ledger(_for_group(who, event, size)).epsilon(delta=delta)
        if not math.isfinite(value):
            raise PrivacyError(
                f"{who}: no finite bound at delta = {delta:g} for groups of {size}; raise delta or noise"
            )
        return value
    size = _size(who, size)
    check_event(who, event)
    low, high = 0.0, max(1e-6, _ledger(event).epsilon(delta=delta / size))
    while not high <= MAX_EPSILON or _generic(event, size, high) > delta:
        if not high <= MAX_EPSILON:
            raise PrivacyError(f"{who}: no finite generic bound at delta = {delta:g} for groups of {size}")
        low, high = high, high * 1.5
    while high - low > _WIDTH * high:
        middle = (low + high) / 2
        if _generic(event, size, middle) <= delta:
            high = middle
        else:
            low = middle
    return math.nextafter(size * high, math.inf)


def _generic(event: Event, size: int, epsilon: float) -> float:
    """delta(epsilon) times the sum of e^(i epsilon), i < size; at most 1, rounded up.

    Where delta is too small for double precision it is taken to be 1e-300: the sum may be larger still.
    """
    if isinstance(event, LaplaceMechanism) and epsilon >= event.steps / float(event.scale_over_sensitivity) * _UP:
        return 0.0
    one = max(_ledger(event).delta(epsilon=epsilon), _SMALLEST)
    log_sum = math.log(size)
    if epsilon > 1e-8:  # log of expm1(k epsilon) / expm1(epsilon), without overflow
        log_sum = (size - 1) * epsilon + math.log(math.expm1(-size * epsilon) / math.expm1(-epsilon))
    elif size > 1:
        log_sum += (size - 1) * epsilon
    log_delta = math.log(one) + log_sum
    return min(1.0, math.exp(min(log_delta + 1e-13 * (1 + abs(log_delta) + log_sum), 0.0)))


def _for_group(who: str, event: Event, size: int) -> Event:
    size = _size(who, size)
    event = check_event(who, event)
    if size == 1:
        return event
    if isinstance(event, LaplaceMechanism):
        return replace(event, scale_over_sensitivity=math.nextafter(float(event.scale_over_sensitivity) / size, 0.0))
    if isinstance(event, DiscreteGaussian):
        return replace(event, sensitivity=int(event.sensitivity) * size)
    if isinstance(event, SubsampledGaussian) and event.sampling_rate == 1.0:
        return replace(event, noise_multiplier=math.nextafter(check_noise(who, event) / size, 0.0))
    kind = "a subsampled Gaussian" if isinstance(event, SubsampledGaussian) else type(event).__name__
    raise PrivacyError(
        f"{who}: the worst pair of {kind} for a group of records isn't known here; "
        "ask group_epsilon or group_delta for bound='generic'"
    )


def _size(who: str, size: object) -> int:
    return integer(who, "size", size, 1, MAX_COUNT)


def _ledger(event: Event) -> Ledger:
    ledger = Ledger()
    ledger.record(event)
    return ledger
