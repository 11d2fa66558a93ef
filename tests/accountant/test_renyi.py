"""Renyi moments against double quadrature, multiple precision and the printed table."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from pgbb_fast.accountant import (
    BlockedGaussian,
    SubsampledGaussian,
    deterministic,
    epsilon,
    gamma_star,
    log_moment,
    noise_multiplier,
    renyi,
)
from pgbb_fast.accountant.oracle import precise_log_moment, precise_series_log_moment
from pgbb_fast.accountant.renyi import antipodal_log_moment
from pgbb_fast.accountant.series import series_log_moment
from pgbb_fast.accountant.squares import BetaSquare, UnitSquare, powered

GAMMA = gamma_star(n=10_000, n_blocks=20)


def one_release(q, inverse_noise, draws=1, minibatch="independent"):
    return BlockedGaussian(
        n=10_000,
        n_blocks=20,
        sampling_rate=q,
        steps=1,
        draws_per_step=draws,
        minibatch=minibatch,
        noise_multiplier=1 / inverse_noise,
    )


def quadrature_moment(q, inverse_noise, order, gamma=GAMMA, blocks=20):
    """log E_u E_0 [(1 + q a)^order (1 + q b)^(1 - order)] - by its definition, in two nested integrals."""
    law = stats.beta(gamma, (blocks - 1) * gamma)

    def inner(u):
        r = u * inverse_noise

        def f(x):
            p = math.log1p(q * math.expm1(r * x - r * r / 2))
            m = math.log1p(q * math.expm1(-r * x - r * r / 2))
            return math.expm1(order * p + (1 - order) * m) * math.exp(-x * x / 2) / math.sqrt(2 * math.pi)

        top = 12 + 2 * order * r
        return integrate.quad(f, -12, top, epsabs=1e-15, epsrel=1e-11, limit=400)[0]

    # u = v^(1/gamma) takes the density's singularity at 0 away
    def outer(v):
        u = v ** (1 / gamma)
        return inner(u) * law.pdf(u) * u / (gamma * v)

    return math.log1p(integrate.quad(outer, 0, 1, epsabs=0, epsrel=1e-9, limit=200)[0])


# docs/accounting.md, section 2 (whose gamma is gamma* = 0.90019, printed as .9002): exact A, ratios of the series
TABLE = [
    (0.05, 0.385, 2, 7.409257e-6, 1.0008, 32),
    (0.05, 0.385, 10, 3.336579e-4, 1.0041, 32),
    (0.05, 0.385, 20, 1.412154e-3, 1.0084, 32),
    (0.05, 0.385, 30, 3.246295e-3, 1.013, 96),
    (0.2, 0.385, 10, 5.396e-3, 1.018, 32),
    (0.5, 0.385, 6, 1.139e-2, 1.031, 32),
]


@pytest.mark.parametrize(("q", "inverse_noise", "order", "printed", "ratio", "moments"), TABLE)
def test_table_of_section_2(q, inverse_noise, order, printed, ratio, moments):
    exact = quadrature_moment(q, inverse_noise, order)
    assert exact == pytest.approx(printed, rel=1e-3 if printed > 5e-3 else 2e-6)
    m = one_release(q, inverse_noise)
    closed = log_moment(m, order=order)
    assert exact * (1 - 1e-8) <= closed <= exact * 1.001
    series = series_log_moment(order, q, inverse_noise**2, BetaSquare(GAMMA, 20), moments=moments, terms=6)
    assert series >= exact
    assert series / exact == pytest.approx(ratio, rel=1e-3)
    grown = log_moment(m, order=order, method="renyi-series")
    assert exact <= grown <= series * (1 + 1e-6)


def test_the_bounded_tail_explodes_where_moments_do_not_suffice():
    value = series_log_moment(30, 0.05, 0.385**2, BetaSquare(GAMMA, 20), moments=32, terms=6)
    assert value / 3.246295e-3 == pytest.approx(1076, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("order", [2, 3, 7, 20, 40])
@pytest.mark.parametrize(("q", "inverse_noise"), [(0.05, 0.385), (0.3, 0.2), (1e-3, 1.0)])
def test_float_path_against_multiple_precision(order, q, inverse_noise):
    m = one_release(q, inverse_noise)
    law = BetaSquare(GAMMA, 20)
    # the alternating sums cancel by about exp(2 order q): outward rounding costs that much
    room = 1e-6 if order * q < 8 else 2e-5
    for p in (6, 12):
        precise = precise_log_moment(m, order=order, terms=p, digits=80)
        saved = renyi._TERMS
        renyi._TERMS = (p,)
        try:
            fixed = antipodal_log_moment(order, q, inverse_noise**2, law, 1)
        finally:
            renyi._TERMS = saved
        cap = float(mpmath.log1p(q * mpmath.expm1(precise_log_moment(one_release(1.0, inverse_noise), order=order))))
        smaller = min(float(precise), cap)
        assert smaller <= fixed <= smaller * (1 + room)
        assert antipodal_log_moment(order, q, inverse_noise**2, law, 1) <= fixed  # the best of several
    series = precise_series_log_moment(m, order=order, moments=20, terms=8, digits=120)
    fast = series_log_moment(order, q, inverse_noise**2, law, moments=20, terms=8)
    assert float(series) <= fast <= float(series) * (1 + 1e-9)


@pytest.mark.parametrize("x", [-300.0, -30.0, -12.5, -3.0, -1e-9, 1e-9, 0.5, 40.0, 499.0, 501.0, 5000.0])
@pytest.mark.parametrize(("gamma", "blocks"), [(0.9, 20), (0.01, 3), (10.0, 100_000), (0.6, 5)])
def test_exponential_moments_within_their_own_error(x, gamma, blocks):
    got = BetaSquare(gamma, blocks).excess(np.array([x]))
    with mpmath.workdps(400):
        c, b = mpmath.mpf(gamma), blocks * mpmath.mpf(gamma)
        exact = mpmath.hyp2f2(c / 2, (c + 1) / 2, b / 2, (b + 1) / 2, x) - 1
        assert mpmath.sign(exact) == got.sign[0]
        relative = abs(mpmath.exp(mpmath.mpf(float(got.log[0])) - mpmath.log(abs(exact))) - 1)
    # the logarithm itself is rounded once more
    assert float(relative) <= float(got.error[0]) + 4e-16 * (1 + abs(float(got.log[0])))
    assert got.error[0] < 1e-8


@pytest.mark.parametrize(("gamma", "blocks", "top"), [(2.6656, 20, 20_000.0), (0.46, 36, 3_000.0), (30.0, 4, 1e5)])
def test_many_exponential_moments_at_once_lie_within_their_own_error(gamma, blocks, top):
    """Between knots G is bounded by convexity; the truth is the hypergeometric function in multiple precision."""
    law = BetaSquare(gamma, blocks)
    x = np.unique(np.concatenate((np.geomspace(501, top, 5_000), [top, 501.0])))
    excess = law.excess(x)
    assert excess.log.shape == x.shape
    for index in (0, 1, 17, 1_111, 2_500, 4_000, len(x) - 2, len(x) - 1):
        with mpmath.workdps(40):
            a, b, at = mpmath.mpf(gamma), blocks * mpmath.mpf(gamma), mpmath.mpf(float(x[index]))
            truth = mpmath.log(mpmath.hyp2f2(a / 2, (a + 1) / 2, b / 2, (b + 1) / 2, at) - 1)
        off = float(mpmath.mpf(float(excess.log[index])) - truth)
        assert math.log1p(-excess.error[index]) <= off <= math.log1p(excess.error[index])
    assert np.median(excess.error) < 0.02


def test_orders_without_end_cost_no_sums_without_end(monkeypatch):
    """Little privacy loss has its best order in the thousands: what is summed for one epsilon stays bounded.

    Minutes of sums for orders that are of no use, before log E exp(x U^2) was taken from knots.
    """
    summed = 0
    plain = BetaSquare._log_series

    def counting(self, x):
        nonlocal summed
        summed += x if x < 2e6 else 0
        return plain(self, x)

    monkeypatch.setattr(BetaSquare, "_log_series", counting)
    mechanism = BlockedGaussian(
        n=1_000,
        n_blocks=20,
        sampling_rate=0.005818,
        steps=2,
        minibatch="independent",
        gamma=2.6656,
        noise_multiplier=20.32,
    )
    got = epsilon(mechanism, delta=8.26e-6, method="renyi")
    assert epsilon(mechanism, delta=8.26e-6) <= got < 0.001
    assert 0 < summed < 1e8


def test_power_of_the_moment_is_the_shared_minibatch():
    x = np.array([-1.0, -1e-6, 1e-6, 0.3, 5.0, 600.0])
    law = BetaSquare(0.9, 20)
    got = powered(law.excess(x), 7)
    for i, value in enumerate(x):
        with mpmath.workdps(60):
            one = mpmath.hyp2f2(0.45, 0.95, 9.0, 9.5, float(value))
            exact = one**7 - 1
            relative = abs(mpmath.exp(float(got.log[i]) - mpmath.log(abs(exact))) - 1)
        assert float(relative) <= float(got.error[i]) + 1e-15 * (1 + abs(float(got.log[i])))
    assert UnitSquare().excess(np.array([0.0])).sign[0] == 0


@pytest.mark.slow
def test_reference_noise_multipliers():
    m = BlockedGaussian(n=10_000, n_blocks=20, sampling_rate=0.05, steps=10_000, minibatch="independent")

    def sigma(mechanism, method, conversion):
        return noise_multiplier(mechanism, epsilon=1.0, delta=1e-4, method=method, conversion=conversion)

    assert sigma(m, "renyi", "standard") == pytest.approx(3.1182, abs=1e-4)
    assert sigma(m, "renyi", "cks") == pytest.approx(2.4826, abs=1e-4)
    assert sigma(m, "renyi-series", "standard") == pytest.approx(3.127, abs=5e-4)
    assert 2.48 < sigma(m, "renyi-series", "cks") < 2.50
    d = deterministic(m)
    assert sigma(d, "renyi-series", "standard") == pytest.approx(44.08, abs=5e-3)
    assert sigma(d, "renyi", "standard") == pytest.approx(44.055, abs=2e-3)
    assert sigma(d, "renyi", "cks") == pytest.approx(35.086, abs=1e-3)


def test_full_sampling_is_exact():
    m = one_release(1.0, 0.5)
    for order in (2, 5, 40):
        with mpmath.workdps(50):
            exact = mpmath.log(
                mpmath.hyp2f2(
                    mpmath.mpf(GAMMA) / 2,
                    (mpmath.mpf(GAMMA) + 1) / 2,
                    10 * mpmath.mpf(GAMMA),
                    10 * mpmath.mpf(GAMMA) + mpmath.mpf(1) / 2,
                    mpmath.mpf(order * (order - 1)) / 2,
                )
            )
        for method in ("renyi", "renyi-series"):
            got = log_moment(m, order=order, method=method)
            assert float(exact) <= got <= float(exact) * (1 + 1e-9)


@given(
    order=st.integers(2, 60),
    q=st.floats(1e-4, 0.9),
    inverse=st.floats(0.02, 1.0),
    ratio=st.floats(1.05, 2.0),
)
def test_moments_grow_with_order_rate_and_signal(order, q, inverse, ratio):
    base = log_moment(one_release(q, inverse), order=order)
    slack = 1 + 1e-6
    # the closed form is a bound, within 0.5% of the truth only in its useful range: compare there
    if base > 1e-14 and order * q < 4 and order * inverse < 4:
        slack = 1.005
        assert log_moment(one_release(q, inverse), order=order + 1) * slack >= base
        assert log_moment(one_release(q, inverse * ratio), order=order) * slack >= base
        assert log_moment(one_release(min(1.0, q * ratio), inverse), order=order) * slack >= base


def test_add_remove_integer_orders_against_quadrature():
    m = SubsampledGaussian(sampling_rate=0.125, steps=1, adjacency="add-remove", noise_multiplier=0.8)
    r = 1 / 0.8
    for order in (2, 3, 6):

        def f(x, k=order):
            return math.exp(k * math.log1p(0.125 * math.expm1(r * x - r * r / 2)) - x * x / 2) / math.sqrt(2 * math.pi)

        exact = math.log(integrate.quad(f, -15, 15 + order * r, epsrel=1e-12)[0])
        assert exact * (1 - 1e-10) <= log_moment(m, order=order) <= exact * (1 + 1e-9)


def test_no_cap_on_the_order():
    # so little signal that the best order lies in the thousands
    m = BlockedGaussian(
        n=10_000, n_blocks=20, sampling_rate=1e-3, steps=1, minibatch="independent", noise_multiplier=1000.0
    )
    tiny = epsilon(m, delta=1e-12, method="renyi")
    assert 0 < tiny < 0.05


@pytest.mark.parametrize(("q", "noise"), [(0.125, 0.8), (0.01, 20.0), (1.0, 1.0), (0.5, 0.2)])
@pytest.mark.parametrize("order", [1.01, 1.5, 2.0, 3.7])
def test_real_orders_against_quadrature(q, noise, order):
    with mpmath.workdps(30):
        r = 1 / mpmath.mpf(noise)
        base = lambda x: (1 - q + q * mpmath.exp(r * x - r * r / 2)) ** mpmath.mpf(order) * mpmath.npdf(x)  # noqa: E731
        middle = float(order * r)
        exact = mpmath.log(mpmath.quad(base, [-14, -4, 0, middle / 2, middle, middle + 4, middle + 14]))
    got = renyi.real_order_log_moment(order, q, noise)
    assert float(exact) <= got <= float(exact) + 2e-12 + 1e-12 * order * r**2 * order


def test_public_renyi_case():
    """65.153 is published for q = .125, sigma .8, T = 1000, delta 1e-6; its best order is below 2."""
    m = SubsampledGaussian(sampling_rate=0.125, steps=1000, adjacency="add-remove", noise_multiplier=0.8)
    value = epsilon(m, delta=1e-6, method="renyi")
    assert value <= 65.153 * (1 + 1e-4)
    assert value >= epsilon(m, delta=1e-6)
