"""Fits with noise in the shape of the scores: releases, whitening, search, posterior."""

import math
from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import special, stats

from pgbb_fast import (
    DomainError,
    PrivateExpectileRegressor,
    PrivateGeneralisedRegressor,
    PrivateHuberRegressor,
    PrivateLogisticRegressor,
    PrivateMean,
    PrivateQuantileRegressor,
)
from pgbb_fast.budget.gaussian import FEATURES, GRADIENT, SCORE, report_of
from pgbb_fast.errors import BudgetError
from pgbb_fast.geometry.glm import normal_hessian
from pgbb_fast.geometry.whitening import triangular, whiten
from pgbb_fast.kernels.arguments import Records
from pgbb_fast.losses import logistic, smoothed_quantile, user_slope, with_curvature
from pgbb_fast.posteriors.base import Posterior
from pgbb_fast.release import stacked as doors
from pgbb_fast.release.blocked import Keys
from pgbb_fast.release.stacked import Door
from pgbb_fast.release.stacking import stacking

N = 20_000
BUDGET = {"epsilon": 1.0, "delta": 1e-5}
PUBLIC = {"x_bounds": [(-1, 1)] * 3, "y_bounds": (-5, 5)}
SLOPES = np.array([1.0, -1.0, 1.0])
LEVELS = (0.1, 0.5, 0.9)


def records(seed, n=N):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    return X, X @ SLOPES + 0.5 * rng.standard_normal(n)


def door(x, y, shares, loss=None, epsilon=1e4):
    """Releases with hardly any noise, by default."""
    loss = smoothed_quantile(LEVELS, 0.01) if loss is None else loss
    groups = [(name, 1, share) for name, share in shares]
    report = report_of(groups, n=len(x), budget_epsilon=epsilon, budget_delta=1e-5)
    parts = Records(x.astype(np.float32), y.astype(np.float32), np.empty(0, dtype=np.uint8))
    return Door(parts, loss, True, len(x), report, Keys.fresh(3)), report


def test_the_door_gives_what_the_report_names_and_no_more():
    X, y = records(0, 500)
    opened, _ = door(X, y / 5, [(FEATURES, 0.3), (GRADIENT, 0.3)])
    stack = stacking(opened.loss, 4)
    with pytest.raises(BudgetError):
        opened.step(np.zeros((3, 4)), opened.loss.constants, np.eye(4), stack)
    opened.features(np.eye(4), 2.0)
    with pytest.raises(BudgetError):
        opened.features(np.eye(4), 2.0)
    opened.step(np.zeros((3, 4)), opened.loss.constants, np.eye(4), stack)
    with pytest.raises(BudgetError):
        opened.scores(np.zeros((3, 4)), opened.loss.constants, np.eye(4), stack)
    assert "secret" not in repr(opened)


def test_releases_are_means_of_what_the_page_defines():
    """Against NumPy in double precision, with hardly any noise."""
    X, y = records(1, 4_000)
    opened, _ = door(X, y / 5, [(FEATURES, 0.3), (GRADIENT, 0.3), (SCORE, 0.3)])
    W = np.array([[1.0, 0, 0, 0], [0.1, 1.7, 0, 0], [0, 0.3, 1.6, 0], [0.2, 0, 0, 1.8]])
    stack = replace(stacking(opened.loss, 4), feature_bound=1.9)
    mapped = np.column_stack([np.ones(len(X)), X.astype(np.float32)]) @ W.T
    length = np.linalg.norm(mapped, axis=1)
    short = mapped * np.minimum(1.0, 1.9 / length)[:, None]
    moment, _ = opened.features(W, 1.9)
    assert np.abs(moment - short.T @ short / len(X)).max() < 5e-3
    theta = np.array([[-0.1, 0.2, -0.2, 0.2], [0, 0.2, -0.2, 0.2], [0.1, 0.2, -0.2, 0.2]])
    eta = np.column_stack([np.ones(len(X)), X]) @ theta.T
    psi = stats.norm.cdf((eta - (y / 5)[:, None]) / 0.01) - np.array(LEVELS)
    a = psi @ stack.mix.T
    g = a[:, :, None] * short[:, None, :]
    g *= np.minimum(1.0, stack.clip / np.maximum(np.linalg.norm(g, axis=(1, 2)), 1e-300))[:, None, None]
    found, _ = opened.step(theta, opened.loss.constants, W, stack)
    assert np.abs(found - g.mean(axis=0)).max() < 5e-3
    scores, _ = opened.scores(theta, opened.loss.constants, W, stack)
    flat = g.reshape(len(X), -1)
    assert np.abs(scores - flat.T @ flat / len(X)).max() < 2e-2


