"""Poisson regression: its slope by differences of the likelihood, and its fit against statsmodels."""

import math

import mpmath
import numpy as np
import pytest
import statsmodels.api as sm

from pgbb_fast.baselines import NoisyNewton
from pgbb_fast.errors import DomainError
from pgbb_fast.estimators.poisson import PrivatePoissonRegressor
from pgbb_fast.kernels import reference

PUBLIC = {"x_bounds": [(20.0, 70.0), (0.0, 1.0)], "y_bounds": (0.0, 20.0)}
TRUTH = np.array([-0.2, 0.02, 0.4])


def counts(n, seed):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(20, 70, n), rng.integers(0, 2, n)])
    return X, rng.poisson(np.exp(sm.add_constant(X) @ TRUTH))


@pytest.mark.parametrize("eta", [-9.0, -1.0, 0.0, 0.7, 1.4, 1.7, 40.0])
@pytest.mark.parametrize("y", [0.0, 1.0, 7.0, 10.0])
def test_the_slope_is_the_derivative_of_the_likelihood_up_to_the_bounded_rate(y, eta):
    high, bound = 10.0, 1.5
    found, by_scale = reference.REGRESSION_SLOPES["poisson"](
        np.array([y / high]), np.array([eta]), 1.0, bound, 1.0 / high
    )

    def likelihood(at):
        line = mpmath.exp(bound) * (1 + at - bound)     # the tangent at the bound
        return ((mpmath.exp(at) if at <= bound else line) - y * at) / high

    with mpmath.workdps(40):
        h = mpmath.mpf("1e-14")
        slope = (likelihood(mpmath.mpf(eta) + h) - likelihood(mpmath.mpf(eta) - h)) / (2 * h)
    assert abs(found[0] - slope) < 1e-12
    assert by_scale[0] == 0.0
    loss = PrivatePoissonRegressor(
        x_bounds=[(0, 1)], y_bounds=(0, high), rate_bound=math.exp(bound), epsilon=1, delta=1e-5
    )._loss(100, 1, 1.0)
    assert abs(slope) <= loss.slope_bound + 1e-12
    assert loss.constants == ((pytest.approx(bound), 0.1),)


def test_curvature_is_the_derivative_of_the_slope():
    loss = PrivatePoissonRegressor(**PUBLIC, epsilon=1, delta=1e-5)._loss(100, 2, 1.0)
    eta, e = np.array([-3.0, 0.0, 2.0, 2.9, 3.1, 8.0]), 1e-6

    def slope(at):
        return reference.REGRESSION_SLOPES["poisson"](np.zeros(6), at, 1.0, *loss.constants[0])[0]

    np.testing.assert_allclose(loss.curvature_at(eta), (slope(eta + e) - slope(eta - e)) / (2 * e), atol=1e-9)
    assert loss.curvature_at(eta).max() <= loss.curvature_limit(0)


@pytest.mark.parametrize("dispersed", [False, True])
def test_with_next_to_no_noise_it_is_the_fit_of_statsmodels_with_its_sandwich(dispersed):
    """Means within .15 of a standard error (seed and noise are fixed), and sds within 10% of HC0's, also where counts
    vary more than Poisson's and the model's own are 1.7 times too small."""
    X, y = counts(20_000, 1)
    if dispersed:
        rates = np.exp(sm.add_constant(X) @ TRUTH)
        y = np.minimum(np.random.default_rng(2).negative_binomial(1.0, 1 / (1 + rates)), 20)
    exact = sm.GLM(y, sm.add_constant(X), family=sm.families.Poisson()).fit(cov_type="HC0")
    fitted = PrivatePoissonRegressor(**PUBLIC, epsilon=300.0, delta=1e-5, seed=3).fit(X, y)
    draws = fitted.posterior_.draws(20_000, seed=0).reshape(20_000, 3)
    assert np.abs((draws.mean(axis=0) - exact.params) / exact.bse).max() < 0.15
    np.testing.assert_allclose(draws.std(axis=0), exact.bse, rtol=0.1)


def test_a_baseline_takes_its_loss():
    X, y = counts(4_000, 4)
    exact = sm.GLM(y, sm.add_constant(X), family=sm.families.Poisson()).fit()
    model = PrivatePoissonRegressor(**PUBLIC, epsilon=1e4, delta=1e-5, seed=5)
    found = NoisyNewton(model).fit(X, y).posterior_.draws(4_000, seed=0).reshape(-1, 3)
    assert np.abs((found.mean(axis=0) - exact.params) / exact.bse).max() < 0.3


@pytest.mark.parametrize(
    "wrong",
    [*({"y_bounds": pair} for pair in [(1.0, 20.0), (-1.0, 20.0), (0.0, 1e8)]), {"rate_bound": 1e8}, {"rate_bound": 0}],
)
def test_public_numbers_out_of_its_domain_are_refused(wrong):
    with pytest.raises(DomainError, match=r"PrivatePoissonRegressor: (y_bounds|rate_bound)"):
        PrivatePoissonRegressor(**{**PUBLIC, **wrong}, epsilon=1.0, delta=1e-5)
