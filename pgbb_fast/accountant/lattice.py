r"""From cells to a privacy-loss distribution on a lattice, rounded up or down and of second order in the cell.

*Upper (connect the dots; Doroshenko et al. 2022, arXiv:2207.04380).*  The masses (p, q) of a cell [e, e + h] are
split between its end points so that both are kept: up = (p - e^e q) / (1 - e^-h) goes to e + h.  The new pair's
hockey-stick curve joins the old one's values on the lattice by chords (in e^eps), so it dominates.

*Lower.*  Merging outcomes is post-processing, so it can only lower the curve.  Of each cell one share is merged
downward and one upward, the shares chosen so that what meets at a lattice point balances: the sum over what
comes from above of p - e^{ih} q equals that of e^{ih} q - p from below, and the merged outcome has loss i h
exactly.  What cannot be balanced is rounded down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.accountant.cells import FullCells, HalfCells

Array = NDArray[Any]


@dataclass(frozen=True)
class Lattice:
    """Masses under P at losses ``(first + i) h``, and mass ``infinity`` at infinite loss (0 in a lower bound)."""

    h: float
    first: int
    mass: Array
    infinity: float


def _split(p: Array, q: Array, p_error: Array, q_error: Array, e: Array, h: Array | float) -> tuple[Array, Array]:
    """Masses of P sent (down, up), errors going up."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled, scaled_error = np.exp(e) * q, np.exp(e) * q_error
    scaled = np.where(q > 0, scaled, 0.0)
    scaled_error = np.where(q_error > 0, scaled_error, 0.0)
    total = p + p_error
    with np.errstate(invalid="ignore"):
        up = (p - scaled + p_error + scaled_error + 4e-16 * (p + scaled)) / -np.expm1(-h)
    up = np.clip(np.where(np.isnan(up), total, up), 0.0, total)
    return total - up, up


