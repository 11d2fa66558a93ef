"""Second moment of the shortened stacked scores, on the CPU, in double precision."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from pgbb_fast.kernels.arguments import Records, Stack, require_stack
from pgbb_fast.kernels.cpu import formulas, moments
from pgbb_fast.kernels.cpu.columns import NUMBER
from pgbb_fast.kernels.cpu.compile import compiled, specialise
from pgbb_fast.kernels.cpu.layout import require_layout, stored
from pgbb_fast.kernels.cpu.moments import SAFE
from pgbb_fast.kernels.cpu.threads import run
from pgbb_fast.kernels.scalar.clip import GRID, MOST_SQUARE
from pgbb_fast.kernels.scalar.moments import moment_factor

_factor = numba.njit(moment_factor)

slope: Any = None
has_scale = False
x_value: Any = None
y_value: Any = None


def _products(first, last, intercept, records, stack, room, total):  # type: ignore[no-untyped-def]
    """Add v v' / C^2 of the records ``first`` .. ``last`` - 1 to the upper triangle of ``total`` (L d, L d); ``room``
    holds (1, x), x~, a and b, then v."""
    L, d = stack.theta.shape
    m = stack.map.shape[0]
    one = 1 if intercept else 0
    a_at, v_at = 2 * m, 2 * m + 2 * L
    for i in range(first, last):
        if intercept:
            room[0] = 1.0
        for j in range(m - one):
            room[one + j] = x_value(records, i, j)
        square = 0.0
        for j in range(m):
            mapped = 0.0
            for k in range(j + 1):
                mapped += stack.map[j, k] * room[k]
            room[m + j] = mapped
            square += mapped * mapped
        weight = _factor(square, stack.feature_bound)
        y = y_value(records, i, m - one)
        for k in range(L):
            eta = 0.0
            for j in range(m):
                eta += stack.theta[k, j] * room[j]
            scale = stack.theta[k, d - 1] if has_scale else 1.0
            by_eta, by_scale = slope(y, eta, scale, stack.constants[k, 0], stack.constants[k, 1])
            room[a_at + k] = by_eta / stack.clip
            room[a_at + L + k] = by_scale / stack.clip
        length, scale_length = 0.0, 0.0
        for back in range(L):       # from the last up: those before are still what they were
            k = L - 1 - back
            mixed, scale_mixed = 0.0, 0.0
            for t in range(k + 1):
                mixed += stack.mix[k, t] * room[a_at + t]
                if has_scale:
                    scale_mixed += stack.scale_mix[k, t] * room[a_at + L + t]
            room[a_at + k], room[a_at + L + k] = mixed, scale_mixed
            length += mixed * mixed
            scale_length += scale_mixed * scale_mixed
        factor = _factor(length * weight * weight * square + scale_length, 1.0)
        if not (square <= MOST_SQUARE and length <= MOST_SQUARE and factor > 0.0):
            continue
        for k in range(L):
            for j in range(m):
                room[v_at + k * d + j] = room[a_at + k] * weight * factor * room[m + j]
            if has_scale:
                room[v_at + k * d + m] = room[a_at + L + k] * factor
        for r in range(L * d):
            left = room[v_at + r] * (SAFE * GRID)
            for c in range(r, L * d):
                total[r, c] += np.int64(left * room[v_at + c])


@cache
def _products_for(loss: str, columnwise: bool, x_encoding: str, y_encoding: str) -> Callable[..., Any]:
    name = f"{loss}_{columnwise:d}{x_encoding}{y_encoding}"

    def part(template: Callable[..., Any], **bound: Any) -> Any:
        return numba.njit(specialise(template, name, **bound))

    def number(encoding: str) -> Any:
        if encoding:
            return part(moments._encoded_number, number=NUMBER[encoding])
        return part(moments._plain_number)

    x_value = part(moments._x_value, columnwise=columnwise, x_number=number(x_encoding))
    y_value = part(moments._y_value, x_value=x_value, y_number=number(y_encoding))
    scale = loss in formulas.WITH_SCALE
    found = formulas.REGRESSION_SLOPES[loss]
    return compiled(specialise(_products, name, slope=found, has_scale=scale, x_value=x_value, y_value=y_value))


def stacked_moments(loss: str, intercept: bool, records: Records, stack: Stack) -> NDArray[np.int64]:
    """The sums without noise; same contract as ``reference.stacked_moments``.  Not a release."""
    require_stack(loss, stack, loss in formulas.WITH_SCALE)
    L, d = stack.theta.shape
    m = len(stack.map)
    n = len(records.x)
    (x, x_encoding), (y, y_encoding) = stored(records.x), stored(records.y)
    by_rows = require_layout(loss, x, m - intercept + (y.size == 0))
    part = records._replace(x=x if by_rows else x.T, y=y)
    groups, size = numba.get_num_threads(), L * d
    totals = np.zeros((groups, size, size), dtype=np.int64)
    shares = [(g * n // groups, (g + 1) * n // groups) for g in range(groups)]
    kernel = _products_for(loss, not by_rows, x_encoding, y_encoding)
    room = np.empty((groups, 2 * m + 2 * L + size), dtype=np.float64)
    run(kernel, [(*share, intercept, part, stack, room[g], totals[g]) for g, share in enumerate(shares)])
    upper: NDArray[np.int64] = totals.sum(axis=0)
    return upper + np.triu(upper, 1).T
