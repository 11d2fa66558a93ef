"""One set of records in every kind of container that a user might pass, by rows and as a response.

Each maker is given values in two columns; what differs between two sets of values (their sizes, the width of text,
categories, units) must not show in anything that is said about a container.
"""

import array
import datetime
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import scipy.sparse
import torch

from tests.problems import bfloat16


class ArrowStream:
    """What a polars frame is to others: columns' names are a list, the data come by Arrow's C stream."""

    def __init__(self, table):
        self._table, self.columns = table, table.schema.names if isinstance(table, pa.Table) else None

    def __len__(self):
        return len(self._table)

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


class Relation(ArrowStream):
    """A query that a database runs when it is read."""


Relation.__module__ = "duckdb"


class Made:
    """An object that becomes an array when asked."""

    def __init__(self, values):
        self._values = values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self._values, dtype)


class Shouting(Made):
    """One that fails, warns and shows its values in every way that it has."""

    def __array__(self, dtype=None, copy=None):
        import warnings

        warnings.warn(f"first value {self._values[0]}", stacklevel=2)
        raise ValueError(f"can't convert {self._values}")

    def __repr__(self):
        return f"Shouting({self._values})"

    __str__ = __repr__

    @property
    def columns(self):
        return [str(value) for value in self._values[0]]

    @property
    def dtype(self):
        return f"{self._values}"


class Bad:
    """Every question is an error with the values in it."""

    def __init__(self, values):
        object.__setattr__(self, "_values", values)

    def __getattribute__(self, name):
        raise RuntimeError(f"{name}: {object.__getattribute__(self, '_values')}")


def text(values):
    return [[f"canary{value}" for value in row] for row in values]


