"""Privacy noise: round(sigma Z), Z standard normal, exactly, from integers only.

Why a rounded normal.  What is released is a sum of integers plus this noise, and for an integer s
s + round(sigma Z) = round(s + sigma Z) (but for ties, which have probability zero).  So a release is the Gaussian
mechanism's, rounded: post-processing, and every bound for the Gaussian mechanism, with its subsampling, mixtures and
compositions, holds for the integers as it stands, with no term more.  An exact discrete Gaussian (Canonne, Kamath and
Steinke 2020) is private too, but its privacy-loss distribution, subsampled above all, isn't the normal's that the
accountant computes.  All this needs the law of round(sigma Z) itself: a normal made of floating-point logarithms and
cosines misses most integers near zero, and what can't occur without a record tells of it.

Sampling.  Karney (2016, ACM TOMS 42(1), arXiv:1303.6257, algorithm N), with cells of width 1/16 for his of width 1.
Z = +- (j + x) / 16, j in 0..255, x in (0, 1), has a density proportional to exp(-j^2/512) exp(-x (2j + x) / 512):

1. j with probability proportional to exp(-j^2/512), by a table of the cumulative probabilities (:func:`thresholds`);
2. x uniform; accepted with probability exp(-x p), p = (2j + x) / 512 <= 1, or else start again.  That is the chance
   that a run stops after an even number of successes, if success number i is "a trial of chance p succeeds, and the
   i-th of a sequence of uniforms is below the one before, the first below x": n successes or more have probability
   (x p)^n / n! (von Neumann 1951).  The trial: c uniform in 0..511; success if c < 2j; if c = 2j, success if another
   uniform is below x;
3. a sign; then sigma (j + x) / 16 is rounded.

All uniforms are compared as integers of 256 bits; the upper 64 of them nearly always decide, and the others are not
computed then, which changes no result.

How exact.  Per noise number, the distance in total variation from the law of round(sigma Z) is below 2^-188: |Z| ends
at 16, and P(|Z| >= 16) < 2^-188.9; the rest is a coupling with real uniforms, which differs only where the table, with
its 256 roundings to 2^-256, does; where two uniforms have the same 256 bits (fewer than 10 comparisons are expected);
or where one of at most sigma / 16 + 1 <= 2^52 + 1 edges of the integers lies within the 2^-256 of x that are left out,
at most 1.6 times as likely given that x was accepted: less than 2^-202 together.  A fit of N numbers is then within
eta = N 2^-188 of one with exact noise, and what is proved of that as (epsilon, delta) holds for it with
delta + (1 + e^epsilon) eta.  For N <= 2^40 that is less than 1e-22 more up to epsilon = 50, and 1e-40 more up to 10: a
ten-millionth, or less, of a delta of 1e-15.

Words.  Noise number i of a step has blocks of its own (:func:`digit`), so that it doesn't depend on how many words
the others took.
"""

import math

from pgbb_fast.kernels.scalar.random import PURPOSE_NOISE, WORDS, block_of

DIGITS = 8              # words of a uniform
PER_UNIT = 16           # cells in a standard deviation
CELLS = 256             # so |Z| < 16
REACH = CELLS // PER_UNIT
NUMBER_BITS = 40        # noise numbers of a step: up to 2^40
MAX_SIGMA = 2.0**56    # of the noise, in units of the grid
MANTISSA = 53           # bits of a double
LOW = 27                # of these, the lower
LOW_MASK = (1 << LOW) - 1
MAX_SHIFT = 61         # from there on everything rounds to zero


