"""Stacked scores in whitened coordinates: what one record can do, exactly, and each kernel against the reference."""

import math
import statistics

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from pgbb_fast.kernels import cpu, reference
from pgbb_fast.kernels.arguments import Draws, Mechanism, Records, Stack, Stream
from pgbb_fast.kernels.scalar.losses import WITH_SCALE

GRID = 2**32
LEVELS = np.array([0.1, 0.25, 0.5, 0.75, 0.9])
CONSTANTS = {"quantile_gaussian": (0.5, 0.2), "huber_concomitant": (1.345, 0.71), "logistic": (0.0, 0.0)}


def problem(loss: str, n: int, p: int, L: int, intercept: bool = True, seed: int = 0, condition: float = 1.0):
    """Random records, a stack and a stream; the map's columns are ``condition`` apart."""
    rng = np.random.default_rng([seed, n, p, L])
    m = p + intercept
    x = rng.uniform(-1, 1, (n, p)).astype(np.float32)
    y = (rng.integers(0, 2, n) if loss == "logistic" else rng.normal(0, 0.5, n)).astype(np.float32)
    theta = rng.normal(0, 0.5, (L, m + (loss in WITH_SCALE)))
    constants = np.tile(CONSTANTS[loss], (L, 1))
    mix = np.tril(rng.normal(0, 0.5, (L, L))) + 1.5 * np.eye(L)
    if loss in WITH_SCALE:
        theta[:, -1] = np.abs(theta[:, -1]) + 0.3
    if loss.startswith("quantile"):     # the inverse of the Cholesky factor of the scores' covariance
        levels = LEVELS[:L]
        constants[:, 0] = levels
        mix = np.linalg.inv(np.linalg.cholesky(np.minimum.outer(levels, levels) - np.outer(levels, levels)))
    whiten = np.tril(rng.normal(0, 0.4, (m, m))) + np.diag(np.geomspace(1.5, 1.5 * condition, m))
    scale_mix = np.tril(rng.normal(0, 0.5, (L, L))) if loss in WITH_SCALE else np.empty((0, 0))
    stack = Stack(theta, constants, whiten, np.tril(mix), scale_mix, 1.4 * math.sqrt(m), 3.0 * math.sqrt(m))
    return Records(x, y, np.zeros(n, np.int32)), stack, Stream(rng.integers(0, GRID, 8), 3)


def squared(integers) -> int:
    """Squared Euclidean length, exactly."""
    return sum(int(v) ** 2 for v in np.asarray(integers).ravel())


def placed(loss: str, records):
    """Those of a loss with a scale are stored by columns, where one compiled kernel takes any number of features."""
    order = "F" if loss in WITH_SCALE else "C"
    return records._replace(x=np.asarray(records.x, order=order))


KERNELS = [reference, cpu]


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("loss", ["quantile_gaussian", "huber_concomitant"])
@settings(max_examples=40)
@given(data=st.data())
def test_replacing_one_record_moves_the_sums_by_at_most_twice_the_bound(loss, kernels, data):
    """Whatever the records, the thetas (crossing levels too) and the matrices; and the bound is nearly reached."""
    condition = data.draw(st.sampled_from([1.0, 1e-6, 1e6]))
    records, stack, stream = problem(loss, 40, 3, 5, True, data.draw(st.integers(0, 2**20)), condition)
    records = placed(loss, records)
    spread = data.draw(st.sampled_from([1.0, 30.0]))
    theta = stack.theta[::-1] * spread      # in the opposite order, and far apart
    if loss in WITH_SCALE:
        theta[:, -1] = np.abs(theta[:, -1])
    bound = data.draw(st.sampled_from([1e-3, 1.0, 6.0, 100.0]))
    stack = stack._replace(theta=theta, clip=bound, feature_bound=data.draw(st.sampled_from([0.1, 2.8, 1e3])))
    extreme = st.one_of(st.floats(-1e6, 1e6, width=32), st.floats(width=32), st.sampled_from([0.0, 2.0**48, -1e30]))
    x, y = records.x.copy(order="K"), records.y.copy()
    x[7], y[7] = [data.draw(extreme) for _ in range(3)], data.draw(extreme)

    def only(x, y):
        """The record's integers, with another one that counts as zero: one row has no order."""
        x, y = np.vstack([x[7:8], np.full((1, 3), np.nan, np.float32)]), np.append(y[7:8], np.float32(0))
        return kernels.stacked_sums(loss, True, placed(loss, records._replace(x=x, y=y)), stack, stream)

    alone = only(x, y)
    assert squared(alone) <= GRID**2
    a = kernels.stacked_sums(loss, True, records, stack, stream)
    b = kernels.stacked_sums(loss, True, records._replace(x=x, y=y), stack, stream)
    assert squared(a - b) <= (2 * GRID) ** 2
    assert np.array_equal(b - a, alone - only(records.x, records.y))    # integers are added exactly
    if bound == 1e-3 and np.isfinite(x[7]).all() and np.abs(x[7]).max() < 1e6 and abs(y[7]) < 1e6:
        assert squared(alone) >= (0.999 * GRID) ** 2    # shortened, not left out


