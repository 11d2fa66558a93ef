"""Estimators: what they refuse, what they release, that they find what they look for."""

import json
import math
import re

import numpy as np
import pandas as pd
import pytest

from pgbb_fast import (
    DataError,
    DomainError,
    NotFittedError,
    Optimiser,
    PgbbError,
    Posterior,
    PrivateHuberRegressor,
    PrivateMean,
    PrivateQuantileRegressor,
)
from pgbb_fast.accountant import Ledger, epsilon
from tests.problems import PUBLIC, regression

REGRESSORS = [PrivateQuantileRegressor, PrivateHuberRegressor]
BUDGET = {"epsilon": 2.0, "delta": 1e-4}
KINDS = ["noise-aware", pytest.param("generator", marks=pytest.mark.slow)]
SHORT = {"steps": 60, "n_blocks": 5, "seed": 1}


def regressor(cls, **changes):
    return cls(**{**BUDGET, **PUBLIC, **SHORT, **changes})


@pytest.mark.parametrize("cls", REGRESSORS)
@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"x_bounds": None}, "x_bounds"),
        ({"y_bounds": None}, "y_bounds"),
        ({"x_bounds": []}, "x_bounds"),
        ({"x_bounds": [(2.0, -2.0), (0.0, 5.0)]}, "low < high"),
        ({"x_bounds": [(-2.0, math.inf), (0.0, 5.0)]}, "finite"),
        ({"x_bounds": [(-2.0, math.nan), (0.0, 5.0)]}, "finite"),
        ({"x_bounds": [(-2.0, 2.0, 3.0), (0.0, 5.0)]}, "pair"),
        ({"x_bounds": "ab"}, "x_bounds"),
        ({"y_bounds": (6.0, -6.0)}, "low < high"),
        ({"y_bounds": (-math.inf, 6.0)}, "finite"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": "1"}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": -1e-5}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"delta": 2.0}, "delta"),
        ({"delta": math.nan}, "delta"),
        ({"n_blocks": 2}, "n_blocks"),
        ({"n_blocks": 3.0}, "n_blocks"),
        ({"sampling_rate": 0.0}, "sampling_rate"),
        ({"sampling_rate": 1.5}, "sampling_rate"),
        ({"steps": 0}, "steps"),
        ({"draws_per_step": 0}, "draws_per_step"),
        ({"gamma": -1.0}, "gamma"),
        ({"seed": -1}, "seed"),
        ({"posterior": "bayes"}, "posterior"),
        ({"moment_share": 0.9}, "moment_share"),
        ({"moment_share": -0.1}, "moment_share"),
        ({"moment_share": math.nan}, "moment_share"),
        ({"moment_share": 0.1, "posterior": "generator", "training": Optimiser()}, "moment_share"),
        ({"degrees": {"a": 0}}, "degrees"),
        ({"degrees": {"a": 2.5}}, "degrees"),
    ],
)
def test_bad_settings_are_refused_when_stated(cls, changes, word):
    with pytest.raises(DomainError, match=word) as caught:
        regressor(cls, **changes)
    assert cls.__name__ in str(caught.value)


@pytest.mark.parametrize("tau", [0.0, 1.0, -0.5, 1.5, math.nan, [0.5, 0.5], [], [0.1, 2.0]])
def test_bad_levels(tau):
    with pytest.raises(DomainError, match="tau"):
        regressor(PrivateQuantileRegressor, tau=tau)


def test_the_fixture_that_guards_records_works(untouchable):
    with pytest.raises(AssertionError, match="touched"):
        regressor(PrivateHuberRegressor).fit(*regression(600))


@pytest.mark.parametrize("cls", REGRESSORS)
@pytest.mark.parametrize(
    ("change", "error", "word"),
    [
        (lambda X, y: (X[:, :1], y), DataError, "1 features but x_bounds has 2"),
        (lambda X, y: (X[:, [0, 1, 1]], y), DataError, "3 features but x_bounds has 2"),
        (lambda X, y: (X, y[:-1]), DataError, "records"),
        (lambda X, y: (X.ravel(), y), DataError, r"\(n, p\)"),
        (lambda X, y: (X, X), DataError, r"\(n,\)"),
        (lambda X, y: (X[:0], y[:0]), DataError, "no records"),
        (lambda X, y: (X[:2], y[:2]), DomainError, "n_blocks"),
        (lambda X, y: (X.astype(complex), y), DataError, "complex"),
        (lambda X, y: (X, y.astype(complex)), DataError, "complex"),
        (lambda X, y: (X.astype(str), y), DataError, "real numbers"),
        (lambda X, y: (X, y.astype(str)), DataError, "real numbers"),
        (lambda X, y: (X.astype(object), y), DataError, "object"),
    ],
)
def test_records_of_the_wrong_form_are_refused_untouched(cls, change, error, word, untouchable):
    X, y = change(*regression(600))
    with pytest.raises(error, match=word):
        regressor(cls).fit(X, y)


