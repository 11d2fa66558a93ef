"""The stacked kernel's template for any number of rules and features: what doesn't fit into registers lies in a tile.

A block of threads works on a tile of THREADS records: first every thread on its own record, whose numbers are a column
of the tile (xbar, then W xbar in its place; slopes, then V times them in theirs), then every thread on sums of its
own over the tile's records.  Matrices come in blocks of R rows, stored column by column and filled up with zeros: a
number of the record is read once for R rows.  The tile is in shared memory where it fits, else in the device's.
"""

from typing import Any

from numba import cuda

from pgbb_fast.kernels.cuda.compile import THREADS, device, expand, static, unrolled
from pgbb_fast.kernels.cuda.formulas import stack_factors
from pgbb_fast.kernels.cuda.instructions import F32, FLOAT32, I32, I64, INT32, INT64, at, fma, plus, put
from pgbb_fast.kernels.cuda.queue import STATE, open_window, refilled, taken, windows_of
from pgbb_fast.kernels.cuda.sums import QUEUE, decode

R = 8                   # rows of a matrix at once
STRIDE = THREADS + 1    # from row to row of a tile: neighbouring rows of a record in different banks

ONE, ZERO = F32(1.0), F32(0.0)

# bound for each kernel
slope: Any = None
x_number: Any = None
y_number: Any = None
FIRST = SCALE = 0
SAMPLED = MAPPED = SHARED = False
acc: Any = None         # registers: products
total: Any = None       # sums
REGISTERS = ("acc", "total")


def _product(matrix: Any, place: Any, tile: Any, source: Any, count: Any) -> Any:
    """R rows of a matrix, from ``place`` on, times ``count`` numbers of a record, from ``source`` on."""
    for i in unrolled(R):
        acc[i] = ZERO
    for j in range(count):
        value = at(tile, source + j * STRIDE)
        for i in unrolled(R):
            acc[i] = fma(at(matrix, place + R * j + i), value, acc[i])
    return acc[0], acc[1], acc[2], acc[3], acc[4], acc[5], acc[6], acc[7]


product = device(expand(_product, "cuda", ("acc",), {}))


def _keep(tile: Any, target: Any, first: Any, count: Any, rows: Any) -> None:
    """R rows from row ``first`` on, as far as there are ``count`` of them."""
    for i in unrolled(R):
        if first + i < count:
            put(tile, target + (first + i) * STRIDE, rows[i])


keep = device(expand(_keep, "cuda", (), {}))


