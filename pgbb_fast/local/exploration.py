"""Where to ask for gradients: a search for the optimum, then small known displacements around it.

theta of a release may be any function of public values and earlier releases (docs/method.md section 4).  Near the
optimum a gradient is linear in theta, so releases at well-spread theta give its slope H, its zero theta_0 and the block
scores by least squares (docs/refinement.md).  The spread is chosen for that:

* the relative error of H in a direction is (standard deviation of theta_0 due to the releases' noise) / (displacement),
  so displacements are ``reach`` such standard deviations;
* but never so large that the loss leaves its quadratic range: at most ``curvature`` residual scales in x'theta, where
  the residual scale is read off H (H = f E[x x'], :meth:`pgbb_fast.losses.Loss.range_of_quadratic`);
* large ones are for the slope and small ones for the location: until the curvature has been seen in every direction,
  every third segment of the run has large ones and is left out of the location, which they would bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgbb_fast import validation as check
from pgbb_fast.errors import DomainError
from pgbb_fast.local.curvature import Hessian, Slope, combined
from pgbb_fast.local.statistics import Fit, ReleaseStatistics
from pgbb_fast.losses import Loss
from pgbb_fast.release.blocked import Keys, Problem, release_design, release_step
from pgbb_fast.release.blocks import dirichlet

__all__ = ["Exploration", "explore", "known_hessian", "number_of_segments", "release_variance"]

Array = NDArray[np.float64]
SEGMENTS = 40  # of a run, at most
MIN_SEGMENTS = 5  # and at least
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
MARGIN = 0.02  # share of the box's radius that centres keep from its faces
SEEN = 3.0  # standard errors from zero at which a curvature is known well enough for small displacements
WIDE = 3  # until then every so manieth segment has large ones
INSIDE = 2.5  # displacements are cut at so many standard deviations


@dataclass(frozen=True)
class Exploration:
    """Settings of :func:`explore`.

    Attributes
    ----------
    search : float
        Share of the steps spent on the search.
    first_rate, last_rate : float
        Step of the search (Adam in theta), in units of the box's radius, at its start and end.
    reach, curvature : float
        See the module's text; for the part of the run that serves the slope H.
    near_reach, near_curvature : float
        The same for the part that serves the location theta_0: small, since an asymmetric loss's mean gradient
        over displacements is off by half its second derivative times their square.
    slope_until : float
        Share of the run after which displacements are small.
    memory : float
        Weight of a segment relative to the next one while exploring.
    """

    search: float = 0.1
    first_rate: float = 0.05
    last_rate: float = 0.004
    reach: float = 25.0
    curvature: float = 0.3
    near_reach: float = 5.0
    near_curvature: float = 0.1
    slope_until: float = 0.2
    memory: float = 0.8

    def __post_init__(self) -> None:
        who = "Exploration"
        for name in ("first_rate", "last_rate", "reach", "curvature", "near_reach", "near_curvature"):
            check.positive(who, name, getattr(self, name))
        check.probability(who, "memory", self.memory)
        for name in ("search", "slope_until"):
            if not 0.0 <= check.real(who, name, getattr(self, name)) <= 1.0:
                raise DomainError(f"{who}: {name} must lie in [0, 1], got {getattr(self, name)!r}")


@dataclass(frozen=True)
class Local:
    """The local model while exploring: centre, and displacements along the eigenvectors of H, ``near`` or wide."""

    centre: Array
    vectors: Array
    scale: Array
    near: bool


def explore(
    problem: Problem,
    box: Array,
    keys: Keys,
    settings: Exploration | None = None,
    on_step: Callable[[int], None] | None = None,
) -> ReleaseStatistics:
    """Spend ``problem.steps`` releases and return their statistics.

    The rules of the draws are a quasi-random sample of P_tau (docs/method.md section 5).  ``on_step(t)`` is told the
    number of steps done, nothing else.
    """
    chosen = settings or Exploration()
    T, K, S, L = problem.steps, problem.draws_per_step, problem.n_blocks, len(problem.loss.rules)
    middle, radius = box.mean(axis=1), (box[:, 1] - box[:, 0]) / 2.0
    rng = np.random.default_rng(keys.weights)
    segments = number_of_segments(
        problem.loss,
        steps=T,
        draws_per_step=K,
        d=len(box),
        n_blocks=S,
        with_moment=problem.moment_multiplier is not None,
    )
    design: tuple[Slope, ...] = ()
    if problem.design_bound is not None:
        moment, error = release_design(problem, keys, len(box) - problem.loss.has_scale)
        design = (Slope(moment, np.eye(len(moment)), error**2),)
    statistics = ReleaseStatistics(L, segments, middle, S, design)
    searching = max(1, round(chosen.search * T))
    adam = _Search(np.tile(middle, (L, 1)), box, chosen, searching)
    chances = problem.loss.rule_probabilities()
    upper = np.cumsum(chances)[:-1]
    local: list[Local] = []
    for segment in range(segments):
        start = segment * T // segments
        count = (segment + 1) * T // segments - start
        place = np.arange(start * K, (start + count) * K)
        rule = np.searchsorted(upper, (place * GOLDEN) % 1.0, side="right").reshape(count, K)
        weights = dirichlet(count * K, S, problem.gamma, rng).reshape(count, K, S + 1)
        z = np.clip(rng.standard_normal((count, K, len(box))), -INSIDE, INSIDE)
        theta, gradient = np.empty((count, K, len(box))), np.empty((count, K, len(box)))
        late = start >= chosen.slope_until * T
        if start >= searching:
            part = np.arange(segments)
            known = ((part * T // segments >= searching) & (part < segment)).astype(np.float64)
            local = [
                _local_model(
                    _recent(statistics, number, segment, chosen.memory),
                    design,
                    problem,
                    box,
                    number,
                    chosen,
                    math.sqrt(T * K * chance),
                    statistics.fit(number, known, location=known)
                    if late and known @ statistics.counts(number)
                    else None,
                    always=segment % WIDE > 0,
                )
                for number, chance in enumerate(chances)
            ]
            statistics.wide[:, segment] = [late and not here.near for here in local]
        for t in range(count):
            for k in range(K):
                if local:
                    here = local[rule[t, k]]
                    theta[t, k] = here.centre + here.vectors @ (here.scale * z[t, k])
                else:
                    theta[t, k] = adam.theta[rule[t, k]] + 0.25 * adam.rate(start + t) * radius * z[t, k]
            np.clip(theta[t], box[:, 0], box[:, 1], out=theta[t])
            gradient[t] = release_step(problem, keys, start + t, theta[t], weights[t], rule[t])
            if not local:
                adam.step(start + t, rule[t], gradient[t])
            if on_step is not None:
                on_step(start + t + 1)
        flat = count * K
        statistics.add(
            segment,
            rule.reshape(-1),
            theta.reshape(flat, -1),
            weights.reshape(flat, -1),
            gradient.reshape(flat, -1),
        )
    return statistics


def number_of_segments(loss: Loss, *, steps: int, draws_per_step: int, d: int, n_blocks: int, with_moment: bool) -> int:
    """Segments of a run, each with enough draws of every rule for a fit of its own; refuses a run that is too short.

    Without a release of the score moment the run has to carry the S block scores too.
    """
    draws = steps * draws_per_step * float(loss.rule_probabilities().min())
    least = MIN_SEGMENTS * (d + 2)
    if not with_moment:
        least = max(least, 4 * (1 + d + n_blocks))
    if draws < least or steps < MIN_SEGMENTS:
        enough = max(MIN_SEGMENTS, math.ceil(steps * least / draws))
        raise DomainError(f"explore: steps = {steps} are too few for {d} coefficients; use at least {enough}")
    return min(SEGMENTS, steps, int(draws) // (d + 2))


class _Search:
    """Adam (Kingma and Ba 2015) on theta itself, one state for each rule."""

    def __init__(self, theta: Array, box: Array, settings: Exploration, steps: int) -> None:
        self.theta, self.box, self.settings, self.steps = theta, box, settings, steps
        self.radius = (box[:, 1] - box[:, 0]) / 2.0
        self.first, self.second = np.zeros_like(theta), np.zeros_like(theta)
        self.seen = np.zeros(len(theta))

    def rate(self, step: int) -> float:
        s = self.settings
        return float(s.first_rate * (s.last_rate / s.first_rate) ** min(1.0, step / self.steps))

    def step(self, step: int, rule: NDArray[np.int64], gradient: Array) -> None:
        for number, g in zip(rule, gradient, strict=True):
            self.seen[number] += 1.0
            self.first[number] = 0.9 * self.first[number] + 0.1 * g
            self.second[number] = 0.99 * self.second[number] + 0.01 * g * g
            mean = self.first[number] / (1.0 - 0.9 ** self.seen[number])
            root = np.sqrt(self.second[number] / (1.0 - 0.99 ** self.seen[number]))
            moved = self.theta[number] - self.rate(step) * self.radius * mean / (root + 1e-300)
            self.theta[number] = np.clip(moved, self.box[:, 0], self.box[:, 1])


def _recent(statistics: ReleaseStatistics, rule: int, segment: int, memory: float) -> Fit:
    """Fit to the segments before ``segment``, the latest weighing most."""
    age = segment - 1.0 - np.arange(len(statistics.counts(rule)))
    return statistics.fit(rule, np.where(age >= 0, memory**age, 0.0))


def known_hessian(fit: Fit, noise: float, others: Sequence[Slope], loss: Loss, rule: int, *, design: bool) -> Hessian:
    """H of a fit whose releases have noise variance ``noise``, drawn to the shape that ``others`` agree on.

    With a ``design`` among the others, f is bounded by the loss.
    The identity for an additive loss, whose gradient is theta plus a function of the record.
    """
    d = len(fit.centre)
    if loss.additive:
        return Hessian.known(np.eye(d))
    limit = loss.curvature_limit(rule) if design else math.inf
    return combined(Slope(fit.hessian, fit.spread, noise), others, loss.curvature_scale(rule), limit)


def release_variance(fit: Fit, problem: Problem) -> float:
    """Variance of a coordinate of one release: the privacy noise's, or more where minibatches add to it."""
    return max(problem.noise**2, float(np.trace(fit.residual)) / len(fit.residual))


