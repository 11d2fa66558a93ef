"""Whatever is passed to a constructor or a fit, in whatever type: success, or an error of ours in one line.

Fits stop before the kernels: everything public is settled, the records are read, checked and mapped."""

import contextlib
import itertools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pgbb_fast import (
    PgbbError,
    PrivateExpectileRegressor,
    PrivateGeneralisedRegressor,
    PrivateHuberRegressor,
    PrivateLogisticRegressor,
    PrivateMean,
    PrivateMEstimator,
    PrivatePoissonRegressor,
    PrivateQuantileRegressor,
)
from pgbb_fast.baselines import NoisyGibbsMean, NoisyGibbsRegressor, NonPrivateBayesianBootstrap, noisy_gibbs
from pgbb_fast.bootstrap import BLBQuantiles, Custom, DPBootstrap, Mean, MOutOfNBootstrap, RegularisedRegression
from pgbb_fast.errors import DomainError
from pgbb_fast.estimators.base import PrivateEstimator
from pgbb_fast.intake.design import Design, interval
from pgbb_fast.losses import huber
from tests import containers

N = 24
BUDGET = {"epsilon": 1.0, "delta": 1e-5}
SETTINGS = {**BUDGET, "n_blocks": 3, "gamma": None, "posterior": "noise-aware", "sampling_rate": 0.5, "steps": 200,
            "draws_per_step": None, "moment_share": None, "training": None, "device": "cpu", "seed": 1}  # fmt: skip
MODEL = {"x_bounds": [(-3, 3)] * 2, "coef_bounds": None, "degrees": None, "fit_intercept": True, "feature_names": None,
         "y_bounds": (-3, 3), **SETTINGS}  # fmt: skip
SHARED = {"x_bounds": [(-3, 3)] * 2, "feature_names": None}
CLASSES = {key: value for key, value in MODEL.items() if key != "y_bounds"}
ENTRIES = {
    PrivateQuantileRegressor: {"tau": 0.5, "bandwidth": None, "kernel": "gaussian", **MODEL},
    PrivateHuberRegressor: {"c": 1.345, "kappa": None, **MODEL},
    PrivateExpectileRegressor: {"level": 0.5, "residual_bound": None, **MODEL},
    PrivatePoissonRegressor: {"rate_bound": None, **MODEL, "y_bounds": (0, 3)},
    PrivateLogisticRegressor: {"classes": (0, 1), "ridge": 0.0, **CLASSES},
    PrivateGeneralisedRegressor: {"slope": lambda y, eta: eta - y, "slope_bound": 1.0, "eta_reach": 2.0, **MODEL},
    PrivateMEstimator: {"loss": lambda theta, x, y: (theta[0] * x[0] - y) ** 2, "coef_bounds": [(-1, 1)], "clip": 1.0,
                        "y_bounds": (-3, 3), **SHARED, **SETTINGS},
    PrivateMean: {"coef_bounds": None, "loss": "squared", "clip": None, **SHARED, **SETTINGS},
    NoisyGibbsRegressor: {"y_bounds": (-3, 3), "iterations": 1_000, "seed": 1, **SHARED, **BUDGET},
    NoisyGibbsMean: {"family": "normal", "iterations": 1_000, "seed": 1, **SHARED, **BUDGET},
    NonPrivateBayesianBootstrap: {"loss": "ridge", "n_blocks": None, "gamma": None, "draws": 4, "penalty": 0.0,
                                  "fit_intercept": True, "workers": 1, "seed": 0, "feature_names": None},
    Mean: SHARED,
    RegularisedRegression: {"ridge": 1.0, "loss": "logistic", "y_bounds": None, "c": None, "fit_intercept": True,
                            "classes": (0, 1), **SHARED},
    Custom: {"function": lambda rows: rows.mean(), "l": 1.0, "box": [(-3, 3)], "names": None},
}  # fmt: skip
STRANGE = [
    None, True, False, 0, 1, -1, 3, 2**70, 10**400, 0.5, -0.5, 1e308, -1e308, 1e39, 1e-320, 5e-324, math.nan, math.inf,
    np.float32(0.5), np.float16(0.5), np.array(0.5), np.array([0.5]), np.array([[0.5]]), np.int64(3), np.array(3),
    np.bool_(True), np.str_("gaussian"), np.longdouble(0.25), np.datetime64("2020-01-01"), Decimal("0.5"),
    Fraction(1, 2), Fraction(10**400, 3), 1j, "ab", "", "auto", "squared", b"ab", [], [0.5], [0.25, 0.5], (0.5, 0.5),
    [[0.1], [0.2]], [0.5, "a"], [None], [math.nan], ["a", "b"], ("a", "a"), [1, 2], (0, 1), (1, 2), (2, 1), (1, 1),
    (-1e308, 1e308), (0, 1e39), (1e15, 1e15 + 1), (0, 5e-324), [(0, 1)], [(0, 1), (0, 1)], [(0, 1), (1, 0)],
    [(0, 1), (0,)], [(0, 1), None], [(-1e308, 1e308)] * 2, [(0, 1e39)] * 2, [(0, 1e30)] * 2, [(0, 1e-30)] * 2, {},
    {"a": 1}, {"a": (0, 1)}, {"x1": (0, 1), "x2": (0, 1)}, {"x1": 2}, {"x1": 2.0}, {"x1": 99}, {0: 2}, {0: (0, 1)},
    {"a", "b"}, frozenset([0.5]), range(2), range(0), np.array([[0, 1], [0, 1]]), np.array([[0, 1], [1, 0]]),
    np.array(["a", "b"]), np.array([0.2, 0.4]), np.ma.masked_array([0.2, 0.4], mask=[True, False]),
    torch.tensor(0.5), torch.tensor([0.2, 0.4]), torch.tensor(0.5, requires_grad=True), pd.Series([0.2, 0.4]),
    pd.DataFrame({"a": [0.5], "b": [1.0]}), pd.Index(["a", "b"]), pd.NA, pd.NaT, object, object(), len, huber,
    lambda *given: 1.0, lambda *given: given[0], lambda *given: "ab",
    containers.Shouting([[1.0]]), containers.Made(0.5), "itertools.count",
]  # fmt: skip


