r"""The same releases in two other definitions: zero-concentrated and Gaussian differential privacy, labelled.

*zCDP* (Bun and Steinke 2016, arXiv:1605.02065): :math:`D_\alpha(P\|Q) \le \rho \alpha`, alpha > 1; rho adds up.
Two Gaussians m standard deviations apart have :math:`D_\alpha = \alpha m^2 / 2`, so rho = m^2 / 2, with m = 1 / s
under add-remove and 2 / s under replace-one, s the noise over the norm bound of one record.  The discrete Gaussian:
:math:`\Delta^2 / (2 \sigma^2)` (Canonne, Kamath and Steinke 2020, proposition 5).  Laplace, e = Delta / b: e^2 / 2
(Bun and Steinke, proposition 3.3), and at most e, as :math:`D_\alpha \le D_\infty \le e`.

*GDP* (Dong, Roth and Su 2022): the trade-off function is at least that of N(0, 1) against N(mu, 1); mu^2 adds up, and
for the plain Gaussian mu = m exactly.  Nothing else here is GDP exactly, and no central limit is offered as a bound
(``asymptotic_mu`` is the paper's claim for the bootstrap).

*Unsampled.*  Leaving records out at random gives a mixture, over the samples, of pairs that are equal or apart as in
the mechanism without subsampling, so by joint convexity what holds without it holds with it; a Dirichlet weight is at
most 1, and is taken to be 1.  Valid, and loose.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pgbb_fast.accountant.events import DiscreteGaussian, Event, LaplaceMechanism, check_event
from pgbb_fast.accountant.ledger import Ledger
from pgbb_fast.accountant.mechanisms import (
    Adjacency,
    BlockedGaussian,
    SubsampledGaussian,
    check_noise,
    deterministic,
)
from pgbb_fast.errors import DomainError, PrivacyError
from pgbb_fast.validation import one_of

ExportBound = Literal["exact", "unsampled"]

_UP = 1 + 1e-14  # a few roundings of one event's value


@dataclass(frozen=True, kw_only=True)
class ZeroConcentrated:
    """rho-zCDP, of which neighbours, and whether subsampling was left out of the account."""

    rho: float
    adjacency: Adjacency
    bound: ExportBound


@dataclass(frozen=True, kw_only=True)
class GaussianPrivacy:
    """mu-GDP, of which neighbours, and whether subsampling was left out of the account."""

    mu: float
    adjacency: Adjacency
    bound: ExportBound


def to_zcdp(source: Event | Ledger, *, bound: ExportBound = "exact") -> ZeroConcentrated:
    """The releases as zero-concentrated differential privacy; rho is rounded up.

    Parameters
    ----------
    source : an event, or a Ledger with at least one entry
    bound : {"exact", "unsampled"}
        "exact" takes plain Gaussian, discrete Gaussian and Laplace events and refuses subsampled ones, for which
        subsampling saves nothing at large orders.  "unsampled" takes SubsampledGaussian and BlockedGaussian too, as
        if every record were drawn with weight 1: a valid and loose bound, labelled so in the result.

    Raises
    ------
    PrivacyError
        An event has no such bound.
    """
    who = "to_zcdp"
    events, adjacency = _events(who, source, bound)
    rho = 0.0
    for event in events:
        if isinstance(event, DiscreteGaussian):
            one = (event.sensitivity / float(event.sigma)) ** 2 / 2 * event.steps
        elif isinstance(event, LaplaceMechanism):
            loss = 1.0 / float(event.scale_over_sensitivity)
            one = min(loss, loss * loss / 2) * event.steps
        else:
            one = _squared(who, event, bound) / 2
        rho = math.nextafter(rho + one * _UP, math.inf)
    return ZeroConcentrated(rho=rho, adjacency=adjacency, bound=bound)


def to_gdp(source: Event | Ledger, *, bound: ExportBound = "exact") -> GaussianPrivacy:
    """The releases as Gaussian differential privacy; mu is rounded up.

    With ``bound="exact"`` only plain Gaussian events (SubsampledGaussian at sampling_rate 1), for which mu says all
    that there is to say; see ``to_zcdp`` for "unsampled".  Laplace and discrete Gaussian events are refused.
    """
    who = "to_gdp"
    events, adjacency = _events(who, source, bound)
    total = 0.0
    for event in events:
        if isinstance(event, (LaplaceMechanism, DiscreteGaussian)):
            raise PrivacyError(f"{who}: {type(event).__name__} is not Gaussian-private exactly; export it as zCDP")
        total = math.nextafter(total + _squared(who, event, bound) * _UP, math.inf)
    return GaussianPrivacy(mu=math.sqrt(total) * _UP, adjacency=adjacency, bound=bound)


def _squared(who: str, event: Event, bound: ExportBound) -> float:
    """mu^2 of a Gaussian event, all its releases together."""
    plain = event
    if isinstance(event, BlockedGaussian) and bound == "unsampled":
        plain = deterministic(event)
    if not isinstance(plain, SubsampledGaussian):
        raise PrivacyError(f"{who}: {type(event).__name__} has no such bound; account for it in a Ledger instead")
    if plain.sampling_rate < 1.0 and bound == "exact":
        raise PrivacyError(
            f"{who}: subsampling saves nothing at large orders; account for it in a Ledger, or ask for "
            "bound='unsampled', which is valid and loose"
        )
    apart = (2.0 if plain.adjacency == "replace-one" else 1.0) / check_noise(who, plain)
    return apart * apart * plain.releases


def _events(who: str, source: object, bound: object) -> tuple[Sequence[Event], Adjacency]:
    one_of(who, "bound", bound, ("exact", "unsampled"))
    if not isinstance(source, Ledger):
        event = check_event(who, source)
        return (event,), event.adjacency
    if source.adjacency is None:
        raise DomainError(f"{who}: the ledger is empty; record a release first")
    return tuple(entry.mechanism for entry in source.entries), source.adjacency
