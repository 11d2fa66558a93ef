"""What a tile's records add to the sums of stacked scores, for any numbers of rules and features.

The tile is that of ``tile``; behind the response there is a row of slopes for each rule, and one more of slopes in the
scale.  Whitened features take the features' place, and mixed slopes that of the slopes: matrices are triangular, and
rows are made from the last one on.  ``scalar.stacked`` says what the arithmetic guarantees.
"""

from typing import Any

import numpy as np

from pgbb_fast.kernels.cpu.compile import inner, single
from pgbb_fast.kernels.cpu.formulas import clip_factor, stack_factors
from pgbb_fast.kernels.cpu.intrinsics import add32, at, bits_of, fma, number_of, put, rarely
from pgbb_fast.kernels.cpu.rows import combine, squared_lengths
from pgbb_fast.kernels.cpu.tile import COEFFICIENT, ETA, SQUARE, STRIDE, WEIGHT, X, accumulate
from pgbb_fast.kernels.scalar.clip import MAGIC, MAGIC_BITS, MOST_EXPONENT, MOST_SQUARE, ZERO

BOUND, LIMIT, ONES, WHITEN = 0, 1, 2, 3     # places of the public numbers: B, M and T of ``scalar.stacked``, then W
OF_SLOPES, OF_SCALES = WEIGHT, ETA          # rows: squared lengths of mixed slopes; SQUARE: of whitened features

two_rows, one_row = combine(2, STRIDE), combine(1, STRIDE)
lengths = squared_lengths(STRIDE)

constants: Any = None   # bound for each loss, like the rest
slope: Any = None
has_scale = False
fetch: Any = None
slopes_of: Any = None
shorten: Any = None

I32, U32, F32, I64 = np.int32, np.uint32, np.float32, np.int64


def stack_rows(p: int, L: int, scale: bool) -> int:
    """Rows of a tile for p features and L rules."""
    return X // STRIDE + p + 1 + L * (1 + scale)


def public_numbers(L: int, m: int, d: int) -> int:
    """How many numbers :func:`_publish` writes."""
    return WHITEN + m * m + L * L * (1 + d - m) + L * (d + 3)


def _publish(theta: Any, matrices: Any, pairs: Any, public: Any, shift: Any) -> None:
    """Round the public inputs to single precision: ``matrices`` (1, size) has B, M, T, W, V / C and V_s / C; then for
    each rule theta and three constants."""
    d, place = theta.shape[1], matrices.shape[1]
    for i in range(place):
        put(public, i, F32(matrices[0, i]))
    for k in range(theta.shape[0]):
        for j in range(d):
            put(public, place + j, F32(theta[k, j]))
        a, b, c = constants(theta[k, d - 1], pairs[k, 0], pairs[k, 1])
        put(public, place + d, F32(a))
        put(public, place + d + 1, F32(b))
        put(public, place + d + 2, F32(c))
        put(shift, k, I64(MOST_EXPONENT))
        place += d + 3


def _predict(intercept: Any, p: Any, K: Any, public: Any, rules: Any, next_rule: Any, out: Any, full: Any, tile: Any
) -> None:  # fmt: skip
    """eta of rule k in the row from tile[out + k STRIDE] on."""
    first = 1 if intercept else 0
    for k in range(0, K, 2):
        place, row = rules + k * next_rule, out + k * STRIDE
        start = at(public, place) if intercept else ZERO
        if k + 1 < K:
            start_2 = at(public, place + next_rule) if intercept else ZERO
            two_rows(tile, X, p, public, place + first, next_rule, start, start_2, row, full)
        else:
            one_row(tile, X, p, public, place + first, 0, start, ZERO, row, full)


def _mix(x: Any, rows: Any, public: Any, matrix: Any, size: Any, full: Any, tile: Any) -> None:
    """A lower triangular matrix, or its last ``rows`` rows and columns, times the rows from tile[x] on, in their place.
    Where these are fewer than its ``size``, its first column is added: a one belongs to it."""
    less = size - rows
    j = rows
    while j > 0:
        place = matrix + (j - 1 + less) * size
        start = at(public, place) if less > 0 else ZERO
        if j > 1:
            start_1 = at(public, place - size) if less > 0 else ZERO
            two_rows(tile, x, j, public, place - size + less, size, start_1, start, x + (j - 2) * STRIDE, full)
        else:
            one_row(tile, x, j, public, place + less, 0, start, ZERO, x, full)
        j -= 2


def _slopes(k: Any, K: Any, public: Any, place: Any, y: Any, out: Any, full: Any, tile: Any) -> None:
    """The slopes of rule k in place of its predictions, and those in the scale K rows further."""
    a, b, c = at(public, place), at(public, place + 1), at(public, place + 2)
    row = out + k * STRIDE
    for i in range(full):
        by_eta, by_scale = slope(at(tile, y + i), at(tile, row + i), a, b, c)
        put(tile, row + i, by_eta)
        if has_scale:
            put(tile, row + K * STRIDE + i, by_scale)


