"""One tile: up to 448 records as columns that stay in the first-level cache, and what K draws make of them.

The tile is one array of rows of STRIDE single-precision numbers: squared norms, weights, predictions, two rows of
coefficients, then the features and the response.  Rows are padded to a multiple of 64 records with weight zero, so
that vector loops have no remainder.  Loops run over records; ``scalar.clip`` proves what the arithmetic guarantees.
"""

from typing import Any

import numpy as np

from pgbb_fast.kernels.cpu.compile import inner, single
from pgbb_fast.kernels.cpu.formulas import clip_factor, within
from pgbb_fast.kernels.cpu.intrinsics import (
    at,
    bits_of,
    fma,
    larger_bits,
    prefetch,
    put,
)
from pgbb_fast.kernels.scalar.clip import INFINITY, MOST_SQUARE, ONE, ZERO

TILE = 448          # records, a multiple of PAD; 511 terms of at most 2^22 can be added in 32 bits
PAD = 64            # records are padded to a multiple of this
STRIDE = TILE + 16  # from row to row: not a power of two, so that rows don't share a cache set
SQUARE, WEIGHT, ETA, COEFFICIENT = 0, STRIDE, 2 * STRIDE, 3 * STRIDE
X = 5 * STRIDE      # first feature
SPARE = 17          # rows past the features: the response, and what transposition writes beyond

I32, U32, F32, I64 = np.int32, np.uint32, np.float32, np.int64


def tile_rows(p: int) -> int:
    """Rows of a tile for p features."""
    return 5 + (p + 15) // 16 * 16 + SPARE


