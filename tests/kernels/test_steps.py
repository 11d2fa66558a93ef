"""Every compiled step against the reference; sums, sensitivity, noise, samples."""

import math

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pgbb_fast.kernels import cpu, reference
from pgbb_fast.kernels.arguments import Draws, Mechanism, Records, Stream
from pgbb_fast.kernels.scalar import clip as scalar_clip
from tests.kernels.cases import GRID, LOCATION, REGRESSION, expected, problem, tolerance


@pytest.mark.parametrize("q", [1e-3, 0.02, 0.3, 1.0])
@pytest.mark.parametrize("S", [3, 20])
@pytest.mark.parametrize("K", [1, 3, 10])
@pytest.mark.parametrize("loss", REGRESSION + LOCATION)
def test_kernel_equals_reference(loss, K, S, q):
    records, draws, stream, d = problem(loss, 5_003, 4, K, S)
    mechanism = Mechanism(0.7, math.floor(q * GRID), 1.5)
    want = expected(loss, True, records, draws, mechanism, stream)
    got = cpu.gradient_sums(loss, True, records, draws, mechanism, stream)
    allowed = tolerance(loss, records, draws, mechanism, stream)
    assert got.shape == (K, d)
    assert np.abs(got - want).max() <= allowed
    noisy = cpu.noisy_gradient(loss, True, records, draws, mechanism, stream)
    noise = reference.noise((K, d), mechanism, stream)
    assert np.array_equal(noisy - got, noise)


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 4_095, 4_096, 4_097, 9_000])
@pytest.mark.parametrize("loss", ["huber_concomitant", "mean"])
def test_ragged_sizes(loss, n):
    records, draws, stream, _ = problem(loss, n, 2, 2, 3)
    mechanism = Mechanism(1.0, GRID // 2, 0.0)
    want = expected(loss, True, records, draws, mechanism, stream)
    got = cpu.gradient_sums(loss, True, records, draws, mechanism, stream)
    assert np.abs(got - want).max() <= tolerance(loss, records, draws, mechanism, stream)


@pytest.mark.parametrize("p", [1, 2, 7, 8, 15, 16, 17, 33])
@pytest.mark.parametrize("intercept", [True, False])
def test_numbers_of_features(p, intercept):
    records, draws, stream, _ = problem("quantile_gaussian", 999, p, 2, 5, intercept)
    mechanism = Mechanism(0.9, GRID, 0.0)
    want = expected("quantile_gaussian", intercept, records, draws, mechanism, stream)
    got = cpu.gradient_sums("quantile_gaussian", intercept, records, draws, mechanism, stream)
    assert np.abs(got - want).max() <= tolerance("quantile_gaussian", records, draws, mechanism, stream)


@pytest.mark.parametrize("loss", REGRESSION + LOCATION)
def test_one_and_two_threads_give_the_same_bits(loss):
    records, draws, stream, _ = problem(loss, 30_001, 3, 3, 20)
    mechanism = Mechanism(0.8, math.floor(0.3 * GRID), 2.0)
    before = numba.get_num_threads()
    try:
        results = []
        for threads in sorted({1, min(2, numba.config.NUMBA_NUM_THREADS)}):
            numba.set_num_threads(threads)
            results.append(cpu.noisy_gradient(loss, True, records, draws, mechanism, stream))
    finally:
        numba.set_num_threads(before)
    for result in results:
        assert np.array_equal(result, results[0])


def test_an_empty_minibatch_still_releases_noise():
    records, draws, stream, d = problem("huber_fixed", 200, 2, 2, 3)
    mechanism = Mechanism(1.0, 1, 2.0)      # inclusion probability 2^-32
    assert not reference.minibatch(stream.key, stream.step, 200, 1).any()
    got = cpu.noisy_gradient("huber_fixed", True, records, draws, mechanism, stream)
    assert np.array_equal(got, reference.noise((2, d), mechanism, stream))
    assert (got != 0).all()


def test_measured_noise_has_the_stated_variance():
    """Zero gradients: the sample variance of Y is sigma^2 chi-square; two-sided false alarm 1e-6, seed fixed."""
    records, draws, _, d = problem("huber_fixed", 64, 3, 10, 3)
    zero = Draws(draws.theta, 0.0 * draws.weights, draws.constants)
    key = np.random.default_rng(8).integers(0, 2**32, 8)
    clip, block_size, multiplier = 0.9, 21, 1.7
    mechanism = Mechanism(clip, GRID, multiplier)
    grids = [cpu.noisy_gradient("huber_fixed", True, records, zero, mechanism, Stream(key, t)) for t in range(2_000)]
    y = np.stack([reference.release(grid, clip, block_size) for grid in grids])
    sigma = multiplier * clip / block_size
    statistic, count = float((y**2).sum()) / sigma**2, y.size
    assert stats.chi2.ppf(5e-7, count) < statistic < stats.chi2.isf(5e-7, count)
    assert stats.kstest(y.ravel() / sigma, "norm").pvalue > 1e-6
    assert y.shape == (2_000, 10, d)


def test_left_out_records_and_unsampled_records_count_for_nothing():
    records, draws, stream, _ = problem("logistic", 1_000, 3, 2, 4)
    mechanism = Mechanism(1.0, math.floor(0.5 * GRID), 0.0)
    out = (records.block == 4) | ~reference.minibatch(stream.key, stream.step, 1_000, mechanism.threshold)
    changed = records.x.copy()
    changed[out] = 77.0
    same = cpu.gradient_sums("logistic", True, records._replace(x=changed), draws, mechanism, stream)
    assert np.array_equal(same, cpu.gradient_sums("logistic", True, records, draws, mechanism, stream))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e30])
