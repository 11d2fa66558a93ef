"""Turning what a user passes into records: type, shape and finiteness, before anything is computed or spent.

The domain of a record is: finite real numbers.  A data set with a missing or infinite value is outside the domain of
the guarantee and is refused; the message says neither where nor how many.  Values outside the public bounds *are* in
the domain: they are moved to the nearest bound, silently, because a count of them would be a release.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, KeysView, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.errors import DataError, DomainError, PgbbError
from pgbb_fast.intake import reading
from pgbb_fast.kernels.arguments import BFLOAT16, as_double
from pgbb_fast.release.devices import all_finite, on_device

T = TypeVar("T")
CHUNK = 1 << 20
IN_PLACE = (np.float64, np.float32, np.float16, BFLOAT16, np.int8, np.int16, np.int32, np.uint8, np.uint16)
NOT_FINITE = (
    "nan or infinite, which are no records; drop or impute them by a rule that doesn't depend on other records. "
    "Nothing was computed and nothing spent"
)


def _safely(who: str, name: str, read: Callable[[], T]) -> T:
    """What ``read`` returns or refuses; what an object raises of its own is neither shown nor chained."""
    try:
        return read()
    except PgbbError:
        raise
    except Exception:
        pass
    raise reading.wrong(who, name, "is another kind of object", f"pass {reading.FRAMES}")


def _require_finite(who: str, name: str, array: NDArray[Any]) -> None:
    if array.dtype.kind in "biu":
        return
    for start in range(0, len(array), CHUNK):
        part = array[start : start + CHUNK]
        finite = (part.view(np.uint16) & 0x7F80) != 0x7F80 if part.dtype == BFLOAT16 else np.isfinite(part)
        if not finite.all():
            raise DataError(f"{who}: {name} has values that are {NOT_FINITE}")


def given_names(who: str, name: str, names: Any) -> tuple[str, ...] | None:
    """Names that the user gives, as a tuple of different strings; None for None.

    Raises
    ------
    DomainError
        What isn't a sequence of different strings, such as one string.
    """
    if names is None:
        return None
    unordered = isinstance(names, AbstractSet) and not isinstance(names, KeysView)
    result: tuple[Any, ...] = ()
    if isinstance(names, Collection) and not isinstance(names, (str, bytes, Mapping)) and not unordered:
        result = reading.quietly(lambda: tuple(names)) or ()
    if not result or not all(isinstance(one, str) for one in result):
        raise DomainError(f"{who}: {name} must be a list of strings, one for each feature")
    if len(set(result)) != len(result):
        twice = sorted({one for one in result if result.count(one) > 1})
        raise DomainError(f"{who}: duplicate names {twice} in {name}; every feature needs a name of its own")
    return tuple(str(one) for one in result)


def _labels(who: str, labels: Sequence[Any]) -> tuple[tuple[str, ...], bool]:
    """A schema's labels as different names, and whether they name columns: numbers only count them."""
    if not all(isinstance(label, (str, int, np.integer)) for label in labels):
        raise DataError(f"{who}: X's column labels must be strings (or whole numbers); rename its columns")
    names = tuple(str(label) for label in labels)
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise DataError(f"{who}: duplicate feature names {twice}; every feature needs a name of its own")
    return names, any(isinstance(label, str) for label in labels)


def _order(who: str, found: tuple[str, ...], names: tuple[str, ...], others: bool) -> list[int]:
    """Where each of ``names`` is among the names ``found``; ``others`` allows columns that aren't asked for."""
    missing, unknown = [one for one in names if one not in found], [one for one in found if one not in names]
    if missing or (unknown and not others):
        more = f" and has {unknown} besides" if unknown else ""
        raise DataError(
            f"{who}: X lacks columns {missing}{more}; feature_names must be X's own names, in any order"
            if missing
            else f"{who}: X has columns {unknown} that feature_names lacks; drop them"
        )
    return [found.index(one) for one in names]