def by_hand(loss: str, intercept: bool, records, stack) -> np.ndarray:
    """Sum over records of the shortened score over C, one record and one number at a time, in double precision."""
    L, d = stack.theta.shape
    m = len(stack.map)
    total = np.zeros((L, d))
    normal = statistics.NormalDist()
    for row, y in zip(records.x.tolist(), records.y.tolist(), strict=True):
        xbar = [1.0, *row] if intercept else row
        psi, chi = [], []
        for theta, (first, second) in zip(stack.theta.tolist(), stack.constants.tolist(), strict=True):
            r = y - sum(t * v for t, v in zip(theta, xbar, strict=False))
            if loss == "quantile_gaussian":
                psi.append(normal.cdf(-r / second) - first)
            else:                                               # Huber (1981): slopes of s rho(r/s) + kappa s/2
                z = r / theta[-1]
                psi.append(-max(-first, min(first, z)))
                chi.append(second / 2 - min(z * z, first * first) / 2)
        white = [sum(stack.map[j, i] * xbar[i] for i in range(m)) for j in range(m)]
        f = min(1.0, stack.feature_bound / math.hypot(*white))
        a = [sum(stack.mix[k, t] * psi[t] for t in range(L)) for k in range(L)]
        score = [[a[k] * f * v for v in white] for k in range(L)]
        for k in range(L if chi else 0):
            score[k].append(sum(stack.scale_mix[k, t] * chi[t] for t in range(L)))
        g = min(1.0, stack.clip / math.hypot(*(v for part in score for v in part)))
        total += np.array(score) * (g / stack.clip)
    return total


@pytest.mark.parametrize("clip", [2.0, 50.0])
@pytest.mark.parametrize("feature_bound", [1.5, 40.0])
@pytest.mark.parametrize("loss", ["quantile_gaussian", "huber_concomitant"])
def test_the_reference_is_the_definition(loss, feature_bound, clip):
    """Each term may be off by a rounding of 1/2 and, where it is shortened, by the limit's and the weight's slack."""
    records, stack, stream = problem(loss, 200, 2, 3)
    stack = stack._replace(feature_bound=feature_bound, clip=clip)
    got = reference.stacked_sums(loss, True, records, stack, stream)
    want = by_hand(loss, True, records, stack)
    slack = 0.5 + math.sqrt(stack.theta.size) / 2 + 2.0**22 * (len(stack.mix) + len(stack.map) + 16) * 2.0**-24
    assert np.abs(got - want * GRID).max() <= 200 * 2**10 * slack
    assert np.abs(want).max() > 1       # of up to 200: far beyond the tolerance
    moments = reference.stacked_moments(loss, True, records, stack)
    alone = (records._replace(x=records.x[i : i + 1], y=records.y[i : i + 1]) for i in range(200))
    outer = sum(np.outer(v, v) for v in (by_hand(loss, True, one, stack) for one in alone))
    assert np.abs(moments - outer * GRID).max() <= 200 * (1 + GRID * 2.0**-20)
    assert np.array_equal(moments, moments.T)


def test_one_rule_without_a_map_is_the_plain_step():
    """W = 1, V = 1, no bound that binds, one weight 1: the same integers as ``regression_step``."""
    records, stack, stream = problem("quantile_gaussian", 500, 3, 1)
    stack = stack._replace(map=np.eye(4), mix=np.eye(1), feature_bound=50.0, clip=4.0)
    draws = Draws(stack.theta, np.array([[1.0, 0.0]]), stack.constants)
    want = reference.regression_step("quantile_gaussian", True, records, draws, Mechanism(4.0, GRID, 0.0), stream)
    assert np.array_equal(reference.stacked_sums("quantile_gaussian", True, records, stack, stream), want)
    own = reference.stacked_sums_user(
        lambda k, y, eta: ndtr((eta - y) / stack.constants[k, 1]) - stack.constants[k, 0], True, records, stack, stream
    )
    assert np.array_equal(own, want)


