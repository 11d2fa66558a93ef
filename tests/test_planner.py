"""Predicted widths against closed forms and against fits of the design they assume."""

import math

import mpmath
import numpy as np
import pytest

from pgbb_fast import DomainError, PrivacyError, PrivateHuberRegressor, PrivateQuantileRegressor, plan, plan_epsilon
from pgbb_fast.planner import _curvature

DESIGN = {"n": 20_000, "p": 2, "delta": 1e-5, "residual_scale": 0.1}


@pytest.mark.parametrize("s", [0.05, 1.0])
def test_curvature_is_that_of_normal_residuals(s):
    """Densities and second moments by quadrature."""
    with mpmath.workdps(25):
        c = mpmath.mpf("1.345")
        f = mpmath.quad(mpmath.npdf, [-c, c]) / s
        m = mpmath.quad(lambda z: min(abs(z), c) ** 2 * mpmath.npdf(z), [-20, -c, 0, c, 20])
        tau = mpmath.mpf("0.3")
        z = mpmath.findroot(lambda t: mpmath.ncdf(t) - tau, -0.5)
        density = mpmath.npdf(z) / s
    assert _curvature("huber", 0.5, s) == pytest.approx((float(f), float(m)), rel=1e-9)
    assert _curvature("quantile", 0.3, s) == pytest.approx((float(density), 0.21), rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
@pytest.mark.parametrize("loss", ["huber", "quantile"])
def test_predicted_widths_are_met(loss, epsilon):
    """Median realised over predicted width of two slopes in 12 fits: between 0.85 and 1.3 (H's uncertainty widens)."""
    predicted = plan(loss=loss, epsilon=epsilon, **DESIGN)
    ratios = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, (20_000, 2))
        y = 0.2 * X[:, 0] - 0.1 * X[:, 1] + 0.1 * rng.normal(size=20_000)
        settings = {"x_bounds": [(-1, 1)] * 2, "y_bounds": (-1, 1), "epsilon": epsilon, "delta": 1e-5, "seed": seed}
        model = PrivateHuberRegressor(**settings) if loss == "huber" else PrivateQuantileRegressor(**settings)
        model.plan = lambda n, report=predicted.privacy: report
        interval = model.fit(X, y).posterior_.interval()
        ratios += [float(interval[j, 1] - interval[j, 0]) / predicted.width for j in (1, 2)]
    assert 0.85 < np.median(ratios) < 1.3


def test_more_budget_or_records_narrow_the_interval_and_the_privacy_share():
    plans = [plan(epsilon=epsilon, **DESIGN) for epsilon in (0.25, 1.0, 4.0)]
    assert plans[0].width > plans[1].width > plans[2].width
    assert plans[0].privacy_share > plans[1].privacy_share > plans[2].privacy_share
    assert plans[2].privacy_is_small
    more = plan(epsilon=1.0, **{**DESIGN, "n": 80_000})
    assert more.sampling_sd == pytest.approx(plans[1].sampling_sd / 2, rel=1e-9)
    assert more.privacy_sd < plans[1].privacy_sd / 3.5
    assert plans[0].natural((0, 10), (0, 4)) == pytest.approx(plans[0].width * 0.4)
    p = plans[1]
    assert p.width == pytest.approx(2 * 1.959963984540054 * math.hypot(p.sampling_sd, p.privacy_sd), rel=1e-9)


def test_epsilon_from_a_width():
    target = plan(epsilon=1.0, **DESIGN).width
    epsilon = plan_epsilon(width=target, **DESIGN)
    assert 0.99 < epsilon < 1.02
    assert plan(epsilon=epsilon, **DESIGN).width <= target * 1.002


def test_what_cannot_be_had_is_refused():
    with pytest.raises(PrivacyError, match="sampling alone"):
        plan_epsilon(width=1e-4, **DESIGN)
    for change in ({"n": 5}, {"p": 0}, {"epsilon": 0.0}, {"loss": "cubic"}, {"tau": 1.0}, {"residual_scale": math.nan}):
        with pytest.raises(DomainError):
            plan(**{"epsilon": 1.0, **DESIGN, **change})


def test_a_clip_is_priced_in_proportion_and_leaves_the_sampling_part():
    own = math.sqrt(3.0) * 0.5  # a median's own bound with two features and the intercept
    base, one, five = (plan(loss="quantile", epsilon=1.0, clip=clip, **DESIGN) for clip in (None, own, 5 * own))
    assert one == base
    assert five.privacy_sd == pytest.approx(5 * base.privacy_sd, rel=1e-12)
    assert five.sampling_sd == base.sampling_sd
    with pytest.raises(DomainError, match="clip"):
        plan(epsilon=1.0, clip=0.0, **DESIGN)
