"""Stacked scores in whitened coordinates: what one record can do, exactly, and each kernel against the reference."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgbb_fast.kernels import reference
from pgbb_fast.kernels.arguments import Records, Stack, Stream
from pgbb_fast.kernels.reference.losses import WITH_SCALE

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


KERNELS = [reference]


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("loss", ["quantile_gaussian", "huber_concomitant"])
@settings(max_examples=40)
@given(data=st.data())
def test_replacing_one_record_moves_the_sums_by_at_most_twice_the_bound(loss, kernels, data):
    """Whatever the records, the thetas (crossing levels too) and the matrices; and the bound is nearly reached."""
    condition = data.draw(st.sampled_from([1.0, 1e-6, 1e6]))
    records, stack, stream = problem(loss, 40, 3, 5, True, data.draw(st.integers(0, 2**20)), condition)
    spread = data.draw(st.sampled_from([1.0, 30.0]))
    theta = stack.theta[::-1] * spread      # in the opposite order, and far apart
    if loss in WITH_SCALE:
        theta[:, -1] = np.abs(theta[:, -1])
    bound = data.draw(st.sampled_from([1e-3, 1.0, 6.0, 100.0]))
    stack = stack._replace(theta=theta, clip=bound, feature_bound=data.draw(st.sampled_from([0.1, 2.8, 1e3])))
    extreme = st.one_of(st.floats(-1e6, 1e6, width=32), st.floats(width=32), st.sampled_from([0.0, 2.0**48, -1e30]))
    x, y = records.x.copy(), records.y.copy()
    x[7], y[7] = [data.draw(extreme) for _ in range(3)], data.draw(extreme)
    one = np.array([7])
    alone = kernels.stacked_sums(loss, True, records._replace(x=x[one], y=y[one]), stack, stream)
    assert squared(alone) <= GRID**2
    a = kernels.stacked_sums(loss, True, records, stack, stream)
    b = kernels.stacked_sums(loss, True, records._replace(x=x, y=y), stack, stream)
    assert squared(a - b) <= (2 * GRID) ** 2
    before = kernels.stacked_sums(loss, True, records._replace(x=records.x[one], y=records.y[one]), stack, stream)
    assert np.array_equal(b - a, alone - before)    # the records' integers are added exactly
    if bound == 1e-3 and np.isfinite(x[7]).all() and np.abs(x[7]).max() < 1e6 and abs(y[7]) < 1e6:
        assert squared(alone) >= (0.999 * GRID) ** 2    # shortened, not left out
