"""Second moment of the clipped scores, on the CPU."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from pgbb_fast.kernels.arguments import Draws, Records, Stack
from pgbb_fast.kernels.cpu import formulas
from pgbb_fast.kernels.cpu.columns import NUMBER
from pgbb_fast.kernels.cpu.compile import compiled
from pgbb_fast.kernels.cpu.intrinsics import at
from pgbb_fast.kernels.cpu.threads import run
from pgbb_fast.kernels.layout import require_layout, stored
from pgbb_fast.kernels.scalar import losses
from pgbb_fast.kernels.scalar.clip import GRID
from pgbb_fast.kernels.scalar.moments import SAFE, moment_factor
from pgbb_fast.kernels.specialise import specialise

_factor = numba.njit(moment_factor)
LOCATION = {f.__name__: numba.njit(f) for f in losses.LOCATION}

# bound by ``specialise`` for each loss, and for each way in which records are stored
slope: Any = None
has_scale = False
columnwise = False
x_number: Any = None
y_number: Any = None
x_value: Any = None
y_value: Any = None
score: Any = None
number: Any = None


def _plain_number(array: Any, index: Any) -> Any:
    """A stored number in double precision."""
    return np.float64(at(array, index))


def _encoded_number(array: Any, index: Any) -> Any:
    """As :func:`_plain_number` for an encoding of ``intrinsics.NUMBER``."""
    return np.float64(number(array, index))


@numba.njit
def _mapped(value, table, row):  # type: ignore[no-untyped-def]
    """The public map of ``Records.map``, if any."""
    if table.shape[0] > 0:
        value = np.float64(np.float32(value))
        value = np.float64(table[row, 0]) * value + np.float64(table[row, 1])
        return min(max(value, -1.0), 1.0) if value == value else value
    return value


def _x_value(records, i, j):  # type: ignore[no-untyped-def]
    """Feature ``j`` of record ``i``."""
    columns = records.x.shape[1]
    place = i * columns + j
    if columnwise:      # (columns, n)
        place = j * columns + i
    return _mapped(x_number(records.x, place), records.map, j)


def _y_value(records, i, p):  # type: ignore[no-untyped-def]
    """Record ``i``'s response, in ``y`` or after its p features."""
    if records.y.size > 0:
        return _mapped(y_number(records.y, i), records.map, p)
    return x_value(records, i, p)


def _regression_score(i, k, p, intercept, records, draws, out):  # type: ignore[no-untyped-def]
    """Record ``i``'s gradient at theta_k in ``out`` (d,)."""
    theta, first = draws.theta[k], 1 if intercept else 0
    eta = theta[0] if intercept else 0.0
    for j in range(p):
        out[first + j] = x_value(records, i, j)
        eta += theta[first + j] * out[first + j]
    scale = theta[theta.size - 1] if has_scale else 1.0
    by_eta, by_scale = slope(y_value(records, i, p), eta, scale, draws.constants[k, 0], draws.constants[k, 1])
    if intercept:
        out[0] = by_eta
    for j in range(p):
        out[first + j] *= by_eta
    if has_scale:
        out[theta.size - 1] = by_scale


def _location_score(i, k, p, intercept, records, draws, out):  # type: ignore[no-untyped-def]
    """As :func:`_regression_score` for the losses of a location."""
    for j in range(p):
        out[j] = slope(draws.theta[k, j], x_value(records, i, j))


@numba.njit
def add_products(v, size, total):  # type: ignore[no-untyped-def]
    """Add the products of the first ``size`` numbers of ``v``, |v| <= 1, each truncated to the grid, to the upper
    triangle of ``total``."""
    for a in range(size):
        left = v[a] * (SAFE * GRID)
        for b in range(a, size):
            total[a, b] += np.int64(left * v[b])


