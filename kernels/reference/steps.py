"""One training step's release, as docs/method.md section 4 defines it, on the fixed-point grid of ``scalar.clip``."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.kernels.arguments import Draws, Mechanism, Records, Stream, as_double
from pgbb_fast.kernels.reference.losses import LOCATION_SLOPES, REGRESSION_SLOPES
from pgbb_fast.kernels.reference.random import rounded_normals
from pgbb_fast.kernels.reference.sampling import minibatch
from pgbb_fast.kernels.scalar.losses import WITH_SCALE

Floats = NDArray[np.float64]
GRID = 2.0**32
TERM = 2.0**22


def exponent(weights: NDArray[np.float64]) -> int:
    """e in 0..10 with 2^-e >= every weight, and the largest such e."""
    return max(e for e in range(11) if e == 0 or weights.max() < 2.0**-e)


def _grid_sum(gradient: Floats, weight: Floats, clip: float, p: int, e: int) -> NDArray[np.int64]:
    """Sum over records of weight * clip_C(gradient) / C, each term rounded to a multiple of 2^-(22 + e) and the sum
    given in multiples of 2^-32.  The bound is that of ``scalar.clip``, C (1 - (p + 16) 2^-24), and weights are less by
    what rounding d numbers can add, sqrt(d)/2 of these multiples."""
    limit = clip * (1 - (p + 16) * 2.0**-24)
    weight = np.maximum(weight * TERM * 2.0**e - np.sqrt(gradient.shape[1]) / 2, 0.0)
    norm = np.sqrt((gradient**2).sum(axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.where(norm > limit, limit / norm, 1.0)
        term = gradient * (factor * weight / clip)[:, None]
    term[~np.isfinite(norm)] = 0.0
    return np.asarray(np.rint(term).astype(np.int64).sum(axis=0) << (10 - e))


def decoded(records: Records, p: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """(x, y, block), whatever the layout."""
    x = as_double(records.x[:, :p])
    y = as_double(records.y if records.y.size else records.x[:, -1])
    if records.map.size:
        slope, offset = records.map.astype(np.float64).T
        with np.errstate(over="ignore"):
            x, y = (part.astype(np.float32).astype(np.float64) for part in (x, y))
        x = np.clip(slope[:p] * x + offset[:p], -1, 1)
        y = np.clip(slope[-1] * y + offset[-1], -1, 1)
    if records.starts.size:
        block = np.repeat(np.arange(records.starts.size - 1), np.diff(records.starts))
    else:
        block = records.block.astype(np.int64)
    return x, y, block


def _usable(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """x, with nan for records whose features are beyond 2^50 in norm, or not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(((x**2).sum(axis=1) <= 2.0**100)[:, None], x, np.nan)


RecordGradient = Callable[[Floats, Floats, Floats], Floats]


def gradient_step(
    gradient: RecordGradient, records: Records, draws: Draws, mechanism: Mechanism, stream: Stream
) -> NDArray[np.int64]:
    """As :func:`regression_step` for any loss: ``gradient`` maps theta (d,), x (m, p), y (m,) to (m, d), row i a
    function of theta and record i only."""
    K, d = draws.theta.shape
    take = minibatch(stream.key, stream.step, len(records.x), mechanism.threshold)
    if not records.starts.size:  # decodes no more than it needs
        y_taken = records.y[take] if records.y.size else records.y
        records = records._replace(x=records.x[take], y=y_taken, block=records.block[take])
        take = np.ones(len(records.x), dtype=np.bool_)
    x, y, block = decoded(records, records.x.shape[1])
    x, y, block = x[take], y[take], block[take]
    out = np.zeros((K, d), dtype=np.int64)
    for k, theta in enumerate(draws.theta):
        weight = draws.weights[k, block]
        out[k] = _grid_sum(gradient(theta, x, y), weight, mechanism.clip, d, exponent(draws.weights[k]))
    return out


def regression_step(
    loss: str, intercept: bool, records: Records, draws: Draws, mechanism: Mechanism, stream: Stream
) -> NDArray[np.int64]:
    """Sums of clipped, weighted gradients over the minibatch, without noise: (K, d) int64, units C / (n_S 2^32)."""
    p = draws.theta.shape[1] - intercept - (loss in WITH_SCALE)
    take = minibatch(stream.key, stream.step, len(records.x), mechanism.threshold)
    x, y, block = decoded(records, p)
    x, y, block = _usable(x[take]), y[take], block[take]
    design = np.column_stack([np.ones(len(y)), x]) if intercept else x
    out = np.zeros(draws.theta.shape, dtype=np.int64)
    for k, theta in enumerate(draws.theta):
        scale = float(theta[-1]) if loss in WITH_SCALE else 1.0
        a, b = draws.constants[k]
        slope, slope_scale = REGRESSION_SLOPES[loss](y, design @ theta[: design.shape[1]], scale, a, b)
        gradient = slope[:, None] * design
        if loss in WITH_SCALE:
            gradient = np.column_stack([gradient, slope_scale])
        out[k] = _grid_sum(gradient, draws.weights[k, block], mechanism.clip, p, exponent(draws.weights[k]))
    return out


def location_step(
    loss: str, records: Records, draws: Draws, mechanism: Mechanism, stream: Stream
) -> NDArray[np.int64]:
    """As :func:`regression_step` for the losses of a location: theta and x in R^d, ``records.y`` unused."""
    p = draws.theta.shape[1]
    take = minibatch(stream.key, stream.step, len(records.x), mechanism.threshold)
    x, _, block = decoded(records, p)
    out = np.zeros(draws.theta.shape, dtype=np.int64)
    for k, theta in enumerate(draws.theta):
        gradient = LOCATION_SLOPES[loss](theta, _usable(x[take]))
        weight = draws.weights[k, block[take]]
        out[k] = _grid_sum(gradient, weight, mechanism.clip, p, exponent(draws.weights[k]))
    return out


def noise(shape: tuple[int, int], mechanism: Mechanism, stream: Stream) -> NDArray[np.int64]:
    """The Gaussian perturbation of a step, rounded to the grid: (K, d) int64."""
    sigma = np.full(shape[0] * shape[1], mechanism.noise_multiplier * GRID)
    return rounded_normals(stream.key, stream.step, sigma).reshape(shape)


def release(grid: NDArray[np.int64], clip: float, block_size: int) -> NDArray[np.float64]:
    """Grid integers as gradients: Y = grid C / (n_S 2^32)."""
    return np.asarray(grid * (clip / (block_size * GRID)), dtype=np.float64)
