"""From records to the local models of the posterior: all releases in order, and what they say together."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.geometry.path import Path
from pgbb_fast.geometry.schedule import Schedule
from pgbb_fast.geometry.search import Asked, Start, find_all, find_central, shortened, spread_out
from pgbb_fast.geometry.whitening import longest, whiten
from pgbb_fast.local.curvature import Hessian, Slope, combined, learnt
from pgbb_fast.local.model import LocalPosterior, Scores
from pgbb_fast.release.stacked import Door
from pgbb_fast.release.stacking import Stacking, stacking

__all__ = ["Found", "find"]

Array = NDArray[np.float64]
NEAR = 0.7  # releases farther from the end, in residual scales, are not used for H
CLOSE = 0.3  # nor, if closer ones are enough, for the location
FEWEST = 4
MAX_MOVED = 2.0  # by which H is carried from where it was measured to the end
SETTLED = 4  # last steps at one place
MEMORY = 0.7  # of the steps for the location, while they are made
CERTAIN = 0.5  # relative standard deviation of f between the phases
STEEPER, SURE = 2.0, 3.0  # times f, and standard errors: a slope among the steps for the location that says "heaped"
ARRIVED = 0.5  # residual scales: a last step longer than that, of a gradient above noise: the search is lost
PRIOR = 0.5  # relative standard deviation of a diagonal entry of the scores' moment around a correct model's
UNKNOWN = 0.5  # relative error of the features' moment as the shape of H, for a slope of the user's own
THEORY, MIN_THEORY = 0.6, 0.1  # relative error of H by a model's coefficients and the features' moments
OFF = 0.1  # guess of that of an entry off the diagonal, learnt from all of them
WEIGHT = 10.0  # entries that the guess counts for


@dataclass(frozen=True)
class Found:
    """What a fit found, in the rules' own mapped coordinates.

    Attributes
    ----------
    local : list of LocalPosterior
    scores : Scores
    correlation : (d, L, L) array
        Square roots of the correlation of the rules' noise, for each coordinate.
    """

    local: list[LocalPosterior]
    scores: Scores
    correlation: Array


def find(door: Door, box: Array, plan: Schedule, seed: int, tell: Callable[[], None]) -> Found:
    """Spend all releases of ``plan``.

    Parameters
    ----------
    box : (d, 2) array
        Public bounds of theta, unit coordinates.
    seed : int
        Of the public randomness: directions of displacements.
    tell : callable
        Called after each release.
    """
    rng = np.random.default_rng(seed)
    loss = door.loss
    m = len(box) - loss.has_scale
    white = whiten(door, m, plan.rounds)
    for _ in range(plan.rounds):
        tell()
    # no mapped feature is longer than the longest, which the released map tells
    length = min(plan.length, longest(white.mapping) / math.sqrt(m))
    first = Asked(loss.central(), stacking(loss.central(), m, length), white)
    asked = Asked(loss, stacking(loss, m, length), white)
    middle = find_central(door, first, box, plan.central, rng, tell)
    start, last = find_all(door, asked, spread_out(asked, first, middle, box), box, plan.joint, tell)
    paths, v, f = _measure(door, asked, start, last, box, plan, rng, tell)
    slopes, places = [], []
    moved, shapes = _moved(asked, paths, v), asked.shapes(asked.theta(v))
    for j, path in enumerate(paths):
        away = np.linalg.norm(path.at - v[j], axis=1) / asked.scales(f)[j]
        settled = path.group < 0
        close = (settled & (away < CLOSE)).astype(np.float64)
        places.append(close if close.sum() >= FEWEST else settled.astype(np.float64))
        near = (away < NEAR).astype(np.float64)
        if (near * ~settled).sum() > len(v[j]) and not _steep(path, float(f[j])):
            near *= ~settled  # what moved between them is little, and not by design
        slope = path.slope(near)
        own = Slope(slope.matrix * moved[j], slope.spread * moved[j] ** 2, slope.noise)
        if loss.knows_curvature:
            own = _with_theory(asked, own, shapes[j], v, float(path.noise[-1]) / places[-1].sum())
        slopes.append(_hessian(asked, own, shapes[j], j))
    local = [
        _local(asked, path, place, hessian, j)
        for j, (path, place, hessian) in enumerate(zip(paths, places, learnt(slopes), strict=True))
    ]
    at = np.stack([part.centre - np.linalg.solve(part.matrix, part.gradient) for part in local])
    theta = np.clip(asked.theta(at), box[:, 0], box[:, 1])
    moment, noise = door.scores(theta, asked.rules, white.mapping, asked.stacking)
    tell()
    return Found(local, _scores(asked, theta, moment, noise, local), _correlation(asked.stacking, asked.d, m))


def _measure(
    door: Door,
    asked: Asked,
    start: Start,
    last: list[Array],
    box: Array,
    plan: Schedule,
    rng: np.random.Generator,
    tell: Callable[[], None],
) -> tuple[list[Path], Array, Array]:
    """The steps for H, displaced in pairs around one centre, then those for the location, each at the newest centre.

    Displacements are the same for all rules, so that fitted curves stay ordered, and in pairs, so that H is free of the
    second derivative; those of the location are none, so that the location is free of it too.
    """
    L, d = len(asked.rules), asked.d
    v, f = start.at.copy(), start.f.copy()
    size = plan.displacement * float(asked.scales(f).min())
    directions = [s * row for _ in range(plan.slope // (2 * d)) for row in _rotation(d, rng) for s in (1.0, -1.0)]
    paths = [Path(d) for _ in range(L)]
    public, limit = asked.public, asked.scales(f)
    before = [np.append(step, np.zeros(d - len(step))) for step in last]
    for number in range(plan.slope + plan.location):
        slope = number < plan.slope
        at = v + size * directions[number] if slope else v
        at = asked.inside(at, box, v)
        gradient, noise = asked.ask(door, at)
        tell()
        for j, path in enumerate(paths):
            path.add(at[j], gradient[j], float(noise[j]), 0 if slope else -1)
        if number < plan.slope - 1 or number >= plan.slope + plan.location - SETTLED:
            continue
        guess, shapes = asked.guess(asked.theta(v)), asked.shapes(asked.theta(v))
        scales, aim = asked.scales(f), v.copy()
        for j, path in enumerate(paths):
            near = path.near(float(scales[j]))
            recent = (path.group == 0) * 1.0 if slope else MEMORY**path.age * (path.group < 0) * near
            wanted = float(f[j]) if guess is None else float(guess[j])
            tangent = path.tangent(near, recent, wanted, CERTAIN, shapes[j], public[j])
            f[j] = tangent.f
            move, limit[j] = shortened(tangent.step, before[j], float(limit[j]))
            before[j] = tangent.step
            aim[j] = tangent.centre + move
        v = asked.inside(aim, box, v)
    return paths, v, f


def _moved(asked: Asked, paths: list[Path], v: Array) -> Array:
    """What f is at the end over what it was where H was measured, where public and released values tell; (L,)."""
    middle = np.stack([path.at[path.group == 0].mean(axis=0) for path in paths])
    before, after = asked.guess(asked.theta(middle)), asked.guess(asked.theta(v))
    if before is None or after is None:
        return np.ones(len(v))
    return np.asarray(np.clip(after / before, 1.0 / MAX_MOVED, MAX_MOVED))


def _rotation(d: int, rng: np.random.Generator) -> Array:
    return np.linalg.qr(rng.standard_normal((d, d)))[0]


def _with_theory(asked: Asked, own: Slope, shape: Array, v: Array, variance: float) -> Slope:
    """The measured H of a generalised linear model with what its coefficients say that it is.

    The latter's relative error is that of f by the error of v, H^-1 times the noise of the gradient, with ``variance``,
    and one for features that aren't normal: next to nothing where the predictor's variance is small beside the logistic
    law's, pi^2 / 3, and ``THEORY`` where it is large and f is a matter of the density at one place.
    """
    f = asked.guess(asked.theta(v))
    assert f is not None
    predicted = f[0] * shape
    error = np.linalg.solve(predicted + asked.public[0], asked.sensitivity(v)[0])
    square = float(v[0] @ asked.white.shape.matrix @ v[0] - (v[0] @ asked.white.mapping @ asked.white.centre) ** 2)
    abnormal = max(MIN_THEORY, THEORY * square / (square + math.pi**2 / 3.0))
    theory = float(f[0] ** 2 * (abnormal**2 + variance * float(error @ error)))
    measured = own.noise * float(np.trace(own.spread)) / len(shape)
    share = theory / (theory + measured)
    spread = share**2 * own.noise * own.spread + (1.0 - share) ** 2 * theory * np.eye(len(shape))
    return Slope(share * own.matrix + (1.0 - share) * predicted, spread, 1.0)


def _hessian(asked: Asked, own: Slope, shape: Array, rule: int) -> Hessian:
    loss, known = asked.loss, asked.white.shape
    m = len(known.matrix)
    other = replace(known, matrix=shape[:m, :m])
    if loss.user_defined and not loss.knows_curvature:  # whose curvature may depend on the predictor in any way
        other = replace(other, spread=known.spread + UNKNOWN**2 / known.noise * np.eye(m))
    return combined(own, [other], loss.curvature_scale(rule), loss.curvature_limit(rule))


def _local(asked: Asked, path: Path, place: Array, hessian: Hessian, rule: int) -> LocalPosterior:
    """The posterior's local model of one rule."""
    d = asked.d
    count = float(place.sum())
    public = asked.public[rule]
    centre = place @ path.at / count
    gradient = place @ path.gradient / count + public @ centre
    variance = float(place @ path.noise) / count
    step = np.linalg.solve(hessian.matrix + public, gradient)
    f = float(np.median(np.diag(hessian.matrix)))
    scale = asked.loss.range_of_quadratic(rule, f)
    # a long step along which H is small may be all noise: what tells is the gradient
    unlike_noise = float(np.linalg.norm(gradient)) > SURE * math.sqrt(variance / count * d)
    lost = float(np.linalg.norm(step)) > ARRIVED * scale and unlike_noise
    return LocalPosterior(
        centre,
        gradient,
        hessian,
        variance * np.eye(d),
        count,
        _drift(path, place, hessian.matrix, public),
        _smoothing(asked.loss.bandwidth(rule), path, f),
        public=public,
        mapping=asked.maps[rule],
        lost=lost,
    )


