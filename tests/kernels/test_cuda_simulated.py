"""Every CUDA kernel on the simulator: the reference within its derived tolerance, and the CPU kernels' bits.

This module is run once on the simulator, in a process of its own; the tests compare what it wrote.
"""

import math
import sys

import numpy as np
import pytest

from pgbb_fast.kernels import reference
from pgbb_fast.kernels.arguments import Draws, Mechanism, Records, Stream
from tests.kernels import simulator
from tests.kernels.cases import GRID, LOCATION, REGRESSION, expected, problem, tolerance
from tests.kernels.test_random import VECTORS  # of RFC 8439
from tests.problems import bfloat16

RATES = (1.0, 0.3, 0.02)     # everything, a mask, skips


LOSSES = REGRESSION + LOCATION


def case(loss, n, p, K, S, q, intercept=True, clip=0.7, noise=1.5):
    """(loss, intercept, records, draws, mechanism, stream)."""
    records, draws, stream, _ = problem(loss, n, p, K, S, intercept)
    return loss, intercept, records, draws, Mechanism(clip, math.floor(q * GRID), noise), stream


def compact(dtype, packed, ordered, q=1.0, n=201, p=5, K=2, S=7):
    """Integers under a public map, the response beside or packed, block ids or block order."""
    rng = np.random.default_rng([5, n])
    low = 0 if np.dtype(dtype).kind == "u" else -100
    table = rng.integers(low, low + 201, (n, p + 1)).astype(dtype)
    block = np.sort(rng.integers(0, S + 1, n))
    table_map = np.tile(np.array([1 / 90, -100 / 90 if low == 0 else 0], np.float32), (p + 1, 1))
    x, y = table, table[:0, 0]
    if not packed:
        x, y = np.ascontiguousarray(table[:, :-1]), np.ascontiguousarray(table[:, -1])
    starts = np.searchsorted(block, np.arange(S + 2)).astype(np.int64)
    ids = np.empty(0, np.uint8) if ordered else block.astype(np.uint16)
    records = Records(x, y, ids, starts if ordered else np.empty(0, np.int64), table_map)
    weights = np.zeros((K, S + 1))
    weights[:, :S] = rng.dirichlet(np.ones(S), K)
    draws = Draws(np.abs(rng.normal(0, 0.5, (K, p + 2))) + 0.1, weights, np.tile([1.345, 0.71], (K, 1)))
    stream = Stream(rng.integers(0, 2**32, 8), 5)
    return "huber_concomitant", True, records, draws, Mechanism(2.5, math.floor(q * GRID), 1.0), stream


def as_half(values, encoding):
    """Numbers as float16, bfloat16 (cut) or, for any other name, that type."""
    if encoding == "bfloat16":
        return bfloat16(values)
    return np.asarray(values).astype(encoding)


def half(x_type, y_type, q=1.0, n=150, p=4, K=2):
    """Features and response in 16 bits, or one of them; y_type None: the response is the last column."""
    _, _, records, draws, mechanism, stream = case("huber_concomitant", n, p, K, 5, q)
    x, y = records.x * np.float32(0.9), records.y
    x[::7] *= np.float32(2.0**-20)      # float16 has them below its normal range
    if y_type is None:
        records = records._replace(x=as_half(np.column_stack([x, y]), x_type), y=as_half(y[:0], x_type))
    else:
        records = records._replace(x=as_half(x, x_type), y=as_half(y, y_type))
    return "huber_concomitant", True, records, draws, mechanism, stream


HALF_MOMENTS = {"float16": ("float16", None), "bfloat16": ("bfloat16", "bfloat16"), "both": ("float16", "bfloat16")}


def spoiled(loss, bad):
    """A record that isn't finite, or far too large."""
    made = case(loss, 90, 2, 2, 3, 1.0, clip=0.5)
    made[2].x[5, 0] = bad
    return made


