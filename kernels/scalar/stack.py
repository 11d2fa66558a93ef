"""Shortening a stacked score, and why replacing a record moves a sum of them by at most twice the clipping bound.

A record's stacked score has the entries a_l f y_j and b_l: ``y`` the m mapped features, f <= 1 their weight, ``a`` and
``b`` the L mixed slopes (docs/geometry.md).  In units of C its exact norm is N = sqrt(|a|^2 f^2 |y|^2 + |b|^2).  The
grid is that of ``scalar.clip``: entries are rounded to integers in units of C 2^-22, of a weight that is smaller by
what rounding L d numbers can add, sqrt(L d) / 2, and the integers are added exactly.

Proof, in single precision (v = 2^-24, every operation rounded once).  ``y``, f, ``a`` and ``b`` are the *computed*
numbers, a and b times the computed 1/C; how well they approximate what they stand for is of no concern.  With q the
computed |y|^2 (m fused steps) and s_a, s_b the computed |a|^2, |b|^2 (L fused steps each), the computed square is

    s = fma(s_a, (f f) q, s_b),        N^2 <= s (1 + (m + L + 5) v) to first order.

No bound rests on underflow: q and s_a above 2^100 count as zero, so N >= 1/2 needs s_a (f f) q or s_b above 2^-3.
The factor g is 1 if s <= Q^2, else Q / sqrt(s) (two roundings), so g N <= Q (1 + ((m + L) / 2 + 5) v).  The terms are
round(fl(fl(fl(a_l f) g) W) y_j) and round(fl(fl(b_l g) W)), W = fl(2^22 - sqrt(L d) / 2): at most four more roundings
of their size, and the last moves each by at most 1/2, their vector by at most sqrt(L d) / 2.  Its norm is at most
(2^22 - sqrt(L d) / 2) Q (1 + ((m + L) / 2 + 10) v) + sqrt(L d) / 2 <= 2^22 with Q = 1 - (m + L + 20) v, whose slack
swallows the second order for m + L <= 2^14.  So a record's vector of integers is no longer than 2^22, one that is
replaced moves the sum by at most 2 2^22 in the Euclidean norm, and 511 terms can be added in 32 bits.
"""


def stack_limit(m: int, L: int) -> float:
    """Q for m mapped features and L rules: what "norm at most C" means in units of C, a multiple of 2^-24."""
    return 1.0 - (m + L + 20) * 2.0**-24
