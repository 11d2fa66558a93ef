"""Records are read where the user has them: the same results as from copies, and no copy in memory."""

import array
import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from pgbb_fast import DataError, PrivateHuberRegressor, PrivateMean, PrivateQuantileRegressor
from pgbb_fast.intake import records
from pgbb_fast.intake.design import FARTHEST, Design, unit_map
from pgbb_fast.kernels import cpu, reference
from pgbb_fast.kernels.arguments import BFLOAT16, Draws, Mechanism, Records, Stream, as_double
from tests.problems import bfloat16

SETTINGS = {"epsilon": 2.0, "delta": 1e-4, "steps": 60, "n_blocks": 5, "seed": 1}
# half-widths are powers of two, so that a map's slope and offset, and what comes out, are exact either way
REGRESSION = {"x_bounds": [(-4.0, 4.0), (0.0, 8.0)], "y_bounds": (-8.0, 8.0), **SETTINGS}


def numbers(dtype, n: int = 2_000):
    """Whole numbers and, for real types, some with a fraction of two bits; a few out of bounds."""
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.integers(-5, 6, n), rng.integers(0, 10, n)])
    y = np.clip(x @ [1, -1] + rng.integers(-2, 3, n), -9, 9)
    if np.dtype(dtype).kind == "u":
        x, y = np.abs(x), np.abs(y)
    elif dtype == BFLOAT16 or np.dtype(dtype).kind == "f":
        x, y = x + 0.25 * rng.integers(0, 2, x.shape), y + 0.25
    if dtype == BFLOAT16:
        return bfloat16(x), bfloat16(y)
    return x.astype(dtype), y.astype(dtype)


KERNEL_TYPES = [np.float64, np.float32, np.float16, BFLOAT16, np.int8, np.int16, np.int32, np.uint8, np.uint16]
COPIED_TYPES = [np.int64, np.uint32, np.uint64, np.longdouble, np.dtype(">f4"), np.dtype(">i8")]
# no half-width or centre is a number of single precision, so that the order of roundings shows
UNEVEN = {"x_bounds": [(-4.1, 5.3), (0.1, 7.9)], "y_bounds": (-7.7, 8.1), **SETTINGS}


def types(X, y):
    """The numbers of whole-number arrays X and y in every type: (name, X, y)."""
    for kind in KERNEL_TYPES + COPIED_TYPES:
        if kind == BFLOAT16:
            bits = (a.astype(np.float32).view(np.uint32) >> 16 for a in (X, y))
            yield "bfloat16", *(a.astype(np.uint16).view(kind) for a in bits)
        else:
            yield str(kind), X.astype(kind), y.astype(kind)


def layouts(X, y):
    """And in every layout and container."""
    yield from types(X, y)
    single = X.astype(np.float32)
    wide, tall = np.zeros((len(X), 5), np.float32), np.zeros((3 * len(X), 2), np.int16)
    wide[:, 1::2], tall[::3] = X, X
    yield "Fortran", np.asfortranarray(X.astype(np.float64)), y.astype(np.float64)
    yield "columns of a wider array", wide[:, 1::2], np.repeat(y, 2)[::2]
    yield "rows of a longer array", tall[::3], y.astype(np.float16)
    yield "backwards", np.ascontiguousarray(single[::-1])[::-1], np.ascontiguousarray(y[::-1])[::-1]
    yield "lists of whole numbers", X.tolist(), y.tolist()
    yield "lists of one fraction", [*X.tolist()[:-1], X[-1].astype(float).tolist()], [*y.tolist()[:-1], float(y[-1])]
    yield "tuples of NumPy numbers", tuple(tuple(row) for row in single), tuple(y)
    yield "masked, nothing hidden", np.ma.masked_array(X, mask=False), np.ma.masked_array(y.astype(np.float64))
    yield "index", X, pd.Index(y)
    yield "structured", np.array([tuple(row) for row in X], dtype=[("a", np.int8), ("b", np.float64)]), y
    yield "frame", pd.DataFrame(X), pd.Series(y)
    yield "frame of two types", pd.DataFrame({"a": X[:, 0].astype(np.int8), "b": X[:, 1] * 1.0}), pd.Series(y * 1.0)
    yield "nullable", pd.DataFrame(X).astype("Int16"), pd.Series(y).astype("Int64")
    yield "Arrow in a frame", pd.DataFrame(X).astype("int32[pyarrow]"), pd.Series(y).astype("double[pyarrow]")
    table = pa.table({"a": X[:, 0], "b": X[:, 1] * 1.0})
    yield "Arrow table", table, pa.chunked_array([y[:700], y[700:]])
    yield "record batch", table.to_batches()[0], pa.array(y, pa.int16())
    yield "tensor", torch.from_numpy(X), torch.from_numpy(single[:, 0] * 0 + y).requires_grad_()
    yield "buffers", memoryview(X), array.array("d", y.tolist())


