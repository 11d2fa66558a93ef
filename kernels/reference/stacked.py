"""Scores of several rules as one stack in whitened coordinates, shortened together: sums on the grid, second moments.

A record's score is (a_l f xw_j, and b_l where the loss has a scale), l < L, j < m, as ``arguments.Stack`` says.  Every
record of the minibatch counts 1: ``records.block`` and ``records.starts`` are not used.  ``scalar.stacked`` says what
one record can do.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.kernels.arguments import Records, Stack, Stream, require_stack
from pgbb_fast.kernels.reference.losses import MOMENT_SLOPES
from pgbb_fast.kernels.reference.moments import products
from pgbb_fast.kernels.reference.random import rounded_normals
from pgbb_fast.kernels.reference.sampling import minibatch
from pgbb_fast.kernels.reference.steps import GRID, TERM, decoded
from pgbb_fast.kernels.scalar.losses import WITH_SCALE

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Slopes = Callable[[int, Floats, Floats], tuple[Floats, Floats]]
OwnSlope = Callable[[int, Floats, Floats], Floats]
MOST = 2.0**50      # of the lengths of xw, a and b


def _slopes_of(loss: str, stack: Stack) -> Slopes:
    """k, y, eta to rule k's slopes in the predictor and in the scale."""

    def slopes(k: int, y: Floats, eta: Floats) -> tuple[Floats, Floats]:
        scale = float(stack.theta[k, -1]) if loss in WITH_SCALE else 1.0
        return MOMENT_SLOPES[loss](y, eta, scale, *stack.constants[k])

    return slopes


def _shortened(slopes: Slopes, intercept: bool, x: Floats, y: Floats, stack: Stack, limit: float) -> Floats:
    """The records' scores in units of C, shortened to ``limit``: (n, L, d)."""
    L, m = len(stack.mix), len(stack.map)
    with np.errstate(all="ignore"):
        xbar = np.column_stack([np.ones(len(y)), x]) if intercept else x
        psi, chi = np.empty((2, L, len(y)))
        for k in range(L):
            psi[k], chi[k] = slopes(k, y, xbar @ stack.theta[k, :m])
        white = xbar @ stack.map.T
        a = (stack.mix @ psi).T / stack.clip
        b = (stack.scale_mix @ chi[: len(stack.scale_mix)]).T / stack.clip       # (n, L), or (n, 0)
        length, of_a, of_b = (np.sqrt((part**2).sum(axis=1)) for part in (white, a, b))
        f = np.where(length > stack.feature_bound, stack.feature_bound / length, 1.0)
        score = a[:, :, None] * (f[:, None] * white)[:, None, :]
        if b.size:
            score = np.concatenate([score, b[:, :, None]], axis=2)
        norm = np.sqrt((score**2).sum(axis=(1, 2)))
        score = score * np.where(norm > limit, limit / norm, 1.0)[:, None, None]
    score[~((length <= MOST) & (of_a <= MOST) & (of_b <= MOST) & np.isfinite(norm))] = 0.0
    return np.asarray(score, dtype=np.float64)


def _sums(slopes: Slopes, intercept: bool, records: Records, stack: Stack, stream: Stream) -> Integers:
    L, d = stack.theta.shape
    m = len(stack.map)
    take = minibatch(stream.key, stream.step, len(records.x), stack.threshold)
    x, y, _ = decoded(records, m - intercept)
    score = _shortened(slopes, intercept, x[take], y[take], stack, 1 - (L + m + 16) * 2.0**-24)
    term = np.rint(score * (TERM - np.sqrt(L * d) / 2)).astype(np.int64)
    return np.asarray(term.sum(axis=0) << 10)


def stacked_sums(loss: str, intercept: bool, records: Records, stack: Stack, stream: Stream) -> Integers:
    """Sums of shortened scores over the minibatch, without noise: (L, d) int64 in units of C 2^-32."""
    require_stack(loss, stack, loss in WITH_SCALE)
    return _sums(_slopes_of(loss, stack), intercept, records, stack, stream)


def stacked_sums_user(
    gradient_slope: OwnSlope, intercept: bool, records: Records, stack: Stack, stream: Stream
) -> Integers:
    """As :func:`stacked_sums` for any loss of the predictor, without a scale: ``gradient_slope`` maps k, y (n,) and
    eta (n,) to rule k's slopes (n,), number i a function of record i only."""
    require_stack("own loss", stack, scale=False)
    return _sums(_with_no_scale(gradient_slope), intercept, records, stack, stream)


def noisy_stacked(loss: str, intercept: bool, records: Records, stack: Stack, stream: Stream) -> Integers:
    """One release: :func:`stacked_sums` plus rounded normals of ``noise_multiplier`` 2^32, whatever the minibatch."""
    sums = stacked_sums(loss, intercept, records, stack, stream)
    sigma = np.full(sums.size, stack.noise_multiplier * GRID)
    return sums + rounded_normals(stream.key, stream.step, sigma).reshape(sums.shape)


def stacked_moments(loss: str, intercept: bool, records: Records, stack: Stack) -> Integers:
    """Sum over all records of v v' / C^2, v the shortened stacked score: (L d, L d) int64 in units of 2^-32, symmetric.

    |v| <= C, and each product is truncated toward zero (:func:`products`), so that a record's matrix is at most 2^32 in
    Frobenius norm.  ``stack.threshold`` and ``stack.noise_multiplier`` are not used.
    """
    require_stack(loss, stack, loss in WITH_SCALE)
    return _moments(_slopes_of(loss, stack), intercept, records, stack)


def stacked_moments_user(gradient_slope: OwnSlope, intercept: bool, records: Records, stack: Stack) -> Integers:
    """:func:`stacked_moments` of any loss, as :func:`stacked_sums_user`."""
    require_stack("own loss", stack, scale=False)
    return _moments(_with_no_scale(gradient_slope), intercept, records, stack)


def _with_no_scale(gradient_slope: OwnSlope) -> Slopes:
    return lambda k, y, eta: (gradient_slope(k, y, eta), np.zeros_like(y))


def _moments(slopes: Slopes, intercept: bool, records: Records, stack: Stack) -> Integers:
    x, y, _ = decoded(records, len(stack.map) - intercept)
    return products(_shortened(slopes, intercept, x, y, stack, 1.0).reshape(len(y), -1))