def _load(x: Any, hits: Any, m: Any, full: Any, tile: Any) -> None:
    """All columns of the rows ``hits`` (ascending), as columns of the tile."""
    width = x.shape[1]
    last = (x.size - LANES - (width - 1) // LANES * LANES) // width     # rows to here can be read a vector at a time
    fast = full
    while fast > 0 and at(hits, fast - 1) > last:
        fast -= 16
    for column in range(0, width, LANES):
        for i in range(0, fast, 16):
            transpose(x, width, column, hits, i, tile, X + column * STRIDE + i, STRIDE)
    for i in range(fast, full):
        start = at(hits, i) * width
        for j in range(width):
            put(tile, X + j * STRIDE + i, number(x, start + j))


def _load_columns(x: Any, hits: Any, m: Any, full: Any, tile: Any) -> None:
    """As :func:`_load` from an array that is stored by columns, (columns, n); ``m`` hits, then copies of the last."""
    n, first = x.shape[1], at(hits, 0)
    together = at(hits, m - 1) - first == m - 1
    for j in range(x.shape[0]):
        start, row = j * n, X + j * STRIDE
        if together:
            for i in range(m):
                put(tile, row + i, number(x, start + first + i))
        else:
            for i in range(m):
                put(tile, row + i, number(x, start + at(hits, i)))
        for i in range(m, full):
            put(tile, row + i, at(tile, row + m - 1))


def lanes(width: int) -> int:
    """How many numbers to read at once from rows of ``width``."""
    return 4 if width <= 4 else 8 if width <= 8 else 16


def _load_response(y: Any, p: Any, hits: Any, full: Any, tile: Any) -> None:
    for i in range(full):
        put(tile, X + p * STRIDE + i, number(y, at(hits, i)))


def _decode(table: Any, columns: Any, full: Any, tile: Any) -> None:
    """The public affine map of ``Records.map``; nan stays nan."""
    for j in range(columns):
        slope, offset = at(table, 2 * j), at(table, 2 * j + 1)
        for i in range(full):
            v = fma(at(tile, X + j * STRIDE + i), slope, offset)
            put(tile, X + j * STRIDE + i, within(v, ONE))


def _squares(intercept: Any, p: Any, full: Any, tile: Any) -> None:
    """Squared norms of (1, x) or x; records beyond 2^50 or not finite become x = 0 with an infinite square."""
    bad = I32(0)
    start = ONE if intercept else ZERO
    if P > 0:
        for i in range(full):
            q = start
            for j in range(P):
                v = at(tile, X + j * STRIDE + i)
                q = fma(v, v, q)
            bad = I32(bad + (I32(0) if q <= MOST_SQUARE else I32(1)))
            put(tile, SQUARE + i, q)
    else:
        for i in range(full):
            put(tile, SQUARE + i, start)
        for j in range(p):
            for i in range(full):
                v = at(tile, X + j * STRIDE + i)
                put(tile, SQUARE + i, fma(v, v, at(tile, SQUARE + i)))
        for i in range(full):
            bad = I32(bad + (I32(0) if at(tile, SQUARE + i) <= MOST_SQUARE else I32(1)))
    if bad > 0:
        for i in range(full):
            if not at(tile, SQUARE + i) <= MOST_SQUARE:
                put(tile, SQUARE + i, INFINITY)
                for j in range(p):
                    put(tile, X + j * STRIDE + i, ZERO)


def _fetch(x: Any, ahead: Any, k: Any, K: Any) -> None:
    """Ask for the k-th of K parts of the TILE rows from ``ahead`` on (< 0: none): a little with each draw, because
    few lines can be on the way at once."""
    if ahead >= 0:
        line, size = 64 // x.itemsize, min(TILE, x.shape[0] - ahead) * x.shape[1]
        for i in range(ahead * x.shape[1] + size * k // K, ahead * x.shape[1] + size * (k + 1) // K, line):
            prefetch(x, i)


def _weigh(public: Any, place: Any, blocks: Any, uniform: Any, m: Any, full: Any, tile: Any) -> None:
    """The row of weights of one draw, whose table starts at public[place]; zero for the padding."""
    if uniform >= 0:
        w = at(public, place + uniform)
        for i in range(full):
            put(tile, WEIGHT + i, w)
    else:
        for i in range(full):
            put(tile, WEIGHT + i, at(public, place + I64(at(blocks, i))))
    for i in range(m, full):
        put(tile, WEIGHT + i, ZERO)


def _sum_2x4(c: Any, x: Any, full: Any, tile: Any) -> Any:
    """Sums over records of trunc(c_k x_j), two draws from row ``c`` on and four features from row ``x`` on."""
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = I32(0)
    for i in range(full):
        a, b = at(tile, c + i), at(tile, c + STRIDE + i)
        x0, x1 = at(tile, x + i), at(tile, x + STRIDE + i)
        x2, x3 = at(tile, x + 2 * STRIDE + i), at(tile, x + 3 * STRIDE + i)
        a0, a1 = I32(a0 + I32(a * x0)), I32(a1 + I32(a * x1))
        a2, a3 = I32(a2 + I32(a * x2)), I32(a3 + I32(a * x3))
        b0, b1 = I32(b0 + I32(b * x0)), I32(b1 + I32(b * x1))
        b2, b3 = I32(b2 + I32(b * x2)), I32(b3 + I32(b * x3))
    return a0, a1, a2, a3, b0, b1, b2, b3


def _sum_2x1(c: Any, x: Any, full: Any, tile: Any) -> Any:
    a0 = b0 = I32(0)
    for i in range(full):
        v = at(tile, x + i)
        a0, b0 = I32(a0 + I32(at(tile, c + i) * v)), I32(b0 + I32(at(tile, c + STRIDE + i) * v))
    return a0, b0


def _sum_1x4(c: Any, x: Any, full: Any, tile: Any) -> Any:
    a0 = a1 = a2 = a3 = I32(0)
    for i in range(full):
        a = at(tile, c + i)
        a0, a1 = I32(a0 + I32(a * at(tile, x + i))), I32(a1 + I32(a * at(tile, x + STRIDE + i)))
        a2 = I32(a2 + I32(a * at(tile, x + 2 * STRIDE + i)))
        a3 = I32(a3 + I32(a * at(tile, x + 3 * STRIDE + i)))
    return a0, a1, a2, a3


def _sum_1x1(c: Any, x: Any, full: Any, tile: Any) -> Any:
    a0 = I32(0)
    for i in range(full):
        a0 = I32(a0 + I32(at(tile, c + i) * at(tile, x + i)))
    return a0


def _accumulate(pair: Any, p: Any, full: Any, shift: Any, k: Any, place: Any, d: Any, tile: Any, total: Any) -> None:
    """Add the features' terms of draw k, and of k + 1 if ``pair``, to ``total`` from ``place`` and ``place + d`` on."""
    e, g = at(shift, k), at(shift, k + 1 if pair else k)
    j = 0
    if pair:
        while j + 4 <= p:
            s = sum_2x4(COEFFICIENT, X + j * STRIDE, full, tile)
            for i in range(4):
                put(total, place + j + i, at(total, place + j + i) + (I64(s[i]) << e))
                put(total, place + d + j + i, at(total, place + d + j + i) + (I64(s[4 + i]) << g))
            j += 4
        while j < p:
            t = sum_2x1(COEFFICIENT, X + j * STRIDE, full, tile)
            put(total, place + j, at(total, place + j) + (I64(t[0]) << e))
            put(total, place + d + j, at(total, place + d + j) + (I64(t[1]) << g))
            j += 1
    else:
        while j + 4 <= p:
            u = sum_1x4(COEFFICIENT, X + j * STRIDE, full, tile)
            for i in range(4):
                put(total, place + j + i, at(total, place + j + i) + (I64(u[i]) << e))
            j += 4
        while j < p:
            put(total, place + j, at(total, place + j) + (I64(sum_1x1(COEFFICIENT, X + j * STRIDE, full, tile)) << e))
            j += 1


LANES = 16          # numbers of a row read at once, bound when the kernel is specialised
transpose: Any = None
number: Any = None  # one stored number in single precision, bound likewise
P = 0               # number of features, bound when the kernel is specialised; 0: any
slope: Any = None   # bound for each loss

sum_2x4 = inner(_sum_2x4)
sum_2x1 = inner(_sum_2x1)
sum_1x4 = inner(_sum_1x4)
sum_1x1 = inner(_sum_1x1)
decode = inner(single(_decode))
fetch = inner(_fetch)
weigh = inner(single(_weigh))
accumulate = inner(_accumulate)


def _predict(p: Any, public: Any, beta: Any, start: Any, full: Any, tile: Any) -> None:
    """eta = start + x'beta in the row ETA, by fused steps in the order of the features.

    Four vectors of records at a time: one alone would wait for each step's result.
    """
    if P > 0:
        for block in range(0, full, PAD):
            for i in range(block, block + PAD // 4):
                e0 = e1 = e2 = e3 = start
                for j in range(P):
                    b, x = at(public, beta + j), X + j * STRIDE + i
                    e0, e1 = fma(b, at(tile, x), e0), fma(b, at(tile, x + PAD // 4), e1)
                    e2, e3 = fma(b, at(tile, x + PAD // 2), e2), fma(b, at(tile, x + 3 * PAD // 4), e3)
                put(tile, ETA + i, e0)
                put(tile, ETA + PAD // 4 + i, e1)
                put(tile, ETA + PAD // 2 + i, e2)
                put(tile, ETA + 3 * PAD // 4 + i, e3)
    else:
        for i in range(full):
            put(tile, ETA + i, start)
        for j in range(p):
            b = at(public, beta + j)
            for i in range(full):
                put(tile, ETA + i, fma(b, at(tile, X + j * STRIDE + i), at(tile, ETA + i)))


def _coefficients(
    intercept: Any, p: Any, public: Any, place: Any, inverse: Any, limit: Any, row: Any, full: Any, tile: Any
) -> Any:
    """Clipped, weighted slopes of one draw in ``row``; returns the terms' sums for the intercept and for the scale.

    The first pass is that of a tile in which no gradient is longer than the bound; otherwise a second one clips.
    """
    first = 1 if intercept else 0
    start = at(public, place) if intercept else ZERO
    d = place + p + first + (1 if has_scale else 0)
    a, b, c = at(public, d), at(public, d + 1), at(public, d + 2)
    y, beta = X + p * STRIDE, place + first
    predict(p, public, beta, start, full, tile)
    longest = U32(0)
    sum_1 = sum_s = I32(0)
    for i in range(full):
        eta = at(tile, ETA + i)
        by_eta, by_scale = slope(at(tile, y + i), eta, a, b, c)
        by_eta, w = by_eta * inverse, at(tile, WEIGHT + i)
        square = by_eta * by_eta * at(tile, SQUARE + i)
        if has_scale:
            by_scale = by_scale * inverse
            square = fma(by_eta * by_eta, at(tile, SQUARE + i), by_scale * by_scale)
            sum_s = I32(sum_s + I32(by_scale * w))
        longest = larger_bits(longest, square)
        put(tile, row + i, by_eta * w)
        sum_1 = I32(sum_1 + I32(by_eta * w))
    if longest > bits_of(limit * limit):    # or nan: what the first pass left is not used
        sum_1, sum_s = I32(0), I32(0)
        for i in range(full):
            eta = at(tile, ETA + i)
            by_eta, by_scale = slope(at(tile, y + i), eta, a, b, c)
            by_eta, by_scale = by_eta * inverse, by_scale * inverse
            square = fma(by_eta * by_eta, at(tile, SQUARE + i), by_scale * by_scale)
            factor, w = clip_factor(square, limit), at(tile, WEIGHT + i)
            finite = square < INFINITY
            by_eta, by_scale = by_eta * factor * w if finite else ZERO, by_scale * factor * w if finite else ZERO
            put(tile, row + i, by_eta)
            sum_1, sum_s = I32(sum_1 + I32(by_eta)), I32(sum_s + I32(by_scale))
    return sum_1, sum_s


has_scale = False
predict: Any = None
squares: Any = None
coefficients: Any = None


def regression_tile(
    x: Any, ahead: Any, intercept: Any, p: Any, K: Any, public: Any, width: Any, inverse: Any, limit: Any,
    shift: Any, blocks: Any, uniform: Any, m: Any, full: Any, tile: Any, total: Any,
) -> None:  # fmt: skip
    """Add the terms of the tile's records to ``total`` (K d,), two draws at a time."""
    first = 1 if intercept else 0
    d = p + first + (1 if has_scale else 0)
    squares(intercept, p, full, tile)
    for k in range(0, K, 2):
        pair = k + 1 < K
        for h in range(2 if pair else 1):
            place = (k + h) * width
            fetch(x, ahead, k + h, K)
            weigh(public, place + d + 3, blocks, uniform, m, full, tile)
            one, scale = coefficients(intercept, p, public, place, inverse, limit, COEFFICIENT + h * STRIDE, full, tile)
            e = at(shift, k + h)
            if intercept:
                put(total, (k + h) * d, at(total, (k + h) * d) + (I64(one) << e))
            if has_scale:
                last = (k + h) * d + d - 1
                put(total, last, at(total, last) + (I64(scale) << e))
        accumulate(pair, P if P > 0 else p, full, shift, k, k * d + first, d, tile, total)


def location_tile(
    x: Any, ahead: Any, intercept: Any, p: Any, K: Any, public: Any, width: Any, inverse: Any, limit: Any,
    shift: Any, blocks: Any, uniform: Any, m: Any, full: Any, tile: Any, total: Any,
) -> None:  # fmt: skip
    """As :func:`regression_tile` for the losses of a location; ``intercept`` has no meaning here."""
    squares(intercept, p, full, tile)
    for k in range(K):
        place = k * width
        fetch(x, ahead, k, K)
        weigh(public, place + p + 3, blocks, uniform, m, full, tile)
        for i in range(full):
            put(tile, COEFFICIENT + i, ZERO)
        for j in range(p):
            theta = at(public, place + j)
            for i in range(full):
                g = slope(theta, at(tile, X + j * STRIDE + i)) * inverse
                put(tile, COEFFICIENT + i, fma(g, g, at(tile, COEFFICIENT + i)))
        for i in range(full):
            square = at(tile, COEFFICIENT + i)
            c = clip_factor(square, limit) * at(tile, WEIGHT + i)
            finite = square < INFINITY and at(tile, SQUARE + i) < INFINITY
            put(tile, COEFFICIENT + i, c if finite else ZERO)
        e = at(shift, k)
        for j in range(p):
            theta = at(public, place + j)
            total_j = I32(0)
            for i in range(full):
                c = at(tile, COEFFICIENT + i)
                g = slope(theta, at(tile, X + j * STRIDE + i)) * inverse * c
                total_j = I32(total_j + I32(g if c > ZERO else ZERO))
            put(total, k * p + j, at(total, k * p + j) + (I64(total_j) << e))
