"""Second moment of the clipped scores at one public theta (or one for each rule)."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.kernels.arguments import Draws, Records
from pgbb_fast.kernels.reference.losses import LOCATION_SLOPES, MOMENT_SLOPES
from pgbb_fast.kernels.reference.steps import decoded
from pgbb_fast.kernels.scalar.losses import WITH_SCALE
from pgbb_fast.kernels.scalar.moments import SAFE

Floats = NDArray[np.float64]
Gradient = Callable[[int, Floats, Floats, Floats], Floats]
GRID = 2.0**32


def score_moments(loss: str, intercept: bool, records: Records, draws: Draws, clip: float) -> NDArray[np.int64]:
    """Sum over participating records of v v' / |v|_max^2, v the stacked clipped scores of the K thetas.

    With g_k the score at theta_k clipped at C, v = (g_1, ..., g_K) / (C sqrt(K)) has |v| <= 1.  Each product is
    truncated toward zero to a multiple of 2^-32 (times ``SAFE``): (K d, K d) int64, symmetric.  ``draws.weights`` is
    not used; records of the block "takes no part" are left out.
    """
    p = draws.theta.shape[1]
    if loss not in LOCATION_SLOPES:
        p -= intercept + (loss in WITH_SCALE)

    def gradient(k: int, theta: Floats, x: Floats, y: Floats) -> Floats:
        if loss in LOCATION_SLOPES:
            return LOCATION_SLOPES[loss](theta, x)
        design = np.column_stack([np.ones(len(y)), x]) if intercept else x
        scale = float(theta[-1]) if loss in WITH_SCALE else 1.0
        slope, slope_scale = MOMENT_SLOPES[loss](y, design @ theta[: design.shape[1]], scale, *draws.constants[k])
        by_beta = slope[:, None] * design
        return np.column_stack([by_beta, slope_scale]) if loss in WITH_SCALE else by_beta

    return _moments(gradient, decoded(records, p), draws, clip)


def gradient_moments(gradient: Gradient, records: Records, draws: Draws, clip: float) -> NDArray[np.int64]:
    """:func:`score_moments` of any loss; ``gradient`` maps k, theta (d,), x (m, p), y (m,) to (m, d)."""
    return _moments(gradient, decoded(records, records.x.shape[1]), draws, clip)


def _moments(
    gradient: Gradient, records: tuple[Floats, Floats, NDArray[np.int64]], draws: Draws, clip: float
) -> NDArray[np.int64]:
    x, y, block = records
    part = block < draws.weights.shape[1] - 1
    x, y = x[part], y[part]
    scores = []
    for k, theta in enumerate(draws.theta):
        score = gradient(k, theta, x, y)
        norm = np.sqrt((score**2).sum(axis=1))
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = np.where(norm > clip, clip / norm, 1.0) / (clip * np.sqrt(len(draws.theta)))
            clipped = score * factor[:, None]
        clipped[~np.isfinite(norm)] = 0.0
        scores.append(clipped)
    return products(np.column_stack(scores))


def products(v: Floats) -> NDArray[np.int64]:
    """Sum over rows of v v' (n, d), each product truncated toward zero to a multiple of 2^-32 (times ``SAFE``): where
    |v| <= 1 a row's matrix is at most 2^32 in Frobenius norm; (d, d) int64, symmetric."""
    out = np.empty((v.shape[1], v.shape[1]), dtype=np.int64)
    for i in range(v.shape[1]):
        out[i] = np.trunc(v[:, i, None] * v * (SAFE * GRID)).astype(np.int64).sum(axis=0)
    return out
