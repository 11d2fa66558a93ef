"""Resampling with replacement from ChaCha20, exactly uniform.

The privacy of a resampled release rests on nobody knowing who was drawn, so indices come from the fit's secret key.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pgbb_fast import validation as check
from pgbb_fast.kernels import reference

__all__ = ["MAX_RECORDS", "Resampler"]

PURPOSE_RESAMPLE = 4  # beside those of kernels.scalar.random
MAX_RECORDS = 2**31
WORDS = 16


class Resampler:
    """Independent uniform indices in 0 .. n - 1.

    A 32-bit word w counts if w < n floor(2^32 / n) and gives w mod n; others are skipped, so every index has
    probability 1/n exactly.  The indices depend on the key and n only, not on how many are asked for at a time.

    Parameters
    ----------
    key : (8,) int64
        ChaCha20's key words; secret.
    n : int
        Records, at most 2^31.
    """

    def __init__(self, key: NDArray[np.int64], n: int) -> None:
        self._key, self._n = key, check.integer("Resampler", "n", n, 1, MAX_RECORDS)
        self._limit = 2**32 // self._n * self._n
        self._next = 0
        self._left = np.empty(0, dtype=np.uint32)

    def draw(self, count: int) -> NDArray[np.int64]:
        """The next ``count`` indices, (count,)."""
        parts = [self._left]
        have = len(self._left)
        while have < count:
            blocks = (count - have) // WORDS + 1
            index = np.arange(self._next, self._next + blocks, dtype=np.int64)
            words = reference.words(self._key, PURPOSE_RESAMPLE, 0, index).reshape(-1)
            self._next += blocks
            parts.append(words[words.astype(np.int64) < self._limit])
            have += len(parts[-1])
        words = np.concatenate(parts)
        self._left = words[count:]
        return np.asarray(words[:count].astype(np.int64) % self._n)
