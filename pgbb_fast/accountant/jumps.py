r"""Composition when delta is made by rare, large losses, where a single tilt cannot help.

With q tiny, the loss of a release is almost surely almost 0 and very rarely large, with a tail heavier than any
exponential: no tilt brings the tilted mean near epsilon without putting most weight on the largest losses, and the
transform's round-off, relative to 1, swamps delta.  So the lattice is split at a loss into bulk and jumps,
a = B + J with :math:`T \pi \ll 1`, pi the mass of J, and expanded:

.. math:: a^{*T} = \sum_{k \le K} \binom{T}{k} B^{*(T-k)} * J^{*k} + \text{rest}, \qquad
          \text{rest} \le (T \pi)^{K+1} / (K+1)!

Every term is composed with a tilt of its own, and its errors are relative to the term's own mass.  All terms are
non-negative, so leaving the rest out is a lower bound and counting it as infinite loss an upper one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from pgbb_fast.accountant.compose import Profile, atoms_of, compose, tilt_for_epsilon
from pgbb_fast.accountant.lattice import Lattice

_JUMPS = 1e-3  # expected number of jumps, at most
_MOST_TERMS = 16


@dataclass(frozen=True)
class Expansion:
    """Terms (log binomial coefficient, profile, largest loss, log mass), and the rest as a probability."""

    terms: tuple[tuple[float, Profile, float, float], ...]
    rest: float
    upper: bool

    def delta_at(self, epsilon: float) -> float:
        """The bound of delta at ``epsilon``."""
        total = self.rest if self.upper else 0.0
        for log_choose, profile, largest, log_mass in self.terms:
            if epsilon >= largest:
                continue
            y = epsilon - profile.origin
            if y > float(profile.x[-1]):
                value = float(profile.value[-1]) if self.upper else 0.0
            elif y >= 0:
                value = profile.delta_at(epsilon)
            elif self.upper:
                value = math.exp(min(log_mass, 0.0)) + profile.above
            else:
                value = float(profile.value[0])
            total += math.exp(log_choose) * max(value, 0.0)
        return min(total, 1.0)

    def epsilon_at(self, delta: float) -> float:
        """Where the bound falls to ``delta``, rounded to the safe side by bisection; 0 where it is below at once."""
        if self.delta_at(0.0) <= delta:
            return 0.0
        low, high = 0.0, max(t[2] for t in self.terms)
        if self.delta_at(high) > delta:
            return math.inf if self.upper else high
        for _ in range(80):
            middle = 0.5 * (low + high)
            if self.delta_at(middle) <= delta:
                high = middle
            else:
                low = middle
            if high - low <= 1e-9 * high:
                break
        return high if self.upper else low


def expand(lattice: Lattice, count: int, epsilon: float, log_delta: float, *, upper: bool) -> Expansion | None:
    """The expansion around ``epsilon``; ``None`` where no split leaves both parts non-empty."""
    above = np.cumsum(lattice.mass[::-1])[::-1]
    place = int(np.searchsorted(-above, -_JUMPS / count))
    if not 0 < place < len(lattice.mass) or not above[place] > 0:
        return None
    bulk = replace(lattice, mass=lattice.mass[:place])
    jump = Lattice(lattice.h, lattice.first + place, lattice.mass[place:], 0.0)
    expected = count * float(above[place]) * (1 + 1e-9)
    terms = []
    log_rest = 0.0
    for k in range(min(count, _MOST_TERMS) + 1):
        log_choose = math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) + 1e-12
        parts = [(bulk, count - k), (jump, k)]
        parts = [(p, n) for p, n in parts if n > 0]
        atoms = [atoms_of(p.h * (p.first + np.arange(len(p.mass))), p.mass, n) for p, n in parts]
        log_mass = sum(n * math.log(float(np.exp(a.log_mass).sum())) for a, (_, n) in zip(atoms, parts, strict=True))
        largest = sum(n * p.h * (p.first + len(p.mass) - 1) for p, n in parts)
        tilt = tilt_for_epsilon(atoms, min(epsilon, 0.999 * largest)) if largest > 0 else 0.0
        composed = compose(parts, tilt, log_delta - log_choose)
        terms.append((log_choose, composed.profile(0.0, upper=upper), largest, log_mass))
        bulk = replace(bulk, infinity=0.0)
        log_rest = (k + 1) * math.log(expected) - math.lgamma(k + 2)
        if log_rest < log_delta - 12:
            break
    rest = math.exp(log_rest) if len(terms) <= count else 0.0
    return Expansion(tuple(terms), rest + count * lattice.infinity, upper)
