"""The compiled Gibbs iterations equal the reference's; the statistics' law has its closed forms."""

import numpy as np
import pytest

from pgbb_fast.kernels.cpu.gibbs import gibbs
from pgbb_fast.kernels.reference import gibbs as reference


@pytest.mark.parametrize("k", [1, 2, 4])
def test_compiled_equals_reference(k):
    rng = np.random.default_rng(k)
    moment = np.eye(k + 1) * 0.3 + 0.1
    moment[0, 0], n, iterations = 1.0, 200, 40
    exact = reference.statistics_of(moment)
    noise = np.full(len(exact), 0.03)
    noisy = exact + noise * rng.standard_normal(len(exact))
    normals = rng.standard_normal((iterations, reference.normals_needed(k)))
    chis = np.sqrt(rng.chisquare(n - np.arange(k), (iterations, k)))
    ours, truth = np.empty((iterations, k + k * k)), np.empty((iterations, k + k * k))
    prior = 0.01 * np.eye(k)
    last = gibbs(exact, noisy, noise, n, prior, normals, chis, ours)
    # a chain forgets: rounding grows no further than a few hundred operations on well-conditioned matrices
    np.testing.assert_allclose(last, reference.gibbs(exact, noisy, noise, n, prior, normals, chis, truth), rtol=1e-9)
    np.testing.assert_allclose(ours, truth, rtol=1e-9, atol=1e-12)


def test_impossible_statistics_are_never_taken():
    """Noise of the size of the moments: draws without a positive definite covariance are rejected in both."""
    rng = np.random.default_rng(0)
    k, n, iterations = 2, 5, 300
    exact = reference.statistics_of(np.eye(3) * 0.3 + np.pad([[0.7]], (0, 2)))
    noise = np.full(5, 2.0)
    noisy = exact - 3.0
    normals = rng.standard_normal((iterations, reference.normals_needed(k)))
    chis = np.sqrt(rng.chisquare(7 - np.arange(k), (iterations, k)))
    ours, truth = np.empty((iterations, 6)), np.empty((iterations, 6))
    gibbs(exact, noisy, noise, n, 0.01 * np.eye(k), normals, chis, ours)
    reference.gibbs(exact, noisy, noise, n, 0.01 * np.eye(k), normals, chis, truth)
    assert np.isfinite(ours).all()
    np.testing.assert_allclose(ours, truth, rtol=1e-6)


def test_the_law_of_the_statistics_is_isserlis():
    m, C = np.array([0.3, -0.2]), np.array([[0.5, 0.1], [0.1, 0.4]])
    mean, cov = reference.statistic_law(m, C, 10)
    cov = cov * 10
    np.testing.assert_allclose(mean, [0.3, -0.2, 0.5 + 0.09, 0.1 - 0.06, 0.4 + 0.04])
    np.testing.assert_allclose(cov[:2, :2], C)
    assert cov[0, 2] == pytest.approx(2 * m[0] * C[0, 0])                                # Cov(x, x^2)
    assert cov[2, 2] == pytest.approx(2 * C[0, 0] ** 2 + 4 * m[0] ** 2 * C[0, 0])        # Var(x^2)
    assert cov[2, 4] == pytest.approx(2 * C[0, 1] ** 2 + 4 * m[0] * m[1] * C[0, 1])      # Cov(x^2, y^2)
    product = C[0, 0] * C[1, 1] + C[0, 1] ** 2 + m[0] ** 2 * C[1, 1] + m[1] ** 2 * C[0, 0] + 2 * m[0] * m[1] * C[0, 1]
    assert cov[3, 3] == pytest.approx(product)                                           # Var(x y)
