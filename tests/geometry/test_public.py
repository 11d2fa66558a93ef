"""What is known before any data: stacking, schedule, account."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from pgbb_fast.accountant import Ledger, SubsampledGaussian
from pgbb_fast.budget.gaussian import GRADIENT, GaussianReport, multiplier_of, report_of
from pgbb_fast.errors import DomainError
from pgbb_fast.geometry.schedule import groups, schedule
from pgbb_fast.losses import expectile, huber, logistic, smoothed_quantile
from pgbb_fast.release.stacking import LENGTH, stacking

ONE = {"steps": 1, "noise_multiplier": 9.0}
FIVE = (0.1, 0.25, 0.5, 0.75, 0.9)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 99), min_size=1, max_size=12, unique=True))
def test_mixed_slopes_of_a_record_have_the_length_of_its_cell(percents):
    """|R^-1 psi|^2 = 1 / gap - 1 in every cell, by solving with the covariance itself."""
    taus = np.array(percents) / 100.0
    found = stacking(smoothed_quantile(taus.tolist(), 0.01), 3)
    edges = np.concatenate([[0.0], np.sort(taus), [1.0]])
    covariance = np.minimum.outer(taus, taus) - np.outer(taus, taus)
    for low, high in itertools.pairwise(edges):
        middle = (low + high) / 2.0
        psi = (middle < taus) * 1.0 - taus
        want = 1.0 / (high - low) - 1.0
        assert psi @ np.linalg.solve(covariance, psi) == pytest.approx(want, rel=1e-6)
        assert ((found.mix @ psi) ** 2).sum() == pytest.approx(want, rel=1e-6)
        assert ((found.mix @ psi) ** 2).sum() <= found.slope_length**2 * (1 + 1e-9)
    assert found.slope_length**2 == pytest.approx(1.0 / np.diff(edges).min() - 1.0)


def test_equal_stacks_cost_what_the_proof_says():
    for L in (1, 5, 9, 19, 39):
        taus = (np.arange(L) + 1.0) / (L + 1.0)
        found = stacking(smoothed_quantile(taus.tolist(), 0.01), 4)
        assert found.slope_length**2 == pytest.approx(L)
        assert found.clip == pytest.approx(math.sqrt(L) * LENGTH * 2.0)
    assert stacking(smoothed_quantile(FIVE, 0.01), 4).slope_length == pytest.approx(3.0)


def test_hubers_slopes_against_quadrature():
    """The slopes' standard deviations, and the longest stack: at 0 or beyond c."""
    c, kappa = 1.345, 0.71
    found = stacking(huber(c, kappa), 4)
    psi = integrate.quad(lambda z: min(abs(z), c) ** 2 * stats.norm.pdf(z), -12, 12, points=[-c, c])[0]
    chi = integrate.quad(
        lambda z: (kappa / 2 - min(z * z, c * c) / 2) ** 2 * stats.norm.pdf(z), -12, 12, points=[-c, c]
    )[0]
    assert found.spread[0] == pytest.approx(math.sqrt(psi), rel=1e-4)
    assert found.scale_root[0, 0] == pytest.approx(2.0 * math.sqrt(chi), rel=1e-4)
    longest = math.hypot(c / math.sqrt(psi) * LENGTH * 2, (c * c - kappa) / 2 / (2 * math.sqrt(chi)))
    assert found.clip == pytest.approx(longest, rel=1e-3)


def test_an_expectiles_longest_stack_is_where_residuals_are_cut():
    found = stacking(expectile([0.8], 0.5), 2)
    grid = np.linspace(-2.0, 2.0, 100_001)
    slope = np.where(grid > 0, 0.8, 0.2) * np.clip(grid, -0.5, 0.5)
    assert found.slope_length == pytest.approx(np.abs(slope).max() / found.root[0, 0], rel=1e-6)
    assert stacking(logistic(), 2).clip == pytest.approx(2.0 * LENGTH * math.sqrt(2.0))


def test_the_central_rule():
    assert smoothed_quantile((0.9,), 0.01, "logistic").central().constants == ((0.5, 0.01),)
    assert expectile([0.1, 0.9], 0.3).central().rules == (0.5,)
    assert huber([1.0, 2.0], [0.5, 0.9]).central().constants == ((2.0, 0.9),)
    assert logistic().central().kernel == "logistic"


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.integers(20, 10**8),
    st.integers(1, 40),
    st.floats(0.01, 50.0),
    st.sampled_from(["quantile", "huber", "logistic"]),
)
def test_shares_sum_to_one_and_are_positive(n, p, epsilon, family):
    loss = {"quantile": smoothed_quantile(FIVE, 0.01), "huber": huber(), "logistic": logistic()}[family]
    d = p + 1 + loss.has_scale
    plan = schedule(loss, n, d, multiplier_of(round(epsilon, 1) or 0.1, 1e-5))
    assert min(plan.shares) > 0.0
    assert math.fsum(plan.shares) == pytest.approx(1.0, abs=1e-9)
    assert sum(count for _, count, _ in groups(plan)) == plan.steps == len(plan.shares)
    assert plan.slope >= 8
    assert plan.slope % (2 * d) == 0
    assert plan.widening(d) >= 1.0


def test_the_account_is_that_of_the_releases_one_by_one():
    """The accountant's own composition of all releases: no more than what is stated, and no less by a percent."""
    plan = schedule(smoothed_quantile(FIVE, 0.01), 50_000, 5, multiplier_of(1.0, 1e-5))
    report = report_of(groups(plan), n=50_000, budget_epsilon=1.0, budget_delta=1e-5)
    ledger = Ledger()
    for release in report.releases:
        ledger.record(release)
    assert 0.99 < ledger.epsilon(delta=1e-5) <= 1.0 + 1e-6
    assert report.recomputed() <= report.epsilon <= 1.0
    again = GaussianReport.from_dict({**report.to_dict(), "releases": [vars(r) for r in report.releases]})
    assert again == report
    assert "55 Gaussian releases" in report.sentence()


def test_more_than_the_budget_is_refused():
    with pytest.raises(DomainError, match="exceed"):
        report_of([(GRADIENT, 3, 0.4)], n=1000, budget_epsilon=1.0, budget_delta=1e-5)
    with pytest.raises(DomainError, match="noise"):
        report_of([(GRADIENT, 3, 1e-20)], n=1000, budget_epsilon=1.0, budget_delta=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 2.0},  # above the budget
        {"names": ["something else"]},
        {"releases": [vars(SubsampledGaussian(sampling_rate=0.5, adjacency="replace-one", **ONE))]},
        {"releases": [vars(SubsampledGaussian(sampling_rate=1.0, adjacency="add-remove", **ONE))]},
        {"releases": []},
        {"n": 0},
    ],
)
def test_a_damaged_report_is_refused(change):
    report = report_of([(GRADIENT, 3, 0.3)], n=1000, budget_epsilon=1.0, budget_delta=1e-5)
    values = {**report.to_dict(), "releases": [vars(r) for r in report.releases], **change}
    with pytest.raises(DomainError):
        GaussianReport.from_dict(values)
