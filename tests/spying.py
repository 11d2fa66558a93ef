"""What the spies at the kernels' doors share: records to fit, how a door is watched, and how noise is measured."""

import numpy as np
from scipy import stats

GRID, WORD = 2.0**32, 2**32
X_BOUNDS, Y_BOUNDS = [(-2.0, 2.0), (0.0, 5.0)], (-6.0, 6.0)
BUDGET = {"epsilon": 2.0, "delta": 1e-4, "seed": 1}
PUBLIC = {"x_bounds": X_BOUNDS, "y_bounds": Y_BOUNDS}
UNMEASURED = 1e-6


def regression(n, rng):
    """X (n, 2) and y (n,) of a linear model within the public bounds."""
    X = np.column_stack([rng.uniform(*bounds, n) for bounds in X_BOUNDS])
    return X, 1.0 + X @ [0.8, -0.5] + rng.normal(0, 0.5, n)


def wrap(patch, owner, name, make):
    """Put ``make`` of the function that is there in its place."""
    patch.setattr(owner, name, make(getattr(owner, name)))


def size_is(noise, multiplier):
    """Whether independent normals have the standard deviation ``multiplier``, by the law of their squares' sum."""
    square = float((np.concatenate([np.ravel(part) for part in noise]) ** 2).sum()) / multiplier**2
    low, high = stats.chi2.ppf([UNMEASURED, 1.0 - UNMEASURED], sum(np.size(part) for part in noise))
    assert low < square < high
