"""Newton's method on noisy gradients, from the middle of the public box to where the gradients vanish.

In the mapped coordinates H is near f I, so one number f of each rule is nearly all that a step has to know.  The
central rule is looked for first, alone: its stack is the shortest, and an outer quantile level's gradient is weak
outside the data and strong inside.  The others start from it, a residual scale times a normal quantile away, and all
move together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.geometry.glm import normal_hessian
from pgbb_fast.geometry.path import Path
from pgbb_fast.geometry.whitening import Whitening
from pgbb_fast.losses import Loss
from pgbb_fast.release.stacked import Door
from pgbb_fast.release.stacking import Stacking

__all__ = ["Asked", "Start", "find_all", "find_central"]

Array = NDArray[np.float64]
FIRST = 1.0  # first length of a step, in units of the predictor; the unit box of y has half-width 1
LONGER, SHORTER, MUCH_SHORTER = 1.3, 0.8, 0.5  # by the angle between successive gradients
MEMORY = 0.7  # weight of a release relative to the next one
TRUST = 2.0  # standard errors from zero at which a secant's f is used
LAST = 4  # steps of the central search that are displaced, for f
SPREAD = 0.3  # by so many residual scales
AVERAGED = 6  # last releases that the central rule's place is a mean of
UNSURE = 0.5  # relative standard deviation of a guess of f
DIFFERENCE = 0.05
KEPT = 0.8, 0.5  # memory of the joint search, for the slope and for the place
KEPT_ROOM = 0.95  # share of the way to a face of the box that a step may go
HALFWAY = 0.5  # residual scales that the last step may be long


@dataclass(frozen=True)
class Asked:
    """Rules asked for together, and the coordinates they are asked in.

    Attributes
    ----------
    loss : Loss
    stacking : Stacking
    white : Whitening
    """

    loss: Loss
    stacking: Stacking
    white: Whitening

    @property
    def rules(self) -> Sequence[tuple[float, float]]:
        """The loss's constants for each rule."""
        return self.loss.constants

    @property
    def d(self) -> int:
        """Coordinates of theta."""
        return len(self.white.mapping) + self.loss.has_scale

    @property
    def maps(self) -> Array:
        """(L, d, d): theta = map' v of each rule; a scale is counted in ``Stacking.scale_units``."""
        L, m = len(self.rules), len(self.white.mapping)
        maps = np.zeros((L, self.d, self.d))
        maps[:, :m, :m] = self.white.mapping
        if self.loss.has_scale:
            maps[:, m, m] = 1.0 / self.stacking.scale_units
        return maps

    def shapes(self, theta: Array) -> Array:
        """What H is near at ``theta`` (L, d), over f: (L, d, d); traces are those of E[x~ x~']."""
        m = len(self.white.mapping)
        shape = np.eye(self.d)
        shape[:m, :m] = self.white.shape.matrix
        shapes = np.repeat(shape[None], len(theta), axis=0)
        if self.loss.knows_curvature:
            for one, v in zip(shapes, self.mapped(theta), strict=True):
                hessian = self._hessian(v)
                one[:] = hessian * (np.trace(shape) / max(float(np.trace(hessian)), 1e-300))
        return shapes

    def sensitivity(self, v: Array) -> Array:
        """Derivatives in v (L, d) of log f as :meth:`guess` has it, (L, d), by differences."""

        def log_f(at: Array) -> Array:
            guess = self.guess(self.theta(at))
            return np.zeros(len(v)) if guess is None else np.log(np.maximum(guess, 1e-300))

        moves = DIFFERENCE * np.eye(self.d)
        return np.stack([(log_f(v + move) - log_f(v - move)) / (2.0 * DIFFERENCE) for move in moves], axis=1)

    def _hessian(self, v: Array) -> Array:
        """H at v where the loss knows its curvature."""
        centre = self.white.mapping @ self.white.centre
        return normal_hessian(v, centre, self.white.shape.matrix, self.loss.curvature_at)

    def theta(self, v: Array) -> Array:
        """(L, d) from the mapped coordinates."""
        return np.asarray(np.einsum("lj,ljk->lk", v, self.maps))

    def mapped(self, theta: Array) -> Array:
        """Inverse of :meth:`theta`."""
        found = np.linalg.solve(self.maps.transpose(0, 2, 1), theta[:, :, None])[:, :, 0]
        return np.asarray(found, dtype=np.float64)

    def inside(self, v: Array, box: Array, start: Array) -> Array:
        """v, or where the way there from ``start`` is about to leave the public box of theta: each rule keeps its
        direction (moving coordinates one by one would be a long way where features are nearly collinear)."""
        origin = self.theta(start)
        step = self.theta(v) - origin
        room = np.where(step > 0.0, box[:, 1] - origin, origin - box[:, 0]) / np.maximum(np.abs(step), 1e-300)
        share = np.clip(KEPT_ROOM * room.min(axis=1), 0.0, 1.0)
        return np.asarray(start + share[:, None] * (v - start))

    def gradients(self, scores: Array) -> Array:
        """Mean gradients in the mapped coordinates from released scores, (L, d)."""
        m = len(self.white.mapping)
        found = np.empty_like(scores)
        found[:, :m] = self.stacking.root @ scores[:, :m]
        if self.loss.has_scale:
            found[:, m] = self.stacking.scale_root @ scores[:, m] / self.stacking.scale_units
        return found

    def scales(self, f: Array) -> Array:
        """Over how much of the predictor each rule's mean gradient bends, given its f: a residual scale, for the
        logistic loss a number of logits; (L,)."""
        return np.array([self.loss.range_of_quadratic(rule, float(one)) for rule, one in enumerate(f)])

    def guess(self, theta: Array) -> Array | None:
        """f of each rule at ``theta`` (L, d) where public and released values tell, else None."""
        if self.loss.knows_curvature:
            trace = float(np.trace(self.white.shape.matrix))
            return np.array([np.trace(self._hessian(v)) / trace for v in self.mapped(theta)])
        return self.loss.f_at(theta)

    @property
    def public(self) -> Array:
        """(L, d, d): slope of the public part of the gradient, that of a ridge; zeros without one."""
        slope = np.full(self.d, self.loss.ridge)
        slope[0] = 0.0 if self.white.centre[0] == 1.0 else slope[0]
        return np.asarray(np.einsum("lij,j,lkj->lik", self.maps, slope, self.maps))

    def ask(self, door: Door, v: Array) -> tuple[Array, Array]:
        """One release at v (L, d): the records' mean gradients (L, d), and their noise variances (L,)."""
        scores, noise = door.step(self.theta(v), self.rules, self.white.mapping, self.stacking)
        return self.gradients(scores), (self.stacking.spread * noise) ** 2


