r"""Composition when delta is made by rare, large losses, where a single tilt cannot help.

With q tiny, the loss of a release is almost surely almost 0 and very rarely large, with a tail heavier than any
exponential: no tilt brings the tilted mean near epsilon without putting most weight on the largest losses, and the
transform's round-off, relative to 1, swamps delta.  So the lattice is split at a loss into bulk and jumps,
a = B + J with :math:`T \pi \ll 1`, pi the mass of J, and expanded:

.. math:: a^{*T} = \sum_{k \le K} \binom{T}{k} B^{*(T-k)} * J^{*k} + \text{rest}, \qquad
          \text{rest} \le (T \pi)^{K+1} / (K+1)!

Every term is composed with a tilt of its own, and its errors are relative to the term's own mass; which terms are
sharp depends on the place of the split, so several are tried.  All terms are non-negative, so leaving the rest out is
a lower bound and counting it as infinite loss an upper one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pgbb_fast.accountant.compose import Profile, atoms_of, compose, transform_tilt
from pgbb_fast.accountant.lattice import Lattice

_JUMPS = 1e-3  # expected number of jumps above the highest place to split at that does not look at epsilon
_MAX_JUMPS = 0.5  # expected number of jumps, at most
_SHARES = (0.5, 0.25, 0.8)  # further places to split at, as shares of epsilon
_MAX_TERMS = 24
_REST = -12.0  # log of the share of delta that the rest may have


@dataclass(frozen=True)
class Term:
    """One number of jumps: log of the binomial coefficient, composed profile, largest loss, log of the mass."""

    log_choose: float
    profile: Profile
    largest: float
    log_mass: float

    def at(self, epsilon: float, upper: bool) -> tuple[float, float]:
        """The term's bound at ``epsilon``, and what of it is for round-off."""
        if epsilon >= self.largest:
            return 0.0, 0.0
        profile = self.profile
        factor = math.exp(self.log_choose)
        y = epsilon - profile.origin
        if y > float(profile.x[-1]):
            return (factor * max(float(profile.value[-1]), 0.0) if upper else 0.0), 0.0
        if y >= 0:
            return factor * max(profile.delta_at(epsilon), 0.0), factor * profile.blur_at(y)
        if upper:
            return factor * (math.exp(min(self.log_mass, 0.0)) + profile.above), 0.0
        return factor * max(float(profile.value[0]), 0.0), 0.0


@dataclass(frozen=True)
class Expansion:
    """The terms, and the rest as a probability."""

    terms: tuple[Term, ...]
    rest: float
    upper: bool

    def delta_at(self, epsilon: float) -> float:
        """The bound of delta at ``epsilon``."""
        total = self.rest if self.upper else 0.0
        return min(total + sum(term.at(epsilon, self.upper)[0] for term in self.terms), 1.0)

    def margin_at(self, epsilon: float) -> float:
        """What of the bound is for round-off."""
        return sum(term.at(epsilon, self.upper)[1] for term in self.terms)

    def epsilon_at(self, delta: float) -> float:
        """Where the bound falls to ``delta``, rounded to the safe side by bisection; 0 where it is below at once."""
        if self.delta_at(0.0) <= delta:
            return 0.0
        low, high = 0.0, max(term.largest for term in self.terms)
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


def expansions(
    lattices: Sequence[tuple[Lattice, int]], epsilon: float, log_delta: float, *, upper: bool
) -> Iterator[Expansion]:
    """Expansions around ``epsilon``, each split elsewhere: any of them is a bound."""
    index = max(range(len(lattices)), key=lambda i: _expected(*lattices[i], epsilon / 2))
    lattice, count = lattices[index]
    others = [pair for i, pair in enumerate(lattices) if i != index]
    above = np.cumsum(lattice.mass[::-1])[::-1]
    place = int(np.searchsorted(-above, -_JUMPS / count))
    places = [place] + [math.ceil(share * epsilon / lattice.h) - lattice.first for share in _SHARES]
    tried = set()
    for place in places:
        if place in tried or not 0 < place < len(lattice.mass) or not 0 < above[place] <= _MAX_JUMPS / count:
            continue
        tried.add(place)
        yield _expand(lattice, count, others, place, epsilon, log_delta, upper)


def _expected(lattice: Lattice, count: int, loss: float) -> float:
    """Expected number of losses above ``loss``."""
    place = max(0, math.ceil(loss / lattice.h) - lattice.first)
    return count * float(lattice.mass[place:].sum())


def _expand(
    lattice: Lattice,
    count: int,
    others: Sequence[tuple[Lattice, int]],
    place: int,
    epsilon: float,
    log_delta: float,
    upper: bool,
) -> Expansion:
    bulk = replace(lattice, mass=lattice.mass[:place], infinity=0.0)
    jump = Lattice(lattice.h, lattice.first + place, lattice.mass[place:], 0.0)
    expected = count * float(jump.mass.sum()) * (1 + 1e-9)
    terms = []
    log_rest = -math.inf
    finite = [(replace(p, infinity=0.0), n) for p, n in others]
    for k in range(min(count, _MAX_TERMS) + 1):
        log_choose = math.log(math.comb(count, k)) + (1e-14 if upper else -1e-14) * k
        parts = [(p, n) for p, n in ((bulk, count - k), (jump, k), *finite) if n > 0]
        atoms = [atoms_of(p.h * (p.first + np.arange(len(p.mass))), p.mass, n) for p, n in parts]
        log_mass = sum(n * math.log(float(np.exp(a.log_mass).sum())) for a, (_, n) in zip(atoms, parts, strict=True))
        largest = sum(n * p.h * (p.first + len(p.mass) - 1) for p, n in parts)
        sought = min(epsilon, 0.999 * largest)
        tilt = transform_tilt(atoms, sought, log_delta - log_choose) if largest > 0 else 0.0
        profile = compose(parts, tilt, log_delta - log_choose).profile(0.0, upper=upper)
        terms.append(Term(log_choose, profile, largest, log_mass))
        log_rest = (k + 1) * math.log(expected) - math.lgamma(k + 2)
        if log_rest < log_delta + _REST:
            break
    rest = math.exp(log_rest) if len(terms) <= count else 0.0
    infinite = sum(n * p.infinity for p, n in ((lattice, count), *others))
    return Expansion(tuple(terms), rest + infinite, upper)
