"""The fused kernel's template: sample, load, residuals of several draws, slope, clip, weight, exact integer sums.

One thread takes one record at a time and keeps a block of KB draws of it in registers: their A sums each, the record's
features, and nothing else.  With more draws, PARTS groups of warps in a block work on the same records with a block of
draws each, so that records come from the first-level cache and hits are drawn once for all of them.  theta and weights
lie in shared memory; all lanes read the same theta (a broadcast) and, for fewer than 32 blocks, different weights from
different banks.  Sums are integers of 32 bits for at most MOST terms, then go through warp shuffles into 64-bit totals
of each warp, and at the end into the block's own place of ``partial``: no atomics on sums, and the same bits whatever
the launch.

Minibatches go through a queue in shared memory, so that every lane has a hit to work on: a block draws a helping of
hits when fewer than LANES (the threads of a part) wait, and works on LANES of them at a time.  With a mask a thread
makes the 16 words of 16 records; with skips a warp makes 256 gaps of one chunk, adds them up by a scan, and goes on
where they end.  The order in the queue differs from run to run; that of integers doesn't matter.

``expand`` writes out the loops over registers.  Known when a kernel is made: KB draws, P features (0: any number, in
blocks of FB that the grid's z counts), V records in each 32-bit word, the loss and the layout.
"""

from typing import Any

from numba import cuda

from pgbb_fast.kernels.cuda.compile import SIMULATED, THREADS, WARP, WARPS, device, expand, static, unrolled
from pgbb_fast.kernels.cuda.formulas import clip_factor, gap, random_words, uniform64, within
from pgbb_fast.kernels.cuda.instructions import (
    F32,
    FLOAT32,
    I32,
    I64,
    INT32,
    INT64,
    U32,
    at,
    deposit,
    fma,
    last_lane,
    plus,
    put,
    reload,
    warp_scan,
)
from pgbb_fast.kernels.scalar import clip as grid
from pgbb_fast.kernels.scalar.random import PURPOSE_SAMPLE, PURPOSE_SKIP, WORDS

MOST = 508              # terms of at most 2^22 that are added in 32 bits, a multiple of 4
FB = 8                  # features of a block where their number isn't known
CHUNK_COUNTER = 24      # bits of the cipher's counter within a chunk of records
GAPS = WORDS // 2       # of one cipher block
QUEUE = THREADS * (WORDS + 1)       # a helping by mask, and fewer than THREADS that wait

INFINITY, MAX_SQUARE, ONE, ZERO = F32(grid.INFINITY), F32(grid.MAX_SQUARE), F32(1.0), F32(0.0)

# bound for each kernel
slope: Any = None
piece: Any = None
x_number: Any = None    # what stored features and responses are in single precision
y_number: Any = None
KB = PARTS = LANES = P = XS = A = ROW = EXTRA = V = SHIFT = FIRST = SCALE = BLOCKS = 0
SAMPLED = AHEAD = MAPPED = INTERCEPT = REGRESSION = False
# registers, which ``expand`` turns into variables
acc: Any = None         # sums [draw, place]
x: Any = None           # features
w: Any = None           # words in which features come
words: Any = None       # of the cipher
gaps: Any = None
etas: Any = None
taken: Any = None
REGISTERS = ("acc", "x", "w", "gaps", "etas")


