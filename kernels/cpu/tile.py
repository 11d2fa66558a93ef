"""One tile: up to 448 records as columns that stay in the first-level cache, and what K draws make of them.

The tile is one array of rows of STRIDE single-precision numbers: squared norms, weights, predictions, two rows of
coefficients, then the features and the response.  Rows are padded to a multiple of 64 records with weight zero, so
that vector loops have no remainder.  Loops run over records; ``scalar.clip`` proves what the arithmetic guarantees.
"""

from typing import Any

import numpy as np

from pgbb_fast.kernels.cpu.compile import inner
from pgbb_fast.kernels.cpu.formulas import clip_factor, within
from pgbb_fast.kernels.cpu.intrinsics import (
    VECTOR,
    add32,
    at,
    bits_of,
    fma,
    larger_bits,
    look_up,
    number_of,
    prefetch,
    put,
    rarely,
    terms,
)
from pgbb_fast.kernels.scalar.clip import INFINITY, MAGIC, MAGIC_BITS, MAX_SQUARE, ONE, ZERO
from pgbb_fast.kernels.specialise import single

TILE = 448          # records, a multiple of PAD; 511 terms of at most 2^22 can be added in 32 bits (also in a lane)
PAD = 64            # records are padded to a multiple of this
LOOKED_UP = 32      # weights of a draw that can be looked up in registers
FEW_DRAWS = 1       # up to as many draws, a tile is small:
FEW_BYTES = 16_000  # of a tile of sampled records, their rows and numbers, which stay in the first-level cache
STREAMED = 5_000    # bytes of consecutive rows: what memory delivers while a tile is worked on
MAX_TILES = 511 * VECTOR // TILE   # whose terms can be added in a lane
STRIDE = TILE + 16  # from row to row: not a power of two, so that rows don't share a cache set
SQUARE, WEIGHT, ETA, COEFFICIENT = 0, STRIDE, 2 * STRIDE, 3 * STRIDE
X = 5 * STRIDE      # first feature

_TERMS = terms(STRIDE)
terms_2x4, terms_2x2, terms_2x1 = _TERMS[2, 4], _TERMS[2, 2], _TERMS[2, 1]
terms_1x4, terms_1x2, terms_1x1 = _TERMS[1, 4], _TERMS[1, 2], _TERMS[1, 1]

I32, U32, F32, I64 = np.int32, np.uint32, np.float32, np.int64


def _tile_size(K: Any, p: Any, streamed: Any) -> Any:
    """Records of a tile, a multiple of PAD, from K draws, p features and the bytes of a row if rows follow each other,
    else 0.  With more than a few draws loops over records had better be long."""
    size = TILE
    if K <= FEW_DRAWS:
        size = STREAMED // streamed if streamed > 0 else FEW_BYTES // (8 * (p + 1) + 36)
    return TILE if size > TILE else 2 * PAD if size < 2 * PAD else size // PAD * PAD


def tile_rows(p: int) -> int:
    """Rows of a tile for p features."""
    return 5 + p + 1


def _row(hits: Any, first: Any, m: Any, i: Any) -> Any:
    """Number of the tile's record i: hits[i], or ``first`` + i if that isn't negative; beyond ``m`` the last one."""
    if first < 0:
        return at(hits, i)
    return first + (i if i < m else m - 1)


def _load(x: Any, hits: Any, first: Any, m: Any, full: Any, tile: Any) -> None:
    """All columns of the tile's rows, as columns of the tile."""
    width = WIDTH if WIDTH > 0 else x.shape[1]
    eights = width // 8 * 8
    if first >= 0 and WIDTH > 0:
        whole = m // 16 * 16
        for i in range(0, whole, 16):
            neighbours(x, first + i, tile, X + i, STRIDE)
        for i in range(whole, full):
            start = row(hits, first, m, i) * width
            for j in range(width):
                rarely()
                put(tile, X + j * STRIDE + i, number(x, start + j))
        return
    if first >= 0:
        for i in range(full):
            rarely()
            put(hits, i, row(hits, first, m, i))
    for i in range(0, full, 16):
        for column in range(0, eights, 8):
            by_eight(x, width, column, hits, i, tile, X + column * STRIDE + i, STRIDE)
        if eights < width and WIDTH > 0:
            by_rest(x, width, eights, hits, i, tile, X + eights * STRIDE + i, STRIDE)
        elif eights < width:    # of more than eight: the last eight, some of them again
            by_eight(x, width, width - 8, hits, i, tile, X + (width - 8) * STRIDE + i, STRIDE)


