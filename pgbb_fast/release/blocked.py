"""The accounted releases: the only values computed from records that leave this module.

One *step* releases Y = sum_{i in B} w_i clip_C(grad_i(theta)) + sigma Z for K values of theta (docs/method.md section
4); two optional *moments* release the noisy second moments of the clipped scores and of the features.  Everything else
in the package sees their results, never the records.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.budget.report import require_clip, require_noise
from pgbb_fast.kernels import cpu, reference
from pgbb_fast.kernels.arguments import Draws, Mechanism, Stream
from pgbb_fast.kernels.scalar.clip import GRID
from pgbb_fast.losses import Loss, UserLoss
from pgbb_fast.release.devices import Kind, kernels

__all__ = ["Keys", "Problem", "noisy_products", "release_design", "release_moment", "release_step"]

Array = NDArray[np.float64]
WORD = 2.0**32
HALF_SENSITIVITY = math.sqrt(0.5) * (1.0 + 2.0**-51)  # of a second moment: 1/sqrt(2), rounded up


@dataclass(frozen=True)
class Keys:
    """Random keys of one fit.  ``secret`` decides minibatches and noise: whoever knows it can undo the noise, so it is
    never saved or shown.  The public seeds decide the partition, the Dirichlet weights, where gradients are asked for
    and the initial parameters."""

    secret: NDArray[np.int64]
    partition: int
    weights: int
    network: int

    @classmethod
    def fresh(cls, seed: int | None = None) -> Keys:
        """Keys from the operating system's entropy, or (tests, audits) from ``seed``; each a separate SHA-256."""
        root = secrets.token_bytes(32) if seed is None else b"seed:" + str(seed).encode()

        def derive(label: str) -> bytes:
            return hashlib.sha256(root + b"|" + label.encode()).digest()

        words = np.frombuffer(derive("secret"), dtype="<u4").astype(np.int64)
        partition, weights, network = (
            int.from_bytes(derive(label)[:8], "little") >> 1 for label in ("partition", "weights", "network")
        )
        return cls(words, partition, weights, network)

    def __repr__(self) -> str:
        return "Keys(secret=...)"


@dataclass(frozen=True)
class Problem:
    """The records, the loss and the mechanism's constants (all public but ``records``).

    Attributes
    ----------
    records : Records, or what ``devices.place`` made of them
    gamma : float
        Dirichlet concentration per block.
    clip : float
        C, bound of one record's gradient.
    sampling_threshold : int
        A record is drawn with probability ``sampling_threshold`` / 2^32.
    noise_multiplier : float
        sigma n_S / C of each step.
    moment_multiplier : float, optional
        Noise multiplier of each moment: standard deviation over half the sensitivity; None: no such release.
    design_bound : float, optional
        B_x, bound of |(1, x')|; None: the features' second moment is not released.
    device : {"cpu", "cuda"}
        Where the kernels run; ``records`` are there already.
    """

    records: Any
    loss: Loss
    intercept: bool
    n_blocks: int
    block_size: int
    gamma: float
    clip: float
    sampling_threshold: int
    noise_multiplier: float
    draws_per_step: int
    steps: int
    moment_multiplier: float | None = None
    design_bound: float | None = None
    device: Kind = "cpu"

    def __post_init__(self) -> None:
        """Refuse what the integers of a release can't hold (``fit`` has refused it before it looked at a record)."""
        n = self.n_blocks * self.block_size
        require_noise("Problem", n, self.noise_multiplier, self.moment_multiplier or 0.0)
        require_clip("Problem", self.clip, self.design_bound or 1.0)

    def __repr__(self) -> str:
        return f"Problem(loss={self.loss.kernel!r}, records=...)"

    @property
    def rate(self) -> float:
        """q."""
        return self.sampling_threshold / WORD

    @property
    def unit(self) -> float:
        """One step of a release's integer grid, as a mean gradient: C / (n_S q 2^32)."""
        return self.clip / (self.block_size * GRID * self.rate)

    @property
    def noise(self) -> float:
        """Standard deviation of the privacy noise in each coordinate of a release of :func:`release_step`."""
        return self.noise_multiplier * self.clip / (self.block_size * self.rate)

    def public_slope(self, d: int) -> Array:
        """a (d,): beside the records' part, which is all that is released, the mean loss's gradient has a theta.

        1 for an additive loss; else the ridge, from which an intercept is exempt.
        """
        slope = np.full(d, 1.0 if self.loss.additive else self.loss.ridge)
        if self.intercept and not self.loss.additive:
            slope[0] = 0.0
        return slope

    @property
    def minibatch_factor(self) -> float:
        """c with: minibatch part of a release's covariance = c E[g g'], c = (1-q)/(q n_S) sum_s E u_s^2."""
        S, gamma = self.n_blocks, self.gamma
        return (1.0 - self.rate) / (self.rate * self.block_size) * (gamma + 1.0) / (S * gamma + 1.0)

    @property
    def sampling_factor(self) -> float:
        """v with: sampling covariance = v H^-1 E[g g'] H^-1, v = (S-1)/((S gamma + 1) n_S S); 1/n' at gamma*.

        Var u_s = (S-1)/(S^2 (S gamma + 1)), and sum_s h_s h_s' has expectation (S-1) E[g g'] / n_S over partitions:
        v = S/(S-1) Var(u_s) (S-1)/n_S (docs/refinement.md, docs/method.md section 2).
        """
        S = self.n_blocks
        return (S - 1.0) / ((S * self.gamma + 1.0) * self.block_size * S)


