"""The sampler's laws: exact masks, and the proved bound on the inclusion probability of skips."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pgbb_fast.kernels import cpu, reference
from pgbb_fast.kernels.arguments import Draws, Mechanism, Records, Stream
from pgbb_fast.kernels.cpu import formulas
from pgbb_fast.kernels.reference.sampling import skip_rule
from pgbb_fast.kernels.scalar import sampling as scalar

POINTS = 2**64


def key_of(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**32, 8)


def count(key, step, n, threshold):
    """How many records of the compiled kernel's minibatch are in each of 8 blocks, by counting terms of size one."""
    block = (np.arange(n) % 8).astype(np.uint8)
    records = Records(np.zeros((n, 1), np.float32), np.full(n, -9.0, np.float32), block)
    weights = np.zeros((8, 9))
    weights[np.arange(8), np.arange(8)] = 1.0
    draws = Draws(np.zeros((8, 2)), weights, np.tile([1.0, 0.0], (8, 1)))
    sums = cpu.gradient_sums("huber_fixed", True, records, draws, Mechanism(2.0, threshold, 0.0), Stream(key, step))
    assert (sums[:, 1] == 0).all()
    assert (sums[:, 0] % 2**31 == 0).all()
    return sums[:, 0] >> 31


@pytest.mark.parametrize("threshold", [1, 3, 4, 4_000, 10**6, 2**24, 2**27, 2**27 + 1, 2**31, 2**32 - 1, 2**32])
@pytest.mark.parametrize("n", [1, 255, 256, 257, 4_096, 70_001])
def test_the_kernel_draws_the_reference_minibatch(n, threshold):
    for step in range(3):
        taken = reference.minibatch(key_of(1), step, n, threshold)
        want = [int(taken[b::8].sum()) for b in range(8)]
        assert count(key_of(1), step, n, threshold).tolist() == want


def test_rules_depend_on_the_threshold_only_and_agree():
    for threshold in (4, 1_000, 10**5, 2**20, 2**24 + 3, 2**27):
        inverse, limit = scalar.skip_constants(threshold)
        log, longest, bits = skip_rule(threshold)
        assert scalar.by_skips(threshold)
        assert (limit, scalar.chunk_bits(threshold)) == (longest, bits)
        assert inverse == pytest.approx(1 / log, rel=2**-51)
        assert limit / inverse <= scalar.REACH < math.log(16)
        assert limit <= 2.77 * 2**32 / threshold * (1 + 2**-20)
    assert not scalar.by_skips(3)
    assert not scalar.by_skips(2**27 + 1)


@given(v=st.integers(0, POINTS * 15 // 16 - 1))
def test_logarithm_against_mpmath(v):
    """Within 6 * 2^-53 of -log(1 - t), as the proof uses, for any t, also tiny ones."""
    for point in (v, v >> 20, v >> 40, v >> 60):
        t = formulas.uniform64(point >> 32, point & 0xFFFFFFFF)
        with mpmath.workdps(40):
            assert abs(mpmath.mpf(t) * POINTS / (point + mpmath.mpf("0.5")) - 1) <= 2.0**-53 * (1 + 2**-50)
            truth = -mpmath.log(1 - mpmath.mpf(t))
            assert abs(mpmath.mpf(formulas.tail_log(t)) / truth - 1) <= 6 * 2.0**-53
            assert abs(mpmath.mpf(scalar.tail_log(t)) / truth - 1) <= 8 * 2.0**-53       # each fma rounded twice


def least_point(g: int, inverse: float, limit: float) -> int:
    """The smallest v in 0 .. 2^64 whose gap is at least ``g``: the gap doesn't decrease in v."""
    low, high = 0, POINTS
    while low < high:
        middle = (low + high) // 2
        if math.floor(formulas.gap(formulas.uniform64(middle >> 32, middle & 0xFFFFFFFF), inverse, limit)) >= g:
            high = middle
        else:
            low = middle + 1
    return low


@pytest.mark.parametrize("threshold", [4, 77, 10**4, 1_717_987, 2**24, 2**27])
def test_gaps_have_the_proved_law(threshold):
    """P(gap = g) counted exactly, by bisection over the 2^64 points, against q (1 - q)^g with the E of the proof."""
    inverse, limit = scalar.skip_constants(threshold)
    reach = min(int(limit), 1 << scalar.chunk_bits(threshold))
    with mpmath.workdps(50):
        told = mpmath.mpf(threshold) / 2**32
        q = told * (1 - mpmath.mpf(scalar.SHRINK))
        for g in sorted({0, 1, 2, reach // 3, reach // 2, reach - 2}):
            if not 0 <= g < reach - 1:
                continue
            points = least_point(g + 1, inverse, limit) - least_point(g, inverse, limit)
            mass = mpmath.mpf(points) / POINTS
            assert abs(mass / (q * (1 - q) ** g) - 1) <= 6e-9
            assert q * (1 + 4.2 * 6e-9) <= told      # four factors of the proof stay below the told rate
        tail = 1 - mpmath.mpf(least_point(int(limit), inverse, limit)) / POINTS
        assert abs(tail / (1 - q) ** int(limit) - 1) <= 6e-9


def test_rates_are_those_told():
    """Counts against the binomial, for skips, masks and the rule's edge; two-sided p-value above 1e-6, seeds fixed."""
    for q in (2e-4, 1e-3, 0.02, 2**-5, 0.05, 0.3, 0.999):
        threshold, n, steps = math.floor(q * 2**32), 400_000, 10
        taken = np.sum([count(key_of(4), step, n, threshold) for step in range(steps)], axis=0)
        assert stats.binomtest(int(taken.sum()), n * steps, threshold / 2**32).pvalue > 1e-6
        expected = np.full(8, taken.sum() / 8)
        assert stats.chisquare(taken, expected).pvalue > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("q", [0.01, 0.25])
def test_each_record_and_each_pair_of_neighbours_is_drawn_at_the_told_rate(q):
    """Over many steps: single counts are binomial(q), those of neighbours (also over a chunk's edge) binomial(q^2)."""
    threshold, n, steps = math.floor(q * 2**32), 20_000, 300
    taken = np.array([reference.minibatch(key_of(5), step, n, threshold) for step in range(steps)])
    q = threshold / 2**32
    single = stats.chi2.sf(((taken.sum(axis=0) - steps * q) ** 2 / (steps * q * (1 - q))).sum(), n)
    assert 1e-6 < single < 1 - 1e-6
    for lag in (1, 7, 16, 255):
        both = int((taken[:, lag:] & taken[:, :-lag]).sum())
        assert stats.binomtest(both, steps * (n - lag), q * q).pvalue > 1e-6
    size = 1 << scalar.chunk_bits(threshold)
    edges = np.arange(size, n, size)
    both = int((taken[:, edges] & taken[:, edges - 1]).sum())
    assert stats.binomtest(both, steps * len(edges), q * q).pvalue > 1e-6
    between = int((taken[1:] & taken[:-1]).sum())       # steps are independent too
    assert stats.binomtest(between, (steps - 1) * n, q * q).pvalue > 1e-6
