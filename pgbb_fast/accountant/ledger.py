"""An append-only ledger of releases with one budget, refusals past it, JSON in and out, and an export to replay."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pgbb_fast.accountant._checks import check_epsilon
from pgbb_fast.accountant.events import DiscreteGaussian, Event, LaplaceMechanism, check_event, event_moment
from pgbb_fast.accountant.mechanisms import (
    Adjacency,
    BlockedGaussian,
    ResampledGaussian,
    SubsampledGaussian,
    check_noise,
)
from pgbb_fast.accountant.orders import epsilon_from_moments
from pgbb_fast.errors import BudgetError, DomainError, PrivacyError
from pgbb_fast.validation import between, one_of, positive, shown

LedgerMethod = Literal["pld", "renyi"]

_KINDS: dict[str, type[Event]] = {
    "BlockedGaussian": BlockedGaussian,
    "SubsampledGaussian": SubsampledGaussian,
    "ResampledGaussian": ResampledGaussian,
    "LaplaceMechanism": LaplaceMechanism,
    "DiscreteGaussian": DiscreteGaussian,
}
_FORMAT = "pgbb-fast ledger 1"


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """An (epsilon, delta) budget."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        positive("Guarantee", "epsilon", self.epsilon)
        between("Guarantee", "delta", self.delta, 0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One recorded release: what was run, and a note that must not be computed from records."""

    mechanism: Event
    label: str = ""


class Ledger:
    """Releases on one data set, composed adaptively, under one neighbour relation.

    Parameters
    ----------
    budget : Guarantee, optional
        Once given, a release that would exceed it is refused *before* it is recorded.
    method : {"pld", "renyi"}
        How the composition is accounted.  With "pld" the mechanisms' privacy-loss distributions are composed
        together; with "renyi" their moments are added order by order.

    Notes
    -----
    *Formal guarantee.*  All entries together are (epsilon(delta), delta)-private for every delta fixed in
    advance, each mechanism and its parameters chosen with knowledge of earlier outputs only through the ledger's
    own refusals (a filter for a fixed budget).
    """

    def __init__(self, *, budget: Guarantee | None = None, method: LedgerMethod = "pld") -> None:
        if budget is not None and not isinstance(budget, Guarantee):
            raise DomainError(f"Ledger: budget must be a Guarantee(epsilon=..., delta=...), got {shown(budget)}")
        self._budget = budget
        self._method: LedgerMethod = one_of("Ledger", "method", method, ("pld", "renyi"))
        self._entries: tuple[Entry, ...] = ()

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What has been recorded, oldest first."""
        return self._entries

    @property
    def budget(self) -> Guarantee | None:
        """The budget, if one was given."""
        return self._budget

    @property
    def adjacency(self) -> Adjacency | None:
        """The neighbour relation of the entries; ``None`` while there are none."""
        return self._entries[0].mechanism.adjacency if self._entries else None

    def record(self, mechanism: Event, *, label: str = "") -> Entry:
        """Append a release; refuses one that the budget does not hold, or of another neighbour relation."""
        who = "Ledger.record"
        check_event(who, mechanism)
        if not isinstance(label, str):
            raise DomainError(f"{who}: label must be a string, got {type(label).__name__}")
        if self._entries and mechanism.adjacency != self.adjacency:
            raise PrivacyError(
                f"{who}: the ledger holds {self.adjacency} guarantees and this one is {mechanism.adjacency}; "
                "keep one ledger for each neighbour relation"
            )
        entry = Entry(mechanism=mechanism, label=label)
        if self._budget is not None:
            spent = self._epsilon((*self._entries, entry), self._budget.delta)
            if not spent <= self._budget.epsilon:
                raise BudgetError(
                    f"{who}: this release would bring epsilon to {spent:.6g} at delta = {self._budget.delta:g}, "
                    f"past the budget of {self._budget.epsilon:g}; nothing was recorded, and nothing may be released"
                )
        self._entries = (*self._entries, entry)
        return entry

    append = record

    def epsilon(self, *, delta: float) -> float:
        """An upper bound of epsilon at ``delta`` for everything recorded; 0 for an empty ledger."""
        return self._epsilon(self._entries, between("Ledger.epsilon", "delta", delta, 0.0, 1.0))

    def delta(self, *, epsilon: float) -> float:
        """An upper bound of delta at ``epsilon`` for everything recorded; 0 for an empty ledger."""
        epsilon = check_epsilon("Ledger.delta", epsilon)
        if not self._entries:
            return 0.0
        if self._method == "pld":
            from pgbb_fast.accountant.pairs import Quality
            from pgbb_fast.accountant.pld import delta_bound

            return delta_bound(_parts(self._entries), epsilon, Quality(), upper=True)
        from pgbb_fast.accountant.orders import log_delta_from_moments

        entries = self._entries
        return min(1.0, math.exp(log_delta_from_moments(lambda k: _moment(entries, k), epsilon, "cks")) * (1 + 1e-12))

    def remaining(self, budget: Guarantee | None = None) -> float:
        """Epsilon not yet spent, at the budget's delta: a lower bound, never negative.

        It is what the total may still grow by, which is more than the epsilon of a further release on its own.
        """
        budget = self._budget if budget is None else budget
        if not isinstance(budget, Guarantee):
            raise DomainError("Ledger.remaining: give a Guarantee(epsilon=..., delta=...); the ledger has none itself")
        return max(0.0, budget.epsilon - self._epsilon(self._entries, budget.delta))

    def _epsilon(self, entries: Sequence[Entry], delta: float) -> float:
        if not entries:
            return 0.0
        if self._method == "pld":
            from pgbb_fast.accountant.pairs import Quality
            from pgbb_fast.accountant.pld import epsilon_bound

            return epsilon_bound(_parts(entries), delta, Quality(), upper=True)
        return epsilon_from_moments(lambda k: _moment(entries, k), delta, "cks")

    def as_dict(self) -> dict[str, Any]:
        """Everything, in JSON's types."""
        return {
            "format": _FORMAT,
            "method": self._method,
            "budget": None if self._budget is None else asdict(self._budget),
            "entries": [
                {
                    "mechanism": type(e.mechanism).__name__,
                    "parameters": asdict(e.mechanism),
                    "adjacency": e.mechanism.adjacency,
                    "label": e.label,
                }
                for e in self._entries
            ],
        }

    def to_json(self) -> str:
        """The ledger as JSON text."""
        return json.dumps(self.as_dict(), indent=2, sort_keys=True, allow_nan=False)

    @classmethod
    def from_dict(cls, data: object) -> Ledger:
        """Read what ``as_dict`` wrote; every parameter is checked again, the budget included."""
        who = "Ledger.from_dict"
        if not isinstance(data, dict) or data.get("format") != _FORMAT:
            raise DomainError(f"{who}: not a ledger written by this version (format {_FORMAT!r})")
        unknown = set(data) - {"format", "method", "budget", "entries"}
        if unknown or not {"method", "budget", "entries"} <= set(data):
            raise DomainError(f"{who}: fields missing or unknown: {sorted(unknown)}")
        try:
            budget = None if data["budget"] is None else Guarantee(**data["budget"])
            ledger = cls(budget=budget, method=data["method"])
            for item in data["entries"]:
                mechanism = _KINDS[item["mechanism"]](**item["parameters"])
                if mechanism.adjacency != item["adjacency"]:
                    raise DomainError(f"{who}: an entry's adjacency does not fit its mechanism")
                ledger.record(mechanism, label=item["label"])
        except (KeyError, TypeError) as error:
            raise DomainError(f"{who}: malformed entry: {error}") from None
        return ledger

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """Read what ``to_json`` wrote."""
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise DomainError(f"Ledger.from_json: not JSON: {error}") from None
        return cls.from_dict(data)

    def replay(self, *, delta: float, bins: int = 60) -> list[dict[str, Any]]:
        """The composition as plain events that dp-accounting can replay (``replay_with_dp_accounting``).

        Each event is ``{"kind", "weight", "sampling_prob", "noise_multiplier", "count", "neighboring_relation"}``:
        per release a mixture, with public weights, of Poisson-subsampled Gaussians.  A block's weight is rounded up
        into ``bins`` bins, so a replay can only come out above the truth.  ``delta`` (where it will be read) sets
        where the bins lie.
        """
        from pgbb_fast.accountant.replay import events

        delta = between("Ledger.replay", "delta", delta, 0.0, 1.0)
        found: list[dict[str, Any]] = []
        for entry in self._entries:
            if isinstance(entry.mechanism, (LaplaceMechanism, DiscreteGaussian)):
                name = type(entry.mechanism).__name__
                raise PrivacyError(f"Ledger.replay: {name} is no mixture of Gaussians; replay the others alone")
            found += events(entry.mechanism, delta, bins)
        return found


def _parts(entries: Sequence[Entry]) -> list[tuple[Any, int]]:
    """Pairs and counts, equal mechanisms taken together."""
    from dataclasses import replace

    from pgbb_fast.accountant.event_pairs import event_pair

    counts: dict[Event, int] = {}
    for entry in entries:
        m = entry.mechanism
        one: Event
        if isinstance(m, ResampledGaussian):
            one, times = replace(m, replicates=1), m.replicates
        elif isinstance(m, BlockedGaussian) and m.minibatch == "independent":
            one, times = replace(m, steps=1, draws_per_step=1), m.releases
        else:
            one, times = replace(m, steps=1), m.steps
        counts[one] = counts.get(one, 0) + times
    return [(event_pair(m), n) for m, n in counts.items()]


def _moment(entries: Sequence[Entry], order: int) -> float:
    from pgbb_fast.accountant.moments import composed_moment

    total = 0.0
    for entry in entries:
        m = entry.mechanism
        if isinstance(m, (LaplaceMechanism, DiscreteGaussian)):
            total += event_moment(m, order)
        else:
            total += composed_moment("Ledger", m, check_noise("Ledger", m), order, "renyi")
    return total
