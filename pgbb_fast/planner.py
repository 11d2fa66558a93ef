"""Before any data: how wide will the intervals be, and how much of that is privacy?

With noise in the shape of the scores the width over the non-private one is a function of public numbers alone
(docs/geometry.md, section 5); the width itself, and all of the box geometry's prediction, rests on a stated design:
features uncorrelated with one another, normal residuals.  It spends nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtri
from scipy.stats import norm

from pgbb_fast import validation as check
from pgbb_fast.accountant import BlockedGaussian
from pgbb_fast.budget.gaussian import GaussianReport, multiplier_of, report_of
from pgbb_fast.budget.report import PrivacyReport, calibrate, suggested_rate
from pgbb_fast.errors import DomainError, PrivacyError
from pgbb_fast.geometry.schedule import groups, schedule
from pgbb_fast.local.model import SETTLED
from pgbb_fast.losses import TYPICAL, Loss, expectile, huber, logistic, normal_expectile, smoothed_quantile
from pgbb_fast.release.blocks import MIN_BLOCKS

__all__ = ["SMALL_SHARE", "Plan", "plan", "plan_epsilon"]

LOSSES = ("huber", "quantile", "expectile", "logistic")
BOXED = ("huber", "quantile")  # those with a prediction for the box
GEOMETRIES = ("scores", "box")
N_BLOCKS, STEPS, SHARE = 20, 3_000, 0.1
C = 1.345  # Huber's
REACH = 0.5  # default bound of an expectile's residuals
MAX_FEATURES = 2**14  # as many as the clipping proof allows (kernels.scalar.clip)
MAX_LEVELS = 1000
MAX_SHARE = 0.5  # of the budget for second moments, as for the estimators
MIN_GUESS = 1e-6  # guesses are of order 1, in half ranges
SMALL_SHARE = 0.5  # a privacy share of the variance up to this is called small
UNIFORM = 1.0 / math.sqrt(3.0)


@dataclass(frozen=True)
class Plan:
    """Predicted interval of one slope, in units of half the range of y per half the range of the feature.

    Attributes
    ----------
    sampling_sd, privacy_sd : float
        Parts of the posterior standard deviation.
    width : float
        Width of the interval of the stated level.
    privacy_share : float
        Share of the variance due to privacy.
    privacy : PrivacyReport or GaussianReport
        What the fit would spend, and with which noise.
    ratio : float
        Width over the non-private interval's; with ``geometry="scores"`` that of every coefficient and rule.
    """

    sampling_sd: float
    privacy_sd: float
    width: float
    privacy_share: float
    privacy: PrivacyReport | GaussianReport
    ratio: float

    @property
    def privacy_is_small(self) -> bool:
        """Whether privacy makes up no more than half of the variance."""
        return self.privacy_share <= SMALL_SHARE

    def natural(self, x_bounds: tuple[float, float], y_bounds: tuple[float, float]) -> float:
        """The width in natural units, for a feature with ``x_bounds`` and a response with ``y_bounds``."""
        x, y = (
            check.ordered_pair("natural", name, pair) for name, pair in (("x_bounds", x_bounds), ("y_bounds", y_bounds))
        )
        return self.width * (y[1] - y[0]) / (x[1] - x[0])


def _curvature(loss: str, tau: float, scale: float, share: float = 0.5) -> tuple[float, float]:
    """(f, m) with H = f E[x x'] and M = m E[x x'] for normal residuals of standard deviation ``scale``.

    Quantile: phi(z_tau)/s and tau (1 - tau).  Huber (c = 1.345): P(|Z| < c)/s and E psi_c(Z)^2.  Expectile: E|tau -
    1(r < 0)| and E (tau - 1(r < 0))^2 r^2 at its own expectile.  Logistic, with a ``share`` of ones: p (1 - p) both.
    """
    if loss == "quantile":
        return float(norm.pdf(ndtri(tau))) / scale, tau * (1.0 - tau)
    if loss == "logistic":
        return share * (1.0 - share), share * (1.0 - share)
    if loss == "expectile":
        e = normal_expectile(tau)
        z = np.linspace(-8.0, 8.0, 4001)
        weight = np.where(z > e, tau, 1.0 - tau)
        density = norm.pdf(z) * (z[1] - z[0])
        return float(weight @ density), float((weight * (z - e)) ** 2 @ density) * scale**2
    inside = 1.0 - 2.0 * float(norm.sf(C))
    second = inside - 2.0 * C * float(norm.pdf(C)) + 2.0 * C * C * float(norm.sf(C))
    return inside / scale, second


def plan(
    *,
    n: int,
    p: int,
    epsilon: float,
    delta: float,
    loss: str = "huber",
    tau: float = 0.5,
    levels: int | Sequence[float] = 1,
    residual_scale: float = 0.1,
    feature_sd: float = UNIFORM,
    share_of_ones: float = 0.5,
    geometry: str | None = None,
    n_blocks: int | None = None,
    steps: int | None = None,
    moment_share: float | None = None,
    level: float = 0.95,
    clip: float | None = None,
) -> Plan:
    """Predict the noise-aware interval of one slope.

    Parameters
    ----------
    n, p : int
        Records and features (the model has an intercept too).
    epsilon, delta : float
        Budget.
    loss : {"huber", "quantile", "expectile", "logistic"}
    tau : float
        Quantile or expectile level that the prediction is for.
    levels : int or sequence of float
        Levels fitted jointly; a number of them stands for equally spaced ones.
    residual_scale : float
        A guess of the residuals' standard deviation over half the range of y.
    feature_sd : float
        A guess of the feature's standard deviation over half its range, given the other features; 1/sqrt(3) when
        uniform over its range.
    share_of_ones : float
        A guess of the share of the second class, for the logistic loss.
    geometry : {"scores", "box"}, optional
        As for the estimators: "scores", unless one of the following, which only "box" has, is given.  "box" has a
        prediction for Huber's loss and quantiles.
    n_blocks, steps, moment_share : int, int, float, optional
        As for the estimators; by default 20, 3,000 and .1.
    level : float
        Level of the interval.
    clip : float, optional
        Bound of one record's gradient, in units in which coefficients' bounds have half-width 1; by default the loss's
        own.  ``privacy_sd`` is proportional to it: what a larger clip of a
        :class:`~pgbb_fast.PrivateMEstimator` costs.  What a smaller one costs, the distance between the clipped
        equation's zero and the loss's minimum, depends on the records and is not in the width.

    Returns
    -------
    Plan
        Sampling variance v M / H^2 with v = 1/n.  Privacy variance: kappa^2 times that, and what is not known of H
        (``geometry.schedule``); for the box (sigma / q)^2 / (R H^2) with R the releases that the location rests on
        (docs/refinement.md).
    """
    who = "plan"
    loss = check.one_of(who, "loss", loss, LOSSES)
    boxed = [value for value in (n_blocks, steps, moment_share, clip) if value is not None]
    n_blocks = check.integer(who, "n_blocks", N_BLOCKS if n_blocks is None else n_blocks, MIN_BLOCKS)
    n = check.integer(who, "n", n, n_blocks)
    p = check.integer(who, "p", p, 1, MAX_FEATURES)
    several = check.items(levels)
    if several is None:
        count = check.integer(who, "levels", levels, 1, MAX_LEVELS)
        chosen = tuple((np.arange(count) + 1.0) / (count + 1.0)) if count > 1 else (tau,)
    else:
        chosen = tuple(check.between(who, "levels", one, 0.0, 1.0) for one in several)
        if len(set(chosen)) != len(chosen) or not chosen:
            raise DomainError(f"{who}: levels must be different numbers in (0, 1)")
    if geometry is None:
        geometry = "box" if boxed else "scores"
    if check.one_of(who, "geometry", geometry, GEOMETRIES) == "scores" and boxed:
        raise DomainError(f"{who}: n_blocks, steps, moment_share and clip belong to geometry='box'; leave them out")
    share_of_ones = check.between(who, "share_of_ones", share_of_ones, 0.0, 1.0)
    steps = check.integer(who, "steps", STEPS if steps is None else steps, 1, 2**32 - 2)
    tau = check.between(who, "tau", tau, 0.0, 1.0)
    residual_scale = check.between(who, "residual_scale", residual_scale, MIN_GUESS, 1.0 / MIN_GUESS)
    feature_sd = check.between(who, "feature_sd", feature_sd, MIN_GUESS, 1.0 / MIN_GUESS)
    level = check.between(who, "level", level, 0.0, 1.0)
    epsilon, delta = check.positive(who, "epsilon", epsilon), check.between(who, "delta", delta, 0.0, 1.0)
    moment_share = check.real(who, "moment_share", SHARE if moment_share is None else moment_share)
    if not 0.0 <= moment_share <= MAX_SHARE:
        raise DomainError(f"{who}: moment_share must lie in [0, {MAX_SHARE:g}], got {moment_share:g}")
    f, m = _curvature(loss, tau, residual_scale, share_of_ones)
    hessian = f * feature_sd**2
    sampling = math.sqrt(m / n) * feature_sd / hessian
    report: PrivacyReport | GaussianReport
    if geometry == "scores":
        report, ratio = _in_shape(loss, chosen, n, p, epsilon, delta, residual_scale, share_of_ones)
        total = ratio * sampling
        privacy = sampling * math.sqrt(max(0.0, ratio**2 - 1.0))
    else:
        check.one_of(who, "loss", loss, BOXED)
        report, noise = _in_box(loss, tau, n, p, epsilon, delta, len(chosen), n_blocks, steps, moment_share, clip)
        privacy = noise / math.sqrt(steps * (1.0 - SETTLED)) / hessian
        total = math.hypot(sampling, privacy)
    width = 2.0 * float(norm.isf((1.0 - level) / 2.0)) * total
    return Plan(sampling, privacy, width, (privacy / total) ** 2, report, total / sampling)


def _in_shape(
    loss: str,
    levels: Sequence[float],
    n: int,
    p: int,
    epsilon: float,
    delta: float,
    residual_scale: float,
    share_of_ones: float,
) -> tuple[GaussianReport, float]:
    """What a fit would spend, and the width over the non-private one's."""
    size = 1.0
    exact: Loss = huber()
    if loss == "quantile":
        exact = smoothed_quantile(levels, 1.0)
    elif loss == "expectile":
        exact, size = expectile(levels, REACH), (residual_scale / TYPICAL) ** 2
    elif loss == "logistic":
        exact, size = logistic(), 4.0 * share_of_ones * (1.0 - share_of_ones)
    d = p + 1 + exact.has_scale
    chosen = schedule(exact, n, d, multiplier_of(epsilon, delta))
    report = report_of(groups(chosen), n=n, budget_epsilon=epsilon, budget_delta=delta)
    return report, chosen.widening(d, size)