def _capped(p: Array, q: Array, e: Array) -> Array:
    """What of ``p``, masses above the losses ``e``, may count as loss e, the rest being infinite: e^e q, rounded down.

    That connects the dots e and infinity: as long as the composed loss stays above epsilon nothing is lost.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        kept = np.exp(np.minimum(e, 600.0)) * q * (1 - 1e-9)
    result: Array = np.minimum(kept, p * (1 - 1e-9))
    return result


def upper_from_half(cells: HalfCells) -> Lattice:
    """Dominating lattice of a symmetric pair."""
    at, n = cells.edges, int(cells.edges[-1])
    e = cells.h * at
    width = np.diff(e)
    mass = np.zeros(2 * n + 1)  # index i + n is loss i h
    down, up = _split(cells.p, cells.q, cells.p_error, cells.q_error, e[:-1], width)
    mass[n + at[:-1]] += down
    mass[n + at[1:]] += up
    # the mirrored cells have P and Q exchanged
    down, up = _split(cells.q, cells.p, cells.q_error, cells.p_error, -e[1:], width)
    mass[n - at[1:]] += down
    mass[n - at[:-1]] += up
    mass[n] += cells.atom
    mass[n - at] += cells.below
    kept = _capped(cells.above, cells.below, e)
    mass[n + at] += kept
    return Lattice(cells.h, -n, mass, max(0.0, cells.beyond - float(kept.sum()) * (1 - 1e-15)))


def upper_from_full(cells: FullCells) -> tuple[Lattice, Lattice]:
    """Dominating lattices of a pair and of the exchanged pair."""
    h, n = cells.h, len(cells.p)
    e = h * (cells.first + np.arange(n))
    forward = np.zeros(n + 1)
    down, up = _split(cells.p, cells.q, cells.p_error, cells.q_error, e, h)
    forward[:-1] += down
    forward[1:] += up
    forward[0] += cells.p_below
    ends = np.array([cells.h * (cells.first + n), -cells.h * cells.first])
    kept = _capped(np.array([cells.p_above, cells.q_below]), np.array([cells.q_above, cells.p_below]), ends)
    forward[-1] += float(kept[0])
    backward = np.zeros(n + 1)  # index j is loss -(first + n - j) h
    down, up = _split(cells.q[::-1], cells.p[::-1], cells.q_error[::-1], cells.p_error[::-1], -(e + h)[::-1], h)
    backward[:-1] += down
    backward[1:] += up
    backward[0] += cells.q_above
    backward[-1] += float(kept[1])
    return (
        Lattice(h, cells.first, forward, cells.p_above * (1 + 1e-9) - float(kept[0])),
        Lattice(h, -(cells.first + n), backward, cells.q_below * (1 + 1e-9) - float(kept[1])),
    )


def lower_from_half(cells: HalfCells) -> Lattice:
    """Dominated lattice of a symmetric pair."""
    p = np.concatenate((cells.q[::-1], cells.p))
    p_error = np.concatenate((cells.q_error[::-1], cells.p_error))
    at, n = cells.edges, int(cells.edges[-1])
    both = np.concatenate((-at[:0:-1], at))
    mass = np.zeros(2 * n + 1)
    mass[n + both] = _merged(p, p[::-1], p_error, p_error[::-1], cells.h * both[:-1], cells.h * np.diff(both))
    mass[n] += max(cells.atom - cells.atom_error, 0.0)
    mass[n + at] += cells.above * (1 - 1e-9)
    return Lattice(cells.h, -n, mass, 0.0)


def lower_from_full(cells: FullCells) -> tuple[Lattice, Lattice]:
    """Dominated lattices of a pair and of the exchanged pair."""
    n = len(cells.p)
    e = cells.h * (cells.first + np.arange(n))
    width = np.full(n, cells.h)
    forward = _merged(cells.p, cells.q, cells.p_error, cells.q_error, e, width)
    forward[-1] += cells.p_above * (1 - 1e-9)
    backward = _merged(
        cells.q[::-1], cells.p[::-1], cells.q_error[::-1], cells.p_error[::-1], -(e + cells.h)[::-1], width
    )
    backward[-1] += cells.q_below * (1 - 1e-9)
    return Lattice(cells.h, cells.first, forward, 0.0), Lattice(cells.h, -(cells.first + n), backward, 0.0)


def _merged(p: Array, q: Array, p_error: Array, q_error: Array, e: Array, width: Array) -> Array:
    """Masses of P at the n + 1 lattice points around n cells after merging; see the module's text."""
    p = np.maximum(p - p_error, 0.0)
    q = np.maximum(q - q_error, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        grown, grown_error = np.exp(e) * q, np.exp(e) * q_error
        error = 2 * (p_error + grown_error) + 4e-16 * (p + grown)
        lift = np.nan_to_num(p - grown - error, nan=0.0, posinf=0.0, neginf=0.0)
        drag = np.exp(width) * (grown + error) - p
        drag = np.where(np.isfinite(drag), drag, np.finfo(np.float64).max)
    up = np.array(_shares(np.maximum(lift, 0.0).tolist(), np.maximum(drag, 0.0).tolist(), int(np.argmax(p))))
    mass = np.zeros(len(p) + 1)
    mass[:-1] += (1.0 - up) * p
    mass[1:] += up * p
    return mass * (1 - 1e-15)


def _shares(lift: list[float], drag: list[float], mode: int) -> list[float]:
    """The share of each cell that goes up; the rest goes down, whether it is needed for balance or not.

    At every lattice point, between the cells i - 1 and i, up[i-1] drag[i-1] <= down[i] lift[i].  The recursion
    contracts while the masses grow, so it runs from both ends to the mode.
    """
    n = len(lift)
    down, up = [0.5] * n, [0.0] * n
    for i in range(1, mode):
        rise = 1.0 - down[i - 1]
        weight, counter = rise * drag[i - 1], lift[i]
        if weight <= counter:
            down[i] = weight / counter if counter > 0 else 0.0
        else:
            rise = counter / drag[i - 1]
            down[i] = 1.0
        up[i - 1] = rise
    for i in range(n - 1, mode, -1):
        counter, weight = down[i] * lift[i], drag[i - 1]
        rise = 1.0 if counter >= weight else counter / weight  # weight > counter >= 0
        up[i - 1] = rise
        down[i - 1] = 1.0 - rise
    if mode > 0:
        rise, weight, counter = 1.0 - down[mode - 1], drag[mode - 1], down[mode] * lift[mode]
        up[mode - 1] = rise if rise * weight <= counter else counter / weight
    return up