def _load_columns(x: Any, hits: Any, first: Any, m: Any, full: Any, tile: Any) -> None:
    """As :func:`_load` from an array that is stored by columns, (columns, n)."""
    n = x.shape[1]
    for j in range(x.shape[0]):
        start, place = j * n, X + j * STRIDE
        if first >= 0:
            for i in range(m):
                put(tile, place + i, number(x, start + first + i))
        else:
            for i in range(m):
                put(tile, place + i, number(x, start + at(hits, i)))
        for i in range(m, full):
            rarely()
            put(tile, place + i, at(tile, place + m - 1))


def _load_response(y: Any, p: Any, hits: Any, first: Any, m: Any, full: Any, tile: Any) -> None:
    place = X + p * STRIDE
    if first >= 0:
        for i in range(m):
            put(tile, place + i, number(y, first + i))
        for i in range(m, full):
            rarely()
            put(tile, place + i, at(tile, place + m - 1))
    else:
        for i in range(full):
            put(tile, place + i, number(y, at(hits, i)))


def _decode(table: Any, columns: Any, full: Any, tile: Any) -> None:
    """The public affine map of ``Records.map``; nan stays nan."""
    for j in range(columns):
        slope, offset = at(table, 2 * j), at(table, 2 * j + 1)
        for i in range(full):
            v = fma(at(tile, X + j * STRIDE + i), slope, offset)
            put(tile, X + j * STRIDE + i, within(v, ONE))


def _squares(intercept: Any, p: Any, full: Any, tile: Any) -> Any:
    """Squared norms of (1, x) or x, and the largest of them; records beyond 2^50 or not finite become x = 0 with an
    infinite square."""
    largest = U32(0)    # bits: a nan is larger than infinity
    start = ONE if intercept else ZERO
    if P > 0:
        for i in range(full):
            q = start
            for j in range(P):
                v = at(tile, X + j * STRIDE + i)
                q = fma(v, v, q)
            largest = larger_bits(largest, q)
            put(tile, SQUARE + i, q)
    else:
        for i in range(full):
            put(tile, SQUARE + i, start)
        for j in range(p):
            for i in range(full):
                v = at(tile, X + j * STRIDE + i)
                put(tile, SQUARE + i, fma(v, v, at(tile, SQUARE + i)))
        for i in range(full):
            largest = larger_bits(largest, at(tile, SQUARE + i))
    if largest <= bits_of(MAX_SQUARE):
        return number_of(largest)
    for i in range(full):
        rarely()
        if not at(tile, SQUARE + i) <= MAX_SQUARE:
            put(tile, SQUARE + i, INFINITY)
            for j in range(p):
                rarely()
                put(tile, X + j * STRIDE + i, ZERO)
    return INFINITY


