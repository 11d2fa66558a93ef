"""Whether all numbers of an array on the GPU are finite: the check before a fit, without a copy."""

from functools import cache
from typing import Any

import numpy as np
from numba import cuda

from pgbb_fast.kernels.cuda.compile import THREADS, Launch, groups_for, kernel
from pgbb_fast.kernels.cuda.instructions import F64, HALVES, I64, at, put
from pgbb_fast.kernels.cuda.spans import span_of
from pgbb_fast.kernels.scalar.clip import INFINITY
from pgbb_fast.kernels.specialise import specialise


def _find(table: Any, rows: Any, columns: Any, by_row: Any, by_column: Any, found: Any) -> None:
    """found[0] = 1 if a number isn't finite; every thread that finds one writes the same."""
    i = I64(cuda.blockIdx.x) * THREADS + I64(cuda.threadIdx.x)
    while i < rows:
        for j in range(columns):
            if not abs(F64(number(at(table, i * by_row + j * by_column)))) < INFINITY:
                put(found, I64(0), np.int32(1))
        i += I64(cuda.gridDim.x) * THREADS


number: Any = None      # bound to what a stored number means


@cache
def _find_kernel(encoding: str = "") -> Any:
    return kernel(specialise(_find, f"find_{encoding}", number=HALVES.get(encoding, F64)))


def all_finite(array: Any) -> bool:
    """Whether every number of a one- or two-dimensional array on the device is finite."""
    span = span_of(array)
    if not (span.kind.kind == "f" or span.encoding) or not span.length:
        return True
    rows, columns = (*span.shape, 1)[:2]
    by_row, by_column = (*span.strides, 1)[:2]
    found = cuda.to_device(np.zeros(1, dtype=np.int32))
    table = cuda.as_cuda_array(span, sync=False)
    Launch(_find_kernel(span.encoding), groups_for(-(-rows // THREADS)))(table, rows, columns, by_row, by_column, found)
    return int(found.copy_to_host()[0]) == 0