def _moments(first, last, p, intercept, records, draws, clip, v, total):  # type: ignore[no-untyped-def]
    """Add the products of the records ``first`` .. ``last`` - 1 to the upper triangle of ``total`` (K d, K d); ``v`` is
    room for K d numbers."""
    K, d = draws.theta.shape
    none = draws.weights.shape[1] - 1
    root = np.sqrt(np.float64(K)) * clip
    for i in range(first, last):
        if records.starts.size == 0 and records.block[i] == none:
            continue
        for k in range(K):
            part = v[k * d : (k + 1) * d]
            score(i, k, p, intercept, records, draws, part)
            squared = 0.0
            for j in range(d):
                squared += part[j] * part[j]
            factor = _factor(squared, clip) / root
            for j in range(d):
                part[j] = part[j] * factor if factor > 0.0 else 0.0
        add_products(v, K * d, total)


def readers(name: str, columnwise: bool, x_encoding: str, y_encoding: str) -> tuple[Any, Any]:
    """Functions for a feature and for the response of a record that is stored in this way."""

    def part(template: Callable[..., Any], **bound: Any) -> Any:
        return numba.njit(specialise(template, name, **bound))

    def number(encoding: str) -> Any:
        return part(_encoded_number, number=NUMBER[encoding]) if encoding else part(_plain_number)

    x_value = part(_x_value, columnwise=columnwise, x_number=number(x_encoding))
    return x_value, part(_y_value, x_value=x_value, y_number=number(y_encoding))


@cache
def _moments_for(loss: str, columnwise: bool, x_encoding: str, y_encoding: str) -> Callable[..., Any]:
    scale = loss in formulas.WITH_SCALE
    name = f"{loss}_{columnwise:d}{x_encoding}{y_encoding}"
    x_value, y_value = readers(name, columnwise, x_encoding, y_encoding)
    if loss in formulas.REGRESSION_SLOPES:
        found = formulas.REGRESSION_SLOPES[loss]
        bound = {"slope": found, "has_scale": scale, "x_value": x_value, "y_value": y_value}
        score = numba.njit(specialise(_regression_score, name, **bound))
    else:
        score = numba.njit(specialise(_location_score, name, slope=LOCATION[loss], x_value=x_value))
    return compiled(specialise(_moments, name, score=score))


def score_moments(loss: str, intercept: bool, records: Records, draws: Draws, clip: float) -> NDArray[np.int64]:
    """The sums without noise; same contract as ``reference.score_moments``.  Not a release."""
    regression = loss in formulas.REGRESSION_SLOPES
    n, d = len(records.x), draws.theta.shape[1]
    p = d - intercept - (loss in formulas.WITH_SCALE) if regression else d
    (x, x_encoding), (y, y_encoding) = stored(records.x), stored(records.y if regression else records.y[:0])
    by_rows = require_layout(loss, x, p + (regression and y.size == 0))
    part = records._replace(x=x if by_rows else x.T, y=y)
    if records.starts.size:
        n = int(records.starts[-2])     # the last block takes no part
    return summed(_moments_for(loss, not by_rows, x_encoding, y_encoding), n, p, intercept, part, draws, clip)


def summed(
    kernel: Callable[..., Any], n: int, p: int, intercept: bool, records: Records, public: Draws | Stack, clip: float,
    more_room: int = 0,
) -> NDArray[np.int64]:  # fmt: skip
    """What the kernel adds for the first n records, by all threads: (K d, K d)."""
    groups, size = numba.get_num_threads(), public.theta.size
    totals = np.zeros((groups, size, size), dtype=np.int64)
    shares = [(g * n // groups, (g + 1) * n // groups) for g in range(groups)]
    room = np.empty((groups, size + more_room), dtype=np.float64)
    run(kernel, [(*share, p, intercept, records, public, clip, room[g], totals[g]) for g, share in enumerate(shares)])
    upper: NDArray[np.int64] = totals.sum(axis=0)
    return upper + np.triu(upper, 1).T