def test_linear_is_the_second_moment_of_shortened_whitened_features():
    records, stack, _ = problem("quantile_gaussian", 300, 3, 1)
    bound = 1.9
    stack = stack._replace(theta=np.zeros((1, 4)), mix=np.eye(1), feature_bound=bound, clip=bound)
    white = np.column_stack([np.ones(300), records.x]) @ stack.map.T
    length = np.linalg.norm(white, axis=1)
    assert (length > bound).mean() > 0.1
    short = white * np.minimum(1, bound / length)[:, None] / bound
    for kernels in KERNELS:
        got = kernels.stacked_moments("linear", True, records, stack)
        assert np.abs(got - short.T @ short * GRID).max() <= 300 * (1 + GRID * 2.0**-20)


def tolerance(loss, records, stack, drawn):
    """What single precision (v = 2^-24) may change in sums over ``drawn`` records with |x| <= 1, in units of 2^-32.

    f xw and the whole score are projections onto balls, which move no farther than what is projected, so that a term
    moves by at most |da| B + |a| |dxw| + |db| and by the L + m + 20 roundings of shortening, weighing and the product.
    xw and a are m + 2 and L + 2 roundings of what they sum; a slope's argument has m + 4, ``steep`` is the largest
    derivative in it, and the rational functions add 1e-7.  Then each term is rounded to the grid.
    """
    L, m, v = len(stack.mix), len(stack.map), 2.0**-24
    reach = float(np.abs(stack.theta).sum(axis=1).max() + np.abs(records.y).max())
    first, second = stack.constants[0]
    if loss == "quantile_gaussian":
        largest, steep, of_chi = 1.0, 0.4 / second, 0.0
    else:
        s = float(stack.theta[:, -1].min())
        largest, steep, of_chi = first, 1 / s, (first**2 + second) / 2
    slope = (1 + largest) * steep * (m + 4) * v * reach + 1e-7
    mixed, mixed_s = (float(np.linalg.norm(np.abs(part).sum(axis=1))) / stack.clip for part in stack[3:5])
    of_white = float(np.linalg.norm(np.abs(stack.map).sum(axis=1))) * (m + 2) * v
    term = mixed * (slope + (L + 2) * v * largest) * stack.feature_bound + mixed * largest * of_white
    term += mixed_s * (slope + (L + 2) * v * of_chi) + (L + m + 20) * v
    return drawn * (2.0**22 * term + 1) * 2**10


@pytest.mark.parametrize("q", [1e-3, 0.3, 1.0])
@pytest.mark.parametrize(("feature_bound", "clip"), [(1.0, 1.0), (1.0, 20.0), (100.0, 3.0), (100.0, 1e3)])
@pytest.mark.parametrize("loss", ["quantile_gaussian", "huber_concomitant"])
def test_kernel_equals_reference(loss, feature_bound, clip, q):
    """Both bounds binding, one of them, none; every record, a mask, skips."""
    records, stack, stream = problem(loss, 5_003, 3, 5)
    stack = stack._replace(feature_bound=feature_bound, clip=clip, threshold=int(q * GRID), noise_multiplier=1.7)
    drawn = int(reference.minibatch(stream.key, stream.step, 5_003, stack.threshold).sum())
    want = reference.stacked_sums(loss, True, records, stack, stream)
    got = cpu.stacked_sums(loss, True, placed(loss, records), stack, stream)
    assert np.abs(got - want).max() <= tolerance(loss, records, stack, drawn)
    if q == 1.0:
        noisy = cpu.noisy_stacked(loss, True, placed(loss, records), stack, stream)
        z = reference.rounded_normals(stream.key, stream.step, np.full(got.size, 1.7 * GRID))
        assert np.array_equal(noisy - got, z.reshape(got.shape))
        assert np.array_equal(reference.noisy_stacked(loss, True, records, stack, stream) - want, noisy - got)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("n", "p", "L"), [(3, 2, 1), (447, 2, 2), (64, 4, 3), (449, 7, 4), (999, 16, 1), (999, 17, 5)])
