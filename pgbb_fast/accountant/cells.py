r"""Masses that a pair (P, Q) gives to cells of its privacy loss L = log dP/dQ.

Cells lie between points of the lattice h Z: [i h, (i+1) h], or wider ones where losses are rare.  For the symmetric
pairs only losses above 0 are computed, the rest follows by exchanging P and Q: that is the antipodal pair of
docs/accounting.md, section 1, and the pair of its section 5, whose two directions cross at L = 0.  All probabilities
are differences of normal upper tails, accurate relative to the tail at the cell's lower end, and each comes with a
bound on its rounding error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Edges = NDArray[np.int64]

UNIT = 2.0**-53


@dataclass(frozen=True)
class HalfCells:
    """Cells i = 0..len(p)-1 of a symmetric pair; the i-th is [``edges[i]`` h, ``edges[i + 1]`` h].

    ``p``, ``q`` are the masses under P and Q with absolute errors at most ``p_error``, ``q_error``; ``atom`` is the
    mass at L = 0 exactly (the same under both), at most ``atom_error`` too large; ``beyond`` the mass of P
    above the last cell of each node.
    ``above[i]`` is that mass again, known to lie above ``edges[i]`` h, and ``below[i]`` mass of P that lies anywhere
    below -``edges[i]`` h; neither is counted in a cell.
    """

    h: float
    edges: Edges
    p: Array
    q: Array
    p_error: Array
    q_error: Array
    atom: float
    atom_error: float
    beyond: float
    above: Array
    below: Array


@dataclass(frozen=True)
class FullCells:
    """Cells ``first`` .. ``first + len(p) - 1`` of any pair; masses outside are ``*_above`` and ``*_below``."""

    h: float
    first: int
    p: Array
    q: Array
    p_error: Array
    q_error: Array
    p_above: float
    p_below: float
    q_above: float
    q_below: float


def normal_tail(x: Array) -> Array:
    """Upper tail of N(0, 1); relative error at most ``tail_error``."""
    from scipy.special import ndtr

    result: Array = ndtr(-x)
    return result


def tail_error(x: Array) -> Array:
    """Relative error allowed to ``normal_tail``: the exponential of x^2/2 is rounded in its argument (tested)."""
    result: Array = UNIT * (8 + 2 * x * x)
    return result


def _followed(r: Array, weight: Array, cut: float) -> tuple[Array, Array, Array, float]:
    """Nodes worth following, their reach, and the mass of the others."""
    reach = node_reach(weight, cut)
    seen = reach > 0
    return r[seen], weight[seen], reach[seen], float(weight[~seen].sum())


def _nothing(h: float, atom: float, omitted: float) -> HalfCells:
    zero = np.zeros(1)
    return HalfCells(h, np.arange(2), zero, zero, zero, zero, atom, 4 * UNIT * atom, omitted, np.zeros(2), np.zeros(2))


def largest_loss(r: Array, q: float, reach: Array) -> Array:
    """Loss of the antipodal pair at x = r + ``reach``."""
    x = r + reach
    log_q = math.log(q)
    log_1q = math.log1p(-q) if q < 1 else -math.inf
    half = r * r / 2
    top = np.logaddexp(log_1q, log_q + r * x - half)
    bottom = np.logaddexp(log_1q, log_q - r * x - half)
    result: Array = top - bottom
    return result


def node_reach(weight: Array, cut: float) -> Array:
    """How far above r each node is followed so that what is cut of it has mass at most ``cut``; 0: left out.

    The cut-off mass of P is at most weight Phi(-reach) <= weight exp(-reach^2 / 2) / 2.
    """
    with np.errstate(divide="ignore"):
        result: Array = np.sqrt(2 * np.maximum(np.log(weight) - math.log(cut), 0.0))
    return result


def antipodal_cells(
    r: Array, weight: Array, q: float, h: float, cut: float, cap: float, edges: Edges | None = None
) -> HalfCells:
    r"""Cells of the mixture over (r, weight) of (1-q) N(0,1) + q N(+-r,1).

    The threshold of loss e is :math:`x = [e/2 + \operatorname{asinh}(a \sinh(e/2))]/r`,
    :math:`a = e^{r^2/2} (1-q)/q` (docs/accounting.md, section 3).  Each node is cut at ``node_reach``
    and at the loss ``cap``.
    """
    zero = r < 1e-150
    atom = float(weight[zero].sum())
    r, weight, reach, omitted = _followed(r[~zero], weight[~zero], cut)
    if len(r) == 0:
        return _nothing(h, atom, omitted)
    edges, count = _counted(np.minimum(largest_loss(r, q, reach), cap) / h, edges)
    node, index = _ragged(count)
    e = h * edges[index]
    rn = r[node]
    log_a = rn * rn / 2 + (math.log1p(-q) - math.log(q) if q < 1 else -math.inf)
    x = (e / 2 + _asinh_exp(log_a + _log_sinh(e / 2))) / rn
    tail0, tail_plus, tail_minus = normal_tail(x), normal_tail(x - rn), normal_tail(x + rn)
    wn = weight[node]
    p_tail = wn * ((1 - q) * tail0 + q * tail_plus)
    q_tail = wn * ((1 - q) * tail0 + q * tail_minus)
    done = _collect(h, edges, index, count, p_tail, q_tail, tail_error(np.abs(x) + rn), atom)
    return replace(done, beyond=done.beyond + omitted)


def resampled_cells(
    r: Array, weight: Array, p: float, h: float, cut: float, cap: float, edges: Edges | None = None
) -> HalfCells:
    r"""Cells above 0 of the mixture over (r, weight) of (1-p) N(0,1) + p N(r,1) against N(0,1).

    Below 0 the other direction is the larger and has the same cells with P and Q exchanged, so the pointwise
    maximum of both hockey-stick curves is this symmetric pair (docs/accounting.md, section 5).  That the first
    direction is the larger for every epsilon >= 0: with t = e^eps - 1 both are p H_k(N(r,1), N(0,1)) type
    divergences, the second with a smaller factor and a larger k.
    """
    whole = float(weight.sum())
    r, weight, reach, omitted = _followed(r, weight, cut)
    top = np.logaddexp(math.log1p(-p) if p < 1 else -math.inf, math.log(p) + r * (r / 2 + reach))
    edges, count = _counted(np.clip(top, 0.0, cap) / h, edges)
    node, index = _ragged(count)
    e = h * edges[index]
    rn = r[node]
    big = e > 30
    log_ratio = np.where(
        big, e - math.log(p) + np.log1p(-(1 - p) * np.exp(-e)), np.log1p(np.expm1(np.minimum(e, 31.0)) / p)
    )
    x = log_ratio / rn + rn / 2
    tail0, tail_plus = normal_tail(x), normal_tail(x - rn)
    wn = weight[node]
    p_tail = wn * ((1 - p) * tail0 + p * tail_plus)
    cells = _collect(h, edges, index, count, p_tail, wn * tail0, tail_error(np.abs(x) + rn), 0.0)
    start = np.flatnonzero(index == 0)
    rest = whole - omitted - float(p_tail[start].sum()) - float((wn * tail0)[start].sum())
    slack = 4 * UNIT * (len(r) + 4)
    return replace(cells, atom=max(rest, 0.0) + slack, atom_error=2 * slack, beyond=cells.beyond + omitted)


def one_sided_cells(r: float, q: float, h: float, cut: float, cap: float) -> FullCells:
    """Cells of P = (1-q) N(0,1) + q N(r,1) against Q = N(0,1) (record removed; exchange for record added)."""
    log_1q = math.log1p(-q) if q < 1 else -math.inf

    reach = float(node_reach(np.ones(1), cut)[0])

    def loss(x: float) -> float:
        return float(np.logaddexp(log_1q, math.log(q) + r * x - r * r / 2))

    first, last = math.floor(max(loss(-reach), -cap) / h), math.ceil(min(loss(r + reach), cap) / h)
    e = h * np.arange(first, last + 1.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        inner = np.where(e > 0, e + np.log1p(-(1 - q) * np.exp(-np.abs(e))), np.log(np.expm1(np.minimum(e, 0.0)) + q))
        x = np.where(np.isnan(inner), -np.inf, (inner - math.log(q)) / r + r / 2)
    x0_mass, x0_error, above0, below0 = _between(x)
    x1_mass, x1_error, above1, below1 = _between(x - r)
    return FullCells(
        h,
        first,
        (1 - q) * x0_mass + q * x1_mass,
        x0_mass,
        (1 - q) * x0_error + q * x1_error,
        x0_error,
        (1 - q) * above0 + q * above1,
        (1 - q) * below0 + q * below1,
        above0,
        below0,
    )


def _between(x: Array) -> tuple[Array, Array, float, float]:
    """Normal masses between successive x (ascending, maybe -inf first), errors, and the masses outside."""
    upper, lower = normal_tail(x), normal_tail(-x)
    high = x[:-1] > 0
    mass = np.where(high, upper[:-1] - upper[1:], lower[1:] - lower[:-1])
    finite = np.where(np.isfinite(x), x, 0.0)
    scale = np.where(high, upper[:-1], lower[1:])
    rough = np.maximum(tail_error(finite[:-1]), tail_error(finite[1:]))
    return np.maximum(mass, 0.0), 2 * scale * rough, float(upper[-1]), float(lower[0])


def _counted(top: Array, edges: Edges | None) -> tuple[Edges, Edges]:
    """Edges (as many as are needed, and one more) and the number of the first one past ``top``, one more at least."""
    if edges is None:
        edges = np.arange(math.ceil(float(top.max())) + 2)
    else:
        missing = math.ceil(float(top.max())) + 1 - int(edges[-1])
        edges = np.append(edges, edges[-1] + np.arange(1, max(missing, 0) + 2))
    return edges, np.maximum(np.searchsorted(edges, top), 1)


def _ragged(count: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Node and edge index of every edge, node by node: node k has edges 0..count[k]."""
    edges = count + 1
    node = np.repeat(np.arange(len(count)), edges)
    start = np.repeat(np.cumsum(edges) - edges, edges)
    return node, np.arange(len(node)) - start