@dataclass(frozen=True)
class Start:
    """Where rules are, in mapped coordinates (L, d), and what f is there, (L,)."""

    at: Array
    f: Array


def rescaled(asked: Asked, v: Array, gradient: Array, box: Array) -> Array:
    """The scales after a step of Huber's (1981, ch. 7.8) iteration: s^2 E min(z^2, c^2) / kappa, from the mean slope
    kappa / 2 - E min(z^2, c^2) / 2 in the scale; (L,), mapped."""
    units = asked.stacking.scale_units
    kappa = np.array([second for _, second in asked.rules])
    ratio = 1.0 - 2.0 * gradient[:, -1] * units / kappa
    scale = v[:, -1] / units * np.sqrt(np.clip(ratio, 0.05, 4.0))
    return np.asarray(np.clip(scale, box[-1, 0], box[-1, 1]) * units)


def find_central(
    door: Door, asked: Asked, box: Array, steps: int, rng: np.random.Generator, tell: Callable[[], None]
) -> Start:
    """Where the gradient of a single rule vanishes, from the middle of the box.

    Far away only a gradient's direction is used, which in these coordinates is nearly Newton's; the length of a step
    grows while directions agree, and is Newton's own once releases say what f is.
    """
    m = len(asked.white.mapping)
    theta = box.mean(axis=1)[None].copy()
    if asked.loss.has_scale:
        theta[:, -1] = box[-1, 1]
    v = asked.mapped(theta)
    path, length, before = Path(m), FIRST, None
    guess = asked.guess(theta)
    f = 0.0 if guess is None else float(guess[0])
    z, public = np.zeros(m), asked.public[0, :m, :m]
    for step in range(steps):
        at = v.copy()
        if step >= steps - LAST and f > 0.0:
            if step % 2 == steps % 2:
                z = rng.standard_normal(m)
                z /= np.linalg.norm(z)
            else:
                z = -z
            at[0, :m] += SPREAD * float(asked.scales(np.array([f]))[0]) * z
            at = asked.inside(at, box, v)
        gradient, noise = asked.ask(door, at)
        tell()
        path.add(at[0, :m], gradient[0, :m], float(noise[0]), 0)
        g = gradient[0, :m] + public @ at[0, :m]
        if asked.loss.has_scale and step < steps - LAST:
            v[:, -1] = rescaled(asked, at, gradient, box)
        guess = asked.guess(asked.theta(v))
        if guess is not None:
            f = float(guess[0])
        elif len(path) > 1:
            secant, error = path.secant(MEMORY**path.age)
            f = secant if secant > TRUST * error else f
        size = float(np.linalg.norm(g))
        if before is not None:
            cosine = float(g @ before) / max(size * float(np.linalg.norm(before)), 1e-300)
            length *= LONGER if cosine > 0.5 else (SHORTER if cosine > 0.0 else MUCH_SHORTER)
        before = g
        if step < steps - LAST or f == 0.0:
            near = f * asked.shapes(asked.theta(v))[0, :m, :m]
            newton = g if f == 0.0 else np.linalg.solve(near + public, g)
            far = float(np.linalg.norm(newton))
            aim = v.copy()
            aim[0, :m] -= newton * ((length if f == 0.0 else min(length, far)) / max(far, 1e-300))
            v = asked.inside(aim, box, v)
    f = f if f > 0.0 else asked.loss.density(0) / length
    last = (path.age < AVERAGED).astype(np.float64)
    centre, gradient = last @ path.at / last.sum(), last @ path.gradient / last.sum()
    near = f * asked.shapes(asked.theta(v))[0, :m, :m]
    move = np.linalg.solve(near + public, gradient + public @ centre)
    size = float(np.linalg.norm(move))
    aim = v.copy()
    aim[0, :m] = centre - move * min(1.0, HALFWAY * float(asked.scales(np.array([f]))[0]) / max(size, 1e-300))
    return Start(asked.inside(aim, box, v), np.full(1, f))


