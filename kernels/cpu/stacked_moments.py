"""Second moment of shortened stacked scores, on the CPU."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from pgbb_fast.kernels.arguments import Records, Stack, require_stack
from pgbb_fast.kernels.cpu import formulas
from pgbb_fast.kernels.cpu.compile import compiled
from pgbb_fast.kernels.cpu.moments import add_products, readers, summed
from pgbb_fast.kernels.layout import require_layout, stored
from pgbb_fast.kernels.scalar.clip import MAX_SQUARE
from pgbb_fast.kernels.scalar.moments import moment_factor
from pgbb_fast.kernels.specialise import specialise

_factor = numba.njit(moment_factor)

# bound by ``specialise`` for each loss, and for each way in which records are stored
slope: Any = None
has_scale = False
x_value: Any = None
y_value: Any = None


@numba.njit
def _mix(matrix, x, size, out):  # type: ignore[no-untyped-def]
    """A lower triangular matrix times x, in ``out``; returns the result's squared length."""
    squared = 0.0
    for j in range(size):
        out[j] = 0.0
        for i in range(j + 1):
            out[j] += matrix[j, i] * x[i]
        squared += out[j] * out[j]
    return squared


def _moments(first, last, p, intercept, records, stack, clip, room, total):  # type: ignore[no-untyped-def]
    """Add the products of the records ``first`` .. ``last`` - 1 to the upper triangle of ``total`` (L d, L d); ``room``
    is for L d + 2 m + 4 L numbers."""
    L, d = stack.theta.shape
    one = 1 if intercept else 0
    m, rest = p + one, L * d
    xbar, white = room[rest : rest + m], room[rest + m : rest + 2 * m]
    rest += 2 * m
    psi, chi, a, b = room[rest : rest + L], room[rest + L :], room[rest + 2 * L :], room[rest + 3 * L :]
    most = MAX_SQUARE * clip * clip
    for i in range(first, last):
        if intercept:
            xbar[0] = 1.0
        for j in range(p):
            xbar[one + j] = x_value(records, i, j)
        y = y_value(records, i, p)
        for k in range(L):
            eta = 0.0
            for j in range(m):
                eta += stack.theta[k, j] * xbar[j]
            scale = stack.theta[k, d - 1] if has_scale else 1.0
            psi[k], chi[k] = slope(y, eta, scale, stack.constants[k, 0], stack.constants[k, 1])
        of_x = _mix(stack.map, xbar, m, white)
        of_a = _mix(stack.mix, psi, L, a)
        of_b = _mix(stack.scale_mix, chi, L, b) if has_scale else 0.0
        if not (of_x <= MAX_SQUARE and of_a <= most and of_b <= most):     # or nan
            continue
        f = _factor(of_x, stack.feature_bound)
        factor = _factor(of_a * f * f * of_x + of_b, clip) / clip
        for k in range(L):
            for j in range(m):
                room[k * d + j] = a[k] * f * white[j] * factor
            if has_scale:
                room[k * d + m] = b[k] * factor
        add_products(room, L * d, total)


@cache
def _moments_for(loss: str, columnwise: bool, x_encoding: str, y_encoding: str) -> Callable[..., Any]:
    name = f"stacked_{loss}_{columnwise:d}{x_encoding}{y_encoding}"
    x_value, y_value = readers(name, columnwise, x_encoding, y_encoding)
    bound = {"slope": formulas.REGRESSION_SLOPES[loss], "has_scale": loss in formulas.WITH_SCALE}
    return compiled(specialise(_moments, name, x_value=x_value, y_value=y_value, **bound))


def stacked_moments(loss: str, intercept: bool, records: Records, stack: Stack) -> NDArray[np.int64]:
    """The sums without noise; same contract as ``reference.stacked_moments``.  Not a release."""
    require_stack(loss, stack, loss in formulas.WITH_SCALE)
    L, m = len(stack.mix), len(stack.map)
    p = m - intercept
    (x, x_encoding), (y, y_encoding) = stored(records.x), stored(records.y)
    by_rows = require_layout(loss, x, p + (y.size == 0))
    part = records._replace(x=x if by_rows else x.T, y=y)
    kernel = _moments_for(loss, not by_rows, x_encoding, y_encoding)
    theta, constants, whiten, mix, scale_mix = map(np.ascontiguousarray, stack[:5])
    stack = Stack(theta, constants, whiten, mix, scale_mix, float(stack.feature_bound), float(stack.clip))
    return summed(kernel, len(records.x), p, intercept, part, stack, stack.clip, 2 * m + 4 * L)
