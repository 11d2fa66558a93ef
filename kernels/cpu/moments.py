"""Second moment of the clipped scores, on the CPU."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from pgbb_fast.kernels.arguments import Draws, Records
from pgbb_fast.kernels.cpu import formulas
from pgbb_fast.kernels.cpu.compile import compiled, specialise
from pgbb_fast.kernels.scalar import losses
from pgbb_fast.kernels.scalar.clip import GRID
from pgbb_fast.kernels.scalar.moments import moment_factor

_factor = numba.njit(moment_factor)
LOCATION = {f.__name__: numba.njit(f) for f in (losses.mean, losses.exponential_mean)}
SAFE = 1.0 - 2.0**-20

# bound by ``specialise`` for each loss
slope: Any = None
has_scale = False
score: Any = None


def _regression_score(i, k, intercept, records, draws, out):  # type: ignore[no-untyped-def]
    """Record ``i``'s gradient at theta_k in ``out`` (d,)."""
    x, theta, first = records.x[i], draws.theta[k], 1 if intercept else 0
    eta = theta[0] if intercept else 0.0
    for j in range(x.size):
        eta += theta[first + j] * np.float64(x[j])
    scale = theta[theta.size - 1] if has_scale else 1.0
    by_eta, by_scale = slope(np.float64(records.y[i]), eta, scale, draws.constants[k, 0], draws.constants[k, 1])
    if intercept:
        out[0] = by_eta
    for j in range(x.size):
        out[first + j] = by_eta * np.float64(x[j])
    if has_scale:
        out[theta.size - 1] = by_scale


def _location_score(i, k, intercept, records, draws, out):  # type: ignore[no-untyped-def]
    """As :func:`_regression_score` for the losses of a location."""
    x, theta = records.x[i], draws.theta[k]
    for j in range(x.size):
        out[j] = slope(theta[j], np.float64(x[j]))


def _moments(intercept, records, draws, clip, groups):  # type: ignore[no-untyped-def]
    """(K d, K d) int64, upper triangle filled."""
    n, K, d = records.block.size, draws.theta.shape[0], draws.theta.shape[1]
    none = draws.weights.shape[1] - 1
    partial = np.zeros((groups, K * d, K * d), dtype=np.int64)
    root = np.sqrt(np.float64(K)) * clip
    for group in numba.prange(groups):
        v = np.empty(K * d, dtype=np.float64)
        total = partial[group]
        for i in range(group * n // groups, (group + 1) * n // groups):
            if records.block[i] == none:
                continue
            for k in range(K):
                part = v[k * d : (k + 1) * d]
                score(i, k, intercept, records, draws, part)
                squared = 0.0
                for j in range(d):
                    squared += part[j] * part[j]
                factor = _factor(squared, clip) / root
                for j in range(d):
                    part[j] = part[j] * factor if factor > 0.0 else 0.0
            for a in range(K * d):
                left = v[a] * (SAFE * GRID)
                for b in range(a, K * d):
                    total[a, b] += np.int64(left * v[b])
    return partial.sum(axis=0)


@cache
def _moments_for(loss: str) -> Callable[..., Any]:
    if loss in formulas.REGRESSION_SLOPES:
        record, found = _regression_score, formulas.REGRESSION_SLOPES[loss]
    else:
        record, found = _location_score, LOCATION[loss]
    special = specialise(record, loss, slope=found, has_scale=loss in formulas.WITH_SCALE)
    return compiled(specialise(_moments, loss, score=numba.njit(special)), parallel=True)


def score_moments(loss: str, intercept: bool, records: Records, draws: Draws, clip: float) -> NDArray[np.int64]:
    """The sums without noise; same contract as ``reference.score_moments``.  Not a release.

    Records in the plain layout only: float features, a response and block numbers beside them.
    """
    if records.starts.size or records.map.size or records.block.size != len(records.x):
        raise ValueError("score_moments: records must be in the plain layout (no starts, no map)")
    upper: NDArray[np.int64] = _moments_for(loss)(intercept, records, draws, clip, 4 * numba.get_num_threads())
    return upper + np.triu(upper, 1).T
