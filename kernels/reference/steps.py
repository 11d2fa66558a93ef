"""One training step's release, as method.md section 4 defines it, on the fixed-point grid of ``scalar.clip``."""

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.kernels.arguments import Draws, Mechanism, Records, Stream
from pgbb_fast.kernels.reference.losses import LOCATION_SLOPES, REGRESSION_SLOPES, WITH_SCALE
from pgbb_fast.kernels.reference.random import normals, sampled

GRID = 2.0**32
SAFE = 1.0 - 2.0**-40


def _grid_sum(gradient: NDArray[np.float64], weight: NDArray[np.float64], clip: float) -> NDArray[np.int64]:
    """Sum over records of weight * clip_C(gradient) / C, each term truncated toward zero to a multiple of 2^-32."""
    norm = np.sqrt((gradient**2).sum(axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.where(norm > clip * SAFE, clip * SAFE / norm, 1.0)
        term = gradient * (factor * weight / clip)[:, None]
    term[~np.isfinite(norm)] = 0.0
    return np.asarray(np.trunc(term * GRID).astype(np.int64).sum(axis=0))


def regression_step(
    loss: str, intercept: bool, records: Records, draws: Draws, mechanism: Mechanism, stream: Stream
) -> NDArray[np.int64]:
    """Sums of clipped, weighted gradients over the minibatch, without noise: (K, d) int64, units C / (n_S 2^32)."""
    n = len(records.y)
    take = sampled(stream.key, stream.step, n, mechanism.threshold)
    x, y, block = records.x[take].astype(np.float64), records.y[take].astype(np.float64), records.block[take]
    design = np.column_stack([np.ones(len(y)), x]) if intercept else x
    out = np.zeros(draws.theta.shape, dtype=np.int64)
    for k, theta in enumerate(draws.theta):
        scale = float(theta[-1]) if loss in WITH_SCALE else 1.0
        a, b = draws.constants[k]
        slope, slope_scale = REGRESSION_SLOPES[loss](y, design @ theta[: design.shape[1]], scale, a, b)
        gradient = slope[:, None] * design
        if loss in WITH_SCALE:
            gradient = np.column_stack([gradient, slope_scale])
        out[k] = _grid_sum(gradient, draws.weights[k, block], mechanism.clip)
    return out


def location_step(
    loss: str, records: Records, draws: Draws, mechanism: Mechanism, stream: Stream
) -> NDArray[np.int64]:
    """As :func:`regression_step` for the losses of a location: theta and x in R^d, ``records.y`` unused."""
    take = sampled(stream.key, stream.step, len(records.x), mechanism.threshold)
    x, block = records.x[take].astype(np.float64), records.block[take]
    out = np.zeros(draws.theta.shape, dtype=np.int64)
    for k, theta in enumerate(draws.theta):
        out[k] = _grid_sum(LOCATION_SLOPES[loss](theta, x), draws.weights[k, block], mechanism.clip)
    return out


def noise(shape: tuple[int, int], mechanism: Mechanism, stream: Stream) -> NDArray[np.int64]:
    """The Gaussian perturbation, rounded to the grid: (K, d) int64."""
    z = normals(stream.key, stream.step, shape[0] * shape[1]).reshape(shape)
    return np.rint(mechanism.noise_multiplier * GRID * z).astype(np.int64)


def release(grid: NDArray[np.int64], clip: float, block_size: int) -> NDArray[np.float64]:
    """Grid integers as gradients: Y = grid C / (n_S 2^32)."""
    return np.asarray(grid * (clip / (block_size * GRID)), dtype=np.float64)
