"""Second moment of the clipped scores, on the GPU; computed once for each fit, in double precision."""

import math
from functools import cache
from typing import Any

import numpy as np
from numba import cuda
from numpy.typing import NDArray

from pgbb_fast.kernels.arguments import Draws, Records
from pgbb_fast.kernels.cuda import formulas
from pgbb_fast.kernels.cuda.compile import THREADS, Launch, expand, groups_for, kernel, static
from pgbb_fast.kernels.cuda.formulas import moment_factor
from pgbb_fast.kernels.cuda.instructions import F64, FLOAT64, I64, NUMBERS, at, put
from pgbb_fast.kernels.cuda.plan import Kind
from pgbb_fast.kernels.cuda.records import Placed, place
from pgbb_fast.kernels.cuda.sums import decode
from pgbb_fast.kernels.scalar.clip import GRID
from pgbb_fast.kernels.scalar.moments import SAFE

MAX_NUMBERS = 4_096    # of stacked scores in shared memory, 32 KiB
MAX_RECORDS = 32       # whose scores are there at once

# bound for each loss
slope: Any = None
constants: Any = None
x_number: Any = None
y_number: Any = None
FIRST = SCALE = 0
MAPPED = REGRESSION = False


def _moments(
    table: Any, y: Any, block: Any, decoder: Any, sizes: Any, theta: Any, pairs: Any, left: Any, right: Any,
    partial: Any, shape: Any, clip: Any,
) -> None:  # fmt: skip
    """partial[pair, group]: the sum over a group's records of the product of two coordinates of v.

    Scores of ``at_once`` records lie in shared memory, one row of K d numbers for each; every thread has one pair.
    """
    scores = cuda.shared.array(0, FLOAT64)
    me, group, groups = I64(cuda.threadIdx.x), I64(cuda.blockIdx.y), I64(cuda.gridDim.y)
    n, by_row, by_column, y_from, y_by_row, _ = sizes
    p, K, none, at_once, column, columns, count = shape
    d = p + FIRST + SCALE
    width = K * d
    root = math.sqrt(F64(K)) * clip
    pair = I64(cuda.blockIdx.x) * THREADS + me
    a, b = I64(0), I64(0)
    if pair < count:
        a, b = I64(at(left, pair)), I64(at(right, pair))
    total = I64(0)
    tile = group * at_once
    while tile < n:
        for item in range(me, at_once * K, THREADS):
            i, k = tile + item // K, item % K
            row, at_theta = item // K * width + k * d, k * d
            takes_part = False
            if i < n:
                takes_part = I64(at(block, i)) != none
            squared = F64(0.0)
            if takes_part:
                if static(REGRESSION):
                    eta = F64(0.0)
                    if static(FIRST > 0):
                        eta = at(theta, at_theta)
                    for j in range(p):
                        value = x_number(at(table, i * by_row + by_column * j))
                        if static(MAPPED):
                            value = decode(value, decoder, I64(j))
                        eta += at(theta, at_theta + FIRST + j) * F64(value)
                    response = y_number(at(y, y_from + i * y_by_row))
                    if static(MAPPED):
                        response = decode(response, decoder, p)
                    scale = F64(1.0)
                    if static(SCALE > 0):
                        scale = at(theta, at_theta + d - 1)
                    c0, c1, c2 = constants(scale, at(pairs, 2 * k), at(pairs, 2 * k + 1))
                    by_eta, by_scale = slope(F64(response), eta, c0, c1, c2)
                    if static(FIRST > 0):
                        put(scores, row, by_eta)
                        squared += by_eta * by_eta
                    if static(SCALE > 0):
                        put(scores, row + d - 1, F64(by_scale))
                        squared += by_scale * by_scale
                for j in range(p):
                    value = x_number(at(table, i * by_row + by_column * j))
                    if static(MAPPED):
                        value = decode(value, decoder, I64(j))
                    score = by_eta * F64(value) if REGRESSION else slope(at(theta, at_theta + j), F64(value))
                    put(scores, row + FIRST + j, score)
                    squared += score * score
            factor = moment_factor(squared, clip) / root if takes_part else 0.0
            for j in range(d):
                put(scores, row + j, at(scores, row + j) * factor if factor > 0.0 else 0.0)
        cuda.syncthreads()
        if pair < count:
            for r in range(at_once):
                total += I64(at(scores, r * width + a) * (SAFE * GRID) * at(scores, r * width + b))
        cuda.syncthreads()
        tile += groups * at_once
    if pair < count:
        put(partial, pair * columns + column + group, total)


