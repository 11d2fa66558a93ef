"""Containers of records as arrays, and the names that their schemas give.

What a user passes is data: a message, a name or a chained error must not show it, nor a property of it that depends on
values (the width of text, a category, a type chosen by content).  So names come from schemas only, messages call types
by the fixed words below, and whatever code of others does with the records (conversions, ``__array__``) runs in
:func:`quietly`: its errors and warnings end there, and what is raised later isn't chained to them.

Types of numbers are read as they are.  Lists have no type of their own: they are double precision, whatever they hold.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.errors import DataError
from pgbb_fast.kernels.arguments import BFLOAT16
from pgbb_fast.kernels.cuda.spans import on_device, span_of
from pgbb_fast.silence import unseen

__all__ = ["MISSING", "Table", "array_of", "assemble", "on_gpu", "quietly", "row_labels", "table_of", "wrong"]

T = TypeVar("T")
MISSING = "missing"  # what _values says of a column with missing values
LAZY = ("dask", "duckdb", "ibis", "pyspark", "vaex")  # packages whose objects are queries, run anew at every reading
FRAMES = "a NumPy array, a torch tensor, a pandas or polars frame, an Arrow table or a list of rows"
WORDS = {"U": "text", "S": "text", "T": "text", "O": "objects", "c": "complex numbers", "M": "dates", "m": "durations"}


def quietly(read: Callable[[], T]) -> T | None:
    """What ``read`` returns, None where it raises; no warning gets out, and no error to be chained to."""
    with unseen():
        try:
            return read()
        except Exception:
            return None


def wrong(who: str, name: str, found: str, advice: str = "encode, convert or drop it") -> DataError:
    """The refusal of what isn't numbers; ``found`` is one of our words, a verb first unless that is "holds"."""
    verb = "" if found.startswith("is ") else "holds "
    return DataError(f"{who}: {name} must hold real numbers, but {verb}{found}; {advice}")


def _root(values: Any) -> str:
    return str(type(values).__module__).partition(".")[0]


def _loaded(package: str) -> Any:
    """A package if somebody has imported it: else nothing can be one of its objects."""
    return sys.modules.get(package)


def _is(values: Any, package: str, *names: str) -> bool:
    """Whether ``values`` is of one of a package's types, by its own type: it isn't asked."""
    module = _loaded(package)
    kinds = tuple(kind for kind in (getattr(module, name, None) for name in names) if isinstance(kind, type))
    return bool(kinds) and issubclass(type(values), kinds)


# ---- columns --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """Columns with a schema: their labels, themselves, and a function for all of them at once where there is one."""

    labels: tuple[Any, ...]
    columns: list[Any]
    rows: int
    whole: Callable[[], NDArray[Any]] | None = None


def table_of(values: Any) -> Table | None:
    """``values`` as columns where it has a schema: pandas, Arrow, what exports itself to Arrow, structured arrays."""
    if isinstance(values, np.ndarray):
        if values.dtype.names is None or values.dtype == BFLOAT16 or values.ndim != 1:
            return None
        return Table(tuple(values.dtype.names), [values[name] for name in values.dtype.names], len(values))
    if _is(values, "pandas", "DataFrame"):
        columns = [values.iloc[:, j] for j in range(values.shape[1])]
        plain = all(isinstance(kind, np.dtype) for kind in values.dtypes)
        return Table(tuple(values.columns), columns, len(values), values.to_numpy if plain else None)
    if _root(values) in LAZY or _is(values, "pandas", "Series", "Index"):
        return None
    if not _is(values, "pyarrow", "Table", "RecordBatch"):
        if not hasattr(values, "__arrow_c_stream__") or _is(values, "pyarrow", "ChunkedArray", "Array"):
            return None
        import pyarrow

        values = pyarrow.table(values)
    return Table(tuple(values.schema.names), list(values.columns), int(values.num_rows))


def _number_type(kind: Any) -> np.dtype[Any] | None:
    """A NumPy type if it is one of real numbers."""
    if not isinstance(kind, np.dtype) or kind.kind not in "biuf":
        return None
    return kind if issubclass(kind.type, (np.bool_, np.integer, np.floating)) else None


def _column_type(column: Any) -> np.dtype[Any] | str:
    """The type of a column's numbers by its schema, or a word for what isn't numbers."""
    if isinstance(column, np.ndarray):
        return _number_type(column.dtype) or WORDS.get(column.dtype.kind, "structures")
    if _is(column, "pandas", "Series"):
        return _pandas_type(column.dtype)
    return _arrow_type(column.type)


