"""Records are read where the user has them: the same results as from copies, and no copy in memory."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
import torch

from pgbb_fast import DataError, PrivateHuberRegressor, PrivateMean, PrivateQuantileRegressor
from pgbb_fast.estimators import design, location, records
from pgbb_fast.estimators.design import FARTHEST, Design, unit_map
from pgbb_fast.kernels.arguments import BFLOAT16, as_double

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
        return tuple((a.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(dtype) for a in (x, y))
    return x.astype(dtype), y.astype(dtype)


@pytest.fixture
def copied(monkeypatch):
    """A function that runs another with every array taken for one that has to be copied."""

    def run(function):
        with monkeypatch.context() as patch:
            patch.setattr(design, "in_place", lambda array: None)
            patch.setattr(location, "in_place", lambda array: None)
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
