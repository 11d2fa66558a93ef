"""Every layout and type of the records gives the same bits; their public maps, and threads, change nothing."""

import threading

import numba
import numpy as np
import pytest

from pgbb_fast.kernels import cpu, reference
from pgbb_fast.kernels.arguments import NO_MAP, Draws, Mechanism, Records, Stream
from pgbb_fast.kernels.cpu.order import to_block_order
from pgbb_fast.kernels.cpu.threads import run

GRID = 2**32
N, P, K, S = 3_001, 5, 3, 7


def problem(p: int = P, dtype: type = np.float32):
    """Records in block order in one packed table, draws and a stream; integer types hold -100 .. 100 or 0 .. 200."""
    rng = np.random.default_rng([3, p])
    if np.dtype(dtype).kind == "f":
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


def layouts(table, block, table_map=NO_MAP, id_types=(np.int32,)):
    """The same records: separate or packed response, block ids or block order."""
    x, y, none = np.ascontiguousarray(table[:, :-1]), np.ascontiguousarray(table[:, -1]), np.empty(0, np.int32)
    empty = np.empty(0, table.dtype)
    starts = np.searchsorted(block, np.arange(S + 2)).astype(np.int64)
    for ids in id_types:
        yield Records(x, y, block.astype(ids), map=table_map)
    yield Records(table, empty, none, starts, table_map)


def sums(records, draws, stream, q, loss="huber_concomitant"):
    return cpu.gradient_sums(loss, True, records, draws, Mechanism(2.5, int(q * GRID), 0.0), stream)


@pytest.mark.parametrize("q", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("p", [3, 8, 15, 20])
def test_layouts_agree_to_the_bit(p, q):
    table, block, draws, stream = problem(p)
    results = [sums(records, draws, stream, q) for records in layouts(table, block)]
    for result in results[1:]:
        assert np.array_equal(result, results[0])


def test_block_ids_of_any_width_agree_to_the_bit():
    table, block, draws, stream = problem()
    types = (np.uint8, np.uint16, np.uint32, np.int32)
    results = [sums(records, draws, stream, 0.3) for records in layouts(table, block, id_types=types)]
    for result in results[1:]:
        assert np.array_equal(result, results[0])


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.uint8, np.uint16, np.float32, np.float64])
def test_compact_records_are_decoded_in_the_tile(dtype):
    """The same numbers as float32 records made by the map's own two operations, a fused one and a clip."""
    table, block, draws, stream = problem(dtype=dtype)
    low, high = (-1.0, 1.0) if np.dtype(dtype).kind == "f" else (0.0, 180.0) if low_is_zero(dtype) else (-90.0, 90.0)
    slope, offset = np.float32(2 / (high - low)), np.float32(-(high + low) / (high - low))
    table_map = np.tile(np.array([slope, offset], dtype=np.float32), (P + 1, 1))
    exact = table.astype(np.float32).astype(np.float64) * np.float64(slope) + np.float64(offset)
    plain = np.clip(exact.astype(np.float32), -1, 1)
    assert np.dtype(dtype).kind == "f" or (np.abs(plain) == 1).any()
    for records, want in zip(layouts(table, block, table_map), layouts(plain, block), strict=True):
        assert np.array_equal(sums(records, draws, stream, 1.0), sums(want, draws, stream, 1.0))
        want_64 = reference.regression_step(
            "huber_concomitant", True, records, draws, Mechanism(2.5, GRID, 0.0), stream
        )
        assert np.abs(sums(records, draws, stream, 1.0) - want_64).max() <= 1e-5 * np.abs(want_64).max()


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