def cases():
    """Name of a case to its arguments."""
    made = {}
    for loss in LOSSES:
        for q in RATES:
            made[f"{loss}, q = {q}"] = case(loss, 200, 4, 3, 5, q)
        made[f"{loss}, no intercept, many features"] = case(loss, 20, 35, 1, 5, 1.0, intercept=False)
        made[f"{loss}, not finite"] = spoiled(loss, math.nan)
    made["mean, infinite"] = spoiled("mean", math.inf)
    made["huber_fixed, huge"] = spoiled("huber_fixed", 1e30)
    for n in (1, 15, 16, 17, 63, 64, 65, 129):
        made[f"ragged, n = {n}"] = case("huber_concomitant", n, 2, 2, 3, 0.5)
    made["ragged, n = 65, all"] = case("huber_concomitant", 65, 2, 1, 3, 1.0)
    made["empty sample"] = case("huber_fixed", 200, 2, 2, 3, 1 / GRID)
    made["blocks of size 1"] = case("quantile_gaussian", 40, 3, 2, 40, 1.0)
    made["more weights than shared memory"] = case("logistic", 40, 2, 2, 4_100, 0.4)
    made["many draws in parts, skips"] = case("huber_concomitant", 900, 18, 9, 5, 0.02)
    made["many draws in parts, all"] = case("huber_concomitant", 200, 18, 6, 5, 1.0)
    made["many draws"] = case("quantile_gaussian", 30, 2, 13, 5, 0.5)
    made["many features, skips"] = case("quantile_logistic", 2_000, 34, 1, 5, 0.01)
    made["several chunks of skips"] = case("huber_fixed", 30_000, 1, 1, 3, 0.02)
    for dtype in (np.int8, np.uint8, np.int16, np.uint16, np.float32):
        made[f"{np.dtype(dtype)}, packed, block order"] = compact(dtype, True, True)
    for encoding in ("float16", "bfloat16"):
        made[f"{encoding}, packed"] = half(encoding, None)
        made[f"{encoding}, mask"] = half(encoding, encoding, q=0.4)
        made[f"{encoding}, skips"] = half(encoding, "float32", q=0.02, n=900)
        made[f"{encoding}, many features"] = half(encoding, None, n=20, p=35, K=1)
        made[f"{encoding}, response only"] = half("float32", encoding)
    made["float16 and bfloat16"] = half("float16", "bfloat16")
    made["float16 and uint16"] = half("float16", "uint16")
    made["int8 beside"] = compact(np.int8, False, False)
    made["int32"] = compact(np.int32, True, False)
    made["int16, mask"] = compact(np.int16, True, False, q=0.4)
    made["uint8, many features"] = compact(np.uint8, True, True, p=33, n=30, K=1)
    return made


MOMENTS = [*LOSSES, "several blocks of pairs", *HALF_MOMENTS]


def moment_case(name):
    """(loss, intercept, records, draws, clip)."""
    if name in LOSSES:
        loss, intercept, records, draws, _, _ = case(name, 75, 3, 2, 5, 1.0)
    elif name in HALF_MOMENTS:
        loss, intercept, records, draws, _, _ = half(*HALF_MOMENTS[name], n=60)
    else:
        loss, intercept, records, draws, _, _ = case("quantile_gaussian", 40, 4, 3, 5, 1.0)
    return loss, intercept, records, draws, 0.6


def simulate(path: str, *names: str) -> None:
    """Run everything, or the releases named, on the simulator and write the numbers."""
    simulator.start()
    if names:
        from pgbb_fast.kernels.cuda.api import noisy_gradient

        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            np.savez(path, **{f"noisy {name}": noisy_gradient(*cases()[name]) for name in names})
        return
    from pgbb_fast.kernels.cuda import api, compile, records, sums

    assert compile.SIMULATED
    from pgbb_fast.kernels.cuda.formulas import random_words

    out = {"words": np.array([random_words(*map(int, key), *counter) for key, counter, _ in VECTORS])}
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        for name, (loss, intercept, placed, draws, mechanism, stream) in cases().items():
            out[f"noisy {name}"] = api.noisy_gradient(loss, intercept, placed, draws, mechanism, stream)
        for name in MOMENTS:
            out[f"moments {name}"] = api.score_moments(*moment_case(name))
        # streamed from the host: two whole chunks and a part
        loss, intercept, plain, draws, mechanism, stream = streamed_case()
        placed = records.place(plain, response=True, limit=0)
        out["sizes"] = np.array(placed.sizes)
        out["streamed"] = api.noisy_gradient(loss, intercept, placed, draws, mechanism, stream)
        loss, intercept, plain, draws, mechanism, stream = case("huber_concomitant", 150, 3, 2, 4, 1.0)
        source = records.Streamed(plain.x, plain.y, plain.block, 3, 64)
        placed = records.place(plain, response=True)
        placed.chunk, placed.source, placed.sizes = None, source, source.sizes
        out["streamed whole"] = api.noisy_gradient(loss, intercept, placed, draws, mechanism, stream)
        out["streamed again"] = np.array(
            [api.noisy_gradient(loss, intercept, placed, draws, mechanism, stream._replace(step=t)) for t in (11, 12)]
        )
        out["streamed moments"] = api.score_moments(loss, intercept, placed, draws, 0.6)
        out["finite"] = np.array([found_finite(bad) for bad in (0.0, math.nan, math.inf, -math.inf)])
        for encoding in ("float16", "bfloat16"):
            out[f"finite {encoding}"] = np.array([found_finite(bad, encoding) for bad in (0.0, math.nan, math.inf)])
        out |= {f"unit {dtype}": unit_columns(dtype) for dtype in UNIT_TYPES}
        # sums leave the 32-bit registers in time: here after 2 terms
        sums.MOST = 2
        from pgbb_fast.kernels.cuda import steps as gpu

        gpu.sums_kernel.cache_clear()
        for name, q in (("all", 1.0), ("mask", 0.5)):
            loss, intercept, plain, draws, mechanism, stream = case("huber_concomitant", 600, 1, 1, 4, q)
            out[f"flushed {name}"] = api.noisy_gradient(loss, intercept, plain, draws, mechanism, stream)
    np.savez(path, **out)