def test_sizes(n, p, L, intercept):
    loss = "huber_concomitant"
    records, stack, stream = problem(loss, n, p, L, intercept)
    want = reference.stacked_sums(loss, intercept, records, stack, stream)
    got = cpu.stacked_sums(loss, intercept, placed(loss, records), stack, stream)
    assert np.abs(got - want).max() <= tolerance(loss, records, stack, n)


@pytest.mark.parametrize("loss", ["quantile_gaussian", "huber_concomitant"])
def test_threads_blocks_and_maps_change_no_bit(loss):
    """More records than are added in 32 bits; block ids, which have no meaning here, are not even read."""
    records, stack, stream = problem(loss, 60_001, 3, 5)
    records = placed(loss, records._replace(y=np.clip(records.y, -1, 1)))
    same = np.tile(np.array([1.0, 0.0], np.float32), (4, 1))
    kinds = [records._replace(block=np.empty(0, np.int32)), records, records._replace(map=same)]
    results = []
    before = numba.get_num_threads()
    try:
        for threads in sorted({1, min(2, numba.config.NUMBA_NUM_THREADS)}):
            numba.set_num_threads(threads)
            results += [cpu.stacked_sums(loss, True, kind, stack, stream) for kind in kinds]
    finally:
        numba.set_num_threads(before)
    for result in results[1:]:
        assert np.array_equal(result, results[0])
    want = reference.stacked_sums(loss, True, records, stack, stream)
    assert np.abs(results[0] - want).max() <= tolerance(loss, records, stack, 60_001)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e30, 1e38])
@pytest.mark.parametrize("loss", ["quantile_gaussian", "huber_concomitant"])
def test_a_record_that_is_not_finite_counts_as_zero(loss, bad):
    records, stack, stream = problem(loss, 300, 3, 5)
    x = records.x.copy()
    x[5, 1] = bad
    rest = np.arange(300) != 5
    fewer = records._replace(x=x[rest], y=records.y[rest])
    for kernels in KERNELS:
        got = kernels.stacked_sums(loss, True, placed(loss, records._replace(x=x)), stack, stream)
        assert np.array_equal(got, kernels.stacked_sums(loss, True, placed(loss, fewer), stack, stream))
        moments = kernels.stacked_moments(loss, True, records._replace(x=x), stack)
        assert np.array_equal(moments, kernels.stacked_moments(loss, True, fewer, stack))


@pytest.mark.parametrize("loss", ["quantile_gaussian", "huber_concomitant"])
def test_moments_equal_the_reference(loss):
    """A product is rounded to a grid point nearby; each number is off by a few roundings of 2^-53."""
    records, stack, _ = problem(loss, 2_000, 3, 5)
    for bounds in ((1.0, 1.0), (100.0, 100.0)):
        here = stack._replace(feature_bound=bounds[0], clip=bounds[1])
        want = reference.stacked_moments(loss, True, records, here)
        got = cpu.stacked_moments(loss, True, records, here)
        assert np.abs(got - want).max() <= 2_000 * (1 + 64 * 2.0**-53 * GRID)
        for i in range(0, 2_000, 500):
            one = records._replace(x=records.x[i : i + 1], y=records.y[i : i + 1])
            assert squared(cpu.stacked_moments(loss, True, one, here)) <= GRID**2


def test_what_does_not_fit_is_refused():
    records, stack, stream = problem("quantile_gaussian", 20, 3, 2)
    wrong = {
        "map must have": stack._replace(map=np.eye(3)),
        "mix must be lower": stack._replace(mix=np.ones((2, 2))),
        "scale_mix must have": stack._replace(scale_mix=np.eye(2)),
        "constants must have": stack._replace(constants=np.zeros((3, 2))),
        "feature_bound must lie": stack._replace(feature_bound=math.inf),
        "clip must lie": stack._replace(clip=math.nan),
    }
    for kernels in KERNELS:
        for message, bad in wrong.items():
            with pytest.raises(ValueError, match=message):
                kernels.stacked_sums("quantile_gaussian", True, records, bad, stream)
            with pytest.raises(ValueError, match=message):
                kernels.stacked_moments("quantile_gaussian", True, records, bad)
    with pytest.raises(ValueError, match="contiguous with 3 columns"):
        cpu.stacked_sums("quantile_gaussian", True, records._replace(x=records.x[:, :2]), stack, stream)
