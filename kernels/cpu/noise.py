"""Privacy noise on the CPU: integers added to integers, as ``scalar.normal`` defines them."""

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from pgbb_fast.kernels.cpu.compile import compiled
from pgbb_fast.kernels.cpu.formulas import double_round
from pgbb_fast.kernels.cpu.intrinsics import add32, at, put
from pgbb_fast.kernels.cpu.sampling import BATCH, LANES, random_lanes
from pgbb_fast.kernels.scalar import normal
from pgbb_fast.kernels.scalar.random import PURPOSE_NOISE, SIGMA0, SIGMA1, SIGMA2, SIGMA3, WORDS
from pgbb_fast.kernels.specialise import specialise

U32, I64 = np.uint32, np.int64
Integers = NDArray[np.int64]
Scales = tuple[Integers, Integers]


def _fill(key: Any, step: Any, index: Any, room: Any) -> None:
    """The noise's block ``index`` of a step, in room[:16]: RFC 8439's block function, its rounds in a loop."""
    start = (
        U32(SIGMA0), U32(SIGMA1), U32(SIGMA2), U32(SIGMA3),
        U32(key[0]), U32(key[1]), U32(key[2]), U32(key[3]), U32(key[4]), U32(key[5]), U32(key[6]), U32(key[7]),
        U32(index), U32(index >> 32), U32(step), U32(PURPOSE_NOISE),
    )  # fmt: skip
    x = start
    for _ in range(10):
        x = double_round(*x)
    for i in range(WORDS):
        put(room, i, I64(add32(x[i], start[i])))


def _add(grid: Any, mantissas: Any, shifts: Any, key: Any, step: Any, table: Any, words: Any, room: Any) -> None:
    """Add the step's noise number j, of scale j (or the only one), to grid[j] in place."""
    for j in range(grid.size):
        if j % LANES == 0:      # the first block of sixteen numbers at once
            random_lanes(key, I64(PURPOSE_NOISE), step, j, words)
        for i in range(WORDS):
            put(room, i, I64(at(words, i * LANES + j % LANES)))
        put(room, WORDS, j)
        place = j if mantissas.size > 1 else 0
        noise = rounded_normal(at(mantissas, place), at(shifts, place), key, step, j, table, room)
        put(grid, j, at(grid, j) + noise)


def _part(function: Callable[..., Any]) -> Any:
    return numba.njit(function, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False)


fill = _part(_fill)
digit = _part(specialise(normal.digit, "cpu", fill=fill))
carried = _part(normal.carried)
below = _part(specialise(normal.below, "cpu", digit=digit))
below_threshold = _part(specialise(normal.below_threshold, "cpu", digit=digit))
cell = _part(specialise(normal.cell, "cpu", digit=digit, below_threshold=below_threshold))
_PARTS = {"digit": digit, "below": below, "cell": cell, "carried": carried}
rounded_normal = _part(specialise(normal.rounded_normal, "cpu", **_PARTS))


@cache
def _kernel() -> tuple[Callable[..., Any], Integers]:
    return compiled(_add), np.array(normal.thresholds())


@lru_cache(maxsize=64)
def scale_of(sigma: float) -> Scales:
    """What :func:`add_noise` takes for one standard deviation, in units of the grid.

    Raises
    ------
    ValueError
        If it isn't in [0, 2^56).
    """
    return scales_of(np.array([sigma]))


def scales_of(sigma: NDArray[np.float64]) -> Scales:
    """As :func:`scale_of`, with a standard deviation for each number."""
    pairs = np.array([normal.scale_of(each) for each in sigma.tolist()], dtype=np.int64)
    mantissas, shifts = pairs.T.copy()
    return mantissas, shifts


def add_noise(grid: Integers, scales: Scales, key: Integers, step: int) -> Integers:
    """``grid`` with the noise of a step added in place, round(sigma_j Z_j) to number j of it in C order.

    Parameters
    ----------
    grid : C-contiguous int64 array of any shape
    scales
        :func:`scale_of` the noise's standard deviation, or :func:`scales_of` the numbers' own.
    key, step
        Of :class:`~pgbb_fast.kernels.arguments.Stream`.  A step's numbers must not be used twice.
    """
    mantissas, shifts = scales
    if mantissas.size not in (1, grid.size) or not grid.flags.c_contiguous:
        raise ValueError(f"add_noise: {mantissas.size} scales for {grid.size} numbers, or these aren't contiguous")
    run, table = _kernel()
    words, room = np.empty(BATCH, dtype=np.uint32), np.empty(WORDS + 1, dtype=np.int64)
    run(grid.reshape(-1), mantissas, shifts, key, step, table, words, room)
    return grid