def test_the_noise_is_that_of_the_report():
    """Scores of records that all count as zero are noise alone: a chi-square test at 1e-6 of its two sides."""
    n = 50
    X, y = np.full((n, 3), np.nan), np.zeros(n)
    opened, report = door(X, y, [(GRADIENT, 1 / 64)] * 60, epsilon=1.0)
    stack = stacking(opened.loss, 4)
    numbers = []
    for release in report.releases:
        found, sd = opened.step(np.zeros((3, 4)), opened.loss.constants, np.eye(4), stack)
        assert sd == pytest.approx(release.noise_multiplier * stack.clip / n, rel=1e-12)
        numbers.append(found / (release.noise_multiplier * stack.clip / n))
    square = float((np.array(numbers) ** 2).sum())
    low, high = stats.chi2.ppf([1e-6, 1 - 1e-6], np.size(numbers))
    assert low < square < high


@pytest.mark.parametrize("kind", ["collinear", "constant", "rare", "narrow", "even"])
def test_whitening_of_designs_made_to_hurt(kind):
    """Directions that the moments can show end near 1; hidden ones are shrunk, never amplified beyond."""
    rng = np.random.default_rng(4)
    X = rng.uniform(-1, 1, (N, 3))
    if kind == "collinear":
        X[:, 2] = X[:, 1]
    elif kind == "constant":
        X[:, 2] = 0.7
    elif kind == "rare":
        X[:, 2] = 2.0 * (rng.random(N) < 1e-3) - 1.0
    elif kind == "narrow":
        X *= 0.1
    opened, _ = door(X, np.zeros(N), [(FEATURES, 0.02), (FEATURES, 0.02)], epsilon=1.0)
    white = whiten(opened, 4, 2)
    mapped = np.column_stack([np.ones(N), X]) @ white.mapping.T
    values = np.linalg.eigvalsh(mapped.T @ mapped / N)
    assert values.max() < 1.6
    if kind in ("even", "narrow"):
        assert values.min() > 0.6
    assert np.abs(np.triu(white.mapping, 1)).max() == 0.0
    assert (np.diag(white.mapping) > 0).all()


def test_whitening_leaves_rare_records_at_the_length_where_they_are_shortened():
    """2% of the records have the largest value of a feature: amplified to a second moment of 1 they would be 7 long."""
    rng = np.random.default_rng(4)
    X = rng.uniform(-1, 1, (N, 3))
    X[:, 2] = 2.0 * (rng.random(N) < 0.02) - 1.0
    opened, _ = door(X, np.zeros(N), [(FEATURES, 0.02), (FEATURES, 0.02)], epsilon=4.0)
    white = whiten(opened, 4, 2)
    full = np.column_stack([np.ones(N), X]) @ white.mapping.T
    length = np.linalg.norm(full[X[:, 2] > 0.0], axis=1)
    assert length.min() > 2.5  # B is 3
    assert length.max() < 4.5
    error = np.abs(white.shape.matrix - full.T @ full / N)
    assert error.max() < 0.15
    assert 0.1 < white.shape.matrix[3, 3] < 0.5


