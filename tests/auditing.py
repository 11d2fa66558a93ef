"""What the canary audits share: the limits that runs prove, the bound of epsilon that follows, and which normals are
none of a double-precision generator's."""

import math

import numpy as np
from scipy import stats

MISS = 1e-4


def clopper_pearson(hits: int, runs: int, tail: float) -> tuple[float, float]:
    """Lower and upper limit of a probability, each at 1 - ``tail`` (Clopper and Pearson 1934)."""
    low = stats.beta.ppf(tail, hits, runs - hits + 1) if hits else 0.0
    high = stats.beta.ppf(1 - tail, hits + 1, runs - hits) if hits < runs else 1.0
    return low, high


def bound_at(threshold: float, first: np.ndarray, second: np.ndarray, delta: float) -> float:
    """log((least hit rate - delta) / greatest false alarm rate)."""
    low, _ = clopper_pearson(int((first > threshold).sum()), len(first), MISS)
    _, high = clopper_pearson(int((second > threshold).sum()), len(second), MISS)
    return math.log(max(low - delta, 1e-300) / high)


def lower_bound(first: np.ndarray, second: np.ndarray, delta: float) -> float:
    """Epsilon such that, at confidence 1 - 2 MISS, no (epsilon, delta)-private mechanism gave these statistics."""
    half = len(first) // 2
    candidates = np.quantile(np.concatenate([first[:half], second[:half]]), np.linspace(0.02, 0.98, 97))
    best = max(candidates, key=lambda t: bound_at(t, first[:half], second[:half], delta))
    return bound_at(best, first[half:], second[half:], delta)


def box_muller_reaches(a, b, sigma):
    """Whether the integers (a, b) can be the rounded coordinates of sigma times a pair by Box and Muller (1958), whose
    radius is sqrt(-2 log U) with U = 1 - k 2^-53 near one: is there such a radius within a square of that centre?"""
    near = np.hypot(np.maximum(np.abs(a) - 0.5, 0), np.maximum(np.abs(b) - 0.5, 0)) / sigma
    far = np.hypot(np.abs(a) + 0.5, np.abs(b) + 0.5) / sigma
    least, most = (-np.expm1(-(radius**2) / 2) * 2.0**53 for radius in (near, far))
    slack = 2.0**-48    # for the radius's own rounding and that of these two, relative
    return np.floor(most * (1 + slack)) >= np.ceil(least * (1 - slack))
