r"""A budget for releases whose parameters, and whose number, are chosen after earlier ones were seen.

*Theorem* (the Renyi filter: Feldman and Zrnic 2021, arXiv:2008.11193; Lecuyer 2021, arXiv:2103.01379).  Fix the order
lambda and a number B before anything is released.  Let the i-th release be chosen from the transcript of earlier ones,
and let :math:`A_i = (\lambda - 1) D_\lambda` bound its log moment, itself a function of that transcript.  If
:math:`\sum_i A_i \le B` for *every* transcript, the whole is (lambda, B / (lambda - 1))-Renyi private.

*Proof.*  Let P and Q be the laws of the transcript under neighbours and :math:`M_t = \prod_{i \le t}
(dP_i/dQ_i)^\lambda e^{-A_i}`.  Given the past, A_i is fixed and :math:`E_Q (dP_i/dQ_i)^\lambda \le e^{A_i}`, so M_t
is a non-negative supermartingale under Q and :math:`E_Q M_T \le 1`; the sum of A_i is at most B, so
:math:`E_Q (dP/dQ)^\lambda \le e^B`.  The stopping time is arbitrary.  The order must not be chosen later: sums at
several orders, any of which may be the one that holds, are not covered.

*Odometer* (Whitehouse, Ramdas, Rogers and Wu 2023, arXiv:2203.05481, by Ville's inequality).  Under P the same process
is :math:`e^{(\lambda - 1) L_t - \sum A_i}`, of mean at most 1, so with probability at least 1 - delta *at all times at
once* the privacy loss :math:`L_t` is at most :math:`(\sum_{i \le t} A_i + \log(1/\delta)) / (\lambda - 1)`.

The composed privacy-loss distribution of ``Ledger`` is tighter, but is proved for mechanisms that are fixed in advance.
"""

from __future__ import annotations

import math

from pgbb_fast.accountant._checks import check_delta
from pgbb_fast.accountant.events import DiscreteGaussian, Event, LaplaceMechanism, check_event, event_moment
from pgbb_fast.accountant.ledger import Entry, Guarantee
from pgbb_fast.accountant.mechanisms import Adjacency, check_noise
from pgbb_fast.accountant.moments import composed_moment
from pgbb_fast.accountant.orders import log_factor
from pgbb_fast.errors import BudgetError, DomainError, PrivacyError
from pgbb_fast.validation import integer, one_of

_MAX_ORDER = 10**6
_GROWTH = 1.15  # of the orders tried