def _in_box(
    loss: str,
    tau: float,
    n: int,
    p: int,
    epsilon: float,
    delta: float,
    levels: int,
    n_blocks: int,
    steps: int,
    moment_share: float,
    clip: float | None,
) -> tuple[PrivacyReport, float]:
    """What a fit would spend, and the standard deviation of one release's noise."""
    mechanism = BlockedGaussian(
        n=n,
        n_blocks=n_blocks,
        gamma=None,
        sampling_rate=0.2,
        steps=steps,
        draws_per_step=levels,
        noise_multiplier=None,
        minibatch="shared",
    )
    budget = {"budget_epsilon": epsilon, "budget_delta": delta}
    rate = suggested_rate(mechanism, with_moment=moment_share > 0.0, **budget)
    exact: Loss = huber() if loss == "huber" else smoothed_quantile([tau], 1.0)
    report = calibrate(replace(mechanism, sampling_rate=rate), moment_share=moment_share, moments=2, **budget)
    multiplier = report.mechanism.noise_multiplier
    assert multiplier is not None
    bound = exact.gradient_bound(math.sqrt(p + 1.0)) if clip is None else check.positive("plan", "clip", clip)
    return report, multiplier * bound / (n // n_blocks * report.mechanism.sampling_rate)


def plan_epsilon(*, width: float, delta: float, lowest: float = 1e-2, highest: float = 1e2, **design: Any) -> float:
    """The least epsilon, to 1%, whose predicted :func:`plan` width is at most ``width``.

    ``design`` are the other arguments of :func:`plan` (all but ``epsilon``).  Refuses a width that sampling alone
    exceeds, or that needs more than ``highest``.
    """
    who = "plan_epsilon"
    width = check.between(who, "width", width, 1e-100, 1e100)
    lowest, highest = check.ordered_pair(who, "(lowest, highest)", (lowest, highest))
    check.positive(who, "lowest", lowest)

    def excess(log_epsilon: float) -> float:
        return math.log(plan(epsilon=math.exp(log_epsilon), delta=delta, **design).width / width)

    low, high = math.log(lowest), math.log(highest)
    if excess(high) > 0.0:
        best = plan(epsilon=highest, delta=delta, **design)
        raise PrivacyError(
            f"plan_epsilon: even epsilon = {highest:g} gives a width of {best.width:.4g}, of which sampling alone is "
            f"{best.width * math.sqrt(1.0 - best.privacy_share):.4g}; ask for a wider interval, or use more records"
        )
    if excess(low) <= 0.0:
        return lowest
    return min(highest, math.exp(float(brentq(excess, low, high, xtol=5e-3))) * 1.005)
