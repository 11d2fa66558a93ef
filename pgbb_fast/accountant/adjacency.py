"""The same release under the other neighbour relation, where its worst pair there is known.

Replacing a record is removing one and adding another: noise on a number that one record moves by Delta, under
add-remove, is noise on a number that a replacement moves by 2 Delta at most.  The other way round nothing follows: how
far a replacement moves a number doesn't say how far a removal does.
"""

from __future__ import annotations

from dataclasses import replace

from pgbb_fast.accountant.events import DiscreteGaussian, Event, LaplaceMechanism
from pgbb_fast.accountant.mechanisms import Adjacency, BlockedGaussian, ResampledGaussian, SubsampledGaussian
from pgbb_fast.errors import DomainError, PrivacyError
from pgbb_fast.validation import one_of


def with_adjacency(event: Event, adjacency: Adjacency) -> Event:
    """``event``, the release unchanged, accounted under ``adjacency``.

    Parameters
    ----------
    event : SubsampledGaussian, LaplaceMechanism, DiscreteGaussian, BlockedGaussian or ResampledGaussian
    adjacency : {"add-remove", "replace-one"}

    Returns
    -------
    Event
        Exact for SubsampledGaussian, whose noise is over one record's norm bound under either relation.  Laplace and
        discrete Gaussian events go from add-remove to replace-one, at twice the sensitivity: an upper bound.

    Raises
    ------
    PrivacyError
        From replace-one to add-remove: for Laplace and discrete Gaussian events, whose sensitivity to a removal isn't
        known, and for blocked and resampled mechanisms, where the number of records n is public and sets the blocks,
        gamma*, every weight and the resampling probabilities, so that one record more changes the law of the whole.
    """
    who = "with_adjacency"
    if not isinstance(
        event, (SubsampledGaussian, LaplaceMechanism, DiscreteGaussian, BlockedGaussian, ResampledGaussian)
    ):
        raise DomainError(f"{who}: needs a mechanism or an event, got {type(event).__name__}")
    one_of(who, "adjacency", adjacency, ("add-remove", "replace-one"))
    if event.adjacency == adjacency:
        return event
    if isinstance(event, SubsampledGaussian):
        return replace(event, adjacency=adjacency)
    if isinstance(event, (BlockedGaussian, ResampledGaussian)):
        raise PrivacyError(
            f"{who}: {type(event).__name__} is proved for replace-one neighbours only: n is public and one record "
            "more changes every weight; for add-remove use a SubsampledGaussian"
        )
    if adjacency == "add-remove":
        raise PrivacyError(
            f"{who}: the sensitivity to a replacement doesn't tell the one to a removal; "
            f"describe the {type(event).__name__} with that one"
        )
    if isinstance(event, LaplaceMechanism):
        return replace(event, scale_over_sensitivity=float(event.scale_over_sensitivity) / 2, adjacency=adjacency)
    return replace(event, sensitivity=2 * int(event.sensitivity), adjacency=adjacency)
