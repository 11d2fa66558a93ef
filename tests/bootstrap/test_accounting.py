"""What is spent, and how sizes are chosen."""

import math
from dataclasses import replace

import mpmath
import pytest
from scipy import stats

from pgbb_fast import DomainError
from pgbb_fast.accountant import Ledger, ResampledGaussian, SubsampledGaussian, epsilon, noise_multiplier
from pgbb_fast.bootstrap import MOutOfNBootstrap
from pgbb_fast.bootstrap.statistic import Mean
from pgbb_fast.budget import bootstrap as accounting
from pgbb_fast.budget.bootstrap import (
    BootstrapReport,
    asymptotic_report,
    calibrate,
    gaussian_epsilon,
    growth,
    predicted_width,
    require_resamples_small,
    rule_of_thumb,
    sizes_of_least_width,
)

CASE = ResampledGaussian(n=1000, resample_size=10, replicates=1000)
BUDGET = {"budget_epsilon": 1.0, "budget_delta": 1e-4}


def total(report):
    ledger = Ledger()
    ledger.record(report.mechanism)
    if report.estimate is not None:
        ledger.record(report.estimate)
    return ledger.epsilon(delta=report.delta)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_estimate_and_replicates_are_composed_within_the_budget_and_no_less_noise_would_do(share):
    report = calibrate(CASE, estimate_share=share, **BUDGET)
    assert report.epsilon == total(report) <= 1.0
    less = replace(report.mechanism, noise_multiplier=report.replicate_multiplier * (1 - 3e-4))
    assert total(replace(report, mechanism=less)) > 1.0
    whole = noise_multiplier(
        SubsampledGaussian(sampling_rate=1.0, steps=1, adjacency="replace-one"), epsilon=1.0, delta=1e-4
    )
    assert report.estimate_multiplier == pytest.approx(whole / 2 / math.sqrt(share), rel=1e-12)
    mu = 2 / whole  # sensitivity over noise: exactly Gaussian differential privacy (Balle and Wang 2018, theorem 8)
    exact = stats.norm.cdf(mu / 2 - 1 / mu) - math.e * stats.norm.cdf(-mu / 2 - 1 / mu)
    assert exact == pytest.approx(1e-4, rel=1e-3)
    assert exact <= 1e-4


def test_replicates_alone_get_the_accountants_noise():
    """docs/accounting.md section 5: mu_B = .679 (finite B) where the central limit says .990."""
    report = calibrate(CASE, estimate_share=0.0, **BUDGET)
    assert report.replicate_multiplier == noise_multiplier(CASE, epsilon=1.0, delta=1e-4)
    assert 1 / report.replicate_multiplier == pytest.approx(0.679, rel=2e-3)
    assert report.estimate is None
    assert report.epsilon == epsilon(report.mechanism, delta=1e-4)


def test_the_asymptotic_noise_is_the_corrected_scale():
    """docs/method.md section 8: sigma^2 = B (1 - (1 - 1/n)^m) ((n + m - 1)/n) l^2 / (m n mu^2), sensitivity l / m."""
    n, m, B, mu = 1000, 10, 1000, 0.8
    report = asymptotic_report(CASE, mu=mu, delta=1e-3, estimate_share=0.5)
    variance = B * (1 - (1 - mpmath.mpf(1) / n) ** m) * mpmath.mpf(n + m - 1) / n / (m * n * mu**2 / 2)
    assert report.replicate_multiplier == pytest.approx(float(mpmath.sqrt(variance) * m), rel=1e-12)
    assert report.estimate_multiplier == pytest.approx(math.sqrt(2) / mu, rel=1e-12)
    assert "not a bound" in report.statement()


def test_at_m_equal_n_the_limit_is_that_of_wang_cheng_and_awan():
    """mu_B = mu / sqrt((2 - 2/e) B), up to O(1/n)."""
    case = ResampledGaussian(n=10**6, resample_size=10**6, replicates=400)
    report = asymptotic_report(case, mu=1.0, delta=1e-3, estimate_share=0.0)
    assert report.replicate_multiplier == pytest.approx(math.sqrt((2 - 2 / math.e) * 400), rel=2e-6)


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_epsilon_of_a_gaussian(mu):
    e = gaussian_epsilon(mu, 1e-3)
    delta = stats.norm.cdf(mu / 2 - e / mu) - math.exp(e) * stats.norm.cdf(-mu / 2 - e / mu)
    assert delta == pytest.approx(1e-3, rel=1e-9)


def test_growth_is_the_consistency_condition():
    assert growth(1000, 10, 1000) == pytest.approx((1 - 0.999**10) * 1.009, rel=1e-12)
    assert growth(1000, 1000, 1000) == pytest.approx(2 * (1 - math.exp(-1)), rel=1e-3)  # the review's constant


@pytest.mark.parametrize(
    ("m", "B", "refused"), [(10, 1000, False), (1000, 1000, True), (500, 1000, True), (1000, 150, False)]
)
def test_m_of_the_order_of_n_is_refused(m, B, refused):
    if refused:
        with pytest.raises(DomainError, match=r"m = o\(n\)"):
            require_resamples_small("who", 1000, m, B)
    else:
        require_resamples_small("who", 1000, m, B)


@pytest.mark.parametrize(
    ("n", "m", "B", "chosen"),
    [
        (100_000, None, None, (100, 1000)),
        (1000, None, None, (10, 100)),
        (300, None, None, (10, 100)),
        (50_000, None, 500, (100, 500)),
        (50_000, 200, None, (200, 250)),
        (5, None, None, (5, 100)),
        (1000, 7, 33, (7, 33)),
    ],
)
def test_rule_of_thumb(n, m, B, chosen):
    sizes = rule_of_thumb(n, m, B, 0.5)
    assert (sizes.resample_size, sizes.replicates) == chosen


def test_predicted_width_without_noise_is_students():
    got = predicted_width(400, 0.25, resample_size=10, replicates=51, replicate=0.0, estimate=0.0, level=0.9)
    assert got == pytest.approx(2 * stats.t.ppf(0.95, 50) * 0.25 / 20, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("budget", [0.5, 2.0])
def test_sizes_of_least_width_beat_the_rule(budget):
    mean = Mean([(0.0, 1.0)])
    settings = {"epsilon": budget, "delta": 1e-4}
    rule = MOutOfNBootstrap(mean, **settings).plan(1000)
    best = MOutOfNBootstrap(mean, sizes="width", **settings).plan(1000)
    assert best.width < rule.width
    assert best.privacy.epsilon <= budget
    sizes = sizes_of_least_width(1000, budget_epsilon=budget, budget_delta=1e-4, spread=0.25, level=0.95)
    assert growth(1000, sizes.resample_size, sizes.replicates) <= accounting.MAX_GROWTH
    with pytest.raises(DomainError, match="too few"):
        sizes_of_least_width(12, budget_epsilon=1.0, budget_delta=1e-4, spread=0.25, level=0.95)


def test_reports_round_trip():
    for report in (
        calibrate(CASE, estimate_share=0.5, **BUDGET),
        calibrate(CASE, estimate_share=0.0, **BUDGET),
        asymptotic_report(CASE, mu=1.0, delta=1e-3, estimate_share=0.5),
    ):
        assert BootstrapReport.from_dict(report.to_dict()) == report
        assert "replace-one" in report.statement()
