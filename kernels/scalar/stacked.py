"""Shortening a stack of scores, a_l f xw_j and b_l (``arguments.Stack``), and the grid on which stacks are summed.

A record's terms are integers in units of C 2^-22; the total, shifted left by 10, is in units of C 2^-32.  **Replacing
one record moves the (L, d) integers by at most 2 2^32 in Euclidean norm**, whatever the records, on any device.

Proof, in single precision (v = 2^-24, every operation rounded once), to first order.  Let xw, a and b be what has
been *computed* for W xbar, V psi / C and V_s chi / C: how near they are to these is of no importance.  By fused steps
|xw|^2 <= Q (1 + m v), |a|^2 <= A (1 + L v), |b|^2 <= S (1 + L v).  With B the bound in single precision and B2 = fl(B
B): where Q <= B2, f = 1 and q = Q; otherwise f = fl(B / fl(sqrt(Q))) <= 1 and q = B2; so f^2 Q <= q (1 + 5 v).  Let s
= fma(A, q, S), and N the exact length of (a_l f xw_j, b_l): N^2 = |a|^2 f^2 |xw|^2 + |b|^2 <= s (1 + (L + m + 6) v).
The factor g is 1 if s <= fl(M^2), else fl(M / fl(sqrt(s))), so that g N <= M (1 + ((L + m)/2 + 5) v).  The terms are
round(fl(a_l fl(fl(f g) T)) xw_j) and round(fl(b_l fl(g T))), T = fl(2^22 - sqrt(L d)/2): at most four more roundings
of their size, and the last, to integers, moves their vector by at most sqrt(L d)/2.  Its length is at most (2^22 -
sqrt(L d)/2) M (1 + ((L + m)/2 + 9) v) + sqrt(L d)/2 <= 2^22 with M = 1 - (L + m + 16) v, the limit of ``scalar.clip``
for L + m features; the slack, (L + m)/2 + 7 roundings or more than 1 in units of the grid, swallows the second order
for L + m <= 2^14.  Hence also |term| <= 2^22.

Overflow: records with Q, A or S above 2^100, or any of these nan, count as zero; B <= 2^13, so that s is finite.
Underflow: where N >= 1/2, S, or both A and q, are at least 2^-104, beside which what sums below 2^-126 lose, 2^-150 a
step, is nothing; where N < 1/2 nothing needs shortening.  What fl(f g), its product with T, and a_l's and b_l's with
these lose below 2^-126 moves the vector by at most 2^-127 |a| |xw| + 2^-150 sqrt(L) (|xw| + 2) <= 2^-26: swallowed,
too.
"""

from pgbb_fast.kernels.scalar.arithmetic import fma
from pgbb_fast.kernels.scalar.clip import MAX_SQUARE, TERM_BITS, ZERO, clip_factor, clip_limit, rounding


def stack_limit(L: int, m: int) -> float:
    """M: what "length at most C" means in units of C, a multiple of 2^-24."""
    return clip_limit(L + m)


def stack_weight(L: int, d: int) -> float:
    """T, the weight 1 in units of a record's terms, less what rounding can add."""
    return (1 << TERM_BITS) - rounding(L * d)


def stack_factors(a: float, q: float, s: float, bound: float, limit: float, weight: float) -> tuple[float, float]:
    """(f g T, g T) of a record from A = ``a``, Q = ``q`` and S = ``s``; zeros for one that counts as zero."""
    if not (a <= MAX_SQUARE and q <= MAX_SQUARE and s <= MAX_SQUARE):     # or nan
        return ZERO, ZERO
    most = bound * bound
    g = clip_factor(fma(a, q if q < most else most, s), limit)
    return clip_factor(q, bound) * g * weight, g * weight
