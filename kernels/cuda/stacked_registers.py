"""The fused stacked kernel's template: sample, load, slopes of all rules, transformed features, one clip, exact sums.

One thread takes one record at a time and keeps in registers its features, the slopes of the L rules and all L d sums.
Everything public (W, theta, V) lies in shared memory in the order in which it is used, so that four numbers come with
one read that all lanes share.  What happens to sums of 32 bits, and to minibatches, is as in :mod:`.sums`.

``expand`` writes out the loops over registers.  Known when a kernel is made: L rules, P features, the loss and the
layout of the records.  :mod:`.stacked_tiles` serves sizes that don't fit into registers.
"""

from typing import Any

from numba import cuda

from pgbb_fast.kernels.cuda.compile import SIMULATED, THREADS, WARPS, static, unrolled
from pgbb_fast.kernels.cuda.formulas import stack_factors
from pgbb_fast.kernels.cuda.instructions import (
    F32,
    FLOAT32,
    I32,
    I64,
    INT32,
    INT64,
    at,
    deposit,
    fma,
    plus,
    put,
)
from pgbb_fast.kernels.cuda.queue import STATE, open_window, refilled, taken, windows_of
from pgbb_fast.kernels.cuda.sums import MOST, QUEUE, decode

ZERO = F32(0.0)

# bound for each kernel
slope: Any = None
x_number: Any = None
y_number: Any = None
L = P = M = D = ROW = FIRST = SCALE = 0
RULES = MIX = SCALE_MIX = PUBLIC = 0        # where in the public numbers: W at 0, then these, and their count
SAMPLED = MAPPED = False
# registers, which ``expand`` turns into variables
acc: Any = None     # sums [rule, coordinate]
x: Any = None       # features
z: Any = None       # W xbar
a: Any = None       # slopes, then V times them
b: Any = None       # the same in the scale
REGISTERS = ("acc", "x", "z", "a", "b")


