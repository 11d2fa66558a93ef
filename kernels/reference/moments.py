"""Second moment of the clipped scores at one public theta (or one for each rule)."""

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.kernels.arguments import Draws, Records
from pgbb_fast.kernels.reference.losses import LOCATION_SLOPES, REGRESSION_SLOPES, WITH_SCALE
from pgbb_fast.kernels.reference.steps import decoded

GRID = 2.0**32
SAFE = 1.0 - 2.0**-20


def score_moments(loss: str, intercept: bool, records: Records, draws: Draws, clip: float) -> NDArray[np.int64]:
    """Sum over participating records of v v' / |v|_max^2, v the stacked clipped scores of the K thetas.

    With g_k the score at theta_k clipped at C, v = (g_1, ..., g_K) / (C sqrt(K)) has |v| <= 1.  Each product is
    truncated toward zero to a multiple of 2^-32 (times ``SAFE``): (K d, K d) int64, symmetric.  ``draws.weights`` is
    not used; records of the block "takes no part" are left out.
    """
    d = draws.theta.shape[1]
    x, y, block = decoded(records, d if loss in LOCATION_SLOPES else d - intercept - (loss in WITH_SCALE))
    part = block < draws.weights.shape[1] - 1
    x, y = x[part], y[part]
    scores = []
    for k, theta in enumerate(draws.theta):
        if loss in LOCATION_SLOPES:
            gradient = LOCATION_SLOPES[loss](theta, x)
        else:
            design = np.column_stack([np.ones(len(y)), x]) if intercept else x
            scale = float(theta[-1]) if loss in WITH_SCALE else 1.0
            slope, slope_scale = REGRESSION_SLOPES[loss](
                y, design @ theta[: design.shape[1]], scale, *draws.constants[k]
            )
            gradient = slope[:, None] * design
            if loss in WITH_SCALE:
                gradient = np.column_stack([gradient, slope_scale])
        norm = np.sqrt((gradient**2).sum(axis=1))
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = np.where(norm > clip, clip / norm, 1.0) / (clip * np.sqrt(len(draws.theta)))
            clipped = gradient * factor[:, None]
        clipped[~np.isfinite(norm)] = 0.0
        scores.append(clipped)
    v = np.column_stack(scores)
    out = np.empty((v.shape[1], v.shape[1]), dtype=np.int64)
    for i in range(v.shape[1]):
        out[i] = np.trunc(v[:, i, None] * v * (SAFE * GRID)).astype(np.int64).sum(axis=0)
    return out
