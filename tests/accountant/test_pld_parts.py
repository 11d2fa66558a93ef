"""The pieces of the privacy-loss distributions, each against an independent truth and its own stated error."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from pgbb_fast.accountant import BlockedGaussian
from pgbb_fast.accountant.cells import antipodal_cells, normal_tail, one_sided_cells, resampled_cells, tail_error
from pgbb_fast.accountant.convolve import circular_power, fft_constant, power_tail
from pgbb_fast.accountant.lattice import lower_from_full, lower_from_half, upper_from_full, upper_from_half
from pgbb_fast.accountant.radius import lower_nodes, radius_law, upper_nodes
from pgbb_fast.accountant.squared_sums import ROUND


def exact_delta(r, q, epsilon):
    """delta of the antipodal pair in 40 digits (docs/accounting.md, section 3)."""
    with mpmath.workdps(40):
        r, q, e = mpmath.mpf(r), mpmath.mpf(q), mpmath.mpf(epsilon)
        a = (1 - q) / q * mpmath.exp(r * r / 2)
        x = (e / 2 + mpmath.asinh(a * mpmath.sinh(e / 2))) / r
        phi = mpmath.ncdf
        p = (1 - q) * phi(-x) + q * phi(r - x)
        return p - mpmath.exp(e) * ((1 - q) * phi(-x) + q * phi(-x - r))


def hockey_stick(loss, mass, epsilon):
    return float((mass * np.maximum(-np.expm1(np.minimum(epsilon - loss, 0.0)), 0.0)).sum())


@given(
    r=st.floats(1e-3, 30.0),
    gap=st.floats(1e-3, 1.0),
    q=st.floats(1e-6, 1.0),
    e=st.floats(0.0, 20.0),
    share=st.floats(0.05, 0.95),
)
def test_lemma_delta_is_increasing_and_convex_in_psi(r, gap, q, e, share):
    low, high = r, r * (1 + gap)
    with mpmath.workdps(40):
        psi = lambda v: mpmath.erf(mpmath.mpf(v) / mpmath.sqrt(2))  # noqa: E731
        target = (1 - share) * psi(low) + share * psi(high)
        middle = mpmath.erfinv(target) * mpmath.sqrt(2) if target < 1 - mpmath.mpf(10) ** -35 else None
        if middle is None or not low < middle < high:
            return
        chord = (1 - share) * exact_delta(low, q, e) + share * exact_delta(high, q, e)
        value = exact_delta(middle, q, e)
        assert exact_delta(low, q, e) <= value * (1 + mpmath.mpf(10) ** -25)
        assert value <= chord + mpmath.mpf(10) ** -30


def test_normal_tail_error_as_stated():
    x = np.concatenate((np.linspace(-9, 37, 400), [0.0, 1e-8, 5.5, 12.3]))
    got = normal_tail(x)
    for value, at in zip(got, x, strict=True):
        with mpmath.workdps(40):
            exact = mpmath.ncdf(-mpmath.mpf(float(at)))
            assert abs(mpmath.mpf(float(value)) - exact) <= float(tail_error(np.array([at]))[0]) * exact


@pytest.mark.parametrize(("a", "b"), [(0.9, 17.1), (0.01, 0.02), (1.0, 99999.0), (10.0, 1e6), (0.6, 2.4)])
def test_incomplete_beta_error_as_stated(a, b):
    u = np.concatenate((np.geomspace(1e-6, 0.9, 12), [0.95, 0.99])) * (1 if b < 100 else 60 / b)
    for at in u:
        with mpmath.workdps(50):
            low = mpmath.betainc(a, b, 0, mpmath.mpf(float(at)), regularized=True)
            high = 1 - low if low < 0.5 else mpmath.betainc(a, b, mpmath.mpf(float(at)), 1, regularized=True)
        assert abs(special.betainc(a, b, at) / low - 1) < ROUND / 10
        if high > 1e-290:
            assert abs(special.betaincc(a, b, at) / high - 1) < ROUND / 10


@pytest.mark.parametrize("size", [16, 48, 192])
def test_fft_power_error_bound_holds_with_room(size):
    rng = np.random.default_rng(5)
    for count in (1, 7, 1000):
        b = rng.dirichlet(np.full(size, 0.2))
        got, bound = circular_power([(b, -3, count)], size)
        with mpmath.workdps(40):
            exact = _exact_circular(b, -3, count, size)
        error = math.sqrt(sum(float((mpmath.mpf(float(g)) - e) ** 2) for g, e in zip(got, exact, strict=True)))
        assert error <= bound / 4
        assert bound < 1e-9
    assert fft_constant(1 << 20) < 1e-13


def _exact_circular(b, offset, count, size):
    """Binary powering of circular convolutions in integers scaled by 2^200 (rounded at the 2^-200 level)."""
    unit = 1 << 200
    base = [0] * size
    for i, value in enumerate(b):
        base[(i + offset) % size] += int(mpmath.mpf(float(value)) * unit)

    def convolve(x, y):
        pack = 1 << 416  # big enough for a sum of `size` products of 200-bit numbers
        big_x, big_y = (sum(v << (416 * i) for i, v in enumerate(z)) for z in (x, y))
        product = big_x * big_y
        out = [0] * size
        for i in range(2 * size - 1):
            out[i % size] += product % pack
            product //= pack
        return [v >> 200 for v in out]

    result = None
    while count:
        if count & 1:
            result = base if result is None else convolve(result, base)
        count >>= 1
        if count:
            base = convolve(base, base)
    return [mpmath.mpf(v) / unit for v in result]


def test_power_tail_brackets_the_binomial():
    mass = np.array([0.9, 0.1])
    low, high = power_tail(mass, 400, error=0.0)
    k = np.arange(120)
    exact = special.bdtrc(k, 400, 0.1)
    assert (low[:120] <= exact).all()
    assert (exact <= high[:120]).all()
    seen = exact > 1e-40
    assert (high[:120][seen] <= exact[seen] * 1.001).all()


@pytest.mark.parametrize(("r", "q"), [(0.02, 0.05), (0.4, 0.05), (1.5, 0.3), (3.0, 1.0), (0.5, 1e-5)])
@pytest.mark.parametrize("h", [0.3, 0.02, 1e-3])
def test_lattices_bracket_the_pair_everywhere(r, q, h):
    cells = antipodal_cells(np.array([r]), np.ones(1), q, h, 1e-18, 50.0)
    up, low = upper_from_half(cells), lower_from_half(cells)
    assert up.mass.min() >= 0
    assert low.mass.min() >= 0
    assert 1 - 1e-15 <= up.mass.sum() + up.infinity <= 1 + 1e-9
    assert low.mass.sum() <= 1
    up_loss = h * (up.first + np.arange(len(up.mass)))
    low_loss = h * (low.first + np.arange(len(low.mass)))
    for e in (0.0, h / 3, h, 5.5 * h, 20 * h, 0.7, 2.0):
        exact = float(exact_delta(r, q, e))
        high = hockey_stick(up_loss, up.mass, e) + up.infinity
        assert exact <= high * (1 + 1e-12)
        assert hockey_stick(low_loss, low.mass, e) <= exact * (1 + 1e-12)
        mirrored = 1 - math.exp(-e) + math.exp(-e) * exact
        assert mirrored <= hockey_stick(up_loss, up.mass, -e) * (1 + 1e-12) + up.infinity
        assert hockey_stick(low_loss, low.mass, -e) <= mirrored * (1 + 1e-12)
    on_grid = float(exact_delta(r, q, 4 * h))
    assert hockey_stick(up_loss, up.mass, 4 * h) + up.infinity <= on_grid * (1 + 1e-6) + 1e-16


@pytest.mark.parametrize(("r", "q"), [(1.25, 0.125), (0.25, 3.3e-4), (1.0, 1.0), (0.05, 0.01)])
def test_one_sided_lattices_bracket_both_directions(r, q):
    h = 2e-3
    cells = one_sided_cells(r, q, h, 1e-18, 60.0)
    for direction in (0, 1):
        up, low = upper_from_full(cells)[direction], lower_from_full(cells)[direction]
        for e in (0.0, 0.0013, 0.01, 0.1, 0.5):
            exact = _exact_one_sided(r, q, e, direction)
            for lattice, sign in ((up, 1), (low, -1)):
                loss = h * (lattice.first + np.arange(len(lattice.mass)))
                got = hockey_stick(loss, lattice.mass, e) + lattice.infinity
                assert sign * (got - exact) >= -1e-12 * max(exact, 1e-3)


def _exact_one_sided(r, q, e, direction):
    with mpmath.workdps(40):
        r, q, e = mpmath.mpf(r), mpmath.mpf(q), mpmath.mpf(e)
        phi = mpmath.ncdf
        if direction == 0:
            x = mpmath.log((mpmath.exp(e) - 1 + q) / q) / r + r / 2
            return float((1 - q) * phi(-x) + q * phi(r - x) - mpmath.exp(e) * phi(-x))
        inside = mpmath.exp(-e) - 1 + q
        if inside <= 0:
            return 0.0
        x = mpmath.log(inside / q) / r + r / 2
        return float(phi(x) - mpmath.exp(e) * ((1 - q) * phi(x) + q * phi(x - r)))


def test_resampled_cells_are_the_maximum_of_both_directions():
    r, weight, p, h = np.array([0.4, 0.8]), np.array([0.7, 0.3]), 0.2, 1e-3
    cells = resampled_cells(r, weight, p, h, 1e-18, 50.0)
    up, low = upper_from_half(cells), lower_from_half(cells)
    for e in (-0.3, -0.05, 0.0, 0.02, 0.1, 0.5):
        size = abs(e)
        one = sum(w * _exact_one_sided(v, p, size, 0) for v, w in zip(r, weight, strict=True))
        other = sum(w * _exact_one_sided(v, p, size, 1) for v, w in zip(r, weight, strict=True))
        assert other <= one * (1 + 1e-12)
        exact = one if e >= 0 else 1 - math.exp(e) + math.exp(e) * one
        for lattice, sign in ((up, 1), (low, -1)):
            loss = h * (lattice.first + np.arange(len(lattice.mass)))
            got = hockey_stick(loss, lattice.mass, e) + lattice.infinity
            assert sign * (got - exact) >= -1e-12
            assert abs(got - exact) < 2e-6


@pytest.mark.parametrize("bins", [8, 40])
@pytest.mark.parametrize(("minibatch", "draws"), [("independent", 1), ("shared", 5)])
def test_nodes_bracket_the_mixture(bins, minibatch, draws):
    """delta of the upper (lower) nodes is above (below) that of 400,000 draws; 5 standard errors, error rate 6e-7."""
    m = BlockedGaussian(
        n=1000, n_blocks=8, sampling_rate=0.1, steps=1, draws_per_step=draws, minibatch=minibatch, noise_multiplier=0.7
    )
    law = radius_law(m, bins, lambda v: np.zeros_like(v))
    g = m.concentration
    u = np.random.default_rng(11).beta(g, 7 * g, size=(400_000, draws))
    r = np.sqrt((u * u).sum(axis=1)) / 0.7
    for e in (0.0, 0.1, 0.5):
        sample = _fast_delta(r, 0.1, e)
        error = 5 * sample.std() / math.sqrt(len(sample))
        for nodes, sign in ((upper_nodes(law, 0.7), 1), (lower_nodes(law, 0.7), -1)):
            value = float((nodes[1] * _fast_delta(nodes[0], 0.1, e)).sum())
            assert sign * (value - sample.mean()) >= -error
        gap = float((upper_nodes(law, 0.7)[1] * _fast_delta(upper_nodes(law, 0.7)[0], 0.1, e)).sum())
        assert gap <= sample.mean() * (1 + 20 / bins**1.5) + error


def _fast_delta(r, q, e):
    r = np.maximum(r, 1e-12)
    a = (1 - q) / q * np.exp(r * r / 2)
    x = (e / 2 + np.arcsinh(a * math.sinh(e / 2))) / r
    return (
        (1 - q) * special.ndtr(-x)
        + q * special.ndtr(r - x)
        - math.exp(e) * ((1 - q) * special.ndtr(-x) + q * special.ndtr(-x - r))
    )
