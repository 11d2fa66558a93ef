"""Generators fitted to a linear response: covariance by construction, optimality, closeness of the fit."""

import numpy as np
import pytest
import torch
from scipy import stats

from pgbb_fast.network.distillation import Target, distil, nearest_response
from pgbb_fast.network.generator import Generator

S, GAMMA = 12, 0.8
EPS = 2.0**-52


def a_covariance(d: int, seed: int) -> np.ndarray:
    root = np.random.default_rng(seed).standard_normal((d, d))
    return root @ root.T + 0.1 * np.eye(d)


def dirichlet_covariance() -> np.ndarray:
    """Of scipy's Dirichlet, not by our formula."""
    return np.asarray(stats.dirichlet(np.full(S, GAMMA)).cov())


@pytest.mark.parametrize("d", [1, 2, 5, S - 1])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_response_has_the_covariance_asked_for(d, seed):
    V = a_covariance(d, seed)
    estimate = np.random.default_rng(seed + 10).standard_normal((d, S))
    response = nearest_response(V, estimate, GAMMA)
    found = response @ dirichlet_covariance() @ response.T
    assert np.abs(found - V).max() <= 100 * d * S * EPS * np.abs(V).max()


def test_an_estimate_that_has_the_covariance_is_returned():
    """Projection: the nearest response of the response itself, to the tie-breaker's 1e-9."""
    V = a_covariance(4, 2)
    response = nearest_response(V, np.random.default_rng(3).standard_normal((4, S)), GAMMA)
    again = nearest_response(V, response, GAMMA)
    assert np.abs(again - response).max() <= 1e-7 * np.abs(response).max()


def test_no_other_response_with_the_covariance_is_nearer():
    """Against 300 random rotations of the block contrasts, distance in the covariance's metric."""
    rng = np.random.default_rng(4)
    d = 3
    V = a_covariance(d, 5)
    estimate = rng.standard_normal((d, S))
    estimate -= estimate.mean(axis=1, keepdims=True)
    best = nearest_response(V, estimate, GAMMA)
    metric = np.linalg.inv(V)

    def distance(response: np.ndarray) -> float:
        return float(np.einsum("is,ij,js->", response - estimate, metric, response - estimate))

    centring = np.eye(S) - 1.0 / S
    for _ in range(300):
        left, _, right = np.linalg.svd(rng.standard_normal((d, S)) @ centring, full_matrices=False)
        other = np.linalg.cholesky(V) @ left @ right * np.sqrt(S * (S * GAMMA + 1.0))
        assert distance(best) < distance(other)


def test_estimates_without_directions_and_too_many_coordinates():
    V = a_covariance(3, 6)
    response = nearest_response(V, np.zeros((3, S)), GAMMA)
    found = response @ dirichlet_covariance() @ response.T
    assert np.abs(found - V).max() <= 1e-9 * np.abs(V).max()
    d = S + 2
    V = a_covariance(d, 7)
    wide = nearest_response(V, np.random.default_rng(8).standard_normal((d, S)), GAMMA)
    short = V - wide @ dirichlet_covariance() @ wide.T
    assert np.linalg.eigvalsh(short).min() >= -1e-9 * np.abs(V).max()      # never more than asked for
    assert np.linalg.matrix_rank(V - short, tol=1e-9 * np.abs(V).max()) == S - 1


@pytest.mark.parametrize("rules", [(), (0.9, 0.1, 0.5)])
def test_the_generator_follows_its_targets(rules):
    """Root mean square error within 0.15 of a standard deviation, which adds about 1% (0.15^2 / 2) to the spread.

    Responses of a thousandth of the box, as a posterior's are, and rules 20 standard deviations apart.
    """
    rng = np.random.default_rng(9)
    box = [[-2.0, 2.0], [0.0, 3.0], [0.01, 1.0]]
    targets = []
    for _ in rules or (0,):
        V = 1e-6 * a_covariance(3, 10)
        location = np.array([0.3, 1.4, 0.4]) + 0.02 * rng.standard_normal(3)
        targets.append(Target(location, nearest_response(V, rng.standard_normal((3, S)), GAMMA)))
    generator = Generator(S, box, rules=rules, input_scale=0.1, seed=3)
    distil(generator, targets, GAMMA, seed=4)
    u = rng.dirichlet(np.full(S, GAMMA), 2000)
    for rule, target in zip(rules or (np.nan,), targets, strict=True):
        with torch.no_grad():
            theta = generator(generator.inputs(u, np.full(len(u), rule))).numpy()
        wanted = target(u)
        assert (np.sqrt(((theta - wanted) ** 2).mean(axis=0)) < 0.15 * wanted.std(axis=0)).all()
        assert (np.abs(theta.std(axis=0) / wanted.std(axis=0) - 1.0) < 0.02).all()
