"""Clipping, and the fixed-point grid on which gradients are summed.

Floating-point sums have a sensitivity of their own, larger than the real one (Casacuberta, Shoemate, Vadhan and
Wagaman 2022).  Here each clipped, weighted coordinate is rounded to the nearest integer, of a weight that is smaller
by what rounding can add, and the integers are added exactly: replacing one record changes the sum by at most
2 u C / n_S, as in exact arithmetic, and the sum doesn't depend on the order of the records, the number of threads or
the device.

Units.  Draw k has a public exponent ``e`` (:func:`weight_exponent`), 2^-e >= its largest weight.  A record's term is
an integer in units of C 2^-(22 + e) / n_S; the total, shifted left by 10 - e, is in units of C 2^-32 / n_S.

Proof, in single precision (v = 2^-24, every operation rounded once).  A record's gradient in units of C is
(a, a x_1, ..., a x_p, b) with ``a``, ``b`` the *computed* slopes times the computed 1/C.  Let N be its exact norm and
s the computed square, fma(a a, q, b b), q = 1 + x_1^2 + ... + x_p^2 by p fused steps: N^2 <= s (1 + (p + 5) v) to
first order.  No bound rests on underflow: q above 2^100 counts as zero, so N >= 1/2 needs a^2 or b^2 >= 2^-103.
The factor f is 1 if s <= L^2, else L / sqrt(s) (two roundings), so f N <= L (1 + (p/2 + 5) v).  The d terms are
round(fl(fl(a f) W) x_j), W = fl(u 2^(22 + e) - sqrt(d)/2) or 0: at most three more roundings of their size, and the
last moves each by at most 1/2, their vector by at most sqrt(d)/2.  Its norm is at most
(u 2^(22 + e) - sqrt(d)/2) L (1 + (p/2 + 9) v) + sqrt(d)/2 <= u 2^(22 + e) with L = 1 - (p + 16) v, whose slack swallows
the second order for p <= 2^14.  Hence also |term| <= 2^22, and 511 terms can be added in 32 bits.  A record whose s is
nan or infinite counts as zero.

One fused step rounds: fma(c, x, M) with M = 1.5 2^23 lies in [2^23, 2^24], where single precision has the integers
only, and its bits are those of M plus the integer, at 2^24 too.
"""

import math

GRID_BITS = 32
GRID = 2.0**GRID_BITS
TERM_BITS = 22          # of one record's term, before the draw's exponent
MAX_EXPONENT = GRID_BITS - TERM_BITS
MAX_SQUARE = 2.0**100  # of the features' squared norm
MAGIC = 1.5 * 2.0**23   # M
MAGIC_BITS = 0x4B400000
INFINITY = math.inf
ONE = 1.0
ZERO = 0.0


def clip_limit(p: int) -> float:
    """L for p features: what "norm at most C" means in units of C, a multiple of 2^-24."""
    return 1.0 - (p + 16) * 2.0**-24


def weight_exponent(largest: float) -> int:
    """e in 0..10 with 2^-e >= ``largest``, the largest weight of a draw (public)."""
    exponent = -math.frexp(largest)[1]
    if exponent > MAX_EXPONENT:
        return MAX_EXPONENT
    return exponent if exponent > 0 else 0


def rounding(d: int) -> float:
    """sqrt(d) / 2, by which rounding to integers can lengthen a vector of d numbers."""
    return 0.5 * math.sqrt(d)


def grid_weight(u: float, exponent: int, less: float) -> float:
    """u 2^(22 + e) - ``less``, at least 0; what isn't a weight (outside [0, 1], nan) counts as zero."""
    if 0.0 <= u <= 1.0:
        weight = u * (1 << (TERM_BITS + exponent)) - less
        return weight if weight > 0.0 else 0.0
    return 0.0


def clip_factor(squared: float, limit: float) -> float:
    """f with ``f * sqrt(squared) <= limit`` up to two roundings, f <= 1; for a finite square."""
    if squared <= limit * limit:
        return ONE
    return limit / math.sqrt(squared)
