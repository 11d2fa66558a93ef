"""Slopes against closed forms in mpmath, and against derivatives of the losses themselves."""

import math

import mpmath
import numpy as np
import pytest

from pgbb_fast.kernels import reference
from pgbb_fast.kernels.cpu import formulas
from pgbb_fast.kernels.scalar import losses as scalar

RESIDUALS = [-40.0, -3.0, -1.345, -0.7, -1e-3, 0.0, 1e-9, 0.2, 1.0, 1.345, 2.5, 38.0]


def smoothed_check(r: float, tau: float, h: float, density) -> mpmath.mpf:
    """int rho_tau(v) k((r - v) / h) / h dv, by quadrature."""

    def integrand(z):
        v = r - h * z
        return v * (tau - (1 if v < 0 else 0)) * density(z)

    kink = r / h
    points = sorted({-40.0, min(max(kink, -40.0), 40.0), 0.0, 40.0})
    return mpmath.quad(integrand, points)


def normal_density(z):
    return mpmath.npdf(z)


def logistic_density(z):
    return 1 / (2 * mpmath.cosh(mpmath.mpf(z) / 2)) ** 2


@pytest.mark.parametrize(
    ("slope", "density"),
    [(scalar.quantile_gaussian, normal_density), (scalar.quantile_logistic, logistic_density)],
)
@pytest.mark.parametrize("tau", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("r", [-2.0, -0.3, 0.0, 0.4, 1.7])
def test_smoothed_quantile_slope_is_the_derivative_of_the_smoothed_loss(slope, density, tau, r):
    h, step = 0.5, mpmath.mpf("1e-4")
    with mpmath.workdps(30):
        stencil = [(-2, 1), (-1, -8), (1, 8), (2, -1)]     # fourth-order central difference in eta = y - r
        truth = sum(w * smoothed_check(r - k * step, tau, h, density) for k, w in stencil) / (12 * step)
    assert slope(r, 0.0, 1.0, tau, h)[0] == pytest.approx(float(truth), abs=1e-9)


@pytest.mark.parametrize("r", RESIDUALS)
def test_smoothed_quantile_slopes_are_cdfs(r):
    tau, h = 0.3, 0.25
    gaussian = float(mpmath.ncdf(-r / h) - mpmath.mpf(tau))
    logistic = float(1 / (1 + mpmath.exp(r / h)) - mpmath.mpf(tau))
    assert abs(scalar.quantile_gaussian(r, 0.0, 1.0, tau, h)[0] - gaussian) <= 4e-16
    assert abs(scalar.quantile_logistic(r, 0.0, 1.0, tau, h)[0] - logistic) <= 4e-16


@pytest.mark.parametrize("r", RESIDUALS)
@pytest.mark.parametrize("s", [0.05, 1.0, 3.0])
def test_huber_slopes_are_derivatives(r, s):
    c, kappa = 1.345, 0.71

    def rho(z):
        return z * z / 2 if abs(z) <= c else c * abs(z) - mpmath.mpf(c) ** 2 / 2

    def loss(eta, scale):
        return scale * rho((r - eta) / scale) + kappa * scale / 2

    with mpmath.workdps(40):
        eta, scale = mpmath.mpf(0), mpmath.mpf(s)
        by_eta, by_scale = scalar.huber_concomitant(r, 0.0, s, c, kappa)
        h = mpmath.mpf("1e-12")
        assert abs(by_eta - (loss(eta + h, scale) - loss(eta - h, scale)) / (2 * h)) < 1e-9
        assert abs(by_scale - (loss(eta, scale + h) - loss(eta, scale - h)) / (2 * h)) < 1e-9
        fixed = scalar.huber_fixed(r, 0.0, 1.0, c, 0.0)[0]
        assert abs(fixed - (rho(r - h) - rho(r + h)) / (2 * h)) < 1e-9


@pytest.mark.parametrize("eta", [-800.0, -30.0, -1.0, 0.0, 0.5, 20.0, 800.0])
@pytest.mark.parametrize("y", [0.0, 1.0])
def test_logistic_slope(eta, y):
    with mpmath.workdps(40):
        truth = float(1 / (1 + mpmath.exp(-mpmath.mpf(eta))) - mpmath.mpf(y))
    assert abs(scalar.logistic(y, eta, 1.0, 0.0, 0.0)[0] - truth) <= 3e-16


def test_location_slopes():
    for theta, x in [(0.2, 0.9), (1.5, 0.0), (0.03, 1.0)]:
        exact = 1 / mpmath.mpf(theta) - mpmath.mpf(x) / mpmath.mpf(theta) ** 2
        assert abs(scalar.exponential_mean(theta, x) - exact) <= 8e-16 * (1 / theta + x / theta**2)
        assert scalar.mean(theta, x) == theta - x


@pytest.mark.parametrize("name", sorted(reference.REGRESSION_SLOPES))
def test_scalar_compiled_and_reference_slopes_agree(name):
    """The same formula three times: libm's erfc and exp may differ by an ulp of 1, products by one more."""
    y, eta = np.meshgrid(np.array(RESIDUALS), np.array([-1.0, 0.0, 0.3]))
    y, eta = (y > 0).astype(float) if name == "logistic" else y.ravel(), eta
    y, eta = np.ravel(y), np.ravel(eta)
    want = reference.REGRESSION_SLOPES[name](y, eta, 0.8, 0.7, 0.4)
    for i in range(len(y)):
        for slope in (getattr(scalar, name), formulas.REGRESSION_SLOPES[name]):
            got = slope(y[i], eta[i], 0.8, 0.7, 0.4)
            assert abs(got[0] - want[0][i]) <= 1e-15
            assert abs(got[1] - want[1][i]) <= 1e-15


def test_nan_residuals_stay_nan_so_that_clipping_sees_them():
    for name in reference.REGRESSION_SLOPES:
        assert math.isnan(formulas.REGRESSION_SLOPES[name](math.nan, 0.1, 1.0, 0.5, 0.5)[0])