@pytest.fixture
def copied(monkeypatch):
    """A function that runs another with every array taken for one that has to be copied."""

    def run(function):
        with monkeypatch.context() as patch:
            patch.setattr(records, "in_place", lambda array: None)
            return function()

    return run


def released(model) -> np.ndarray:
    return model.posterior_.mean()


@pytest.mark.parametrize(
    "dtype",
    [np.float64, np.float32, np.float16, BFLOAT16, np.int8, np.int16, np.int32, np.uint8, np.uint16],
    ids=str,
)
def test_a_fit_is_the_same_to_the_bit_as_one_on_copies(dtype, copied):
    X, y = numbers(dtype)
    want = copied(lambda: released(PrivateHuberRegressor(**REGRESSION).fit(X, y)))
    assert np.array_equal(released(PrivateHuberRegressor(**REGRESSION).fit(X, y)), want)


def test_the_same_numbers_give_the_same_bits_whatever_their_type():
    """One record must not decide, by the type that it gives a column, how all the others are rounded."""
    X, y = (np.abs(part) for part in numbers(np.int64))
    found = {name: released(PrivateHuberRegressor(**UNEVEN).fit(*data)) for name, *data in types(X, y)}
    assert len(found) == len(KERNEL_TYPES + COPIED_TYPES)
    first = found.pop("<class 'numpy.float64'>")
    assert [name for name, mean in found.items() if not np.array_equal(mean, first)] == []


@pytest.mark.parametrize("single", [True, False], ids=["single precision", "double precision"])
def test_the_same_numbers_are_the_same_records_in_every_layout_and_container(single):
    """What the kernels are given, read as they read it: numbers in single precision, and the map of them."""
    X, y = (np.abs(part) for part in numbers(np.int64, 200))
    ends = UNEVEN["x_bounds"] if single else [(-2_000.1, -1_990.3), (0.1, 7.9)]
    design = Design(("a", "b"), np.array(ends), UNEVEN["y_bounds"], True, (1, 1))
    assert (design.maps[0] is not None) == single
    found = {}
    for name, x, response in layouts(X, y):
        x, response = records.features("fit", x, 2)[0], records.target("fit", response, len(y))
        x, response, table = design.unit_records(x, response)
        found[name] = [*(as_double(part).astype(np.float32) for part in (x, response)), table]
    assert len(found) == len(KERNEL_TYPES + COPIED_TYPES) + 18
    first = found.pop("<class 'numpy.float64'>")
    assert np.array_equal(first[0], X) == single
    differ = [n for n, other in found.items() if not all(map(np.array_equal, other, first))]
    assert differ == []


@pytest.mark.parametrize("bounds", ["near", "far"])
def test_numbers_with_fractions_too_and_what_decides_is_public(bounds):
    """Bounds far from zero for their width are mapped in double precision, for all types alike."""
    shift = 0.0 if bounds == "near" else 2_000.0
    X, y = numbers(np.float64, 1_500)
    settings = {"x_bounds": [(-4.1 + shift, 5.3 + shift), (0.1, 7.9)], "y_bounds": (-7.7, 8.1)}
    design = Design(("a", "b"), np.array(settings["x_bounds"]), settings["y_bounds"], True, (1, 1))
    assert (design.maps[0] is None) == (bounds == "far")
    X = X + np.array([shift, 0.0])
    data = [(X, y), (X.tolist(), y.tolist()), (X.astype(np.float32), y.astype(np.float16)),
            (X.astype(np.longdouble), y.astype(np.float64)), (np.asfortranarray(X), y.astype(">f8"))]  # fmt: skip
    found = []
    for x, response in data:
        x, response = records.features("fit", x, 2)[0], records.target("fit", response, 1_500)
        x, response, table = design.unit_records(x, response)
        as_read = (np.float32(as_double(part)).astype(np.float64) for part in (x, response))
        found.append([*as_read, table])
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(other, found[0], strict=True))


