"""The releases of this geometry: the only functions here that see records.

Each is one Gaussian release of all records on the exact integer grid (``kernels.scalar.clip``): a sum of vectors that
are shortened to a stated length, so that replacing a record moves it by at most twice that length.  What leaves is the
noisy sum, as a mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.budget.gaussian import FEATURES, GRADIENT, SCORE, GaussianReport
from pgbb_fast.errors import BudgetError
from pgbb_fast.kernels import cpu, reference
from pgbb_fast.kernels.arguments import Stack, Stream
from pgbb_fast.kernels.scalar.clip import GRID
from pgbb_fast.losses import Loss, UserLoss
from pgbb_fast.release.blocked import HALF_SENSITIVITY, Keys, noisy_products
from pgbb_fast.release.devices import Kind, kernels
from pgbb_fast.release.stacking import Stacking

__all__ = ["Door"]

Array = NDArray[np.float64]
EVERYTHING = 2**32


class Door:
    """Releases of one fit, in the order of its report and with the noise that the report states for each.

    Parameters
    ----------
    records : Records, or what ``devices.place`` made of them
        All n records.
    loss : Loss
        Of the fit; slopes are asked for by constants of its family.
    intercept : bool
    n : int
    report : GaussianReport
        What may be released: a release after the last one is refused.
    keys : Keys
        ``secret`` decides the noise; never shown.
    """

    def __init__(
        self,
        records: Any,
        loss: Loss,
        intercept: bool,
        n: int,
        report: GaussianReport,
        keys: Keys,
        device: Kind = "cpu",
    ) -> None:
        self._records, self.loss, self.intercept, self.n = records, loss, intercept, n
        self._keys, self._device = keys, device
        self._planned = [
            (name, float(group.noise_multiplier or 0.0))
            for group, name in zip(report.releases, report.names, strict=True)
            for _ in range(group.steps)
        ]
        self.released = 0

    def __repr__(self) -> str:
        return f"Door({self.loss.kernel!r}, {self.released} of {len(self._planned)} releases)"

    def _next(self, name: str) -> tuple[Stream, float]:
        """Place in the random stream and noise multiplier of the next release, which must be what the report names."""
        if self.released == len(self._planned) or self._planned[self.released][0] != name:
            raise BudgetError(f"Door: the report has no {name} as release {self.released + 1}; nothing was released")
        multiplier = self._planned[self.released][1]
        self.released += 1
        return Stream(self._keys.secret, self.released - 1), multiplier

    def features(self, mapping: Array, bound: float) -> tuple[Array, float]:
        """The second moment of the features mapped by ``mapping`` (m, m) and shortened to ``bound``.

        Returns
        -------
        moment : (m, m) array
            Symmetric; not projected to be positive semidefinite.
        noise : float
            Standard deviation of the noise of a diagonal entry; off the diagonal less by sqrt(2).
        """
        stream, multiplier = self._next(FEATURES)
        m = len(mapping)
        stack = Stack(
            np.zeros((1, m)), np.zeros((1, 2)), mapping, np.eye(1), np.empty((0, 0)), bound, bound, EVERYTHING, 0.0
        )
        grid = self._run.stacked_moments("linear", self.intercept, self._records, stack)
        return self._products(grid, stream, multiplier, bound**2)

    def step(
        self, theta: Array, rules: Sequence[tuple[float, float]], mapping: Array, stacking: Stacking
    ) -> tuple[Array, float]:
        """Mean stacked scores at ``theta`` (L, d) for rules with these constants: (L, d), mixed and mapped.

        Returns
        -------
        scores : (L, d) array
            Row l: a_l f x~, and the mixed slope in the scale where there is one.
        noise : float
            Standard deviation of each entry's noise.
        """
        stream, multiplier = self._next(GRADIENT)
        stack = self._stack(theta, rules, mapping, stacking, multiplier)
        if isinstance(self.loss, UserLoss):
            slope = partial(_user_slope, self.loss)
            grid = reference.stacked_sums_user(slope, self.intercept, self._records, stack, stream)
            grid = cpu.add_noise(grid, cpu.scale_of(multiplier * GRID), stream.key, stream.step)
        else:
            grid = self._run.noisy_stacked(self.loss.kernel, self.intercept, self._records, stack, stream)
        unit = stacking.clip / self.n
        return np.asarray(grid * (unit / GRID), dtype=np.float64), multiplier * unit

    def scores(
        self, theta: Array, rules: Sequence[tuple[float, float]], mapping: Array, stacking: Stacking
    ) -> tuple[Array, float]:
        """Second moment of the stacked scores at ``theta`` (L, d): (L d, L d), and its noise as in :meth:`features`."""
        stream, multiplier = self._next(SCORE)
        stack = self._stack(theta, rules, mapping, stacking, 0.0)
        if isinstance(self.loss, UserLoss):
            grid = reference.stacked_moments_user(
                partial(_user_slope, self.loss), self.intercept, self._records, stack
            )
        else:
            grid = self._run.stacked_moments(self.loss.kernel, self.intercept, self._records, stack)
        return self._products(grid, stream, multiplier, stacking.clip**2)

    @property
    def _run(self) -> Any:
        return kernels(self._device)

    def _stack(
        self, theta: Array, rules: Sequence[tuple[float, float]], mapping: Array, stacking: Stacking, multiplier: float
    ) -> Stack:
        return Stack(
            np.ascontiguousarray(theta),
            np.asarray(rules, dtype=np.float64),
            np.ascontiguousarray(mapping),
            stacking.mix,
            stacking.scale_mix,
            stacking.feature_bound,
            stacking.clip,
            EVERYTHING,
            multiplier,
        )

    def _products(
        self, grid: NDArray[np.int64], stream: Stream, multiplier: float, unit: float
    ) -> tuple[Array, float]:
        unit /= self.n
        moment = noisy_products(grid, multiplier, self._keys, stream.step) * (unit / GRID)
        return np.asarray(moment, dtype=np.float64), multiplier * HALF_SENSITIVITY * unit


def _user_slope(loss: UserLoss, rule: int, y: Array, eta: Array) -> Array:
    """Slopes of a loss of the user's own, asked for record by record; one that is not finite counts as zero."""
    assert loss.slope is not None
    found = np.fromiter(map(loss.slope, y.tolist(), eta.tolist()), dtype=np.float64, count=len(y))
    return np.where(np.abs(found) <= math.sqrt(np.finfo(np.float64).max), found, np.nan)
