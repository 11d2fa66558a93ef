"""What reports print: bounds of what was spent that never exceed what was asked for."""

import math
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgbb_fast import MOutOfNBootstrap, PrivateMean
from pgbb_fast.accountant import BlockedGaussian
from pgbb_fast.baselines import DPSGLD, NoisyGibbsMean, NoisyNewton
from pgbb_fast.bootstrap import AsymptoticMOutOfNBootstrap, BLBQuantiles, DPBootstrap, Mean
from pgbb_fast.budget.report import PrivacyReport, guarantee
from pgbb_fast.coordinates import AffineMap
from pgbb_fast.posteriors.sampled import SampledPosterior

MECHANISM = BlockedGaussian(n=100, n_blocks=20, sampling_rate=1.0, steps=1, minibatch="shared", noise_multiplier=1.0)
BOUNDS = [(0.0, 1.0)]


@given(
    spent=st.floats(1e-6, 50.0),
    slack=st.sampled_from([0.0, 1e-16, 1e-9, 1e-5, 0.2]),
    delta=st.floats(1e-300, 0.5),
    digits=st.integers(2, 8),
)
def test_printed_numbers_bound_what_was_spent_and_not_more_than_was_asked(spent, slack, delta, digits):
    asked = spent * (1.0 + slack)
    report = PrivacyReport(spent, delta, MECHANISM, budget=asked)
    epsilon, printed_delta = guarantee(report, digits)
    assert spent <= float(epsilon) <= asked
    assert float(printed_delta) == delta
    assert f"({guarantee(report)[0]}, {printed_delta})-differential privacy" in report.statement()
    free, _ = guarantee(PrivacyReport(spent, delta, MECHANISM), digits)
    assert Fraction(spent) <= Fraction(free) * (1 + Fraction(2) ** -52)
    assert float(free) >= spent


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 0.3, 1 / 3, 0.1 + 0.2])
def test_every_method_prints_delta_as_given_and_epsilon_within_the_budget(epsilon):
    delta = 1e-5
    budget = {"epsilon": epsilon, "delta": delta}
    mean = PrivateMean(x_bounds=BOUNDS, steps=50, moment_share=0.0, **budget)
    reports = [
        mean.plan(500),
        MOutOfNBootstrap(Mean(BOUNDS), **budget).plan(500).privacy,
        DPBootstrap(Mean(BOUNDS), **budget).plan(500).privacy,
        BLBQuantiles(Mean(BOUNDS), **budget).plan(500),
        DPSGLD(mean, steps=50).plan(500),
        NoisyNewton(mean).plan(500),
        NoisyGibbsMean(x_bounds=BOUNDS, **budget).plan(500),
    ]
    for report in reports:
        said = re.match(r"\((\S+), (\S+)\)-differential privacy", report.statement())
        assert said is not None
        assert report.budget == epsilon
        assert report.epsilon <= float(said[1]) <= epsilon
        assert said[2] == "1e-05"
        assert report.recomputed() == pytest.approx(report.epsilon, rel=1e-9)
        units = AffineMap(np.eye(1), np.zeros(1))
        text = repr(SampledPosterior(np.zeros((2, 1, 1)), rules=(), to_natural=units, names=("a",), privacy=report))
        assert float(re.search(r"epsilon=([^)]+)", text)[1]) <= epsilon


def test_an_asymptotic_claim_has_no_budget_and_recomputes_its_claim():
    report = AsymptoticMOutOfNBootstrap(Mean(BOUNDS), mu=1.0, delta=1e-5).plan(500).privacy
    assert report.budget is None
    assert report.recomputed() == report.epsilon
    assert "not a bound" in report.statement()
    assert math.isfinite(report.epsilon)
