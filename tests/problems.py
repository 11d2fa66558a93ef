"""Data and problems that several test modules use, each with a truth that is known in closed form."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from pgbb_fast.accountant import Ledger
from pgbb_fast.kernels.arguments import BFLOAT16, Records
from pgbb_fast.losses import Loss
from pgbb_fast.release.blocked import Problem

Array = NDArray[np.float64]
X_BOUNDS, Y_BOUNDS = [(-2.0, 2.0), (0.0, 5.0)], (-6.0, 6.0)
PUBLIC = {"x_bounds": X_BOUNDS, "y_bounds": Y_BOUNDS}


def features(n: int, rng: np.random.Generator) -> Array:
    """(n, 2), uniform within ``X_BOUNDS``."""
    return np.column_stack([rng.uniform(*bounds, n) for bounds in X_BOUNDS])


def regression(n: int, seed: int | np.random.Generator = 0) -> tuple[Array, Array]:
    """X (n, 2) and y = 1 + .8 x1 - .5 x2 + e within the public bounds, e normal with standard deviation .5."""
    rng = np.random.default_rng(seed)
    X = features(n, rng)
    return X, 1.0 + X @ [0.8, -0.5] + rng.normal(0, 0.5, n)


def classes(n: int, seed: int | np.random.Generator = 0) -> tuple[Array, Array]:
    """X (n, 2) and y, 1 with log odds .5 + .8 x1 - .3 x2, else 0."""
    rng = np.random.default_rng(seed)
    X = features(n, rng)
    return X, (rng.random(n) < 1 / (1 + np.exp(-(0.5 + X @ [0.8, -0.3])))).astype(float)


def blocked_problem(x: Array, y: Array, block: NDArray[np.integer], loss: Loss, n_blocks: int, **changes) -> Problem:
    """A problem of blocked releases of these records, with an intercept; a quarter of the records is drawn."""
    settings = {
        "records": Records(np.asarray(x, np.float32), np.asarray(y, np.float32), block),
        "loss": loss,
        "intercept": True,
        "n_blocks": n_blocks,
        "block_size": len(x) // n_blocks,
        "gamma": 0.7,
        "clip": 1.0,
        "sampling_threshold": 2**30,
        "noise_multiplier": 2.0,
        "draws_per_step": 2,
        "steps": 20,
    }
    return Problem(**{**settings, **changes})


def bfloat16(values: Array) -> NDArray[np.void]:
    """Numbers cut to the upper 16 bits of their single-precision form."""
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16).view(BFLOAT16)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """delta at ``epsilon`` of two normals ``mu`` standard deviations apart (Balle and Wang 2018, theorem 8)."""
    return float(ndtr(mu / 2 - epsilon / mu)) - math.exp(epsilon + float(log_ndtr(-mu / 2 - epsilon / mu)))


def ledger_of(*mechanisms, **settings) -> Ledger:
    """A ledger with these releases."""
    ledger = Ledger(**settings)
    for mechanism in mechanisms:
        ledger.record(mechanism)
    return ledger