def spread_out(asked: Asked, central: Asked, found: Start, box: Array) -> Start:
    """The start of all rules from the central one's place."""
    L = len(asked.rules)
    theta = np.repeat(central.theta(found.at), L, axis=0)
    scale = float(central.scales(found.f)[0])
    if asked.white.centre[0] == 1.0:
        theta[:, 0] += asked.loss.shifts() * scale
    theta = np.clip(theta, box[:, 0], box[:, 1])
    guess = asked.guess(theta)
    densities = np.array([asked.loss.density(rule) for rule in range(L)])
    return Start(asked.mapped(theta), densities / scale if guess is None else guess)


def find_all(
    door: Door, asked: Asked, start: Start, box: Array, steps: int, tell: Callable[[], None]
) -> tuple[Start, list[Array]]:
    """All rules' zeros together, each by its own quasi-Newton steps; and the last step of each, mapped."""
    m, L = len(asked.white.mapping), len(asked.rules)
    v, f, first = start.at.copy(), start.f.copy(), start.f.copy()
    paths, public = [Path(m) for _ in range(L)], asked.public
    limit, before = asked.scales(f), [np.zeros(m) for _ in range(L)]
    for step in range(steps):
        gradient, noise = asked.ask(door, v)
        tell()
        now = v.copy()
        if asked.loss.has_scale:
            v[:, -1] = rescaled(asked, now, gradient, box)
        guess = asked.guess(asked.theta(now))
        first = first if guess is None else guess
        shapes = asked.shapes(asked.theta(now))
        scales = asked.scales(f)
        for j, path in enumerate(paths):
            path.add(now[j, :m], gradient[j, :m], float(noise[j]), step)
            near = path.near(float(scales[j]))
            tangent = path.tangent(
                near * KEPT[0] ** path.age,
                near * KEPT[1] ** path.age,
                float(first[j]),
                UNSURE,
                shapes[j, :m, :m],
                public[j, :m, :m],
            )
            f[j] = tangent.f
            move, limit[j] = shortened(tangent.step, before[j], float(limit[j]))
            before[j] = tangent.step
            v[j, :m] = tangent.centre + move
        v = asked.inside(v, box, now)
    return Start(v, f), before


def shortened(step: Array, before: Array, limit: float) -> tuple[Array, float]:
    """``step`` shortened to a limit that grows while steps agree and falls when they turn back, and the new limit."""
    size, last = float(np.linalg.norm(step)), float(np.linalg.norm(before))
    if last > 0.0:
        cosine = float(step @ before) / max(size * last, 1e-300)
        limit *= 1.5 if cosine > 0.5 else (1.0 if cosine > 0.0 else 0.6)
    return step * min(1.0, limit / max(size, 1e-300)), limit
