"""Turning what a user passes into records: type, shape and finiteness, before anything is computed or spent.

The domain of a record is: finite real numbers.  A data set with a missing or infinite value is outside the domain of
the guarantee and is refused; the message says neither where nor how many.  Values outside the public bounds *are* in
the domain: they are moved to the nearest bound, silently, because a count of them would be a release.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.devices import all_finite, on_device
from pgbb_fast.errors import DataError, DomainError
from pgbb_fast.kernels.arguments import BFLOAT16

CHUNK = 1 << 20
IN_PLACE = (np.float64, np.float32, np.float16, BFLOAT16, np.int8, np.int16, np.int32, np.uint8, np.uint16)
NOT_FINITE = (
    "nan or infinite, which are no records; drop or impute them by a rule that doesn't depend on other records. "
    "Nothing was computed and nothing spent"
)


def _real_array(who: str, name: str, values: Any, ndim: int) -> NDArray[Any]:
    """``values`` as a real array of ``ndim`` dimensions, without a copy where possible; on a GPU, left there."""
    if on_device(values):
        if len(values.shape) != ndim:
            raise DataError(f"{who}: {name} must have {ndim} dimension(s), got {len(values.shape)}")
        return values  # type: ignore[no-any-return]
    array = _bfloat16(values)
    if array is None:
        array = np.asarray(values)
    if array.dtype.kind == "O" and all(dtype.kind in "biuf" for dtype in _column_types(values)):
        array = np.asarray(values, dtype=np.float64)
    if array.dtype.kind not in "biuf" and array.dtype != BFLOAT16:
        raise DataError(f"{who}: {name} must hold real numbers, got dtype {array.dtype}; encode or drop other columns")
    if array.ndim != ndim:
        shape = "(n, p)" if ndim == 2 else "(n,)"
        raise DataError(f"{who}: {name} must have shape {shape}, got {array.ndim} dimension(s)")
    return array


def _bfloat16(values: Any) -> NDArray[Any] | None:
    """The bits of a torch tensor or of an ml_dtypes array of that type, without a copy; None for all else."""
    name = str(getattr(values, "dtype", None))
    if name == "torch.bfloat16":
        import torch

        values = values.detach().view(torch.int16).numpy()
    elif name != "bfloat16":
        return None
    return np.asarray(values).view(BFLOAT16)


def _column_types(values: Any) -> list[np.dtype[Any]]:
    types = getattr(values, "dtypes", None)
    try:
        return [np.dtype(t) for t in types] if types is not None else [np.dtype(object)]
    except TypeError:
        return [np.dtype(object)]


def _require_finite(who: str, name: str, array: NDArray[Any]) -> None:
    if array.dtype.kind in "biu":
        return
    for start in range(0, len(array), CHUNK):
        part = array[start : start + CHUNK]
        finite = (part.view(np.uint16) & 0x7F80) != 0x7F80 if part.dtype == BFLOAT16 else np.isfinite(part)
        if not finite.all():
            raise DataError(f"{who}: {name} has values that are {NOT_FINITE}")


def feature_names(who: str, X: Any, names: Sequence[str] | None, p: int) -> tuple[str, ...]:
    """Names given by the user, else the data frame's columns, else x1, x2, ...; all different."""
    found = names if names is not None else getattr(X, "columns", None)
    result = tuple(str(name) for name in found) if found is not None else tuple(f"x{j + 1}" for j in range(p))
    if len(result) != p:
        raise DataError(f"{who}: got {len(result)} feature names for {p} features")
    if len(set(result)) != p:
        twice = sorted({name for name in result if result.count(name) > 1})
        raise DataError(f"{who}: duplicate feature names {twice}; every feature needs a name of its own")
    return result


def features(who: str, X: Any, n_bounds: int) -> NDArray[Any]:
    """X as an (n, p) real array with p = ``n_bounds``; finiteness is checked later by :func:`require_finite`."""
    array = _real_array(who, "X", X, 2)
    if array.shape[1] != n_bounds:
        raise DataError(f"{who}: X has {array.shape[1]} features but x_bounds has {n_bounds} pairs")
    return array


def target(who: str, y: Any, n: int) -> NDArray[Any]:
    """y as an (n,) real array."""
    array = _real_array(who, "y", y, 1)
    if len(array) != n:
        raise DataError(f"{who}: X has {n} records but y has {len(array)}")
    return array


def require_host(who: str, **arrays: Any) -> None:
    """Refuse arrays on a GPU, for methods that run on the host only."""
    for name, array in arrays.items():
        if on_device(array):
            raise DataError(f"{who}: {name} is on a GPU; this method takes host arrays")


def require_records(who: str, n: int, n_blocks: int) -> None:
    """Enough records for ``n_blocks`` blocks."""
    if n < 1:
        raise DataError(f"{who}: no records")
    if n < n_blocks:
        raise DomainError(f"{who}: {n} records can't fill n_blocks = {n_blocks} blocks; use fewer blocks (at least 3)")


def in_place(array: NDArray[Any]) -> NDArray[Any] | None:
    """The array as the kernels read it where it is; None where its type or layout isn't theirs."""
    if array.dtype == np.bool_:
        array = array.view(np.uint8)
    contiguous = array.flags.c_contiguous or array.flags.f_contiguous
    return array if array.dtype in IN_PLACE and array.flags.aligned and contiguous else None


def require_finite(who: str, **arrays: NDArray[Any]) -> None:
    """Refuse nan and infinities in any of the named arrays."""
    for name, array in arrays.items():
        if not on_device(array):
            _require_finite(who, name, array)
        elif not all_finite(array):
            raise DataError(f"{who}: {name} has values that are {NOT_FINITE}")
