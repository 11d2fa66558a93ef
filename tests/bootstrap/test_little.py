"""Little bootstraps with private medians: the mechanism's law, its accountant, its intervals."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from pgbb_fast import DataError, DomainError, NotFittedError, Posterior
from pgbb_fast.accountant.asymptotic import gaussian_delta
from pgbb_fast.bootstrap import BLBQuantiles, Mean
from pgbb_fast.budget.little import calibrate, concentrated, spent
from pgbb_fast.release.medians import _release_median, median_weights
from pgbb_fast.release.resamples import Secret

MEAN = Mean([(-2.0, 2.0)])
LAW = stats.truncnorm(-2, 2)
EDGES = np.array([0.5, 1.0, 2.0, 4.0, 8.0])


def median_probabilities(values, edges, epsilon):
    weights = median_weights(values, edges, epsilon)
    return np.array([float(Fraction(weight, sum(weights))) for weight in weights])


def neighbours():
    """400 pairs of 11 values that differ in one."""
    rng = np.random.default_rng(0)
    for _ in range(400):
        a = rng.choice(np.r_[rng.exponential(2.0, 6), EDGES, 0.0, 1e9], 11)
        b = a.copy()
        b[rng.integers(11)] = rng.choice([0.0, 0.5, 0.7, 2.0, 3.0, 1e9])
        yield a, b


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_medians_are_private_and_concentrated(epsilon):
    """Log ratios at most epsilon, and every Renyi divergence at most order epsilon^2 / 8, over all pairs; the largest
    ratio is attained to 60%."""
    largest = 0.0
    for a, b in neighbours():
        p, q = (median_probabilities(v, EDGES, epsilon) for v in (a, b))
        assert p.sum() == pytest.approx(1.0, abs=1e-15)
        ratio = np.abs(np.log(p / q)).max()
        assert ratio <= epsilon * (1 + 1e-12)
        largest = max(largest, ratio)
        for order in (1.5, 2.0, 8.0, 64.0):
            divergence = math.log((p**order * q ** (1 - order)).sum()) / (order - 1)
            assert divergence <= order * epsilon**2 / 8 + 1e-12
    assert largest > 0.6 * epsilon


@pytest.mark.parametrize("epsilon", [1e-3, 0.2, 3.0, 40.0])
def test_medians_are_private_exactly(epsilon):
    """Ratios of the integers, against exp(epsilon) to 60 digits; every cell can occur, and the law is the mechanism's
    to 1e-12 where its weights are above 2^-100."""
    with mpmath.workdps(60):
        for a, b in list(neighbours())[:100]:
            p, q = (median_weights(v, EDGES, epsilon) for v in (a, b))
            assert min(p) >= 1
            assert all(mpmath.mpf(x * sum(q)) <= mpmath.exp(epsilon) * y * sum(p) for x, y in zip(p, q, strict=True))
            half = len(a) / 2
            upto = np.r_[(a[:, None] <= EDGES[:-1]).sum(axis=0), len(a)]
            utility = np.minimum(0, np.minimum(half - np.r_[0, upto[:-1]], upto - half))
            for weight, u in zip(p, utility, strict=True):
                exact = mpmath.exp(epsilon / 2 * u)
                assert exact < 2.0**-100 or abs(mpmath.mpf(weight) / 2**190 / exact - 1) < 1e-12


def test_the_likeliest_cell_holds_the_median():
    rng = np.random.default_rng(1)
    for _ in range(50):
        values = rng.exponential(2.0, 31)
        cell = np.searchsorted(EDGES, np.median(values))
        p = median_probabilities(values, EDGES, 2.0)
        assert p[min(cell, len(EDGES) - 1)] == p.max()
    assert median_probabilities(np.full(9, 100.0), EDGES, 50.0)[-1] > 0.99  # beyond the last edge: the last cell
    assert median_probabilities(np.zeros(9), EDGES, 50.0)[0] > 0.99


@pytest.mark.slow
def test_released_medians_have_the_mechanisms_law():
    """Chi-square of 4,000 releases over five cells; false alarm 1e-4."""
    values = np.array([0.2, 0.7, 0.9, 1.5, 1.5, 3.0, 5.0])
    secret = Secret(np.arange(8, dtype=np.int64))
    got = [_release_median(values, EDGES, 0.8, secret, number) for number in range(4000)]
    counts = np.array([got.count(edge) for edge in EDGES])
    assert stats.chisquare(counts, 4000 * median_probabilities(values, EDGES, 0.8)).pvalue > 1e-4


@pytest.mark.parametrize("rho", [0.01, 0.5])
def test_concentrated_privacy_bounds_the_gaussian_it_is_exact_for(rho):
    """A Gaussian mechanism of rho = mu^2/2 has delta(epsilon) below the converted delta, within a factor of 30."""
    e = spent(rho, 1e-5)
    exact = gaussian_delta(math.sqrt(2 * rho), e)
    assert 1e-5 / 30 < exact <= 1e-5


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_calibration_spends_the_budget(share):
    report = calibrate(1000, 50, 4, epsilon=1.5, delta=1e-5, share=share)
    rho = concentrated(4, report.median_epsilon, report.estimate_multiplier)
    assert report.epsilon == spent(rho, 1e-5) <= 1.5
    assert spent(rho * (1 + 1e-4), 1e-5) > 1.5
    assert 0.5 / report.estimate_multiplier**2 == pytest.approx(share * rho, rel=1e-9)


def test_contract(tmp_path):
    X = LAW.rvs(1000, random_state=1)[:, None]
    model = BLBQuantiles(MEAN, epsilon=2.0, delta=1e-4, level=0.9, seed=1)
    with pytest.raises(NotFittedError):
        _ = model.posterior_
    p = model.fit(X).posterior_
    assert model.privacy_ == model.plan(1000)
    assert "exponential mechanism" in model.privacy_.statement()
    again = Posterior.load(p.save(tmp_path / "little"))
    assert np.array_equal(again.interval(0.9), p.interval(0.9))
    assert again.privacy == p.privacy
    # the released sides are the interval's, and the draws have those quantiles (4 Monte Carlo errors of 100,000)
    assert p.interval(0.9)[0] == pytest.approx([p._estimate[0] - p._sides[0, 0], p._estimate[0] + p._sides[1, 0]])
    draws = p.draws(100_000)[:, 0]
    for level, end in zip((0.05, 0.95), p.interval(0.9)[0], strict=True):
        assert abs((draws < end).mean() - level) < 4 * math.sqrt(0.05 * 0.95 / 100_000)
    assert np.array_equal(
        p.draws(3), BLBQuantiles(MEAN, epsilon=2.0, delta=1e-4, level=0.9, seed=1).fit(X).posterior_.draws(3)
    )
    X[4] = math.nan
    with pytest.raises(DataError):
        model.fit(X)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"level": 1.0}, "level"),
        ({"subsets": 2}, "subsets"),
        ({"resamples": 5}, "resamples"),
        ({"root_bound": 0.0}, "root_bound"),
        ({"estimate_share": 0.0}, "estimate_share"),
        ({"epsilon": -1.0}, "epsilon"),
    ],
)
def test_bad_settings(settings, word):
    with pytest.raises(DomainError, match=word):
        BLBQuantiles(MEAN, **{"epsilon": 1.0, "delta": 1e-4, **settings})


def test_too_few_records():
    with pytest.raises(DomainError, match="subsets"):
        BLBQuantiles(MEAN, epsilon=1.0, delta=1e-4, subsets=50).fit(np.zeros((400, 1)))
    with pytest.raises(DomainError, match="n "):
        BLBQuantiles(MEAN, epsilon=1.0, delta=1e-4).fit(np.zeros((20, 1)))


@pytest.mark.slow
def test_intervals_cover_a_mean_and_are_no_wider_than_they_need_be():
    """n = 2,000, epsilon = 4, nominal .9, 120 fits: .9 +- .09 (false alarm 1e-3); width within 25% of the non-private
    interval with the estimate's noise."""
    covered, width = 0, 0.0
    for seed in range(120):
        model = BLBQuantiles(MEAN, epsilon=4.0, delta=1e-4, level=0.9, seed=seed, resamples=50)
        low, high = model.fit(LAW.rvs(2000, random_state=seed)[:, None]).posterior_.interval(0.9)[0]
        covered, width = covered + (low <= 0 <= high), width + (high - low) / 120
    noise = 4.0 / 2000 * model.privacy_.estimate_multiplier
    ideal = 2 * 1.645 * math.hypot(LAW.std() / math.sqrt(2000), noise)
    assert abs(covered / 120 - 0.9) < 0.09
    assert abs(width / ideal - 1) < 0.25
