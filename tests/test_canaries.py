"""What is passed as records shows nowhere, whatever it is passed in: not in messages, chained errors, warnings, logs,
output, names, reprs or files.  Two sets of values in the same container must make the package say the same."""

import io
import logging
import tempfile
import traceback
import warnings
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from pgbb_fast import (
    PgbbError,
    PrivateExpectileRegressor,
    PrivateGeneralisedRegressor,
    PrivateHuberRegressor,
    PrivateLogisticRegressor,
    PrivateMean,
    PrivateMEstimator,
    PrivateQuantileRegressor,
)
from pgbb_fast.baselines import (
    DPSGLD,
    NoisyGibbsMean,
    NoisyGibbsRegressor,
    NoisyNewton,
    NonPrivateBayesianBootstrap,
)
from pgbb_fast.bootstrap import BLBQuantiles, Custom, DPBootstrap, Mean, MOutOfNBootstrap, RegularisedRegression
from pgbb_fast.errors import DataError
from pgbb_fast.intake import records
from tests import containers

CANARIES = ("918273", "645546")
ROWS = ([[918273.25, 918273.5], [3.0, 4.0], [645546.75, -918273.0], [1.0, 2.0]],
        [[5.0, 6.25], [918273645546.0, 7.0], [645546918273.5, 8.0], [9.0, 918273.0]])  # fmt: skip
Y = ([918273.0, 1.0, 645546.0, 3.0], [2.0, 645546918273.0, 5.0, 7.0])


def heard(call):
    """What ``call`` says in every way, and what it returns; nothing may carry a canary."""
    out, log = io.StringIO(), io.StringIO()
    handler = logging.StreamHandler(log)
    root, level = logging.getLogger(), logging.getLogger().level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    result, error, chained, trace = None, None, [], ""
    try:
        with warnings.catch_warnings(record=True) as caught, redirect_stdout(out), redirect_stderr(out):
            warnings.simplefilter("always")
            try:
                result = call()
            except PgbbError as raised:
                error = f"{type(raised).__name__}: {raised}"
                chained = [raised.__cause__, raised.__context__]
                trace = "".join(traceback.format_exception(raised))
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    said = [error or "", trace, out.getvalue(), log.getvalue(), *(str(warning.message) for warning in caught)]
    assert chained in ([], [None, None])
    assert not [canary for canary in CANARIES for text in said if canary in text]
    assert not caught
    assert not said[2]
    return result, error


def kinds(make, values):
    return [(name, good) for name, good, _ in make(values)]


@pytest.mark.parametrize(("make", "data"), [(containers.rows, ROWS), (containers.responses, Y)], ids=["X", "y"])
def test_containers_are_read_or_refused_and_say_the_same_of_any_values(make, data):
    assert kinds(make, data[0]) == kinds(make, data[1])
    assert len(kinds(make, data[0])) > 30
    for (name, good, first), (_, _, second) in zip(make(data[0]), make(data[1]), strict=True):

        def read(values):
            if make is containers.rows:
                return lambda: records.features("fit", values, 2)
            return lambda: (records.target("fit", values, 4), ())

        (result, error), (other, other_error) = heard(read(first)), heard(read(second))
        assert (result is not None, error is None) == (good, good), (name, error)
        assert error == other_error, name
        if good:
            array, names = result
            assert names == other[1], name
            assert names in ((), ("a", "b"), ("x1", "x2"), ("0", "1")), name
            assert array.dtype == other[0].dtype
            assert len(array) == 4
        else:
            assert error.startswith("DataError: fit: "), name
            assert "\n" not in error
            assert len(error) < 260


def test_numbers_are_those_that_the_containers_hold():
    want = np.array(ROWS[0])
    exact = {"list", "frame", "table", "record batch", "table in chunks", "Arrow stream", "structured array",
             "memoryview", "object with __array__", "tensor that requires grad", "frame of sparse",
             "list of decimals"}  # fmt: skip
    seen = set()
    for name, _, values in containers.rows(ROWS[0]):
        if name in exact:
            assert np.array_equal(records.features("fit", values, 2)[0], want), name
            seen.add(name)
    assert seen == exact
    largest = next(v for name, _, v in containers.rows([[6.0, 2.0]] * 4) if name == "list of huge whole numbers")
    assert records.features("fit", largest, 2)[0][0].tolist() == [1e26, 1e22]
    assert records.target("fit", [10**400, -(10**400)], 2).tolist() == [np.finfo(float).max, np.finfo(float).min]


# ---- every public entry ---------------------------------------------------------------------------------------------

