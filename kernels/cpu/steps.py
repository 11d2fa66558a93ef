"""The fused step on the CPU: sample, gather, residuals of K draws, slope, clip, weight, exact integer sums, noise."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from pgbb_fast.kernels.arguments import Draws, Mechanism, Records, Stream
from pgbb_fast.kernels.cpu import formulas
from pgbb_fast.kernels.cpu.compile import compiled, specialise
from pgbb_fast.kernels.cpu.formulas import block_of, clip_factor, normal_pair, to_grid
from pgbb_fast.kernels.scalar.clip import GRID
from pgbb_fast.kernels.scalar.random import NORMALS, PURPOSE_NOISE, PURPOSE_SAMPLE, WORDS

CHUNK = 4096        # records a thread takes at once, a multiple of WORDS
ALL = 2**32         # threshold that takes every record

# bound by ``specialise`` for each loss
slope: Any = None
has_scale = False


def _regression_record(i, intercept, records, draws, clip, total):  # type: ignore[no-untyped-def]
    """Add record ``i``'s clipped, weighted gradients to ``total`` (K, d)."""
    x, y = records.x[i], np.float64(records.y[i])
    theta, block = draws.theta, records.block[i]
    p, last = x.size, theta.shape[1] - 1
    first = 1 if intercept else 0
    squared = np.float64(first)
    for j in range(p):
        squared += np.float64(x[j]) * np.float64(x[j])
    for k in range(theta.shape[0]):
        eta = theta[k, 0] if intercept else 0.0
        for j in range(p):
            eta += theta[k, first + j] * np.float64(x[j])
        scale = theta[k, last] if has_scale else 1.0
        by_eta, by_scale = slope(y, eta, scale, draws.constants[k, 0], draws.constants[k, 1])
        factor = clip_factor(by_eta * by_eta * squared + by_scale * by_scale, clip)
        weight = factor * draws.weights[k, block] / clip
        by_eta *= weight
        if intercept:
            total[k, 0] += to_grid(by_eta)
        for j in range(p):
            total[k, first + j] += to_grid(by_eta * np.float64(x[j]))
        if has_scale:
            total[k, last] += to_grid(by_scale * weight)


def _location_record(i, intercept, records, draws, clip, total):  # type: ignore[no-untyped-def]
    """As :func:`_regression_record` for the losses of a location; ``intercept`` has no meaning here."""
    x, theta, block = records.x[i], draws.theta, records.block[i]
    for k in range(theta.shape[0]):
        squared = 0.0
        for j in range(x.size):
            g = slope(theta[k, j], np.float64(x[j]))
            squared += g * g
        weight = clip_factor(squared, clip) * draws.weights[k, block] / clip
        for j in range(x.size):
            total[k, j] += to_grid(weight * slope(theta[k, j], np.float64(x[j])))


add_record: Any = None


def _sums(intercept, records, draws, mechanism, stream, groups):  # type: ignore[no-untyped-def]
    """(K, d) int64: sums over the minibatch, chunks of records shared among threads."""
    n = records.block.size
    chunks = (n + CHUNK - 1) // CHUNK
    partial = np.zeros((groups, draws.theta.shape[0], draws.theta.shape[1]), dtype=np.int64)
    for group in numba.prange(groups):
        words = np.empty(WORDS, dtype=np.int64)
        total = partial[group]
        for i in range(group * chunks // groups * CHUNK, min(n, (group + 1) * chunks // groups * CHUNK)):
            if mechanism.threshold < ALL:
                if i % WORDS == 0:
                    block_of(stream.key, PURPOSE_SAMPLE, stream.step, i // WORDS, words)
                if words[i % WORDS] >= mechanism.threshold:
                    continue
            add_record(i, intercept, records, draws, mechanism.clip, total)
    return partial.sum(axis=0)


def _add_noise(grid, mechanism, stream):  # type: ignore[no-untyped-def]
    """Add the Gaussian perturbation, rounded to the grid, to ``grid`` (K, d) in place."""
    words = np.empty(WORDS, dtype=np.int64)
    flat = grid.reshape(-1)
    sigma = mechanism.noise_multiplier * GRID
    for j in range(0, flat.size, 2):
        if j % NORMALS == 0:
            block_of(stream.key, PURPOSE_NOISE, stream.step, j // NORMALS, words)
        a, b = normal_pair(words, j % NORMALS // 2 * 5)
        flat[j] += np.int64(np.rint(sigma * a))
        if j + 1 < flat.size:
            flat[j + 1] += np.int64(np.rint(sigma * b))


@cache
def _sums_for(loss: str) -> Callable[..., Any]:
    """The compiled loop of one loss."""
    if loss in formulas.REGRESSION_SLOPES:
        record, found = _regression_record, formulas.REGRESSION_SLOPES[loss]
    else:
        record, found = _location_record, formulas.LOCATION_SLOPES[loss]
    special = specialise(record, loss, slope=found, has_scale=loss in formulas.WITH_SCALE)
    return compiled(specialise(_sums, loss, add_record=numba.njit(special)), parallel=True)


@cache
def _noise() -> Callable[..., Any]:
    return compiled(_add_noise)


def gradient_sums(
    loss: str, intercept: bool, records: Records, draws: Draws, mechanism: Mechanism, stream: Stream
) -> NDArray[np.int64]:
    """The sums without noise, (K, d) int64 in units of C / (n_S 2^32); same contract as ``reference.regression_step``
    and ``reference.location_step``.  Not a release: for tests, benchmarks and :func:`noisy_gradient`."""
    groups = 4 * numba.get_num_threads()
    out: NDArray[np.int64] = _sums_for(loss)(intercept, records, draws, mechanism, stream, groups)
    return out


def noisy_gradient(
    loss: str, intercept: bool, records: Records, draws: Draws, mechanism: Mechanism, stream: Stream
) -> NDArray[np.int64]:
    """One release: :func:`gradient_sums` plus the Gaussian perturbation, whatever the minibatch (an empty one too)."""
    grid = gradient_sums(loss, intercept, records, draws, mechanism, stream)
    _noise()(grid, mechanism, stream)
    return grid