def rows(values):
    """(name, whether it holds records, (n, 2) container) of a list of rows of two numbers."""
    x = np.array(values, dtype=np.float64)
    whole = np.rint(x).astype(np.int64)
    frame, tensor = pd.DataFrame(x, columns=["a", "b"]), torch.from_numpy(x)
    table = pa.table({"a": x[:, 0], "b": x[:, 1]})
    hours = (np.abs(whole) % 10**6).astype("datetime64[h]")
    for kind in ("float64", "float32", "longdouble", ">f8", "int64", "uint32", "int32", "uint64"):
        yield f"array of {kind}", True, (np.abs(x) % 2**31).astype(kind)
    yield "array of bool", True, x > 0
    yield "array of float16", True, (x % 1e4).astype(np.float16)
    yield "array of bfloat16", True, bfloat16(x)
    yield "array of text", False, np.array(text(values))
    yield "array of bytes", False, np.array(text(values)).astype("S")
    yield "array of new text", False, np.array(text(values), dtype=np.dtypes.StringDType())
    yield "array of objects", False, x.astype(object)
    yield "array of complex", False, x.astype(complex)
    yield "array of dates", False, hours
    yield "array of durations", False, hours - hours[0]
    yield "structured array", True, np.array([tuple(row) for row in x], dtype=[("a", "f8"), ("b", "f8")])
    yield "structured text", False, np.array([tuple(r) for r in text(values)], dtype=[("a", "U40"), ("b", "U40")])
    yield "masked, nothing hidden", True, np.ma.masked_array(x, mask=False)
    yield "masked", False, np.ma.masked_array(x, mask=x == x.max(), fill_value=x.max())
    yield "three dimensions", False, x[None]
    yield "no dimension", False, np.array(x[0, 0])
    yield "list", True, x.tolist()
    yield "tuple of arrays", True, tuple(x)
    yield "list of whole numbers", True, whole.tolist()
    yield "list of huge whole numbers", True, [[10 ** (20 + value % 7) for value in row] for row in whole.tolist()]
    yield "list of decimals", True, [[decimal.Decimal(value) for value in row] for row in values]
    yield "list of text", False, text(values)
    yield "list of numbers in text", False, [[str(value) for value in row] for row in values]
    yield "list with one text", False, [*x.tolist()[:-1], [x[-1, 0], f"canary{x[-1, 1]}"]]
    yield "list with none", False, [*x.tolist()[:-1], [x[-1, 0], None]]
    yield "ragged list", False, [*x.tolist()[:-1], [x[-1, 0]]]
    yield "list of dicts", False, [{f"key{a}": a, "b": b} for a, b in values]
    yield "list of dates", False, [[datetime.timedelta(hours=int(abs(v) % 1e6)) for v in row] for row in values]
    yield "dict", False, {"a": x[:, 0].tolist(), "b": x[:, 1].tolist()}
    yield "dict by value", False, {value: value for value in x[:, 0].tolist()}
    yield "set", False, {tuple(row) for row in x.tolist()}
    yield "generator", False, (row for row in x.tolist())
    yield "iterator", False, iter(x.tolist())
    yield "text", False, "canary" + str(values)
    yield "bytes", False, str(values).encode()
    yield "number", False, x[0, 0]
    yield "none", False, None
    yield "memoryview", True, memoryview(x)
    yield "frame", True, frame
    yield "frame without names", True, pd.DataFrame(x)
    yield "frame of two types", True, pd.DataFrame({"a": whole[:, 0], "b": x[:, 1].astype(np.float32)})
    for kind in ("Int64", "UInt32", "Float64", "Float32", "int64[pyarrow]", "double[pyarrow]"):
        number = np.abs(whole) % 2**31 if kind == "UInt32" else whole
        yield f"frame of {kind}", True, pd.DataFrame(number, columns=["a", "b"]).astype(kind)
    yield "frame of boolean", True, (frame > 0).astype("boolean")
    yield "frame of sparse", True, frame.astype(pd.SparseDtype("float64"))
    yield "frame with NA", False, frame.astype("Float64").mask(frame["a"] == frame["a"].max())
    yield "frame with null", False, frame.astype("double[pyarrow]").mask(frame["a"] == frame["a"].max())
    yield "frame of categories", False, frame.astype("category")
    yield "frame of whole categories", False, frame.assign(a=pd.Categorical(whole[:, 0]))
    yield "frame of text", False, pd.DataFrame(text(values), columns=["a", "b"])
    yield "frame of objects", False, frame.astype(object)
    yield "frame of old text", False, pd.DataFrame(text(values), columns=["a", "b"], dtype=object)
    yield "frame of dates", False, frame.assign(b=hours[:, 1])
    yield "frame of zoned dates", False, frame.assign(b=pd.DatetimeIndex(hours[:, 1]).tz_localize("UTC"))
    yield "frame of durations", False, frame.assign(b=hours[:, 1] - hours[0, 1])
    yield "frame of periods", False, frame.assign(b=pd.PeriodIndex(hours[:, 1], freq="h"))
    yield "frame of intervals", False, frame.assign(b=pd.arrays.IntervalArray.from_arrays(x[:, 1], x[:, 1] + 1))
    yield "frame of complex", False, frame.astype(complex)
    yield "frame of lists", False, frame.assign(b=x.tolist())
    yield "frame named by values", False, pd.DataFrame({value: [1.0, 2.0, 3.0, 4.0] for value in x[:2, 0]})
    yield "frame named by dates", False, pd.DataFrame(x, columns=pd.DatetimeIndex(hours[:2, 0]))
    yield "series", False, frame["a"]
    yield "table", True, table
    yield "record batch", True, table.to_batches()[0]
    yield "table in chunks", True, pa.concat_tables([table[:1], table[1:]])
    yield "table of whole numbers and bool", True, pa.table({"a": whole[:, 0], "b": x[:, 1] > 0})
    yield "table with null", False, pa.table({"a": [*x[:-1, 0].tolist(), None], "b": x[:, 1]})
    yield "table of text", False, pa.table({"a": [row[0] for row in text(values)], "b": x[:, 1]})
    yield "table of categories", False, pa.table({"a": pa.array(whole[:, 0]).dictionary_encode(), "b": x[:, 1]})
    yield "table of decimals", False, pa.table({"a": [decimal.Decimal(str(v)) for v in x[:, 0]], "b": x[:, 1]})
    yield "table of dates", False, pa.table({"a": pa.array(hours[:, 0].astype("datetime64[s]")), "b": x[:, 1]})
    yield "table of lists", False, pa.table({"a": x.tolist(), "b": x[:, 1]})
    yield "Arrow array", False, pa.array(x[:, 0])
    yield "Arrow stream", True, ArrowStream(table)
    yield "Arrow stream of text", False, ArrowStream(pa.table({"a": [row[0] for row in text(values)], "b": x[:, 1]}))
    yield "relation", False, Relation(table)
    for kind in (torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.int16):
        yield f"tensor of {kind}", True, (tensor / 1e5).to(kind)
    yield "tensor that requires grad", True, tensor.clone().requires_grad_()
    yield "tensor of a graph", True, tensor.clone().requires_grad_() * 2
    yield "tensor of complex", False, tensor.to(torch.complex128)
    yield "sparse tensor", False, tensor.to_sparse()
    yield "tensor without memory", False, tensor.to("meta")
    yield "list of tensors", True, list(tensor)
    yield "list of tensors that require grad", False, list(tensor.clone().requires_grad_())
    yield "sparse matrix", False, scipy.sparse.csr_matrix(x)
    yield "sparse array", False, scipy.sparse.coo_array(x)
    yield "object with __array__", True, Made(x)
    yield "object with __array__ of text", False, Made(np.array(text(values)))
    yield "object that fails and warns", False, Shouting(values)
    yield "object that answers nothing", False, Bad(values)
    yield "function", False, lambda: values
    yield "class", False, type("Canary" + str(int(abs(x[0, 0]))), (), {})


