"""What comes before and after the sums of a step: public inputs rounded for the kernel, and the second pass with noise.

The second pass adds the blocks' partial sums, one block of threads for each coordinate of the release; integers, so
the order doesn't matter and the bits are the same in every run.
"""

from typing import Any

from numba import cuda

from pgbb_fast.kernels.cuda.compile import THREADS, WARPS
from pgbb_fast.kernels.cuda.formulas import grid_weight, rounding, weight_exponent
from pgbb_fast.kernels.cuda.instructions import F32, I32, I64, INT32, INT64, at, deposit, put
from pgbb_fast.kernels.cuda.noise import rounded_normal
from pgbb_fast.kernels.scalar.clip import MAX_EXPONENT
from pgbb_fast.kernels.scalar.random import WORDS

ROOM = WORDS + 1
constants: Any = None   # bound for each loss


def _publish(theta: Any, weights: Any, pairs: Any, public: Any, shift: Any, row: Any, stride: Any) -> None:
    """Draw k = blockIdx.x in single precision: theta and three constants from public[row k] on, weights on the draw's
    grid after all draws' rows, ``stride`` of them for a draw.  What is beyond K or S (padding) has weights of zero."""
    me, k, padded = I64(cuda.threadIdx.x), I64(cuda.blockIdx.x), I64(cuda.gridDim.x)
    K, d, blocks = I64(theta.shape[0]), I64(theta.shape[1]), I64(weights.shape[1])
    source = min(k, K - 1)
    least = cuda.shared.array(1, INT32)
    if me == 0:
        put(least, I64(0), I32(MAX_EXPONENT))
    cuda.syncthreads()
    for s in range(me, blocks, THREADS):
        u = weights[source, s]
        if u > 0.0:
            cuda.atomic.min(least, 0, I32(weight_exponent(u)))
    cuda.syncthreads()
    exponent, less = I64(at(least, I64(0))), rounding(d)
    for s in range(me, stride, THREADS):
        u = grid_weight(weights[source, s], exponent, less) if k < K and s < blocks else 0.0
        put(public, padded * row + k * stride + s, F32(u))
    for j in range(me, d, THREADS):
        put(public, k * row + j, F32(theta[source, j]))
    if me == 0:
        put(shift, k, MAX_EXPONENT - exponent)
        a, b, c = constants(theta[source, d - 1], pairs[source, 0], pairs[source, 1])
        put(public, k * row + d, F32(a))
        put(public, k * row + d + 1, F32(b))
        put(public, k * row + d + 2, F32(c))


def finish(
    partial: Any, shift: Any, grid: Any, places: Any, noise: Any, thresholds: Any, key: Any, counter: Any
) -> None:
    """grid[k, j] = the sum of all partial sums, shifted to units of 2^-32, plus the perturbation, whose scale is
    ``noise`` (``scalar.normal.scale_of``); one thread makes it.

    ``places`` is (KB, A, columns, first, features, FB): where the sums of a coordinate are.  With FB > 0, features
    come in blocks of FB and ``first`` says whether an intercept is before them.
    """
    me, k, j = I64(cuda.threadIdx.x), I64(cuda.blockIdx.x), I64(cuda.blockIdx.y)
    draws, slots, columns, first, features, fb = places
    tiles, tile, slot = I64(1), I64(0), j
    if fb > 0:
        tiles = (features + fb - 1) // fb
        if j >= first + features:
            slot = slots - 1
        elif j >= first:
            tile = (j - first) // fb
            slot = first + (j - first) % fb
    value = (((k // draws) * tiles + tile) * draws + k % draws) * slots + slot
    totals = cuda.shared.array(WARPS, INT64)
    if me < WARPS:
        put(totals, me, I64(0))
    cuda.syncthreads()
    mine = I64(0)
    for c in range(me, columns, THREADS):
        mine += at(partial, value * columns + c)
    deposit(totals, me >> 5, mine)
    cuda.syncthreads()
    if me == 0:
        whole = I64(0)
        for i in range(WARPS):
            whole += at(totals, I64(i))
        whole = whole << at(shift, k)
        room = cuda.shared.array(ROOM, INT64)
        put(room, I64(WORDS), I64(-1))
        place = k * I64(grid.shape[1]) + j
        whole += rounded_normal(noise[0], noise[1], key, at(counter, I64(0)), place, thresholds, room)
        grid[k, j] = whole