def _triangle(matrix: Any, place: Any, tile: Any, source: Any, count: Any) -> Any:
    """``count`` numbers of a record times a lower triangular matrix, in their place: the last rows first."""
    square = ZERO
    for back in range((count + R - 1) // R):
        first = ((count + R - 1) // R - 1 - back) * R
        keep(tile, source, first, count, product(matrix, place + first * count, tile, source, min(first + R, count)))
    for i in range(count):
        value = at(tile, source + i * STRIDE)
        square = fma(value, value, square)
    return square


triangle = device(_triangle)


def _tiled(
    table: Any, y: Any, decoder: Any, sizes: Any, public: Any, partial: Any, scratch: Any, shape: Any, scales: Any,
    sampler: Any, key: Any, counter: Any,
) -> None:  # fmt: skip
    """As ``stacked_registers._stacked``; ``scratch`` has a tile for every block of threads, unless tiles are shared,
    and ``shape`` goes on with the places of public numbers: theta, constants, V, V of the scale (W is at 0)."""
    me, group, groups = I64(cuda.threadIdx.x), I64(cuda.blockIdx.y), I64(cuda.gridDim.y)
    n, by_row, by_column, y_from, y_by_row, first = sizes
    p, L, column, columns, rules, fixed, mix, scale_mix = shape
    bound, limit, weight = scales
    m, d = p + FIRST, p + FIRST + SCALE
    blocks = (L + R - 1) // R * R
    # where the tile's rows are
    rows = m + L + SCALE * (L + 1)
    if static(SHARED):
        tile, features = cuda.shared.array(0, FLOAT32), me
    else:
        tile, features = scratch, group * (rows * STRIDE) + me
    slopes = features + m * STRIDE
    by_scales = slopes + L * STRIDE
    factors = by_scales + L * STRIDE
    for value in range(me, L * d, THREADS):
        put(partial, value * columns + column + group, I64(0))
    cuda.syncthreads()

    if static(SAMPLED):
        queue = cuda.shared.array(QUEUE, INT64)
        size = cuda.shared.array(1, INT32)
        state = cuda.shared.array(STATE, INT64)
        step, waiting = at(counter, I64(0)), I32(0)
        more = I32(1 if group < windows_of(n, sampler[1]) else 0)
        going = more > 0
        open_window(state, group, n, sampler[1])
    else:
        start = group * THREADS
        going = start < n

    while going:
        here, working = I64(-1), True
        if static(SAMPLED):
            working = more == 0 or waiting >= THREADS
            if working:
                here, waiting = taken(waiting, queue)
            else:
                waiting, more = refilled(waiting, state, first, n, step, sampler, key, queue, size)
            going = more > 0 or waiting > 0
        else:
            if start + me < n:
                here = start + me
            start += groups * THREADS
            going = start < n
        if working:
            usable = False
            if here >= 0:
                at_x = here * by_row
                if static(FIRST > 0):
                    put(tile, features, ONE)
                for j in range(p):
                    value = x_number(at(table, at_x + by_column * j))
                    if static(MAPPED):
                        value = decode(value, decoder, I64(j))
                    put(tile, features + (FIRST + j) * STRIDE, value)
                response = y_number(at(y, y_from + here * y_by_row))
                if static(MAPPED):
                    response = decode(response, decoder, p)
                # slopes of all rules
                for t in range(0, blocks, R):
                    keep(tile, slopes, t, L, product(public, rules + t * m, tile, features, m))
                for t in range(L):
                    at_rule = fixed + 3 * t
                    by_eta, by_scale = slope(
                        response, at(tile, slopes + t * STRIDE), at(public, at_rule), at(public, at_rule + 1),
                        at(public, at_rule + 2),
                    )  # fmt: skip
                    put(tile, slopes + t * STRIDE, by_eta)
                    if static(SCALE > 0):
                        put(tile, by_scales + t * STRIDE, by_scale)
                square_x = triangle(public, I64(0), tile, features, m)
                square_a, square_b = triangle(public, mix, tile, slopes, L), ZERO
                if static(SCALE > 0):
                    square_b = triangle(public, scale_mix, tile, by_scales, L)
                factor, scale_factor = stack_factors(square_a, square_x, square_b, bound, limit, weight)
                usable = scale_factor > ZERO
                for t in range(L):
                    put(tile, slopes + t * STRIDE, at(tile, slopes + t * STRIDE) * factor)
                if static(SCALE > 0):
                    put(tile, factors, scale_factor)
            if not usable:      # no record, or one that counts as zero
                for i in range(rows):
                    put(tile, features + i * STRIDE, ZERO)
            cuda.syncthreads()
            for value in range(me, blocks // R * m, THREADS):
                t, j = value // m * R, value % m
                for i in unrolled(R):
                    total[i] = I32(0)
                for r in range(THREADS):
                    number = at(tile, features - me + j * STRIDE + r)
                    for i in unrolled(R):
                        total[i] = plus(total[i], at(tile, slopes - me + min(t + i, L - 1) * STRIDE + r), number)
                for i in unrolled(R):
                    if t + i < L:
                        where = ((t + i) * d + j) * columns + column + group
                        put(partial, where, at(partial, where) + I64(total[i]))
            if static(SCALE > 0):
                for t in range(me, L, THREADS):
                    whole = I32(0)
                    for r in range(THREADS):
                        whole = plus(whole, at(tile, by_scales - me + t * STRIDE + r), at(tile, factors - me + r))
                    where = (t * d + m) * columns + column + group
                    put(partial, where, at(partial, where) + I64(whole))
            cuda.syncthreads()
