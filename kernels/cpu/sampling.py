"""Minibatches as ascending lists of record numbers: loops around the scalar sampler."""

from typing import Any

import numpy as np

from pgbb_fast.kernels.cpu.compile import apart, inner
from pgbb_fast.kernels.cpu.formulas import gap, random_words, uniform64
from pgbb_fast.kernels.cpu.intrinsics import at, put
from pgbb_fast.kernels.scalar.random import WORDS

LANES = 16                      # cipher blocks computed at once
BATCH = LANES * WORDS           # words, hence records of a mask, at once
GAPS = BATCH // 2               # geometric gaps at once, from 64 bits each
CHUNK_COUNTER = 24              # bits of the cipher's counter within a chunk of records

U32, I64 = np.uint32, np.int64


def _random_lanes(key: Any, purpose: Any, step: Any, first: Any, words: Any) -> None:
    """Word w of the cipher's block ``first`` + l at words[16 w + l], l < 16."""
    k0, k1, k2, k3 = U32(key[0]), U32(key[1]), U32(key[2]), U32(key[3])
    k4, k5, k6, k7 = U32(key[4]), U32(key[5]), U32(key[6]), U32(key[7])
    for lane in range(LANES):
        index = first + lane
        block = random_words(k0, k1, k2, k3, k4, k5, k6, k7, U32(index), U32(index >> 32), U32(step), U32(purpose))
        put(words, 0 * LANES + lane, block[0])
        put(words, 1 * LANES + lane, block[1])
        put(words, 2 * LANES + lane, block[2])
        put(words, 3 * LANES + lane, block[3])
        put(words, 4 * LANES + lane, block[4])
        put(words, 5 * LANES + lane, block[5])
        put(words, 6 * LANES + lane, block[6])
        put(words, 7 * LANES + lane, block[7])
        put(words, 8 * LANES + lane, block[8])
        put(words, 9 * LANES + lane, block[9])
        put(words, 10 * LANES + lane, block[10])
        put(words, 11 * LANES + lane, block[11])
        put(words, 12 * LANES + lane, block[12])
        put(words, 13 * LANES + lane, block[13])
        put(words, 14 * LANES + lane, block[14])
        put(words, 15 * LANES + lane, block[15])


def _mask(words: Any, record: Any, end: Any, threshold: Any, hits: Any, m: Any) -> Any:
    """Append the hits among records ``record`` .. ``end`` - 1, at most 256, whose words are ``words``."""
    for i in range(end - record):
        put(hits, m, record + i)
        if I64(at(words, i % WORDS * LANES + i // WORDS)) < threshold:
            m += 1
    return m


def _measure(i: Any, words: Any, inverse: Any, limit: Any, gaps: Any) -> None:
    """Gaps number 8 l + i, l < 16, from 16 blocks of words; that of block l at gaps[16 i + l]."""
    for lane in range(LANES):
        t = uniform64(at(words, 2 * i * LANES + lane), at(words, (2 * i + 1) * LANES + lane))
        put(gaps, i * LANES + lane, I64(gap(t, inverse, limit)))


def _skip(gaps: Any, record: Any, end: Any, limit: Any, hits: Any, m: Any) -> Any:
    """Append the hits that 128 gaps make from ``record`` on, below ``end``; returns (m, next record)."""
    for lane in range(LANES):
        for i in range(WORDS // 2):
            g = at(gaps, i * LANES + lane)
            record += g
            if record >= end:
                return m, end
            if g < limit:
                put(hits, m, record)
                m += 1
                record += 1
    return m, record


random_lanes = apart(_random_lanes)
mask = inner(_mask)
measure = inner(_measure)
skip = inner(_skip)
