r"""Poisson minibatches: which of n records a step uses, from public numbers only.

Let t be the mechanism's threshold.  Whatever the others do, a record is in the minibatch with probability at most
t / 2^32, which is what the accountant is told.

* **All** (t = 2^32): every record.
* **Mask** (large q): record i is in if word i mod 16 of block i div 16 lies below t; independent, exactly t / 2^32.
* **Skips** (:func:`by_skips`, a rule in t only): records come in chunks of 2^b, each with a stream of its own, and the
  gaps between hits are geometric with the rate q = (t / 2^32) (1 - 2^-25).

Bound for skips.  A gap is floor(L / l), L = -log(1 - U), l = -log(1 - q), U uniform on the 2^64 points
(v + 1/2) / 2^64; from ``limit`` on, nothing is said but "no hit in the next ``limit`` records" and a new gap is drawn
(the geometric law has no memory).  ``limit`` l <= 2.77 < log 16.  In double precision (v = 2^-53) the computed
L / l is L (1 + d) / l: rounding U costs 5.4 v, the series 6 v, 1 / l 2 v, the product 1 v: |d| <= 15 v.  Hence
P(gap >= g) = (1 - q)^g (1 + e) with |e| <= 1.01 g l 15 v + 16 2^-64, g l <= 2.77, and P(gap = g) = q (1 - q)^g (1 + E),
|E| <= 2.1 max|e| / q.  Chunks cap g at 2^20, so the first part of |e| / q is at most 1.8e-9, and the second at most
1e-9 since q >= 2^-30.  So |E| <= 6e-9.  Given every other record's presence, the odds that record i is in are a
quotient of such probabilities in which at most four factors don't cancel (two gaps in place of one, and one more
or one less "no hit"): q / (1 - q) (1 + 2.5e-8) at most.  That is below what the accountant is told because q itself
is smaller by the factor 1 - 2^-25 = 1 - 2.98e-8 (:data:`SHRINK`).
"""

import math

from pgbb_fast.kernels.scalar.arithmetic import fma

ALL = 2**32             # threshold that takes every record
SHRINK = 2.0**-25       # relative amount by which the rate of the skips is below t / 2^32
MIN_SKIP = 4          # thresholds from here ...
MAX_SKIP = 2**27       # ... up to here use skips: q in [2^-30, 2^-5]
MIN_BITS = 8
MAX_BITS = 20          # of a chunk's size
HITS = 96.0             # expected in a chunk, at least, unless it has 2^20 records
REACH = 2.77            # log 16 = 2.7726
FAR = 0.9375            # 15/16
LOG2 = math.log(2.0)


def by_skips(threshold: int) -> bool:
    """Whether a minibatch is drawn by skips rather than by a mask."""
    return MIN_SKIP <= threshold <= MAX_SKIP


def chunk_bits(threshold: int) -> int:
    """b: the smallest chunk of 2^b records with at least :data:`HITS` expected hits, within 2^8..2^20."""
    bits = MIN_BITS
    while bits < MAX_BITS and threshold * 2.0 ** (bits - 32) < HITS:
        bits += 1
    return bits


def skip_constants(threshold: int) -> tuple[float, float]:
    """(1 / l, limit) of the geometric gaps, l = -log(1 - q)."""
    log = -math.log1p(-threshold * 2.0**-32 * (1.0 - SHRINK))
    return 1.0 / log, float(math.floor(REACH / log))


def uniform64(a: int, b: int) -> float:
    """(a 2^32 + b + 1/2) / 2^64 in (0, 1], rounded once."""
    return (a + (b + 0.5) * 2.0**-32) * 2.0**-32


def tail_log(t: float) -> float:
    """-log(1 - t) for 0 < t <= 15/16, within 6 2^-53: the same bits on every device.

    1 - t is doubled into (1/2, 1] (exact), then -log(1 - w) = 2 artanh(s), s = w / (2 - w) <= 1/3, by its Taylor series
    to s^33; the rest is below 1e-17.
    """
    rest = 1.0 - t
    power = 0.0
    if rest < 0.5:
        rest = rest + rest
        power = power + LOG2
    if rest < 0.5:
        rest = rest + rest
        power = power + LOG2
    if rest < 0.5:
        rest = rest + rest
        power = power + LOG2
    w = 1.0 - rest if power > 0.0 else t
    s = w / (2.0 - w)
    z = s * s
    series = fma(z, 1.0 / 33.0, 1.0 / 31.0)
    series = fma(z, series, 1.0 / 29.0)
    series = fma(z, series, 1.0 / 27.0)
    series = fma(z, series, 1.0 / 25.0)
    series = fma(z, series, 1.0 / 23.0)
    series = fma(z, series, 1.0 / 21.0)
    series = fma(z, series, 1.0 / 19.0)
    series = fma(z, series, 1.0 / 17.0)
    series = fma(z, series, 1.0 / 15.0)
    series = fma(z, series, 1.0 / 13.0)
    series = fma(z, series, 1.0 / 11.0)
    series = fma(z, series, 1.0 / 9.0)
    series = fma(z, series, 1.0 / 7.0)
    series = fma(z, series, 1.0 / 5.0)
    series = fma(z, series, 1.0 / 3.0)
    series = fma(z, series, 1.0)
    return fma(s + s, series, power)


def gap(t: float, inverse: float, limit: float) -> float:
    """Records to pass over before the next hit; ``limit`` when there is none among the next ``limit``."""
    count = tail_log(t) * inverse
    if t > FAR or not count < limit:
        return limit
    return count
