"""Families of rules (quantile levels, Huber's c): where they lie, simultaneous bands, curves that don't cross.

All of it is post-processing of draws.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from pgbb_fast import validation as check
from pgbb_fast.errors import DomainError

__all__ = ["places", "rearranged", "sup_t_band"]

Array = NDArray[np.float64]


def places(rules: Sequence[float], at: ArrayLike) -> Array:
    """Where rules ``at`` lie for interpolation between ``rules``: Phi^-1 if those are in (0, 1), else the log."""
    if all(0.0 < rule < 1.0 for rule in rules):
        return np.asarray(ndtri(np.asarray(at)))
    return np.asarray(np.log(np.asarray(at)))


def sup_t_band(draws: Array, level: float = 0.95, *, over: str = "rules") -> Array:
    """Bands mean +- c sd that hold simultaneously with posterior probability ``level``.

    c is the quantile of the largest |draw - mean| / sd, over all rules for each coordinate by itself, or over
    everything (the sup-t band of Montiel Olea and Plagborg-Moeller 2019, J. Appl. Econometrics 34(1), 1-17).

    Parameters
    ----------
    draws : (m, L, d) array
    over : {"rules", "all"}

    Returns
    -------
    (L, d, 2) array, low then high.
    """
    check.between("sup_t_band", "level", level, 0.0, 1.0)
    check.one_of("sup_t_band", "over", over, ("rules", "all"))
    if draws.ndim != 3 or len(draws) < 2:
        raise DomainError(f"sup_t_band: draws must have shape (m, L, d) with m >= 2, got {draws.shape}")
    mean, sd = draws.mean(axis=0), draws.std(axis=0, ddof=1)
    t = np.abs(draws - mean) / np.where(sd > 0.0, sd, 1.0)
    largest = t.max(axis=1) if over == "rules" else t.max(axis=(1, 2))[:, None]
    half = np.quantile(largest, level, axis=0) * sd
    return np.stack([mean - half, mean + half], axis=-1)


def rearranged(curves: Array, rules: NDArray[np.float64]) -> Array:
    """Quantile curves (m, L, k) sorted along the levels, so that none crosses another.

    Sorting a draw's values over the levels gives the quantile function of x'beta(U), U uniform over the levels, and is
    never farther from a true, monotone curve than the draw was (Chernozhukov, Fernandez-Val and Galichon 2010,
    Econometrica 78(3), 1093-1125).
    """
    order = np.argsort(rules)
    out = np.empty_like(curves)
    out[:, order] = np.sort(curves, axis=1)
    return out
