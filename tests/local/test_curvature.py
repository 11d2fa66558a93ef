"""What is known of a Hessian: positive eigenvalues, the shape that rules share, draws."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm, truncnorm

from pgbb_fast.local import curvature
from pgbb_fast.local.curvature import Hessian, Level, Slope, combined, positive_mean

SHAPE = np.array([[1.0, 0.25, 0.1], [0.25, 0.1, 0.05], [0.1, 0.05, 0.08]])
DENSITIES = (1.0, 3.0, 1.5)
VAGUE = 1e6     # a scale of the prior of f far above all that is measured


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
        after = combined(before, others(given, number), VAGUE)
        assert np.allclose(after.matrix, before.matrix, rtol=0, atol=1e-6)
        assert after.along(np.eye(3)).max() < 1e-6


def test_without_a_shape_a_certain_slope_is_kept_and_an_uncertain_one_made_positive():
    certain = combined(Slope(SHAPE, 1e-16 * np.eye(3), 1.0), [], VAGUE)
    assert np.allclose(certain.matrix, SHAPE, rtol=0, atol=1e-6)
    uncertain = combined(Slope(np.diag([1.0, -0.1, 0.02]), 0.04 * np.eye(3), 1.0), [], VAGUE)
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
            truth, new = f * values[0], combined(own, others(given, number), VAGUE)
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
        known = [Slope(SHAPE, np.eye(3), 1e-20)]
        found = combined(Slope(own + (noise + noise.T) / 2, 0.01 * np.eye(4), 1.0), known, VAGUE)
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
            for found in (combined(own, others(given, number), VAGUE), combined(own, [], VAGUE)):
                assert np.linalg.eigvalsh(found.matrix).min() > 0
                assert np.linalg.eigvalsh(found.draw(20, rng)).min() > 0


def test_draws_have_the_stated_law_where_it_is_narrow():
    """R exp(G) R' with small G is R (I + G) R': entries' mean and variance over 40,000 draws within 5 standard errors,
    and the second order of the exponential, d sd^2 / 2 of the eigenvalues, below them."""
    basis = np.array([[1.0, 0.3], [0.0, 0.5]])
    sd = np.array([[0.02, 0.01], [0.01, 0.015]])
    hessian = Hessian(basis, np.eye(2), sd, np.full((2, 2), np.inf), np.ones(2))
    inner = np.linalg.inv(basis) @ hessian.draw(40_000, np.random.default_rng(4)) @ np.linalg.inv(basis).T
    assert (np.abs(inner.mean(axis=0) - np.eye(2)) < 5 * sd / 200 + sd.max() ** 2).all()
    assert (np.abs(inner.var(axis=0) / sd**2 - 1) < 5 * math.sqrt(2 / 40_000) + 4 * sd.max()).all()


def test_errors_along_a_direction_are_those_of_its_draws():
    """v' H v over 40,000 draws of a narrow law, within 5 standard errors of its variance and the exponential's bend."""
    basis = np.array([[1.0, 0.3], [0.0, 0.5]])
    sd = np.array([[0.02, 0.01], [0.01, 0.015]])
    hessian = Hessian(basis, np.eye(2), sd, np.full((2, 2), np.inf), np.ones(2))
    vectors = np.linalg.qr(np.random.default_rng(5).standard_normal((2, 2)))[0]
    draws = hessian.draw(40_000, np.random.default_rng(6))
    along = np.einsum("ij,mik,kj->mj", vectors, draws, vectors).std(axis=0)
    assert np.abs(along / hessian.along(vectors) - 1).max() < 5 / math.sqrt(80_000) + 0.02


def quadrature_of_level(measured, error, relative, typical, limit=math.inf):
    """P(f <= t) of :class:`Level` by quadrature of the definition: prior f^(nu-1) / (1 + (f/typical)^2), each number
    normal around f with deviation f ``relative`` given that it is positive, measured with a normal error."""

    def likelihood(f: float) -> float:
        product = 1.0
        for m, s, r in zip(measured, error, relative, strict=True):
            if r == 0.0:
                product *= norm.pdf(m, f, s)
                continue

            def joint(w: float, m=m, s=s, r=r) -> float:
                return float(norm.pdf(m, w, s) * norm.pdf(w, f, f * r) / norm.cdf(1.0 / r))

            product *= quad(joint, 0.0, max(m, 0.0) + 12.0 * s, points=[min(max(m, 1e-3), f)], limit=400)[0]
        return product

    def density(log_f: float) -> float:
        f = math.exp(log_f)
        return f**curvature.FLATNESS / (1.0 + (f / typical) ** 2) * likelihood(f)

    top = math.log(min(limit, 1e3 * max(*error, *measured)))
    grid = np.linspace(top - 20.0, top, 4_001)
    values = np.array([density(v) for v in grid])
    below = np.concatenate([[0.0], np.cumsum((values[1:] + values[:-1]) / 2)])
    return grid, below / below[-1]


@pytest.mark.parametrize(
    ("measured", "error", "relative", "typical", "limit"),
    [
        ([2.0], [0.5], [0.0], 4.0, math.inf),
        ([0.3], [1.0], [0.0], 4.0, math.inf),
        ([-2.0], [1.0], [0.0], 4.0, math.inf),
        ([0.1], [2.0], [0.0], 1.0, 0.25),
        ([1.0, 0.2], [0.4, 0.7], [0.3, 0.8], 4.0, math.inf),
    ],
)
def test_the_level_has_the_posterior_of_quadrature(measured, error, relative, typical, limit):
    """The distribution function at nine probabilities: two grids' trapezia of steps below .02 in log f, 2e-3."""
    level = Level.of(np.array(measured), np.array(error), np.array(relative), typical, limit)
    if len(measured) == 1:
        log_f, below = quadrature_of_level(measured, error, relative, typical, limit)
    else:  # thousands of inner quadratures are slow: the closed form of a product of normals, by simulation
        rng = np.random.default_rng(11)
        f = np.exp(rng.uniform(math.log(1e-5), math.log(60.0), 400_000))
        weight = f**curvature.FLATNESS / (1.0 + (f / typical) ** 2)
        for m, s, r in zip(measured, error, relative, strict=True):
            w = f * (1.0 + r * truncnorm.rvs(-1.0 / r, np.inf, size=len(f), random_state=rng))
            weight = weight * norm.pdf(m, w, s)
        order = np.argsort(f)
        log_f, below = np.log(f[order]), np.cumsum(weight[order]) / weight.sum()
    at = np.linspace(0.1, 0.9, 9)
    got = np.interp(np.interp(at, below, log_f), level.log_f, level.below)
    # by simulation: 400,000 weighted draws, of an effective size above 20,000: five standard errors are .018
    assert np.abs(got - at).max() < (2e-3 if len(measured) == 1 else 0.018)
    # 40,000 draws follow it (Kolmogorov-Smirnov, false alarm 1e-6 at 2.7 / sqrt(m))
    draws = np.log(np.sort(level.draw(40_000, np.random.default_rng(12))))
    assert np.abs(np.interp(draws, level.log_f, level.below) - np.linspace(0, 1, 40_000)).max() < 2.7 / 200


