"""Families of rules beyond quantile levels, and logistic regression."""

import math

import numpy as np
import pytest
import statsmodels.api as sm

from pgbb_fast import (
    DomainError,
    Posterior,
    PrivateExpectileRegressor,
    PrivateGeneralisedRegressor,
    PrivateHuberRegressor,
    PrivateLogisticRegressor,
    PrivateQuantileRegressor,
)
from pgbb_fast.losses import normal_expectile
from tests.problems import PUBLIC, X_BOUNDS, classes, regression

BUDGET = {"epsilon": 8.0, "delta": 1e-5}
SHORT = {"epsilon": 2.0, "delta": 1e-4, "steps": 120, "n_blocks": 5, "seed": 1}


@pytest.mark.parametrize("kind", ["noise-aware", pytest.param("generator", marks=pytest.mark.slow)])
def test_expectiles_are_found_jointly(kind):
    """n = 20,000, epsilon 8: nine truths within 4 reported standard deviations (false alarm 1e-3); the outer intercepts
    tell the levels apart."""
    levels = [0.1, 0.5, 0.9]
    X, y = regression(20_000, 3)
    model = PrivateExpectileRegressor(level=levels, posterior=kind, seed=5, **BUDGET, **PUBLIC).fit(X, y)
    truth = np.array([[1 + 0.5 * normal_expectile(t), 0.8, -0.5] for t in levels])
    assert np.abs((model.posterior_.mean() - truth) / model.posterior_.sd()).max() < 4
    assert (model.posterior_.sd()[:, 1:] < 0.05).all()
    low, _, high = model.posterior_.interval()[:, 0]
    assert low[1] < high[0]


def test_the_middle_expectile_is_least_squares():
    """epsilon 8: within 5 of the privacy part's standard deviations of the exact fit."""
    X, y = regression(20_000, 4)
    p = PrivateExpectileRegressor(residual_bound=2.5, seed=6, **BUDGET, **PUBLIC).fit(X, y).posterior_
    exact = sm.OLS(y, sm.add_constant(X)).fit()
    privacy = np.sqrt(p._parts()[1][0])
    assert (np.abs(p.mean() - exact.params) < 5 * privacy + 1e-3).all()
    assert p.sd() == pytest.approx(exact.bse, rel=0.35)
    assert p.rule_name == "level"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["noise-aware", pytest.param("generator", marks=pytest.mark.slow)])
def test_several_constants_of_huber_share_a_budget(kind):
    """With normal errors every c has the same coefficients and, with its own kappa, the same scale."""
    X, y = regression(20_000, 5)
    model = PrivateHuberRegressor(c=[0.7, 1.345, 2.0], posterior=kind, seed=7, **BUDGET, **PUBLIC).fit(X, y)
    p = model.posterior_
    assert np.abs((p.mean() - [1.0, 0.8, -0.5, 0.5]) / p.sd()).max() < 4
    assert (p.sd() < 0.06).all()
    between = p.draws(500, rules=[0.7, 1.0, 1.345])
    middle = between[:, 1].mean(axis=0)
    ends = np.sort(between[:, [0, 2]].mean(axis=0), axis=0)
    assert ((middle >= ends[0] - 1e-6) & (middle <= ends[1] + 1e-6)).all() or kind == "generator"
    assert str(p.summary()).split()[0] == "c"
    if kind == "generator":
        assert model.privacy_.mechanism.draws_per_step == 3
    else:
        assert model.privacy_.names.count("noisy clipped gradient") == 4  # groups of steps, each of all three c


def test_rule_names_are_saved(tmp_path):
    X, y = regression(600, 6)
    p = PrivateHuberRegressor(c=[0.7, 2.0], **SHORT, **PUBLIC).fit(X, y).posterior_
    again = Posterior.load(p.save(tmp_path / "huber"))
    assert again.rule_name == "c"
    assert np.array_equal(again.draws(5), p.draws(5))