class StoppedError(Exception):
    """A fit came as far as its kernels."""


@pytest.fixture(scope="module", autouse=True)
def before_the_kernels():
    def run(self, fit, on_step, budget):
        assert np.isfinite(fit.box).all()
        assert np.isfinite(fit.to_natural.matrix).all()
        assert 0.0 < fit.clip < math.inf
        for part in fit.unit():
            assert np.isfinite(np.asarray(part, dtype=np.float64)).all() or part.dtype.kind == "f"
        raise StoppedError

    def stop(unit, *public, **more):
        assert np.isfinite(unit).all()
        raise StoppedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrivateEstimator, "_run", run)
        patch.setattr(noisy_gibbs, "_problem", stop)
        yield


RNG = np.random.default_rng(0)
X, Y = RNG.uniform(-2, 2, (N, 2)), RNG.uniform(-2, 2, N)


def tried(cls, kwargs, x=X, y=Y):
    """Construct and fit: Python's own errors get out."""
    said = ""
    try:
        made = cls(**kwargs)
        repr(made)
        if cls in (Mean, RegularisedRegression, Custom):
            made.task("fit", x, y).load()
        elif cls in (PrivateMean, NoisyGibbsMean):
            made.fit(x)
        else:
            made.fit(x, y)
    except PgbbError as error:
        said = str(error)
    except StoppedError:
        pass
    assert "\n" not in said
    assert len(said) < 600


@pytest.mark.parametrize("cls", list(ENTRIES))
def test_every_argument_of_every_constructor_takes_every_strange_value_or_refuses_it(cls):
    good = ENTRIES[cls]
    if cls in (PrivateQuantileRegressor, PrivateMean):
        with pytest.raises(StoppedError):
            cls(**good).fit(X, Y) if cls is PrivateQuantileRegressor else cls(**good).fit(X)
    own = cls in (PrivateQuantileRegressor, NonPrivateBayesianBootstrap)    # what is shared is tried once
    names = [name for name in good if own or name not in SETTINGS]
    for name, value in itertools.product(names, STRANGE):
        given = itertools.count() if isinstance(value, str) and value == "itertools.count" else value
        if name in ("draws", "iterations", "workers") and isinstance(given, int) and given > 2**20:
            continue    # they are right, and take for ever
        tried(cls, {**good, name: given})


@given(st.data())
@settings(max_examples=150)
def test_two_strange_arguments_at_once(data):
    cls = data.draw(st.sampled_from([c for c in ENTRIES if c is not NonPrivateBayesianBootstrap]))
    names = [name for name in ENTRIES[cls] if name not in ("iterations", "seed")]
    chosen = data.draw(st.lists(st.sampled_from(names), min_size=2, max_size=2, unique=True))
    scalar = st.floats() | st.integers() | st.text(max_size=3) | st.sampled_from(STRANGE[:-1])
    several = st.lists(st.tuples(st.floats(), st.floats()), max_size=3) | st.lists(scalar, max_size=3)
    named = st.dictionaries(st.sampled_from(["x1", "x2"]), st.tuples(st.floats(), st.floats()) | scalar, max_size=2)
    changes = {name: data.draw(scalar | several | named) for name in chosen}
    tried(cls, {**ENTRIES[cls], **changes})


@pytest.mark.parametrize("cls", [PrivateHuberRegressor, PrivateMEstimator, NoisyGibbsRegressor, Custom])
def test_every_strange_value_as_records(cls):
    for value in STRANGE[:-1]:
        tried(cls, ENTRIES[cls], value, Y)
        tried(cls, ENTRIES[cls], X, value)


