"""One more accounted release, for Newton's method: the noisy mean Hessian.

A Hessian of the losses here is a sum of outer products r_i r_i', with r_i the record's *root*: the square root of its
loss's curvature times its features.  With |r_i|^2 <= b enforced, replacing a record changes sum_i r_i r_i' by at most
sqrt(2) b in the Frobenius norm, as in :func:`pgbb_fast.release.blocked.release_moment`; same grid, same noise.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from pgbb_fast.errors import DomainError
from pgbb_fast.kernels import reference
from pgbb_fast.kernels.scalar.clip import GRID
from pgbb_fast.losses import Loss
from pgbb_fast.release.blocked import HALF_SENSITIVITY, Keys, Problem, noisy_products

__all__ = ["known_curvature", "release_curvature", "root_bound", "roots"]

Array = NDArray[np.float64]
SAFE = 1.0 - 2.0**-20
CHUNK = 1 << 16
NORMAL_PEAK = 1.0 / math.sqrt(2.0 * math.pi)


def known_curvature(loss: Loss, theta: Array) -> Array | None:
    """The Hessian where it is public: I for a mean, Fisher's 1 / theta^2 for the exponential law; else None."""
    if loss.kernel == "mean":
        return np.eye(len(theta))
    return np.diag(theta**-2.0) if loss.kernel == "exponential_mean" else None


def roots(loss: Loss, design: Array, y: Array, theta: Array) -> Array:
    """(n, d) roots; the Hessian of the mean loss is their mean outer product.

    Huber with scale s, z = r / s: 1(|z| <= c) (x, z) / sqrt(s) (Huber 1981, ch. 7.7); smoothed quantile: sqrt(K_h(r)) x
    (Tan, Wang and Zhou 2022); logistic: sqrt(p (1 - p)) x; Huber with fixed scale: 1(|r| <= c) x.
    """
    first, second = loss.constants[0]
    residual = y - design @ theta[: design.shape[1]]
    if loss.kernel == "huber_concomitant":
        z = residual / theta[-1]
        inside = (np.abs(z) <= first) / math.sqrt(theta[-1])
        return np.asarray(np.column_stack([design, z]) * inside[:, None])
    if loss.kernel == "huber_fixed":
        weight = (np.abs(residual) <= first).astype(np.float64)
    elif loss.kernel == "quantile_gaussian":
        weight = np.exp(-((residual / second) ** 2) / 2.0) * (NORMAL_PEAK / second)
    elif loss.kernel == "quantile_logistic":
        share = expit(residual / second)
        weight = share * (1.0 - share) / second
    elif loss.kernel == "logistic":
        share = expit(y - residual)
        weight = share * (1.0 - share)
    else:
        raise DomainError(f"roots: no curvature is known for the loss {loss.kernel!r}")
    return np.asarray(design * np.sqrt(weight)[:, None])


def root_bound(loss: Loss, feature_bound: float, theta: Array) -> float:
    """Bound b of a root's squared norm given |x| <= ``feature_bound``; a function of public values."""
    first, second = loss.constants[0]
    square = feature_bound**2
    if loss.kernel == "huber_concomitant":
        return float((square + first**2) / theta[-1])
    if loss.kernel == "quantile_gaussian":
        return square * NORMAL_PEAK / second
    if loss.kernel == "quantile_logistic":
        return square / (4.0 * second)
    return {"huber_fixed": square, "logistic": square / 4.0}[loss.kernel]


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
    bound = root_bound(loss, feature_bound, theta)
    d = len(theta)
    total = np.zeros((d, d), dtype=np.int64)
    for start in range(0, len(records.x), CHUNK):
        part = slice(start, start + CHUNK)
        some = records._replace(x=records.x[part], y=records.y[part], block=records.block[part])
        x, y, _ = reference.decoded(some, records.x.shape[1])
        design = np.column_stack([np.ones(len(x)), x]) if problem.intercept else x
        v = roots(loss, design, y, theta) / math.sqrt(bound)
        norm = np.linalg.norm(v, axis=1)
        v /= np.maximum(norm, 1.0)[:, None]
        v[~np.isfinite(norm)] = 0.0
        for i in range(d):
            total[i] += np.trunc(v[:, i, None] * v * (SAFE * GRID)).astype(np.int64).sum(axis=0)
    unit = bound / len(records.x)
    hessian = noisy_products(total, multiplier, keys, step) * (unit / GRID)
    return np.asarray(hessian, dtype=np.float64), multiplier * HALF_SENSITIVITY * unit