def _steep(path: Path, f: float) -> bool:
    """Whether the steps for the location saw a slope far above f."""
    steep, error = path.secant((path.group < 0).astype(np.float64))
    return steep - SURE * error > STEEPER * f


def _smoothing(bandwidth: float, path: Path, f: float) -> float:
    """The bandwidth over which the target may be off where responses are heaped (``LocalPosterior.draw``): the loss's,
    or how far the steps for the location went to and fro, where they saw a slope far above the one that displacements
    saw, as at a heap that is narrower than those."""
    if bandwidth == 0.0 or not _steep(path, f):
        return bandwidth
    settled = path.group < 0
    away = path.at[settled] - path.at[settled].mean(axis=0)
    return max(bandwidth, math.sqrt(float((away**2).sum(axis=1).mean())))


def _drift(path: Path, place: Array, hessian: Array, public: Array) -> float:
    """Distance of the zero between the halves of the steps used, in standard errors, root mean square."""
    used = np.flatnonzero(place)
    halves, variance = [], np.zeros(len(hessian))
    values, vectors = np.linalg.eigh(hessian + public)
    for part in (used[: len(used) // 2], used[len(used) // 2 :]):
        centre = path.at[part].mean(axis=0)
        gradient = path.gradient[part].mean(axis=0) + public @ centre
        halves.append(vectors.T @ centre - vectors.T @ gradient / values)
        variance += path.noise[part].mean() / len(part) / values**2
    return float(np.sqrt(np.mean((halves[1] - halves[0]) ** 2 / variance)))


def _scores(asked: Asked, theta: Array, moment: Array, noise: float, local: list[LocalPosterior]) -> Scores:
    """Posterior of M from its measurement in the mixed coordinates, where a correct model gives it c times the shape
    of H, and nothing between rules.

    c is 1 where the family fixes the size of its slopes; else it is estimated.  Entries are normal around that with
    relative standard deviations ``PRIOR``, off the diagonal one that is learnt from all of them.
    """
    size = len(moment)
    L, m = len(asked.rules), len(asked.white.mapping)
    d = asked.d
    on = np.eye(size, dtype=bool)
    if asked.loss.ridge > 0.0:  # at the minimum the mean of the records' part is minus the public part
        public = np.einsum("ljk,lk->lj", asked.public, np.stack([part.centre for part in local]))
        flat = np.linalg.solve(asked.stacking.root, public).reshape(-1)
        moment = moment - np.outer(flat, flat)
    level, target = 1.0, np.kron(np.eye(L), asked.shapes(theta)[0])
    if not asked.stacking.known_size:
        target = target / np.diag(target).mean()
        diagonal = np.diag(moment)
        level = max(float(diagonal.mean()), noise / math.sqrt(size))
        for _ in range(20):
            weight = 1.0 / (noise**2 + (PRIOR * level) ** 2)
            level = max(float(diagonal.mean()), 0.5 / math.sqrt(weight * size))
    error = np.where(on, noise, noise * math.sqrt(0.5))
    off = (moment / level - target)[np.triu_indices(size, 1)]
    relative = (WEIGHT * OFF**2 + float((off**2 - noise**2 / (2.0 * level**2)).sum())) / (WEIGHT + len(off))
    prior = level * np.where(on, PRIOR, math.sqrt(max(relative, 1e-6)))
    precision = 1.0 / prior**2 + 1.0 / error**2
    mean = (level * target / prior**2 + moment / error**2) / precision
    basis = np.asarray(np.kron(asked.stacking.root, np.eye(d)), dtype=np.float64)
    if asked.loss.has_scale:
        scale = asked.stacking.scale_root / asked.stacking.scale_units[:, None]
        for i in range(L):
            for j in range(L):
                basis[i * d + m, j * d + m] = scale[i, j]
    return Scores(basis, (mean + mean.T) / 2.0, np.asarray(precision**-0.5))


def _correlation(stack: Stacking, d: int, m: int) -> Array:
    """Square roots of the rules' noise correlation, (d, L, L)."""
    roots = np.empty((d, len(stack.root), len(stack.root)))
    for j in range(d):
        root = stack.root if j < m else stack.scale_root
        roots[j] = root / np.sqrt((root**2).sum(axis=1))[:, None]
    return roots
