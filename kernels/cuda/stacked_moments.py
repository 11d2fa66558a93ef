"""Second moment of the stacked scores, on the GPU; computed once or twice for each fit, in double precision."""

from functools import cache
from typing import Any

import numpy as np
from numba import cuda
from numpy.typing import NDArray

from pgbb_fast.kernels.arguments import Records, Stack
from pgbb_fast.kernels.cuda import formulas
from pgbb_fast.kernels.cuda.compile import THREADS, Launch, expand, groups_for, kernel, static
from pgbb_fast.kernels.cuda.formulas import stack_factors_exact
from pgbb_fast.kernels.cuda.instructions import F64, FLOAT64, I64, NUMBERS, at, put
from pgbb_fast.kernels.cuda.moments import MAX_NUMBERS, MAX_RECORDS, _add_up_kernel
from pgbb_fast.kernels.cuda.records import Placed
from pgbb_fast.kernels.cuda.stacked import placed
from pgbb_fast.kernels.cuda.stacked_plan import StackedKind, check
from pgbb_fast.kernels.cuda.sums import decode
from pgbb_fast.kernels.scalar.clip import GRID
from pgbb_fast.kernels.scalar.moments import SAFE

MAX_PARTIAL = 1 << 25      # partial sums of all blocks of threads, 256 MiB

# bound for each loss
slope: Any = None
constants: Any = None
x_number: Any = None
y_number: Any = None
FIRST = SCALE = 0
MAPPED = False




def _stacked_moments(
    table: Any, y: Any, decoder: Any, sizes: Any, theta: Any, pairs: Any, features: Any, mix: Any, scale_mix: Any,
    left: Any, right: Any, partial: Any, shape: Any, bound: Any,
) -> None:  # fmt: skip
    """partial[pair, column + group]: the sum over a group's records of the product of two coordinates of v.

    ``at_once`` records lie in shared memory, a row each: L d coordinates, W xbar, slopes, those in the scale, V times
    both, and two factors.  Every thread has one pair.
    """
    me, group, groups = I64(cuda.threadIdx.x), I64(cuda.blockIdx.y), I64(cuda.gridDim.y)
    n, by_row, by_column, y_from, y_by_row, _ = sizes
    p, L, at_once, column, columns, count, width, at_slope, row = shape
    m, d = p + FIRST, p + FIRST + SCALE
    rows = cuda.shared.array(0, FLOAT64)
    pair = I64(cuda.blockIdx.x) * THREADS + me
    total = I64(0)
    tile = group * at_once
    while tile < n:
        for item in range(me, at_once * (m + L), THREADS):
            r, i = item // (m + L), item % (m + L)
            if tile + r < n:
                start, here = (tile + r) * by_row, r * row
                value = F64(0.0)
                if i < m:
                    if static(FIRST > 0):
                        value = at(features, i * m)
                    for j in range(FIRST, i + 1):
                        number = x_number(at(table, start + by_column * (j - FIRST)))
                        if static(MAPPED):
                            number = decode(number, decoder, I64(j - FIRST))
                        value += at(features, i * m + j) * F64(number)
                    put(rows, here + width + i, value)
                else:
                    t = i - m
                    if static(FIRST > 0):
                        value = at(theta, t * d)
                    for j in range(FIRST, m):
                        number = x_number(at(table, start + by_column * (j - FIRST)))
                        if static(MAPPED):
                            number = decode(number, decoder, I64(j - FIRST))
                        value += at(theta, t * d + j) * F64(number)
                    response = y_number(at(y, y_from + (tile + r) * y_by_row))
                    if static(MAPPED):
                        response = decode(response, decoder, p)
                    scale = F64(1.0)
                    if static(SCALE > 0):
                        scale = at(theta, t * d + m)
                    c0, c1, c2 = constants(scale, at(pairs, 2 * t), at(pairs, 2 * t + 1))
                    by_eta, by_scale = slope(F64(response), value, c0, c1, c2)
                    put(rows, here + at_slope + t, F64(by_eta))
                    put(rows, here + at_slope + L + t, F64(by_scale))
        cuda.syncthreads()
        for item in range(me, at_once * L, THREADS):
            r, k = item // L, item % L
            here = r * row + at_slope
            value, other = F64(0.0), F64(0.0)
            for t in range(k + 1):
                value += at(mix, k * L + t) * at(rows, here + t)
                if static(SCALE > 0):
                    other += at(scale_mix, k * L + t) * at(rows, here + L + t)
            put(rows, here + 2 * L + k, value)
            put(rows, here + 3 * L + k, other)
        cuda.syncthreads()
        for r in range(me, at_once, THREADS):
            here = r * row
            factor, both = F64(0.0), F64(0.0)
            if tile + r < n:
                squared_x, squared_a, squared_b = F64(0.0), F64(0.0), F64(0.0)
                for i in range(m):
                    squared_x += at(rows, here + width + i) * at(rows, here + width + i)
                for t in range(2 * L, 3 * L):
                    squared_a += at(rows, here + at_slope + t) * at(rows, here + at_slope + t)
                    if static(SCALE > 0):
                        squared_b += at(rows, here + at_slope + L + t) * at(rows, here + at_slope + L + t)
                both, factor = stack_factors_exact(squared_a, squared_x, squared_b, bound, F64(1.0), F64(1.0))
            put(rows, here + row - 2, both)
            put(rows, here + row - 1, factor)
        cuda.syncthreads()
        for item in range(me, at_once * width, THREADS):
            r, value = item // width, item % width
            here, t, j = r * row, value // d, value % d
            score = F64(0.0)
            if at(rows, here + row - 1) > 0.0:
                if j < m:
                    score = at(rows, here + at_slope + 2 * L + t) * at(rows, here + row - 2)
                    score *= at(rows, here + width + j)
                else:
                    score = at(rows, here + at_slope + 3 * L + t) * at(rows, here + row - 1)
            put(rows, here + value, score)
        cuda.syncthreads()
        if pair < count:
            one, two = I64(at(left, pair)), I64(at(right, pair))
            for r in range(at_once):
                total += I64(at(rows, r * row + one) * (SAFE * GRID) * at(rows, r * row + two))
        cuda.syncthreads()
        tile += groups * at_once
    if pair < count:
        put(partial, pair * columns + column + group, total)


