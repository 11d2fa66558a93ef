"""Medians over disjoint subsets by the exponential mechanism, chosen in integers: what little bootstraps release."""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.kernels import reference
from pgbb_fast.release.resamples import Secret
from pgbb_fast.release.statistic import Task

__all__ = ["median_weights", "release_sides"]

Array = NDArray[np.float64]
PURPOSE_MEDIAN = 5  # beside those of kernels.scalar.random and of resampling
BITS = 190  # of the largest weight of a cell
CELLS = 60  # of a root's size, that the medians are chosen from
RATIO = 2.0 ** (1.0 / 8.0)  # between their edges


def median_weights(values: Array, edges: Array, epsilon: float) -> list[int]:
    """The exponential mechanism for the cell with a median (McSherry and Talwar 2007; Smith 2011).

    Integers proportional to the probabilities of the cells [0, e_1], (e_1, e_2], ..., (e_(K-1), inf) that ``edges``
    e_1 < ... < e_K end, (K,).  The utility of a cell is minus the number of values that would have to move for it to
    hold a median: -max(0, #{values below it} - s/2, s/2 - #{values not above it}), 0 for the cell that holds it.
    Replacing one of the s values moves each count, hence the utility, by at most 1, so weights with a ratio of at most
    exp(epsilon / 2) between utilities that differ by 1 are epsilon-private.  Exactly: the weight of utility -k/2 is the
    k-th of W_0 = 2^``BITS``, W_(k+1) = ceil(W_k r), r a fraction of at least exp(-epsilon / 4), so that
    W_k / W_(k+2) <= 1 / r^2.
    """
    s = len(values)
    upto = (values[:, None] <= edges).sum(axis=0)
    upto[-1] = s
    below = np.concatenate([[0], upto[:-1]])
    halves = np.maximum(0, np.maximum(2 * below - s, s - 2 * upto)).tolist()
    ratio = math.nextafter(math.nextafter(math.exp(-epsilon / 4.0), 2.0), 2.0)
    up, down = min(1.0, ratio).as_integer_ratio()
    table = [1 << BITS]
    while len(table) <= max(halves):
        table.append(-(-table[-1] * up // down))
    return [table[k] for k in halves]


def _release_median(values: Array, edges: Array, epsilon: float, secret: Secret, number: int) -> float:
    """The upper edge of one cell, chosen in integers with 512 bits of the secret stream: within 2^-300 of the law."""
    weights = median_weights(values, edges, epsilon)
    words = reference.words(secret.key, PURPOSE_MEDIAN, number, np.zeros(1, dtype=np.int64))[0]
    place = int.from_bytes(words.astype("<u4").tobytes(), "little") * sum(weights) >> 512
    return float(edges[bisect_right(list(accumulate(weights)), place)])


def release_sides(
    task: Task,
    records: Any,
    secret: Secret,
    *,
    subsets: int,
    resamples: int,
    tail: float,
    noise: float,
    top: float,
    epsilon: float,
    partition: int,
) -> Array:
    """Medians over the subsets of the sizes of an interval's sides below and above, (2, d); each ``epsilon``-private.

    Parameters
    ----------
    resamples : int
        In each subset, of n records each.
    tail : float
        Probability beyond either end.
    noise : float
        Standard deviation of what is added to the roots: that of the released estimate, times sqrt(n).
    top : float
        Public bound of a side; a median is the upper edge of one of ``CELLS`` cells down from there.
    partition : int
        Public seed of the subsets and resamples.
    """
    edges = np.asarray(top * RATIO ** -np.arange(CELLS, dtype=np.float64)[::-1], dtype=np.float64)
    quantiles = _quantiles(task, records, subsets, resamples, tail, noise, partition)
    sides = np.empty((2, len(task.box)))
    for j in range(sides.shape[1]):
        for side in range(2):
            values = np.maximum(quantiles[:, side, j], 0.0)
            sides[side, j] = _release_median(values, edges, epsilon, secret, 2 * j + side)
    return sides


def _quantiles(
    task: Task, records: Any, subsets: int, resamples: int, tail: float, noise: float, partition: int
) -> Array:
    """Sizes of the sides below and above of each subset's interval, (s, 2, d).

    [theta - q_hi, theta - q_lo] / sqrt(n), q the quantiles of sqrt(n) (theta* - theta_subset) plus the noise that the
    estimate has.  Which records are where, and who is resampled, are independent of the data; they need not be secret,
    and are drawn from a public seed.
    """
    rng = np.random.default_rng(partition)
    order = rng.permutation(task.n)
    size = task.n // subsets
    out = np.empty((subsets, 2, len(task.box)))
    for s in range(subsets):
        members = order[s * size : (s + 1) * size]
        whole = task.above(records, members[None])
        index = members[rng.integers(size, size=(resamples, task.n))]
        root = math.sqrt(task.n) * (task.above(records, index) - whole)
        root = root + noise * rng.standard_normal(root.shape)
        high, low = np.quantile(root, [1.0 - tail, tail], axis=0)
        out[s] = high, -low
    return out
