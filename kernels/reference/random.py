"""ChaCha20 (RFC 8439) over whole arrays of counters, and the rounded normals made of it, in fractions."""

from fractions import Fraction
from functools import cache

import mpmath
import numpy as np
from numpy.typing import NDArray

CONSTANTS = np.frombuffer(b"expand 32-byte k", dtype="<u4")
ONE = 2**256


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


@cache
def cells() -> list[Fraction]:
    """Cumulative probabilities of j = 0, 1, ..., 255, those of exp(-j^2/512), down to multiples of 2^-256."""
    with mpmath.workprec(600):
        weights = [mpmath.exp(-mpmath.mpf(j * j) / 512) for j in range(256)]
        sums = [mpmath.fsum(weights[: j + 1]) / mpmath.fsum(weights) for j in range(255)]
        return [Fraction(int(mpmath.floor(share * ONE)), ONE) for share in sums] + [Fraction(1)]


def _pages(key: NDArray[np.int64], step: int, numbers: NDArray[np.int64], page: int) -> NDArray[np.uint32]:
    """Words of eight uniforms of each number, (len(numbers), 8 uniforms, 8): four blocks hold two words of each
    uniform, the next two of each, ..."""
    index = (np.arange(4 * page, 4 * page + 4, dtype=np.int64) << 40) + numbers[:, None]
    blocks = words(key, 2, step, index.reshape(-1)).reshape(len(numbers), 4, 8, 2)
    return blocks.transpose(0, 2, 1, 3).reshape(len(numbers), 8, 8)


class Uniforms:
    """The uniforms of one noise number, in their order, as fractions with 256 bits."""

    def __init__(self, key: NDArray[np.int64], step: int, number: int, first_page: NDArray[np.uint32]) -> None:
        self._where, self._pages, self._next = (key, step, np.array([number])), [first_page], 0

    def __call__(self) -> Fraction:
        page, place = divmod(self._next, 8)
        self._next += 1
        if page == len(self._pages):
            self._pages.append(_pages(*self._where, page)[0])
        return Fraction(int.from_bytes(self._pages[page][place].astype(">u4").tobytes()), ONE)


def _succeeds(j: int, x: Fraction, uniform: Uniforms) -> bool:
    """A trial with probability (2j + x) / 512."""
    c = int(512 * uniform())
    return c < 2 * j or (c == 2 * j and uniform() < x)


def _accepted(j: int, x: Fraction, uniform: Uniforms) -> bool:
    """True with probability exp(-x (2j + x) / 512) (von Neumann 1951)."""
    successes, last = 0, x
    while _succeeds(j, x, uniform):
        here = uniform()
        if not here < last:
            break
        successes, last = successes + 1, here
    return successes % 2 == 0


def _normal(uniform: Uniforms) -> Fraction:
    """A standard normal, exactly (Karney 2016, algorithm N, with cells of width 1/16)."""
    while True:
        u = uniform()
        j = next(j for j, share in enumerate(cells()) if u < share)
        x = uniform()
        if _accepted(j, x, uniform):
            break
    negative = int(2**32 * uniform()) % 2
    return (j + x) / (-16 if negative else 16)


def _normals(key: NDArray[np.int64], step: int, count: int) -> list[Fraction]:
    pages = _pages(key, step, np.arange(count), 0)
    return [_normal(Uniforms(key, step, number, page)) for number, page in enumerate(pages)]


def rounded(value: Fraction) -> int:
    """The nearest integer; halves away from zero."""
    size = int(abs(value) + Fraction(1, 2))
    return size if value > 0 else -size


def normals(key: NDArray[np.int64], step: int, count: int) -> NDArray[np.float64]:
    """The first ``count`` normals of a step in double precision."""
    return np.array([float(z) for z in _normals(key, step, count)])


def rounded_normals(key: NDArray[np.int64], step: int, sigma: NDArray[np.float64]) -> NDArray[np.int64]:
    """round(sigma_i Z_i) with the step's normals Z_0, Z_1, ...: the integers to add, (count,)."""
    pairs = zip(sigma.tolist(), _normals(key, step, len(sigma)), strict=True)
    return np.array([rounded(Fraction(scale) * z) for scale, z in pairs], dtype=np.int64)