BUDGET = {"epsilon": 1.0, "delta": 1e-5}
SETTINGS = {**BUDGET, "n_blocks": 3, "steps": 40, "seed": 1}
BOUNDS = {"x_bounds": [(-1e6, 1e6)] * 2, "y_bounds": (-1e6, 1e6)}
TWO = {"x_bounds": BOUNDS["x_bounds"]}
SLOPE = {"slope": lambda y, eta: eta - y, "slope_bound": 1.0, "eta_reach": 2.0}


def squares(theta, x, y):
    return (theta[0] * x[0] - y) ** 2 / 1e12


ENTRIES = {
    "quantile": lambda: PrivateQuantileRegressor(**BOUNDS, **SETTINGS),
    "huber": lambda: PrivateHuberRegressor(**BOUNDS, **SETTINGS),
    "expectile": lambda: PrivateExpectileRegressor(**BOUNDS, **SETTINGS),
    "logistic": lambda: PrivateLogisticRegressor(**TWO, **SETTINGS),
    "generalised": lambda: PrivateGeneralisedRegressor(**BOUNDS, **SLOPE, **SETTINGS),
    "M": lambda: PrivateMEstimator(squares, **BOUNDS, coef_bounds=[(-1, 1)], clip=1.0, **SETTINGS),
    "mean": lambda: PrivateMean(**TWO, **SETTINGS),
    "m out of n": lambda: MOutOfNBootstrap(Mean(**TWO), **BUDGET),
    "n out of n": lambda: DPBootstrap(RegularisedRegression(**TWO, ridge=1.0), **BUDGET),
    "little": lambda: BLBQuantiles(Custom(lambda r: r.mean(), l=1.0, box=[(-1e6, 1e6)]), **BUDGET),
    "SGLD": lambda: DPSGLD(PrivateHuberRegressor(**BOUNDS, **SETTINGS)),
    "Newton": lambda: NoisyNewton(PrivateHuberRegressor(**BOUNDS, **SETTINGS)),
    "Gibbs": lambda: NoisyGibbsRegressor(**BOUNDS, **BUDGET),
    "Gibbs mean": lambda: NoisyGibbsMean(**TWO, **BUDGET),
    "exact": lambda: NonPrivateBayesianBootstrap("ridge"),
}
NO_RESPONSE = {"mean", "m out of n", "Gibbs mean"}
REFUSED_X = ["array of text", "frame of text", "frame of whole categories", "table of categories", "table of text",
             "ragged list", "list with one text", "masked", "relation", "object that fails and warns",
             "object that answers nothing", "dict by value", "generator", "sparse matrix"]  # fmt: skip
REFUSED_Y = ["text", "series of categories", "Arrow text", "object that answers nothing"]


