"""The methods that are compared.  A method is one line: a name, and what makes a fitted posterior of it.

To add one, add a line: ``"name": lambda cell, seed, X, y: SomeEstimator(...).fit(X, y).posterior_``.
Every method gets the same public bounds and the same budget.  Names with "not private" are references.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import simulation
from bench.paper import bootstraps
from bench.real_data import Source
from bench.simulation import Cell
from pgbb_fast import PrivateMean, PrivateQuantileRegressor
from pgbb_fast.baselines import (
    DPSGLD,
    NoisyGibbsMean,
    NoisyGibbsRegressor,
    NoisyNewton,
    NonPrivateBayesianBootstrap,
)
from pgbb_fast.posteriors.base import Posterior

Array = NDArray[np.float64]
REFERENCE = "exact bootstrap (not private)"
PAPER_GRID = (0.1, 0.3, 0.5, 0.7, 0.9)      # o_k = (2 k - 1) / 10


def _gibbs(cell: Cell, seed: int) -> NoisyGibbsRegressor:
    bounds: dict[str, Any] = {"x_bounds": [(-1, 1)] * 3, "y_bounds": (-simulation.Y_BOUND, simulation.Y_BOUND)}
    return NoisyGibbsRegressor(epsilon=cell.epsilon, delta=1.0 / cell.n, seed=seed, iterations=400_000, **bounds)


# figure 3: (cell, seed, X, y) -> posterior of (intercept, x1, x2, x3[, scale])
REGRESSION: dict[str, Callable[[Cell, int, Array, Array], Posterior]] = {
    "noise-aware": lambda cell, seed, X, y: cell.model(seed, geometry="box").fit(X, y).posterior_,
    "noise-aware, scores": lambda cell, seed, X, y: cell.model(seed).fit(X, y).posterior_,
    "generator": lambda cell, seed, X, y: cell.model(seed, posterior="generator").fit(X, y).posterior_,
    "DP-SGLD": lambda cell, seed, X, y: DPSGLD(cell.model(seed), steps=20_000).fit(X, y).posterior_,
    "NoisyGibbs": lambda cell, seed, X, y: _gibbs(cell, seed).fit(X, y).posterior_,
    "noisy Newton": lambda cell, seed, X, y: NoisyNewton(cell.model(seed)).fit(X, y).posterior_,
    **{
        name: (lambda cell, seed, X, y, name=name: bootstraps.fit(name, cell, seed, X, y))
        for name in bootstraps.NOISE
    },
    # 200 draws, to save time: an interval of theirs covers about .94 of their law, not .95
    REFERENCE: lambda cell, seed, X, y: (
        NonPrivateBayesianBootstrap("huber", draws=200, seed=seed).fit(X, y).posterior_
    ),
}

# figure 3(b): gamma = 1 against gamma* at S = 5; table S6: K = 10 against K = 1
CONCENTRATION = {
    f"{kind}, S = {S}, gamma {word}": (
        lambda cell, seed, X, y, kind=kind, S=S, gamma=gamma: (
            cell.model(seed, posterior=kind, n_blocks=S, gamma=gamma).fit(X, y).posterior_
        )
    )
    for kind in ("noise-aware", "generator")
    for S in (5, 20)
    for word, gamma in (("1", 1.0), ("star", None))
}
DRAWS_PER_STEP = {
    f"{kind}, K = {K}": (
        lambda cell, seed, X, y, kind=kind, K=K: (
            cell.model(seed, posterior=kind, draws_per_step=K).fit(X, y).posterior_
        )
    )
    for kind in ("noise-aware", "generator")
    for K in (1, 10)
}


@dataclass(frozen=True)
class MeanCell:
    """N(1.5, 0.25) or Exp with mean 2; delta = 1 / n.  Public bounds: 5 standard deviations, or 7.5 means."""

    law: str
    n: int
    epsilon: float

    @property
    def truth(self) -> float:
        """E X."""
        return 1.5 if self.law == "normal" else 2.0

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """Public bounds of x."""
        return [(-1.0, 4.0)] if self.law == "normal" else [(0.0, 15.0)]

    def data(self, replicate: int) -> Array:
        """(n, 1)."""
        rng = np.random.default_rng([7, replicate, self.n, round(10 * self.epsilon), len(self.law)])
        draw = rng.normal(1.5, 0.5, self.n) if self.law == "normal" else rng.exponential(2.0, self.n)
        return np.asarray(draw)[:, None]

    def model(self, seed: int, **settings: Any) -> PrivateMean:
        """The mean, from clipped records."""
        budget = {"epsilon": self.epsilon, "delta": 1.0 / self.n, "seed": seed}
        return PrivateMean(x_bounds=self.bounds, **budget, **settings)

    def likelihood(self, seed: int) -> DPSGLD:
        """Langevin dynamics on the working log likelihood: a normal one of known variance, or the exponential law's,
        whose gradient (1/theta - x/theta^2, unit coordinates) is clipped at 50.  Curvature 1, or about 56: hence the
        step size."""
        if self.law == "normal":
            return DPSGLD(self.model(seed), omega=4.0, steps=2_000, sampling_rate=1.0)
        model = self.model(seed, loss="exponential", clip=50.0, coef_bounds=[(0.5, 15.0)])
        return DPSGLD(model, steps=2_000, sampling_rate=1.0, step_size=4e-4)

    def gibbs(self, seed: int) -> NoisyGibbsMean:
        """The conjugate family."""
        budget: dict[str, Any] = {"epsilon": self.epsilon, "delta": 1.0 / self.n, "seed": seed}
        return NoisyGibbsMean(x_bounds=self.bounds, family=self.law, iterations=200_000, **budget)

    def bootstrap(self, method: str, seed: int, X: Array) -> Posterior:
        """A private bootstrap of the mean."""
        budget = {"epsilon": self.epsilon, "delta": 1.0 / self.n, "seed": seed}
        return bootstraps.fit_mean(method, self.bounds, budget, X)


# figure 4: (cell, seed, X) -> posterior of the mean
MEANS: dict[str, Callable[[MeanCell, int, Array], Posterior]] = {
    "noise-aware": lambda cell, seed, X: cell.model(seed).fit(X).posterior_,
    "generator": lambda cell, seed, X: cell.model(seed, posterior="generator").fit(X).posterior_,
    "DP-SGLD": lambda cell, seed, X: cell.likelihood(seed).fit(X).posterior_,
    "NoisyGibbs": lambda cell, seed, X: cell.gibbs(seed).fit(X).posterior_,
    "noisy Newton": lambda cell, seed, X: NoisyNewton(cell.model(seed), steps=5).fit(X).posterior_,
    **{name: (lambda cell, seed, X, name=name: cell.bootstrap(name, seed, X)) for name in bootstraps.NOISE},
    REFERENCE: lambda cell, seed, X: NonPrivateBayesianBootstrap("mean", seed=seed).fit(X).posterior_,
}


@dataclass(frozen=True)
class QuantileCell:
    """One data set at one epsilon, the paper's five levels jointly."""

    source: Source
    epsilon: float
    delta: float = 1e-5

    def model(self, seed: int, **settings: Any) -> PrivateQuantileRegressor:
        """The joint quantile regression, with the bounds that bench/real_data.py states."""
        return PrivateQuantileRegressor(
            tau=PAPER_GRID,
            x_bounds=self.source.x_bounds,
            y_bounds=self.source.y_bounds,
            degrees=self.source.degrees,
            feature_names=tuple(self.source.x_bounds),
            epsilon=self.epsilon,
            delta=self.delta,
            seed=seed,
            **settings,
        )

    def langevin(self, seed: int, omega: float) -> DPSGLD:
        """T = 50,000 (the paper's 200,000 only add noise)."""
        return DPSGLD(self.model(seed), omega=omega, steps=50_000, sampling_rate=0.02)


# table 1, figures 5 and 6: (cell, seed, X, y) -> joint posterior over the grid
QUANTILES: dict[str, Callable[[QuantileCell, int, Array, Array], Posterior]] = {
    "noise-aware": lambda cell, seed, X, y: cell.model(seed, geometry="box").fit(X, y).posterior_,
    "noise-aware, scores": lambda cell, seed, X, y: cell.model(seed).fit(X, y).posterior_,
    "generator": lambda cell, seed, X, y: cell.model(seed, posterior="generator").fit(X, y).posterior_,
    "DP-SGLD, omega 1": lambda cell, seed, X, y: cell.langevin(seed, 1.0).fit(X, y).posterior_,
    "DP-SGLD, omega 0.1": lambda cell, seed, X, y: cell.langevin(seed, 0.1).fit(X, y).posterior_,
    "noisy Newton": lambda cell, seed, X, y: NoisyNewton(cell.model(seed), steps=8).fit(X, y).posterior_,
}
assert math.isclose(sum(PAPER_GRID), 2.5)
