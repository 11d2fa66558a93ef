"""What the spies at the kernels' doors share: how a door is watched, and how noise is measured."""

import numpy as np
from scipy import stats

GRID, WORD = 2.0**32, 2**32
BUDGET = {"epsilon": 2.0, "delta": 1e-4, "seed": 1}
UNMEASURED = 1e-6


def wrap(patch, owner, name, make):
    """Put ``make`` of the function that is there in its place."""
    patch.setattr(owner, name, make(getattr(owner, name)))


def size_is(noise, multiplier):
    """Whether independent normals have the standard deviation ``multiplier``, by the law of their squares' sum."""
    square = float((np.concatenate([np.ravel(part) for part in noise]) ** 2).sum()) / multiplier**2
    low, high = stats.chi2.ppf([UNMEASURED, 1.0 - UNMEASURED], sum(np.size(part) for part in noise))
    assert low < square < high