@pytest.mark.parametrize("entry", list(ENTRIES))
def test_every_entry_refuses_without_a_word_of_the_values(entry):
    for chosen in range(2):
        n = 200
        x = np.array(ROWS[chosen] * (n // 4))
        bad = {name: values for name, _, values in containers.rows(x.tolist()) if name in REFUSED_X}
        assert len(bad) == len(REFUSED_X)
        for name, values in bad.items():
            y = None if entry in NO_RESPONSE or entry == "little" else x[:, 0]
            _, error = heard(lambda values=values, y=y: ENTRIES[entry]().fit(values, *([] if y is None else [y])))
            assert error is not None, name
            assert error.startswith("DataError: "), (name, error)
        if entry not in NO_RESPONSE:
            for name, _, values in containers.responses(x[:, 0].tolist()):
                if name in REFUSED_Y:
                    _, error = heard(lambda values=values, x=x: ENTRIES[entry]().fit(x, values))
                    assert error is not None, name
                    assert error.startswith("DataError: "), (name, error)


@pytest.mark.slow
@pytest.mark.parametrize("entry", ["quantile", "M", "m out of n"])
def test_what_is_released_and_saved_names_columns_and_no_values(entry, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "own"))
    (tmp_path / "own").mkdir()
    x = np.array(ROWS[0] * 50, dtype=np.float32)
    table = pa.table({"first": x[:, 0], "second": x[:, 1]})
    for number, X in enumerate((table, table.to_batches()[0], containers.ArrowStream(table), table.to_pandas())):
        model = ENTRIES[entry]()
        heard(lambda model=model, X=X: model.fit(X, *([] if entry in NO_RESPONSE else [pa.array(x[:, 0])])))
        posterior = model.posterior_
        named = {"quantile": ("intercept", "first", "second"), "M": ("theta1",)}.get(entry, ("first", "second"))
        assert posterior.names == named
        posterior.save(tmp_path / f"saved{number}")
        said = [repr(model), str(model), repr(posterior), str(posterior.summary()), model.privacy_.statement()]
        for path in tmp_path.rglob("*"):
            if path.is_file():
                said.append(path.read_bytes().decode("latin1"))
        assert len(said) > 6
        assert not [canary for canary in CANARIES for text in said if canary in text]


# ---- what goes together --------------------------------------------------------------------------------------------


def test_rows_are_put_together_by_their_labels_or_not_at_all():
    frame = pd.DataFrame({"a": np.arange(6.0), "b": 1.0})
    y = frame["a"] * 2
    assert records.target("fit", y, 6, frame).tolist() == y.tolist()
    assert records.target("fit", y.to_numpy(), 6, frame.iloc[::-1]).tolist() == y.tolist()
    for other in (y.iloc[::-1], y.set_axis(list("fedcba")), y.sample(frac=1, random_state=0)):
        with pytest.raises(DataError, match="different row labels") as caught:
            records.target("fit", other, 6, frame)
        assert caught.value.__context__ is None
    kept = frame[frame["a"] > 1]
    with pytest.raises(DataError, match="different row labels"):
        PrivateHuberRegressor(**BOUNDS, **SETTINGS).fit(kept, y.iloc[:4])
    assert records.target("fit", y.loc[kept.index], 4, kept).tolist() == [4, 6, 8, 10]


FRAMES = [
    lambda x, y: pd.DataFrame({"b": y, "a": x}),
    lambda x, y: pa.table({"b": y, "a": x}),
    lambda x, y: containers.ArrowStream(pa.table({"b": y, "a": x})),
    lambda x, y: np.array(list(zip(y, x, strict=True)), dtype=[("b", "f4"), ("a", "f8")]),
]


@pytest.mark.parametrize("make", FRAMES)
def test_a_frame_is_read_by_the_names_that_are_given(make):
    x, y = np.arange(4.0), np.arange(4.0) + 10
    frame = make(x, y)
    array, names = records.features("fit", frame, 2, ("a", "b"))
    assert names == ("a", "b")
    assert np.array_equal(array, np.column_stack([x, y]))
    assert records.features("fit", frame, 2)[1] == ("b", "a")
    for wrong in (("a", "c"), ("first", "second"), ("a",)):
        with pytest.raises(DataError, match="feature_names"):
            records.features("fit", frame, len(wrong), wrong)
    assert np.array_equal(records.named_columns("curves", frame, ["a"])[:, 0], x)
    assert np.array_equal(records.named_columns("curves", frame, ["a", "b"]), np.column_stack([x, y]))
    with pytest.raises(DataError, match=r"lacks columns \['c'\]"):
        records.named_columns("curves", frame, ["a", "c"])


def test_points_without_names_are_taken_in_order():
    assert records.named_columns("curves", [[1, 2], [3, 4]], ["a", "b"]).tolist() == [[1, 2], [3, 4]]
    assert records.named_columns("curves", pd.DataFrame([[1, 2]]), ["a", "b"]).tolist() == [[1, 2]]
    for bad, word in (([[1, 2, 3]], "2 feature names for 3"), ([[1, np.nan]], "nan"), ([["1", "2"]], "real numbers")):
        with pytest.raises(DataError, match=word):
            records.named_columns("curves", bad, ["a", "b"])


def test_the_fit_reads_a_reordered_frame_by_name():
    rng = np.random.default_rng(2)
    x = np.asfortranarray(rng.uniform(-1, 1, (2_000, 2)).astype(np.float32))
    y = x @ np.float32([2.0, -1.0])
    settings = {"feature_names": ["a", "b"], "x_bounds": {"b": (-1, 1), "a": (-1.5, 1)}, "y_bounds": (-4, 4), **BUDGET,
                "n_blocks": 3, "steps": 60, "seed": 1}  # fmt: skip
    frame = pd.DataFrame(x, columns=["a", "b"])
    want = PrivateHuberRegressor(**settings).fit(x, y).posterior_
    for other in (frame, frame[["b", "a"]], pa.table({"b": x[:, 1], "a": x[:, 0]})):
        got = PrivateHuberRegressor(**settings).fit(other, y).posterior_
        assert got.names == want.names == ("intercept", "a", "b", "scale")
        assert np.array_equal(got.mean(), want.mean())


def test_a_warning_filter_and_numpy_s_own_settings_change_nothing():
    """Casts overflow where a value is far beyond the bounds: nobody is told."""
    longer = np.array([[1e300, 1.0]] * 30, dtype=np.longdouble) * 1e100
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        beyond = torch.full((30, 2), 1e300, dtype=torch.float64)
        strided = np.array([[1e300, 1.0]] * 60)[::2]
        for x in (beyond.numpy(), longer, [[10**310, 1]] * 30, strided, beyond):
            array, _ = records.features("fit", x, 2)
            stored = records.as_stored(array)
            assert stored.shape == (30, 2)
