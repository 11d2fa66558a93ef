"""Scaling of one record's score for the second moment, in double precision."""

import math

SAFE = 1.0 - 2.0**-20      # times a product of two of a record's numbers: covers all their roundings


def moment_factor(squared: float, bound: float) -> float:
    """f with f * norm <= ``bound`` (up to rounding), f <= 1; zero where the square is nan or infinite."""
    if squared <= bound * bound:
        return 1.0
    if squared < math.inf:
        return bound / math.sqrt(squared)
    return 0.0
