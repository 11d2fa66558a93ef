"""Streaming sufficient statistics of the releases: memory independent of the number of steps.

For each rule, and for each of a fixed number of segments of the run, the sums of z z', z g' and g g' with
z = (1, theta - c, u_s - 1/S for s < S), c the middle of the box; the last weight is one less the others.
Post-processing of releases only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.local.curvature import Slope

__all__ = ["Fit", "ReleaseStatistics"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """Least squares of g on (1, theta - centre, u - 1/S), the model of docs/refinement.md near the optimum.

    Attributes
    ----------
    centre : (d,)
        Mean of theta over the releases used.
    gradient : (d,)
        Mean gradient at ``centre``.
    hessian : (d, d)
        Slope, symmetrised.
    spread : (d, d)
        Inverse of the centred sum of squares of theta (after the weights): the slope's error covariance is
        ``spread`` times the noise variance of an output.
    scores : (S, d)
        Block scores h_s, summing to zero.
    scores_spread : float
        Mean diagonal entry of the scores' error covariance over the noise variance.
    residual : (d, d)
        Covariance of the residuals.
    count : float
        Releases that centre and gradient are means of.
    """

    centre: Array
    gradient: Array
    hessian: Array
    spread: Array
    scores: Array
    scores_spread: float
    residual: Array
    count: float


class ReleaseStatistics:
    """Sums over releases, by rule and segment.

    Parameters
    ----------
    rules, segments : int
        Numbers of rules and of segments kept apart.
    middle : (d,) array
        Subtracted from theta, for accuracy.
    n_blocks : int
        S.
    design : sequence of Slope
        The released second moment of the features, if any.

    Attributes
    ----------
    wide : (rules, segments) bool array
        Segments whose displacements are for the slope alone: too large for the location.
    """

    def __init__(
        self, rules: int, segments: int, middle: Array, n_blocks: int, design: Sequence[Slope] = ()
    ) -> None:
        d = len(middle)
        self.middle, self.n_blocks, self.d, self.design = middle, n_blocks, d, tuple(design)
        size = d + n_blocks
        self.wide = np.zeros((rules, segments), dtype=bool)
        self.zz = np.zeros((rules, segments, size, size))
        self.zg = np.zeros((rules, segments, size, d))
        self.gg = np.zeros((rules, segments, d, d))

    def add(self, segment: int, rule: NDArray[np.int64], theta: Array, weights: Array, gradient: Array) -> None:
        """Add releases: ``rule`` (m,), ``theta`` (m, d), ``weights`` (m, >= S), ``gradient`` (m, d)."""
        z = np.concatenate(
            [np.ones((len(theta), 1)), theta - self.middle, weights[:, : self.n_blocks - 1] - 1.0 / self.n_blocks],
            axis=1,
        )
        for number in np.unique(rule):
            these = rule == number
            self.zz[number, segment] += z[these].T @ z[these]
            self.zg[number, segment] += z[these].T @ gradient[these]
            self.gg[number, segment] += gradient[these].T @ gradient[these]

    def centres(self, rule: int) -> Array:
        """Mean theta of each segment, (segments, d); nan for empty ones."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(self.zz[rule, :, 0, 1 : 1 + self.d] / self.zz[rule, :, 0, :1] + self.middle)

    def counts(self, rule: int) -> Array:
        """Releases in each segment, (segments,)."""
        return np.asarray(self.zz[rule, :, 0, 0])

    def fit(self, rule: int, weight: Array, *, location: Array | None = None, with_scores: bool = False) -> Fit:
        """Least squares over the segments, each weighted by ``weight`` (segments,).

        With ``location`` (segments,) the slope comes from deviations *within* segments, so that it doesn't mix
        displacements with the path of the centres, and centre and gradient are means over the segments that
        ``location`` weights; without it, everything is pooled over ``weight``.
        """
        d, S = self.d, self.n_blocks
        size = d + S if with_scores else 1 + d
        zz, zg = self.zz[rule, :, :size, :size], self.zg[rule, :, :size]
        if location is None:
            square, cross, spread_g = _centred(*(np.tensordot(weight, a, axes=1) for a in (zz, zg, self.gg[rule])))
            mean_weight, groups = weight, 1.0
        else:
            parts = [_centred(zz[s], zg[s], self.gg[rule, s]) for s in np.flatnonzero(weight)]
            square, cross, spread_g = (np.sum([part[i] for part in parts], axis=0) for i in range(3))
            mean_weight, groups = location, float(len(parts))
        used = float(weight @ zz[:, 0, 0])
        count = float(mean_weight @ zz[:, 0, 0])
        mean = np.tensordot(mean_weight, zz[:, 0, 1:], axes=1) / count
        gradient = np.tensordot(mean_weight, zg[:, 0], axes=1) / count
        # a short run may not span all directions: a ridge far below anything that a run of any use explores, and of
        # no effect on directions that it does explore
        ridge = 1e-9 * used * np.concatenate([np.full(d, 1e-4), np.full(size - 1 - d, 1e-3 / S**2)])
        inverse = np.linalg.inv(square + np.diag(ridge))
        slope = inverse @ cross
        parameters = size - 1 + groups
        residual = (spread_g - slope.T @ cross) / max(1.0, used - parameters)
        scores, scores_spread = np.zeros((S, d)), np.inf
        if with_scores:
            # the slope in u_s is -(h_s - h_S): pad h_S - h_S = 0 and centre
            contrasts = (np.eye(S) - 1.0 / S)[:, : S - 1]
            scores = -contrasts @ slope[d:]
            scores_spread = float(np.trace(contrasts @ inverse[d:, d:] @ contrasts.T) / (S - 1.0))
            gradient = gradient - mean[d:] @ slope[d:]  # at mean weights
        return Fit(
            centre=mean[:d] + self.middle,
            gradient=gradient,
            hessian=(slope[:d] + slope[:d].T) / 2.0,
            spread=np.asarray(inverse[:d, :d], dtype=np.float64),
            scores=scores,
            scores_spread=scores_spread,
            residual=(residual + residual.T) / 2.0,
            count=count,
        )


def _centred(zz: Array, zg: Array, gg: Array) -> tuple[Array, Array, Array]:
    """Sums of squares and products of z (without its leading one) and g about their means."""
    count = zz[0, 0]
    mean = zz[0, 1:] / count
    return (
        zz[1:, 1:] - count * np.outer(mean, mean),
        zg[1:] - np.outer(mean, zg[0]),
        gg - np.outer(zg[0], zg[0]) / count,
    )