def _collect(
    h: float,
    edges: Edges,
    index: NDArray[np.int64],
    count: NDArray[np.int64],
    p_tail: Array,
    q_tail: Array,
    relative: Array,
    atom: float,
) -> HalfCells:
    """Sum over nodes of differences of tails; the last edge of each node is its cut."""
    cells = int(count.max())
    last = np.cumsum(count + 1) - 1
    inner = np.ones(len(index), dtype=bool)
    inner[last] = False
    where = index[inner]
    p = np.bincount(where, (p_tail[:-1] - p_tail[1:])[inner[:-1]], minlength=cells)
    q = np.bincount(where, (q_tail[:-1] - q_tail[1:])[inner[:-1]], minlength=cells)
    p_error = 2 * np.bincount(where, (p_tail * relative)[inner], minlength=cells)
    q_error = 2 * np.bincount(where, (q_tail * relative)[inner], minlength=cells)
    beyond = float(p_tail[last].sum())
    above = np.bincount(count, p_tail[last], minlength=cells + 1)
    below = np.bincount(count, q_tail[last], minlength=cells + 1)
    return HalfCells(
        h, edges[: cells + 1], p, q, p_error, q_error, atom, 4 * UNIT * atom, beyond * (1 + 1e-9), above, below
    )


def _log_sinh(y: Array) -> Array:
    """log sinh y for y >= 0."""
    with np.errstate(divide="ignore"):
        result: Array = y + np.log(-np.expm1(-2 * y)) - math.log(2.0)
    return result


def _asinh_exp(z: Array) -> Array:
    """asinh(e^z)."""
    result: Array = np.arcsinh(np.exp(np.minimum(z, 300.0))) + np.maximum(z - 300.0, 0.0)
    return result
