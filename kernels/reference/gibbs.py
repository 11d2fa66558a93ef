"""Gibbs sampling over latent sufficient statistics of a multivariate normal law (Bernstein and Sheldon 2018, 2019).

It sees released values only: no record.  Units: means over the n records, so a statistic's variance is O(1 / n).
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
JITTER = 1e-12


def statistics_of(second: Floats) -> Floats:
    """First moments, then second ones with i <= j, of v = (1, x) from E[v v'] (k, k)."""
    k = len(second)
    return np.array([second[a, b] for a, b in pairs(k)])


def pairs(k: int) -> list[tuple[int, int]]:
    """The entries of v v' that are statistics: (0, j), then (i, j) with 1 <= i <= j."""
    return [(0, j) for j in range(1, k)] + [(i, j) for i in range(1, k) for j in range(i, k)]


def statistic_law(mean: Floats, covariance: Floats, n: int) -> tuple[Floats, Floats]:
    """Mean and covariance of the averaged statistics of n normal records.

    Cov(v_a v_b, v_c v_d) = M_ac M_bd + M_ad M_bc - 2 m_a m_b m_c m_d, M = E[v v'] (Isserlis 1918, with means).
    """
    m = np.append(1.0, mean)
    M = np.outer(m, m)
    M[1:, 1:] += covariance
    chosen = pairs(len(m))
    cov = [
        [M[a, c] * M[b, d] + M[a, d] * M[b, c] - 2.0 * m[a] * m[b] * m[c] * m[d] for c, d in chosen]
        for a, b in chosen
    ]
    return statistics_of(M), np.array(cov) / n


def normals_needed(dimension: int) -> int:
    """Normals that one iteration uses."""
    statistics = dimension + dimension * (dimension + 1) // 2
    return dimension * (dimension - 1) // 2 + dimension + 2 * statistics


def gibbs(
    start: Floats, noisy: Floats, noise: Floats, n: int, prior_scale: Floats, normals: Floats, chis: Floats, out: Floats
) -> Floats:
    """Iterations of: (mean, covariance) given the latent statistics, then the statistics given those and ``noisy``.

    Parameters
    ----------
    start : (D,) array
        Latent statistics to start from, with a positive definite covariance.
    noisy, noise : (D,) arrays
        Released statistics, and the standard deviations of their noise.
    prior_scale : (k, k) array
        Psi of the inverse Wishart prior of the covariance; the mean's prior is flat.
    normals, chis : (iterations, normals_needed(k)) and (iterations, k)
        Standard normals; square roots of chi-squares with nu, nu - 1, ... degrees of freedom.
    out : (iterations, k + k^2) array
        Filled with each mean and covariance.

    Returns
    -------
    (D,) array: the latent statistics at the end.

    Notes
    -----
    Covariance ~ InverseWishart(nu, Psi + n A): A + Psi / n = L L' / n, B lower triangular of Bartlett's decomposition,
    G = L B^-T, covariance G G' and mean f + G z / sqrt(n).  Statistics: by conditioning a joint draw (Matheron's rule).
    A draw whose A isn't positive definite is rejected and the old one kept: the law is the conditional one restricted
    to statistics that records can have, up to the normal approximation of their law.
    """
    k, s = len(prior_scale), start.copy()
    D, lower = len(start), np.tril_indices(k, -1)
    for i, (z, chi) in enumerate(zip(normals, chis, strict=True)):
        L = np.linalg.cholesky(_scatter(s, n, prior_scale))
        B = np.diag(chi)
        B[lower] = z[: len(lower[0])]
        z = z[len(lower[0]) :]
        G = L @ np.linalg.inv(B).T
        mean, covariance = s[:k] + G @ z[:k] / np.sqrt(n), G @ G.T
        z = z[k:]
        out[i] = np.concatenate([mean, covariance.ravel()])
        centre, V = statistic_law(mean, covariance, n)
        V = V + np.diag(JITTER * np.diag(V))
        drawn = centre + np.linalg.cholesky(V) @ z[:D]
        new = drawn + V @ np.linalg.solve(V + np.diag(noise**2), noisy - drawn - noise * z[D:])
        try:
            np.linalg.cholesky(_scatter(new, n, prior_scale))
        except np.linalg.LinAlgError:
            continue
        s = new
    return s


def _scatter(s: Floats, n: int, prior_scale: Floats) -> Floats:
    """n A + Psi, A = second moments - outer(first)."""
    k = len(prior_scale)
    second = np.zeros((k, k))
    second[np.triu_indices(k)] = s[k:]
    second = second + np.triu(second, 1).T
    return np.asarray(n * (second - np.outer(s[:k], s[:k])) + prior_scale)