@pytest.mark.parametrize("v", [(-4.0, 1.0, -0.5), (0.3, 6.0, 2.0), (0.0, 0.1, 0.0)])
def test_the_hessian_of_a_logistic_model_against_quadrature(v):
    """The trapezoidal rule over both features."""
    centre, root = np.array([1.0, 0.3, -0.2]), np.array([[0.0, 0.0], [0.9, 0.0], [-0.4, 0.7]])
    nodes = np.linspace(-8.0, 8.0, 401)
    weights = np.exp(-0.5 * nodes**2)
    z = np.stack(np.meshgrid(nodes, nodes), axis=-1).reshape(-1, 2)
    x = centre + z @ root.T
    p = special.expit(x @ np.array(v))
    expected = (x * (np.outer(weights, weights).ravel() / weights.sum() ** 2 * p * (1.0 - p))[:, None]).T @ x
    found = normal_hessian(np.array(v), centre, root @ root.T + np.outer(centre, centre), logistic().curvature_at)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9 * expected.max())


def density(x):
    return math.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


@pytest.mark.parametrize(
    ("slope", "curvature"),
    [
        (lambda y, eta: math.exp(eta) - y, np.exp),
        (lambda y, eta: 1.0 - y * math.exp(-eta), np.ones_like),  # gamma, log link: E y exp(-eta) = 1
        (
            lambda y, eta: density(eta) * (special.ndtr(eta) - y) / (special.ndtr(eta) * special.ndtr(-eta)),
            lambda eta: stats.norm.pdf(eta) ** 2 / (stats.norm.cdf(eta) * stats.norm.sf(eta)),  # Fisher's information
        ),
        (lambda y, eta: math.tanh(eta - y), None),
        (lambda y, eta: abs(y - 0.5) * eta, None),
    ],
)
def test_the_curvature_of_a_slope_of_ones_own(slope, curvature):
    """That of generalised linear models in closed form; none where the slope is not linear in y."""
    loss = with_curvature(user_slope(slope, 2.0), [0.0, 0.25, 0.5, 0.75, 1.0], 4.0, 3.0)
    assert loss.knows_curvature == (curvature is not None)
    assert not with_curvature(user_slope(slope, 2.0), [0.0, 1.0], 1e-300, 1e-300).knows_curvature  # no grid
    if curvature is not None:
        eta = np.linspace(-3.0, 3.0, 50)
        assert loss.curvature_at(eta) == pytest.approx(curvature(eta) / 2.0, rel=1e-3)


def test_rare_classes_are_found_and_covered():
    """2% of ones: ten fits of four intervals.  Fewer than 29 of 40 that cover, 3e-7 were they independent
    (binomial, .95); the widths are a small part of the default box, 10."""
    hits, widths = [], []
    truth = np.array([-4.3, *SLOPES])
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, (N, 3))
        y = (rng.random(N) < special.expit(X @ SLOPES - 4.3)).astype(float)
        model = PrivateLogisticRegressor(**BUDGET, x_bounds=PUBLIC["x_bounds"], seed=seed)
        interval = model.fit(X, y).posterior_.interval()
        hits.append((interval[:, 0] <= truth) & (truth <= interval[:, 1]))
        widths.append(interval[:, 1] - interval[:, 0])
    assert np.sum(hits) >= 29
    assert np.median(widths) < 1.5


def test_a_triangular_root_of_a_precision():
    rng = np.random.default_rng(5)
    a = rng.standard_normal((6, 6))
    root = triangular(a @ a.T + np.eye(6))
    assert np.abs(root.T @ root - a @ a.T - np.eye(6)).max() < 1e-10
    assert np.abs(np.triu(root, 1)).max() == 0.0


