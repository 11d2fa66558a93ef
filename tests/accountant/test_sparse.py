"""Records that are seldom drawn: bounds against ``bench/accountant_configurations.py``'s oracle, and each other.

The literals are ``truth(m, epsilon, delta)`` of that file at the noise multipliers below and delta = 1e-5, with the
oracle's own error; it shares no code with the accountant.
"""

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest

from pgbb_fast.accountant import (
    BlockedGaussian,
    SubsampledGaussian,
    delta,
    epsilon,
    epsilon_bounds,
    noise_multiplier,
)
from pgbb_fast.accountant.cells import antipodal_cells
from pgbb_fast.accountant.convolve import circular_power
from pgbb_fast.accountant.lattice import lower_from_half, upper_from_half
from pgbb_fast.accountant.pairs import Quality, pair_for
from pgbb_fast.accountant.pld import delta_bound, epsilon_bound
from pgbb_fast.accountant.squared_sums import square_sum
from pgbb_fast.errors import PrivacyError


def blocked(q, steps, blocks, draws, noise):
    return BlockedGaussian(
        n=10**7,
        n_blocks=blocks,
        sampling_rate=q,
        steps=steps,
        minibatch="shared",
        draws_per_step=draws,
        noise_multiplier=noise,
    )


def plain(adjacency):
    return SubsampledGaussian(sampling_rate=1.2e-5, steps=300_000, adjacency=adjacency, noise_multiplier=0.456)


CASES = [
    (blocked(1e-5, 100_000, 20, 1, 0.119), 0.936570, 6e-5),
    (blocked(1e-4, 10_000, 100, 1, 0.0306), 0.882253, 3e-5),
    (blocked(1e-4, 10_000, 1000, 1, 0.0031), 0.970620, 2e-5),
    (blocked(1e-4, 10_000, 100, 50, 0.063), 0.997063, 1e-6),
    (plain("add-remove"), 0.985779, 1e-6),
    (plain("replace-one"), 0.997403, 1e-6),
]


@pytest.mark.slow
@pytest.mark.parametrize(("m", "exact", "error"), CASES)
def test_epsilon_and_delta_are_above_the_oracle_near_it_and_inverse(m, exact, error):
    value = epsilon(m, delta=1e-5)
    assert exact - error - 1e-6 <= value <= 1.01 * exact
    assert delta(m, epsilon=value) == pytest.approx(1e-5, rel=0.01)


@pytest.mark.slow
def test_bracket_holds_the_oracle():
    m, exact, error = CASES[1]
    low, high = epsilon_bounds(m, delta=1e-5)
    assert low - error <= exact <= high + error
    assert high <= 1.01 * low


@pytest.mark.slow
@pytest.mark.parametrize("m", [CASES[1][0], CASES[4][0]])
def test_calibration_meets_its_target_and_not_by_much(m):
    noise = noise_multiplier(m, epsilon=1.0, delta=1e-5)
    assert 0.98 < epsilon(replace(m, noise_multiplier=noise), delta=1e-5) <= 1.0
    assert epsilon(replace(m, noise_multiplier=0.99 * noise), delta=1e-5) > 1.0


def test_a_transform_without_its_atom_keeps_a_smaller_bound():
    """0.999 at one place, 1,000 times: against the binomial expansion in 40 digits."""
    b, count, size = np.array([1e-4, 0.999, 6e-4, 3e-4]), 1000, 48
    got, bound = circular_power([(b, -1, count)], size)
    with mpmath.workdps(40):
        exact = [mpmath.mpf(0)] * size
        rest = 1 - sum(mpmath.mpf(float(v)) for v in (b[0], b[2], b[3]))
        for i in range(14):
            for j in range(14):
                for k in range(14):
                    ways = mpmath.binomial(count, i) * mpmath.binomial(count - i, j)
                    ways *= mpmath.binomial(count - i - j, k)
                    mass = mpmath.mpf(float(b[0])) ** i * mpmath.mpf(float(b[2])) ** j * mpmath.mpf(float(b[3])) ** k
                    exact[(j + 2 * k - i) % size] += ways * mass * rest ** (count - i - j - k)
    error = math.sqrt(sum(float((mpmath.mpf(float(g)) - e) ** 2) for g, e in zip(got, exact, strict=True)))
    assert error <= bound
    assert bound < 1e-12


def antipodal_delta(r, q, e):
    """The pair's hockey-stick divergence (docs/accounting.md, section 3), in 30 digits."""
    with mpmath.workdps(30):
        a = (1 - mpmath.mpf(q)) / q * mpmath.exp(mpmath.mpf(r) ** 2 / 2)
        x = (mpmath.mpf(e) / 2 + mpmath.asinh(a * mpmath.sinh(mpmath.mpf(e) / 2))) / r
        tail = mpmath.ncdf
        return float((1 - q) * tail(-x) + q * tail(r - x) - mpmath.exp(e) * ((1 - q) * tail(-x) + q * tail(-x - r)))


