"""An estimate with a stated sensitivity, and the records that it is of: what a bootstrap may release."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.coordinates import AffineMap

__all__ = ["ROUNDING", "Indices", "Task"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
ROUNDING = 2.0**-50  # of the box's diagonal: by what arithmetic in double precision can add to a distance


@dataclass(frozen=True)
class Task:
    """A statistic and the records it is asked about; all public but what ``load`` returns.

    Attributes
    ----------
    n : int
        Records.
    l : float
        l of the sensitivity l / m, the exact statistic's.
    sensitivity : callable
        m -> bound of the Euclidean distance between the statistic of two samples of size m that differ in one record,
        numerical error included.
    box : (d, 2) array
        Public bounds of theta; values outside are moved to it, which cannot increase a distance.
    load : callable
        () -> records, checked and mapped.
    above : callable
        (records, indices (b, m), or None for all n once) -> theta less the low corner of the box (b, d).

    Notes
    -----
    Noise is added to ``above``, and the corner afterwards: a number far from zero has roundings of its own size, which
    beside a narrow box would be a sensitivity larger than the one stated.  From a statistic's own exact value on, a
    coordinate has at most four roundings (of a sum's conversion, a quotient, a product or difference, and in units of
    the grid), each of at most 2^-53 of the box's width; two such values differ by at most 2^-50 of the box's diagonal
    more than the exact ones: ``ROUNDING``, which ``sensitivity`` includes.
    """

    n: int
    names: tuple[str, ...]
    l: float  # noqa: E741 - the literature's name
    sensitivity: Callable[[int], float]
    box: Array
    to_natural: AffineMap
    load: Callable[[], Any]
    above: Callable[[Any, Indices | None], Array]

    def evaluate(self, records: Any, index: Indices | None) -> Array:
        """theta of the samples (b, d), in unit coordinates."""
        return np.asarray(self.box[:, 0] + self.above(records, index))