def families():
    X, y = records(6)
    p = 1 / (1 + np.exp(-(X @ SLOPES - 1)))
    classes = (np.random.default_rng(7).random(N) < p) * 1.0
    quantiles = [sm.QuantReg(y, sm.add_constant(X)).fit(q=t, max_iter=5000).params for t in LEVELS]
    logit = sm.Logit(classes, sm.add_constant(X)).fit(disp=0).params
    robust = sm.RLM(y, sm.add_constant(X), M=sm.robust.norms.HuberT(1.345)).fit().params
    ols = sm.OLS(y, sm.add_constant(X)).fit().params
    return {
        "quantile": (PrivateQuantileRegressor(tau=LEVELS, seed=1, **BUDGET, **PUBLIC), (X, y), np.array(quantiles)),
        "huber": (PrivateHuberRegressor(seed=1, **BUDGET, **PUBLIC), (X, y), robust[None]),
        "expectile": (PrivateExpectileRegressor(level=0.5, seed=1, **BUDGET, **PUBLIC), (X, y), ols[None]),
        "logistic": (
            PrivateLogisticRegressor(seed=1, **BUDGET, x_bounds=PUBLIC["x_bounds"]), (X, classes), logit[None]
        ),
        "own": (
            PrivateGeneralisedRegressor(
                slope=lambda y, eta: max(-2.0, min(2.0, eta - y)), slope_bound=2.0, eta_reach=5.0, seed=1,
                epsilon=4.0, delta=1e-5, **PUBLIC,
            ),
            (X[:4000], y[:4000]),
            sm.OLS(y[:4000], sm.add_constant(X[:4000])).fit().params[None],
        ),
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("family", ["quantile", "huber", "expectile", "logistic", "own"])
def test_fits_are_where_statsmodels_is_and_as_wide_as_planned(family):
    """The exact fit of the same records lies within 4.5 privacy standard deviations (a false alarm in 2e-4 of runs)."""
    model, data, exact = families()[family]
    assert model.geometry == "scores"
    posterior = model.fit(*data).posterior_
    rows = posterior.summary(size=4000).rows
    d = len(posterior.names)
    for number, row in enumerate(rows):
        if row.name == "scale":
            continue
        want = exact[number // d][number % d]
        assert abs(row.mean - want) < 4.5 * row.privacy_sd + 0.15 * row.sd
        assert row.sd < 0.5
    assert model.privacy_.epsilon <= model.epsilon
    assert model.privacy_.releases
    assert model.plan(len(data[0])).epsilon == model.privacy_.epsilon


@pytest.mark.slow
def test_fits_cover_and_errors_of_rules_are_correlated():
    """Eight joint fits: 95% intervals of 96 coefficients miss at most 15 (P < 1e-4 at .95 if independent); differences
    between levels are narrower than independent intervals would make them."""
    missed = 0
    truth = np.array([[0.5 * stats.norm.ppf(t), *SLOPES] for t in LEVELS])
    for seed in range(8):
        X, y = records(20 + seed, 8_000)
        posterior = PrivateQuantileRegressor(tau=LEVELS, seed=seed, **BUDGET, **PUBLIC).fit(X, y).posterior_
        interval = posterior.interval(size=2000)
        missed += int(((interval[..., 0] > truth) | (interval[..., 1] < truth)).sum())
    assert missed <= 15
    draws = posterior.draws(4000)
    together = (draws[:, 1] - draws[:, 0]).var(axis=0)
    apart = draws[:, 1].var(axis=0) + draws[:, 0].var(axis=0)
    assert (together < 0.95 * apart).mean() > 0.5


def test_saved_and_loaded_it_draws_the_same(tmp_path):
    X, y = records(8, 3_000)
    posterior = PrivateHuberRegressor(seed=2, **BUDGET, **PUBLIC).fit(X, y).posterior_
    posterior.save(tmp_path)
    again = Posterior.load(tmp_path, recompute=True)
    assert np.array_equal(again.draws(50), posterior.draws(50))
    assert again.privacy == posterior.privacy
    assert "Gaussian releases" in again.privacy.statement()


def test_a_stated_prior_rules_where_the_releases_say_little():
    X, y = records(9, 30)
    wide = PrivateQuantileRegressor(epsilon=0.1, delta=1e-5, seed=3, **PUBLIC)
    stated = PrivateQuantileRegressor(
        epsilon=0.1, delta=1e-5, seed=3, coef_prior={"x1": (0.5, 0.1)}, **PUBLIC
    )
    first, second = (model.fit(X, y).posterior_ for model in (wide, stated))
    assert first.sd()[1] > 2.0
    assert abs(second.mean()[1] - 0.5) < 0.05
    assert second.sd()[1] == pytest.approx(0.1, rel=0.15)
    assert any("prior" in said for said in first.advice())


def test_settings_say_which_geometry():
    blocked = {"n_blocks": 5, "steps": 100, "sampling_rate": 0.1, "gamma": 1.0, "draws_per_step": 1}
    blocked["moment_share"] = 0.1
    for name, value in blocked.items():
        assert PrivateHuberRegressor(**BUDGET, **PUBLIC, **{name: value}).geometry == "box"
        with pytest.raises(DomainError, match=name):
            PrivateHuberRegressor(geometry="scores", **BUDGET, **PUBLIC, **{name: value})
    assert PrivateHuberRegressor(geometry="box", **BUDGET, **PUBLIC).geometry == "box"
    assert PrivateQuantileRegressor(posterior="generator", **BUDGET, **PUBLIC).geometry == "box"
    with pytest.raises(DomainError, match="geometry"):
        PrivateMean(geometry="scores", **BUDGET, x_bounds=[(0, 1)])
    with pytest.raises(DomainError, match="coef_prior"):
        PrivateHuberRegressor(n_blocks=5, coef_prior={"x1": (0, 1)}, **BUDGET, **PUBLIC)
    for wrong in ({"x1": (0, 0)}, {"x1": 3}, [(0, 1)], {1: (0, 1)}, {"x1": (math.nan, 1)}):
        with pytest.raises(DomainError, match="coef_prior"):
            PrivateHuberRegressor(coef_prior=wrong, **BUDGET, **PUBLIC)
    X, y = records(10, 100)
    with pytest.raises(DomainError, match="no coefficients"):
        PrivateHuberRegressor(coef_prior={"nobody": (0, 1)}, **BUDGET, **PUBLIC).fit(X, y)


def test_records_that_are_no_numbers_count_as_zero_and_change_nothing_else(monkeypatch):
    """Whether a fit succeeds doesn't depend on a record: one that single precision can't hold is a zero."""
    X, y = records(12, 200)
    slope = {"slope_bound": 2.0, "eta_reach": 3.0, "epsilon": 1.0, "delta": 1e-5, "seed": 1}

    def fails(y, eta):
        if y > 4.9:
            raise RuntimeError("canary")
        return max(-2.0, min(2.0, eta - y))

    y[7] = 4.95
    model = PrivateGeneralisedRegressor(slope=lambda y, e: fails(min(y, 4.0), e), **slope, **PUBLIC)
    assert np.isfinite(model.fit(X, y).posterior_.draws(5)).all()
    seen = []
    monkeypatch.setattr(doors.cpu, "scale_of", lambda s, real=doors.cpu.scale_of: seen.append(s) or real(s))
    model.fit(X, y)
    assert seen


def test_an_audit_of_one_release_is_below_the_claim_and_above_half_of_it():
    """One record at either end of the longest stack, 800 releases each: the tight case.  mu of a Gaussian mechanism is
    twice the normal quantile of the error of the best test; bounds by Clopper and Pearson at 1e-4."""
    trials, n = 800, 4
    loss = smoothed_quantile((0.5,), 0.01)
    stack = stacking(loss, 4)
    report = report_of([(GRADIENT, 1, 1.0)], n=n, budget_epsilon=4.0, budget_delta=1e-5)
    claimed = 2.0 / report.multiplier
    wrong = 0
    for sign in (1.0, -1.0):
        x, y = np.full((n, 3), np.nan, np.float32), np.zeros(n, np.float32)
        x[2], y[2] = [1.0, -1.0, 1.0], 0.9 * sign
        parts = Records(x, y, np.empty(0, dtype=np.uint8))
        mapping = 2.0 * np.eye(4)  # |x~| = 4 > B = 3: shortened
        direction = np.array([1.0, 1.0, -1.0, 1.0]) / 2.0
        for seed in range(trials):
            opened = Door(parts, loss, True, n, report, Keys.fresh(seed + (sign > 0) * trials))
            found, _ = opened.step(np.zeros((1, 4)), loss.constants, mapping, stack)
            wrong += (-sign * float(found[0] @ direction)) < 0.0  # the slope is -1/2 where y is above
    low, high = (stats.beta.ppf(q, wrong + i, 2 * trials - wrong + 1 - i) for q, i in ((1e-4, 0), (1 - 1e-4, 1)))
    assert 2.0 * stats.norm.isf(high) > 0.5 * claimed
    assert 2.0 * stats.norm.isf(high) <= claimed <= 2.0 * stats.norm.isf(low)