def test_a_certain_level_is_plugged_in_and_an_unseen_one_has_mass_near_zero():
    certain = Level.of(np.array([3.0]), np.array([1e-9]), np.array([0.0]), 4.0)
    assert certain.mean == pytest.approx(3.0, rel=1e-8)
    assert np.allclose(certain.draw(100, np.random.default_rng(0)), 3.0, rtol=1e-7, atol=0)
    # no information: the prior, P(f < t) close to t^nu c near zero, with c of the whole prior by quadrature
    nu = curvature.FLATNESS
    unseen = Level.of(np.array([0.0]), np.array([1e6]), np.array([0.0]), 4.0).draw(100_000, np.random.default_rng(1))
    total = quad(lambda v: math.exp(nu * v) / (1.0 + math.exp(2 * v) / 16.0), -60.0, 15.0, limit=400)[0]
    chance = 0.4**nu / nu / total  # P(f < .4), less than 1% high since (.4 / 4)^2 = .01
    assert abs((unseen < 0.4).mean() - chance) < 0.01 * chance + 5 * math.sqrt(chance / 100_000)


def test_a_level_that_is_not_seen_is_not_plugged_in():
    """A design without error, a slope that is all noise: the level's own error reaches the draws of every direction,
    and one draw in twenty has less than a fifth of the estimate, where a normal's would be as wide as it is known."""
    noise, d = 4.0, 3
    found = combined(Slope(np.zeros((d, d)), np.eye(d), noise**2), [Slope(SHAPE, np.eye(d), 1e-20)], 4.0)
    draws = found.draw(20_000, np.random.default_rng(3))
    values, vectors = np.linalg.eigh(SHAPE)
    along = np.einsum("ij,mik,kj->mj", vectors, draws, vectors) / values
    estimate = np.diag(vectors.T @ found.matrix @ vectors) / values
    assert ((along < 0.2 * estimate).mean(axis=0) > 0.05).all()
    # the directions share one level: their logarithms are dependent
    assert np.corrcoef(np.log(along).T).min() > 0.5