@cache
def stacked_moments_kernel(
    loss: str, intercept: bool, mapped: bool, encodings: tuple[str, str] = ("", "")
) -> Any:
    """The kernel of one loss."""
    kind = StackedKind(loss, intercept, 0, 0, False, mapped, encodings=encodings)
    known = {"FIRST": kind.first, "SCALE": kind.scale, "MAPPED": mapped}
    x_number, y_number = (NUMBERS[encoding] for encoding in encodings)
    bound = {"slope": formulas.DOUBLE_SLOPES[loss], "constants": formulas.CONSTANTS[loss]}
    return kernel(expand(_stacked_moments, kind.name, (), known, x_number=x_number, y_number=y_number, **bound))


def stacked_moments(loss: str, intercept: bool, records: Records | Placed, stack: Stack) -> NDArray[np.int64]:
    """The sums without noise; same contract as ``reference.stacked_moments``, for any layout.  Not a release."""
    if loss not in formulas.DOUBLE_SLOPES:
        raise ValueError(f"no stacked moments for this loss: {loss}")
    there = placed(records, response=True) if isinstance(records, Records) else records
    kind = StackedKind(loss, intercept, 0, 0, False, there.mapped)
    L, m = len(stack.theta), there.features + kind.first
    check(loss, stack, m, kind.scale)
    width = L * (m + kind.scale)
    row = width + m + 4 * L + 2
    if row > MAX_NUMBERS:
        raise ValueError(f"stacked_moments: {width} stacked coordinates; the GPU has room for {MAX_NUMBERS} numbers")
    at_once = min(MAX_RECORDS, MAX_NUMBERS // row)
    left, right = np.triu_indices(width)
    blocks = -(-len(left) // THREADS)
    groups = [min(max(1, MAX_PARTIAL // len(left)), groups_for(-(-n // at_once))) for n in there.sizes]
    columns, column = sum(groups), 0
    mixes = (stack.mix / stack.clip, stack.scale_mix / stack.clip if kind.scale else np.zeros(1))
    parts = (stack.theta, stack.constants, stack.map, *mixes)
    public = [cuda.to_device(np.ascontiguousarray(part, np.float64).reshape(-1)) for part in parts]
    pairs = [cuda.to_device(side.astype(np.int32)) for side in (left, right)]
    partial = cuda.device_array(len(left) * columns, np.int64)
    totals = cuda.device_array(len(left), np.int64)
    run = stacked_moments_kernel(loss, intercept, there.mapped, there.encodings)
    for chunk, count in zip(there.chunks(0), groups, strict=True):
        shape = (there.features, L, at_once, column, columns, len(left), width, width + m, row)
        Launch(run, (blocks, count), shared_bytes=at_once * row * 8)(
            chunk.table, chunk.y, there.map, chunk.sizes, *public, *pairs, partial, shape,
            float(stack.feature_bound),
        )
        column += count
    Launch(_add_up_kernel(), blocks)(partial, columns, totals)
    upper: NDArray[np.int64] = np.zeros((width, width), dtype=np.int64)
    upper[left, right] = totals.copy_to_host()
    return upper + np.triu(upper, 1).T
