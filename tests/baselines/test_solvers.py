"""Weighted solvers against libraries and closed forms; the exact bootstraps against their known variances."""

import math

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import optimize
from scipy.special import expit, ndtr

from pgbb_fast.baselines import NonPrivateBayesianBootstrap
from pgbb_fast.baselines.solvers import huber_fixed, huber_scale, logistic, minimise, quantile, ridge
from pgbb_fast.errors import DataError, DomainError, NotFittedError, PgbbError
from pgbb_fast.posteriors.base import Posterior
from pgbb_fast.release.blocks import gamma_star, partition


def data(n=400, seed=3):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    y = 0.5 + X @ [1.5, -1.0] + 0.4 * rng.standard_t(3, n)
    return np.column_stack([np.ones(n), X]), y, rng.dirichlet(np.ones(n), 3)


def huber_rho(z, c):
    return np.where(np.abs(z) <= c, z**2 / 2, c * np.abs(z) - c**2 / 2)


OBJECTIVES = {
    "huber": (huber_scale(1.345, 0.71), lambda y, eta, s: s * huber_rho((y - eta) / s, 1.345) + 0.71 * s / 2),
    "huber_fixed": (huber_fixed(0.6), lambda y, eta, s: huber_rho(y - eta, 0.6)),
    "quantile": (
        quantile(0.3, 0.2),  # E rho_tau(r + h Z) for standard normal Z
        lambda y, eta, s: (
            0.2
            * (
                np.exp(-(((y - eta) / 0.2) ** 2) / 2) / math.sqrt(2 * math.pi)
                + (y - eta) / 0.2 * (0.3 - ndtr((eta - y) / 0.2))
            )
        ),
    ),
    "quantile_logistic": (
        quantile(0.3, 0.2, "logistic"),
        lambda y, eta, s: 0.3 * (y - eta) + 0.2 * np.log1p(np.exp((eta - y) / 0.2)),
    ),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_minimisers_are_those_of_scipy(name):
    design, y, weights = data()
    parts, loss = OBJECTIVES[name]
    start = np.array([0.0, 0.0, 0.0, 1.0][: 3 + parts.has_scale])
    ours = minimise(parts, design, y, weights, start)
    for w, theta in zip(weights, ours, strict=True):

        def objective(t, w=w):
            return float(w @ loss(y, design @ t[:3], t[-1] if parts.has_scale else 1.0))

        found = optimize.minimize(
            objective,
            theta + 0.05,
            method="Nelder-Mead",
            options={"xatol": 1e-9, "fatol": 1e-15, "maxiter": 20_000, "maxfev": 20_000},
        )
        # strictly convex near the minimum: Nelder-Mead stops where the objective moves by 1e-15, so theta by its root
        assert objective(theta) <= found.fun + 1e-14
        np.testing.assert_allclose(theta, found.x, atol=1e-5)


def test_value_slope_and_curvature_of_the_losses_belong_together():
    y, eta, s, e = np.array([[0.66]]), np.array([[0.1]]), np.array([[0.9]]), 1e-5
    for parts, _ in OBJECTIVES.values():
        terms = parts.terms(y, eta, s)
        up, down = parts.terms(y, eta + e, s), parts.terms(y, eta - e, s)
        assert float((up[0] - down[0])[0, 0]) / (2 * e) == pytest.approx(float(terms[1][0, 0]), abs=1e-9)
        assert float((up[1] - down[1])[0, 0]) / (2 * e) == pytest.approx(float(terms[2][0, 0]), abs=1e-8)
        if parts.has_scale:
            up, down = parts.terms(y, eta, s + e), parts.terms(y, eta, s - e)
            for at, place in ((0, 3), (3, 4), (1, 5)):
                assert float((up[at] - down[at])[0, 0]) / (2 * e) == pytest.approx(float(terms[place][0, 0]), abs=1e-8)


def test_logistic_is_statsmodels():
    design, y, _ = data()
    label = (y > 0.4).astype(float)
    ours = minimise(logistic(), design, label, np.full((1, len(y)), 1 / len(y)), np.zeros(3))[0]
    np.testing.assert_allclose(ours, sm.Logit(label, design).fit(disp=0, tol=1e-12).params, atol=1e-7)


def test_ridge_logistic_has_zero_gradient():
    design, y, weights = data()
    label = (y > 0.4).astype(float)
    beta = minimise(logistic(), design, label, weights, np.zeros(3), penalty=0.01)
    for w, b in zip(weights, beta, strict=True):
        assert np.abs(design.T @ (w * (expit(design @ b) - label)) + 0.01 * b).max() < 1e-10


def test_ridge_is_least_squares_of_augmented_records():
    design, y, weights = data()
    for w, beta in zip(weights, ridge(design, y, weights, 0.03), strict=True):
        root = np.sqrt(w)
        X = np.vstack([design * root[:, None], math.sqrt(0.03) * np.eye(3)])
        np.testing.assert_allclose(
            beta, np.linalg.lstsq(X, np.append(root * y, np.zeros(3)), rcond=None)[0], rtol=1e-10
        )


@pytest.mark.parametrize("tau", [0.1, 0.5, 0.8])
def test_quantile_tends_to_statsmodels(tau):
    """|rho_h - rho| <= h phi(0) everywhere, so the check loss at the smoothed minimiser is within that of the least."""
    design, y, _ = data()
    h = 1e-3
    beta = minimise(quantile(tau, h), design, y, np.full((1, len(y)), 1 / len(y)), sm.OLS(y, design).fit().params)[0]

    def check(b):
        r = y - design @ b
        return float(np.mean(r * (tau - (r < 0))))

    assert check(beta) <= check(sm.QuantReg(y, design).fit(q=tau).params) + 0.4 * h


def test_weights_count_records():
    design, y, _ = data(60)
    count = np.random.default_rng(0).integers(1, 4, 60)
    start = np.array([0.0, 0.0, 0.0, 1.0])
    repeated = minimise(
        huber_scale(1.345, 0.71),
        np.repeat(design, count, axis=0),
        np.repeat(y, count),
        np.full((1, count.sum()), 1 / count.sum()),
        start,
    )
    np.testing.assert_allclose(
        minimise(huber_scale(1.345, 0.71), design, y, (count / count.sum())[None], start), repeated, atol=1e-9
    )


def test_no_minimum_is_an_error():
    x = np.linspace(-1, 1, 20)
    with pytest.raises(PgbbError, match="convergence"):
        minimise(logistic(), x[:, None], (x > 0).astype(float), np.full((1, 20), 0.05), np.zeros(1))


@pytest.mark.parametrize("blocked", [False, True])
def test_bootstrap_variance_of_a_mean(blocked):
    """Ordinary: sum (x - xbar)^2 / n / (n + 1).  Blocked: (mean_s xbar_s^2 - xbar^2) / (S gamma + 1).

    20,000 draws of a nearly normal law: the variance's relative error is about 1%; 5% is five standard errors, a false
    alarm of 6e-7.
    """
    x = np.random.default_rng(1).exponential(2.0, (1000, 1))
    model = NonPrivateBayesianBootstrap("mean", n_blocks=20 if blocked else None, draws=20_000, seed=2).fit(x)
    if blocked:
        block = partition(1000, 20, np.random.default_rng(2))
        means = np.array([x[block == s].mean() for s in range(20)])
        truth = (np.mean(means**2) - x.mean() ** 2) / (20 * gamma_star(n=1000, n_blocks=20) + 1)
    else:
        truth = x.var() / 1001
    sample = model.posterior_.sample
    assert abs(sample.var() / truth - 1) < 0.05
    assert abs(sample.mean() - x.mean()) < 5 * math.sqrt(truth / 20_000)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["huber", "huber_fixed", "quantile", "ridge", "logistic"])
