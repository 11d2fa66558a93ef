"""Before any data: how wide will the intervals be, and how much of that is privacy?

The prediction rests on a stated design: features uncorrelated with one another, normal residuals.  It is a function
of public numbers and guesses only; it spends nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from scipy.optimize import brentq
from scipy.special import ndtri
from scipy.stats import norm

from pgbb_fast import validation as check
from pgbb_fast.accountant import BlockedGaussian
from pgbb_fast.blocks import MIN_BLOCKS
from pgbb_fast.errors import DomainError, PrivacyError
from pgbb_fast.losses import Loss, huber, smoothed_quantile
from pgbb_fast.noise_aware import SETTLED
from pgbb_fast.privacy import PrivacyReport, calibrate, suggested_rate

__all__ = ["SMALL_SHARE", "Plan", "plan", "plan_epsilon"]

LOSSES = ("huber", "quantile")
MOST_FEATURES = 2**14  # as many as the clipping proof allows (kernels.scalar.clip)
MOST_LEVELS = 1000
MOST_SHARE = 0.5  # of the budget for second moments, as for the estimators
LEAST_GUESS = 1e-6  # guesses are of order 1, in half ranges
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
    privacy : PrivacyReport
        What the fit would spend, and with which noise.
    """

    sampling_sd: float
    privacy_sd: float
    width: float
    privacy_share: float
    privacy: PrivacyReport

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


def _curvature(loss: str, tau: float, scale: float) -> tuple[float, float]:
    """(f, m) with H = f E[x x'] and M = m E[x x'] for normal residuals of standard deviation ``scale``.

    Quantile: phi(z_tau)/s and tau (1 - tau).  Huber (c = 1.345): P(|Z| < c)/s and E psi_c(Z)^2.
    """
    if loss == "quantile":
        return float(norm.pdf(ndtri(tau))) / scale, tau * (1.0 - tau)
    c = 1.345
    inside = 1.0 - 2.0 * float(norm.sf(c))
    second = inside - 2.0 * c * float(norm.pdf(c)) + 2.0 * c * c * float(norm.sf(c))
    return inside / scale, second


def plan(
    *,
    n: int,
    p: int,
    epsilon: float,
    delta: float,
    loss: str = "huber",
    tau: float = 0.5,
    levels: int = 1,
    residual_scale: float = 0.1,
    feature_sd: float = UNIFORM,
    n_blocks: int = 20,
    steps: int = 3_000,
    moment_share: float = 0.1,
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
    loss : {"huber", "quantile"}
    tau : float
        Quantile level.
    levels : int
        Number of levels fitted jointly, sharing the budget evenly.
    residual_scale : float
        A guess of the residuals' standard deviation over half the range of y.
    feature_sd : float
        A guess of the feature's standard deviation over half its range, given the other features; 1/sqrt(3) when
        uniform over its range.
    n_blocks, steps, moment_share : int, int, float
        As for the estimators.
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
        sampling variance v M / H^2 with v = 1/n, privacy variance (sigma / q)^2 / (R H^2) with R the releases that the
        location rests on (refinement.md).
    """
    who = "plan"
    loss = check.one_of(who, "loss", loss, LOSSES)
    n_blocks = check.integer(who, "n_blocks", n_blocks, MIN_BLOCKS)
    n = check.integer(who, "n", n, n_blocks)
    p = check.integer(who, "p", p, 1, MOST_FEATURES)
    levels = check.integer(who, "levels", levels, 1, MOST_LEVELS)
    steps = check.integer(who, "steps", steps, 1, 2**32 - 2)
    tau = check.between(who, "tau", tau, 0.0, 1.0)
    residual_scale = check.between(who, "residual_scale", residual_scale, LEAST_GUESS, 1.0 / LEAST_GUESS)
    feature_sd = check.between(who, "feature_sd", feature_sd, LEAST_GUESS, 1.0 / LEAST_GUESS)
    level = check.between(who, "level", level, 0.0, 1.0)
    epsilon, delta = check.positive(who, "epsilon", epsilon), check.between(who, "delta", delta, 0.0, 1.0)
    moment_share = check.real(who, "moment_share", moment_share)
    if not 0.0 <= moment_share <= MOST_SHARE:
        raise DomainError(f"{who}: moment_share must lie in [0, {MOST_SHARE:g}], got {moment_share:g}")
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
    bound = exact.gradient_bound(math.sqrt(p + 1.0)) if clip is None else check.positive(who, "clip", clip)
    noise = multiplier * bound / (n // n_blocks * report.mechanism.sampling_rate)
    f, m = _curvature(loss, tau, residual_scale)
    hessian = f * feature_sd**2
    sampling = math.sqrt(m / n) * feature_sd / hessian
    privacy = noise / math.sqrt(steps * (1.0 - SETTLED)) / hessian
    total = math.hypot(sampling, privacy)
    width = 2.0 * float(norm.isf((1.0 - level) / 2.0)) * total
    return Plan(sampling, privacy, width, (privacy / total) ** 2, report)


def plan_epsilon(*, width: float, delta: float, lowest: float = 1e-2, highest: float = 1e2, **design: float) -> float:
    """The least epsilon, to 1%, whose predicted :func:`plan` width is at most ``width``.

    ``design`` are the other arguments of :func:`plan` (all but ``epsilon``).  Refuses a width that sampling alone
    exceeds, or that needs more than ``highest``.
    """
    who = "plan_epsilon"
    width = check.between(who, "width", width, 1e-100, 1e100)
    lowest, highest = check.ordered_pair(who, "(lowest, highest)", (lowest, highest))
    check.positive(who, "lowest", lowest)

    def excess(log_epsilon: float) -> float:
        return math.log(plan(epsilon=math.exp(log_epsilon), delta=delta, **design).width / width)  # type: ignore[arg-type]

    low, high = math.log(lowest), math.log(highest)
    if excess(high) > 0.0:
        best = plan(epsilon=highest, delta=delta, **design)  # type: ignore[arg-type]
        raise PrivacyError(
            f"plan_epsilon: even epsilon = {highest:g} gives a width of {best.width:.4g}, of which sampling alone is "
            f"{best.width * math.sqrt(1.0 - best.privacy_share):.4g}; ask for a wider interval, or use more records"
        )
    if excess(low) <= 0.0:
        return lowest
    return min(highest, math.exp(float(brentq(excess, low, high, xtol=5e-3))) * 1.005)