def release_step(
    problem: Problem, keys: Keys, step: int, theta: Array, weights: Array, rule: NDArray[np.int64]
) -> Array:
    """One release, as estimates of the mean gradient: Y / q, (K, d).

    Parameters
    ----------
    theta : (K, d) array
        Where the gradients are taken: any function of public values and earlier releases.
    weights : (K, S + 1) array
        Fresh Dirichlet draws, last column zero.
    rule : (K,) int array
        Number of each draw's rule.
    """
    loss = problem.loss
    at = np.zeros_like(theta) if loss.additive else theta
    draws = Draws(np.ascontiguousarray(at), weights, np.asarray(loss.constants)[rule])
    mechanism = Mechanism(problem.clip, problem.sampling_threshold, problem.noise_multiplier)
    stream = Stream(keys.secret, step)
    if not isinstance(loss, UserLoss):
        grid = _kernels(problem).noisy_gradient(
            loss.kernel, problem.intercept, problem.records, draws, mechanism, stream
        )
    else:
        own = partial(loss.user_gradient, intercept=problem.intercept)
        grid = reference.gradient_step(own, problem.records, draws, mechanism, stream)
        scale = cpu.scale_of(problem.noise_multiplier * GRID)
        grid = cpu.add_noise(grid, scale, stream.key, stream.step)
    return np.asarray(grid * problem.unit + problem.public_slope(theta.shape[-1]) * theta)


def _kernels(problem: Problem) -> Any:
    return cpu if problem.device == "cpu" else kernels(problem.device)


def release_moment(problem: Problem, keys: Keys, theta: Array) -> tuple[Array, Array]:
    """The second moment of the stacked clipped scores at ``theta`` (L, d), one row for each rule.

    With v = (g_1, ..., g_L), |v|^2 <= L C^2, replacing a record changes sum_i v_i v_i' by at most sqrt(2) L C^2 in the
    Frobenius norm, since |v v' - w w'|^2 = |v|^4 + |w|^4 - 2 (v'w)^2.  Independent noise on the upper triangle, with
    off-diagonal entries counted twice in that norm, so their noise is smaller by sqrt(2).

    Returns
    -------
    moment : (L d, L d) array
        Estimate of E[v v'] over the n' participating records; not projected to be positive semidefinite.
    noise : (L, L) array
        Standard deviation of the noise of a diagonal entry, the same for all blocks.
    """
    if problem.moment_multiplier is None:
        raise ValueError("release_moment: this problem has no budget for the moment")
    L, loss = len(theta), problem.loss
    at = np.zeros_like(theta) if loss.additive else theta
    draws = Draws(np.ascontiguousarray(at), np.zeros((L, problem.n_blocks + 1)), np.asarray(loss.constants))
    if not isinstance(loss, UserLoss):
        run = _kernels(problem)
        grid = run.score_moments(loss.kernel, problem.intercept, problem.records, draws, problem.clip)
    else:

        def gradient(_: int, at: Array, x: Array, y: Array) -> Array:
            return loss.user_gradient(at, x, y, problem.intercept)

        grid = reference.gradient_moments(gradient, problem.records, draws, problem.clip)
    moment, sigma = _noisy_moment(grid, problem, keys, problem.steps, L * problem.clip**2)
    # at the minimum the mean score is zero, so the records' part has minus the public part for its mean
    centre = (problem.public_slope(theta.shape[-1]) * theta).reshape(-1)
    return moment - np.outer(centre, centre), np.full((L, L), sigma)


def release_design(problem: Problem, keys: Keys, size: int) -> tuple[Array, float]:
    """The second moment of the features, E[x x'] with the intercept's 1 among them: (size, size).

    Sensitivity and noise as in :func:`release_moment`, with v = (1, x') and |v| <= ``design_bound``, clipped there.

    Returns
    -------
    moment : (size, size) array
        Over the n' participating records; not projected to be positive semidefinite.
    noise : float
        Standard deviation of the noise of a diagonal entry.
    """
    if problem.moment_multiplier is None or problem.design_bound is None:
        raise ValueError("release_design: this problem has no budget for the features' moment")
    draws = Draws(np.zeros((1, size)), np.zeros((1, problem.n_blocks + 1)), np.zeros((1, 2)))
    run = _kernels(problem)
    grid = run.score_moments("linear", problem.intercept, problem.records, draws, problem.design_bound)
    return _noisy_moment(grid, problem, keys, problem.steps + 1, problem.design_bound**2)


def _noisy_moment(
    grid: NDArray[np.int64], problem: Problem, keys: Keys, step: int, unit: float
) -> tuple[Array, float]:
    """Exact sums of v v' / |v|_max^2, perturbed, as a mean in units where |v|_max^2 = ``unit``; and its noise."""
    assert problem.moment_multiplier is not None
    unit /= problem.n_blocks * problem.block_size
    moment = noisy_products(grid, problem.moment_multiplier, keys, step) * (unit / GRID)
    return np.asarray(moment, dtype=np.float64), problem.moment_multiplier * HALF_SENSITIVITY * unit


def noisy_products(grid: NDArray[np.int64], multiplier: float, keys: Keys, step: int) -> NDArray[np.int64]:
    """Exact sums of v v' / |v|_max^2 on the grid of 2^-32 and noise, symmetric, (d, d).

    Half the sensitivity is 1/sqrt(2), in the norm that counts off-diagonal entries twice: standard deviations are
    ``multiplier`` / sqrt(2) on the diagonal, rounded up, and ``multiplier`` / 2 off it, exactly.
    """
    upper = np.triu_indices(len(grid))
    sigma = np.where(upper[0] == upper[1], multiplier * HALF_SENSITIVITY, multiplier / 2.0)
    noisy = np.zeros_like(grid)
    noisy[upper] = cpu.add_noise(grid[upper], cpu.scales_of(sigma * GRID), keys.secret, step)
    return noisy + np.triu(noisy, 1).T
