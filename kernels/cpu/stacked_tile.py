"""One tile of the stacked step: mapped features, slopes of all rules, their mixture, one clip, exact sums.

The tile's rows are those of ``tile`` (features from X on, then the response), then the mapped features, the rules'
slopes, and the slopes in a scale.  ``scalar.stacked`` proves what the arithmetic guarantees.
"""

from typing import Any

import numpy as np

from pgbb_fast.kernels.cpu.compile import inner
from pgbb_fast.kernels.cpu.formulas import stack_factors
from pgbb_fast.kernels.cpu.intrinsics import VECTOR, add32, at, bits_of, fma, larger_bits, put, rarely
from pgbb_fast.kernels.cpu.tile import (
    COEFFICIENT,
    ETA,
    SQUARE,
    STRIDE,
    TILE,
    WEIGHT,
    X,
    terms_1x1,
    terms_1x2,
    terms_1x4,
    terms_2x1,
    terms_2x2,
    terms_2x4,
)
from pgbb_fast.kernels.scalar.clip import MAGIC, MAGIC_BITS, MAX_SQUARE, ZERO
from pgbb_fast.kernels.specialise import single

PAD = 64
FITS = 60_000       # bytes of a tile at most: it then stays in the second-level cache, and most of it in the first
BOUND, LIMIT, SIZE = 0, 1, 2    # places of B, M and T among the public numbers (``scalar.stacked``)
TABLE = 3           # where the map starts, then V / C and V_s / C
SCALES = COEFFICIENT            # row of |b|^2

I32, U32, F32, I64 = np.int32, np.uint32, np.float32, np.int64


def stacked_rows(p: int, m: int, L: int, scale: bool) -> int:
    """Rows of a tile."""
    return 6 + p + m + L + (L if scale else 0)


