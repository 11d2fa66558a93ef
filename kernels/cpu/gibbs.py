"""Gibbs sampling over latent sufficient statistics: the iterations of ``reference.gibbs``, compiled."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from pgbb_fast.kernels.cpu.compile import compiled
from pgbb_fast.kernels.reference.gibbs import JITTER, pairs
from pgbb_fast.kernels.specialise import specialise

Floats = NDArray[np.float64]


def _factor(a, out):  # type: ignore[no-untyped-def]
    """Lower Cholesky factor of ``a`` in ``out``; whether ``a`` is positive definite."""
    for i in range(a.shape[0]):
        for j in range(i + 1):
            total = a[i, j]
            for h in range(j):
                total -= out[i, h] * out[j, h]
            if i == j:
                if not total > 0.0:
                    return False
                out[i, i] = np.sqrt(total)
            else:
                out[i, j] = total / out[j, j]
    return True


def _scatter(s, n, prior, out):  # type: ignore[no-untyped-def]
    """n A + Psi in ``out``."""
    k, place = prior.shape[0], prior.shape[0]
    for i in range(k):
        for j in range(i, k):
            value = n * (s[place] - s[i] * s[j]) + prior[i, j]
            out[i, j] = value
            out[j, i] = value
            place += 1


def _gibbs(start, noisy, noise, n, prior, normals, chis, first, second, out):  # type: ignore[no-untyped-def]
    k, D, s = prior.shape[0], start.size, start.copy()
    scatter, L, B, G = np.empty((k, k)), np.zeros((k, k)), np.zeros((k, k)), np.empty((k, k))
    m, M, V, P = np.empty(k + 1), np.empty((k + 1, k + 1)), np.empty((D, D)), np.empty((D, D))
    root, other, drawn, w, new = np.zeros((D, D)), np.zeros((D, D)), np.empty(D), np.empty(D), np.empty(D)
    scatter_of(s, n, prior, scatter)
    factor(scatter, L)
    for step in range(out.shape[0]):
        z, at = normals[step], 0
        for i in range(k):
            B[i, i] = chis[step, i]
            for j in range(i):
                B[i, j] = z[at]
                at += 1
        for i in range(k):          # G B' = L, row by row
            for j in range(k):
                total = L[i, j]
                for h in range(j):
                    total -= G[i, h] * B[j, h]
                G[i, j] = total / B[j, j]
        m[0] = 1.0
        for i in range(k):
            total = 0.0
            for j in range(k):
                total += G[i, j] * z[at + j]
            m[i + 1] = s[i] + total / np.sqrt(n)
            out[step, i] = m[i + 1]
        at += k
        for a in range(k + 1):
            for b in range(k + 1):
                value = m[a] * m[b]
                if a > 0 and b > 0:
                    total = 0.0
                    for h in range(k):
                        total += G[a - 1, h] * G[b - 1, h]
                    out[step, k + (a - 1) * k + b - 1] = total
                    value += total
                M[a, b] = value
        for i in range(D):
            a, b = first[i], second[i]
            for j in range(i + 1):
                c, d = first[j], second[j]
                value = (M[a, c] * M[b, d] + M[a, d] * M[b, c] - 2.0 * m[a] * m[b] * m[c] * m[d]) / n
                if i == j:
                    value += JITTER * value
                V[i, j] = value
                V[j, i] = value
                P[i, j] = value
            P[i, i] += noise[i] * noise[i]
        if not (factor(V, root) and factor(P, other)):
            continue
        for i in range(D):
            total = M[first[i], second[i]]
            for j in range(i + 1):
                total += root[i, j] * z[at + j]
            drawn[i] = total
            w[i] = noisy[i] - total - noise[i] * z[at + D + i]
        for i in range(D):
            for j in range(i):
                w[i] -= other[i, j] * w[j]
            w[i] /= other[i, i]
        for i in range(D - 1, -1, -1):
            for j in range(i + 1, D):
                w[i] -= other[j, i] * w[j]
            w[i] /= other[i, i]
        for i in range(D):
            total = drawn[i]
            for j in range(D):
                total += V[i, j] * w[j]
            new[i] = total
        scatter_of(new, n, prior, scatter)
        if factor(scatter, G):
            for i in range(k):
                for j in range(i + 1):
                    L[i, j] = G[i, j]
            s[:] = new
    return s


factor: Any = None
scatter_of: Any = None


@cache
def _kernel() -> Callable[..., Any]:
    parts = {"factor": numba.njit(_factor), "scatter_of": numba.njit(_scatter)}
    return compiled(specialise(_gibbs, "normal", **parts), allocates=True)


def gibbs(
    start: Floats, noisy: Floats, noise: Floats, n: int, prior_scale: Floats, normals: Floats, chis: Floats, out: Floats
) -> Floats:
    """Same contract as ``reference.gibbs.gibbs``."""
    first, second = np.array(pairs(len(prior_scale) + 1), dtype=np.int64).T.copy()
    state: Floats = _kernel()(start, noisy, noise, n, prior_scale, normals, chis, first, second, out)
    return state
