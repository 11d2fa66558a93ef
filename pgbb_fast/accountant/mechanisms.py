"""What is released: frozen, keyword-only descriptions of mechanisms, apart from what they cost.

Nothing here computes a privacy loss.  Each description says under which neighbour relation it is accounted,
into how many independent releases it decomposes, and refuses parameters outside its domain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

from pgbb_fast.errors import DomainError
from pgbb_fast.validation import between, integer, one_of, probability

Minibatch = Literal["shared", "independent"]
Adjacency = Literal["replace-one", "add-remove"]
LEAST, MOST = 1e-50, 1e50     # of real parameters, so that their squares and quotients are finite
MIN_DELTA = 1e-100            # of a guarantee
MIN_EPSILON = 1e-15           # to calibrate to: double precision tells 1 from e^epsilon
MAX_COUNT = 2**53              # of whole ones, up to which double precision is exact


class Bounds(NamedTuple):
    """A bracket: ``lower <= truth <= upper``; ``upper`` is the safe side."""

    lower: float
    upper: float


def gamma_star(*, n: int, n_blocks: int) -> float:
    r"""Calibrated Dirichlet concentration :math:`\gamma^*(n, S) = (S (n+1) - 2 n) / (S (n-1))`.

    The root of the leading variance gap between the blocked and the ordinary Bayesian bootstrap
    (docs/method.md, section 2).  It depends on public numbers only.

    Parameters
    ----------
    n : int
        Records; when ``n_blocks`` does not divide ``n`` the ``n mod n_blocks`` records left over by the
        partition take no part and ``n_blocks * (n // n_blocks)`` replaces ``n``.
    n_blocks : int
        Blocks S, ``3 <= n_blocks <= n``.

    Returns
    -------
    float
        In (0, 1].
    """
    n = integer("gamma_star", "n", n, 3)
    n_blocks = integer("gamma_star", "n_blocks", n_blocks, 3, n, "each block needs at least one record")
    used = n_blocks * (n // n_blocks)
    return (n_blocks * (used + 1) - 2 * used) / (n_blocks * (used - 1))


def _noise(who: str, value: float | None) -> float | None:
    return None if value is None else between(who, "noise_multiplier", value, LEAST, MOST)


@dataclass(frozen=True, kw_only=True)
class BlockedGaussian:
    r"""Noisy, Poisson-subsampled gradient sums with public Dirichlet block weights.

    One release is :math:`Y = \sum_{i \in B} w_i\, \mathrm{clip}_C(g_i) + \sigma Z` with
    :math:`w_i = u_{\pi(i)} / n_S`, :math:`u \sim \mathrm{Dirichlet}(\gamma 1_S)` public and fresh for each
    draw.  Neighbours: replace one record.  Add-remove isn't offered: n is public and sets the blocks, gamma* and every
    weight, so one record more changes the law of all of them, which no theorem here covers.

    Parameters
    ----------
    n, n_blocks : int
        Records and blocks S, ``3 <= n_blocks <= n``.
    sampling_rate : float
        Poisson inclusion probability q in (0, 1].
    steps : int
        Training steps T.
    minibatch : {"shared", "independent"}
        Whether the K draws of a step see one minibatch or K independent ones.  These are different
        mechanisms; there is no default.
    gamma : float, optional
        Dirichlet concentration; ``None`` means ``gamma_star(n=n, n_blocks=n_blocks)``.
    draws_per_step : int
        Draws K per step.
    noise_multiplier : float, optional
        :math:`\sigma n_S / C`, dimensionless; ``None`` where it is to be calibrated.
    """

    n: int
    n_blocks: int
    sampling_rate: float
    steps: int
    minibatch: Minibatch
    gamma: float | None = None
    draws_per_step: int = 1
    noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        who = "BlockedGaussian"
        integer(who, "n", self.n, 3, MAX_COUNT)
        integer(who, "n_blocks", self.n_blocks, 3, self.n, "each block needs at least one record")
        probability(who, "sampling_rate", self.sampling_rate)
        integer(who, "steps", self.steps, 1, MAX_COUNT)
        integer(who, "draws_per_step", self.draws_per_step, 1, MAX_COUNT)
        one_of(who, "minibatch", self.minibatch, ("shared", "independent"))
        if self.gamma is not None:
            between(who, "gamma", self.gamma, LEAST, MOST)
        _noise(who, self.noise_multiplier)

    @property
    def adjacency(self) -> Adjacency:
        """Always ``"replace-one"``."""
        return "replace-one"

    @property
    def block_size(self) -> int:
        """Records per block, ``n // n_blocks``."""
        return self.n // self.n_blocks

    @property
    def concentration(self) -> float:
        """The Dirichlet concentration in force: ``gamma``, or gamma* where that is ``None``."""
        return gamma_star(n=self.n, n_blocks=self.n_blocks) if self.gamma is None else float(self.gamma)

    @property
    def releases(self) -> int:
        """Independent releases composed: T K, or T where the draws of a step share a minibatch."""
        return self.steps if self.minibatch == "shared" else self.steps * self.draws_per_step

    @property
    def draws_per_release(self) -> int:
        """Draws in one composed release: 1, or K where the draws of a step share a minibatch."""
        return self.draws_per_step if self.minibatch == "shared" else 1


@dataclass(frozen=True, kw_only=True)
class SubsampledGaussian:
    r"""The plain Poisson-subsampled Gaussian mechanism (DP-SGD), for cross-checks.

    Parameters
    ----------
    sampling_rate : float
        Poisson inclusion probability in (0, 1]; 1 is the plain Gaussian mechanism.
    steps : int
        Releases composed.
    adjacency : {"add-remove", "replace-one"}
        Neighbour relation; there is no default.  Under ``"replace-one"`` two contributions of norm at most C
        may point in opposite directions, so a full batch has sensitivity 2 C.
    noise_multiplier : float, optional
        Noise standard deviation over C, the norm bound of *one* record's contribution, under either relation.
    """

    sampling_rate: float
    steps: int
    adjacency: Adjacency
    noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        who = "SubsampledGaussian"
        probability(who, "sampling_rate", self.sampling_rate)
        integer(who, "steps", self.steps, 1, MAX_COUNT)
        one_of(who, "adjacency", self.adjacency, ("add-remove", "replace-one"))
        _noise(who, self.noise_multiplier)

    @property
    def releases(self) -> int:
        """Releases composed."""
        return self.steps


@dataclass(frozen=True, kw_only=True)
class ResampledGaussian:
    r"""The private m-out-of-n bootstrap: B noisy estimates on subsamples drawn with replacement.

    Parameters
    ----------
    n : int
        Records.
    resample_size : int
        Draws m, with replacement, per replicate.
    replicates : int
        Replicates B.
    noise_multiplier : float, optional
        :math:`\sigma / \Delta(m) = 1 / \mu_B`, with :math:`\Delta(m)` the sensitivity of the estimate to
        replacing one of its m records.

    Notes
    -----
    Neighbours: replace one record; add-remove isn't offered, as n is public and sets the probability of every record.
    The privacy of any estimate released beside the replicates is not
    included.
    """

    n: int
    resample_size: int
    replicates: int
    noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        who = "ResampledGaussian"
        integer(who, "n", self.n, 2, MAX_COUNT)
        integer(who, "resample_size", self.resample_size, 1, MAX_COUNT)
        integer(who, "replicates", self.replicates, 1, MAX_COUNT)
        _noise(who, self.noise_multiplier)

    @property
    def adjacency(self) -> Adjacency:
        """Always ``"replace-one"``."""
        return "replace-one"

    @property
    def releases(self) -> int:
        """Releases composed: the replicates."""
        return self.replicates

    @property
    def log_exclusion(self) -> float:
        """log p0, the logarithm of the probability that a given record is in no place of a resample."""
        return self.resample_size * math.log1p(-1.0 / self.n)


Mechanism: TypeAlias = BlockedGaussian | SubsampledGaussian | ResampledGaussian


def check_mechanism(who: str, mechanism: object) -> Mechanism:
    """``mechanism`` if it is one; a clear refusal for anything else, numbers in particular."""
    if not isinstance(mechanism, (BlockedGaussian, SubsampledGaussian, ResampledGaussian)):
        raise DomainError(
            f"{who}: the first argument must be a BlockedGaussian, SubsampledGaussian or ResampledGaussian, "
            f"got {type(mechanism).__name__}; describe the mechanism first and pass numbers by keyword"
        )
    return mechanism


def check_noise(who: str, mechanism: Mechanism) -> float:
    """The mechanism's noise multiplier; refuses ``None``."""
    if mechanism.noise_multiplier is None:
        raise DomainError(
            f"{who}: the mechanism's noise_multiplier is None; set it, or call noise_multiplier(...) to calibrate it"
        )
    return float(mechanism.noise_multiplier)


def with_noise(mechanism: Mechanism, noise: float) -> Mechanism:
    """A copy of ``mechanism`` with the noise multiplier ``noise``."""
    return replace(mechanism, noise_multiplier=noise)


def with_count(mechanism: Mechanism, count: int) -> Mechanism:
    """A copy of ``mechanism`` with ``count`` steps (replicates)."""
    if isinstance(mechanism, ResampledGaussian):
        return replace(mechanism, replicates=count)
    return replace(mechanism, steps=count)


def deterministic(mechanism: BlockedGaussian) -> SubsampledGaussian:
    r"""The same training accounted without the Dirichlet weights' law: every weight at its bound 1/n_S.

    For comparison only: a valid bound, and about fourteen times the noise at the reference case.  The K draws
    of a shared minibatch are one release of K blocks, of norm :math:`\sqrt K` times one block's.
    """
    who = "deterministic"
    if not isinstance(mechanism, BlockedGaussian):
        raise DomainError(f"{who}: needs a BlockedGaussian, got {type(mechanism).__name__}")
    noise = mechanism.noise_multiplier
    return SubsampledGaussian(
        sampling_rate=mechanism.sampling_rate,
        steps=mechanism.releases,
        adjacency="replace-one",
        noise_multiplier=None if noise is None else noise / math.sqrt(mechanism.draws_per_release),
    )
