"""The losses users can ask for: which kernel, which constants, and a proved bound on one record's gradient.

A regression loss l(y, x'beta[, s]) has gradient (a x, b) with ``a`` its slope in the linear predictor and ``b`` its
slope in the scale, so its norm is at most ``sqrt(A^2 B_x^2 + B^2)`` where ``|a| <= A``, ``|b| <= B``, ``|x| <= B_x``
(method.md section 6).  The kernel clips at this bound all the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, ndtr, ndtri

from pgbb_fast import validation as check
from pgbb_fast.errors import DomainError
from pgbb_fast.silence import FAILURES, unseen

__all__ = [
    "Loss",
    "expectile",
    "exponential_mean",
    "huber",
    "huber_fixed_scale",
    "huber_kappa",
    "logistic",
    "mean",
    "smoothed_quantile",
    "user_loss",
    "user_slope",
    "with_curvature",
]

QUANTILE_KERNELS = ("gaussian", "logistic")
TYPICAL = 0.1  # residual scale over half the range of y, as the planner guesses it
BENDS = 1.6  # as the logistic loss, whose curvature changes by a factor e over a logit
CURVATURES, SAME = 401, 1e-6  # points of a curvature's grid; of the largest slope there: what counts as nothing
TOO_NEAR = 1e-6  # points of that grid
LONGEST = 2.0**100  # of the entries of a gradient of the user's own
LOCATION = frozenset({"mean", "exponential_mean"})  # kernels of losses without a response
RecordGradient = Callable[[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]


@dataclass(frozen=True)
class Loss:
    """A loss, or a family of losses indexed by a rule (quantile levels).

    Attributes
    ----------
    kernel : str
        Name of the scalar slope in ``pgbb_fast.kernels.scalar.losses``.
    rules : tuple of float
        Index of each rule of the family, as users know it (quantile levels, Huber's c); ``(nan,)``: no index.
    rule_name : str
        What the index is called.
    constants : tuple of pairs
        The slope's two constants for each rule.
    slope_bound, scale_bound : float
        Bounds of |d loss / d eta| and |d loss / d scale| over all rules; ``math.inf`` when there is none.
    has_scale : bool
        Whether theta ends with a scale.
    additive : bool
        Whether the gradient is theta plus a function of the record.  Then theta, which is public, is left out of the
        release and added afterwards: only the record's part is clipped, with half the bound.
    ridge : float
        Weight of |slopes|^2 / 2 beside the mean loss; its gradient is public and added after the release.
    correlation : tuple of tuples, optional
        Correlation of the rules' scores for normal residuals; None: that of quantile levels.
    slope : callable, optional
        A slope of the user's own, (y, eta) -> d loss / d eta of one record, over its bound; ``kernel`` is "user".
    curvature : (grid, values), optional
        Expected d slope / d eta on a grid of eta, where it is known (:func:`with_curvature`).
    gradient : callable, optional
        Or gradients of the user's own, theta (d,), x (m, p), y (m,) -> (m, d), row i a function of theta and record i.
    """

    kernel: str
    rules: tuple[float, ...]
    constants: tuple[tuple[float, float], ...]
    slope_bound: float
    scale_bound: float = 0.0
    has_scale: bool = False
    additive: bool = False
    rule_name: str = "level"
    ridge: float = 0.0
    correlation: tuple[tuple[float, ...], ...] | None = None
    slope: Callable[[float, float], float] | None = None
    gradient: RecordGradient | None = None
    curvature: tuple[tuple[float, ...], tuple[float, ...]] | None = None

    @property
    def knows_curvature(self) -> bool:
        """Whether a record's expected second derivative in eta is a known function of eta."""
        return self.kernel == "logistic" or self.curvature is not None

    def curvature_at(self, eta: NDArray[np.float64]) -> NDArray[np.float64]:
        """That second derivative."""
        if self.curvature is not None:
            return np.asarray(np.interp(eta, *self.curvature))
        p = expit(eta)
        return np.asarray(p * (1.0 - p))

    @property
    def is_quantile(self) -> bool:
        """Whether the rules are quantile levels."""
        return self.kernel in {f"quantile_{kernel}" for kernel in QUANTILE_KERNELS}

    @property
    def regression(self) -> bool:
        """Whether a record has a response."""
        return self.kernel not in LOCATION

    def rule_probabilities(self) -> NDArray[np.float64]:
        """P_tau over the rules: of quantile levels proportional to 1 / (tau (1 - tau)) (method.md section 5), else the
        same for all."""
        if len(self.rules) == 1 or not self.is_quantile:
            return np.full(len(self.rules), 1.0 / len(self.rules))
        tau = np.asarray(self.rules)
        p = 1.0 / (tau * (1.0 - tau))
        return np.asarray(p / p.sum())

    def density(self, rule: int) -> float:
        """f times the residual scale at the fitted rule, for normal errors: how H = f E[x x'] reveals the scale.

        phi(Phi^-1(tau)) for a quantile; for the other losses 0.4, which is on the small side.  An expectile's H, about
        E[x x'] / 2, does not reveal the scale: a quarter of the residuals' bound is taken for it.
        """
        tau = self.rules[rule]
        if self.kernel == "expectile":
            return self.constants[rule][1] / 8.0
        return 0.4 if not self.is_quantile else float(np.exp(-0.5 * ndtri(tau) ** 2) / math.sqrt(2.0 * math.pi))

    def bandwidth(self, rule: int) -> float:
        """h of a smoothed quantile (unit of y); 0 for other losses."""
        return self.constants[rule][1] if self.is_quantile else 0.0

    def range_of_quadratic(self, rule: int, f: float) -> float:
        """A scale of x'theta over which the loss's mean gradient bends: the residual scale that f reveals; of the
        logistic loss, whose f has no part in it, that at which f is largest (in logits), and likewise where a slope of
        the user's own has a known derivative: as many times the range over which that changes by a factor e."""
        own = self.density(rule) / (0.25 if self.kernel == "logistic" else f)
        return own if self.curvature is None else min(own, BENDS * _bend(*self.curvature))

    def curvature_limit(self, rule: int) -> float:
        """Largest second derivative of the loss in the linear predictor, a bound of f in H = f E[x x']: 1/4 (logistic),
        the kernel's value at 0 over h (quantiles: phi(0) and 1/4), max(tau, 1 - tau) (expectiles), 1 (a fixed scale);
        inf where the loss has none of its own."""
        if self.is_quantile:
            _, h = self.constants[rule]
            return (1.0 / math.sqrt(2.0 * math.pi) if self.kernel == "quantile_gaussian" else 0.25) / h
        if self.kernel == "expectile":
            return max(self.rules[rule], 1.0 - self.rules[rule])
        return {"logistic": 0.25 + self.ridge, "huber_fixed": 1.0}.get(self.kernel, math.inf)

    def curvature_scale(self, rule: int) -> float:
        """Scale of the prior of f: that of residuals a tenth of half the range of y, at most the loss's own limit; inf
        where nothing public tells (a user's loss, a location)."""
        if self.user_defined or self.kernel in LOCATION:
            return math.inf
        return min(self.curvature_limit(rule), self.density(rule) / TYPICAL)

    def score_correlation(self) -> NDArray[np.float64]:
        """Correlation between the rules' scores under a correct model, (L, L): between quantile levels t < t' it is
        sqrt(t (1 - t') / (t' (1 - t)))."""
        if len(self.rules) == 1:
            return np.ones((1, 1))
        if self.correlation is not None:
            return np.asarray(self.correlation)
        tau = np.asarray(self.rules)
        low, high = np.minimum.outer(tau, tau), np.maximum.outer(tau, tau)
        return np.asarray(np.sqrt(low * (1.0 - high) / (high * (1.0 - low))))

    @property
    def user_defined(self) -> bool:
        """Whether this is a loss of the user's own, which no compiled kernel knows."""
        return self.slope is not None or self.gradient is not None

    def user_gradient(self, theta: NDArray[Any], x: NDArray[Any], y: NDArray[Any], intercept: bool) -> NDArray[Any]:
        """Gradients (m, d) of a loss of the user's own; a slope is asked for record by record, so none can depend on
        another.  One that is not finite makes its record count as zero; one beyond 2^100, whose square may overflow, is
        shortened to that, which is far above any clipping bound."""
        with unseen():
            if self.gradient is not None:
                found = self.gradient(theta, x, y)
            else:
                assert self.slope is not None
                design = np.column_stack([np.ones(len(x)), x]) if intercept else x
                eta = design @ theta
                slope = np.fromiter(map(self.slope, y.tolist(), eta.tolist()), dtype=np.float64, count=len(y))
                found = slope[:, None] * design
            largest = np.abs(found).max(axis=1, keepdims=True, initial=0.0)
            return np.asarray(np.where(largest > LONGEST, found * (LONGEST / largest), found))

    def gradient_bound(self, feature_bound: float) -> float:
        """Bound C of one record's gradient norm, given ``|x| <= feature_bound``."""
        return math.hypot(self.slope_bound * feature_bound, self.scale_bound)


def _correlation(slopes: Sequence[NDArray[np.float64]], density: NDArray[np.float64]) -> tuple[tuple[float, ...], ...]:
    """Correlation of mean-zero ``slopes`` given on a grid of residuals with weights ``density``."""
    moment = np.array([[float((a * b) @ density) for b in slopes] for a in slopes])
    sd = np.sqrt(np.diag(moment))
    return tuple(map(tuple, (moment / np.outer(sd, sd)).tolist()))


def smoothed_quantile(levels: Sequence[float], bandwidth: float, kernel: str = "gaussian") -> Loss:
    """Check loss convolved with a kernel of ``bandwidth`` h (units of y): slope Kbar(-r/h) - tau in [-tau, 1 - tau].

    Tan, Wang and Zhou (2022), JRSS-B 84(1), 205-233.  Bound max(tau, 1 - tau), over all ``levels``.
    """
    h = check.positive("smoothed_quantile", "bandwidth", bandwidth)
    check.one_of("smoothed_quantile", "kernel", kernel, QUANTILE_KERNELS)
    taus = tuple(check.between("smoothed_quantile", "tau", tau, 0.0, 1.0) for tau in levels)
    bound = max(max(tau, 1.0 - tau) for tau in taus)
    return Loss(f"quantile_{kernel}", taus, tuple((tau, h) for tau in taus), bound)


def huber_kappa(c: float) -> float:
    """E psi_c(Z)^2 for a standard normal Z: P(|Z| < c) - 2 c phi(c) + 2 c^2 P(Z > c)."""
    tail, density = float(ndtr(-c)), math.exp(-0.5 * c * c) / math.sqrt(2.0 * math.pi)
    return 1.0 - 2.0 * tail - 2.0 * c * density + 2.0 * c * c * tail


def huber(c: float | Sequence[float] = 1.345, kappa: float | Sequence[float] = 0.71) -> Loss:
    """Huber's loss with concomitant scale s: s rho_c(r/s) + kappa s/2, jointly in (beta, s) (Huber 1981, ch. 7.7).

    Slopes: -psi_c(z), |.| <= c, and (kappa - psi_c(z)^2)/2, between (kappa - c^2)/2 and kappa/2.  ``kappa`` =
    E psi_c(Z)^2 = 0.71 makes s consistent for normal errors.  Several c, each with its kappa, are a family of rules.
    """
    cs, kappas = ((v,) if isinstance(v, (int, float)) else tuple(v) for v in (c, kappa))
    pairs = tuple(
        (check.positive("huber", "c", one), check.positive("huber", "kappa", k))
        for one, k in zip(cs, kappas, strict=True)
    )
    scale_bound = max(max(k / 2.0, (one * one - k) / 2.0) for one, k in pairs)
    z = np.linspace(-8.0, 8.0, 4001)
    return Loss(
        "huber_concomitant",
        (math.nan,) if len(pairs) == 1 else tuple(one for one, _ in pairs),
        pairs,
        max(one for one, _ in pairs),
        scale_bound,
        has_scale=True,
        rule_name="c",
        correlation=_correlation([np.clip(z, -one, one) for one, _ in pairs], np.exp(-0.5 * z * z)),
    )


def huber_fixed_scale(c: float) -> Loss:
    """Huber's rho_c of the residual itself, ``c`` in units of y: |slope| <= c."""
    return Loss("huber_fixed", (math.nan,), ((check.positive("huber_fixed_scale", "c", c), 0.0),), c)


def normal_expectile(tau: float) -> float:
    """The expectile e of a standard normal: tau E(Z - e)_+ = (1 - tau) E(e - Z)_+ (Newey and Powell 1987)."""

    def excess(e: float) -> float:
        above = math.exp(-0.5 * e * e) / math.sqrt(2.0 * math.pi) - e * float(ndtr(-e))  # E(Z - e)_+
        return tau * above - (1.0 - tau) * (above + e)

    return float(brentq(excess, -40.0, 40.0))


def expectile(levels: Sequence[float], reach: float) -> Loss:
    """Asymmetric squares |tau - 1(r < 0)| r^2 / 2 with the residual moved into [-reach, reach] (unit of y).

    |slope| <= max(tau, 1 - tau) reach over all levels.  Where |y - x'b| <= reach for every record this is the expectile
    loss itself (Newey and Powell 1987); beyond, its slope is constant, an M-quantile's (Breckling and Chambers 1988).
    """
    r = check.positive("expectile", "reach", reach)
    taus = tuple(check.between("expectile", "level", tau, 0.0, 1.0) for tau in levels)
    bound = r * max(max(tau, 1.0 - tau) for tau in taus)
    z = np.linspace(-8.0, 8.0, 4001)
    residuals = [z - normal_expectile(tau) for tau in taus]
    slopes = [np.where(e > 0.0, tau, 1.0 - tau) * e for tau, e in zip(taus, residuals, strict=True)]
    correlation = _correlation(slopes, np.exp(-0.5 * z * z))
    return Loss("expectile", taus, tuple((tau, r) for tau in taus), bound, correlation=correlation)


def _bend(grid: Sequence[float], values: Sequence[float]) -> float:
    """The shortest range of eta over which a curvature changes by a factor e, where it is not next to nothing."""
    height = np.asarray(values)
    middle = (height[1:] + height[:-1]) / 2.0
    seen = middle > 1e-3 * height.max()
    change = float(np.max(np.abs(np.diff(height)[seen]) / middle[seen] / np.diff(np.asarray(grid))[seen], initial=0.0))
    return 1.0 / max(change, 1e-300)


def with_curvature(loss: Loss, ys: Sequence[float], reach: float, needed: float) -> Loss:
    """``loss`` with the expected derivative of its slope, if the slope is linear in y, as the score of every
    generalised linear model (McCullagh and Nelder 1989, section 2.5): a(eta) + b(eta) y.  Public calls only.

    Where the model is right the slope's mean at given features is zero, so E y = -a/b, and the derivative's is
    a' - a b'/b.  With the canonical link b' = 0, and it is a' whether the model is right or not.  Differences over
    ``reach`` / 400, on a grid of eta in [-reach, reach]; it must be found in [-needed, needed] at least.
    """
    assert loss.slope is not None
    grid = np.linspace(-reach, reach, CURVATURES)
    step = float(grid[1] - grid[0]) / 2.0
    if not step > TOO_NEAR:  # differences would be of rounding errors
        return loss
    slopes, derivatives = np.empty((2, len(ys), len(grid)))
    for i, y in enumerate(ys):
        for j, eta in enumerate(grid.tolist()):
            low, high = loss.slope(y, eta - step), loss.slope(y, eta + step)
            slopes[i, j], derivatives[i, j] = (low + high) / 2.0, (high - low) / (2.0 * step)
    finite = np.isfinite(slopes).all(axis=0) & np.isfinite(derivatives).all(axis=0)
    slopes, derivatives = np.where(finite, slopes, 0.0), np.where(finite, derivatives, 0.0)
    design = np.column_stack([np.ones(len(ys)), np.asarray(ys) / max(map(abs, ys))])
    (a, b), (da, db) = (np.linalg.lstsq(design, part)[0] for part in (slopes, derivatives))
    off = np.abs(slopes - design @ np.stack([a, b])).max(axis=0)
    found = da - a * db / np.where(b == 0.0, 1.0, b)
    good = finite & (off <= SAME * np.abs(slopes).max(axis=0)) & (b != 0.0) & (found > 0.0)
    middle = len(grid) // 2
    wrong = np.flatnonzero(~good)
    first = int(wrong[wrong < middle].max(initial=-1)) + 1
    last = int(wrong[wrong >= middle].min(initial=len(grid)))
    if middle - first < needed / step / 2.0 or last - 1 - middle < needed / step / 2.0:  # about 0, as far as it matters
        return loss
    return replace(loss, curvature=(tuple(grid[first:last].tolist()), tuple(found[first:last].tolist())))


def user_slope(slope: Callable[[float, float], float], bound: float) -> Loss:
    """A generalised linear loss by its slope (y, eta) -> d loss / d eta, stated to lie in [-bound, bound] (what doesn't
    is clipped); the loss is taken over ``bound``, so the slope's bound is 1.  A record whose slope fails counts as
    zero, as one whose slope is not finite does: whether a fit succeeds must not depend on a record."""
    size = check.positive("user_slope", "bound", bound)
    if not callable(slope):
        raise DomainError(f"user_slope: slope must be callable, got {check.shown(slope)}")

    return Loss("user", (math.nan,), ((0.0, 0.0),), 1.0, slope=ScaledSlope(slope, size))


@dataclass(frozen=True)
class ScaledSlope:
    """``slope`` over ``size``, nan where it fails; can be pickled where the slope can."""

    slope: Callable[[float, float], float]
    size: float

    def __call__(self, y: float, eta: float) -> float:
        try:
            return float(self.slope(y, eta)) / self.size
        except FAILURES:
            return math.nan


def user_loss(gradient: RecordGradient) -> Loss:
    """Any loss by its records' gradients, theta (d,), x (m, p), y (m,) -> (m, d); what is not finite counts as zero."""
    return Loss("user", (math.nan,), ((0.0, 0.0),), 1.0, gradient=gradient)


def logistic(ridge: float = 0.0) -> Loss:
    """Bernoulli negative log likelihood, y in {0, 1}: |sigmoid(eta) - y| <= 1; a ridge on the slopes stays outside the
    clipped sum."""
    if not check.real("logistic", "ridge", ridge) >= 0.0:
        raise DomainError(f"logistic: ridge must be at least 0, got {ridge!r}")
    return Loss("logistic", (math.nan,), ((0.0, 0.0),), 1.0, ridge=float(ridge))


def mean() -> Loss:
    """|theta - x|^2 / 2, gradient theta - x: no bound of its own; the kernel clips -x."""
    return Loss("mean", (math.nan,), ((0.0, 0.0),), math.inf, additive=True)


def exponential_mean() -> Loss:
    """Exponential law with mean theta > 0: gradient 1/theta - x/theta^2, no bound of its own."""
    return Loss("exponential_mean", (math.nan,), ((0.0, 0.0),), math.inf)