def _pandas_type(kind: Any) -> np.dtype[Any] | str:
    pandas = _loaded("pandas")
    if isinstance(kind, np.dtype):
        return _number_type(kind) or WORDS.get(kind.kind, "objects")
    if isinstance(kind, pandas.CategoricalDtype):
        return "categories"
    if isinstance(kind, pandas.ArrowDtype):
        return _arrow_type(kind.pyarrow_dtype)
    if isinstance(kind, pandas.SparseDtype):
        return _number_type(kind.subtype) or "objects"
    sizes = [f"{word}{bits}Dtype" for word in ("Int", "UInt") for bits in (8, 16, 32, 64)]
    if _is(kind, "pandas", "BooleanDtype", "Float32Dtype", "Float64Dtype", *sizes):
        found: np.dtype[Any] = np.dtype(kind.numpy_dtype)
        return found
    words = {"StringDtype": "text", "DatetimeTZDtype": "dates", "PeriodDtype": "dates", "IntervalDtype": "intervals"}
    return next((word for name, word in words.items() if _is(kind, "pandas", name)), "objects")


def _arrow_type(kind: Any) -> np.dtype[Any] | str:
    from pyarrow import types

    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        found: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return found
    if types.is_dictionary(kind):
        return "categories"
    if types.is_string(kind) or types.is_large_string(kind):
        return "text"
    return "dates" if types.is_temporal(kind) else "decimals" if types.is_decimal(kind) else "objects"


def _values(column: Any, kind: np.dtype[Any]) -> NDArray[Any] | str:
    """A column of numbers as an array of ``kind``, or :data:`MISSING`."""
    if isinstance(column, np.ma.MaskedArray):
        return MISSING if np.ma.getmaskarray(column).any() else np.asarray(column.data)
    if isinstance(column, np.ndarray):
        return column
    if _is(column, "pandas", "Series"):
        if isinstance(column.dtype, np.dtype):
            return np.asarray(column.to_numpy())
        return MISSING if column.isna().any() else np.asarray(column.to_numpy(dtype=kind))
    if column.null_count:
        return MISSING
    own = {} if hasattr(column, "chunks") else {"zero_copy_only": False}
    return np.asarray(column.to_numpy(**own))


def assemble(who: str, name: str, table: Table, chosen: Sequence[int], names: Sequence[str]) -> NDArray[Any] | str:
    """The columns ``chosen`` as an (n, p) array, by columns; :data:`MISSING` where a value is.

    Their own type if it is the same for all, else double precision.
    """
    kinds: list[np.dtype[Any]] = []
    for j in chosen:
        kind = quietly(lambda j=j: _column_type(table.columns[j])) or "objects"  # type: ignore[misc]
        if isinstance(kind, str):
            raise wrong(who, f"{name}'s column {names[j]!r}", kind)
        kinds.append(kind)
    common = kinds[0] if kinds and len(set(kinds)) == 1 else np.dtype(np.float64)

    def read() -> NDArray[Any] | str:
        if table.whole is not None and list(chosen) == list(range(len(table.columns))) and len(set(kinds)) == 1:
            whole = table.whole()
            if whole.dtype == common:
                return whole
        out = np.empty((table.rows, len(chosen)), dtype=common, order="F")
        for place, (j, kind) in enumerate(zip(chosen, kinds, strict=True)):
            values = _values(table.columns[j], kind)
            if isinstance(values, str):
                return values
            out[:, place] = values
        return out

    found = quietly(read)
    if found is None:
        raise wrong(who, name, "columns that can't be read", "pass a NumPy array")
    return found


# ---- arrays ---------------------------------------------------------------------------------------------------------


def array_of(who: str, name: str, values: Any, ndim: int) -> Any:
    """``values`` as a real array of ``ndim`` dimensions without a copy where possible, or :data:`MISSING`; on a GPU it
    stays there.  Says nothing of values in what it raises."""
    if _is(values, "torch", "Tensor"):
        values = _tensor(who, name, values)
    if on_gpu(values):
        if quietly(lambda: span_of(values)) is None:
            raise DataError(f"{who}: {name} is on a GPU, of a type or layout that can't be read there; convert it")
        array = values
    else:
        array = _host_array(who, name, values)
        if isinstance(array, str):
            return array
    dimensions = len(array.shape)
    if dimensions != ndim:
        shape = "(n, p)" if ndim == 2 else "(n,)"
        raise DataError(f"{who}: {name} must have shape {shape}, got {dimensions} dimension(s)")
    return array


def on_gpu(values: Any) -> bool:
    """Whether ``values`` is on a GPU, whatever it is: a tensor that requires a gradient too."""
    if _is(values, "torch", "Tensor"):
        return bool(quietly(lambda: values.is_cuda))
    return bool(quietly(lambda: on_device(values)))


def _tensor(who: str, name: str, tensor: Any) -> Any:
    """A tensor without its graph: on a GPU a tensor, else an array."""
    torch = _loaded("torch")

    def read() -> Any:
        plain = tensor.detach()
        if plain.layout != torch.strided or plain.is_complex() or plain.is_quantized:
            return None
        plain = plain.resolve_neg()
        if plain.is_cuda:
            return plain
        if plain.dtype == torch.bfloat16:
            return plain.view(torch.int16).numpy().view(BFLOAT16)
        return plain.numpy()

    found = quietly(read)
    if found is None:
        raise wrong(who, name, "is a tensor of another kind", "pass a dense tensor of real numbers")
    return found


