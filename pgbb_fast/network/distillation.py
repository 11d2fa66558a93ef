"""A generator fitted to what the releases say of the posterior, as post-processing and in closed form.

Noisy training alone can't give the right spread.  The response of G to each of the S - 1 block directions is learnt
with a variance that adds up to (S - 1) times the privacy variance of the location, so a converged average has draws
with variance sampling + (S - 1) privacy where sampling + privacy is wanted; and a response that has not converged is
smaller by an amount that depends on the noise, the rate and n (measured: bench/results/generator_study.md).  The local
model of the releases (:mod:`pgbb_fast.local.model`) knows the location theta_0 and the covariance V that the draws of
each rule should have, and an estimate B of the response, theta_0 + B (u - 1/S) (B = H^-1 h in docs/refinement.md).  The
generator is fitted to

    theta(u) = theta_0 + V^{1/2} Q' (u - 1/S) / sqrt(c),    Cov(u) = c (I - 11'/S),  c = 1 / (S (S gamma + 1)),

Q' the orthogonal factor of V^{-1/2} B (polar decomposition): of all linear responses with covariance V, the one
nearest to the estimated response in V's metric.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from pgbb_fast.network.generator import Generator
from pgbb_fast.release.blocks import dirichlet

__all__ = ["Target", "distil", "nearest_response"]

Array = NDArray[np.float64]
DRAWS = 3_000       # of u, for each rule, that the least squares rest on
RIDGE = 1e-9        # of the features' total variance
INSIDE = 0.999      # targets keep inside this share of the box, where atanh is finite


@dataclass(frozen=True)
class Target:
    """theta(u) = location + response (u - 1/S) of one rule: (d,) and (d, S), unit coordinates."""

    location: Array
    response: Array

    def __call__(self, weights: Array) -> Array:
        S = self.response.shape[1]
        return np.asarray(self.location + (weights[:, :S] - 1.0 / S) @ self.response.T)


def nearest_response(covariance: Array, estimate: Array, gamma: float) -> Array:
    """The response (d, S) with Cov(response u) = ``covariance`` (d, d) nearest to ``estimate`` in its metric.

    With d > S - 1 no linear response has full rank; then the covariance is met along the S - 1 directions, in its
    own metric, in which the estimated response is largest.
    """
    d, S = estimate.shape
    values, vectors = np.linalg.eigh(covariance)
    half = vectors * np.sqrt(np.maximum(values, 1e-12 * values.max()))
    whitened = np.linalg.solve(half, estimate - estimate.mean(axis=1, keepdims=True))
    # where the estimate has no direction at all, fixed contrasts (Helmert's) decide
    rank = min(d, S - 1)
    fixed = np.zeros((d, S))
    for k in range(1, rank + 1):
        fixed[k - 1, :k], fixed[k - 1, k] = 1.0 / np.sqrt(k * (k + 1.0)), -np.sqrt(k / (k + 1.0))
    whitened += 1e-9 * max(float(np.linalg.norm(whitened)), 1e-300) * fixed
    left, _, right = np.linalg.svd(whitened, full_matrices=False)
    return np.asarray(half @ left[:, :rank] @ right[:rank] * np.sqrt(S * (S * gamma + 1.0)))


def distil(generator: Generator, targets: Sequence[Target], gamma: float, seed: int) -> None:
    """Fit the last layer of ``generator`` by least squares, to one target for each rule.

    The hidden layers keep their initial values: they are smooth, and inputs scaled by ``input_scale`` << 1 see little
    of their curvature, so their outputs span the affine functions of u (and their products with the rules' hats) to
    within a few hundredths of a posterior standard deviation.
    """
    rng = np.random.default_rng(seed)
    rules = generator.rules or (np.nan,)
    centre, radius = (t.numpy().astype(np.float64) for t in (generator.centre, generator.radius))
    u = dirichlet(DRAWS, generator.n_blocks, gamma, rng)
    wanted = np.concatenate([target(u) for target in targets])
    goal = np.arctanh(np.clip((wanted - centre) / radius, -INSIDE, INSIDE))
    inputs = torch.cat([generator.inputs(u, np.full(len(u), rule)) for rule in rules])
    last = generator.net[-1]
    assert isinstance(last, torch.nn.Linear)
    with torch.no_grad():
        features = generator.net[:-1](inputs).numpy().astype(np.float64)
        middle = features.mean(axis=0)
        square = (features - middle).T @ (features - middle)
        square += RIDGE * np.trace(square) * np.eye(len(square))
        slope = np.linalg.solve(square, (features - middle).T @ (goal - goal.mean(axis=0)))
        last.weight.copy_(torch.from_numpy(slope.T))
        last.bias.copy_(torch.from_numpy(goal.mean(axis=0) - middle @ slope))
