"""One tile of the stacked step: mapped features, slopes of all rules, their mixture, one clip, exact sums.

The tile's rows are those of ``tile`` (features from X on, then the response), then the mapped features, the rules'
slopes, and the slopes in a scale.  ``scalar.stacked`` proves what the arithmetic guarantees.
"""

from typing import Any

import numpy as np

from pgbb_fast.kernels.cpu.compile import inner, single
from pgbb_fast.kernels.cpu.formulas import clip_factor
from pgbb_fast.kernels.cpu.intrinsics import VECTOR, add32, at, bits_of, fma, larger_bits, put, rarely
from pgbb_fast.kernels.cpu.tile import (
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
from pgbb_fast.kernels.scalar.clip import INFINITY, MAGIC, MAGIC_BITS, MOST_SQUARE, ONE, ZERO

PAD = 64
FITS = 60_000       # bytes of a tile at most: it then stays in the second-level cache, and most of it in the first
BOUND, INVERSE, LIMIT, SIZE = 0, 1, 2, 3    # places of B, 1/C, Q and W among the public numbers
TABLE = 4           # where the map starts, then the mixtures

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


def _weigh_features(m: Any, full: Any, public: Any, out: Any, tile: Any) -> Any:
    """f in the row WEIGHT and f^2 |x~|^2 in the row SQUARE, from |x~|^2 there; whether any f is below 1.  A record
    beyond 2^50 or not finite becomes x~ = 0 with an infinite square."""
    bound = at(public, BOUND)
    largest = U32(0)
    for i in range(full):
        largest = larger_bits(largest, at(tile, SQUARE + i))
    if largest <= bits_of(bound * bound):
        return False
    if not largest <= bits_of(MOST_SQUARE):
        for i in range(full):
            rarely()
            if not at(tile, SQUARE + i) <= MOST_SQUARE:
                put(tile, SQUARE + i, INFINITY)
                for j in range(m):
                    rarely()
                    put(tile, out + j * STRIDE + i, ZERO)
    for i in range(full):
        q = at(tile, SQUARE + i)
        f = clip_factor(q, bound) if q < INFINITY else ONE
        put(tile, WEIGHT + i, f)
        put(tile, SQUARE + i, (f * f) * q)
    return True


def _mix(L: Any, full: Any, public: Any, place: Any, first: Any, tile: Any) -> None:
    """Rows from ``first`` on become their mixture by the lower triangular matrix at public[place], in units of C: from
    the last row up, so that those above are still what they were."""
    inverse = at(public, INVERSE)
    for back in range(L):
        j = L - 1 - back
        row = first + j * STRIDE
        w = at(public, place + j * L + j) * inverse
        for i in range(full):
            put(tile, row + i, w * at(tile, row + i))
        for k in range(j):
            w, other = at(public, place + j * L + k) * inverse, first + k * STRIDE
            for i in range(full):
                put(tile, row + i, fma(w, at(tile, other + i), at(tile, row + i)))


def _shorten(L: Any, count: Any, full: Any, public: Any, first: Any, weighted: Any, tile: Any) -> None:
    """Rows of a and b become coefficients: times f (a only), the clip's factor and W; zero for the padding."""
    size, limit = at(public, SIZE), at(public, LIMIT)
    for i in range(full):
        put(tile, ETA + i, ZERO)
    for j in range(L):
        row = first + j * STRIDE
        for i in range(full):
            a = at(tile, row + i)
            put(tile, ETA + i, fma(a, a, at(tile, ETA + i)))
    largest = U32(0)
    for i in range(full):
        s = at(tile, ETA + i)
        s = s if s <= MOST_SQUARE else INFINITY
        put(tile, ETA + i, s * at(tile, SQUARE + i))
    if has_scale:
        for j in range(L):
            row = first + (L + j) * STRIDE
            for i in range(full):
                b = at(tile, row + i)
                put(tile, ETA + i, fma(b, b, at(tile, ETA + i)))
    for i in range(full):
        largest = larger_bits(largest, at(tile, ETA + i))
    if largest <= bits_of(limit * limit) and not weighted:
        for j in range(L + (L if has_scale else 0)):
            row = first + j * STRIDE
            for i in range(full):
                put(tile, row + i, at(tile, row + i) * size)
    else:
        for i in range(full):
            s = at(tile, ETA + i)
            put(tile, ETA + i, clip_factor(s, limit) if s < INFINITY else ZERO)
        for j in range(L):
            row = first + j * STRIDE
            for i in range(full):
                g = at(tile, ETA + i)
                f = at(tile, WEIGHT + i) if weighted else ONE
                put(tile, row + i, ((at(tile, row + i) * f) * g) * size if g > ZERO else ZERO)
        if has_scale:
            for j in range(L, 2 * L):
                row = first + j * STRIDE
                for i in range(full):
                    g = at(tile, ETA + i)
                    put(tile, row + i, (at(tile, row + i) * g) * size if g > ZERO else ZERO)
    for j in range(L + (L if has_scale else 0)):
        for i in range(count, full):
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
    """Sum of a row's numbers, each rounded to an integer."""
    found = U32(0)
    for i in range(full):
        found = add32(found, bits_of(fma(at(tile, row + i), ONE, MAGIC)))
    return I32(found - U32(U32(full) * U32(MAGIC_BITS)))


weigh_features: Any = None
mix: Any = None
shorten: Any = None
map_rows: Any = None
fetch: Any = None
accumulate_rows = inner(_accumulate_rows)
row_total = inner(single(_total))


def stacked_tile(
    x: Any, ahead: Any, next_m: Any, intercept: Any, p: Any, L: Any, public: Any, place: Any, count: Any, full: Any,
    tile: Any, sums: Any, total: Any,
) -> None:  # fmt: skip
    """Add the terms of the tile's ``count`` records, padded to ``full``, to ``total`` (L d,) and the lanes of ``sums``,
    while ``next_m`` rows of x from ``ahead`` on (< 0: none) are asked for.

    ``public``: B, 1/C, Q, W, the map, the mixtures, then from ``place`` on theta and three constants of each rule.
    """
    m = p + (1 if intercept else 0)
    d = m + (1 if has_scale else 0)
    out = X + (p + 1) * STRIDE
    first = out + m * STRIDE
    parts = L + (L + 1) // 2 + 1
    fetch(x, ahead, next_m, 0, parts)
    map_rows(intercept, p, m, full, public, out, tile)
    weighted = weigh_features(m, full, public, out, tile)
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
    shorten(L, count, full, public, first, weighted, tile)
    for k in range(0, L, 2):
        fetch(x, ahead, next_m, L + 1 + k // 2, parts)
        accumulate_rows(k + 1 < L, m, full, first + k * STRIDE, out, k * d, d, tile, sums)
    if has_scale:
        for k in range(L):
            last = k * d + m
            put(total, last, at(total, last) + (I64(row_total(full, first + (L + k) * STRIDE, tile)) << 10))