@pytest.mark.parametrize("cls", REGRESSORS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["X", "y"])
def test_values_that_are_no_records_are_refused_without_saying_which(cls, bad, where):
    X, y = regression(600)
    (X if where == "X" else y)[317] = bad
    calls = []
    with pytest.raises(DataError, match=f"{where} has values that are nan or infinite") as caught:
        regressor(cls).fit(X, y, on_step=calls.append)
    assert not calls
    assert not re.search(r"\d", str(caught.value))


@pytest.mark.parametrize(
    ("names", "word"),
    [(["a", "a"], "duplicate"), (["a"], "1 feature names for 2"), (["a", "b", "c"], "3 feature names"),
     ("ab", "list of strings"), ([1, 2], "list of strings"), ({"a", "b"}, "list of strings")],
)  # fmt: skip
def test_feature_names(names, word):
    with pytest.raises((DataError, DomainError), match=word):
        regressor(PrivateHuberRegressor, feature_names=names).fit(*regression(600))


def test_a_data_frame_with_duplicate_columns():
    X, y = regression(600)
    with pytest.raises(DataError, match="duplicate"):
        regressor(PrivateQuantileRegressor).fit(pd.DataFrame(X, columns=["a", "a"]), y)


def test_a_data_frame_brings_names_and_bounds_by_name():
    X, y = regression(600)
    frame = pd.DataFrame({"u": X[:, 0], "v": X[:, 1].astype(np.float32)})
    bounds = {"v": (0.0, 5.0), "u": (-2.0, 2.0)}
    by_name = regressor(PrivateQuantileRegressor, x_bounds=bounds).fit(frame, y)
    assert by_name.posterior_.names == ("intercept", "u", "v")
    with pytest.raises(DomainError, match="lacks"):
        regressor(PrivateQuantileRegressor, x_bounds={"u": (0, 1), "w": (0, 1)}).fit(frame, y)


@pytest.mark.parametrize("bounds", [[(0.0, 1.0)], [(1.0, 0.0), (0.0, 1.0)], {"q": (0.0, 1.0)}])
def test_bad_coefficient_bounds(bounds, untouchable):
    with pytest.raises(DomainError, match="coef_bounds"):
        regressor(PrivateHuberRegressor, coef_bounds=bounds, feature_names=["a", "b"]).fit(*regression(600))


def test_too_few_steps_are_refused_untouched(untouchable):
    X, y = regression(600)
    with pytest.raises(DomainError, match="at least 30"):
        regressor(PrivateHuberRegressor, steps=10).fit(X, y)
    with pytest.raises(DomainError, match="at least 40"):
        regressor(PrivateHuberRegressor, steps=10, moment_share=0.0).fit(X, y)


def test_not_fitted():
    with pytest.raises(NotFittedError, match="fit before"):
        _ = regressor(PrivateHuberRegressor).posterior_


def test_the_report_is_what_the_accountant_says_and_within_the_budget():
    model = regressor(PrivateHuberRegressor).fit(*regression(600))
    report = model.privacy_
    assert report.epsilon <= 2.0
    ledger = Ledger()
    ledger.record(report.mechanism)
    ledger.record(report.moment)
    assert report.epsilon == ledger.epsilon(delta=1e-4)
    assert epsilon(report.mechanism, delta=1e-4) < report.epsilon
    assert report.mechanism.n == 600
    assert report.mechanism.steps == 60
    assert report.adjacency == "replace-one"
    assert "replace-one" in report.statement()
    assert model.plan(600) == report