def _add_up(partial: Any, columns: Any, totals: Any) -> None:
    """totals[i] = the sum of row i of ``partial``."""
    i = I64(cuda.blockIdx.x) * THREADS + I64(cuda.threadIdx.x)
    if i < totals.shape[0]:
        total = I64(0)
        for c in range(columns):
            total += at(partial, i * columns + c)
        put(totals, i, total)


@cache
def _add_up_kernel() -> Any:
    return kernel(_add_up)


@cache
def moments_kernel(loss: str, intercept: bool, mapped: bool, encodings: tuple[str, str] = ("", "")) -> Any:
    """The kernel of one loss."""
    kind = Kind(loss, intercept, 0, 1, False, mapped, 0)
    slopes = formulas.DOUBLE_SLOPES if kind.regression else formulas.DOUBLE_LOCATION_SLOPES
    known = {"FIRST": kind.first, "SCALE": kind.scale, "MAPPED": mapped, "REGRESSION": kind.regression}
    name = "_".join(filter(None, (f"{loss}_{kind.first}{'m' if mapped else ''}", *encodings)))
    x_number, y_number = (NUMBERS[encoding] for encoding in encodings)
    bound = {"slope": slopes[loss], "constants": formulas.CONSTANTS[loss]}
    return kernel(expand(_moments, name, (), known, x_number=x_number, y_number=y_number, **bound))


def score_moments(
    loss: str, intercept: bool, records: Records | Placed, draws: Draws, clip: float
) -> NDArray[np.int64]:
    """The sums without noise; same contract as ``reference.score_moments``, for any layout.  Not a release."""
    K, d = draws.theta.shape
    width = K * d
    if width > MAX_NUMBERS:
        raise ValueError(f"score_moments: {width} stacked coordinates; at most {MAX_NUMBERS} on the GPU")
    kind = Kind(loss, intercept, 0, 1, False, False, 0)
    placed = place(records, response=kind.regression) if isinstance(records, Records) else records
    left, right = np.triu_indices(width)
    at_once = min(MAX_RECORDS, MAX_NUMBERS // width)
    groups = [groups_for(-(-n // at_once)) for n in placed.sizes]
    columns, column = sum(groups), 0
    public = (draws.theta, draws.constants)
    theta, pairs = (cuda.to_device(np.ascontiguousarray(part, np.float64).reshape(-1)) for part in public)
    a, b = cuda.to_device(left.astype(np.int32)), cuda.to_device(right.astype(np.int32))
    partial = cuda.device_array(len(left) * columns, np.int64)
    totals = cuda.device_array(len(left), np.int64)
    run = moments_kernel(loss, intercept, placed.mapped, placed.encodings)
    blocks = -(-len(left) // THREADS)
    for chunk, count in zip(placed.chunks(0), groups, strict=True):
        shape = (placed.features, K, draws.weights.shape[1] - 1, at_once, column, columns, len(left))
        Launch(run, (blocks, count), shared_bytes=at_once * width * 8)(
            chunk.table, chunk.y, chunk.block, placed.map, chunk.sizes, theta, pairs, a, b, partial, shape, float(clip)
        )
        column += count
    Launch(_add_up_kernel(), blocks)(partial, columns, totals)
    upper: NDArray[np.int64] = np.zeros((width, width), dtype=np.int64)
    upper[left, right] = totals.copy_to_host()
    return upper + np.triu(upper, 1).T