@pytest.mark.parametrize("ridge", [0.0, 0.05])
def test_logistic_regression_finds_the_ridge_estimate(ridge):
    """Against an exact ridge fit by Newton's method here (slopes in unit coordinates are penalised, the intercept is
    not): within 5 privacy standard deviations; without a ridge the sd is statsmodels'."""
    X, y = classes(20_000, 7)
    p = PrivateLogisticRegressor(x_bounds=X_BOUNDS, ridge=ridge, seed=8, **BUDGET).fit(X, y).posterior_
    unit = np.column_stack([np.ones(len(X)), X[:, 0] / 2, (X[:, 1] - 2.5) / 2.5])
    weight, b = ridge * np.diag([0.0, 1.0, 1.0]), np.zeros(3)
    for _ in range(30):
        m = 1 / (1 + np.exp(-unit @ b))
        hessian = (unit * (m * (1 - m))[:, None]).T @ unit / len(X) + weight
        b = b - np.linalg.solve(hessian, unit.T @ (m - y) / len(X) + weight @ b)
    natural = np.array([b[0] - b[2], b[1] / 2, b[2] / 2.5])
    privacy = np.sqrt(p._parts()[1][0])
    assert (np.abs(p.mean() - natural) < 5 * privacy + 2e-3).all()
    m = 1 / (1 + np.exp(-unit @ b))
    scores = unit * (m - y)[:, None]
    inverse = np.linalg.inv(hessian)
    unit_sd = np.sqrt(np.diag(inverse @ np.cov(scores.T) @ inverse) / len(X))
    assert p.sd()[1:] == pytest.approx(unit_sd[1:] / [2, 2.5], rel=0.25)
    if ridge == 0.0:
        assert p.sd() == pytest.approx(sm.Logit(y, sm.add_constant(X)).fit(disp=0).bse, rel=0.25)


def test_any_response_counts_as_the_nearer_class():
    X, y = classes(600, 8)
    a, b = (PrivateLogisticRegressor(x_bounds=X_BOUNDS, **SHORT).fit(X, v).posterior_.draws(9) for v in (y, 40 * y - 9))
    assert np.array_equal(a, b)


def test_bands_and_curves_of_a_posterior():
    X, y = regression(600, 9)
    taus = [0.25, 0.5, 0.75]
    p = PrivateQuantileRegressor(tau=taus, **SHORT, **PUBLIC).fit(X, y).posterior_
    band, interval = p.band(0.9), p.interval(0.9)
    assert band.shape == (3, 3, 2)
    assert (np.diff(band)[..., 0] > np.diff(interval)[..., 0]).all()
    assert (np.diff(p.band(0.9, over="all")) >= np.diff(band)).all()
    points = np.array([[0.0, 1.0], [2.0, 5.0]])
    draws, plain, sorted_ = p.draws(), p.curves(points, rearrange=False), p.curves(points)
    assert plain[:, 1, 0] == pytest.approx(draws[:, 1, 0] + draws[:, 1, 2])
    assert (np.diff(sorted_, axis=1) >= 0).all()
    assert np.sort(plain, axis=1) == pytest.approx(sorted_)
    assert (np.diff(plain, axis=1) < 0).any()  # noise makes levels cross here
    huber = PrivateHuberRegressor(c=[0.7, 2.0], **SHORT, **PUBLIC).fit(X, y).posterior_
    assert np.array_equal(huber.curves(points), huber.curves(points, rearrange=False))
    single = PrivateHuberRegressor(**SHORT, **PUBLIC).fit(X, y).posterior_
    assert single.curves(points).shape == (2000, 1, 2)
    assert single.band(over="all").shape == (1, 4, 2)
    for bad in (points[:, :1], points[0], points * math.nan):
        with pytest.raises(DomainError, match="X must be"):
            p.curves(bad)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: PrivateExpectileRegressor(level=[0.5, 0.5], **SHORT, **PUBLIC), "different"),
        (lambda: PrivateExpectileRegressor(level=1.0, **SHORT, **PUBLIC), "level"),
        (lambda: PrivateExpectileRegressor(residual_bound=0.0, **SHORT, **PUBLIC), "residual_bound"),
        (lambda: PrivateExpectileRegressor(residual_bound=math.nan, **SHORT, **PUBLIC), "residual_bound"),
        (lambda: PrivateHuberRegressor(c=[1.0, 2.0], kappa=0.5, **SHORT, **PUBLIC), "kappa"),
        (lambda: PrivateHuberRegressor(c=[], **SHORT, **PUBLIC), "different"),
        (lambda: PrivateHuberRegressor(c=-1.0, **SHORT, **PUBLIC), "c "),
        (lambda: PrivateLogisticRegressor(ridge=-1.0, x_bounds=X_BOUNDS, **SHORT), "ridge"),
        (lambda: PrivateLogisticRegressor(y_bounds=(0, 1), x_bounds=X_BOUNDS, **SHORT), "y_bounds"),
    ],
)
def test_bad_settings(make, word):
    with pytest.raises(DomainError, match=word):
        make()