def stacked_tile_size(rows: int) -> int:
    """Records of a tile, a multiple of PAD."""
    return max(PAD, min(TILE, FITS // (4 * rows) // PAD * PAD))


P = 0               # number of features, bound when the kernel is specialised; 0: any
has_scale = False
slope: Any = None
predict: Any = None
mapped: Any = None
columnwise = False


def _map_any(intercept: Any, p: Any, m: Any, full: Any, public: Any, out: Any, tile: Any) -> None:
    """As ``mapping.mapped_rows`` for any number of features."""
    for i in range(full):
        put(tile, SQUARE + i, ZERO)
    first = 1 if intercept else 0
    for j in range(m):
        row, place = out + j * STRIDE, TABLE + j * m
        start = at(public, place) if intercept else ZERO
        for i in range(full):
            put(tile, row + i, start)
        for k in range(first, j + 1):
            w, x = at(public, place + k), X + (k - first) * STRIDE
            for i in range(full):
                put(tile, row + i, fma(w, at(tile, x + i), at(tile, row + i)))
        for i in range(full):
            v = at(tile, row + i)
            put(tile, SQUARE + i, fma(v, v, at(tile, SQUARE + i)))


def _weigh_features(full: Any, public: Any, tile: Any) -> Any:
    """Whether some |x~| is above B, by the squares in the row SQUARE."""
    bound = at(public, BOUND)
    largest = U32(0)
    for i in range(full):
        largest = larger_bits(largest, at(tile, SQUARE + i))
    return not largest <= bits_of(bound * bound)    # or nan


def _mix(L: Any, full: Any, public: Any, place: Any, first: Any, tile: Any) -> None:
    """Rows from ``first`` on become their mixture by the lower triangular matrix at public[place], by fused steps in
    the order of the rows: from the last row up, so that those above are still what they were."""
    for back in range(L):
        j = L - 1 - back
        row = first + j * STRIDE
        diagonal = at(public, place + j * L + j)
        if j == 0:
            for i in range(full):
                put(tile, row + i, diagonal * at(tile, row + i))
        else:
            w = at(public, place + j * L)
            for i in range(full):
                put(tile, ETA + i, w * at(tile, first + i))
            for k in range(1, j):
                w, other = at(public, place + j * L + k), first + k * STRIDE
                for i in range(full):
                    put(tile, ETA + i, fma(w, at(tile, other + i), at(tile, ETA + i)))
            for i in range(full):
                put(tile, row + i, fma(diagonal, at(tile, row + i), at(tile, ETA + i)))


def _square(L: Any, full: Any, first: Any, out: Any, tile: Any) -> Any:
    """Sums of the squares of L rows to the row ``out``, and the bits of the largest."""
    for i in range(full):
        put(tile, out + i, ZERO)
    for j in range(L):
        row = first + j * STRIDE
        for i in range(full):
            v = at(tile, row + i)
            put(tile, out + i, fma(v, v, at(tile, out + i)))
    largest = U32(0)
    for i in range(full):
        largest = larger_bits(largest, at(tile, out + i))
    return largest


def _shorten(L: Any, m: Any, count: Any, full: Any, public: Any, out: Any, first: Any, weighted: Any, tile: Any
) -> None:  # fmt: skip
    """The rows of a become coefficients of x~, times f, the clip's factor and W, and the row ETA is what b's terms are
    multiplied by; zero for the padding.  A record that isn't finite, or beyond 2^50 in a length, becomes zero."""
    weight, limit, bound = at(public, SIZE), at(public, LIMIT), at(public, BOUND)
    square, most = bound * bound, bits_of(MAX_SQUARE)
    largest = square_of(L, full, first, ETA, tile)
    largest_b = U32(0)
    if has_scale:
        largest_b = square_of(L, full, first + L * STRIDE, SCALES, tile)
    else:
        for i in range(full):
            put(tile, SCALES + i, ZERO)
    few = largest <= most and largest_b <= most
    longest = U32(0)
    for i in range(full):
        q = at(tile, SQUARE + i)
        few = few and q <= MAX_SQUARE
        s = fma(at(tile, ETA + i), q if q < square else square, at(tile, SCALES + i))
        longest = larger_bits(longest, s)
    if few and not weighted and longest <= bits_of(limit * limit):
        for j in range(L):
            row = first + j * STRIDE
            for i in range(full):
                put(tile, row + i, at(tile, row + i) * weight)
        for i in range(full):
            put(tile, ETA + i, weight)
    else:
        for i in range(full):
            a, q, s = at(tile, ETA + i), at(tile, SQUARE + i), at(tile, SCALES + i)
            by_x, by_scale = stack_factors(a, q, s, bound, limit, weight)
            put(tile, WEIGHT + i, by_x)
            put(tile, ETA + i, by_scale)
        if not few:
            for i in range(full):
                rarely()
                if at(tile, ETA + i) == ZERO:       # counts as zero
                    for j in range(m):
                        rarely()
                        put(tile, out + j * STRIDE + i, ZERO)
                    for j in range(2 * L if has_scale else L):
                        rarely()
                        put(tile, first + j * STRIDE + i, ZERO)
        for j in range(L):
            row = first + j * STRIDE
            for i in range(full):
                put(tile, row + i, at(tile, row + i) * at(tile, WEIGHT + i))
    for i in range(count, full):
        rarely()
        put(tile, ETA + i, ZERO)
        for j in range(L):
            rarely()
            put(tile, first + j * STRIDE + i, ZERO)


def _accumulate_rows(pair: Any, m: Any, full: Any, c: Any, x: Any, place: Any, d: Any, tile: Any, sums: Any) -> None:
    """Add the products of the row ``c``, and of the next if ``pair``, with m rows from ``x`` on to the lanes of
    ``sums`` from the coordinate ``place``, and ``place + d``, on."""
    j = 0
    while j + 4 <= m:
        if pair:
            terms_2x4(tile, c, x + j * STRIDE, full, sums, (place + j) * VECTOR, d * VECTOR)
        else:
            terms_1x4(tile, c, x + j * STRIDE, full, sums, (place + j) * VECTOR, d * VECTOR)
        j += 4
    if j + 2 <= m:
        if pair:
            terms_2x2(tile, c, x + j * STRIDE, full, sums, (place + j) * VECTOR, d * VECTOR)
        else:
            terms_1x2(tile, c, x + j * STRIDE, full, sums, (place + j) * VECTOR, d * VECTOR)
        j += 2
    if j < m:
        if pair:
            terms_2x1(tile, c, x + j * STRIDE, full, sums, (place + j) * VECTOR, d * VECTOR)
        else:
            terms_1x1(tile, c, x + j * STRIDE, full, sums, (place + j) * VECTOR, d * VECTOR)


def _total(full: Any, row: Any, tile: Any) -> Any:
    """Sum of a row's numbers times those in the row ETA, each product rounded to an integer."""
    found = U32(0)
    for i in range(full):
        found = add32(found, bits_of(fma(at(tile, row + i), at(tile, ETA + i), MAGIC)))
    return I32(found - U32(U32(full) * U32(MAGIC_BITS)))


weigh_features: Any = None
mix: Any = None
shorten: Any = None
map_rows: Any = None
fetch: Any = None
accumulate_rows = inner(_accumulate_rows)
row_total = inner(single(_total))
square_of = inner(single(_square))


def stacked_tile(
    x: Any, ahead: Any, next_m: Any, intercept: Any, p: Any, L: Any, public: Any, place: Any, count: Any, full: Any,
    tile: Any, sums: Any, total: Any,
) -> None:  # fmt: skip
    """Add the terms of the tile's ``count`` records, padded to ``full``, to ``total`` (L d,) and the lanes of ``sums``,
    while ``next_m`` rows of x from ``ahead`` on (< 0: none) are asked for.

    ``public``: B, M, T, the map, V / C, V_s / C, then from ``place`` on theta and three constants of each rule.
    """
    m = p + (1 if intercept else 0)
    d = m + (1 if has_scale else 0)
    out = X + (p + 1) * STRIDE
    first = out + m * STRIDE
    parts = L + (L + 1) // 2 + 1
    fetch(x, ahead, next_m, 0, parts)
    map_rows(intercept, p, m, full, public, out, tile)
    weighted = weigh_features(full, public, tile)
    y = X + p * STRIDE
    for k in range(L):
        at_k = place + k * (d + 3)
        a, b, c = at(public, at_k + d), at(public, at_k + d + 1), at(public, at_k + d + 2)
        fetch(x, ahead, next_m, k + 1, parts)
        predict(p, public, at_k + m - p, at(public, at_k) if intercept else ZERO, full, tile)
        row, scale_row = first + k * STRIDE, first + (L + k) * STRIDE
        for i in range(full):
            by_eta, by_scale = slope(at(tile, y + i), at(tile, ETA + i), a, b, c)
            put(tile, row + i, by_eta)
            if has_scale:
                put(tile, scale_row + i, by_scale)
    mix(L, full, public, TABLE + m * m, first, tile)
    if has_scale:
        mix(L, full, public, TABLE + m * m + L * L, first + L * STRIDE, tile)
    shorten(L, m, count, full, public, out, first, weighted, tile)
    for k in range(0, L, 2):
        fetch(x, ahead, next_m, L + 1 + k // 2, parts)
        accumulate_rows(k + 1 < L, m, full, first + k * STRIDE, out, k * d, d, tile, sums)
    if has_scale:
        for k in range(L):
            last = k * d + m
            put(total, last, at(total, last) + (I64(row_total(full, first + (L + k) * STRIDE, tile)) << 10))
