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
from pgbb_fast.kernels.reference.losses import WITH_SCALE
from pgbb_fast.kernels.scalar import clip as scalar_clip

REGRESSION = sorted(reference.REGRESSION_SLOPES)
LOCATION = sorted(reference.LOCATION_SLOPES)
GRID = 2**32


def problem(loss: str, n: int, p: int, K: int, S: int, intercept: bool = True, seed: int = 0):
    """Random records, draws and stream.  Returns records, draws, stream, d."""
    rng = np.random.default_rng([seed, n, p, K, S])
    if loss in LOCATION:
        d = p
        x = rng.uniform(0, 1, (n, p))
    else:
        d = p + intercept + (loss in WITH_SCALE)
        x = rng.uniform(-1, 1, (n, p))
    y = rng.integers(0, 2, n) if loss == "logistic" else rng.normal(0, 0.5, n)
    block = np.resize(np.arange(S + 1), n)
    rng.shuffle(block)
    weights = np.zeros((K, S + 1))
    weights[:, :S] = rng.dirichlet(np.ones(S), K)
    theta = rng.normal(0, 0.5, (K, d))
    if loss in WITH_SCALE or loss in LOCATION:
        theta = np.abs(theta) + 0.2
    records = Records(x.astype(np.float32), y.astype(np.float32), block.astype(np.int32))
    draws = Draws(theta, weights, np.tile([0.6, 0.35], (K, 1)))
    return records, draws, Stream(rng.integers(0, 2**32, 8), 11), d


def expected(loss, intercept, records, draws, mechanism, stream):
    if loss in LOCATION:
        return reference.location_step(loss, records, draws, mechanism, stream)
    return reference.regression_step(loss, intercept, records, draws, mechanism, stream)


def tolerance(records, draws, mechanism, stream):
    """A term's rounding, a few 2^-53 of at most one unit C, moves its truncation by at most one grid point, and only if
    it lies within 2^-48 * 2^32 of a grid point: at most one point for each record drawn, and never more than 2^-10
    of them plus a few."""
    drawn = int(reference.sampled(stream.key, stream.step, len(records.x), mechanism.threshold).sum())
    return 3 + drawn // 1024


@pytest.mark.parametrize("q", [1e-3, 0.3, 1.0])
@pytest.mark.parametrize("S", [3, 20])
@pytest.mark.parametrize("K", [1, 3, 10])
@pytest.mark.parametrize("loss", REGRESSION + LOCATION)
def test_kernel_equals_reference(loss, K, S, q):
    records, draws, stream, d = problem(loss, 5_003, 4, K, S)
    mechanism = Mechanism(0.7, math.floor(q * GRID), 1.5)
    want = expected(loss, True, records, draws, mechanism, stream)
    got = cpu.gradient_sums(loss, True, records, draws, mechanism, stream)
    assert got.shape == (K, d)
    assert np.abs(got - want).max() <= tolerance(records, draws, mechanism, stream)
    noisy = cpu.noisy_gradient(loss, True, records, draws, mechanism, stream)
    noise = reference.noise((K, d), mechanism, stream)
    # the noise's radius and angle each carry a few ulp: 2^-50 of sigma 2^32 times at most 12
    assert np.abs(noisy - got - noise).max() <= 1


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 4_095, 4_096, 4_097, 9_000])
@pytest.mark.parametrize("loss", ["huber_concomitant", "mean"])
def test_ragged_sizes(loss, n):
    records, draws, stream, _ = problem(loss, n, 2, 2, 3)
    mechanism = Mechanism(1.0, GRID // 2, 0.0)
    want = expected(loss, True, records, draws, mechanism, stream)
    got = cpu.gradient_sums(loss, True, records, draws, mechanism, stream)
    assert np.abs(got - want).max() <= tolerance(records, draws, mechanism, stream)


@pytest.mark.parametrize("p", [1, 2, 7, 33])
@pytest.mark.parametrize("intercept", [True, False])
def test_numbers_of_features(p, intercept):
    records, draws, stream, _ = problem("quantile_gaussian", 999, p, 2, 5, intercept)
    mechanism = Mechanism(0.9, GRID, 0.0)
    want = expected("quantile_gaussian", intercept, records, draws, mechanism, stream)
    got = cpu.gradient_sums("quantile_gaussian", intercept, records, draws, mechanism, stream)
    assert np.abs(got - want).max() <= tolerance(records, draws, mechanism, stream)


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
    assert not reference.sampled(stream.key, stream.step, 200, 1).any()
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
    y = np.stack(
        [
            reference.release(cpu.noisy_gradient("huber_fixed", True, records, zero, mechanism, Stream(key, t)), clip, block_size)
            for t in range(2_000)
        ]
    )
    sigma = multiplier * clip / block_size
    statistic, count = float((y**2).sum()) / sigma**2, y.size
    assert stats.chi2.ppf(5e-7, count) < statistic < stats.chi2.isf(5e-7, count)
    assert stats.kstest(y.ravel() / sigma, "norm").pvalue > 1e-6
    assert y.shape == (2_000, 10, d)


def test_left_out_records_and_unsampled_records_count_for_nothing():
    records, draws, stream, _ = problem("logistic", 1_000, 3, 2, 4)
    mechanism = Mechanism(1.0, math.floor(0.5 * GRID), 0.0)
    out = (records.block == 4) | ~reference.sampled(stream.key, stream.step, 1_000, mechanism.threshold)
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
    rest = cpu.gradient_sums(loss, True, records._replace(block=np.where(np.arange(300) == 5, 3, records.block).astype(np.int32)), draws, mechanism, stream)
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


def test_clip_factor_never_exceeds_the_bound():
    rng = np.random.default_rng(9)
    for _ in range(2_000):
        g = rng.normal(size=6) * 10 ** rng.uniform(-8, 8)
        bound = 10 ** rng.uniform(-6, 6)
        factor = scalar_clip.clip_factor(float((g**2).sum()), bound)
        assert factor <= 1.0
        assert factor * np.linalg.norm(g) <= bound * (1 - 2**-41)
    assert scalar_clip.clip_factor(math.nan, 1.0) == 0.0
    assert scalar_clip.clip_factor(math.inf, 1.0) == 0.0


def test_grid_truncates_toward_zero():
    assert scalar_clip.to_grid(0.999999 / GRID) == 0
    assert scalar_clip.to_grid(-1.5 / GRID) == -1
    assert scalar_clip.to_grid(1.0) == GRID
    assert scalar_clip.to_grid(math.nan) == 0
    assert scalar_clip.to_grid(math.inf) == 0