class PrivacyFilter:
    """An (epsilon, delta) budget for adaptively chosen releases on one data set.

    Parameters
    ----------
    budget : Guarantee
        Epsilon and delta of everything together, whenever one stops.
    adjacency : {"add-remove", "replace-one"}
        The neighbour relation of every release.
    order : int, optional
        The Renyi order that all is accounted at, 2 to 10^6.
    like : event, optional
        Instead of ``order``: a release like those that are planned; the order at which it can be made most often is
        taken.  With neither, the order that is best for plain Gaussian noise.

    Notes
    -----
    *Formal guarantee.*  However each event is chosen from what was released before, and whenever one stops, all that
    was released after a successful ``spend`` is (``budget.epsilon``, ``budget.delta``)-private together, as long as
    nothing is released that ``spend`` didn't take, and events and stopping depend on records through released
    outputs only.  By the module's theorem at the fixed order, and the conversion of Canonne, Kamath and Steinke
    (2020, proposition 12).

    Raises
    ------
    PrivacyError
        No order can hold the budget, or ``order`` can't.
    """

    def __init__(
        self, *, budget: Guarantee, adjacency: Adjacency, order: int | None = None, like: Event | None = None
    ) -> None:
        who = "PrivacyFilter"
        if not isinstance(budget, Guarantee):
            raise DomainError(f"{who}: budget must be a Guarantee(epsilon=..., delta=...)")
        one_of(who, "adjacency", adjacency, ("add-remove", "replace-one"))
        if order is not None and like is not None:
            raise DomainError(f"{who}: give order or like, not both")
        if like is not None:
            _fits(who, check_event(who, like), adjacency)
        if order is None:
            order = _best_order(who, budget, like)
        self._order = integer(who, "order", order, 2, _MAX_ORDER)
        self._budget, self._adjacency = budget, adjacency
        self._capacity = _capacity(budget, self._order)
        if not self._capacity > 0:
            raise PrivacyError(
                f"{who}: at order {self._order} nothing fits into epsilon = {budget.epsilon:g}, "
                f"delta = {budget.delta:g}; take a larger order"
            )
        self._spent = 0.0
        self._entries: tuple[Entry, ...] = ()

    @property
    def budget(self) -> Guarantee:
        """The budget given."""
        return self._budget

    @property
    def adjacency(self) -> Adjacency:
        """The neighbour relation given."""
        return self._adjacency

    @property
    def order(self) -> int:
        """The order in force, fixed for good."""
        return self._order

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What has been spent on, oldest first."""
        return self._entries

    def spend(self, event: Event, *, label: str = "") -> Entry:
        """Take an event off the budget; call it *before* the release, which may be made once this has returned.

        Raises
        ------
        BudgetError
            The event doesn't fit; nothing was recorded, and a smaller one may still fit.
        PrivacyError
            Another neighbour relation, or an event without Renyi accounting (ResampledGaussian).
        """
        who = "PrivacyFilter.spend"
        _fits(who, check_event(who, event), self._adjacency)
        if not isinstance(label, str):
            raise DomainError(f"{who}: label must be a string, got {type(label).__name__}")
        total = math.nextafter(self._spent + _moment(who, event, self._order), math.inf)
        if not total <= self._capacity:
            raise BudgetError(
                f"{who}: this release would take {total / self._capacity:.6g} times the budget of epsilon = "
                f"{self._budget.epsilon:g}, delta = {self._budget.delta:g}; nothing was recorded, and nothing may be "
                "released"
            )
        entry = Entry(mechanism=event, label=label)
        self._spent, self._entries = total, (*self._entries, entry)
        return entry

    def remaining(self) -> float:
        """The share of the budget that is left, 0 to 1, a lower bound, in units that add up over releases."""
        return max(0.0, (1.0 - self._spent / self._capacity) * (1 - 1e-15))

    def odometer(self, *, delta: float) -> float:
        """What has been spent so far, as an epsilon that holds at all times at once with probability 1 - ``delta``.

        It may be asked for after every release, and acted upon; it is above 0 as soon as anything was spent.  It bounds
        the privacy loss in probability, under either neighbour, which implies (epsilon, delta) at any fixed budget.
        """
        delta = check_delta("PrivacyFilter.odometer", delta)
        if not self._entries:
            return 0.0
        return (self._spent - math.log(delta)) / (self._order - 1) * (1 + 1e-14)


def _capacity(budget: Guarantee, order: int) -> float:
    """The log moment that converts to the budget, rounded down."""
    gained = (order - 1) * float(budget.epsilon)
    log_delta, factor = math.log(budget.delta), log_factor(order, "cks")
    return gained + log_delta - factor - 1e-14 * (gained + abs(log_delta) + abs(factor))


def _best_order(who: str, budget: Guarantee, like: Event | None) -> int:
    """The order at which ``like`` (or Gaussian noise) fits most often; any order would be valid."""
    order, best, most, worse = 2, 0, 0.0, 0
    while order <= _MAX_ORDER and worse < 4:
        capacity = _capacity(budget, order)
        if capacity > 0:
            unit = order * (order - 1.0) if like is None else _moment(who, like, order)
            times = capacity / unit if unit > 0 else math.inf
            best, most, worse = (order, times, 0) if times > most else (best, most, worse + 1)
        order = max(order + 1, math.floor(order * _GROWTH))
    if best == 0:
        raise PrivacyError(f"{who}: no order up to {_MAX_ORDER} holds this budget; raise epsilon or delta")
    return best


def _moment(who: str, event: Event, order: int) -> float:
    if isinstance(event, (LaplaceMechanism, DiscreteGaussian)):
        return event_moment(event, order)
    return composed_moment(who, event, check_noise(who, event), order, "renyi")


def _fits(who: str, event: Event, adjacency: Adjacency) -> None:
    if event.adjacency != adjacency:
        raise PrivacyError(f"{who}: the budget is for {adjacency} neighbours and this release is {event.adjacency}")
