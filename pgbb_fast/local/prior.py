"""A normal prior of theta, as wide as the public box unless the user states another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Prior"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Prior:
    """A normal law of theta: ``mean`` (d,), and a square root of its covariance (d, d)."""

    mean: Array
    root: Array

    @classmethod
    def of_box(cls, box: Array) -> Prior:
        """As wide as the public box (d, 2): its middle, and its half-widths as standard deviations."""
        return cls(box.mean(axis=1), np.diag((box[:, 1] - box[:, 0]) / 2.0))

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Draws, (*shape, d)."""
        return np.asarray(self.mean + rng.standard_normal((*shape, len(self.mean))) @ self.root.T)