def _matrix(
    who: str, X: Any, names: tuple[str, ...] | None, others: bool = False
) -> tuple[NDArray[Any], tuple[str, ...]]:
    """X as an (n, p) real array, and its columns' names; see :func:`features` and :func:`named_columns`."""
    table = reading.quietly(lambda: reading.table_of(X))
    if table is None:
        array = _safely(who, "X", lambda: reading.array_of(who, "X", X, 2))
        p = array.shape[1] if not isinstance(array, str) else 0
        labels = names if names is not None else tuple(f"x{j + 1}" for j in range(p))
    else:
        found, real = _labels(who, table.labels)
        labels = names if names is not None else found
        chosen = _order(who, found, labels, others) if real else list(range(len(found)))
        array = reading.assemble(who, "X", table, chosen, found)
    if isinstance(array, str):
        raise DataError(f"{who}: X has values that are {NOT_FINITE}")
    if len(labels) != array.shape[1]:
        raise DataError(f"{who}: got {len(labels)} feature names for {array.shape[1]} features")
    return array, labels


def features(
    who: str, X: Any, n_bounds: int | None, names: tuple[str, ...] | None = None
) -> tuple[NDArray[Any], tuple[str, ...]]:
    """X as an (n, p) real array with p = ``n_bounds`` (None: any), and the features' names.

    Names are those given, else the schema's, else x1, x2, ...  A frame with names of its own is read *by* the names
    given: they must be the same, and say the order.  Labels that are whole numbers only count the columns.
    Finiteness is checked later by :func:`require_finite`, but missing values of a masked or nullable type here.
    """
    array, labels = _matrix(who, X, names)
    if n_bounds is not None and array.shape[1] != n_bounds:
        raise DataError(f"{who}: X has {array.shape[1]} features but x_bounds has {n_bounds} pairs")
    return array, labels


def named_columns(who: str, X: Any, names: Sequence[str]) -> NDArray[np.float64]:
    """The columns ``names`` of X in that order, in double precision, finite: (n, len(names)).

    For what comes after a fit, such as points to predict at: a frame (pandas, polars, Arrow, structured array) may have
    its columns in any order, and others besides; what has no names of its own must have the right number of columns.

    Raises
    ------
    DataError
        A name that X lacks, another number of columns, what isn't numbers, or isn't finite.
    """
    array, _ = _matrix(who, X, tuple(names), others=True)
    if on_device(array):
        raise DataError(f"{who}: X is on a GPU; pass a host array")
    require_finite(who, X=array)
    return as_double(array)


def target(who: str, y: Any, n: int, X: Any = None) -> NDArray[Any]:
    """y as an (n,) real array; refuses row labels (pandas) other than those of X, which it is read beside."""
    if reading.quietly(lambda: reading.table_of(y)) is not None:
        raise DataError(f"{who}: y must have shape (n,), got a table; pass one column of it")
    array: NDArray[Any] | str = _safely(who, "y", lambda: reading.array_of(who, "y", y, 1))
    if isinstance(array, str):
        raise DataError(f"{who}: y has values that are {NOT_FINITE}")
    if len(array) != n:
        raise DataError(f"{who}: X has {n} records but y has {len(array)}")
    ours, theirs = reading.row_labels(X), reading.row_labels(y)
    if ours is not None and theirs is not None and not reading.quietly(lambda: bool(ours.equals(theirs))):
        raise DataError(
            f"{who}: X and y have different row labels; pass y.loc[X.index], or arrays if their order is the same"
        )
    return array


def require_host(who: str, **arrays: Any) -> None:
    """Refuse arrays on a GPU, for methods that run on the host only."""
    for name, array in arrays.items():
        if reading.on_gpu(array):
            raise DataError(f"{who}: {name} is on a GPU; this method takes host arrays")


def require_records(who: str, n: int, n_blocks: int) -> None:
    """Enough records for ``n_blocks`` blocks, or for a fit without blocks."""
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


def as_stored(array: NDArray[Any]) -> NDArray[Any]:
    """The array where it is if the kernels can read it there, else its numbers as the kernels take them: rounded to
    double, then to single precision.  So a record's bits don't depend on its type or layout."""
    found = in_place(array)
    if found is not None:
        return found
    out = np.empty(array.shape, dtype=np.float32)
    with np.errstate(over="ignore"):  # beyond single precision is beyond all bounds
        for start in range(0, len(array), CHUNK):
            out[start : start + CHUNK] = as_double(array[start : start + CHUNK])
    return out


def require_finite(who: str, **arrays: NDArray[Any]) -> None:
    """Refuse nan and infinities in any of the named arrays."""
    for name, array in arrays.items():
        if not on_device(array):
            _require_finite(who, name, array)
        elif not all_finite(array):
            raise DataError(f"{who}: {name} has values that are {NOT_FINITE}")