def test_a_year_with_a_fraction_moves_no_other_record():
    """One 1960.5 makes a column of years one of floats: the other records stay, to the bit, also in the moments."""
    rng = np.random.default_rng(6)
    years, y = rng.integers(1900, 2000, (1_000, 2)), rng.integers(-8, 9, 1_000)
    design = Design(("a", "b"), np.array([[1900.0, 1999.0], [1000.0, 2000.0]]), (-7.7, 8.1), True, (1, 1))
    changed = years.astype(np.float64)
    changed[123, 0] = 1960.5
    draws = Draws(np.array([[0.1, 0.5, -0.25, 0.7]]), np.array([[1.0, 0.0]]), np.array([[1.345, 0.71]]))
    rest = np.where(np.arange(1_000) == 123, 1, 0).astype(np.uint8)     # the record itself takes no part
    sums = []
    for X in (years, changed, years.astype(np.int16), pd.DataFrame(changed).astype({1: int}).to_numpy()):
        x, response, table = design.unit_records(X, y.astype(np.float32))
        some = Records(x, response, rest, map=table)
        mechanism, stream = Mechanism(2.5, 2**32, 0.0), Stream(np.arange(8), 1)
        sums.append((cpu.gradient_sums("huber_concomitant", True, some, draws, mechanism, stream),
                     cpu.score_moments("huber_concomitant", True, some, draws, 2.5)))  # fmt: skip
    for gradient, moment in sums[1:]:
        assert np.array_equal(gradient, sums[0][0])
        assert np.array_equal(moment, sums[0][1])


def test_moments_round_stored_numbers_as_the_sums_do():
    """To single precision, before the map: 2^24 + 1 in double precision or as an integer is 2^24."""
    draws = Draws(np.array([[0.1, 0.5, 0.7]]), np.array([[1.0, 0.0]]), np.array([[1.345, 0.71]]))
    found = []
    for x in (np.float64, np.int32, np.float32):
        values = np.array([[2**24 + 1], [5], [-(2**24) - 3]]).astype(x)
        table = np.array([[2.0**-25, 0.0], [1.0, 0.0]], np.float32)
        some = Records(values, np.zeros(3, np.float32), np.zeros(3, np.uint8), map=table)
        found.append(cpu.score_moments("huber_concomitant", True, some, draws, 2.5))
        want = reference.score_moments("huber_concomitant", True, some, draws, 2.5)
        assert np.abs(found[-1] - want).max() <= 3 * (1 + 64 * 2.0**-53 * 2.0**32)
    assert np.array_equal(found[1], found[0])
    assert np.array_equal(found[2], found[0])


@pytest.mark.parametrize("cls", [PrivateHuberRegressor, PrivateQuantileRegressor])
def test_stored_by_columns_as_in_a_data_frame(cls, copied):
    X, y = numbers(np.float32)
    frame = pd.DataFrame(X)
    assert not frame.to_numpy().flags.c_contiguous
    want = copied(lambda: released(cls(**REGRESSION).fit(X, y)))
    assert np.array_equal(released(cls(**REGRESSION).fit(frame, pd.Series(y))), want)


def test_tensors_of_half_precision(copied):
    X, y = numbers(np.float32)
    want = copied(lambda: released(PrivateHuberRegressor(**REGRESSION).fit(X, y)))
    for dtype in (torch.float16, torch.bfloat16):
        tensors = torch.from_numpy(X).to(dtype), torch.from_numpy(y).to(dtype)
        assert np.array_equal(released(PrivateHuberRegressor(**REGRESSION).fit(*tensors)), want)


@pytest.mark.parametrize("where", [0, 1])
def test_bfloat16_values_that_are_no_records_are_refused(where):
    data = numbers(BFLOAT16)
    data[where].view(np.uint16).flat[7] = 0x7FC0
    with pytest.raises(DataError, match="nan or infinite"):
        PrivateHuberRegressor(**REGRESSION).fit(*data)


def test_means(copied):
    X, _ = numbers(np.int16)
    settings = {"x_bounds": REGRESSION["x_bounds"], **SETTINGS}
    want = copied(lambda: released(PrivateMean(**settings).fit(X)))
    assert np.array_equal(released(PrivateMean(**settings).fit(X)), want)


