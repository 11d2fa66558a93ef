"""Releases as dp-accounting's events and back, for what both can say; all else is refused.

dp-accounting's events carry no neighbour relation (its accountants do): it has to be given on the way in, and
``adjacency`` of what was exported has to be given to the accountant on the way out.  Both packages divide the noise by
the norm bound of *one* record's contribution, under either relation; only Laplace noise, here over the sensitivity
itself, is rescaled: under replace-one two contributions of norm at most C are at most 2 C apart.

A LaplaceDpEvent is noise on a vector of bounded L1 norm.  Its worst pair is that of one number with the whole shift:
moving the coordinates one after the other is a chain of shifts, and a chain is at worst one shift as long as all of
them together (module ``group``).
"""

from __future__ import annotations

from typing import Any

from pgbb_fast.accountant.events import Event, LaplaceMechanism, check_event
from pgbb_fast.accountant.ledger import Ledger
from pgbb_fast.accountant.mechanisms import MAX_COUNT, Adjacency, SubsampledGaussian, check_noise
from pgbb_fast.errors import DomainError, MissingExtraError, PrivacyError
from pgbb_fast.validation import integer, one_of, real

_DEEPEST = 50  # nested compositions


def _package(who: str) -> Any:
    try:
        import dp_accounting  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise MissingExtraError(f"{who}: install the package dp-accounting (extra 'test')") from None
    return dp_accounting


def to_dp_accounting(source: Event | Ledger) -> Any:
    """A ``DpEvent`` of dp-accounting that says what was released; its accountants need ``source.adjacency`` as well.

    Parameters
    ----------
    source : SubsampledGaussian, LaplaceMechanism, or a Ledger of these

    Returns
    -------
    dp_accounting.DpEvent
        ``GaussianDpEvent`` or ``LaplaceDpEvent``, within ``PoissonSampledDpEvent`` where records are drawn and
        ``SelfComposedDpEvent`` where there are several steps; ``ComposedDpEvent`` for a ledger.

    Raises
    ------
    PrivacyError
        For blocked and resampled mechanisms and the discrete Gaussian, of which dp-accounting has no event (for the
        blocked one see ``Ledger.replay``).
    MissingExtraError
        dp-accounting isn't installed.
    """
    who = "to_dp_accounting"
    dp = _package(who)
    if isinstance(source, Ledger):
        return dp.ComposedDpEvent([_exported(who, dp, entry.mechanism) for entry in source.entries])
    return _exported(who, dp, check_event(who, source))


def _exported(who: str, dp: Any, event: Event) -> Any:
    if isinstance(event, LaplaceMechanism):
        scale = float(event.scale_over_sensitivity)
        found = dp.LaplaceDpEvent(2 * scale if event.adjacency == "replace-one" else scale)
    elif isinstance(event, SubsampledGaussian):
        found = dp.GaussianDpEvent(check_noise(who, event))
        if event.sampling_rate < 1.0:
            found = dp.PoissonSampledDpEvent(float(event.sampling_rate), found)
    else:
        raise PrivacyError(f"{who}: dp-accounting has no event for a {type(event).__name__}")
    return found if event.steps == 1 else dp.SelfComposedDpEvent(found, int(event.steps))


def from_dp_accounting(event: Any, *, adjacency: Adjacency) -> tuple[Event, ...]:
    """The releases that a ``DpEvent`` of dp-accounting stands for, to be recorded in a Ledger one by one.

    Parameters
    ----------
    event : dp_accounting.DpEvent
        ``GaussianDpEvent``, ``LaplaceDpEvent``, ``PoissonSampledDpEvent`` of a ``GaussianDpEvent``, ``NoOpDpEvent``
        and, of these, ``SelfComposedDpEvent`` and ``ComposedDpEvent``, up to 50 deep.
    adjacency : {"add-remove", "replace-one"}
        The neighbours that the event is to be accounted under; the event doesn't say.

    Returns
    -------
    tuple of SubsampledGaussian and LaplaceMechanism
        Empty for a ``NoOpDpEvent``.

    Raises
    ------
    PrivacyError
        Any other event, subclasses of those named included, the non-private one and a sampled composition in
        particular: nothing is left out or approximated.
    DomainError
        ``event`` is no DpEvent, or a parameter lies outside its domain.
    """
    who = "from_dp_accounting"
    dp = _package(who)
    one_of(who, "adjacency", adjacency, ("add-remove", "replace-one"))
    if not isinstance(event, dp.DpEvent):
        raise DomainError(f"{who}: event must be a DpEvent of dp-accounting")
    return tuple(_imported(who, dp, event, adjacency, 1, 0))


def _imported(who: str, dp: Any, event: Any, adjacency: Adjacency, count: int, depth: int) -> list[Event]:
    kind = type(event)
    if depth > _DEEPEST:
        raise PrivacyError(f"{who}: compositions nested more than {_DEEPEST} deep")
    if kind is dp.NoOpDpEvent:
        return []
    if kind is dp.ComposedDpEvent:
        found: list[Event] = []
        for part in event.events:
            found += _imported(who, dp, part, adjacency, count, depth + 1)
        return found
    if kind is dp.SelfComposedDpEvent:
        times = integer(who, "the count of a SelfComposedDpEvent", event.count, 1, MAX_COUNT) * count
        return _imported(who, dp, event.event, adjacency, times, depth + 1)
    if kind is dp.LaplaceDpEvent:
        scale = real(who, "the noise_multiplier of a LaplaceDpEvent", event.noise_multiplier)
        scale = scale / 2 if adjacency == "replace-one" else scale
        return [LaplaceMechanism(scale_over_sensitivity=scale, steps=count, adjacency=adjacency)]
    rate = 1.0
    if kind is dp.PoissonSampledDpEvent:
        rate, event = event.sampling_probability, event.event
    if type(event) is not dp.GaussianDpEvent:
        known = type(event).__name__ if isinstance(event, dp.DpEvent) else "something else"
        where = " within a PoissonSampledDpEvent" if kind is dp.PoissonSampledDpEvent else ""
        raise PrivacyError(f"{who}: {known}{where} can't be represented here; nothing is left out or approximated")
    noise = real(who, "the noise_multiplier of a GaussianDpEvent", event.noise_multiplier)
    return [SubsampledGaussian(sampling_rate=rate, steps=count, adjacency=adjacency, noise_multiplier=noise)]
