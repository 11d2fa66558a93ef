"""What is known of a Hessian: positive eigenvalues, the shape that rules share, draws."""

import math

import numpy as np
import pytest
from scipy.integrate import quad

from pgbb_fast import curvature
from pgbb_fast.curvature import Hessian, Slope, combined, positive_mean

SHAPE = np.array([[1.0, 0.25, 0.1], [0.25, 0.1, 0.05], [0.1, 0.05, 0.08]])
DENSITIES = (1.0, 3.0, 1.5)


def noisy(rng: np.random.Generator, spread: np.ndarray, noise: float, shapes=(SHAPE, SHAPE, SHAPE)) -> list[Slope]:
    """Estimates of f H with the error law of least squares: symmetrised spread^1/2 Z noise^1/2."""
    out = []
    for f, shape in zip(DENSITIES, shapes, strict=True):
        error = np.linalg.cholesky(spread) @ rng.standard_normal(shape.shape) * np.sqrt(noise)
        out.append(Slope(f * shape + (error + error.T) / 2, spread, noise))
    return out


def others(given: list[Slope], one: int) -> list[Slope]:
    return given[:one] + given[one + 1 :]


@pytest.mark.parametrize("a", [-40.0, -16.0, -14.0, -5.0, -1.0, 0.0, 0.5, 2.0, 8.0, 14.0, 16.0, 40.0])
def test_positive_numbers_have_the_posterior_of_quadrature(a):
    """Substituting x = t^2 takes the prior's singularity away; within FAR both agree to quadrature's 1e-9, beyond it
    to the first term left out of the series, below 15 / a^4."""
    nu, shift = curvature.FLATNESS, max(a, 0.0)

    def weight(t: float, power: int) -> float:
        x = t * t
        return 2.0 * t ** (2.0 * (nu - 1.0) + 2 * power + 1) * math.exp(-0.5 * (x - a) ** 2 + 0.5 * (shift - a) ** 2)

    mode, end = math.sqrt(max(a, 1e-3)), math.sqrt(shift + 12.0)
    options = {"limit": 400, "points": [mode], "epsabs": 0.0, "epsrel": 1e-11}
    total, first, second = (quad(weight, 0.0, end, args=(k,), **options)[0] for k in (0, 1, 2))
    mean, sd = positive_mean(np.array([3.0 * a]), np.array([3.0]))
    tolerance = 1e-9 if abs(a) <= curvature.FAR else 15.0 / a**4 * max(1.0, 100.0 / a**2)
    assert mean[0] / 3.0 == pytest.approx(first / total, rel=tolerance)
    assert (sd[0] / 3.0) ** 2 == pytest.approx(second / total - (first / total) ** 2, rel=max(4 * tolerance, 1e-8))


def test_certain_rules_keep_their_own_hessians():
    """Different shapes, errors a million times smaller than the eigenvalues: nothing moves by more than 1e-6."""
    shapes = (SHAPE, SHAPE + np.diag([0.0, 0.1, 0.0]), np.diag([1.0, 2.0, 0.5]))
    given = noisy(np.random.default_rng(0), 1e-16 * np.eye(3), 1.0, shapes)
    for number, before in enumerate(given):
        after = combined(before, others(given, number))
        assert np.allclose(after.matrix, before.matrix, rtol=0, atol=1e-6)
        assert after.along(np.eye(3)).max() < 1e-6


def test_without_a_shape_a_certain_slope_is_kept_and_an_uncertain_one_made_positive():
    certain = combined(Slope(SHAPE, 1e-16 * np.eye(3), 1.0), [])
    assert np.allclose(certain.matrix, SHAPE, rtol=0, atol=1e-6)
    uncertain = combined(Slope(np.diag([1.0, -0.1, 0.02]), 0.04 * np.eye(3), 1.0), [])
    mean, sd = positive_mean(np.array([1.0, -0.1, 0.02]), np.full(3, 0.2))
    assert np.allclose(np.diag(uncertain.matrix), mean, rtol=1e-9, atol=0)
    assert np.all(uncertain.along(np.eye(3)) <= sd * (1 + 1e-9) + 1e-12)