@given(
    st.lists(
        st.lists(st.floats() | st.integers() | st.booleans() | st.none() | st.text(max_size=2), max_size=3), max_size=30
    ),
    st.lists(st.floats(width=16) | st.integers(-5, 5), max_size=30),
)
@settings(max_examples=100)
def test_lists_of_anything_as_records(rows, y):
    tried(PrivateHuberRegressor, ENTRIES[PrivateHuberRegressor], rows, y)
    if rows and len({len(row) for row in rows}) == 1:
        tried(PrivateHuberRegressor, ENTRIES[PrivateHuberRegressor], pd.DataFrame(rows), pd.Series(y, dtype=float))


def test_bootstraps_take_strange_settings_or_refuse_them():
    for cls, name in itertools.product((DPBootstrap, MOutOfNBootstrap, BLBQuantiles), ("epsilon", "delta", "seed")):
        for value in STRANGE[:-1]:
            with contextlib.suppress(PgbbError):
                cls(Mean([(0, 1)]), **{**BUDGET, name: value})


# ---- what each of some inputs means --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tau", [np.float32(0.5), np.array(0.5), [0.5], np.array([0.5]), Fraction(1, 2), (np.float16(0.5),)]
)
def test_a_level_of_any_type_of_number(tau):
    assert PrivateQuantileRegressor(**{**ENTRIES[PrivateQuantileRegressor], "tau": tau}).tau == (0.5,)


@pytest.mark.parametrize(("low", "high"), [(-1e308, 1e308), (0, 1e39), (-1e31, 0), (0, 1e-31), (1e12, 1e12 + 1e-3)])
def test_bounds_that_no_map_can_represent_are_refused(low, high):
    with pytest.raises(DomainError, match="y_bounds"):
        interval("fit", "y_bounds", (low, high))
    for name in ("x_bounds", "y_bounds", "coef_bounds"):
        value = (low, high) if name == "y_bounds" else [(low, high)] * 2
        with pytest.raises(DomainError, match=name):
            PrivateHuberRegressor(**{**ENTRIES[PrivateHuberRegressor], name: value})


@pytest.mark.parametrize(
    "pair", [(-1e30, 1e30), (0, 1e30), (0, 1e-29), (1e9, 1e9 + 4), (-1e-29, 0), (1.7e9, 1.7e9 + 86400)]
)
def test_other_bounds_map_their_ends_and_middle_to_the_unit_interval(pair):
    """To 2^-22 of a half-width, by either map; t = (x - centre) / radius in 50 digits is the truth."""
    import mpmath

    low, high = interval("fit", "x_bounds", pair)
    design = Design(("a",), np.array([pair], dtype=np.float64), pair, True, (1,))
    with mpmath.workdps(60):
        x = [low, low + 0.75 * (high / 2 - low / 2), low / 2 + high / 2, high]
        exact = [float(2 * (mpmath.mpf(v) - low) / (mpmath.mpf(high) - low) - 1) for v in x]
    unit, y, table = design.unit_records(np.array(x)[:, None], np.array(x))
    if len(table):
        a, b = table.astype(np.float64).T
        unit, y = unit.astype(np.float32) * a[0] + b[0], y.astype(np.float32) * a[1] + b[1]
    assert np.abs(unit[:, 0] - exact).max() < 2.0**-22
    assert np.abs(y - exact).max() < 2.0**-22
    assert np.isfinite(design.to_natural(True).matrix).all()


def classes_of(y, classes):
    """What the fit makes of y."""
    design = Design(("a",), np.array([[0.0, 1.0]]), None, True, (1,), classes)
    return design.unit_target(np.asarray(y, dtype=np.float64)).tolist()


def test_classes_are_stated_and_any_other_value_counts_as_the_nearer():
    assert classes_of([0, 1, 0.5, 0.51, -9, 9], (0, 1)) == [0, 1, 0, 1, 0, 1]
    assert classes_of([1, 2, 1.5, 1.51, -9, 9], (1, 2)) == [0, 1, 0, 1, 0, 1]
    assert classes_of([2, 1, 1.5, 1.49, 9, -9], (2, 1)) == [0, 1, 0, 1, 0, 1]
    assert classes_of([-1, 1, 0], (-1, 1)) == [0, 1, 0]
    for bad in ((1, 1), (0, 1, 2), "01", 1, None, (0, math.nan), {0, 1}):
        with pytest.raises(DomainError, match="classes"):
            PrivateLogisticRegressor(**{**ENTRIES[PrivateLogisticRegressor], "classes": bad})


@pytest.mark.parametrize("one", [1, 2])
def test_stated_classes_are_those_of_zeros_and_ones(one):
    y = np.where(Y > 0, 1.0, 0.0)
    other = np.where(y == 1, one, 3 - one)
    found = []
    for response, classes in ((y, (0, 1)), (other, (3 - one, one))):
        model = RegularisedRegression([(-3, 3)] * 2, ridge=1.0, classes=classes)
        task = model.task("fit", X, response)
        found.append(task.evaluate(task.load(), None))
    assert np.array_equal(*found)
