"""Clipping, and the fixed-point grid on which gradients are summed.

Floating-point sums have a sensitivity of their own, larger than the real one (Casacuberta, Shoemate, Vadhan and
Wagaman 2022).  Here each clipped, weighted coordinate is truncated *toward zero* to an integer multiple of
C 2^-32 and the integers are added exactly.  Truncation never lengthens a vector and integer sums are exact and
commutative, so replacing one record changes the sum by at most 2 u C / n_S, as in exact arithmetic, and the sum
doesn't depend on the order of the records, the number of threads or the device.
"""

import math

GRID_BITS = 32
GRID = 2.0**GRID_BITS
SAFE = 1.0 - 2.0**-40   # swallows the rounding of the norm and of the products, for up to 4,096 coordinates


def clip_factor(squared_norm: float, bound: float) -> float:
    """f with ``f * norm <= bound * SAFE``, f <= 1; a gradient that isn't finite counts as zero."""
    limit = bound * SAFE
    if squared_norm <= limit * limit:
        return 1.0
    if squared_norm < math.inf:
        return limit / math.sqrt(squared_norm)
    return 0.0


def to_grid(value: float) -> int:
    """``value`` (in units of the clipping bound) toward zero on the grid of 2^-32; nan and inf give zero."""
    if -1.0 <= value <= 1.0:
        return int(value * GRID)
    return 0
