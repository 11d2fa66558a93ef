"""Renyi moments of whole mechanisms, by method, with refusals where a method has no proof."""

from __future__ import annotations

from pgbb_fast.accountant import renyi, series
from pgbb_fast.accountant._checks import Method
from pgbb_fast.accountant.mechanisms import Mechanism, ResampledGaussian
from pgbb_fast.errors import PrivacyError


def composed_moment(who: str, mechanism: Mechanism, noise: float, order: int, method: Method) -> float:
    """Upper bound of the composed log moment A of order ``order``."""
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
    if mechanism.sampling_rate == 1.0:  # nothing is subsampled and the moment is known exactly
        return renyi.log_moment(mechanism, order, noise) * mechanism.releases
    return series.series_log_moment(order, float(mechanism.sampling_rate), noise**-2, law) * mechanism.releases