def _hits(where: Any, sampler: Any, key: Any, queue: Any, size: Any) -> Any:
    """Append a helping of hits to the queue: one cipher block for each thread.

    Returns where the warp's chunk goes on (skips), and whether any warp's does.
    """
    first, n, window, helping, record, end, step = where
    threshold, bits, inverse_log, longest = sampler
    me = I64(cuda.threadIdx.x)
    lane, warp = me & 31, me >> 5
    # a cipher block each: of 16 records' words, or of 8 gaps in the chunk of this warp
    cell = window * THREADS + me
    index, purpose = (first >> 4) + cell, U32(PURPOSE_SAMPLE)
    if bits > 0:
        index = (((first >> bits) + window * WARPS + warp) << CHUNK_COUNTER) + helping * WARP + lane
        purpose = U32(PURPOSE_SKIP)
    words = random_words(
        U32(at(key, I64(0))), U32(at(key, I64(1))), U32(at(key, I64(2))), U32(at(key, I64(3))),
        U32(at(key, I64(4))), U32(at(key, I64(5))), U32(at(key, I64(6))), U32(at(key, I64(7))),
        U32(index & 0xFFFFFFFF), U32(index >> 32), U32(step), purpose,
    )  # fmt: skip
    found, left = I32(0), I32(0)
    if bits == 0:
        taken, base = I32(0), cell * WORDS
        for i in unrolled(WORDS):
            if I64(words[i]) < threshold and base + i < n:
                taken, found = I32(taken | (1 << i)), I32(found + 1)
        slot = I64(cuda.atomic.add(size, 0, found))
        for i in unrolled(WORDS):
            if taken & (1 << i):
                put(queue, slot, base + i)
                slot += 1
        cuda.syncthreads()
    else:
        reach, no_hit = I64(0), I64(longest)
        for i in unrolled(GAPS):
            gaps[i] = I64(gap(uniform64(words[2 * i], words[2 * i + 1]), inverse_log, longest))
            reach += gaps[i] + I64(1 if gaps[i] < no_hit else 0)
        upto = warp_scan(reach, lane)
        base = record + upto - reach
        for i in unrolled(GAPS):
            base += gaps[i]
            if gaps[i] < no_hit:
                if base < end:
                    found = I32(found + 1)
                base += 1
        slot, base = I64(cuda.atomic.add(size, 0, found)), record + upto - reach
        for i in unrolled(GAPS):
            base += gaps[i]
            if gaps[i] < no_hit:
                if base < end:
                    put(queue, slot, base)
                    slot += 1
                base += 1
        record += last_lane(upto)
        left = I32(cuda.syncthreads_or(I32(1 if record < end else 0)))
    return record, left


def _bounded(value: Any, square: Any) -> Any:
    """``value``, or zero where the square isn't finite."""
    return value if square < INFINITY else ZERO


def _decode(value: Any, affine: Any, j: Any) -> Any:
    """The public affine map of ``Records.map``; nan stays nan."""
    return within(fma(value, at(affine, 2 * j), at(affine, 2 * j + 1)), ONE)


hits = device(expand(_hits, "cuda", ("gaps",), {}))
bounded, decode = device(_bounded), device(_decode)


