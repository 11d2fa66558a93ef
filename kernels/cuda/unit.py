"""Columns of an array on the GPU clipped to public bounds and mapped to unit coordinates, as a copy on the device.

For what no public map of the kernels (``Records.map``) can stand for; the arithmetic, and so every bit, is the host's.
"""

from functools import cache
from typing import Any

import numpy as np
from numba import cuda
from numpy.typing import NDArray

from pgbb_fast.kernels.cuda.compile import THREADS, Launch, groups_for, kernel
from pgbb_fast.kernels.cuda.instructions import F32, F64, HALVES, I64, at, put
from pgbb_fast.kernels.cuda.spans import span_of
from pgbb_fast.kernels.specialise import specialise


def _to_unit(
    table: Any, rows: Any, columns: Any, by_row: Any, by_column: Any, low: Any, high: Any, centre: Any, radius: Any,
    out: Any,
) -> None:  # fmt: skip
    """out[j rows + i] = (clip(x_ij, low_j, high_j) - centre_j) / radius_j, in double precision, rounded once more."""
    i = I64(cuda.blockIdx.x) * THREADS + I64(cuda.threadIdx.x)
    while i < rows:
        for j in range(columns):
            x = min(max(F64(number(at(table, i * by_row + j * by_column))), at(low, j)), at(high, j))
            put(out, j * rows + i, F32((x - at(centre, j)) / at(radius, j)))
        i += I64(cuda.gridDim.x) * THREADS


number: Any = None      # bound to what a stored number means


@cache
def _to_unit_kernel(encoding: str = "") -> Any:
    return kernel(specialise(_to_unit, f"to_unit_{encoding}", number=HALVES.get(encoding, F64)))


def unit_columns(array: Any, bounds: NDArray[np.float64], centre: Any, radius: Any) -> Any:
    """(n, p) single-precision copy on the device, one column after another, of an (n, p) array there; (n,) of (n,).

    ``bounds`` (p, 2) are the columns' low and high, ``centre`` and ``radius`` (p,) their map.
    """
    span = span_of(array)
    table = cuda.as_cuda_array(span, sync=False)
    shape, strides = (*span.shape, 1)[:2], (*span.strides, 1)[:2]
    out = cuda.device_array(span.shape, np.float32, order="F")
    public = [np.ascontiguousarray(part, dtype=np.float64) for part in (*bounds.T, centre, radius)]
    Launch(_to_unit_kernel(span.encoding), groups_for(-(-span.shape[0] // THREADS)))(
        table, *shape, *strides, *map(cuda.to_device, public), out.ravel(order="F")
    )
    return out
