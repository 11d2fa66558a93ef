"""The door: noise is the accountant's, and without it the bootstrap is the bootstrap."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp
from scipy import stats

from pgbb_fast import DomainError
from pgbb_fast.bootstrap import Custom, Mean, RegularisedRegression
from pgbb_fast.kernels import reference
from pgbb_fast.release.resamples import (
    GRID,
    SLACK,
    Secret,
    noise_sd,
    release_estimate,
    release_replicates,
    require_grid,
)
from pgbb_fast.release.resampling import Resampler

SECRET = Secret(np.arange(3, 11, dtype=np.int64))
TINY = 1e-12
DATA = np.random.default_rng(0).gamma(2.0, 1.0, (200, 1))


def task(X=DATA):
    return Mean([(0.0, 8.0)]).task("t", X, None)


@pytest.mark.parametrize("multiplier", [0.3, 2.0, 500.0])
def test_noise_is_the_multiplier_times_the_sensitivity_to_1e_9(multiplier):
    """What a release adds, over the normal it was made of, against multiplier * l / m; the grid's unit is 2^-40 of the
    sensitivity, so normals above .1 tell the scale to 1e-10."""
    t, m = task(), 10
    noisy = release_replicates(t, t.load(), SECRET, m, 400, multiplier)
    exact = t.evaluate(t.load(), Resampler(SECRET.key, 200).draw(400 * m).reshape(400, m))
    z = reference.normals(SECRET.key, 1, 400)
    seen = ((noisy - exact)[:, 0] / z)[np.abs(z) > 0.1]
    assert np.abs(seen / (multiplier * 8.0 / m) - 1.0).max() < 1e-9 + 2e-11 / multiplier
    assert (seen > multiplier * 8.0 / m).mean() > 0.9  # and never below but for the grid
    whole = release_estimate(t, t.load(), SECRET, multiplier) - t.evaluate(t.load(), None)[0]
    own = whole / reference.normals(SECRET.key, 0, 1)
    assert abs(float(own[0]) / (multiplier * 8.0 / 200) - 1.0) < 1e-9 + 2e-11 / multiplier
    assert noise_sd(t, m, multiplier) == pytest.approx(multiplier * 8.0 / m, rel=1e-9)


def test_noise_is_normal():
    """Kolmogorov-Smirnov of 5,000 replicates of constant records; false alarm 1e-4."""
    t = task(np.full((200, 1), 2.0))
    noisy = release_replicates(t, t.load(), SECRET, 10, 5000, 1.5)
    assert stats.kstest((noisy[:, 0] - 2.0) / (1.5 * 0.8), "norm").pvalue > 1e-4


@pytest.mark.parametrize("m", [5, 40, 200])
def test_without_noise_replicates_have_the_bootstrap_variance_of_a_mean(m):
    """Var*(sqrt(m) theta*) = (1/n) sum (x - mean)^2 exactly; 20,000 replicates, chi-square at 1e-4 a side (the mean of
    5 gamma records has excess kurtosis 3/5, which widens the limits by sqrt(1 + .3))."""
    t = task()
    free = release_replicates(t, t.load(), SECRET, m, 20_000, TINY)
    clipped = np.clip(DATA[:, 0], 0, 8)
    ratio = m * free[:, 0].var() / clipped.var()
    assert abs(ratio - 1.0) < 3.9 * math.sqrt(2 / 20_000 * 1.3)
    centre = math.sqrt(m) * (free[:, 0].mean() - clipped.mean()) / clipped.std()
    assert abs(centre) < 3.9 / math.sqrt(20_000)


def test_without_noise_a_regression_has_its_sandwich_variance():
    """n = 4,000, m = 400: Cov*(sqrt(m) theta*) against H^-1 Cov(g) H^-1 at the estimate, computed here; the bootstrap's
    own bias is O(1/m) and the Monte Carlo error of a variance over 2,000 replicates .032: ratios within .13."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (4000, 2)).astype(np.float32).astype(float)
    y = (rng.random(4000) < 1 / (1 + np.exp(-X @ [1.0, -0.5]))).astype(float)
    t = RegularisedRegression([(-1.0, 1.0)] * 2, 0.05).task("t", X, y)
    free = release_replicates(t, t.load(), SECRET, 400, 2000, TINY)
    x = np.column_stack([np.ones(4000), X])
    theta = t.evaluate(t.load(), None)[0]
    p = 1 / (1 + np.exp(-x @ theta))
    H = (x * (p * (1 - p))[:, None]).T @ x / 4000 + 0.05 * np.eye(3)
    M = np.cov((x * (p - y)[:, None]).T)
    sandwich = np.linalg.inv(H) @ M @ np.linalg.inv(H)
    assert np.abs(400 * free.var(axis=0) / np.diag(sandwich) - 1.0).max() < 0.13


def test_theta_is_moved_to_its_box():
    t = Custom(lambda r: 50.0, 1.0, [(0.0, 2.0)]).task("t", np.zeros((9, 1)), None)
    assert release_replicates(t, t.load(), SECRET, 3, 4, TINY) == pytest.approx(2.0, abs=1e-9)