@pytest.mark.parametrize("loss", REGRESSION + LOCATION)
def test_a_record_that_is_not_finite_counts_as_zero_and_never_spreads(loss, bad):
    """Second line of defence behind validation: the sum stays that of the other records, within one clipped term."""
    records, draws, stream, _ = problem(loss, 300, 2, 2, 3)
    mechanism = Mechanism(0.5, GRID, 0.0)
    x = records.x.copy()
    x[5, 0] = bad
    got = cpu.gradient_sums(loss, True, records._replace(x=x), draws, mechanism, stream)
    block = np.where(np.arange(300) == 5, 3, records.block).astype(np.int32)
    rest = cpu.gradient_sums(loss, True, records._replace(block=block), draws, mechanism, stream)
    u = draws.weights[:, records.block[5]]
    if not math.isfinite(bad):
        assert np.array_equal(got, rest)
    assert (np.linalg.norm((got - rest).astype(float), axis=1) <= u * GRID).all()


@pytest.mark.parametrize("loss", REGRESSION + LOCATION)
@given(data=st.data())
def test_replacing_one_record_moves_the_sum_by_at_most_two_clipped_terms(loss, data):
    """The sensitivity that the accountant is told, exactly, whatever the records: |Y - Y'| <= 2 u C / n_S."""
    seed = data.draw(st.integers(0, 2**20))
    bound = data.draw(st.sampled_from([1e-3, 0.3, 1.0, 50.0]))
    extreme = st.floats(-1e6, 1e6, width=32)
    records, draws, stream, _ = problem(loss, 40, 3, 2, 3, seed=seed)
    x, y = records.x.copy(), records.y.copy()
    x[7], y[7] = [data.draw(extreme) for _ in range(3)], data.draw(extreme)
    mechanism = Mechanism(bound, GRID, 0.0)
    a = cpu.gradient_sums(loss, True, records, draws, mechanism, stream)
    b = cpu.gradient_sums(loss, True, records._replace(x=x, y=y), draws, mechanism, stream)
    u = draws.weights[:, records.block[7]]
    for k in range(2):
        squared = sum(int(v) ** 2 for v in (a[k] - b[k]))       # exact integers
        assert squared <= (2 * u[k] * GRID) ** 2


