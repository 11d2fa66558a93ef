"""Stacked scores of several rules on the CPU: the loops of ``steps`` around the tile of ``stacked_tile``."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.kernels.arguments import Draws, Mechanism, Records, Stack, Stream, require_stack
from pgbb_fast.kernels.cpu import formulas
from pgbb_fast.kernels.cpu import stacked_tile as tile
from pgbb_fast.kernels.cpu.noise import add_noise, scale_of
from pgbb_fast.kernels.cpu.steps import bind, encoded, groups_for, kernel_of, launch
from pgbb_fast.kernels.scalar.clip import GRID
from pgbb_fast.kernels.scalar.sampling import ALL
from pgbb_fast.kernels.scalar.stacked import stack_limit, stack_weight


@cache
def _kernel(loss: str, width: int, x_encoding: str, y_encoding: str) -> Callable[..., Any]:
    name = f"stacked_{loss}_{width}{x_encoding}{y_encoding}"
    bound = {"slope": formulas.SINGLE_SLOPES[loss], "has_scale": loss in formulas.WITH_SCALE}
    slopes, shorten = bind(tile._slopes, name, bound), bind(tile._shorten, name, bound)
    return kernel_of(
        tile.stacked_tile, name, bound, loss, width, x_encoding, y_encoding, tile._publish, slopes_of=slopes,
        shorten=shorten,
    )  # fmt: skip


def stacked_sums(
    loss: str, intercept: bool, records: Records, stack: Stack, stream: Stream
) -> NDArray[np.int64]:
    """The sums without noise, (L, d) int64 in units of C 2^-32; same contract as ``reference.stacked_sums``.  Not a
    release: for tests, benchmarks and :func:`noisy_stacked`."""
    scale = loss in formulas.WITH_SCALE
    require_stack(loss, stack, scale)
    L, d = stack.theta.shape
    m, n = len(stack.map), len(records.x)
    p = m - intercept
    groups = groups_for(n * (stack.threshold / ALL) * L * (p + 2))
    records, *how = encoded(loss, p, records)
    all_in_one_block = records._replace(starts=np.array([0, n, n], dtype=np.int64))
    bounds = np.array([stack.feature_bound, stack_limit(L, m), stack_weight(L, d)])
    with np.errstate(over="ignore"):
        parts = [bounds, stack.map.ravel(), stack.mix.ravel() / stack.clip, stack.scale_mix.ravel() / stack.clip]
    draws = Draws(stack.theta, np.concatenate(parts)[None], stack.constants)
    mechanism = Mechanism(stack.clip, stack.threshold, stack.noise_multiplier)
    numbers, rows = tile.public_numbers(L, m, d), tile.stack_rows(p, L, scale)
    return launch(_kernel(loss, *how), intercept, all_in_one_block, draws, mechanism, stream, numbers, rows, groups)


def noisy_stacked(
    loss: str, intercept: bool, records: Records, stack: Stack, stream: Stream
) -> NDArray[np.int64]:
    """One release: :func:`stacked_sums` plus the Gaussian perturbation, whatever the minibatch (an empty one too)."""
    scale = scale_of(stack.noise_multiplier * GRID)
    return add_noise(stacked_sums(loss, intercept, records, stack, stream), scale, stream.key, stream.step)