def _fetch(x: Any, ahead: Any, m: Any, part: Any, parts: Any) -> None:
    """Ask for the cache lines of one of several parts of the m rows from ``ahead`` on (< 0: none): a little at a time,
    because few lines can be on the way at once."""
    if ahead < 0:
        return
    line = 64 // x.itemsize
    if columnwise:
        for j in range(x.shape[0] * part // parts, x.shape[0] * (part + 1) // parts):
            for i in range(j * x.shape[1] + ahead, j * x.shape[1] + ahead + m, line):
                prefetch(x, i)
    else:
        start, size = ahead * x.shape[1], m * x.shape[1]
        for i in range(start + size * part // parts, start + size * (part + 1) // parts, line):
            rarely()
            prefetch(x, i)


def _weigh(public: Any, place: Any, size: Any, blocks: Any, uniform: Any, m: Any, full: Any, tile: Any) -> None:
    """The row of weights of one draw, whose table of ``size`` starts at public[place]; zero for the padding."""
    if uniform >= 0:
        w = at(public, place + uniform)
        for i in range(full):
            put(tile, WEIGHT + i, w)
    elif size <= LOOKED_UP:
        for i in range(0, full, VECTOR):
            look_up(public, place, blocks, i, tile, WEIGHT + i)
    else:
        for i in range(full):
            put(tile, WEIGHT + i, at(public, place + I64(at(blocks, i))))
    for i in range(m, full):
        rarely()
        put(tile, WEIGHT + i, ZERO)


def _accumulate(pair: Any, p: Any, full: Any, place: Any, d: Any, tile: Any, sums: Any) -> None:
    """Add the features' terms of one draw, and of the next if ``pair``, to the lanes of ``sums`` from the coordinate
    ``place``, and ``place + d``, on."""
    j = 0
    while j + 4 <= p:
        if pair:
            terms_2x4(tile, COEFFICIENT, X + j * STRIDE, full, sums, (place + j) * VECTOR, d * VECTOR)
        else:
            terms_1x4(tile, COEFFICIENT, X + j * STRIDE, full, sums, (place + j) * VECTOR, d * VECTOR)
        j += 4
    if j + 2 <= p:
        if pair:
            terms_2x2(tile, COEFFICIENT, X + j * STRIDE, full, sums, (place + j) * VECTOR, d * VECTOR)
        else:
            terms_1x2(tile, COEFFICIENT, X + j * STRIDE, full, sums, (place + j) * VECTOR, d * VECTOR)
        j += 2
    if j < p:
        if pair:
            terms_2x1(tile, COEFFICIENT, X + j * STRIDE, full, sums, (place + j) * VECTOR, d * VECTOR)
        else:
            terms_1x1(tile, COEFFICIENT, X + j * STRIDE, full, sums, (place + j) * VECTOR, d * VECTOR)


def _flush(K: Any, d: Any, shift: Any, sums: Any, total: Any) -> None:
    """Move the lanes' sums to ``total``, in units of C 2^-32 / n_S."""
    for k in range(K):
        for i in range(k * d, (k + 1) * d):
            whole = I64(0)
            for lane in range(VECTOR):
                whole += I64(at(sums, i * VECTOR + lane))
            put(total, i, at(total, i) + (whole << at(shift, k)))
    for i in range(K * d * VECTOR):
        put(sums, i, I32(0))


WIDTH = 0           # columns of x, bound when the kernel is specialised; 0: any number
by_eight: Any = None    # pieces of rows to columns, bound likewise
by_rest: Any = None     # what is left of a row after those
neighbours: Any = None  # 16 whole rows that follow each other to columns
columnwise = False  # whether x is stored by columns, (columns, n)
number: Any = None  # one stored number in single precision, bound likewise
P = 0               # number of features, bound when the kernel is specialised; 0: any
slope: Any = None   # bound for each loss

tile_size = inner(_tile_size)
row = inner(_row)
decode = inner(single(_decode))
weigh = inner(single(_weigh))
accumulate = inner(_accumulate)
flush = inner(_flush)


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
    intercept: Any, p: Any, public: Any, place: Any, inverse: Any, limit: Any, widest: Any, row: Any, full: Any,
    tile: Any,
) -> Any:  # fmt: skip
    """Clipped, weighted slopes of one draw in ``row``; returns the terms' sums for the intercept and for the scale.

    The first pass is that of a tile in which no gradient can be longer than the bound, judged by the largest slopes
    and the largest square ``widest`` of the features: computed products are monotone.  Otherwise a second one clips.
    """
    first = 1 if intercept else 0
    start = at(public, place) if intercept else ZERO
    d = place + p + first + (1 if has_scale else 0)
    a, b, c = at(public, d), at(public, d + 1), at(public, d + 2)
    y, beta = X + p * STRIDE, place + first
    predict(p, public, beta, start, full, tile)
    most_eta = most_scale = U32(0)
    sum_1 = sum_s = U32(0)
    for i in range(full):
        eta = at(tile, ETA + i)
        by_eta, by_scale = slope(at(tile, y + i), eta, a, b, c)
        by_eta, w = by_eta * inverse, at(tile, WEIGHT + i)
        most_eta = larger_bits(most_eta, abs(by_eta))
        if has_scale:
            by_scale = by_scale * inverse
            most_scale = larger_bits(most_scale, abs(by_scale))
            sum_s = add32(sum_s, bits_of(fma(by_scale, w, MAGIC)))
        put(tile, row + i, by_eta * w)
        sum_1 = add32(sum_1, bits_of(fma(by_eta, w, MAGIC)))
    a_eta, a_scale = number_of(most_eta), number_of(most_scale)
    if not fma(a_eta * a_eta, widest, a_scale * a_scale) <= limit * limit:    # or nan: the first pass is not used
        sum_1 = sum_s = U32(0)
        for i in range(full):
            eta = at(tile, ETA + i)
            by_eta, by_scale = slope(at(tile, y + i), eta, a, b, c)
            by_eta, by_scale = by_eta * inverse, by_scale * inverse
            square = fma(by_eta * by_eta, at(tile, SQUARE + i), by_scale * by_scale)
            factor, w = clip_factor(square, limit), at(tile, WEIGHT + i)
            finite = square < INFINITY
            by_eta, by_scale = by_eta * factor if finite else ZERO, by_scale * factor if finite else ZERO
            put(tile, row + i, by_eta * w)
            sum_1 = add32(sum_1, bits_of(fma(by_eta, w, MAGIC)))
            sum_s = add32(sum_s, bits_of(fma(by_scale, w, MAGIC)))
    too_much = U32(U32(full) * U32(MAGIC_BITS))
    return I32(sum_1 - too_much), I32(sum_s - too_much)


has_scale = False
predict: Any = None
fetch: Any = None
squares: Any = None
coefficients: Any = None


def regression_tile(
    x: Any, ahead: Any, next_m: Any, intercept: Any, p: Any, K: Any, public: Any, width: Any, inverse: Any, limit: Any,
    shift: Any, blocks: Any, uniform: Any, m: Any, full: Any, tile: Any, sums: Any, total: Any,
) -> None:  # fmt: skip
    """Add the terms of the tile's records to ``total`` (K d,) and to the lanes of ``sums``, two draws at a time."""
    first = 1 if intercept else 0
    d = p + first + (1 if has_scale else 0)
    parts = 2 * K + 1
    fetch(x, ahead, next_m, 0, parts)
    widest = squares(intercept, p, full, tile)
    for k in range(0, K, 2):
        pair = k + 1 < K
        for h in range(2 if pair else 1):
            place, row = (k + h) * width, COEFFICIENT + h * STRIDE
            fetch(x, ahead, next_m, 2 * (k + h) + 1, parts)
            weigh(public, place + d + 3, width - d - 3, blocks, uniform, m, full, tile)
            one, scale = coefficients(intercept, p, public, place, inverse, limit, widest, row, full, tile)
            fetch(x, ahead, next_m, 2 * (k + h) + 2, parts)
            e = at(shift, k + h)
            if intercept:
                put(total, (k + h) * d, at(total, (k + h) * d) + (I64(one) << e))
            if has_scale:
                last = (k + h) * d + d - 1
                put(total, last, at(total, last) + (I64(scale) << e))
        accumulate(pair, P if P > 0 else p, full, k * d + first, d, tile, sums)


def location_tile(
    x: Any, ahead: Any, next_m: Any, intercept: Any, p: Any, K: Any, public: Any, width: Any, inverse: Any, limit: Any,
    shift: Any, blocks: Any, uniform: Any, m: Any, full: Any, tile: Any, sums: Any, total: Any,
) -> None:  # fmt: skip
    """As :func:`regression_tile` for the losses of a location; ``intercept`` has no meaning here."""
    squares(intercept, p, full, tile)
    for k in range(K):
        place = k * width
        fetch(x, ahead, next_m, k, K)
        weigh(public, place + p + 3, width - p - 3, blocks, uniform, m, full, tile)
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
            sum_j = U32(0)
            for i in range(full):
                c = at(tile, COEFFICIENT + i)
                g = slope(theta, at(tile, X + j * STRIDE + i)) * inverse
                sum_j = add32(sum_j, bits_of(fma(g if c > ZERO else ZERO, c, MAGIC)))
            whole = I32(sum_j - U32(U32(full) * U32(MAGIC_BITS)))
            put(total, k * p + j, at(total, k * p + j) + (I64(whole) << e))