def found_finite(bad, encoding="") -> bool:
    """What the finite kernel says of a table with one such number, by row and by column."""
    from pgbb_fast.kernels.cuda.finite import THREADS, _find_kernel

    said = []
    for strides in ((3, 1), (1, 70)):
        table = np.linspace(-1, 1, 210).astype(np.float32)
        table[207] = bad
        found = np.zeros(1, np.int32)
        stored = as_half(table, encoding).view(np.uint16) if encoding else table
        _find_kernel(encoding)[1, THREADS](stored, 70, 3, *strides, found)
        said.append(found[0] == 0)
    assert said[0] == said[1]
    return said[0]


UNIT_TYPES = ("float64", "float32", "int16")
UNIT_MAP = np.array([[-3.0, 4.0], [1990.0, 2020.0]]), np.array([0.5, 2005.0]), np.array([3.5, 15.0])


def unit_case(dtype):
    """Numbers in and out of two columns' bounds."""
    rng = np.random.default_rng(2)
    return np.column_stack([rng.normal(0, 5, 150), rng.normal(2000, 20, 150)]).astype(dtype)


def unit_columns(dtype) -> np.ndarray:
    """What the kernel makes of them, by row and by column."""
    from pgbb_fast.kernels.cuda.unit import THREADS, _to_unit_kernel

    x, (bounds, centre, radius) = unit_case(dtype), UNIT_MAP
    public, said = [np.ascontiguousarray(part) for part in (*bounds.T, centre, radius)], []
    for flat, strides in ((x.reshape(-1), (2, 1)), (x.T.reshape(-1), (1, len(x)))):
        out = np.zeros(x.size, np.float32)
        _to_unit_kernel()[2, THREADS](np.ascontiguousarray(flat), *x.shape, *strides, *public, out)
        said.append(out)
    assert np.array_equal(*said)
    return said[0].reshape(2, -1).T


def streamed_case():
    """2.3 chunks of the sampler's largest size, a few hits in each."""
    n = 2 * 2**20 + 300_000
    rng = np.random.default_rng(9)
    x, y = rng.integers(-100, 101, (n, 2)).astype(np.int8), rng.integers(-100, 101, n).astype(np.int8)
    table_map = np.tile(np.array([0.01, 0.0], np.float32), (3, 1))
    records = Records(x, y, rng.integers(0, 5, n).astype(np.uint8), map=table_map)
    weights = np.zeros((2, 5))
    weights[:, :4] = rng.dirichlet(np.ones(4), 2)
    draws = Draws(rng.normal(0, 0.5, (2, 3)), weights, np.tile([1.345, 0.1], (2, 1)))
    return "huber_fixed", True, records, draws, Mechanism(1.5, 300_000, 1.0), Stream(rng.integers(0, 2**32, 8), 3)


MODULE = "tests.kernels.test_cuda_simulated"
QUICK = ["quantile_gaussian, q = 0.3"]      # what is run without the slow tests


@pytest.fixture(scope="module")
def simulated(common_folder):
    """What the simulator computed."""
    return simulator.simulated_by(MODULE, common_folder)


@pytest.mark.slow
def test_the_cipher_of_the_kernels_matches_the_rfc(simulated):
    wanted = [[int(word, 16) for word in words.split()] for _, _, words in VECTORS]
    assert simulated["words"].tolist() == wanted