@pytest.mark.parametrize("intercept", [True, False])
def test_what_is_read_in_place_and_what_is_copied(intercept):
    symmetric = ((-4.0, 4.0), (-8.0, 8.0))

    def made(dtype=np.float32, x_bounds=symmetric, y_bounds=(-8.0, 8.0), degrees=(1, 1), step=1):
        X, y = numbers(dtype)
        X, y = X[::step], y[::step]
        chosen = Design(("a", "b"), np.array(x_bounds), y_bounds, intercept, degrees)
        x, response, table = chosen.unit_records(X, y)
        assert len(table) in (0, sum(degrees) + 1)
        return np.shares_memory(x, X), np.shares_memory(response, y)

    assert made() == (True, True)
    assert made(step=2) == (False, False)
    assert made(np.longdouble) == (False, False)
    assert made(np.dtype(">f4")) == (False, False)
    assert made(degrees=(1, 2)) == (False, True)
    assert made(x_bounds=((1990.0, 2020.0), (0.0, 8.0))) == (False, True)
    assert made(y_bounds=(0.0, 8.0)) == (True, intercept)       # [0, 8] goes to [0, 1] without an intercept
    assert made(x_bounds=((0.0, 4.0), (-8.0, 8.0))) == (intercept, True)


def test_mixed_records_equal_copies(copied):
    X, y = numbers(np.float32)
    settings = {**REGRESSION, "feature_names": ["a", "b"], "degrees": {"b": 2}}
    want = copied(lambda: released(PrivateHuberRegressor(**settings).fit(X, y)))
    assert np.array_equal(released(PrivateHuberRegressor(**settings).fit(X, y)), want)


def test_the_map_is_as_accurate_as_stated():
    rng = np.random.default_rng(3)
    for _ in range(200):
        radius, ratio = float(10 ** rng.uniform(-6, 6)), rng.uniform(-1, 1) * (FARTHEST - 1)
        low, high = radius * (ratio - 1), radius * (ratio + 1)
        table = unit_map(low, high)
        assert table is not None
        x = rng.uniform(low, high, 100)
        exact = (x - (low + high) / 2) / ((high - low) / 2)
        a, b = table[0].astype(np.float64)
        got = np.float32(a * x.astype(np.float32).astype(np.float64) + b)      # the kernel's fused step
        assert np.abs(got - exact).max() <= (3 * FARTHEST + 1) * 2.0**-24 < 2.0**-16
    assert unit_map(1990.0, 2020.0) is None


@pytest.mark.parametrize(("y_bounds", "said"), [((-7.7, 8.1), False), ((-1e6, 1e6), True)])
def test_bounds_far_wider_than_the_response_are_said_where_they_end_an_interval(y_bounds, said):
    """The scale is at least a thousandth of half the range: far above what y has, its interval begins there."""
    X, y = numbers(np.float32)
    settings = {**UNEVEN, "y_bounds": y_bounds, "epsilon": 8.0, "steps": 300}
    posterior = PrivateHuberRegressor(**settings).fit(X, y).posterior_
    assert any("An interval ends where" in line for line in posterior.summary().advice) == said
    low, high = posterior.interval()[-1]
    assert (low == 1_000.0) == said
    assert high > low
    assert np.isfinite(posterior.interval()).all()


@pytest.mark.slow
def test_a_fit_allocates_less_than_three_tenths_of_the_records():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (2_000_000, 5)).astype(np.float32)
    y = (X[:, 0] + 0.1 * rng.standard_normal(len(X), dtype=np.float32)).astype(np.float32)
    model = PrivateHuberRegressor(x_bounds=[(-1.0, 1.0)] * 5, y_bounds=(-2.0, 2.0), **SETTINGS)
    small = slice(0, 5_000)
    PrivateHuberRegressor(x_bounds=[(-1.0, 1.0)] * 5, y_bounds=(-2.0, 2.0), **SETTINGS).fit(X[small], y[small])
    tracemalloc.start()
    try:
        model.fit(X, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.3 * (X.nbytes + y.nbytes)


def test_decoding_in_double_precision_is_exact():
    X, _ = numbers(BFLOAT16)
    assert np.array_equal(as_double(X), (X.view(np.uint16).astype(np.uint32) << 16).view(np.float32))
    assert records.in_place(np.ones(3, np.bool_)).dtype == np.uint8
