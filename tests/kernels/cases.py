"""Random cases of the steps, what the reference says of them, and how far single precision may be from it."""

import math

import numpy as np

from pgbb_fast.kernels import reference
from pgbb_fast.kernels.arguments import Draws, Records, Stream
from pgbb_fast.kernels.scalar.losses import WITH_SCALE

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


def tolerance(loss, records, draws, mechanism, stream):
    """What single precision (v = 2^-24) may change, in units of 2^-32, for |x| <= 1.

    A slope's argument has at most p + 4 roundings of at most ``reach``, and ``steep`` bounds the slope's derivative in
    it; the rational functions add 1e-7, the exponential what it says; clipping, the weight and the product add p + 20
    roundings of at most the bound.  One record's term then moves by at most 2^22 of all this in units of C, plus one
    for rounding to the grid.
    """
    p, v = records.x.shape[1], 2.0**-24
    drawn = int(reference.minibatch(stream.key, stream.step, len(records.x), mechanism.threshold).sum())
    reach = float((1 + np.abs(draws.theta).sum(axis=1)).max()) + float(np.abs(records.y).max(initial=0))
    first, second = draws.constants[0]
    s = float(draws.theta[:, -1].min())
    steep = {
        "quantile_gaussian": 0.4 / second,
        "quantile_logistic": 0.25 / second,
        "huber_concomitant": (1 + first) / s,
        "huber_fixed": 1.0,
        "logistic": 0.25,
        "expectile": max(first, 1 - first),
        "poisson": second * math.exp(first),
        "mean": 1.0,
        "exponential_mean": 1 / s**2 + 1 / s,
    }[loss]
    rough = 2.5e-7 * (1 + reach) * steep if loss == "poisson" else 1e-7
    slope = steep * (p + 4) * v * reach + rough
    return (drawn * (2.0**22 * (slope * math.sqrt(p + 2) / mechanism.clip + (p + 20) * v) + 1)) * 2**10