def _sums(
    table: Any, y: Any, block: Any, decoder: Any, sizes: Any, public: Any, partial: Any, shape: Any,
    scales: Any, sampler: Any, key: Any, counter: Any,
) -> None:  # fmt: skip
    """Sums of one block of threads over its share of the records, in ``partial[value, column + group]``.

    ``sizes`` is (n, step from row to row and from column to column, y's start and its step, number of the first
    record); ``shape`` (p, draws with padding, weights of a draw, first column of ``partial``, its columns); ``scales``
    (1/C, the clipping limit); ``sampler`` (threshold, bits of a chunk or 0, 1 / l, longest gap).
    """
    me, group, groups = I64(cuda.threadIdx.x), I64(cuda.blockIdx.y), I64(cuda.gridDim.y)
    warp, part, mine = me >> 5, me // LANES, me % LANES
    draw, features = I64(cuda.blockIdx.x) * (PARTS * KB), I64(cuda.blockIdx.z) * FB
    n, by_row, by_column, y_from, y_by_row, first = sizes
    p, draws, blocks, column, columns = shape
    inverse, limit = scales
    bits = sampler[1]

    # theta, constants and weights of this block's draws
    totals = cuda.shared.array(WARPS * KB * A, INT64)
    stage = cuda.shared.array(A * THREADS, INT32)       # a thread's own sums, where a loop can index them
    for i in range(me, WARPS * KB * A, THREADS):
        put(totals, i, I64(0))
    if static(P > 0):
        if static(SIMULATED):
            theta = cuda.shared.array(PARTS * KB * ROW, FLOAT32)
        else:
            theta = cuda.shared.array(PARTS * KB * ROW, FLOAT32, 16)
        for i in range(me, PARTS * KB * ROW, THREADS):
            put(theta, i, at(public, draw * ROW + i))
        start, row = part * (KB * ROW), I64(ROW)
    else:
        theta = public
        row = p + EXTRA
        start = (draw + part * KB) * row
    if static(BLOCKS > 0):
        weights = cuda.shared.array(PARTS * KB * BLOCKS, FLOAT32)
        for i in range(me, PARTS * KB * BLOCKS, THREADS):
            put(weights, i, at(public, draws * row + draw * BLOCKS + i))
        start_weights, next_weights = part * (KB * BLOCKS), I64(BLOCKS)
    else:
        weights = public
        start_weights, next_weights = draws * row + (draw + part * KB) * blocks, blocks
    if static(MAPPED and P > 0):
        affine = cuda.shared.array(2 * P + 2, FLOAT32)
        for i in range(me, 2 * P + 2, THREADS):
            put(affine, i, at(decoder, i))
    elif static(MAPPED):
        affine = decoder
    for k in unrolled(KB):
        for j in unrolled(A):
            acc[k, j] = I32(0)
    terms = 0

    if static(SAMPLED):
        queue = cuda.shared.array(QUEUE, INT64)
        size = cuda.shared.array(1, INT32)
        count, window, helping = I64(0), group, I64(0)
        per_window = I64(THREADS * WORDS)
        if bits > 0:
            per_window = I64(WARPS) << bits
        windows = (n + per_window - 1) // per_window
        record, end = I64(0), I64(0)
        if bits > 0:
            record = (window * WARPS + warp) << bits
            end = min(n, record + (I64(1) << bits))
        step = at(counter, I64(0))
        going = window < windows
    else:
        place = group * (LANES * V)
        going = place < n
    cuda.syncthreads()
    if static(AHEAD):
        i = min(place + mine, n - 1)
        for j in unrolled(P):
            w[j] = at(table, i * by_row + by_column * j)
        if static(REGRESSION):
            response = y_number(at(y, y_from + i * y_by_row))
        b = I64(at(block, i))

    while going:
        here = I64(-1)
        working = True
        if static(SAMPLED):
            working = window >= windows or count >= LANES
            if working:
                chosen = min(count, I64(LANES))
                if mine < chosen:
                    here = at(queue, count - chosen + mine)
                count -= chosen
            else:
                cuda.syncthreads()
                if me == 0:
                    put(size, I64(0), I32(count))
                cuda.syncthreads()
                record, left = hits((first, n, window, helping, record, end, step), sampler, key, queue, size)
                helping += 1
                count = I64(at(size, I64(0)))
                if left == 0:
                    window += groups
                    helping = I64(0)
                    record, end = I64(0), I64(0)
                    if bits > 0:
                        record = (window * WARPS + warp) << bits
                        end = min(n, record + (I64(1) << bits))
            going = window < windows or count > 0
        else:
            if place + mine * V < n:
                here = place + mine * V
            place += groups * (LANES * V)
            going = place < n

        if static(AHEAD):
            # what was loaded is used now, and the next record's numbers are on the way meanwhile
            for j in unrolled(P):
                x[j] = x_number(w[j])
            this_b = b
            if static(REGRESSION):
                this_response = response
            i = min(place + mine, n - 1)
            for j in unrolled(P):
                w[j] = at(table, i * by_row + by_column * j)
            if static(REGRESSION):
                response = y_number(at(y, y_from + i * y_by_row))
            b = I64(at(block, i))
        elif static(P > 0):
            at_row = max(here, I64(0)) >> SHIFT if V > 1 else max(here, I64(0)) * by_row
            for j in unrolled(P):
                w[j] = at(table, at_row + by_column * j)

        for v in range(V):
            if here >= 0 and here + v < n:
                if static(not AHEAD):
                    for j in unrolled(P):
                        if static(V > 1):
                            x[j] = piece(w[j], I64(v))
                        else:
                            x[j] = x_number(w[j])
                    if static(REGRESSION):
                        if static(V > 1):
                            this_response = piece(at(y, y_from + (here >> SHIFT)), I64(v))
                        else:
                            this_response = y_number(at(y, y_from + here * y_by_row))
                    this_b = I64(at(block, here + v))
                if static(MAPPED):
                    for j in unrolled(P):
                        x[j] = decode(x[j], affine, I64(j))
                    if static(REGRESSION):
                        this_response = decode(this_response, affine, p)
                reload()
                square_x = ONE if INTERCEPT else ZERO
                for k in unrolled(KB):
                    first_eta = ZERO
                    if static(FIRST > 0):
                        first_eta = at(theta, start + row * k)
                    etas[k] = first_eta
                # predictions, or squared norms of a location's gradients, of all draws
                if static(P > 0):
                    for j in unrolled(P):
                        square_x = fma(x[j], x[j], square_x)
                else:
                    for j in range(p):
                        value = x_number(at(table, here * by_row + by_column * j))
                        if static(MAPPED):
                            value = decode(value, affine, I64(j))
                        square_x = fma(value, value, square_x)
                        for k in unrolled(KB):
                            t = at(theta, start + row * k + FIRST + j)
                            if static(REGRESSION):
                                etas[k] = fma(t, value, etas[k])
                            else:
                                g = slope(t, value) * inverse
                                etas[k] = fma(g, g, etas[k])
                    for j in unrolled(FB):
                        value = x_number(at(table, here * by_row + by_column * min(features + j, p - 1)))
                        if static(MAPPED):
                            value = decode(value, affine, min(features + j, p - 1))
                        x[j] = value
                if square_x <= MAX_SQUARE:     # false for nan: a record that isn't finite counts as zero
                    for k in unrolled(KB):
                        at_theta = start + row * k + FIRST
                        if static(P > 0):
                            for j in unrolled(P):
                                if static(REGRESSION):
                                    etas[k] = fma(at(theta, at_theta + j), x[j], etas[k])
                                else:
                                    g = slope(at(theta, at_theta + j), x[j]) * inverse
                                    etas[k] = fma(g, g, etas[k])
                        weight = at(weights, start_weights + next_weights * k + this_b)
                        if static(REGRESSION):
                            at_constants = at_theta + (P + SCALE if P > 0 else p + SCALE)
                            by_eta, by_scale = slope(
                                this_response, etas[k],
                                at(theta, at_constants), at(theta, at_constants + 1), at(theta, at_constants + 2),
                            )  # fmt: skip
                            by_eta = by_eta * inverse
                            if static(SCALE):
                                by_scale = by_scale * inverse
                                square = fma(by_eta * by_eta, square_x, by_scale * by_scale)
                            else:
                                square = by_eta * by_eta * square_x
                            factor = clip_factor(square, limit)
                            by_eta = bounded(by_eta * factor, square)
                            if static(INTERCEPT):
                                acc[k, 0] = plus(acc[k, 0], by_eta, weight)
                            if static(SCALE):
                                acc[k, A - 1] = plus(acc[k, A - 1], bounded(by_scale * factor, square), weight)
                            c = by_eta * weight
                            for j in unrolled(XS):
                                acc[k, FIRST + j] = plus(acc[k, FIRST + j], c, x[j])
                        else:
                            if etas[k] < INFINITY:
                                c = clip_factor(etas[k], limit) * weight
                                for j in unrolled(XS):
                                    if static(P > 0):
                                        t = at(theta, at_theta + j)
                                    else:
                                        t = at(theta, at_theta + min(features + j, p - 1))
                                    acc[k, j] = plus(acc[k, j], slope(t, x[j]) * inverse, c)

        if working:
            terms += V
        if terms + V > MOST or not going:
            for k in unrolled(KB):
                for j in unrolled(A):
                    put(stage, me + j * THREADS, acc[k, j])
                    acc[k, j] = I32(0)
                for j in range(A):
                    deposit(totals, (warp * KB + k) * A + j, I64(at(stage, me + j * THREADS)))
            terms = 0

    cuda.syncthreads()
    for i in range(me, PARTS * KB * A, THREADS):
        part, value, whole = i // (KB * A), i % (KB * A), I64(0)
        for other in range(WARPS // PARTS):
            whole += at(totals, (part * (WARPS // PARTS) + other) * (KB * A) + value)
        tile = (I64(cuda.blockIdx.x) * PARTS + part) * I64(cuda.gridDim.z) + I64(cuda.blockIdx.z)
        put(partial, (tile * (KB * A) + value) * columns + column + group, whole)
