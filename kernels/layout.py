"""How records are stored, as the kernels are told."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.kernels.arguments import BFLOAT16


def stored(array: NDArray[Any]) -> tuple[NDArray[Any], str]:
    """The array as Numba takes it, and what its bits mean: a key of ``intrinsics.NUMBER``."""
    if array.dtype == np.float16:
        return array.view(np.uint16), "float16"
    return (array.view(np.uint16), "bfloat16") if array.dtype == BFLOAT16 else (array, "")


def require_layout(who: str, x: NDArray[Any], columns: int) -> bool:
    """Whether x is stored by rows; refuses what is stored neither by rows nor by columns, or has not ``columns``."""
    by_rows = x.flags.c_contiguous
    if not (by_rows or x.flags.f_contiguous) or x.shape[1] != columns:
        raise ValueError(f"{who}: records.x must be contiguous with {columns} columns, got shape {x.shape}")
    return by_rows
