"""Records where the GPU can read them: placed on the device, taken as they are, or streamed from the host in chunks.

On the device the layout is one column after another, so that neighbouring threads read neighbouring numbers; arrays
that are there already are read in place, by their strides.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numba import cuda

from pgbb_fast.kernels.arguments import Records
from pgbb_fast.kernels.cuda.compile import SIMULATED, THREADS, Launch, groups_for, kernel
from pgbb_fast.kernels.cuda.instructions import I64, at, put
from pgbb_fast.kernels.cuda.spans import on_device, span_of
from pgbb_fast.kernels.layout import stored

LARGEST_CHUNK = 1 << 20     # records of the sampler's largest chunk: streamed chunks start at multiples of it
ALIGNED = 16                # columns start at multiples of so many numbers
STREAMED = 1 << 28          # bytes of a streamed chunk, about
KEPT_FREE = 0.2             # share of the free device memory that stays free when records are placed


@dataclass
class Chunk:
    """``n`` records: flat ``table`` with its strides, flat ``y`` with its own, ``block`` ids; see ``sums._sums``.

    ``words`` are the same as 32-bit words, (table, y, sizes), where integers are packed column by column.
    """

    table: Any
    y: Any
    block: Any
    sizes: tuple[int, int, int, int, int, int]
    words: tuple[Any, Any, tuple[int, int, int, int, int, int]] | None = None

    @property
    def n(self) -> int:
        """Number of records."""
        return self.sizes[0]

    def arguments(self, packed: bool) -> tuple[Any, Any, Any, tuple[int, int, int, int, int, int]]:
        """table, y, block ids and sizes for a kernel."""
        if packed:
            assert self.words is not None
            table, y, sizes = self.words
            return table, y, self.block, sizes
        return self.table, self.y, self.block, self.sizes


@dataclass
class Placed:
    """Records that a step can use: one chunk on the device, or several that come from the host in turn.

    ``packed`` is the type of integers that can be read several at a time, or empty; ``encodings`` say what the bits of
    16-bit features and responses mean (:attr:`Kind.encodings`); ``steps`` keeps what was made for these records.
    """

    features: int
    has_response: bool
    map: Any
    mapped: bool
    packed: str
    sizes: list[int]
    encodings: tuple[str, str] = ("", "")
    chunk: Chunk | None = None
    source: "Streamed | None" = None
    steps: dict[Any, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return "Placed(records=...)"

    def chunks(self, stream: Any) -> Iterator[Chunk]:
        """The chunks, each on the device when it is handed out; kernels that read it go to ``stream``."""
        if self.chunk is not None:
            yield self.chunk
        else:
            assert self.source is not None
            yield from self.source.chunks(stream)


def place(records: Records, response: bool, limit: float | None = None) -> Placed:
    """Records for the GPU, checked and, if they are on the host, copied there.

    Parameters
    ----------
    records : Records
        Host arrays, or arrays on the device (``__cuda_array_interface__``, as torch's and CuPy's have, or DLPack),
        which are read in place whatever their strides; columns that are contiguous are read fastest.  Block order
        (``starts``) becomes block ids of the smallest type.
    response : bool
        Whether the loss has one: ``records.y``, or the last column of ``records.x``.
    limit : float, optional
        Bytes of device memory to use; host arrays beyond it stay on the host and are streamed in every step.  By
        default what is free, less a fifth.
    """
    x, y = records.x, records.y
    n, columns = int(x.shape[0]), int(x.shape[1])
    separate = response and y.shape[0] > 0
    p = columns - (1 if response and not separate else 0)
    if n < 1 or p < 1 or (separate and y.shape[0] != n):
        raise ValueError(f"place: x has shape {tuple(x.shape)} and y {tuple(y.shape)}")
    if records.map.shape[0] not in (0, p + 1):
        raise ValueError(f"place: map has {records.map.shape[0]} rows for {p} features and a response")
    table_map = np.ascontiguousarray(records.map, dtype=np.float32).reshape(-1)
    if not table_map.size:
        table_map = np.zeros(2, dtype=np.float32)
    common: dict[str, Any] = {
        "features": p, "has_response": response, "map": cuda.to_device(table_map), "mapped": records.map.shape[0] > 0,
    }  # fmt: skip
    block = block_ids(records)
    if block.shape[0] != n:
        raise ValueError(f"place: {n} records but {block.shape[0]} block ids")
    if on_device(x):
        chunk, encodings = _in_place(x, y if separate else None, block, p, response)
        return Placed(**common, packed="", sizes=[n], encodings=encodings, chunk=chunk)
    (x, x_encoding), (y, y_encoding) = stored(x), stored(y if separate else y[:0])
    common["encodings"] = x_encoding, y_encoding if separate else x_encoding
    bytes_each = columns * x.dtype.itemsize + (y.dtype.itemsize if separate else 0) + block.dtype.itemsize
    room = _room() if limit is None else limit
    if n * bytes_each > room:
        source = Streamed(x, y, block, p, rows_per_chunk(bytes_each, room))
        return Placed(**common, packed="", sizes=source.sizes, source=source)
    chunk = _column_by_column(x, y, block, p, response, like=x_encoding == y_encoding, whole=not x_encoding)
    packed = x.dtype.name if chunk.words is not None else ""
    return Placed(**common, packed=packed, sizes=[n], chunk=chunk)


def block_ids(records: Records) -> Any:
    """The records' block ids, made of ``starts`` where records are in block order."""
    if not records.starts.shape[0]:
        return records.block
    blocks = records.starts.shape[0] - 1
    ids = np.arange(blocks, dtype=np.min_scalar_type(blocks - 1))
    return np.repeat(ids, np.diff(np.asarray(records.starts)).astype(np.int64))