def test_first_order_spread_of_each_bootstrap(loss):
    """Draws spread like H^-1 M H^-1 / n, whose H comes from the estimates of shifted weights (no formula of ours):
    theta*(w) - theta* is linear in w - 1/n up to O(1/n).  4,000 draws: 2.2% error of a variance each."""
    design, y, _ = data(1500)
    y = (y > 0.4).astype(float) if loss == "logistic" else y
    options = {
        "huber_fixed": {"c": 0.6},
        "quantile": {"tau": 0.4, "bandwidth": 0.3},
        "logistic": {"penalty": 1e-3},
    }.get(loss, {})
    model = NonPrivateBayesianBootstrap(loss, draws=4000, workers=2, **options).fit(design[:, 1:], y)
    sample = model.posterior_.sample
    pieces = [np.arange(1500) % 150 == j for j in range(150)]  # delete-a-group jackknife, 150 groups of 10
    left = np.array([model.estimate(design[~piece, 1:], y[~piece]) for piece in pieces])
    jackknife = 149 / 150 * ((left - left.mean(axis=0)) ** 2).sum(axis=0)
    # the jackknife's own error: sqrt(2 / 149) = 12% of a variance; 4 of them
    assert np.all(np.abs(np.log(sample.var(axis=0) / jackknife)) < 4 * math.hypot(math.sqrt(2 / 149), 0.022))
    np.testing.assert_allclose(
        sample.mean(axis=0), model.estimate(design[:, 1:], y), atol=0.3 * sample.std(axis=0).min()
    )


def test_it_says_that_it_is_not_private(tmp_path):
    x = np.random.default_rng(0).normal(size=(50, 2))
    model = NonPrivateBayesianBootstrap("mean", draws=10).fit(x)
    account = model.posterior_.privacy
    assert "NOT PRIVATE" in account.statement()
    assert account.epsilon == math.inf
    assert account.delta == 1.0
    assert not hasattr(model, "privacy_")
    loaded = Posterior.load(model.posterior_.save(tmp_path))
    assert loaded.privacy == account
    np.testing.assert_array_equal(loaded.draws(10), model.posterior_.draws(10))


@pytest.mark.parametrize(
    ("loss", "options", "word"),
    [
        ("median", {}, "loss"),
        ("quantile", {"tau": 0.5}, "bandwidth"),
        ("quantile", {"tau": 1.5, "bandwidth": 0.1}, "tau"),
        ("quantile", {"tau": 0.5, "bandwidth": 0.1, "kernel": "box"}, "kernel"),
        ("huber", {"tau": 0.5}, "tau"),
        ("huber", {"penalty": 1.0}, "penalty"),
        ("ridge", {"penalty": math.nan}, "penalty"),
        ("ridge", {"gamma": 1.0}, "gamma"),
        ("ridge", {"n_blocks": 2}, "n_blocks"),
        ("ridge", {"draws": 0}, "draws"),
    ],
)
def test_bad_settings(loss, options, word):
    with pytest.raises(DomainError, match=word):
        NonPrivateBayesianBootstrap(loss, **options)


def test_bad_records():
    model = NonPrivateBayesianBootstrap("logistic")
    with pytest.raises(NotFittedError):
        _ = model.posterior_
    with pytest.raises(DataError, match="zeros and ones"):
        model.fit(np.ones((5, 1)), np.arange(5.0))
    with pytest.raises(DataError, match="nan"):
        model.fit(np.full((5, 1), np.nan), np.ones(5))
