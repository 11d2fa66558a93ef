"""Proved bounds of the losses, attained and never exceeded."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgbb_fast import losses
from pgbb_fast.errors import DomainError
from pgbb_fast.kernels import reference
from pgbb_fast.kernels.scalar import losses as scalar

finite = st.floats(-1e12, 1e12)
LOSSES = [
    losses.smoothed_quantile([0.1, 0.5, 0.9], 0.2),
    losses.smoothed_quantile([0.25], 0.01, "logistic"),
    losses.huber(),
    losses.huber(0.5, 0.4),
    losses.huber_fixed_scale(0.7),
    losses.logistic(),
    losses.huber([0.7, 2.0], [losses.huber_kappa(0.7), losses.huber_kappa(2.0)]),
    losses.expectile([0.2, 0.5, 0.9], 0.8),
]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kernel)
@given(y=finite, eta=finite, scale=st.floats(1e-6, 1e6))
def test_slopes_never_exceed_their_bounds(loss, y, eta, scale):
    y = float(y > 0) if loss.kernel == "logistic" else y
    for a, b in loss.constants:
        by_eta, by_scale = getattr(scalar, loss.kernel)(y, eta, *scalar.CONSTANTS[loss.kernel](scale, a, b))
        assert abs(by_eta) <= loss.slope_bound
        assert abs(by_scale) <= loss.scale_bound * (1 + 2**-50)  # psi^2 / 2 - kappa / 2 has two roundings


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kernel)
def test_bounds_are_attained(loss):
    """Far residuals reach the bound of the slope to one part in 1e12, so that no tighter one exists."""
    y = np.array([-1e9, 0.0, 1e9]) if loss.kernel != "logistic" else np.array([0.0, 1.0])
    eta = np.array([0.0, 0.0, 0.0]) if loss.kernel != "logistic" else np.array([50.0, -50.0])
    slopes = [reference.REGRESSION_SLOPES[loss.kernel](y, eta, 1.0, a, b) for a, b in loss.constants]
    assert max(np.abs(s[0]).max() for s in slopes) == pytest.approx(loss.slope_bound, rel=1e-12)
    assert max(np.abs(s[1]).max() for s in slopes) == pytest.approx(loss.scale_bound, rel=1e-12)


def test_gradient_bound_is_that_of_the_method():
    B = 1.7
    c, kappa = 1.345, 0.71
    assert losses.huber().gradient_bound(B) == pytest.approx(
        math.sqrt(c**2 * B**2 + max(kappa / 2, (c**2 - kappa) / 2) ** 2), rel=1e-15
    )
    assert losses.smoothed_quantile([0.1, 0.7], 1.0).gradient_bound(B) == pytest.approx(0.9 * B, rel=1e-15)
    assert losses.logistic().gradient_bound(B) == B


@pytest.mark.parametrize("tau", [0.0, 1.0, -0.1, 1.5, math.nan, "0.5", None, True])
def test_levels_outside_the_unit_interval(tau):
    with pytest.raises(DomainError, match="tau"):
        losses.smoothed_quantile([tau], 0.1)


@pytest.mark.parametrize("h", [0.0, -1.0, math.nan, math.inf])
def test_bandwidths(h):
    with pytest.raises(DomainError, match="bandwidth"):
        losses.smoothed_quantile([0.5], h)


@pytest.mark.parametrize("c", [0.3, 1.345, 2.5])
def test_kappa_is_the_second_moment_of_the_slope(c):
    with mpmath.workdps(25):
        z = mpmath.mpf(c)
        truth = mpmath.quad(lambda t: min(abs(t), z) ** 2 * mpmath.npdf(t), [-20, -z, 0, z, 20])
    assert losses.huber_kappa(c) == pytest.approx(float(truth), abs=1e-14)
    assert losses.huber_kappa(1.345) == pytest.approx(0.71, abs=5e-4)


@pytest.mark.parametrize("tau", [0.02, 0.5, 0.8])
def test_normal_expectiles_solve_their_equation(tau):
    with mpmath.workdps(25):
        e = mpmath.mpf(losses.normal_expectile(tau))
        above = mpmath.quad(lambda z: (z - e) * mpmath.npdf(z), [e, e + 2, e + 20])
        below = mpmath.quad(lambda z: (e - z) * mpmath.npdf(z), [e - 20, e - 2, e])
        assert abs(tau * above - (1 - tau) * below) < 1e-12


def test_correlations_between_rules():
    """Huber's slopes and expectiles' for a normal residual, by quadrature; quantile levels by the covariance of two
    indicators, min(t, t') - t t'."""
    pair = losses.huber([0.5, 2.0], [1.0, 1.0])
    with mpmath.workdps(20):
        ends = [-20, -2, -0.5, 0, 0.5, 2, 20]

        def moment(f, g):
            return mpmath.quad(lambda z: f(z) * g(z) * mpmath.npdf(z), ends)

        def slope(c):
            return lambda z: max(-c, min(c, z))

        huber = moment(slope(0.5), slope(2)) / mpmath.sqrt(moment(slope(0.5), slope(0.5)) * moment(slope(2), slope(2)))
    assert pair.score_correlation()[0, 1] == pytest.approx(float(huber), abs=1e-5)
    z = np.random.default_rng(0).normal(size=400_000)
    scores = [np.where(z > e, t, 1 - t) * (z - e) for t, e in ((t, losses.normal_expectile(t)) for t in (0.1, 0.8))]
    expectiles = losses.expectile([0.1, 0.8], 9.0).score_correlation()[0, 1]
    assert expectiles == pytest.approx(np.corrcoef(scores)[0, 1], abs=4 / math.sqrt(400_000))
    quantiles = losses.smoothed_quantile([0.2, 0.7], 0.1).score_correlation()[0, 1]
    assert quantiles == pytest.approx((0.2 - 0.14) / math.sqrt(0.2 * 0.8 * 0.7 * 0.3), rel=1e-14)


def test_rules_are_drawn_as_the_method_says():
    quantile = losses.smoothed_quantile([0.1, 0.5], 0.1).rule_probabilities()
    assert quantile == pytest.approx(np.array([1 / 0.09, 1 / 0.25]) / (1 / 0.09 + 1 / 0.25))
    assert losses.huber([0.5, 1.0, 2.0], [1.0] * 3).rule_probabilities() == pytest.approx([1 / 3] * 3)
    assert losses.expectile([0.1, 0.5], 1.0).rule_probabilities() == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: losses.expectile([0.5], 0.0), "reach"),
        (lambda: losses.expectile([1.0], 1.0), "level"),
        (lambda: losses.logistic(-1.0), "ridge"),
        (lambda: losses.logistic(math.nan), "ridge"),
        (lambda: losses.huber([1.0, -1.0], [0.5, 0.5]), "c "),
    ],
)
def test_bad_families(make, word):
    with pytest.raises(DomainError, match=word):
        make()