@pytest.mark.parametrize("n", [63, 601])
def test_blocks_need_not_divide_the_records(n):
    model = regressor(PrivateHuberRegressor, n_blocks=4).fit(*regression(n))
    assert model.posterior_.draws(10).shape == (10, 4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_is_a_function_of_data_and_seed(kind):
    X, y = regression(600)
    a, b = (
        regressor(PrivateQuantileRegressor, posterior=kind, tau=[0.2, 0.8]).fit(X, y).posterior_.draws(50)
        for _ in range(2)
    )
    assert np.array_equal(a, b)
    c = regressor(PrivateQuantileRegressor, posterior=kind, tau=[0.2, 0.8], seed=2).fit(X, y).posterior_.draws(50)
    assert not np.array_equal(a, c)
    d, e = (
        regressor(PrivateQuantileRegressor, posterior=kind, seed=None).fit(X, y).posterior_.draws(50) for _ in range(2)
    )
    assert not np.array_equal(d, e)


@pytest.mark.parametrize("kind", KINDS)
def test_values_outside_the_bounds_count_as_the_bound(kind):
    """Same release whether a value lies on the bound or beyond it, and no message, warning or count says so."""
    X, y = regression(600)
    X[3, 0], y[4] = 2.0, 6.0
    far_X, far_y = X.copy(), y.copy()
    far_X[3, 0], far_y[4] = 1e9, 1e300
    inside = regressor(PrivateHuberRegressor, posterior=kind).fit(X, y).posterior_.draws(20)
    assert np.array_equal(
        inside, regressor(PrivateHuberRegressor, posterior=kind).fit(far_X, far_y).posterior_.draws(20)
    )


@pytest.mark.parametrize("kind", ["noise-aware", "generator"])
@pytest.mark.parametrize("intercept", [True, False])
def test_draws_are_mapped_back_to_natural_units(intercept, kind):
    """Prediction in unit coordinates and in natural ones agree; the box holds in natural units."""
    X, y = regression(600)
    settings = {"fit_intercept": intercept, "coef_bounds": [(-1.0, 1.0), (-0.25, 0.75)], "posterior": kind}
    model = regressor(PrivateHuberRegressor, **settings).fit(X, y)
    draws = model.posterior_.draws(200)
    slopes = draws[:, intercept:-1]
    assert (slopes >= np.array([-1.0, -0.25]) - 1e-6).all()
    assert (slopes <= np.array([1.0, 0.75]) + 1e-6).all()
    assert (draws[:, -1] > 0).all()
    assert model.posterior_.names == ("intercept",) * intercept + ("x1", "x2", "scale")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_quantile_regression_finds_the_coefficients(kind):
    """n = 20,000, epsilon 8: every truth within 4 reported standard deviations (about 1e-3 false alarm over nine)."""
    X, y = regression(20_000, seed=3)
    model = PrivateQuantileRegressor(
        tau=[0.25, 0.5, 0.75],
        epsilon=8.0,
        delta=1e-5,
        steps=3_000,
        sampling_rate=0.02,
        seed=5,
        posterior=kind,
        **PUBLIC,
    ).fit(X, y)
    shift = 0.5 * np.array([-0.6745, 0.0, 0.6745])
    truth = np.column_stack([1.0 + shift, np.full(3, 0.8), np.full(3, -0.5)])
    z = (model.posterior_.mean() - truth) / model.posterior_.sd()
    assert np.abs(z).max() < 4
    assert (model.posterior_.sd() < 0.5).all()


@pytest.mark.parametrize("kind", KINDS)
def test_huber_regression_finds_the_coefficients_and_the_scale(kind):
    X, y = regression(20_000, seed=4)
    settings = {"steps": 3_000, "sampling_rate": 0.02, "seed": 6, "posterior": kind}
    model = PrivateHuberRegressor(epsilon=8.0, delta=1e-5, **settings, **PUBLIC).fit(X, y)
    z = (model.posterior_.mean() - [1.0, 0.8, -0.5, 0.5]) / model.posterior_.sd()
    assert np.abs(z).max() < 4
    assert (model.posterior_.sd() < 0.5).all()


@pytest.mark.parametrize("kind", KINDS)
def test_means(kind):
    rng = np.random.default_rng(7)
    X = np.column_stack([rng.normal(1.5, 0.5, 5_000), rng.uniform(0, 1, 5_000)])
    settings = {"epsilon": 4.0, "delta": 1e-5, "steps": 2_000, "sampling_rate": 0.1, "seed": 8, "posterior": kind}
    model = PrivateMean(x_bounds=[(-1, 4), (0, 1)], **settings).fit(X)
    z = (model.posterior_.mean() - X.mean(axis=0)) / model.posterior_.sd()
    assert np.abs(z).max() < 4
    assert (model.posterior_.sd() < [0.1, 0.05]).all()
    times = rng.exponential(2.0, (5_000, 1))
    bounds = {"x_bounds": [(0, 20)], "coef_bounds": [(0.5, 8)]}
    waiting = PrivateMean(loss="exponential", clip=60.0, **bounds, **{**settings, "epsilon": 8.0}).fit(times)
    assert abs(waiting.posterior_.mean()[0] - np.minimum(times, 20).mean()) < 4 * waiting.posterior_.sd()[0]
    assert waiting.posterior_.sd()[0] < 0.5


def test_exponential_mean_needs_positive_bounds():
    for settings in (
        {"x_bounds": [(-1, 4)], "clip": 9.0},
        {"x_bounds": [(0, 4)], "clip": 9.0},
        {"x_bounds": [(0, 4)], "coef_bounds": [(1, 2)]},
    ):
        with pytest.raises(DomainError, match="exponential"):
            PrivateMean(loss="exponential", **settings, **BUDGET, **SHORT).fit(np.ones((50, 1)))


@pytest.fixture(scope="module", params=KINDS)
def joint(request) -> Posterior:
    model = regressor(PrivateQuantileRegressor, tau=[0.1, 0.5, 0.9], posterior=request.param)
    return model.fit(*regression(600)).posterior_


def test_posterior_shapes(joint):
    assert joint.draws(7).shape == (7, 3, 3)
    assert joint.draws(7, rules=[0.3]).shape == (7, 1, 3)
    assert joint.mean().shape == (3, 3)
    assert joint.interval(0.9).shape == (3, 3, 2)
    single = regressor(PrivateQuantileRegressor, posterior=joint.kind).fit(*regression(600)).posterior_
    assert single.draws(7).shape == (7, 3)
    assert single.interval().shape == (3, 2)


def test_intervals_are_quantiles_of_the_draws(joint):
    draws = joint.draws()
    assert np.array_equal(joint.interval(0.8)[..., 1], np.quantile(draws, 0.9, axis=0))
    row = joint.summary(0.8).rows[4]
    assert (row.rule, row.name) == (0.5, "x1")
    assert row.low == pytest.approx(np.quantile(draws[:, 1, 1], 0.1), rel=1e-12)
    assert row.mean == pytest.approx(draws[:, 1, 1].mean(), rel=1e-12)
    assert "80% interval" in str(joint.summary(0.8))


@pytest.mark.parametrize("rules", [[0.05], [0.95], [], [math.nan], ["a"]])
def test_levels_outside_those_trained_on(joint, rules):
    with pytest.raises(DomainError, match="rules"):
        joint.draws(3, rules=rules)


@pytest.mark.parametrize("size", [0, -1, 2.5, "a"])
def test_bad_sizes(joint, size):
    with pytest.raises(DomainError, match="size"):
        joint.draws(size)


def test_saved_and_loaded_posteriors_draw_the_same(joint, tmp_path):
    folder = joint.save(tmp_path / "fit")
    arrays, description = sorted(p.name for p in folder.iterdir())
    assert description == "posterior.json"
    assert re.fullmatch(r"posterior-[0-9a-f]{16}\.safetensors", arrays)
    again = Posterior.load(folder)
    assert np.array_equal(again.draws(20), joint.draws(20))
    assert again.privacy == joint.privacy
    assert again.names == joint.names
    assert '"seed' not in (folder / "posterior.json").read_text()   # the seed itself is nowhere


def test_damaged_files_are_refused(joint, tmp_path):
    with pytest.raises(DomainError, match="no saved posterior"):
        Posterior.load(tmp_path)
    folder = joint.save(tmp_path / "fit")
    description = json.loads((folder / "posterior.json").read_text())
    for change in ({"format": 99}, {"kind": "other"}, {"settings": {}}, {"privacy": {"epsilon": 1}}):
        (folder / "posterior.json").write_text(json.dumps({**description, **change}))
        with pytest.raises(DomainError, match="load"):
            Posterior.load(folder)


def test_arviz(joint):
    data = joint.to_arviz()
    assert data.posterior["theta"].shape == (1, 2000, 3, 3)
    assert data.posterior["rule"].values.tolist() == [0.1, 0.5, 0.9]


@pytest.mark.slow
def test_training_that_diverges_says_so():
    optimiser = Optimiser(learning_rate=1e38, final_rate=1e38)
    model = regressor(PrivateHuberRegressor, posterior="generator", training=optimiser)
    with pytest.raises(PgbbError, match="diverged"):
        model.fit(*regression(600))


def test_the_seed_and_the_key_are_in_no_representation():
    from pgbb_fast.release.blocked import Keys

    keys = Keys.fresh(12345)
    assert str(int(keys.secret[0])) not in repr(keys)
    assert "12345" not in repr(regressor(PrivateHuberRegressor, seed=12345))