def _room() -> float:
    """Bytes of device memory that records may take."""
    if SIMULATED:
        return float("inf")
    return (1.0 - KEPT_FREE) * float(cuda.current_context().get_memory_info().free)


def rows_per_chunk(bytes_each: int, room: float) -> int:
    """Records of a streamed chunk: a multiple of the sampler's largest chunk, two of them within ``room``."""
    rows = min(STREAMED, room / 2.0) / bytes_each
    return max(1, int(rows // LARGEST_CHUNK)) * LARGEST_CHUNK


# ---- arrays that are on the device ---------------------------------------------------------------------------------


def _in_place(x: Any, y: Any, block: Any, p: int, response: bool) -> tuple[Chunk, tuple[str, str]]:
    """Arrays on the device, read where they are, and their encodings."""
    span = span_of(x)
    table = cuda.as_cuda_array(span, sync=False)
    by_row, by_column = span.strides
    values, y_from, y_by_row, encoding = table, (p * by_column if response else 0), by_row, span.encoding
    if y is not None:
        other = span_of(y) if on_device(y) else None
        if other is None:
            host, encoding = stored(np.ascontiguousarray(y))
            values, y_from, y_by_row = cuda.to_device(host), 0, 1
        else:
            values, encoding = cuda.as_cuda_array(other, sync=False), other.encoding
            y_from, y_by_row = 0, other.strides[0]
    ids = cuda.as_cuda_array(span_of(block), sync=False) if on_device(block) else cuda.to_device(block)
    return Chunk(table, values, ids, (span.shape[0], by_row, by_column, y_from, y_by_row, 0)), (span.encoding, encoding)


# ---- host arrays ----------------------------------------------------------------------------------------------------


def _to_columns(rows: Any, y: Any, table: Any, start: Any, count: Any, stride: Any, columns: Any) -> None:
    """Rows ``start`` .. ``start + count - 1`` of the table, column by column."""
    i = I64(cuda.blockIdx.x) * THREADS + I64(cuda.threadIdx.x)
    while i < count:
        for j in range(columns):
            put(table, j * stride + start + i, at(rows, i * columns + j))
        if y.shape[0] > 0:
            put(table, columns * stride + start + i, at(y, i))
        i += I64(cuda.gridDim.x) * THREADS


@cache
def _to_columns_kernel() -> Any:
    return kernel(_to_columns)


def _column_by_column(x: Any, y: Any, block: Any, p: int, response: bool, *, like: bool, whole: bool) -> Chunk:
    """Copy host records to the device, transposing there; integers also as words, if y is of the same type.

    ``like`` says whether bits of x and y mean the same, ``whole`` whether integers are integers.
    """
    n, columns = x.shape
    together = y.shape[0] > 0 and y.dtype == x.dtype and like
    stride = max(ALIGNED, -(-n // ALIGNED) * ALIGNED)
    total = columns + together
    table = cuda.device_array(total * stride, x.dtype)
    rows = max(1, STREAMED // (columns * x.dtype.itemsize))
    for start in range(0, n, rows):
        part = np.ascontiguousarray(x[start : start + rows])
        beside = np.ascontiguousarray(y[start : start + rows]) if together else np.zeros(0, x.dtype)
        Launch(_to_columns_kernel(), groups_for(-(-len(part) // THREADS)))(
            cuda.to_device(part.reshape(-1)), cuda.to_device(beside), table, start, len(part), stride, columns
        )
    ids = cuda.to_device(np.ascontiguousarray(block))
    values, y_from = table, p * stride
    if y.shape[0] > 0 and not together:
        values, y_from = cuda.to_device(np.ascontiguousarray(y)), 0
    elif not response:
        y_from = 0
    sizes = (n, 1, stride, y_from, 1, 0)
    each = 4 // x.dtype.itemsize
    if not whole or x.dtype.kind not in "iu" or each < 2 or values is not table:
        return Chunk(table, values, ids, sizes)
    words = table.view(np.uint32)
    return Chunk(table, values, ids, sizes, (words, words, (n, 1, stride // each, y_from // each, 1, 0)))


class _Slot:
    """Buffers for one streamed chunk: pinned on the host, and on the device."""

    def __init__(self, x: Any, y: Any, block: Any, rows: int) -> None:
        sizes = [(rows * x.shape[1], x.dtype), (rows if len(y) else 1, y.dtype), (rows, block.dtype)]
        self.pinned = [cuda.pinned_array(size, dtype) for size, dtype in sizes]
        self.device = [cuda.device_array(size, dtype) for size, dtype in sizes]
        self.ready, self.used = cuda.event(), cuda.event()


class Streamed:
    """Host records that don't fit on the device: every step copies them there in chunks.

    Two slots of pinned and device memory: while kernels work on one chunk, the next one is on the way, and the host
    fills the pinned buffer of the one after that.
    """

    def __init__(self, x: Any, y: Any, block: Any, p: int, rows: int) -> None:
        self.x, self.y, self.block, self.p = x, y, block, p
        self.starts = range(0, len(x), rows)
        self.sizes = [min(rows, len(x) - start) for start in self.starts]
        self.slots = [_Slot(x, y, block, min(rows, len(x))) for _ in self.sizes[:2]]
        self.copying = cuda.stream()

    def chunks(self, stream: Any) -> Iterator[Chunk]:
        """The chunks in turn; what is launched on ``stream`` before the next one is asked for sees the chunk."""
        columns = self.x.shape[1]
        packed = not len(self.y)
        for number, (start, count) in enumerate(zip(self.starts, self.sizes, strict=True)):
            slot = self.slots[number % 2]
            slot.used.synchronize()     # the kernels of two chunks ago, hence the copies before them
            for host, pinned, there in zip((self.x, self.y, self.block), slot.pinned, slot.device, strict=True):
                if len(host):
                    part = host[start : start + count].reshape(-1)
                    pinned[: len(part)] = part
                    there[: len(part)].copy_to_device(pinned[: len(part)], stream=self.copying)
            slot.ready.record(self.copying)
            slot.ready.wait(stream)
            table = slot.device[0]
            y, y_from, y_by_row = (table, min(self.p, columns - 1), columns) if packed else (slot.device[1], 0, 1)
            yield Chunk(table, y, slot.device[2], (count, columns, 1, y_from, y_by_row, start))
            slot.used.record(stream)
