"""The instructions of :mod:`.intrinsics` in plain Python, for NUMBA_ENABLE_CUDASIM.

The simulator has no warp shuffles: values go through shared memory, between two barriers of the whole block.  Kernels
therefore shuffle only where every thread of the block does.
"""

import math
import threading
from typing import Any

import numpy as np
from numba import cuda

from pgbb_fast.kernels.scalar.arithmetic import add32, xor32
from pgbb_fast.kernels.scalar.random import rotate_left

__all__ = [
    "F32", "F64", "HALVES", "I32", "I64", "PIECES", "U32",
    "add32", "at", "deposit", "fma", "last_lane", "plus", "put", "reload", "rotate_left", "warp_scan", "xor32",
]  # fmt: skip

I32, F32, F64 = np.int32, np.float32, np.float64
I64 = U32 = int
LANES = 32


def at(array: Any, index: Any) -> Any:
    """``array[index]``; refuses what the device would read out of bounds."""
    if not 0 <= index < array.shape[0]:
        raise IndexError(f"index {index} of an array of {array.shape[0]}")
    return array[index]


def put(array: Any, index: Any, value: Any) -> None:
    """``array[index] = value``; refuses what the device would write out of bounds."""
    if not 0 <= index < array.shape[0]:
        raise IndexError(f"index {index} of an array of {array.shape[0]}")
    array[index] = value


def fma(a: Any, b: Any, c: Any) -> Any:
    """``a * b + c``; in single precision rounded once, through double precision rounded to odd (Boldo and Melquiond
    2008), in double precision rounded twice."""
    if not isinstance(a, np.float32):
        return a * b + c
    product, other = float(a) * float(b), float(c)      # exact
    total = product + other
    rest = total - product
    error = (product - (total - rest)) + (other - rest)
    if error != 0.0 and math.isfinite(error) and not np.float64(total).view(np.int64) & 1:
        total = math.nextafter(total, math.copysign(math.inf, error))
    return np.float32(total)


def reload() -> None:
    """Nothing to do."""


def plus(total: Any, c: Any, x: Any) -> Any:
    """``total`` + round(c x), ties to even; the product is exact in double precision."""
    return np.int32(total + np.int32(np.rint(float(c) * float(x))))


def _piece(kind: str) -> Any:
    def piece(word: Any, i: Any) -> Any:
        return np.float32(np.array([word], dtype=np.uint32).view(kind)[i])

    return piece


def _half(encoding: str) -> Any:
    def number(word: Any) -> Any:
        if encoding == "float16":
            return np.float32(np.array([word], dtype=np.uint16).view(np.float16)[0])
        return (np.array([word], dtype=np.uint32) << 16).view(np.float32)[0]

    return number


HALVES = {encoding: _half(encoding) for encoding in ("float16", "bfloat16")}
PIECES = {kind: _piece(kind) for kind in ("int8", "uint8", "int16", "uint16")}


def _board(value):  # type: ignore[no-untyped-def]
    """The int64 values of the caller's warp, the caller's lane."""
    board = cuda.shared.array(1024, dtype=np.int64)
    me = cuda.threadIdx.x
    cuda.syncthreads()
    board[me] = value
    cuda.syncthreads()
    first = me // LANES * LANES
    return [int(v) for v in board[first : first + LANES]], me - first


_read: Any = cuda.jit(_board, device=True)


def warp_scan(value: int, lane: int) -> int:
    """Sum of ``value`` over the lanes up to the caller's."""
    values, me = _read(value)
    assert lane == me
    return sum(values[: lane + 1])


def last_lane(value: int) -> int:
    """The value of the last lane."""
    values, _ = _read(value)
    return int(values[-1])


_depositing = threading.Lock()


def deposit(array: Any, place: int, value: int) -> None:
    """Add the warp's sum of ``value`` to ``array[place]``: here each lane its own."""
    with _depositing:
        put(array, place, at(array, place) + value)
