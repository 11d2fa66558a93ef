"""The stacked step: mixed slopes times mapped features, shortened as one vector, with equal weights."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.kernels.arguments import Records, Stack, Stream
from pgbb_fast.kernels.reference.losses import MOMENT_SLOPES, WITH_SCALE
from pgbb_fast.kernels.reference.moments import SAFE
from pgbb_fast.kernels.reference.random import rounded_normals
from pgbb_fast.kernels.reference.sampling import minibatch
from pgbb_fast.kernels.reference.steps import GRID, TERM, decoded

Floats = NDArray[np.float64]
OwnSlope = Callable[[int, Floats, Floats], Floats]
Slopes = Callable[[int, Floats, Floats, float], tuple[Floats, Floats]]
MOST_SQUARE = 2.0**100


def stacked_sums(loss: str, intercept: bool, records: Records, stack: Stack, stream: Stream) -> NDArray[np.int64]:
    """Sums over the minibatch of the shortened stacked scores, without noise: (L, d) int64, units C 2^-32.

    Row l holds a_l f x~_j for the m mapped features and, for a loss with a scale, b_l (``Stack`` has the names).
    """
    take = minibatch(stream.key, stream.step, len(records.x), stack.threshold)
    return _sums(_built_in(loss, stack), loss in WITH_SCALE, intercept, records, stack, take)


def stacked_sums_own(
    slope: OwnSlope, intercept: bool, records: Records, stack: Stack, stream: Stream
) -> NDArray[np.int64]:
    """As :func:`stacked_sums` for a slope of the user's own: rule k, y (n,), eta (n,) -> (n,)."""
    take = minibatch(stream.key, stream.step, len(records.x), stack.threshold)
    return _sums(lambda k, y, eta, _: (slope(k, y, eta), y), False, intercept, records, stack, take)


def stacked_moments(loss: str, intercept: bool, records: Records, stack: Stack) -> NDArray[np.int64]:
    """Sum over all records of v v' / C^2, v the shortened stacked score: (L d, L d) int64, symmetric.

    Each product is truncated toward zero to a multiple of 2^-32 (times ``SAFE``), as in ``score_moments``.  The loss
    "linear" with L = 1, mix 1 and feature_bound = clip has x~ itself, shortened, for its stacked score.
    """
    return _moments(_built_in(loss, stack), loss in WITH_SCALE, intercept, records, stack)


def stacked_moments_own(slope: OwnSlope, intercept: bool, records: Records, stack: Stack) -> NDArray[np.int64]:
    """:func:`stacked_moments` for a slope of the user's own."""
    return _moments(lambda k, y, eta, _: (slope(k, y, eta), y), False, intercept, records, stack)


def stacked_noise(shape: tuple[int, int], stack: Stack, stream: Stream) -> NDArray[np.int64]:
    """The Gaussian perturbation of a step, rounded to the grid: (L, d) int64."""
    sigma = np.full(shape[0] * shape[1], stack.noise_multiplier * GRID)
    return rounded_normals(stream.key, stream.step, sigma).reshape(shape)


def noisy_stacked(loss: str, intercept: bool, records: Records, stack: Stack, stream: Stream) -> NDArray[np.int64]:
    """One release: the sums plus the perturbation."""
    sums = stacked_sums(loss, intercept, records, stack, stream)
    return sums + stacked_noise((sums.shape[0], sums.shape[1]), stack, stream)


def _built_in(loss: str, stack: Stack) -> Slopes:
    def slopes(k: int, y: Floats, eta: Floats, scale: float) -> tuple[Floats, Floats]:
        return MOMENT_SLOPES[loss](y, eta, scale, *stack.constants[k])

    return slopes


def _parts(
    slopes: Slopes, has_scale: bool, intercept: bool, records: Records, stack: Stack, take: NDArray[np.bool_]
) -> tuple[Floats, Floats, Floats, Floats]:
    """Weighted mapped features (n, m), mixed slopes (n, L) and those in the scale (n, L or 0), in units of C, and the
    norm (n,), nan for a record that counts as zero."""
    m = len(stack.map)
    x, y, _ = decoded(records, m - intercept)
    x, y = x[take], y[take]
    with np.errstate(all="ignore"):
        mapped = (np.column_stack([np.ones(len(y)), x]) if intercept else x) @ stack.map.T
        square = (mapped**2).sum(axis=1)
        weight = np.where(square <= stack.feature_bound**2, 1.0, stack.feature_bound / np.sqrt(square))
        psi, chi = [], []
        for k, theta in enumerate(stack.theta):
            eta = (theta[0] if intercept else 0.0) + x @ theta[intercept:m]
            by_eta, by_scale = slopes(k, y, eta, float(theta[-1]) if has_scale else 1.0)
            psi.append(by_eta)
            chi.append(by_scale)
        a = np.column_stack(psi) @ stack.mix.T / stack.clip
        b = np.column_stack(chi) @ stack.scale_mix.T / stack.clip if has_scale else np.empty((len(y), 0))
        lengths = (a**2).sum(axis=1)
        norm = np.sqrt(lengths * weight**2 * square + (b**2).sum(axis=1))
    norm[~(np.isfinite(norm) & (square <= MOST_SQUARE) & (lengths <= MOST_SQUARE))] = np.nan
    return mapped * weight[:, None], a, b, norm


def _stacked(features: Floats, a: Floats, b: Floats) -> Floats:
    """(n, L, d)."""
    outer = a[:, :, None] * features[:, None, :]
    return np.concatenate([outer, b[:, :, None]], axis=2) if b.shape[1] else outer


def _sums(
    slopes: Slopes, has_scale: bool, intercept: bool, records: Records, stack: Stack, take: NDArray[np.bool_]
) -> NDArray[np.int64]:
    features, a, b, norm = _parts(slopes, has_scale, intercept, records, stack, take)
    L, d = stack.theta.shape
    limit = 1 - (len(stack.map) + L + 20) * 2.0**-24
    size = TERM - np.sqrt(L * d) / 2
    with np.errstate(all="ignore"):
        factor = np.where(norm > limit, limit / norm, 1.0) * size
        term = _stacked(features, a, b) * factor[:, None, None]
    term[np.isnan(norm)] = 0.0
    return np.asarray(np.rint(term).astype(np.int64).sum(axis=0) << 10)


def _moments(
    slopes: Slopes, has_scale: bool, intercept: bool, records: Records, stack: Stack
) -> NDArray[np.int64]:
    take = np.ones(len(records.x), dtype=np.bool_)
    features, a, b, norm = _parts(slopes, has_scale, intercept, records, stack, take)
    with np.errstate(all="ignore"):
        v = _stacked(features, a, b) * np.where(norm > 1.0, 1.0 / norm, 1.0)[:, None, None]
    v[np.isnan(norm)] = 0.0
    v = v.reshape(len(v), -1)
    out = np.empty((v.shape[1], v.shape[1]), dtype=np.int64)
    for i in range(v.shape[1]):
        out[i] = np.trunc(v[:, i, None] * v * (SAFE * GRID)).astype(np.int64).sum(axis=0)
    return out
