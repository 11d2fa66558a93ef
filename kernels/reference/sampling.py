"""Minibatches over whole arrays, as ``scalar.sampling`` defines them."""

import math

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.kernels.reference.random import words

SMALL, LARGE = 4, 2**27     # thresholds between these use skips


def by_mask(key: NDArray[np.int64], step: int, n: int, threshold: int) -> NDArray[np.bool_]:
    """Record i is in if word i % 16 of block i // 16 lies below ``threshold``."""
    blocks = np.arange(-(-n // 16), dtype=np.int64)
    return words(key, 1, step, blocks).reshape(-1)[:n].astype(np.int64) < threshold


def skip_rule(threshold: int) -> tuple[float, int, int]:
    """(-log(1 - q), longest gap, bits of a chunk)."""
    log = -math.log1p(-threshold / 2**32 * (1 - 2.0**-25))
    bits = 8
    while bits < 20 and threshold / 2**32 * 2**bits < 96:
        bits += 1
    return log, math.floor(2.77 / log), bits


def chunk_hits(key: NDArray[np.int64], step: int, chunk: int, size: int, log: float, longest: int) -> list[int]:
    """Hits of one chunk: gaps floor(-log(1 - U) / -log(1 - q)), U from two words; a gap that would reach ``longest``
    only says that the next ``longest`` records are no hits."""
    hits: list[int] = []
    position, index = 0, chunk << 24
    while position < size:
        pair = words(key, 3, step, index + np.arange(16)).reshape(-1, 2).astype(np.float64)
        index += 16
        u = (pair[:, 0] + (pair[:, 1] + 0.5) / 2**32) / 2**32
        with np.errstate(divide="ignore"):
            gaps = np.minimum(np.floor(-np.log1p(-u) / log), longest).astype(np.int64)
        for gap in gaps:
            position += int(gap)
            if gap < longest and position < size:
                hits.append(position)
                position += 1
    return hits


def by_skips(key: NDArray[np.int64], step: int, n: int, threshold: int) -> NDArray[np.bool_]:
    """Hits at geometric gaps, each chunk of records from a stream of its own."""
    log, longest, bits = skip_rule(threshold)
    taken = np.zeros(-(-n >> bits) << bits if n else 0, dtype=np.bool_)
    for chunk in range(len(taken) >> bits):
        first = chunk << bits
        taken[[first + hit for hit in chunk_hits(key, step, chunk, 1 << bits, log, longest)]] = True
    return taken[:n]


def minibatch(key: NDArray[np.int64], step: int, n: int, threshold: int) -> NDArray[np.bool_]:
    """Which of n records are in the minibatch."""
    if threshold >= 2**32:
        return np.ones(n, dtype=np.bool_)
    if SMALL <= threshold <= LARGE:
        return by_skips(key, step, n, threshold)
    return by_mask(key, step, n, threshold)
