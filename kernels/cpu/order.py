"""Records permuted into block order, in place: afterwards no block ids have to be read, and a tile has one weight."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.kernels.cpu.compile import compiled

CHUNK = 1 << 20     # ids counted at once


def _permute(x: Any, y: Any, block: Any, starts: Any, place: Any, row: Any) -> None:
    """American flag sort (McIlroy, Bostic and McIlroy 1993): each record is moved once, to its block's next ``place``,
    by way of ``row``."""
    for b in range(place.size):
        while place[b] < starts[b + 1]:
            i = place[b]
            to = block[i]
            if to == b:
                place[b] += 1
                continue
            j = place[to]
            place[to] += 1
            for column in range(x.shape[1]):
                row[column] = x[i, column]
                x[i, column] = x[j, column]
                x[j, column] = row[column]
            if y.size > 0:
                y[i], y[j] = y[j], y[i]
            block[i], block[j] = block[j], block[i]


@cache
def _permutation() -> Callable[..., Any]:
    return compiled(_permute)


def to_block_order(x: NDArray[Any], y: NDArray[Any], block: NDArray[Any], n_blocks: int) -> NDArray[np.int64]:
    """Permute the rows of ``x`` (n, columns), ``y`` (n,) or (0,), and ``block`` (n,) so that blocks are contiguous.

    Returns ``starts`` (S + 2,) for ``Records``; block S is that of the records which take no part.  Working memory is a
    row and S + 2 numbers.  Whether a record is drawn depends on its place, which is independent of the data either way.
    """
    counts: NDArray[np.int64] = np.zeros(max(n_blocks, int(block.max(initial=0))) + 1, dtype=np.int64)
    for start in range(0, len(block), CHUNK):
        counts += np.bincount(block[start : start + CHUNK], minlength=len(counts))
    if len(counts) != n_blocks + 1 or not len(x) == len(block) or len(y) not in (0, len(x)):
        raise ValueError(f"to_block_order: {len(x)} rows, {len(y)} responses, {len(block)} ids up to {len(counts) - 1}")
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    _permutation()(x, y, block, starts, starts[:-1].copy(), np.empty(x.shape[1], x.dtype))
    return starts