def test_what_does_not_fit_on_the_grid_is_refused():
    t = Custom(lambda r: 0.0, 1e-9, [(0.0, 2.0)]).task("t", np.zeros((9, 1)), None)
    with pytest.raises(DomainError, match="box"):
        require_grid("who", t, 3, 1.0)
    with pytest.raises(DomainError, match="multiplier"):
        require_grid("who", task(), 3, 1e9)


def test_the_key_is_in_no_representation():
    assert "3" not in repr(SECRET)


FAR = {  # statistics whose numbers are far from zero for the width of their box, and their records' extremes
    "mean": (Mean([(1e9, 1e9 + 8.0)]), 1e9, 1e9 + 8.0),
    "negative mean": (Mean([(-2e9 - 8.0, -2e9)]), -2e9 - 8.0, -2e9),
    "two means": (Mean([(1e9, 1e9 + 8.0), (0.1, 0.3)]), [1e9, 0.1], [1e9 + 8.0, 0.3]),
    "a mean of the user's, less a public number": (
        Custom(lambda r: math.fsum(r[:, 0] - 1e6) / len(r), 8.0, [(0.0, 8.0)]), 1e6, 1e6 + 8.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAR)
@pytest.mark.parametrize("n", [7, 1000, 4099])
def test_what_noise_is_added_to_moves_by_no_more_than_the_accounted_sensitivity(name, n):
    """Exact integers of the grid, read off a release without noise over a box that starts at zero, in fractions: two
    data sets that differ in a record are at most 2^40 (1 + SLACK) units apart, and the extremes almost as much."""
    statistic, low, high = FAR[name]
    rng, largest = np.random.default_rng(n), Fraction(0)
    accounted = (Fraction(GRID) * (1 + Fraction(SLACK))) ** 2
    width = np.atleast_1d(high) - np.atleast_1d(low)

    def integers(X):
        t = statistic.task("t", X, None)
        t = replace(t, box=t.box - t.box[:, :1])
        unit = t.sensitivity(n) / GRID
        released = release_estimate(t, t.load(), SECRET, TINY)
        return [Fraction(round(Fraction(float(v)) / Fraction(unit))) for v in released]

    for k in range(30):
        X = np.atleast_1d(low) + width * rng.uniform(0, 1, (n, len(width)))
        if k % 3 == 0:
            X[rng.random(n) < 0.9] = high     # sums as large as they get
        first, second = X.copy(), X.copy()
        me = rng.integers(n)
        first[me], second[me] = low, high
        gap = sum(((a - b) ** 2 for a, b in zip(integers(first), integers(second), strict=True)), Fraction(0))
        assert gap <= accounted
        largest = max(largest, gap)
    assert largest > accounted * Fraction(999, 1000)


@pytest.mark.parametrize("loss", ["logistic", "huber"])
def test_the_ridge_s_estimates_solve_their_equation_to_the_accuracy_that_the_sensitivity_counts(loss):
    """The gradient at the double-precision estimate, in 40 digits, is below the accounted part of A B."""
    rng = np.random.default_rng(8)
    X = rng.uniform(-1, 1, (60, 2)).astype(np.float32).astype(float)
    y = (rng.random(60) < 0.5).astype(float) if loss == "logistic" else rng.uniform(-1, 1, 60).astype(np.float32)
    design = [[mp.mpf(1), mp.mpf(a), mp.mpf(b)] for a, b in X.tolist()]
    c = mp.mpf(0.25)
    for ridge in (1e-6, 1e-3, 1.0):
        extra = {} if loss == "logistic" else {"y_bounds": (-1.0, 1.0), "c": 0.25}
        t = RegularisedRegression([(-1.0, 1.0)] * 2, ridge, loss, **extra).task("t", X, y)
        b = [mp.mpf(v) for v in (t.box[:, 0] + t.above(t.load(), None)[0]).tolist()]
        slope_bound, curvature = (1.0, 0.25) if loss == "logistic" else (0.25, 1.0)
        with mp.workdps(40):
            gradient = [mp.mpf(ridge) * v for v in b]
            for row, response in zip(design, y.tolist(), strict=True):
                eta = mp.fdot(row, b)
                slope = (
                    1 / (1 + mp.exp(-eta)) - response
                    if loss == "logistic"
                    else -min(max(mp.mpf(response) - eta, -c), c)
                )
                gradient = [g + slope * v / 60 for g, v in zip(gradient, row, strict=True)]
            size = float(mp.sqrt(mp.fsum(g * g for g in gradient)))
        allowed = 1e-9 + curvature * 3.0 * 5 * 2.0**-53 / ridge
        # theta less the corner, and the corner again: each rounded by at most the box's width
        rounded = 2.0**-52 * float(np.ptp(t.box[0])) * 2.0 * (curvature * 3.0 + ridge)
        assert size <= allowed * slope_bound * math.sqrt(3.0) + rounded
        l = 2.0 * slope_bound * math.sqrt(3.0) / ridge  # noqa: E741
        assert t.sensitivity(60) >= l * (1.0 / 60 + allowed)


def test_what_is_not_a_number_at_the_door_counts_as_the_corner():
    t = replace(task(), above=lambda records, index: np.array([[math.nan]]))
    assert release_estimate(t, t.load(), SECRET, TINY)[0] == pytest.approx(0.0, abs=1e-9)