def test_uncertain_rules_gain_and_say_honestly_how_much():
    """300 draws of three rules of one shape: in the weakest direction the error's root mean square falls by a quarter
    or more, and the stated variance is between 0.8 and 2 times the true one (900 squared errors; seed fixed)."""
    rng = np.random.default_rng(1)
    spread = np.diag([0.002, 0.02, 0.05])
    values, vectors = np.linalg.eigh(SHAPE)
    weak = vectors[:, 0]
    before, after, stated = [], [], []
    for _ in range(300):
        given = noisy(rng, spread, 0.04)
        for number, (f, own) in enumerate(zip(DENSITIES, given, strict=True)):
            truth, new = f * values[0], combined(own, others(given, number))
            before.append((weak @ own.matrix @ weak - truth) ** 2)
            after.append((weak @ new.matrix @ weak - truth) ** 2)
            stated.append(float(new.along(weak[:, None])[0]) ** 2)
    assert np.mean(after) < 0.75**2 * np.mean(before)
    assert 0.8 < np.mean(stated) / np.mean(after) < 2.0


def test_a_precise_design_settles_the_shape_and_leaves_the_scale_to_the_slope():
    """A design without error and a slope known to a tenth of its largest eigenvalue: f from the slope's own weighted
    mean, the shape from the design; the scale's coordinate, of which the design doesn't speak, stays the slope's."""
    rng = np.random.default_rng(3)
    errors = []
    for _ in range(200):
        own = np.zeros((4, 4))
        own[:3, :3], own[3, 3] = 2.0 * SHAPE, 0.7
        noise = 0.1 * rng.standard_normal((4, 4))
        found = combined(Slope(own + (noise + noise.T) / 2, 0.01 * np.eye(4), 1.0), [Slope(SHAPE, np.eye(3), 1e-20)])
        errors.append(np.linalg.eigvalsh(found.matrix[:3, :3]) / np.linalg.eigvalsh(2.0 * SHAPE) - 1.0)
    # relative prior .3 in each direction, against errors of .1 / .026 = 4 of the smallest eigenvalue
    assert np.sqrt(np.mean(np.square(errors), axis=0)).max() < curvature.PRIOR
    assert abs(found.matrix[3, 3] - 0.7) < 0.5


@pytest.mark.parametrize("scale", [1e-4, 1.0, 30.0])
def test_estimates_and_draws_are_positive_definite(scale):
    rng = np.random.default_rng(2)
    for _ in range(30):
        given = noisy(rng, scale * np.eye(3), 1.0)
        for number, own in enumerate(given):
            for found in (combined(own, others(given, number)), combined(own, [])):
                assert np.linalg.eigvalsh(found.matrix).min() > 0
                assert np.linalg.eigvalsh(found.draw(20, rng)).min() > 0


def test_draws_have_the_stated_law_where_it_is_narrow():
    """R exp(G) R' with small G is R (I + G) R': entries' mean and variance over 40,000 draws within 5 standard errors,
    and the second order of the exponential, d sd^2 / 2 of the eigenvalues, below them."""
    basis = np.array([[1.0, 0.3], [0.0, 0.5]])
    sd = np.array([[0.02, 0.01], [0.01, 0.015]])
    hessian = Hessian(basis, np.eye(2), sd)
    inner = np.linalg.inv(basis) @ hessian.draw(40_000, np.random.default_rng(4)) @ np.linalg.inv(basis).T
    assert (np.abs(inner.mean(axis=0) - np.eye(2)) < 5 * sd / 200 + sd.max() ** 2).all()
    assert (np.abs(inner.var(axis=0) / sd**2 - 1) < 5 * math.sqrt(2 / 40_000) + 4 * sd.max()).all()


def test_errors_along_a_direction_are_those_of_its_draws():
    """v' H v over 40,000 draws of a narrow law, within 5 standard errors of its variance and the exponential's bend."""
    basis = np.array([[1.0, 0.3], [0.0, 0.5]])
    hessian = Hessian(basis, np.eye(2), np.array([[0.02, 0.01], [0.01, 0.015]]))
    vectors = np.linalg.qr(np.random.default_rng(5).standard_normal((2, 2)))[0]
    draws = hessian.draw(40_000, np.random.default_rng(6))
    along = np.einsum("ij,mik,kj->mj", vectors, draws, vectors).std(axis=0)
    assert np.abs(along / hessian.along(vectors) - 1).max() < 5 / math.sqrt(80_000) + 0.02
