"""Which share of the budget each release gets: a rule of public numbers, chosen with bench/real_data.py and
bench/simulation.py.

A release with the share a of mu^2 has the noise multiplier s / sqrt(a), s that of one plain Gaussian release at the
whole budget (standard deviation over half the sensitivity).  In what follows a step's *reach* is the length of the
noise of the mean gradients at the whole budget, as a displacement, over the residual scale:

    reach = s C / n * sqrt(d) * max_t R_t / density_t,

R_t and density_t of rule t (``Stacking.spread``, ``Loss.density``).  It is known before any record is looked at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from pgbb_fast.budget.gaussian import FEATURES, GRADIENT, SCORE
from pgbb_fast.losses import Loss
from pgbb_fast.release.stacking import LENGTH, Stacking, public_length, stacking

__all__ = ["Schedule", "groups", "schedule"]

ROUND = 0.02  # share of one round of whitening
ROUNDS = 2
COARSE = 0.12  # noise of the second round's eigenvalues from which there is a third
SCORES = 0.03  # share of the scores' second moment
CENTRAL, JOINT = 14, 12  # steps of the search for the central rule, and for all
STEADY = 0.15  # length of the noise of a step of the search that is wanted, in residual scales
SEARCH = 0.01, 0.10  # shares of a search, least and most
MIN_SLOPE = 8  # steps for the slope, at least
LOCATION = 16  # steps for the location
SLOPE = np.linspace(0.03, 0.45, 211)  # shares of the steps for the slope that are tried
NARROW, FAR = 0.15, 0.4  # least and largest displacement for the slope, in residual scales
WIDENED = 3.0  # (d + 1) times the squared error of an entry of H over f: by so much squared widths grow


@dataclass(frozen=True)
class Schedule:
    """Releases in their order, and where they are asked for.

    Attributes
    ----------
    rounds : int
        Second moments of the features.
    central, joint, slope, location : int
        Steps: the search for the central rule, for all rules, displaced ones for H, and those at the centre.
    shares : tuple of float
        Share of mu^2 of each release, in order: rounds, central, joint, slope, location, the scores' moment; they sum
        to at most 1.
    displacement : float
        Length of the displacements for H, in residual scales.
    reach : float
        See the module's text; that of the joint steps.
    length : float
        B over sqrt(m), where mapped features are shortened.
    kappa : float
        Standard deviation of privacy noise over that of sampling, at the whole budget.
    """

    rounds: int
    central: int
    joint: int
    slope: int
    location: int
    shares: tuple[float, ...]
    displacement: float
    reach: float
    length: float
    kappa: float

    def widening(self, d: int, size: float = 1.0) -> float:
        """Predicted width of an interval over the non-private one's, for d coordinates.

        ``size`` is the second moment of the mixed slopes, 1 under a correct model.
        """
        privacy = self.kappa**2 / (self.location_share * size)
        error = self.reach / self.displacement / math.sqrt(self.slope_share)
        return math.sqrt((1.0 + privacy) * (1.0 + WIDENED * (d + 1) * error**2))

    @property
    def slope_share(self) -> float:
        """Share of the budget that H rests on."""
        return math.fsum(self.shares[-1 - self.location - self.slope : -1 - self.location])

    @property
    def steps(self) -> int:
        """All releases: passes over the records."""
        return len(self.shares)

    @property
    def location_share(self) -> float:
        """Share of the budget that the location rests on."""
        return math.fsum(self.shares[-1 - self.location : -1])


def schedule(loss: Loss, n: int, d: int, s: float) -> Schedule:
    """The releases for n records and d coordinates at the noise multiplier ``s`` of the whole budget."""
    m, first = d - loss.has_scale, loss.central()
    roomy = public_length(loss, m, n, s)
    stack, first_stack = stacking(loss, m, roomy), stacking(first, m, roomy)
    reach = _reach(loss, stack, n, d, s)
    # the largest eigenvalue of a symmetric matrix of normal entries is about sqrt(2 d) times an off-diagonal one's
    edge = 2.0 * math.sqrt(d) * s / math.sqrt(ROUND) * math.sqrt(0.5) * LENGTH**2 * d / n
    rounds = ROUNDS + (edge > COARSE)
    first_share, joint = (
        min(max(SEARCH[0], steps * (own / STEADY) ** 2), SEARCH[1])
        for steps, own in ((CENTRAL, _reach(first, first_stack, n, d, s)), (JOINT, reach))
    )
    rest = 1.0 - (rounds * ROUND + first_share + joint + SCORES)
    least = min(max(NARROW, hall_sheather(loss, n)), FAR)
    kappa = s * stack.clip / math.sqrt(n)
    wide, displacement = _balance(reach, kappa, d, rest, np.linspace(least, FAR, 126))
    slope = 2 * d * math.ceil(MIN_SLOPE / (2 * d))
    location = rest - wide
    parts = ((rounds, rounds * ROUND), (CENTRAL, first_share), (JOINT, joint), (slope, wide), (LOCATION, location))
    shares = tuple(share / steps for steps, share in parts for _ in range(steps))
    return Schedule(rounds, CENTRAL, JOINT, slope, LOCATION, (*shares, SCORES), displacement, reach, roomy, kappa)


def groups(plan: Schedule) -> list[tuple[str, int, float]]:
    """The releases of ``plan`` in groups of one noise multiplier: name, steps, share of each."""
    counts = (plan.rounds, plan.central, plan.joint, plan.slope, plan.location, 1)
    names = (FEATURES, GRADIENT, GRADIENT, GRADIENT, GRADIENT, SCORE)
    found, place = [], 0
    for name, count in zip(names, counts, strict=True):
        found.append((name, count, plan.shares[place]))
        place += count
    return found


def _balance(reach: float, kappa: float, d: int, rest: float, lengths: NDArray[np.float64]) -> tuple[float, float]:
    """Share and displacement of the steps for H with the least predicted squared width,

        (1 + kappa^2 / (rest - share)) (1 + 3 (d + 1) e^2) (1 + c^2),    e = reach / (c sqrt(share)),

    kappa^2 the privacy variance over the sampling variance at the whole budget, e the error of an entry of H over f for
    2 d displacements of length c in pairs, and c^2 about the relative bias of H by the loss's fourth derivative.
    """
    share, length = SLOPE[:, None], lengths[None, :]
    share = np.minimum(share, 0.9 * rest)
    width = (1.0 + kappa**2 / (rest - share)) * (1.0 + length**2)
    width = width * (1.0 + WIDENED * (d + 1) * reach**2 / (length**2 * share))
    best = np.unravel_index(int(width.argmin()), width.shape)
    return float(share[best[0], 0]), float(length[0, best[1]])


def _reach(loss: Loss, stack: Stacking, n: int, d: int, s: float) -> float:
    density = np.array([loss.density(rule) for rule in range(len(loss.rules))])
    return float(s * stack.clip / n * math.sqrt(d) * (stack.spread / density).max())


def hall_sheather(loss: Loss, n: int) -> float:
    """Largest bandwidth of Hall and Sheather (1988) over the levels, in probability, over the density at the median,
    for normal errors: a smaller displacement sees the sample's own unevenness instead of the density."""
    if not loss.is_quantile:
        return 0.0
    z = ndtri(np.asarray(loss.rules))
    phi = np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)
    share = n ** (-1.0 / 3.0) * 1.96 ** (2.0 / 3.0) * (1.5 * phi**2 / (2.0 * z**2 + 1.0)) ** (1.0 / 3.0)
    return float(share.max()) / 0.4