def test_an_infinite_residual_bound_is_the_box_and_the_range_of_y():
    """max(level, 1 - level) (1 + 2 + 2 + 2): half the range of y is 1 in unit coordinates, and the default box 2."""
    model = PrivateExpectileRegressor(level=0.9, residual_bound=math.inf, **SHORT, **PUBLIC)
    loss = model._loss(600, 2, 7.0)
    assert loss.slope_bound == pytest.approx(0.9 * 7.0)
    assert model._loss(600, 2, 7.0).gradient_bound(math.sqrt(3)) == pytest.approx(0.9 * 7.0 * math.sqrt(3))
    assert PrivateExpectileRegressor(level=0.9, residual_bound=3.0, **SHORT, **PUBLIC)._loss(
        600, 2, 7.0
    ).slope_bound == pytest.approx(0.45)


POISSON = {"slope": lambda y, eta: math.exp(eta) - y, "slope_bound": 6.0, "eta_reach": 2.0, "y_bounds": (0.0, 15.0)}


@pytest.mark.slow
def test_a_slope_of_the_users_own_fits_a_poisson_model():
    """n = 5,000, epsilon 8: within 5 privacy standard deviations of statsmodels' fit, and standard deviations no
    more than twice its own."""
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.uniform(-2, 2, 5_000), rng.uniform(0, 5, 5_000)])
    y = rng.poisson(np.exp(0.5 + X @ [0.3, -0.2])).astype(float)
    settings = {"x_bounds": X_BOUNDS, "steps": 1_000, "seed": 2, **BUDGET, **POISSON}
    p = PrivateGeneralisedRegressor(**settings).fit(X, y).posterior_
    exact = sm.GLM(y, sm.add_constant(X), family=sm.families.Poisson()).fit()
    assert (np.abs(p.mean() - exact.params) < 5 * np.sqrt(p._parts()[1][0])).all()
    assert (p.sd() > 0.8 * exact.bse).all()
    assert (p.sd() < 2.0 * exact.bse).all()


def test_the_users_own_slope_is_released_as_a_built_in_one():
    """Logistic by its slope, on the reference, against the compiled kernel: the same minibatch and noise, sums that
    differ by single precision only."""
    from pgbb_fast.kernels.arguments import Records
    from pgbb_fast.losses import logistic, user_slope
    from pgbb_fast.release import blocked as releases

    X, y = classes(300, 3)
    rng = np.random.default_rng(0)
    records = Records((X / [2, 5]).astype(np.float32), y.astype(np.float32), np.resize(np.arange(6), 300))
    built_in, own = logistic(), user_slope(lambda y, eta: 1 / (1 + math.exp(-eta)) - y, 1.0)
    common = {
        "intercept": True, "n_blocks": 5, "block_size": 60, "gamma": 1.0, "clip": 1.2, "sampling_threshold": 2**30,
        "noise_multiplier": 0.5, "draws_per_step": 2, "steps": 10, "moment_multiplier": 0.7,
    }  # fmt: skip
    keys = releases.Keys.fresh(1)
    theta, weights = rng.normal(0, 0.5, (2, 3)), np.zeros((2, 6))
    weights[:, :5] = rng.dirichlet(np.ones(5), 2)
    problems = [releases.Problem(records, loss, **common) for loss in (built_in, own)]
    a, b = (releases.release_step(q, keys, 3, theta, weights, np.zeros(2, dtype=np.int64)) for q in problems)
    # 75 records a step, each off by at most 20 roundings of single precision and a truncation of 2^-22, over q = 1/4
    assert np.abs(a - b).max() < 4 * 75 / 60 * 1.2 * (20 * 2.0**-24 + 1e-7 + 2.0**-21)
    a, b = (releases.release_moment(q, keys, theta[:1])[0] for q in problems)
    assert np.abs(a - b).max() < 1.2**2 * (40 * 2.0**-24 + 2e-7 + 2.0**-20)


def test_a_record_for_which_the_slope_fails_counts_as_zero_and_a_slope_that_always_fails_is_refused():
    X, y = regression(600, 4)
    settings = {"x_bounds": X_BOUNDS, **SHORT, **POISSON}

    def strange(y, eta):
        if 3.333 < y < 3.334:
            raise ValueError("a record")
        return math.exp(eta) - y if not 4.444 < y < 4.445 else math.nan

    y = np.abs(y)
    y[:2] = 3.3335, 4.4445
    got = PrivateGeneralisedRegressor(**{**settings, "slope": strange}).fit(X, y).posterior_.draws(3)
    assert np.isfinite(got).all()
    with pytest.raises(DomainError, match="slope"):
        PrivateGeneralisedRegressor(**{**settings, "slope": lambda y, eta: math.exp(1e4 * eta)}).fit(X, y)
    with pytest.raises(DomainError, match="callable"):
        PrivateGeneralisedRegressor(**{**settings, "slope": 3})
    with pytest.raises(DomainError, match="bound"):
        PrivateGeneralisedRegressor(**{**settings, "slope_bound": 0.0})