def test_clip_factor_never_exceeds_the_limit():
    rng = np.random.default_rng(9)
    for _ in range(2_000):
        squared = float(10 ** rng.uniform(-16, 16))
        limit = scalar_clip.clip_limit(int(rng.integers(1, 1_000)))
        factor = scalar_clip.clip_factor(squared, limit)
        assert factor <= 1.0
        assert factor * math.sqrt(squared) <= limit * (1 + 2**-51)


def test_limit_is_exact_in_single_precision():
    for p in (1, 2, 10, 1_000, 2**14):
        assert float(np.float32(scalar_clip.clip_limit(p))) == scalar_clip.clip_limit(p) < 1


def test_weights_on_the_grid():
    for largest in (1.0, 0.5, 0.4999, 0.25, 0.1, 2.0**-10, 1e-5, 0.0):
        e = scalar_clip.weight_exponent(largest)
        assert largest <= 2.0**-e
        assert e == 10 or largest == 0.0 or largest * 2.0 ** (e + 1) >= 1
        for less in (0.0, 1.5):
            want = max(largest * 2.0 ** (22 + e) - less, 0.0)
            assert scalar_clip.grid_weight(largest, e, less) == want <= 2**22
    for bad in (-1e-9, 1.0000001, math.nan, math.inf):
        assert scalar_clip.grid_weight(bad, 3, 0.5) == 0.0


def test_rounding_is_bounded_and_reached():
    """The farthest that rounding moves a vector is (1/2, ..., 1/2) away."""
    for d in (1, 2, 3, 50):
        half = np.full(d, 0.5)      # ties go to even: to 0
        assert scalar_clip.rounding(d) == pytest.approx(np.linalg.norm(half - np.rint(half)), rel=1e-15)


def test_the_magic_number_rounds():
    """Bits of M + t are those of M plus t rounded to the nearest integer, for all of [-2^22, 2^22] that is tried."""
    rng = np.random.default_rng(4)
    t = np.concatenate([rng.uniform(-(2**22), 2**22, 100_000), np.arange(-5, 5.5, 0.5), [2.0**22, -(2.0**22)]])
    t = t.astype(np.float32)
    bits = (t + np.float32(scalar_clip.MAGIC)).view(np.int32).astype(np.int64) - scalar_clip.MAGIC_BITS
    assert np.array_equal(bits, np.rint(t).astype(np.int64))


def test_terms_are_rounded_to_the_nearest():
    """One record, weight 1, less what rounding may add: the slope's product, rounded on the grid of 2^-22."""
    key = np.arange(8)
    weight = np.float32(2**22 - scalar_clip.rounding(2))
    for target in (0.7, -0.7, 1e-7, -1e-7, 1.3e-7, -1.3e-7, 2.4e-7, -2.4e-7):
        records = Records(np.zeros((1, 1), np.float32), np.full(1, -target, np.float32), np.zeros(1, np.int32))
        draws = Draws(np.zeros((1, 2)), np.array([[1.0, 0.0]]), np.array([[1.345, 0.0]]))
        got = cpu.gradient_sums("huber_fixed", True, records, draws, Mechanism(1.0, GRID, 0.0), Stream(key, 0))
        assert got[0].tolist() == [round(float(np.float32(target)) * float(weight)) << 10, 0]


def test_wrong_shapes_are_refused():
    records, draws, stream, _ = problem("logistic", 50, 3, 2, 4)
    for x in (records.x[:, :2], records.x[::2], np.column_stack([records.x, records.y])):
        with pytest.raises(ValueError, match="contiguous with 3 columns"):
            cpu.gradient_sums("logistic", True, records._replace(x=x), draws, Mechanism(1.0, GRID, 0.0), stream)