def _shorten(p: Any, K: Any, public: Any, slopes: Any, most_q: Any, most_a: Any, most_s: Any, m: Any, full: Any,
    tile: Any,
) -> None:  # fmt: skip
    """The factors of outer products in the row COEFFICIENT, and of what belongs to the scale in the next; zero for the
    padding.  Of a tile in which no score can be longer than the bound, judged by the largest squares, features are
    shortened only: computed products are monotone."""
    bound, limit, weight = at(public, BOUND), at(public, LIMIT), at(public, ONES)
    other, most = COEFFICIENT + STRIDE, bits_of(MOST_SQUARE)
    square = bound * bound
    few = most_q <= most and most_a <= most and most_s <= most
    q = number_of(most_q)
    if few and fma(number_of(most_a), q if q < square else square, number_of(most_s)) <= limit * limit:
        if q <= square:
            for i in range(full):
                put(tile, COEFFICIENT + i, weight)
        else:
            for i in range(full):
                put(tile, COEFFICIENT + i, clip_factor(at(tile, SQUARE + i), bound) * weight)
        if has_scale:
            for i in range(full):
                put(tile, other + i, weight)
    else:
        for i in range(full):
            s = at(tile, OF_SCALES + i) if has_scale else ZERO
            factor, factor_s = stack_factors(at(tile, OF_SLOPES + i), at(tile, SQUARE + i), s, bound, limit, weight)
            put(tile, COEFFICIENT + i, factor)
            put(tile, other + i, factor_s)
        if not few:
            for i in range(full):
                rarely()
                if at(tile, other + i) == ZERO:     # counts as zero
                    for j in range(p):
                        rarely()
                        put(tile, X + j * STRIDE + i, ZERO)
                    for k in range(2 * K if has_scale else K):
                        rarely()
                        put(tile, slopes + k * STRIDE + i, ZERO)
    for i in range(m, full):
        rarely()
        put(tile, COEFFICIENT + i, ZERO)
        put(tile, other + i, ZERO)


def _weigh(start: Any, row: Any, full: Any, tile: Any) -> Any:
    """Multiply a row of mixed slopes by the factors; returns the sum of its terms with the whitened one, ``start``."""
    sum_1 = U32(0)
    for i in range(full):
        c = at(tile, row + i) * at(tile, COEFFICIENT + i)
        put(tile, row + i, c)
        sum_1 = add32(sum_1, bits_of(fma(c, start, MAGIC)))
    return I32(sum_1 - U32(U32(full) * U32(MAGIC_BITS)))


def _of_scale(row: Any, full: Any, tile: Any) -> Any:
    """The sum of the terms that belong to a scale."""
    sum_s = U32(0)
    for i in range(full):
        sum_s = add32(sum_s, bits_of(fma(at(tile, row + i), at(tile, COEFFICIENT + STRIDE + i), MAGIC)))
    return I32(sum_s - U32(U32(full) * U32(MAGIC_BITS)))


predict, mix = inner(single(_predict)), inner(single(_mix))
weigh, of_scale = inner(single(_weigh)), inner(single(_of_scale))


def stacked_tile(
    x: Any, ahead: Any, next_m: Any, intercept: Any, p: Any, K: Any, public: Any, width: Any, inverse: Any, limit: Any,
    shift: Any, blocks: Any, uniform: Any, m: Any, full: Any, tile: Any, sums: Any, total: Any,
) -> None:  # fmt: skip
    """As ``tile.regression_tile``, for K rules as one stack; ``width``, ``inverse``, ``limit``, ``blocks`` and
    ``uniform`` are not used."""
    first = 1 if intercept else 0
    size = p + first
    d = size + (1 if has_scale else 0)
    matrix = WHITEN + size * size
    matrix_s = matrix + K * K
    rules = matrix_s + (K * K if has_scale else 0)
    slopes = X + (p + 1) * STRIDE
    scales = slopes + K * STRIDE
    parts = 2 * K + 1
    fetch(x, ahead, next_m, 0, parts)
    predict(intercept, p, K, public, rules, d + 3, slopes, full, tile)
    for k in range(K):
        fetch(x, ahead, next_m, k + 1, parts)
        slopes_of(k, K, public, rules + k * (d + 3) + d, X + p * STRIDE, slopes, full, tile)
    mix(X, p, public, WHITEN, size, full, tile)
    start = at(public, WHITEN) if intercept else ZERO
    most_q = lengths(tile, X, p, start * start, SQUARE, full)
    mix(slopes, K, public, matrix, K, full, tile)
    most_a, most_s = lengths(tile, slopes, K, ZERO, OF_SLOPES, full), U32(0)
    if has_scale:
        mix(scales, K, public, matrix_s, K, full, tile)
        most_s = lengths(tile, scales, K, ZERO, OF_SCALES, full)
    shorten(p, K, public, slopes, most_q, most_a, most_s, m, full, tile)
    for k in range(K):
        fetch(x, ahead, next_m, K + 1 + k, parts)
        one = weigh(start, slopes + k * STRIDE, full, tile)
        if intercept:
            put(total, k * d, at(total, k * d) + (I64(one) << MOST_EXPONENT))
        if has_scale:
            last = k * d + d - 1
            put(total, last, at(total, last) + (I64(of_scale(scales + k * STRIDE, full, tile)) << MOST_EXPONENT))
        if k % 2 == 1 or k + 1 == K:
            pair = k % 2 == 1
            k0 = k - 1 if pair else k
            accumulate(pair, slopes + k0 * STRIDE, p, full, k0 * d + first, d, tile, sums)
