"""ChaCha20 (RFC 8439) over whole arrays of counters, and the normals made of it."""

import numpy as np
from numpy.typing import NDArray

CONSTANTS = np.frombuffer(b"expand 32-byte k", dtype="<u4")
NORMALS_PER_BLOCK = 6


def _rotate(x: NDArray[np.uint32], r: int) -> NDArray[np.uint32]:
    return (x << np.uint32(r)) | (x >> np.uint32(32 - r))


def _quarter(s: NDArray[np.uint32], a: int, b: int, c: int, d: int) -> None:
    for i, j, k, r in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        s[i] += s[j]
        s[k] = _rotate(s[k] ^ s[i], r)


def words(key: NDArray[np.int64], purpose: int, step: int, index: NDArray[np.int64]) -> NDArray[np.uint32]:
    """The 16 words of each block in ``index``: (len(index), 16) uint32."""
    start = np.empty((16, len(index)), dtype=np.uint32)
    start[:4] = CONSTANTS[:, None]
    start[4:12] = np.asarray(key).astype(np.uint32)[:, None]
    start[12] = index & 0xFFFFFFFF
    start[13] = index >> 32
    start[14] = step
    start[15] = purpose
    s = start.copy()
    for _ in range(10):
        for column in range(4):
            _quarter(s, column, 4 + column, 8 + column, 12 + column)
        for column in range(4):
            _quarter(s, column, 4 + (column + 1) % 4, 8 + (column + 2) % 4, 12 + (column + 3) % 4)
    return (s + start).T


def normals(key: NDArray[np.int64], step: int, count: int) -> NDArray[np.float64]:
    """The first ``count`` normals of a step: Box and Muller (1958), three pairs of each block, five words a pair."""
    blocks = np.arange(-(-count // NORMALS_PER_BLOCK), dtype=np.int64)
    w = words(key, 2, step, blocks)[:, :15].reshape(-1, 5).astype(np.float64)
    uniform = (w[:, 0] + (w[:, 1] + (w[:, 2] + 0.5) / 2**32) / 2**32) / 2**32
    angle = 2.0 * np.pi * (w[:, 3] + (w[:, 4] + 0.5) / 2**32) / 2**32
    radius = np.sqrt(-2.0 * np.log(uniform))
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]).reshape(-1)[:count]