def _stacked(
    table: Any, y: Any, decoder: Any, sizes: Any, public: Any, partial: Any, shape: Any, scales: Any, sampler: Any,
    key: Any, counter: Any,
) -> None:  # fmt: skip
    """Sums of one block of threads over its share of the records, in ``partial[value, column + group]``.

    ``sizes`` as for ``sums._sums``; ``public`` as ``stacked.Layout`` arranges it; ``shape`` (p, L, first column of
    ``partial``, its columns); ``scales`` (B, the clipping limit, 2^22 less what rounding adds); ``sampler``
    (threshold, bits of a chunk or 0, 1 / l, longest gap).
    """
    me, group, groups = I64(cuda.threadIdx.x), I64(cuda.blockIdx.y), I64(cuda.gridDim.y)
    warp = me >> 5
    n, by_row, by_column, y_from, y_by_row, first = sizes
    p, _, column, columns = shape
    bound, limit, weight = scales

    totals = cuda.shared.array(WARPS * L * D, INT64)
    stage = cuda.shared.array(D * THREADS, INT32)       # a thread's own sums, where a loop can index them
    for i in range(me, WARPS * L * D, THREADS):
        put(totals, i, I64(0))
    if static(SIMULATED):
        known = cuda.shared.array(PUBLIC, FLOAT32)
    if static(not SIMULATED):
        known = cuda.shared.array(PUBLIC, FLOAT32, 16)
    for i in range(me, PUBLIC, THREADS):
        put(known, i, at(public, i))
    if static(MAPPED):
        affine = cuda.shared.array(2 * P + 2, FLOAT32)
        for i in range(me, 2 * P + 2, THREADS):
            put(affine, i, at(decoder, i))
    for r in unrolled(L):
        for j in unrolled(D):
            acc[r, j] = I32(0)
    terms = I32(0)

    if static(SAMPLED):
        queue = cuda.shared.array(QUEUE, INT64)
        size = cuda.shared.array(1, INT32)
        state = cuda.shared.array(STATE, INT64)
        step, count = at(counter, I64(0)), I32(0)
        more = I32(1 if group < windows_of(n, sampler[1]) else 0)
        going = more > 0
        open_window(state, group, n, sampler[1])
    else:
        place = group * THREADS
        going = place < n
    cuda.syncthreads()

    while going:
        if static(SAMPLED):
            here, working = I64(-1), I32(1)
            if more == 0 or count >= THREADS:
                here, count = taken(count, queue)
            else:
                working = I32(0)
                count, more = refilled(count, state, first, n, step, sampler, key, queue, size)
            going = more > 0 or count > 0
        else:
            here, working = I64(-1), I32(1)
            if place + me < n:
                here = place + me
            place += groups * THREADS
            going = place < n
        if here >= 0:
            at_x = here * by_row
            for j in unrolled(P):
                x[j] = x_number(at(table, at_x))
                at_x += by_column
            response = y_number(at(y, y_from + here * y_by_row))
            if static(MAPPED):
                for j in unrolled(P):
                    x[j] = decode(x[j], affine, I64(j))
                response = decode(response, affine, p)
            # Never positive, which the compiler doesn't know: no read of public numbers is moved before a store that
            # this guards, into registers that there aren't.
            never = here >> 62
            # slopes of all rules
            for r in unrolled(L):
                if never > 0:
                    put(known, never, ZERO)
                eta = ZERO
                if static(FIRST > 0):
                    eta = at(known, I64(RULES + ROW * r))
                for j in unrolled(P):
                    eta = fma(at(known, I64(RULES + ROW * r + FIRST + j)), x[j], eta)
                by_eta, by_scale = slope(
                    response, eta, at(known, I64(RULES + ROW * r + D)), at(known, I64(RULES + ROW * r + D + 1)),
                    at(known, I64(RULES + ROW * r + D + 2)),
                )  # fmt: skip
                a[r] = by_eta
                if static(SCALE > 0):
                    b[r] = by_scale
            # W xbar, the last row first, as it lies in memory
            for i in unrolled(M):
                if never > 0:
                    put(known, never, ZERO)
                value = ZERO
                if static(FIRST > 0):
                    value = at(known, I64(i * (2 * M + 1 - i) // 2))
                for j in unrolled(M - i - FIRST):
                    value = fma(at(known, I64(i * (2 * M + 1 - i) // 2 + FIRST + j)), x[j], value)
                z[M - 1 - i] = value
            square_x = ZERO
            for i in unrolled(M):
                square_x = fma(z[i], z[i], square_x)
            # V times the slopes, the last row first
            if never > 0:
                put(known, never, ZERO)
            for r in unrolled(L):
                value, other = ZERO, ZERO
                for t in unrolled(L - r):
                    value = fma(at(known, I64(MIX + r * (2 * L + 1 - r) // 2 + t)), a[t], value)
                    if static(SCALE > 0):
                        other = fma(at(known, I64(SCALE_MIX + r * (2 * L + 1 - r) // 2 + t)), b[t], other)
                a[L - 1 - r] = value
                if static(SCALE > 0):
                    b[L - 1 - r] = other
            square_a, square_b = ZERO, ZERO
            for r in unrolled(L):
                square_a = fma(a[r], a[r], square_a)
                if static(SCALE > 0):
                    square_b = fma(b[r], b[r], square_b)
            factor, scale_factor = stack_factors(square_a, square_x, square_b, bound, limit, weight)
            if scale_factor > ZERO:     # else the record counts as zero
                for r in unrolled(L):
                    c = a[r] * factor
                    for j in unrolled(M):
                        acc[r, j] = plus(acc[r, j], c, z[j])
                    if static(SCALE > 0):
                        acc[r, M] = plus(acc[r, M], b[r], scale_factor)
        terms = I32(terms + working)
        if terms + 1 > MOST or not going:
            for r in unrolled(L):
                for j in unrolled(D):
                    put(stage, me + j * THREADS, acc[r, j])
                    acc[r, j] = I32(0)
                for j in range(D):
                    deposit(totals, (warp * L + r) * D + j, I64(at(stage, me + j * THREADS)))
            terms = I32(0)

    cuda.syncthreads()
    for i in range(me, L * D, THREADS):
        whole = I64(0)
        for other_warp in range(WARPS):
            whole += at(totals, other_warp * (L * D) + i)
        put(partial, i * columns + column + group, whole)
