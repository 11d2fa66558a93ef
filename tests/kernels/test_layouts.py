"""Every layout and type of the records gives the same bits; their public maps, and threads, change nothing."""

import math
import os
import platform
import subprocess
import sys
import threading
from pathlib import Path

import numba
import numpy as np
import pytest

from pgbb_fast.kernels import cpu, reference
from pgbb_fast.kernels.arguments import BFLOAT16, NO_MAP, Draws, Mechanism, Records, Stream, as_double
from pgbb_fast.kernels.cpu.columns import NUMBER, neighbours_to_columns, rows_to_columns
from pgbb_fast.kernels.cpu.intrinsics import VECTOR, look_up
from pgbb_fast.kernels.cpu.order import to_block_order
from pgbb_fast.kernels.cpu.threads import run
from pgbb_fast.kernels.layout import stored
from tests.problems import bfloat16

ROOT = Path(__file__).resolve().parents[2]
GRID = 2**32
N, P, K, S = 3_001, 5, 3, 7


def problem(p: int = P, dtype: type = np.float32):
    """Records in block order in one packed table, draws and a stream; integer types hold -100 .. 100 or 0 .. 200."""
    rng = np.random.default_rng([3, p])
    if dtype == BFLOAT16:
        table = bfloat16(rng.uniform(-1, 1, (N, p + 1)))
    elif np.dtype(dtype).kind == "f":
        table = rng.uniform(-1, 1, (N, p + 1)).astype(dtype)
    else:
        low = 0 if np.dtype(dtype).kind == "u" else -100
        table = rng.integers(low, low + 201, (N, p + 1)).astype(dtype)
    block = np.sort(rng.integers(0, S + 1, N)).astype(np.int32)
    weights = np.zeros((K, S + 1))
    weights[:, :S] = rng.dirichlet(np.ones(S), K)
    theta = np.abs(rng.normal(0, 0.5, (K, p + 2))) + 0.1
    draws = Draws(theta, weights, np.tile([1.345, 0.71], (K, 1)))
    return table, block, draws, Stream(rng.integers(0, 2**32, 8), 5)


def layouts(table, block, table_map=NO_MAP, id_types=(np.int32,), by_columns=False):
    """The same records: separate or packed response, stored by rows or by columns, block ids or block order."""
    x, y, none = np.ascontiguousarray(table[:, :-1]), np.ascontiguousarray(table[:, -1]), np.empty(0, np.int32)
    empty = np.empty(0, table.dtype)
    starts = np.searchsorted(block, np.arange(S + 2)).astype(np.int64)
    for ids in id_types:
        yield Records(x, y, block.astype(ids), map=table_map)
    yield Records(table, empty, none, starts, table_map)
    if by_columns:
        yield Records(np.asfortranarray(x), y, block.astype(np.uint8), map=table_map)
        yield Records(np.asfortranarray(table), empty, none, starts, table_map)


def sums(records, draws, stream, q, loss="huber_concomitant"):
    return cpu.gradient_sums(loss, True, records, draws, Mechanism(2.5, int(q * GRID), 0.0), stream)


