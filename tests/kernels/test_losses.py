"""Slopes against closed forms in mpmath, and against derivatives of the losses themselves."""

import math

import mpmath
import numba
import numpy as np
import pytest
from numba import types

from pgbb_fast.kernels import reference
from pgbb_fast.kernels.cpu import formulas
from pgbb_fast.kernels.reference import losses as reference_losses
from pgbb_fast.kernels.scalar import losses as scalar
from pgbb_fast.kernels.scalar import smooth as scalar_smooth

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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slope", "density"),
    [
        (reference.REGRESSION_SLOPES["quantile_gaussian"], normal_density),
        (reference.REGRESSION_SLOPES["quantile_logistic"], logistic_density),
    ],
)
@pytest.mark.parametrize("tau", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("r", [-2.0, -0.3, 0.0, 0.4, 1.7])
def test_smoothed_quantile_slope_is_the_derivative_of_the_smoothed_loss(slope, density, tau, r):
    h, step = 0.5, mpmath.mpf("1e-4")
    with mpmath.workdps(30):
        stencil = [(-2, 1), (-1, -8), (1, 8), (2, -1)]     # fourth-order central difference in eta = y - r
        truth = sum(w * smoothed_check(r - k * step, tau, h, density) for k, w in stencil) / (12 * step)
    assert slope(np.array([r]), np.zeros(1), 1.0, tau, h)[0][0] == pytest.approx(float(truth), abs=1e-9)


def definition(name: str, y: float, eta: float, scale: float, first: float, second: float) -> tuple[float, float]:
    """The reference's slope of one record."""
    slope, by_scale = reference.REGRESSION_SLOPES[name](np.array([y]), np.array([eta]), scale, first, second)
    return float(slope[0]), float(by_scale[0])


@pytest.mark.parametrize("r", RESIDUALS)
def test_smoothed_quantile_slopes_are_cdfs(r):
    tau, h = 0.3, 0.25
    gaussian = float(mpmath.ncdf(-r / h) - mpmath.mpf(tau))
    logistic = float(1 / (1 + mpmath.exp(r / h)) - mpmath.mpf(tau))
    assert abs(definition("quantile_gaussian", r, 0.0, 1.0, tau, h)[0] - gaussian) <= 4e-16
    assert abs(definition("quantile_logistic", r, 0.0, 1.0, tau, h)[0] - logistic) <= 4e-16


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
        by_eta, by_scale = definition("huber_concomitant", r, 0.0, s, c, kappa)
        h = mpmath.mpf("1e-12")
        assert abs(by_eta - (loss(eta + h, scale) - loss(eta - h, scale)) / (2 * h)) < 1e-9
        assert abs(by_scale - (loss(eta, scale + h) - loss(eta, scale - h)) / (2 * h)) < 1e-9
        fixed = definition("huber_fixed", r, 0.0, 1.0, c, 0.0)[0]
        assert abs(fixed - (rho(r - h) - rho(r + h)) / (2 * h)) < 1e-9


@pytest.mark.parametrize("r", RESIDUALS)
@pytest.mark.parametrize("tau", [0.1, 0.5, 0.8])
def test_expectile_slope_is_the_derivative_of_the_asymmetric_square(r, tau):
    """Within the bound of the residual; beyond it the slope is that at the bound."""
    reach = 3.0
    with mpmath.workdps(40):

        def loss(eta):
            e = mpmath.mpf(r) - eta
            return (tau if e > 0 else 1 - mpmath.mpf(tau)) * e * e / 2

        h = mpmath.mpf("1e-15")
        slope = (loss(h) - loss(-h)) / (2 * h) if abs(r) <= reach else -mpmath.sign(r) * reach * (
            mpmath.mpf(tau) if r > 0 else 1 - mpmath.mpf(tau)
        )
    assert abs(definition("expectile", r, 0.0, 1.0, tau, reach)[0] - slope) < 1e-14


@pytest.mark.parametrize("eta", [-800.0, -30.0, -1.0, 0.0, 0.5, 20.0, 800.0])
@pytest.mark.parametrize("y", [0.0, 1.0])
def test_logistic_slope(eta, y):
    with mpmath.workdps(40):
        truth = float(1 / (1 + mpmath.exp(-mpmath.mpf(eta))) - mpmath.mpf(y))
    assert abs(definition("logistic", y, eta, 1.0, 0.0, 0.0)[0] - truth) <= 3e-16


def test_location_slopes():
    for theta, x in [(0.2, 0.9), (1.5, 0.0), (0.03, 1.0)]:
        exact = 1 / mpmath.mpf(theta) - mpmath.mpf(x) / mpmath.mpf(theta) ** 2
        assert abs(scalar.exponential_mean(theta, x) - exact) <= 8e-16 * (1 / theta + x / theta**2)
        assert scalar.mean(theta, x) == theta - x


APPROXIMATIONS = {"half_normal": 1e-7, "half_logistic": 1e-7, "exponential": 2.5e-7 * 1.7 * math.exp(0.7)}  # |x| <= .7


@pytest.mark.parametrize("name", sorted(reference.REGRESSION_SLOPES))
def test_scalar_and_compiled_slopes_equal_the_reference(name):
    """In double precision the scalar formula is off by its approximations, below.  In single precision (v = 2^-24) the
    argument z of a slope has three roundings of |z| and slopes are 1-Lipschitz in it where they aren't constant
    (|z| <= 17), those of the scale 1.4-Lipschitz; two roundings of a result below 2 follow."""
    y, eta = np.meshgrid(np.array(RESIDUALS), np.array([-1.0, 0.0, 0.3]))
    y = np.ravel((y > 0).astype(float) if name == "logistic" else y).astype(np.float32)
    eta = np.ravel(eta).astype(np.float32)
    scale, first, second = 0.8, 0.7, 0.4
    want = reference.REGRESSION_SLOPES[name](y.astype(float), eta.astype(float), scale, first, second)
    constants = scalar.CONSTANTS[name](scale, first, second)
    rounding = 2.0**-24 * (3 * 17 / 4 * 1.4 + 2 * 2)    # a density of at most 1/4 at |z| = 17, or |z| <= c < 4
    off = max((APPROXIMATIONS.get(part, 0.0) for part in getattr(scalar, name).__code__.co_names), default=0.0)
    for i in range(len(y)):
        plain = getattr(scalar, name)(float(y[i]), float(eta[i]), *constants)
        single = formulas.SINGLE_SLOPES[name](y[i], eta[i], *(np.float32(c) for c in constants))
        assert all(type(s) is float for s in single)
        for part in range(2):
            assert abs(plain[part] - want[part][i]) <= off + 4e-16
            assert abs(single[part] - want[part][i]) <= off + rounding
        double = formulas.REGRESSION_SLOPES[name](float(y[i]), float(eta[i]), scale, first, second)
        # libm's erf, erfc, tanh and exp differ by an ulp of 1, arguments up to 50 by another, times a density
        assert np.abs(np.array(double) - [want[0][i], want[1][i]]).max() <= 4e-15


def test_nan_residuals_stay_nan_so_that_clipping_sees_them():
    half = np.float32(0.5)
    for name in reference.REGRESSION_SLOPES:
        assert math.isnan(formulas.SINGLE_SLOPES[name](np.float32("nan"), half, half, half, half)[0])


def test_compiled_slopes_are_in_single_precision():
    for slope in [*formulas.SINGLE_SLOPES.values(), *formulas.LOCATION_SLOPES.values()]:
        arguments = [types.float32] * slope.py_func.__code__.co_argcount
        slope.compile(tuple(arguments))
        result = slope.overloads[tuple(arguments)].signature.return_type
        assert result in (types.float32, types.UniTuple(types.float32, 2))


SMOOTH = {
    "half_normal": (scalar_smooth.NORMAL_END, lambda x: 0.5 * math.erf(x * math.sqrt(0.5))),
    "half_logistic": (scalar_smooth.LOGISTIC_END, lambda x: 0.5 * math.tanh(0.5 * x)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SMOOTH))
def test_smooth_functions_are_within_1e_7_at_every_single_precision_number(name):
    """A proof by going through them: every positive number from 2^-24 to the end of the fit, and its opposite.  Both
    F - 1/2 and the sums 1/2 + F and 1/2 - F in single precision count.  Nearer to zero the value is x / sqrt(2 pi) or
    x / 4 but for 1e-14; beyond the end it is constant.  libm's erf and tanh are within 1e-15."""
    end, truth = SMOOTH[name]
    function, exact = getattr(formulas, name), numba.njit(truth)

    @numba.njit(parallel=True)
    def worst(first, last):
        blocks = np.zeros(256)
        step = (last - first) // 256 + 1
        for b in numba.prange(256):
            bits = np.empty(1, dtype=np.int32)
            value = bits.view(np.float32)
            for i in range(first + b * step, min(last + 1, first + (b + 1) * step)):
                bits[0] = i
                x = value[0]
                got = function(x)
                want = exact(np.float64(x))
                error = max(abs(np.float64(got) - want), abs(np.float64(np.float32(0.5) + got) - 0.5 - want))
                error = max(error, abs(np.float64(np.float32(0.5) - got) - 0.5 + want))
                blocks[b] = max(blocks[b], error if function(-x) == -got else np.inf)
        return blocks.max()

    first, last = (int(np.float32(v).view(np.int32)) for v in (2.0**-24, end))
    assert worst(first, last) < 1e-7
    assert 0.5 - truth(end) < 7e-8
    top = function(np.float32(end))
    for beyond in (1.0001 * end, 1e3, 1e30, math.inf):
        assert function(np.float32(beyond)) == top
        assert abs(0.5 - top) < 1e-7
    assert function(np.float32(0.0)) == 0.0
    assert abs(function(np.float32(2.0**-25)) - truth(2.0**-25)) < 1e-14
    assert math.isnan(function(np.float32("nan")))


@pytest.mark.slow
def test_the_exponential_is_as_near_as_it_says():
    """Every single-precision number from 2^-24 to 16 and its opposite, against libm's in double precision."""
    function = formulas.exponential

    @numba.njit(parallel=True)
    def worst(first, last):
        blocks = np.zeros(256)
        step = (last - first) // 256 + 1
        for b in numba.prange(256):
            bits = np.empty(1, dtype=np.int32)
            value = bits.view(np.float32)
            for i in range(first + b * step, min(last + 1, first + (b + 1) * step)):
                bits[0] = i
                for x in (value[0], -value[0]):
                    want = math.exp(np.float64(x))
                    got = function(x)
                    off = abs(np.float64(got) - want) / max(1.0, want) / (1.0 + abs(np.float64(x)))
                    blocks[b] = max(blocks[b], off if got > 0.0 else np.inf)
        return blocks.max()

    assert worst(*(int(np.float32(v).view(np.int32)) for v in (2.0**-24, 16.0))) < 2.5e-7
    assert function(np.float32(0.0)) == 1.0
    for beyond in (16.5, 1e30, math.inf):
        assert function(np.float32(beyond)) == function(np.float32(16.0))
        assert function(np.float32(-beyond)) == function(np.float32(-16.0))


@pytest.mark.parametrize("name", sorted(f.__name__ for f in scalar.REGRESSION))
def test_the_reference_made_of_a_formula_is_the_one_written_out(name):
    """A loss may have its formula only; the arrays that the reference is then made of equal those written by hand."""
    rng = np.random.default_rng(3)
    y, eta = rng.normal(0.0, 2.0, (2, 500))
    found = reference_losses.array_form(getattr(scalar, name))(y, eta, 0.8, 0.7, 0.4)
    want = reference.REGRESSION_SLOPES[name](y, eta, 0.8, 0.7, 0.4)
    np.testing.assert_allclose(np.array(found), np.array(want), rtol=0.0, atol=4e-15)
