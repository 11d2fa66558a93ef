"""The bag of little bootstraps with private quantiles: BLBquant (Chadha, Duchi and Kuditipudi 2024, arXiv:2402.07131).

The records are split at random into s subsets.  In each, bootstrap resamples of size n give the quantiles of
sqrt(n) (theta* - theta_subset); a record touches one subset, so the median over subsets of such a quantile changes its
rank by at most one and the exponential mechanism releases it.  This follows the paper's idea, not its code: the grid,
the utility and the budget's split are ours.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from pgbb_fast import validation as check
from pgbb_fast.accountant.orders import epsilon_from_moments
from pgbb_fast.accountant.roots import bracket_root
from pgbb_fast.bootstrap.releases import Secret, noise_sd, release_estimate, require_grid
from pgbb_fast.bootstrap.statistic import Statistic, Task
from pgbb_fast.budget import Budget
from pgbb_fast.errors import DomainError
from pgbb_fast.kernels import reference
from pgbb_fast.posterior import AffineMap, Posterior, Shapes
from pgbb_fast.privacy import ADJACENCY, Circumstances, guarantee, outward, require_guarantee
from pgbb_fast.releases import Keys
from pgbb_fast.silence import unseen
from pgbb_fast.spending import Spender

__all__ = ["BLBQuantiles", "LittlePosterior", "LittleReport", "median_weights", "spent"]

Array = NDArray[np.float64]
PURPOSE_MEDIAN = 5  # beside those of kernels.scalar.random and of resampling
BITS = 190  # of the largest weight of a cell
CELLS = 60  # of a root's size, that the medians are chosen from
RATIO = 2.0 ** (1.0 / 8.0)  # between their edges
LEAST_SUBSET = 10


@dataclass(frozen=True)
class LittleReport(Circumstances):
    """What was spent: ``medians`` exponential mechanisms of ``median_epsilon`` each, and one Gaussian release.

    Attributes
    ----------
    epsilon, delta : float
        An upper bound of epsilon at ``delta`` for everything together.
    estimate_multiplier : float
        Noise of the estimate over its sensitivity.
    budget : float, optional
        The epsilon that was asked for.
    """

    epsilon: float
    delta: float
    medians: int
    median_epsilon: float
    estimate_multiplier: float
    n: int
    subsets: int
    adjacency: str = ADJACENCY
    budget: float | None = None

    def recomputed(self) -> float:
        """Epsilon at ``delta`` of the mechanisms named, by this version's accountant."""
        return spent(concentrated(self.medians, self.median_epsilon, self.estimate_multiplier), self.delta)

    def sentence(self) -> str:
        """The guarantee in a sentence, for a publication."""
        epsilon, delta = guarantee(self)
        return (
            f"({epsilon}, {delta})-differential privacy under {self.adjacency} adjacency "
            f"(n = {self.n} public): one noisy estimate, noise multiplier {self.estimate_multiplier:.6g}, and "
            f"{self.medians} medians over {self.subsets} subsets by the exponential mechanism, each "
            f"{outward(self.median_epsilon)}-differentially private."
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> LittleReport:
        """Inverse of :meth:`to_dict`."""
        require_guarantee(values)
        for name in ("median_epsilon", "estimate_multiplier"):
            check.positive("privacy", name, values[name])
        for name, least in (("medians", 2), ("n", 1), ("subsets", 3)):
            check.integer("privacy", name, values[name], least)
        return cls(**values)


def concentrated(medians: int, median_epsilon: float, estimate_multiplier: float) -> float:
    """rho of zero-concentrated differential privacy: medians eps^2 / 8 + 1 / (2 nu^2).

    An exponential mechanism that is eps-private by its utility's sensitivity is eps-bounded-range, hence
    eps^2/8-zCDP (Cesar and Rogers 2021, ALT, PMLR 132); the Gaussian: Bun and Steinke (2016), proposition 1.6.
    """
    return medians * median_epsilon**2 / 8.0 + 0.5 / estimate_multiplier**2


def spent(rho: float, delta: float) -> float:
    """Epsilon at ``delta`` of rho-zCDP: Renyi moments order (order - 1) rho, converted as in accountant.orders."""
    return epsilon_from_moments(lambda order: order * (order - 1.0) * rho, delta, "cks")


def calibrate(n: int, subsets: int, medians: int, *, epsilon: float, delta: float, share: float) -> LittleReport:
    """``share`` of the budget's rho to the estimate, the rest evenly to the medians; within the budget, to 1e-5."""

    def excess(log_inverse: float) -> float:
        got = spent(math.exp(-log_inverse), delta)
        return math.log(got / epsilon) if got > 0.0 else -math.inf

    rho = math.exp(-bracket_root(excess, 0.0, who="BLBQuantiles", low=-20.0, high=60.0).good)
    each = math.sqrt(8.0 * rho * (1.0 - share) / medians) * (1.0 - 1e-12)
    multiplier = math.sqrt(0.5 / (rho * share)) * (1.0 + 1e-12)
    total = spent(concentrated(medians, each, multiplier), delta)
    return LittleReport(total, delta, medians, each, multiplier, n, subsets, budget=epsilon)


def median_weights(values: Array, edges: Array, epsilon: float) -> list[int]:
    """The exponential mechanism for the cell with a median (McSherry and Talwar 2007; Smith 2011).

    Integers proportional to the probabilities of the cells [0, e_1], (e_1, e_2], ..., (e_(K-1), inf) that ``edges``
    e_1 < ... < e_K end, (K,).  The utility of a cell is minus the number of values that would have to move for it to
    hold a median: -max(0, #{values below it} - s/2, s/2 - #{values not above it}), 0 for the cell that holds it.
    Replacing one of the s values moves each count, hence the utility, by at most 1, so weights with a ratio of at most
    exp(epsilon / 2) between utilities that differ by 1 are epsilon-private.  Exactly: the weight of utility -k/2 is the
    k-th of W_0 = 2^``BITS``, W_(k+1) = ceil(W_k r), r a fraction of at least exp(-epsilon / 4), so that
    W_k / W_(k+2) <= 1 / r^2.
    """
    s = len(values)
    upto = (values[:, None] <= edges).sum(axis=0)
    upto[-1] = s
    below = np.concatenate([[0], upto[:-1]])
    halves = np.maximum(0, np.maximum(2 * below - s, s - 2 * upto)).tolist()
    ratio = math.nextafter(math.nextafter(math.exp(-epsilon / 4.0), 2.0), 2.0)
    up, down = min(1.0, ratio).as_integer_ratio()
    table = [1 << BITS]
    while len(table) <= max(halves):
        table.append(-(-table[-1] * up // down))
    return [table[k] for k in halves]


def _release_median(values: Array, edges: Array, epsilon: float, secret: Secret, number: int) -> float:
    """The upper edge of one cell, chosen in integers with 512 bits of the secret stream: within 2^-300 of the law."""
    weights = median_weights(values, edges, epsilon)
    words = reference.words(secret.key, PURPOSE_MEDIAN, number, np.zeros(1, dtype=np.int64))[0]
    place = int.from_bytes(words.astype("<u4").tobytes(), "little") * sum(weights) >> 512
    return float(edges[bisect_right(list(accumulate(weights)), place)])


class LittlePosterior(Posterior):
    """An estimate and the sizes of the interval's two sides at one level, each as released.

    Draws are of the two-piece normal law (half below, half above the estimate) whose quantiles at that level are the
    interval's ends: the release says no more about the shape.
    """

    kind = "little-bootstraps"
    _report: ClassVar[Any] = LittleReport

    def __init__(
        self,
        estimate: Array,
        sides: Array,
        *,
        level: float,
        to_natural: AffineMap,
        names: Sequence[str],
        privacy: LittleReport,
        rules: Sequence[float] = (),
    ) -> None:
        super().__init__(rules=rules, to_natural=to_natural, names=names, privacy=privacy)
        self._estimate, self._sides, self.level = estimate, sides, level

    @property
    def _scales(self) -> Array:
        """Standard deviations below and above, (2, d)."""
        return np.asarray(self._sides / ndtri((1.0 + self.level) / 2.0))

    def interval(self, level: float = 0.95, **options: Any) -> Array:
        """The released interval at its own level; at others, scaled as a normal law's; (d, 2).  In units that mix the
        coordinates, quantiles of the draws instead."""
        z = float(ndtri((1.0 + check.between("interval", "level", level, 0.0, 1.0)) / 2.0))
        drawn = super().interval(level, **options) if options else None     # refuses options as the other kinds do
        matrix = self._to_natural.matrix
        if not np.array_equal(matrix, np.diag(np.diag(matrix))):
            return super().interval(level) if drawn is None else drawn
        below, above = z * self._scales
        ends = np.stack([self._estimate - below, self._estimate + above], axis=0)
        return np.asarray(self._to_natural(ends).T)

    def _unit_draws(self, size: int, rules: Sequence[float], rng: np.random.Generator) -> Array:
        z = rng.standard_normal((size, len(self._estimate)))
        return np.asarray(self._estimate + z * np.where(z < 0.0, *self._scales))[:, None, :]

    def _saved(self) -> tuple[dict[str, Array], dict[str, Any]]:
        return {"estimate": self._estimate, "sides": self._sides}, {"level": self.level}

    @classmethod
    def _shapes(cls, d: int, rules: int, settings: dict[str, Any]) -> Shapes:
        return {"estimate": (d,), "sides": (2, d)}

    @classmethod
    def _restored(cls, arrays: dict[str, Array], settings: dict[str, Any], common: dict[str, Any]) -> Self:
        check.between("little bootstraps", "level", settings["level"], 0.0, 1.0)
        if common["privacy"].medians != arrays["sides"].size or not (arrays["sides"] >= 0.0).all():
            raise DomainError("the sides are not the medians of the privacy report")
        return cls(arrays["estimate"], arrays["sides"], level=settings["level"], **common)


class BLBQuantiles(Spender):
    """Confidence intervals at one level from private medians of little bootstraps' quantiles.

    Parameters
    ----------
    statistic : Mean, RegularisedRegression or Custom
        The estimate is released with Gaussian noise and rests on its sensitivity; the medians rest on nothing.
    epsilon, delta : float
    level : float
        Of the interval; fixed here, because the ends are what is released.
    subsets : int, optional
        s; by default 32 over a median's epsilon, but at least 10 and at most n / 10.
    resamples : int
        In each subset.
    estimate_share : float
        Share of the budget's rho that goes to the estimate.
    root_bound : float, optional
        Public bound of the size of a root's quantile, in unit coordinates; l by default (a mean's root has a standard
        deviation of at most l / 2).
        Its size is told to a factor of 2^(1/8), in 60 steps down from there, rounded up.
    seed : int, optional
        For tests and audits only.
    """

    _who = "BLBQuantiles"

    def __init__(
        self,
        statistic: Statistic,
        *,
        epsilon: float,
        delta: float,
        level: float = 0.95,
        subsets: int | None = None,
        resamples: int = 100,
        estimate_share: float = 0.5,
        root_bound: float | None = None,
        seed: int | None = None,
    ) -> None:
        who = self._who
        if not isinstance(statistic, Statistic):
            raise DomainError(f"{who}: statistic must be a Mean, RegularisedRegression or Custom")
        self.statistic = statistic
        self.epsilon = check.positive(who, "epsilon", epsilon)
        self.delta = check.between(who, "delta", delta, 0.0, 1.0)
        self.level = check.between(who, "level", level, 0.0, 1.0)
        self.subsets = None if subsets is None else check.integer(who, "subsets", subsets, 3)
        self.resamples = check.integer(who, "resamples", resamples, 20)
        self.estimate_share = check.between(who, "estimate_share", estimate_share, 0.0, 1.0)
        self.root_bound = None if root_bound is None else check.positive(who, "root_bound", root_bound)
        self.seed = None if seed is None else check.integer(who, "seed", seed, 0)

    def __repr__(self) -> str:
        seed = "" if self.seed is None else ", undone by its seed"
        return f"{self._who}({type(self.statistic).__name__}{seed}, {self._state()})"

    @property
    def posterior_(self) -> LittlePosterior:
        """The released posterior."""
        posterior: LittlePosterior = self._require_fitted()
        return posterior

    @property
    def privacy_(self) -> LittleReport:
        """What was spent, on what, under which adjacency."""
        report = self.posterior_.privacy
        assert isinstance(report, LittleReport)
        return report

    def plan(self, n: int, d: int = 1) -> LittleReport:
        """What ``fit`` on n records of a statistic with d coordinates will spend; touches no record."""
        check.integer(self._who, "n", n, 3 * LEAST_SUBSET)
        check.integer(self._who, "d", d, 1)
        budget: dict[str, float] = {"epsilon": self.epsilon, "delta": self.delta, "share": self.estimate_share}
        first = calibrate(n, 0, 2 * d, **budget)
        most = n // LEAST_SUBSET
        subsets = self.subsets or min(most, max(10, math.ceil(32.0 / first.median_epsilon)))
        if not 3 <= subsets <= most:
            raise DomainError(f"{self._who}: {n} records can't fill {subsets} subsets of {LEAST_SUBSET}")
        return replace(calibrate(n, subsets, 2 * d, **budget), undone_by_seed=self.seed is not None)

    @unseen()
    def fit(self, X: Any, y: Any = None, *, budget: Budget | None = None) -> Self:
        """Spend the budget; errors as for :meth:`MOutOfNBootstrap.fit`."""
        task = self.statistic.task(self._who, X, y)
        report = self.plan(task.n, len(task.box))
        self._afford(report, budget)
        require_grid(self._who, task, task.n, report.estimate_multiplier)
        keys = Keys.fresh(self.seed)
        secret = Secret(keys.secret)
        top = self.root_bound or task.l
        edges = np.asarray(top * RATIO ** -np.arange(CELLS, dtype=np.float64)[::-1], dtype=np.float64)
        records = task.load()
        report = self._start(report, budget)
        estimate = release_estimate(task, records, secret, report.estimate_multiplier)
        own = math.sqrt(task.n) * noise_sd(task, task.n, report.estimate_multiplier)
        quantiles = self._quantiles(task, records, report.subsets, own, keys.partition)
        sides = np.empty((2, len(task.box)))
        for j in range(sides.shape[1]):
            for side in range(2):
                values = np.maximum(quantiles[:, side, j], 0.0)
                sides[side, j] = _release_median(values, edges, report.median_epsilon, secret, 2 * j + side)
        posterior = LittlePosterior(
            estimate,
            sides / math.sqrt(task.n),
            level=self.level,
            to_natural=task.to_natural,
            names=task.names,
            privacy=report,
        )
        self._finish(report, _posterior=posterior)
        return self

    def _quantiles(self, task: Task, records: Any, subsets: int, own: float, seed: int) -> Array:
        """Sizes of the sides below and above of each subset's interval, (s, 2, d).

        [theta - q_hi, theta - q_lo] / sqrt(n), q the quantiles of sqrt(n) (theta* - theta_subset) plus the noise that
        the estimate has.  Which records are where, and who is resampled, are independent of the data; they need not be
        secret, and are drawn from a public seed.
        """
        rng = np.random.default_rng(seed)
        order = rng.permutation(task.n)
        tail = (1.0 - self.level) / 2.0
        size = task.n // subsets
        out = np.empty((subsets, 2, len(task.box)))
        for s in range(subsets):
            members = order[s * size : (s + 1) * size]
            whole = task.above(records, members[None])
            index = members[rng.integers(size, size=(self.resamples, task.n))]
            root = math.sqrt(task.n) * (task.above(records, index) - whole)
            root = root + own * rng.standard_normal(root.shape)
            high, low = np.quantile(root, [1.0 - tail, tail], axis=0)
            out[s] = high, -low
        return out
