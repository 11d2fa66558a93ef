"""One more accounted release, for Newton's method: the noisy mean Hessian.

A Hessian of the losses here is a sum of outer products r_i r_i', with r_i the record's *root*: the square root of its
loss's curvature times its features.  With |r_i|^2 <= b enforced, replacing a record changes sum_i r_i r_i' by at most
sqrt(2) b in the Frobenius norm, as in :func:`pgbb_fast.release.blocked.release_moment`; same grid, same noise.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.kernels import reference
from pgbb_fast.kernels.scalar.clip import GRID
from pgbb_fast.release.blocked import HALF_SENSITIVITY, Keys, Problem, noisy_products

__all__ = ["release_curvature"]

Array = NDArray[np.float64]
CHUNK = 1 << 16


def release_curvature(
    problem: Problem, keys: Keys, step: int, theta: Array, feature_bound: float, multiplier: float
) -> tuple[Array, float]:
    """The noisy mean Hessian (d, d) of a single-rule ``problem`` at ``theta`` (d,), and the standard deviation of the
    noise of a diagonal entry (that of the others is smaller by sqrt(2)).

    ``multiplier`` is noise over half the sensitivity; ``step`` names the noise and must not be used by another release.
    Not projected to be positive definite.  Records whose features exceed the bound count with shortened roots, those
    whose roots are not finite as zero.
    """
    loss, records = problem.loss, problem.records
    bound = loss.root_bound(feature_bound, theta)
    d = len(theta)
    total = np.zeros((d, d), dtype=np.int64)
    for start in range(0, len(records.x), CHUNK):
        part = slice(start, start + CHUNK)
        some = records._replace(x=records.x[part], y=records.y[part], block=records.block[part])
        x, y, _ = reference.decoded(some, records.x.shape[1])
        design = np.column_stack([np.ones(len(x)), x]) if problem.intercept else x
        v = loss.hessian_roots(design, y, theta) / math.sqrt(bound)
        norm = np.linalg.norm(v, axis=1)
        v /= np.maximum(norm, 1.0)[:, None]
        v[~np.isfinite(norm)] = 0.0
        total += reference.products(v)
    unit = bound / len(records.x)
    hessian = noisy_products(total, multiplier, keys, step) * (unit / GRID)
    return np.asarray(hessian, dtype=np.float64), multiplier * HALF_SENSITIVITY * unit