def thresholds() -> list[list[int]]:
    """For each cell j, floor(2^256 P(J <= j)) as :data:`DIGITS` words, the most significant first; P(J = j) is
    proportional to exp(-j^2/512).  The last is 2^256, with a leading word of 2^32.

    Integers with 128 more bits: exp(-1/512) by its series, exp(-j^2/512) by products of its powers.
    """
    bits = 32 * DIGITS + 128
    base, term, i = 0, 1 << bits, 0
    while term:
        base += -term if i % 2 else term
        i += 1
        term //= 2 * PER_UNIT**2 * i
    square = base * base >> bits
    weight, ratio, total, sums = 1 << bits, base, 0, []
    for _ in range(CELLS):
        total += weight
        sums.append(total)
        weight = weight * ratio >> bits         # exp(-(j+1)^2/512) = exp(-j^2/512) exp(-(2j+1)/512)
        ratio = ratio * square >> bits
    below = [(part << 32 * DIGITS) // total for part in sums[:-1]]
    rows = [[value >> 32 * (DIGITS - 1 - i) & 0xFFFFFFFF for i in range(DIGITS)] for value in below]
    return [*rows, [1 << 32] + [0] * (DIGITS - 1)]


def scale_of(sigma: float) -> tuple[int, int]:
    """(M, h) with sigma / 16 = M 2^-h exactly, M < 2^53 and h >= 1.

    Raises
    ------
    ValueError
        If sigma isn't in [0, 2^56): what the integers of :func:`rounded_normal` hold.
    """
    if not 0.0 <= sigma < MAX_SIGMA:
        raise ValueError(f"noise: a standard deviation of {sigma!r} units of the grid; it must be below 2^56")
    fraction, exponent = math.frexp(sigma)
    return int(fraction * 2.0**MANTISSA), MANTISSA + 4 - exponent


def fill(key, step, index, room):  # type: ignore[no-untyped-def]
    """The noise's block ``index`` of a step, in room[:16]."""
    block_of(key, PURPOSE_NOISE, step, index, room)


def digit(key, step, number, u, i, room):  # type: ignore[no-untyped-def]
    """Word i in 0..7 of the uniform u of noise number ``number``, the most significant first.

    Words 0 and 1 of eight uniforms are in one block, words 2 and 3 in the next, and so on: block 4 (u div 8) + i div 2
    of the number, which is the step's block 2^40 times that plus the number.  ``room`` is 17 integers: the block that
    was looked at last, and its index (-1: none).
    """
    index = ((((u >> 3) << 2) + (i >> 1)) << NUMBER_BITS) + number
    if room[WORDS] != index:
        fill(key, step, index, room)
        room[WORDS] = index
    return room[((u & 7) << 1) + (i & 1)]


def below(key, step, number, u, v, room):  # type: ignore[no-untyped-def]
    """Whether uniform u is below uniform v."""
    for i in range(DIGITS):
        a, b = digit(key, step, number, u, i, room), digit(key, step, number, v, i, room)
        if a != b:
            return a < b
    return False


def below_threshold(key, step, number, u, table, j, room):  # type: ignore[no-untyped-def]
    """Whether uniform u, whose first word is that of threshold j, is below it."""
    for i in range(1, DIGITS):
        a = digit(key, step, number, u, i, room)
        if a != table[j, i]:
            return a < table[j, i]
    return False


def cell(key, step, number, u, table, room):  # type: ignore[no-untyped-def]
    """j, by uniform u: how many thresholds it isn't below."""
    first, j = digit(key, step, number, u, 0, room), 0
    while first > table[j, 0]:
        j += 1
    while first == table[j, 0] and not below_threshold(key, step, number, u, table, j, room):
        j += 1
    return j


def carried(carry, word, high, low):  # type: ignore[no-untyped-def]
    """floor((carry + word M) / 2^32), M = high 2^27 + low < 2^53, carry < M: long multiplication, from the right.

    In 64 bits with a sign: word low < 2^59, word high < 2^58.
    """
    return (((carry + word * low) >> LOW) + word * high) >> (32 - LOW)


def rounded_normal(mantissa, shift, key, step, number, table, room):  # type: ignore[no-untyped-def]
    """round(sigma Z), below 2^60 in size: (``mantissa``, ``shift``) = :func:`scale_of` sigma, Z the step's normal
    ``number``.

    Parameters
    ----------
    table : (256, 8) integers
        :func:`thresholds`.
    room : 17 integers
        See :func:`digit`.
    """
    if mantissa == 0 or shift > MAX_SHIFT:
        return 0
    u = 0
    j = x = 0
    rejected = True
    while rejected:
        j = cell(key, step, number, u, table, room)
        x, last = u + 1, u + 1
        u += 2
        rejected, going = False, True
        while going:
            c = digit(key, step, number, u, 0, room) >> 23
            u += 1
            going = c < 2 * j
            if c == 2 * j:
                going = below(key, step, number, u, x, room)
                u += 1
            if going:
                going = below(key, step, number, u, last, room)
                last = u
                u += 1
            if going:
                rejected = not rejected
    negative = digit(key, step, number, u, 0, room) & 1
    high, low = mantissa >> LOW, mantissa & LOW_MASK
    half = (mantissa * j) + (1 << (shift - 1))
    first, second = digit(key, step, number, x, 0, room), digit(key, step, number, x, 1, room)
    least = carried(carried(0, second, high, low), first, high, low)    # of floor(M x), whatever the other words are
    most = carried(carried(mantissa - 1, second, high, low), first, high, low)
    size = (half + least) >> shift
    if size != (half + most) >> shift:
        carry = 0
        for i in range(DIGITS):
            carry = carried(carry, digit(key, step, number, x, DIGITS - 1 - i, room), high, low)
        size = (half + carry) >> shift
    return -size if negative else size