@pytest.mark.parametrize("q", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("p", [3, 8, 15, 20])
def test_layouts_agree_to_the_bit(p, q):
    table, block, draws, stream = problem(p)
    results = [sums(records, draws, stream, q) for records in layouts(table, block, by_columns=p in (3, 20))]
    for result in results[1:]:
        assert np.array_equal(result, results[0])


def test_block_ids_of_any_width_agree_to_the_bit():
    table, block, draws, stream = problem()
    types = (np.uint8, np.uint16, np.uint32, np.int32)
    results = [sums(records, draws, stream, 0.3) for records in layouts(table, block, id_types=types)]
    for result in results[1:]:
        assert np.array_equal(result, results[0])


@pytest.mark.parametrize(
    "dtype", [np.int8, np.int16, np.uint8, np.uint16, np.float16, BFLOAT16, np.float32, np.float64]
)
def test_compact_records_are_decoded_in_the_tile(dtype):
    """The same numbers as float32 records made by the map's own two operations, a fused one and a clip."""
    table, block, draws, stream = problem(dtype=dtype)
    real = np.dtype(dtype).kind not in "iu"
    low, high = (-1.0, 1.0) if real else (0.0, 180.0) if low_is_zero(dtype) else (-90.0, 90.0)
    slope, offset = np.float32(2 / (high - low)), np.float32(-(high + low) / (high - low))
    table_map = np.tile(np.array([slope, offset], dtype=np.float32), (P + 1, 1))
    exact = as_double(table).astype(np.float32).astype(np.float64) * np.float64(slope) + np.float64(offset)
    plain = np.clip(exact.astype(np.float32), -1, 1)
    assert real or (np.abs(plain) == 1).any()
    for records, want in zip(layouts(table, block, table_map), layouts(plain, block), strict=True):
        assert np.array_equal(sums(records, draws, stream, 1.0), sums(want, draws, stream, 1.0))
        want_64 = reference.regression_step(
            "huber_concomitant", True, records, draws, Mechanism(2.5, GRID, 0.0), stream
        )
        assert np.abs(sums(records, draws, stream, 1.0) - want_64).max() <= 1e-5 * np.abs(want_64).max()


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_every_half_precision_number_is_decoded_exactly(name):
    """All 2^16 patterns, one by one and in vectors: NumPy's float16, and the upper half of a float32."""
    bits = np.arange(2**16, dtype=np.uint16)
    if name == "float16":
        want, array = bits.view(np.float16).astype(np.float32), bits.view(np.float16)
    else:
        want, array = (bits.astype(np.uint32) << 16).view(np.float32), bits.view(BFLOAT16)
    assert stored(array)[1] == name
    with np.errstate(invalid="ignore"):     # signalling nans become quiet ones
        assert np.array_equal(as_double(array).astype(np.float32), want, equal_nan=True)
    number, transpose = NUMBER[name], rows_to_columns(4, name)

    @numba.njit
    def one_by_one(x, out):
        for i in range(x.size):
            out[i] = number(x, i)

    @numba.njit
    def in_vectors(x, hits, out):
        for first in range(0, hits.size, 16):
            transpose(x, 4, 0, hits, first, out, first, hits.size)

    out = np.empty(2**16, np.float32)
    one_by_one(bits, out)
    assert np.array_equal(out, want, equal_nan=True)
    assert np.array_equal(np.signbit(out), np.signbit(want))
    rows = np.arange(2**14)
    in_vectors(bits.reshape(-1, 4), rows, out)
    assert np.array_equal(out.reshape(4, -1).T.reshape(-1), want, equal_nan=True)


@pytest.mark.parametrize("columns", [1, 3, 4, 5, 7, 8])
def test_pieces_of_rows_become_columns_and_nothing_else_is_written(columns):
    transpose = rows_to_columns(columns, "")

    @numba.njit
    def call(x, hits, first, out):
        transpose(x, x.shape[1], 2, hits, first, out, 5, 20)

    rng = np.random.default_rng(columns)
    x = rng.normal(size=(50, 11)).astype(np.float32)
    hits = np.sort(np.append(rng.choice(49, 15, replace=False), 49))     # the last row too: nothing is behind it
    out = np.full(200, np.float32(7.0))
    call(x, hits, 0, out)
    want = np.full(200, np.float32(7.0))
    for j in range(columns):
        want[5 + 20 * j : 21 + 20 * j] = x[hits, 2 + j]
    assert np.array_equal(out, want)


@pytest.mark.parametrize("width", range(1, 18))
def test_rows_that_follow_each_other_become_columns_and_nothing_else_is_written(width):
    transpose = neighbours_to_columns(width, "")

    @numba.njit
    def call(x, first, out):
        transpose(x, first, out, 5, 20)

    x = np.random.default_rng(width).integers(-100, 100, (29, width)).astype(np.int16)
    want = np.full(400, np.float32(7.0))
    for j in range(width):
        want[5 + 20 * j : 21 + 20 * j] = x[13:, j]
    out = np.full(400, np.float32(7.0))
    call(x, 13, out)        # the last sixteen: there is nothing behind them to be read
    assert np.array_equal(out, want)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_rows_of_half_precision_become_columns(name):
    transpose = neighbours_to_columns(6, name)

    @numba.njit
    def call(x, out):
        transpose(x, 2, out, 0, 16)

    bits = np.random.default_rng(0).integers(0, 2**16, (18, 6)).astype(np.uint16)
    wide = (bits.astype(np.uint32) << 16).view(np.float32) if name == "bfloat16" else bits.view(np.float16)
    out = np.zeros(96, np.float32)
    call(bits, out)
    with np.errstate(invalid="ignore"):
        assert np.array_equal(out.reshape(6, 16).T, wide[2:].astype(np.float32), equal_nan=True)


def test_numbers_are_looked_up():
    @numba.njit
    def call(table, indices, out):
        for i in range(0, indices.size, VECTOR):
            look_up(table, 3, indices, i, out, i)

    table = np.arange(40, dtype=np.float32) ** 2
    indices = np.random.default_rng(1).permutation(32).astype(np.int32)
    out = np.zeros(32, np.float32)
    call(table, indices, out)
    assert np.array_equal(out, table[3 + indices])


@pytest.mark.parametrize("S", [3, 20, 31, 32, 40])
def test_block_ids_give_the_bits_of_records_in_block_order(S):
    """Weights from registers (up to 32 of a draw) and from memory, against one weight for each stretch of records."""
    rng = np.random.default_rng(S)
    n, K = 3_000, 3
    block = np.sort(rng.integers(0, S + 1, n))
    starts = np.searchsorted(block, np.arange(S + 2)).astype(np.int64)
    x, y = rng.uniform(-1, 1, (n, P)).astype(np.float32), rng.normal(size=n).astype(np.float32)
    weights = np.zeros((K, S + 1))
    weights[:, :S] = rng.dirichlet(np.ones(S), K)
    draws = Draws(rng.normal(size=(K, P + 1)), weights, np.tile([1.345, 0.0], (K, 1)))
    stream = Stream(rng.integers(0, 2**32, 8), 3)
    by_id = Records(x, y, block.astype(np.uint8))
    in_order = Records(x, y, block[:0].astype(np.uint8), starts)
    for q in (1.0, 0.1):
        mechanism = Mechanism(0.9, math.floor(q * 2**32), 0.0)
        ids, ordered = (
            cpu.gradient_sums("huber_fixed", True, records, draws, mechanism, stream) for records in (by_id, in_order)
        )
        assert np.array_equal(ids, ordered)
        assert ids.any()


@pytest.mark.parametrize("q", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("dtype", [np.float16, np.int8])
def test_compact_layouts_agree_to_the_bit(dtype, q):
    table, block, draws, stream = problem(dtype=dtype)
    table_map = np.tile(np.array([0.011, 0.1], dtype=np.float32), (P + 1, 1))
    first, *others = (sums(records, draws, stream, q) for records in layouts(table, block, table_map, by_columns=True))
    assert all(np.array_equal(other, first) for other in others)


def test_features_and_response_may_have_different_types():
    table, block, draws, stream = problem(dtype=np.int8)
    table_map = np.tile(np.array([0.01, 0.0], dtype=np.float32), (P + 1, 1))
    x, y = np.ascontiguousarray(table[:, :-1]), np.ascontiguousarray(table[:, -1])
    want = sums(Records(table, y[:0], block, map=table_map), draws, stream, 0.3)
    for dtype in (np.float16, np.float32):
        assert np.array_equal(sums(Records(x, y.astype(dtype), block, map=table_map), draws, stream, 0.3), want)
        assert np.array_equal(sums(Records(x.astype(dtype), y, block, map=table_map), draws, stream, 0.3), want)


@pytest.mark.parametrize("loss", ["huber_concomitant", "mean"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, BFLOAT16, np.int8])
def test_moments_of_every_layout_are_the_same_and_equal_the_reference(dtype, loss):
    table, block, draws, _ = problem(dtype=dtype)
    table_map = np.tile(np.array([0.011, 0.1], dtype=np.float32), (P + 1, 1))
    results = []
    for chosen in (table_map, NO_MAP):
        for records in layouts(table, block, chosen, by_columns=dtype in (np.float32, np.float16)):
            here = draws
            if loss == "mean":
                x = records.x[:, :P]
                records = records._replace(x=x.copy(order="F" if x.flags.f_contiguous else "C"), y=records.y[:0])
                here = draws._replace(theta=np.ascontiguousarray(draws.theta[:, :P]))
            got = cpu.score_moments(loss, True, records, here, 0.7)
            want = reference.score_moments(loss, True, records, here, 0.7)
            # a product's rounding moves its truncation by at most one grid point, and rarely
            assert np.abs(got - want).max() <= 3 + N // 256
            results.append(got)
        assert all(np.array_equal(result, results[0]) for result in results)
        results.clear()


def low_is_zero(dtype: type) -> bool:
    return np.dtype(dtype).kind == "u"


def test_missing_values_under_a_map_count_as_zero():
    table, block, draws, stream = problem()
    table_map = np.tile(np.array([0.5, 0.1], dtype=np.float32), (P + 1, 1))
    for column in (0, P):
        bad = table.copy()
        bad[17, column] = np.nan
        weights = block.copy()
        weights[17] = S
        for spoiled, without in zip(layouts(bad, block, table_map), layouts(table, block, table_map), strict=True):
            if without.block.size:
                without = without._replace(block=weights.astype(without.block.dtype))
                assert np.array_equal(sums(spoiled, draws, stream, 1.0), sums(without, draws, stream, 1.0))


def test_sums_do_not_depend_on_the_order_of_the_records_or_on_padding():
    table, block, draws, stream = problem()
    order = np.random.default_rng(1).permutation(N)
    records = Records(table, np.empty(0, np.float32), block)
    shuffled = Records(table[order], np.empty(0, np.float32), block[order])
    assert np.array_equal(sums(records, draws, stream, 1.0), sums(shuffled, draws, stream, 1.0))
    parts = [Records(table[a:b], np.empty(0, np.float32), block[a:b]) for a, b in ((0, 1), (1, 700), (700, N))]
    assert np.array_equal(sum(sums(part, draws, stream, 1.0) for part in parts), sums(records, draws, stream, 1.0))


@pytest.mark.parametrize("q", [0.02, 0.3, 1.0])
def test_any_number_of_threads_gives_the_same_bits(q):
    rng = np.random.default_rng(2)
    n = 200_000
    records = Records(
        rng.uniform(-1, 1, (n, P)).astype(np.float32),
        rng.uniform(-1, 1, n).astype(np.float32),
        rng.integers(0, S + 1, n).astype(np.uint8),
    )
    _, _, draws, stream = problem()
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        one = sums(records, draws, stream, q)
        numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)
        assert np.array_equal(sums(records, draws, stream, q), one)
    finally:
        numba.set_num_threads(before)


def test_several_callers_at_once_do_not_share_working_memory():
    table, block, draws, stream = problem()
    records = Records(table, np.empty(0, np.float32), block)
    wanted = [sums(records, draws, stream._replace(step=t), 0.3) for t in range(4)]
    wrong: list[int] = []

    def call(t: int) -> None:
        for _ in range(200):
            if not np.array_equal(sums(records, draws, stream._replace(step=t), 0.3), wanted[t]):
                wrong.append(t)

    threads = [threading.Thread(target=call, args=(t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_errors_in_a_thread_reach_the_caller():
    def work(i: int) -> None:
        if i:
            raise KeyError(i)

    with pytest.raises(KeyError):
        run(work, [(0,), (1,)])
    run(work, [(0,), (0,)])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("n", [0, 1, 2, 1_000])
def test_block_order_in_place_keeps_every_record_with_its_block(n, packed):
    rng = np.random.default_rng([4, n])
    x = rng.uniform(-1, 1, (n, 3)).astype(np.float32)
    y = np.empty(0, np.float32) if packed else x[:, 0] + 1
    block = rng.integers(0, S + 1, n).astype(np.uint8)
    before = sorted(zip(block.tolist(), x.tolist(), strict=True))
    starts = to_block_order(x, y, block, S)
    assert np.array_equal(starts, np.searchsorted(block, np.arange(S + 2)))
    assert np.array_equal(block, np.repeat(np.arange(S + 1), np.diff(starts)))
    assert sorted(zip(block.tolist(), x.tolist(), strict=True)) == before
    assert packed or np.array_equal(y, x[:, 0] + 1)
    with pytest.raises(ValueError, match="to_block_order"):
        to_block_order(x, y, np.full(n + 1, S, np.uint8), S)


WITHOUT_AVX512 = """
import sys
import numpy as np
from tests.kernels import test_layouts as here
from pgbb_fast.kernels.cpu.intrinsics import VECTOR
assert VECTOR == 8
table, block, draws, stream = here.problem()
records = here.Records(table[:, :-1].copy(), table[:, -1].copy(), block.astype(np.uint8))
np.save(sys.argv[1], [here.sums(records, draws, stream, q) for q in (0.02, 1.0)])
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="x86 only")
def test_a_processor_without_avx512_gets_the_same_bits(tmp_path):
    features = "+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+sse4.2,+popcnt"
    environment = {**os.environ, "NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": features}
    command = [sys.executable, "-c", WITHOUT_AVX512, str(tmp_path / "sums.npy")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2_000:]
    table, block, draws, stream = problem()
    records = Records(table[:, :-1].copy(), table[:, -1].copy(), block.astype(np.uint8))
    want = [sums(records, draws, stream, q) for q in (0.02, 1.0)]
    assert np.array_equal(np.load(tmp_path / "sums.npy"), want)
