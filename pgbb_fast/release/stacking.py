"""How the scores of the rules fitted jointly are stacked: public constants, known before any record is looked at.

The slopes psi (L,) of a record's L rules are mixed to a = R^-1 psi, with R R' their covariance under a correct model,
so that noise of the same size in every coordinate of a has the shape of the scores.  For quantile levels R R' has
entries min(s, t) - s t, and at the indicators of a record in cell j between neighbouring levels, a gap Delta_j apart,

    |a|^2 = psi' (R R')^-1 psi = 1 / Delta_j - 1,

so |a|^2 <= A^2 = max_j 1 / Delta_j - 1, however many levels there are between (docs/geometry.md, section 4; smoothed
slopes are mixtures of indicators).  A is where the stack is shortened; the guarantee rests on that, not on the model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.kernels.reference.losses import REGRESSION_SLOPES
from pgbb_fast.losses import Loss

__all__ = ["Stacking", "public_length", "stacking"]

Array = NDArray[np.float64]
LENGTH = 1.5  # B over sqrt(m): features are shortened where they are so many times their root mean square
ROOMY = 2.0  # the same where privacy noise is small beside sampling
SMALL = 0.075, 0.15  # privacy noise over sampling, at the whole budget, between which the one becomes the other
SCALE_SHARE = 0.5  # weight of a scale's slope beside the others': its part of C is then some percent
GRID = np.linspace(-8.0, 8.0, 4001)  # of standard normal residuals


@dataclass(frozen=True)
class Stacking:
    """Constants of one stacked release.

    Attributes
    ----------
    root : (L, L) array
        R, lower triangular: R R' is the covariance of the rules' slopes under a correct model.
    scale_root : (L, L) or (0, 0) array
        The same for the slopes in a scale, over ``SCALE_SHARE``.
    slope_length : float
        A, the largest length of the mixed slopes.
    feature_bound : float
        B, where the mapped features are shortened.
    clip : float
        C, where a record's stacked score is shortened.
    known_size : bool
        Whether the mixed slopes have second moment 1 at the minimum whatever the residuals' scale.
    """

    root: Array
    scale_root: Array
    slope_length: float
    feature_bound: float
    clip: float
    known_size: bool

    @property
    def mix(self) -> Array:
        """R^-1, (L, L)."""
        return np.tril(np.linalg.inv(self.root))

    @property
    def scale_mix(self) -> Array:
        """The same for the scale, (L, L) or (0, 0)."""
        return np.tril(np.linalg.inv(self.scale_root)) if self.scale_root.size else self.scale_root

    @property
    def spread(self) -> Array:
        """Standard deviations of the rules' slopes, (L,): the diagonal of R R', rooted."""
        return np.asarray(np.sqrt((self.root**2).sum(axis=1)))

    @property
    def scale_units(self) -> Array:
        """(L,): a scale is counted in units in which its slope has the noise of the others'."""
        return np.asarray(np.sqrt((self.scale_root**2).sum(axis=1)) / self.spread)


def public_length(loss: Loss, m: int, n: int, s: float) -> float:
    """B over sqrt(m) for n records at the noise multiplier ``s`` of the whole budget: shortening the longest features
    costs a percent of precision at ``LENGTH`` and hardly any at ``ROOMY``, and the noise grows with it."""
    kappa = s * stacking(loss, m).clip / math.sqrt(n)
    share = math.log(SMALL[1] / kappa) / math.log(SMALL[1] / SMALL[0])
    return LENGTH + (ROOMY - LENGTH) * min(max(share, 0.0), 1.0)


def stacking(loss: Loss, m: int, length: float = LENGTH) -> Stacking:
    """The constants for ``loss`` and m mapped features (the intercept's among them), shortened at ``length``
    sqrt(m)."""
    bound = length * math.sqrt(m)
    none = np.empty((0, 0))
    if loss.is_quantile:
        tau = np.asarray(loss.rules)
        covariance = np.minimum.outer(tau, tau) - np.outer(tau, tau)
        root = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
        gaps = np.diff(np.concatenate([[0.0], np.sort(tau), [1.0]]))
        longest = math.sqrt(1.0 / float(gaps.min()) - 1.0)
        return Stacking(root, none, longest, bound, longest * bound, known_size=True)
    if loss.one_slope:
        return Stacking(np.full((1, 1), loss.slope_bound / 2.0), none, 2.0, bound, 2.0 * bound, known_size=False)
    slopes, scale_slopes = _slopes(loss, GRID)
    density = np.exp(-0.5 * GRID**2)
    root = np.asarray(np.linalg.cholesky(_moment(slopes, density)), dtype=np.float64)
    far, scale_far = _slopes(loss, np.linspace(-loss.farthest, loss.farthest, 4001))
    squares = (np.linalg.solve(root, far) ** 2).sum(axis=0)
    longest = math.sqrt(float(squares.max()))
    if not loss.has_scale:
        return Stacking(root, none, longest, bound, longest * bound, known_size=False)
    scale_root = np.asarray(np.linalg.cholesky(_moment(scale_slopes, density)), dtype=np.float64) / SCALE_SHARE
    both = squares * bound**2 + (np.linalg.solve(scale_root, scale_far) ** 2).sum(axis=0)
    return Stacking(root, scale_root, longest, bound, math.sqrt(float(both.max())), known_size=True)


def _moment(slopes: Array, density: Array) -> Array:
    """Second moment of ``slopes`` (L, k) on a grid with weights ``density``, with a little on the diagonal."""
    moment = (slopes * density) @ slopes.T / density.sum()
    return np.asarray(moment + 1e-9 * np.trace(moment) * np.eye(len(moment)))


def _slopes(loss: Loss, residual: Array) -> tuple[Array, Array]:
    """Slopes of the rules in the predictor and in the scale, each at its own minimum for standard normal residuals;
    (L, k) each."""
    psi, chi = [], []
    for rule in range(len(loss.rules)):
        at, (first, second), unit = loss.standardised(rule)
        slope, in_scale = REGRESSION_SLOPES[loss.kernel](residual, np.full_like(residual, at), 1.0, first, second)
        psi.append(slope * unit)
        chi.append(in_scale)
    return np.stack(psi), np.stack(chi)
