"""Pooling of Hessians over quantile levels."""

import numpy as np
import pytest

from pgbb_fast.noise_aware import LocalPosterior
from pgbb_fast.pooling import pooled

SHAPE = np.array([[1.0, 0.25, 0.1], [0.25, 0.1, 0.05], [0.1, 0.05, 0.08]])
DENSITIES = (1.0, 3.0, 1.5)


def local(hessian: np.ndarray, spread: np.ndarray, omega: float = 0.04) -> LocalPosterior:
    d = len(hessian)
    return LocalPosterior(np.zeros(d), np.zeros(d), hessian, spread, omega * np.eye(d), 100.0, 1.0, 10.0, 1.0)


def noisy(rng: np.random.Generator, spread: np.ndarray, omega: float, shapes=(SHAPE, SHAPE, SHAPE)):
    """Estimates of f H with the error law of least squares: symmetrised spread^1/2 Z omega^1/2."""
    out = []
    for f, shape in zip(DENSITIES, shapes, strict=True):
        error = np.linalg.cholesky(spread) @ rng.standard_normal((3, 3)) * np.sqrt(omega)
        out.append(local(f * shape + (error + error.T) / 2, spread, omega))
    return out


def test_a_single_level_is_unchanged():
    one = local(SHAPE, 0.01 * np.eye(3))
    assert pooled([one]) == [one]


def test_certain_levels_keep_their_own_hessians():
    """Different shapes, errors a million times smaller than the eigenvalues: nothing moves by more than 1e-6."""
    shapes = (SHAPE, SHAPE + np.diag([0.0, 0.1, 0.0]), np.diag([1.0, 2.0, 0.5]))
    given = noisy(np.random.default_rng(0), 1e-16 * np.eye(3), 1.0, shapes)
    for before, after in zip(given, pooled(given), strict=True):
        assert np.allclose(after.hessian, before.hessian, rtol=0, atol=1e-6)


def test_uncertain_levels_gain_and_say_honestly_how_much():
    """300 draws of three levels of one shape: in the weakest direction the error's root mean square falls by a quarter
    or more, and the stated variance is between 0.8 and 2 times the true one (900 squared errors; seed fixed)."""
    rng = np.random.default_rng(1)
    spread = np.diag([0.002, 0.02, 0.05])
    values, vectors = np.linalg.eigh(SHAPE)
    weak = vectors[:, 0]
    before, after, stated = [], [], []
    for _ in range(300):
        given = noisy(rng, spread, 0.04)
        for f, own, new in zip(DENSITIES, given, pooled(given), strict=True):
            truth = f * values[0]
            before.append((weak @ own.hessian @ weak - truth) ** 2)
            after.append((weak @ new.hessian @ weak - truth) ** 2)
            stated.append(0.04 * weak @ new.spread @ weak)
    assert np.mean(after) < 0.75**2 * np.mean(before)
    assert 0.8 < np.mean(stated) / np.mean(after) < 2.0


@pytest.mark.parametrize("scale", [1e-4, 1.0, 30.0])
def test_pooled_hessians_are_positive_definite(scale):
    rng = np.random.default_rng(2)
    for _ in range(50):
        for part in pooled(noisy(rng, scale * np.eye(3), 1.0)):
            assert np.linalg.eigvalsh(part.hessian).min() > 0
            assert np.linalg.eigvalsh(part.spread).min() > 0
            assert part.certainty >= 1.0 - 1e-9