def _host_array(who: str, name: str, values: Any) -> NDArray[Any] | str:
    if _root(values) in LAZY:
        advice = "its rows have no fixed order: fetch X and y in one query, as a frame or an Arrow table"
        raise wrong(who, name, "is a query that isn't run yet", advice)
    column = quietly(lambda: _column_of(values))
    if column is not None:
        kind = quietly(lambda: _column_type(column)) or "objects"
        if isinstance(kind, str):
            raise wrong(who, name, kind)
        found = quietly(lambda: _values(column, kind))
        if found is None:
            raise wrong(who, name, "a column that can't be read", "pass a NumPy array")
        return found
    if isinstance(values, np.ndarray):
        return _checked(who, name, values)
    if values is None or isinstance(values, (str, bytes, bytearray, Mapping, AbstractSet, Iterator, Real)):
        words = ((str, "is text"), ((bytes, bytearray), "is bytes"), (Mapping, "is a dict"), (AbstractSet, "is a set"))
        found_word = next((word for kind_, word in words if isinstance(values, kind_)), "is no array")
        raise wrong(who, name, found_word, f"pass {FRAMES}")
    if _is(values, "scipy.sparse", "spmatrix", "sparray"):
        raise wrong(who, name, "is a sparse matrix", "pass its toarray()")
    if isinstance(values, Sequence) and not hasattr(values, "__array__") and not isinstance(values, memoryview):
        listed = quietly(lambda: _listed(values))
        if listed is None:
            what = "something else (text, None) or rows of different lengths"
            raise wrong(who, name, what, "pass equally many numbers a row")
        return listed
    array = quietly(lambda: np.asanyarray(values)) if _is_array(values) else None
    if array is None:
        raise wrong(who, name, "is another kind of object", f"pass {FRAMES}")
    return _checked(who, name, array)


def _is_array(values: Any) -> bool:
    protocols = ("__array__", "__array_interface__", "__array_struct__")
    if any(quietly(lambda p=p: hasattr(values, p)) for p in protocols):  # type: ignore[misc]
        return True
    return quietly(lambda: memoryview(values)) is not None


def _column_of(values: Any) -> Any:
    """``values`` as a column with a schema, if it is one: pandas, Arrow, what exports itself to Arrow; None else."""
    if isinstance(values, np.ma.MaskedArray):
        return values
    if isinstance(values, np.ndarray):
        return None
    if _is(values, "pandas", "Series"):
        return values
    pandas = _loaded("pandas")
    if _is(values, "pandas", "Index") or (
        hasattr(pandas, "api") and isinstance(values, pandas.api.extensions.ExtensionArray)
    ):
        return pandas.Series(getattr(values, "array", values))
    if _is(values, "pyarrow", "ChunkedArray", "Array"):
        return values
    if hasattr(values, "__arrow_c_stream__") or hasattr(values, "__arrow_c_array__"):
        import pyarrow

        return pyarrow.chunked_array(values) if hasattr(values, "__arrow_c_stream__") else pyarrow.array(values)
    return None


def _checked(who: str, name: str, array: NDArray[Any]) -> NDArray[Any] | str:
    """An array of real numbers without its subclass; refuses others."""
    if isinstance(array, np.ma.MaskedArray):
        column = quietly(lambda: _values(array, array.dtype))
        if isinstance(column, str):
            return column
    array = np.asarray(array)
    if array.dtype == BFLOAT16:
        return array
    if array.dtype.name == "bfloat16":
        return array.view(BFLOAT16)
    if _number_type(array.dtype) is None:
        raise wrong(who, name, WORDS.get(array.dtype.kind, "numbers of another type"))
    return array


def _listed(values: Sequence[Any]) -> NDArray[np.float64] | None:
    """A sequence, nested or not, in double precision; None where it isn't one of numbers.

    A whole number beyond double precision counts as its largest.
    """
    array = np.asarray(values)
    if _number_type(array.dtype) is not None:
        return array.astype(np.float64)
    if array.dtype != object:
        return None
    out = np.empty(array.size, dtype=np.float64)
    numbers: list[Any] = array.reshape(-1).tolist()
    if not all(isinstance(value, (Real, Decimal, np.bool_)) for value in numbers):
        return None
    for i, value in enumerate(numbers):
        try:
            out[i] = float(value)
        except OverflowError:
            out[i] = math.copysign(sys.float_info.max, 1 if value > 0 else -1)
    return out.reshape(array.shape)


def row_labels(values: Any) -> Any:
    """A pandas object's row labels, None for all else."""
    return values.index if _is(values, "pandas", "DataFrame", "Series") else None
