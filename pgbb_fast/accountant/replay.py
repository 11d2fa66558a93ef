"""Plain events of a mechanism, and their replay with dp-accounting where that is installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pgbb_fast.accountant.mechanisms import Mechanism, ResampledGaussian, check_noise
from pgbb_fast.accountant.radius import radius_law, trimmed, typical_radius
from pgbb_fast.errors import MissingExtraError, PrivacyError


def events(mechanism: Mechanism, delta: float, bins: int) -> list[dict[str, Any]]:
    """Mixture components of one release of ``mechanism``, rounded up; see ``Ledger.replay``."""
    noise = check_noise("Ledger.replay", mechanism)
    if isinstance(mechanism, ResampledGaussian):
        raise PrivacyError(
            "Ledger.replay: the resampled mechanism's pair is a pointwise maximum of two directions, which "
            "dp-accounting's events cannot express"
        )
    typical = typical_radius(mechanism)
    law = radius_law(mechanism, bins, lambda radius: np.log1p((radius / typical) ** 4))
    edges, mass = law.high, trimmed(law.upper_mass)
    kept, rest, largest = [], 0.0, 0.0
    for radius, weight in zip(edges.tolist(), mass.tolist(), strict=True):
        if weight * mechanism.releases < 1e-9 * delta:
            rest, largest = rest + weight, max(largest, radius)
        else:
            kept.append((radius, weight))
    if rest > 0:
        kept.append((largest, rest))
    return [
        {
            "kind": "mixture of poisson-sampled gaussians",
            "weight": weight,
            "sampling_prob": float(mechanism.sampling_rate),
            "noise_multiplier": noise / radius,
            "count": mechanism.releases,
            "neighboring_relation": mechanism.adjacency,
        }
        for radius, weight in kept
    ]


def replay_with_dp_accounting(groups: Sequence[Sequence[dict[str, Any]]], *, delta: float, interval: float) -> float:
    """Epsilon of the composed groups of events, by dp-accounting's privacy-loss distributions.

    Parameters
    ----------
    groups : sequence of lists of events
        One list for each mechanism, as from ``events`` (``Ledger.replay`` for a ledger with one entry).
    delta : float
    interval : float
        dp-accounting's discretisation interval.
    """
    try:
        from dp_accounting import NeighboringRelation  # type: ignore[import-untyped,unused-ignore]
        from dp_accounting.pld import (  # type: ignore[import-untyped,unused-ignore]
            privacy_loss_distribution as pld,
        )
    except ImportError:
        raise MissingExtraError("replay_with_dp_accounting: install the extra 'test' for dp-accounting") from None
    relations = {
        "add-remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
        "replace-one": NeighboringRelation.REPLACE_ONE,
    }
    whole: Any = None
    for group in groups:
        mixed: Any = None
        seen = 0.0
        for e in group:
            part = pld.from_gaussian_mechanism(
                e["noise_multiplier"],
                sampling_prob=e["sampling_prob"],
                value_discretization_interval=interval,
                use_connect_dots=True,
                neighboring_relation=relations[e["neighboring_relation"]],
            )
            seen += e["weight"]
            mixed = part if mixed is None else mixed.compute_mixture(part, 1.0 - e["weight"] / seen)
        composed = mixed.self_compose(group[0]["count"])
        whole = composed if whole is None else whole.compose(composed)
    if whole is None:
        return 0.0
    return float(whole.get_epsilon_for_delta(delta))