@pytest.mark.parametrize("cap", [0.4, 2.0])
def test_wide_cells_and_a_low_cap_still_bracket_the_pair(cap):
    """Widths 1, 2, 4, 8; what lies above the cap is exact for smaller epsilon, up to the cells' own error."""
    r, q, h = 2.0, 0.01, 1e-2
    edges = np.concatenate((np.arange(0, 10), np.arange(10, 20, 2), np.arange(20, 40, 4), np.arange(40, 401, 8)))
    cells = antipodal_cells(np.array([r]), np.ones(1), q, h, 1e-18, cap, edges)
    up, low = upper_from_half(cells), lower_from_half(cells)
    for e in (0.0, 0.05, 0.13, 0.3, 0.39):
        exact = antipodal_delta(r, q, e)
        values = []
        for lattice in (up, low):
            loss = lattice.h * (lattice.first + np.arange(len(lattice.mass)))
            gain = np.maximum(-np.expm1(np.minimum(e - loss, 0.0)), 0.0)
            values.append(float((lattice.mass * gain).sum()) + lattice.infinity)
        assert values[1] <= exact * (1 + 1e-12)
        assert exact <= values[0] * (1 + 1e-12)
        assert values[0] <= exact * 1.01


def test_sums_of_squared_weights_bracket_a_simulation():
    """P(V > v) and E R of 400,000 draws within 5 standard errors of the bracket (error rate 6e-7 each)."""
    gamma, blocks, draws = 0.9, 30, 6
    law = square_sum(gamma, blocks, draws, 30)
    u = np.random.default_rng(3).beta(gamma, (blocks - 1) * gamma, size=(400_000, draws))
    v = (u * u).sum(axis=1)
    for place in np.searchsorted(law.start * law.cell, [0.005, 0.02, 0.05, 0.1]):
        at = law.cell * law.start[place]
        # V' lies below V, by at most draws cells
        above, below = float((v >= at).mean()), float((v >= at + draws * law.cell).mean())
        room = 5 * math.sqrt(above / len(v))
        assert law.tail_low[place] <= above + room
        assert law.tail_high[place] >= below - room
    mean = float(law.upper_root[0] + law.upper_sum.sum())
    assert mean >= np.sqrt(v).mean() - 5 * np.sqrt(v).std() / math.sqrt(len(v))
    assert float(law.lower_sum.sum()) <= np.sqrt(v).mean() + 5 * np.sqrt(v).std() / math.sqrt(len(v))
    assert mean <= 1.01 * np.sqrt(v).mean()


@pytest.mark.parametrize("empty", [False, True])
def test_where_nothing_is_known_the_brackets_say_so(empty):
    """A lower lattice without mass (10,000 draws on three blocks have one) gives the trivial ends, not an error."""
    pair = pair_for(SubsampledGaussian(sampling_rate=1.0, steps=1, adjacency="add-remove"), 2.0)

    def build(direction, h, focus, quality, upper):
        known = pair.build(direction, h, focus, quality, upper)
        return replace(known, mass=np.zeros_like(known.mass), infinity=1.0 if upper else 0.0) if empty else known

    parts = [(replace(pair, build=build), 1)]
    low, high = (epsilon_bound(parts, 1e-5, Quality(), upper=upper) for upper in (False, True))
    least, most = (delta_bound(parts, 1.0, Quality(), upper=upper) for upper in (False, True))
    if empty:
        assert (low, high, least, most) == (0.0, math.inf, 0.0, 1.0)
        return
    # Balle and Wang 2018, theorem 8, mu = 1/2
    truth = mpmath.ncdf(0.25 - 2) - math.e * mpmath.ncdf(-0.25 - 2)
    assert least <= truth <= most <= truth * 1.01
    assert 0 < low <= high < math.inf


@pytest.mark.slow
@pytest.mark.parametrize(("adjacency", "apart"), [("add-remove", 1.0), ("replace-one", 2.0)])
@pytest.mark.parametrize("noise", [4e-3])
def test_hardly_any_noise_is_answered_or_refused(adjacency, apart, noise):
    """The normal laws lie thousands of deviations apart: epsilon is at least mu^2 / 2 (where delta is near 1/2)."""
    m = SubsampledGaussian(sampling_rate=1.0, steps=4, adjacency=adjacency, noise_multiplier=noise)
    assert delta(m, epsilon=50.0) == 1.0
    try:
        found = epsilon(m, delta=1e-5)
    except PrivacyError:
        return
    assert found >= 4 * (apart / noise) ** 2 / 2
