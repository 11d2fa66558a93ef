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


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
@pytest.mark.parametrize("loss", ["huber", "quantile"])
def test_predicted_widths_are_met(loss, epsilon):
    """Median realised over predicted width of two slopes in 12 fits: within 12%."""
    predicted = plan(loss=loss, epsilon=epsilon, **DESIGN)
    ratios = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, (20_000, 2))
        y = 0.2 * X[:, 0] - 0.1 * X[:, 1] + 0.1 * rng.normal(size=20_000)
        settings = {"x_bounds": [(-1, 1)] * 2, "y_bounds": (-1, 1), "epsilon": epsilon, "delta": 1e-5, "seed": seed}
        model = PrivateHuberRegressor(**settings) if loss == "huber" else PrivateQuantileRegressor(**settings)
        interval = model.fit(X, y).posterior_.interval()
        ratios += [float(interval[j, 1] - interval[j, 0]) / predicted.width for j in (1, 2)]
    assert 0.88 < np.median(ratios) < 1.12


def test_more_budget_or_records_narrow_the_interval_and_the_privacy_share():
    plans = [plan(epsilon=epsilon, **DESIGN) for epsilon in (0.25, 1.0, 4.0)]
    assert plans[0].width > plans[1].width > plans[2].width
    assert plans[0].privacy_share > plans[1].privacy_share > plans[2].privacy_share
    assert plans[2].privacy_is_small
    more = plan(epsilon=1.0, **{**DESIGN, "n": 80_000})
    assert more.sampling_sd == pytest.approx(plans[1].sampling_sd / 2, rel=1e-9)
    assert more.privacy_sd < plans[1].privacy_sd / 3.0  # 4 times by kappa, and B is wider where noise is small
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
    box = {"loss": "quantile", "epsilon": 1.0, "geometry": "box", **DESIGN}
    base, one, five = (plan(clip=clip, **box) for clip in (None, own, 5 * own))
    assert one == base
    assert five.privacy_sd == pytest.approx(5 * base.privacy_sd, rel=1e-12)
    assert five.sampling_sd == base.sampling_sd
    with pytest.raises(DomainError, match="clip"):
        plan(epsilon=1.0, clip=0.0, **DESIGN)


def test_the_ratio_is_that_of_the_proof():
    """kappa = s A B / sqrt(n share) with A^2 = 1 / gap - 1, B = 1.5 sqrt(m), s the whole budget's multiplier."""
    levels = (0.1, 0.25, 0.5, 0.75, 0.9)
    found = plan(n=65_000, p=4, epsilon=1.0, delta=1e-5, loss="quantile", levels=levels)
    report = found.privacy
    location = report.releases[-2]
    share_of_location = location.steps * (report.multiplier / location.noise_multiplier) ** 2
    kappa = report.multiplier * math.sqrt(1 / 0.1 - 1) * 1.5 * math.sqrt(5) / math.sqrt(65_000 * share_of_location)
    assert math.sqrt(1 + kappa**2) < found.ratio < 1.05 * math.sqrt(1 + kappa**2)
    several = [plan(n=65_000, p=4, epsilon=1.0, delta=1e-5, loss="quantile", levels=L).ratio for L in (5, 9, 19, 39)]
    assert several == sorted(several)
    assert several[-1] < 1.4        # A^2 = L for equally spaced levels: not L stacks


def test_every_family_has_a_ratio():
    """Against quadrature: an expectile's second moment in units of the schedule's residuals, a rare class's."""
    base = {"n": 50_000, "p": 2, "epsilon": 1.0, "delta": 1e-5}
    for loss in ("huber", "quantile", "expectile", "logistic"):
        assert plan(loss=loss, **base).ratio > 1.0
    rare, even = (plan(loss="logistic", share_of_ones=share, **base).ratio for share in (0.02, 0.5))
    assert rare > even
    with mpmath.workdps(20):
        e = mpmath.findroot(lambda t: 0.8 * mpmath.quad(lambda z: (z - t) * mpmath.npdf(z), [t, 12])
                            - 0.2 * mpmath.quad(lambda z: (t - z) * mpmath.npdf(z), [-12, t]), 0.5)
        f = 0.8 * (1 - mpmath.ncdf(e)) + 0.2 * mpmath.ncdf(e)
        second = mpmath.quad(lambda z: (0.8 if z > e else 0.2) ** 2 * (z - e) ** 2 * mpmath.npdf(z), [-12, e, 12])
    assert _curvature("expectile", 0.8, 0.3) == pytest.approx((float(f), 0.09 * float(second)), rel=2e-3)


def test_settings_of_the_box_are_refused_with_the_other_geometry():
    for change in ({"clip": 1.0}, {"steps": 100}, {"n_blocks": 20}, {"moment_share": 0.1}):
        with pytest.raises(DomainError, match="box"):
            plan(epsilon=1.0, geometry="scores", **DESIGN, **change)
        assert plan(epsilon=1.0, **DESIGN, **change).privacy.mechanism is not None