def test_a_quick_release_equals_the_reference(common_folder):
    got = simulator.simulated_by(MODULE, common_folder, *QUICK)
    for name in QUICK:
        check(got[f"noisy {name}"], *cases()[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", list(cases()))
def test_a_release_equals_the_reference(simulated, name):
    check(simulated[f"noisy {name}"], *cases()[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", [f"{loss}, q = {q}" for loss in LOSSES for q in RATES])
def test_a_release_has_the_bits_of_the_cpu(simulated, name):
    """The same minibatch, the same roundings and the same noise."""
    from pgbb_fast.kernels import cpu

    got = simulated[f"noisy {name}"]
    assert np.array_equal(got, cpu.noisy_gradient(*cases()[name]))
    quiet = cases()[name]
    noise = reference.noise(got.shape, quiet[4], quiet[5])
    assert np.array_equal(got - noise, cpu.gradient_sums(*quiet))


def check(got, loss, intercept, records, draws, mechanism, stream):
    """A release against the reference, within the tolerance of single precision; the noise is the same."""
    want = expected(loss, intercept, records, draws, mechanism, stream)
    noise = reference.noise(draws.theta.shape, mechanism, stream)
    assert got.shape == want.shape
    assert np.abs(got - noise - want).max() <= allowed(loss, records, draws, mechanism, stream)


def allowed(loss, records, draws, mechanism, stream):
    """The CPU kernels' tolerance; numbers under a map are within [-1, 1], with two more roundings each; numbers of 16
    bits are what they are."""
    if records.map.size or records.x.dtype.itemsize == 2 or records.y.dtype.itemsize == 2:
        x, y, _ = reference.steps.decoded(records, draws.theta.shape[1] - 2)
        records = Records(x, y, records.block)
    finite = records._replace(x=np.where(np.abs(records.x) <= 1e3, records.x, 0.0))
    return tolerance(loss, finite, draws, mechanism, stream)


@pytest.mark.slow
@pytest.mark.parametrize("name", MOMENTS)
def test_score_moments_equal_the_reference(simulated, name):
    loss, intercept, records, draws, clip = moment_case(name)
    want = reference.score_moments(loss, intercept, records, draws, clip)
    got = simulated[f"moments {name}"]
    # each product of at most one carries fewer than 64 roundings of 2^-53, and is truncated to the grid of 2^-32
    assert np.abs(got - want).max() <= len(records.x) * (1 + 64 * 2.0**-53 * GRID)
    assert np.array_equal(got, got.T)


@pytest.mark.slow
def test_records_streamed_in_chunks_give_the_same_release(simulated):
    assert simulated["sizes"].tolist() == [2**20, 2**20, 300_000]
    loss, intercept, records, draws, mechanism, stream = streamed_case()
    check(simulated["streamed"], loss, intercept, records, draws, mechanism, stream)
    drawn = reference.minibatch(stream.key, stream.step, len(records.x), mechanism.threshold)
    assert all(drawn[start : start + 2**20].any() for start in range(0, len(drawn), 2**20))
    loss, intercept, records, draws, mechanism, stream = case("huber_concomitant", 150, 3, 2, 4, 1.0)
    for got, step in ((simulated["streamed whole"], 11), *zip(simulated["streamed again"], (11, 12), strict=True)):
        check(got, loss, intercept, records, draws, mechanism, stream._replace(step=step))
    want = reference.score_moments(loss, intercept, records, draws, 0.6)
    assert np.abs(simulated["streamed moments"] - want).max() <= len(records.x) * (1 + 64 * 2.0**-53 * GRID)


@pytest.mark.slow
def test_numbers_that_are_not_finite_are_found(simulated):
    assert simulated["finite"].tolist() == [True, False, False, False]
    for encoding in ("float16", "bfloat16"):
        assert simulated[f"finite {encoding}"].tolist() == [True, False, False]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", UNIT_TYPES)
def test_columns_mapped_on_the_device_have_the_bits_of_the_host(simulated, dtype):
    bounds, centre, radius = UNIT_MAP
    inside = np.clip(unit_case(dtype).astype(np.float64), bounds[:, 0], bounds[:, 1])
    assert (inside != unit_case(dtype)).any(axis=0).all()
    assert np.array_equal(simulated[f"unit {dtype}"], ((inside - centre) / radius).astype(np.float32))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "q"), [("all", 1.0), ("mask", 0.5)])
def test_sums_leave_32_bits_in_time(simulated, name, q):
    check(simulated[f"flushed {name}"], *case("huber_concomitant", 600, 1, 1, 4, q))


if __name__ == "__main__":
    simulate(*sys.argv[1:])
