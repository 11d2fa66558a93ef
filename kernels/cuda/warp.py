"""Sums over the 32 lanes of a warp, by shuffles."""

from typing import Any

down: Any = None    # (value, lanes) -> the value of the lane so much further on, its own where there is none
up: Any = None      # (value, lanes) -> the value of the lane so much before, its own where there is none


def total(value):  # type: ignore[no-untyped-def]
    """Sum over the warp, in the first lane."""
    value = value + down(value, 16)
    value = value + down(value, 8)
    value = value + down(value, 4)
    value = value + down(value, 2)
    return value + down(value, 1)


def scan(value, lane):  # type: ignore[no-untyped-def]
    """Sum over the lanes up to the caller's, ``lane`` (Hillis and Steele 1986)."""
    value = value + up(value, 1) * (lane >= 1)
    value = value + up(value, 2) * (lane >= 2)
    value = value + up(value, 4) * (lane >= 4)
    value = value + up(value, 8) * (lane >= 8)
    return value + up(value, 16) * (lane >= 16)