def responses(values):
    """(name, whether it holds numbers, (n,) container) of a list of numbers."""
    y = np.array(values, dtype=np.float64)
    whole = np.rint(y).astype(np.int64)
    words = [f"canary{value}" for value in values]
    yield "array", True, y
    yield "list", True, y.tolist()
    yield "array.array", True, array.array("d", values)
    yield "range", True, range(int(whole[0]), int(whole[0]) + len(values))
    yield "masked", False, np.ma.masked_array(y, mask=y == y.max())
    yield "series", True, pd.Series(y)
    yield "index", True, pd.Index(y)
    yield "nullable series", True, pd.Series(whole, dtype="Int64")
    yield "nullable array", True, pd.array(whole, dtype="Int64")
    yield "series with NA", False, pd.Series([*whole[:-1], None], dtype="Int64")
    yield "categories", False, pd.Categorical(whole)
    yield "series of categories", False, pd.Series(whole).astype("category")
    yield "index of categories", False, pd.CategoricalIndex(whole)
    yield "series of text", False, pd.Series(words)
    yield "series of dates", False, pd.Series((np.abs(whole) % 10**6).astype("datetime64[h]"))
    yield "Arrow array", True, pa.array(y)
    yield "chunked array", True, pa.chunked_array([y[:1], y[1:]])
    yield "Arrow stream", True, ArrowStream(pa.chunked_array([y]))
    yield "Arrow categories", False, pa.array(whole).dictionary_encode()
    yield "Arrow text", False, pa.array(words)
    yield "Arrow null", False, pa.array([*y[:-1].tolist(), None])
    yield "tensor", True, torch.from_numpy(y).requires_grad_()
    yield "text", False, np.array(words)
    yield "list of text", False, words
    yield "frame", False, pd.DataFrame({"y": y})
    yield "table", False, pa.table({"y": y})
    yield "column of an array", False, y[:, None]
    yield "bytes", False, bytearray(len(values))
    yield "relation", False, Relation(pa.chunked_array([y]))
    yield "object that fails and warns", False, Shouting([values])
    yield "object that answers nothing", False, Bad(values)
    yield "wrong length", False, y[1:]
    yield "none", False, None