def _local_model(
    fit: Fit,
    design: Sequence[Slope],
    problem: Problem,
    box: Array,
    rule: int,
    chosen: Exploration,
    root: float,
    whole: Fit | None,
    *,
    always: bool,
) -> Local:
    """A Newton step from the recent fit, and the displacements for the next segment: ``reach`` times a release's noise
    over the eigenvalue and ``root``, the root of the run's draws, at most ``curvature`` residual scales in all; the
    near ones, unless ``always``, only in directions in which the ``whole`` run's fit sees the curvature already."""
    variance = release_variance(fit, problem)
    hessian = known_hessian(fit, variance, design, problem.loss, rule, design=bool(design))
    values, vectors = np.linalg.eigh(hessian.matrix)
    error = hessian.along(vectors)
    radius = (box[:, 1] - box[:, 0]) / 2.0
    # with an intercept, H_00 = f E[1]; without, the trace of H = f E|x|^2 is at most f d in the unit box
    along_intercept = float((vectors[0] ** 2) @ values) if problem.intercept else float(values.sum() / len(values))
    density = max(along_intercept, 1e-12)
    # an f that is not known may be larger
    sure = density + float(hessian.along(np.eye(len(values))[:, :1])[0] if problem.intercept else error.mean())
    scale = problem.loss.range_of_quadratic(rule, sure)
    near = np.zeros(len(values), dtype=bool)
    if whole is not None:
        seen = Slope(whole.hessian, whole.spread, variance)
        curved = np.einsum("ij,ik,kj->j", vectors, seen.matrix, vectors) > SEEN * np.sqrt(seen.along(vectors))
        near = curved | always | problem.loss.additive
    reach = np.where(near, chosen.near_reach, chosen.reach) / root
    curvature = np.where(near, chosen.near_curvature, chosen.curvature)
    range_of_quadratic = curvature * scale / np.sqrt(values / density * len(values))
    spread = 1.0 / np.sqrt(np.einsum("ij,ik,kj->j", vectors, fit.spread, vectors) * max(1, fit.count))
    # no farther than the releases behind the fit were spread: beyond them a small slope may be an accident, or a tail
    # where the loss is flat, and the next displacements would be wider still
    # and no farther than an uncertain eigenvalue warrants (the regression of theta_0 on the gradient)
    step = np.clip(-(vectors.T @ fit.gradient) * values / (values**2 + error**2), -spread, spread)
    keep = MARGIN * radius
    centre = np.clip(fit.centre + vectors @ step, box[:, 0] + keep, box[:, 1] - keep)
    displacement = np.minimum(reach * math.sqrt(variance) / values, range_of_quadratic)
    return Local(centre, vectors, np.minimum(displacement, 0.25 * radius.min()), bool(near.all()))
