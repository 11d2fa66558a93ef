"""The private bootstraps of the figures: their statistic, its ridge by a public rule, and the target that it makes.

For the regressions they need an estimate of bounded sensitivity: Huber's, with a ridge inside the mean and a fixed c.
So what they estimate is not the coefficients but the penalised ones, b(r) = argmin E rho_c(y - x'b) + r |b|^2 / 2.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from bench import simulation
from bench.simulation import Cell
from pgbb_fast.accountant import noise_multiplier
from pgbb_fast.bootstrap import BLBQuantiles, DPBootstrap, Mean, MOutOfNBootstrap, RegularisedRegression
from pgbb_fast.budget.bootstrap import PLAIN
from pgbb_fast.posteriors.base import Posterior

Array = NDArray[np.float64]
REPLICATES = 20     # of the paper's "DP-Bootstrap (20)"
# Public guesses, the same in every cell.  The errors' scale is that of their middle: as if known, which favours these
# methods.  A feature is uniform on [-1, 1] (variance 1/3), and a coefficient has a fifth of y's bound.
SCALE = 0.5
CURVATURE = 1.0 / 3.0
SIZE = simulation.Y_BOUND / 5.0
SPREAD = SCALE / math.sqrt(CURVATURE)       # standard deviation of sqrt(n) times a coefficient
ROOTS = 8.0         # standard deviations that bound a root's quantile; BLBquant's grid goes down to 1/180 of that
SETTINGS: dict[str, Any] = {"loss": "huber", "c": simulation.C * SCALE}


def statistic(ridge: float) -> RegularisedRegression:
    """The penalised regression over the bounds that all methods get."""
    y_bounds = (-simulation.Y_BOUND, simulation.Y_BOUND)
    return RegularisedRegression([(-1, 1)] * 3, ridge, y_bounds=y_bounds, **SETTINGS)


def _budget(cell: Cell, seed: int | None = None) -> dict[str, Any]:
    return {"epsilon": cell.epsilon, "delta": 1.0 / cell.n, "seed": seed}


def best_ridge(noise: float) -> float:
    """The ridge r with the least predicted squared error of a coefficient, (SIZE r / (CURVATURE + r))^2 + (noise/r)^2.

    ``noise`` is the standard deviation of the released centre at r = 1, in y's units: the sensitivity goes like 1/r.
    """

    def error(log_ridge: float) -> float:
        r = math.exp(log_ridge)
        return (SIZE * r / (CURVATURE + r)) ** 2 + (noise / r) ** 2

    return float(math.exp(optimize.minimize_scalar(error, bounds=(-20.0, 5.0), method="bounded").x))


def _n_of_n_noise(cell: Cell) -> float:
    plan = DPBootstrap(statistic(1.0), replicates=REPLICATES, **_budget(cell)).plan(cell.n)
    return plan.replicate_sd / math.sqrt(REPLICATES)        # the centre is the replicates' mean


def _m_of_n_noise(cell: Cell) -> float:
    whole = noise_multiplier(PLAIN, epsilon=cell.epsilon, delta=1.0 / cell.n) / 2.0
    return whole / math.sqrt(0.5) * statistic(1.0).l / cell.n       # of the estimate, at a share of 1/2


def _little_noise(cell: Cell) -> float:
    one = statistic(1.0)
    return BLBQuantiles(one, **_budget(cell)).plan(cell.n, 4).estimate_multiplier * one.l / cell.n


NOISE: dict[str, Callable[[Cell], float]] = {
    "DP-Bootstrap (20)": _n_of_n_noise,
    "m of n, least width": _m_of_n_noise,
    "BLBquant": _little_noise,
}


@functools.cache
def ridge(method: str, n: int, epsilon: float) -> float:
    """The ridge of a method in a cell: a function of public numbers."""
    cell = Cell("t3", n, epsilon)       # of which only n and epsilon count
    return best_ridge(simulation.Y_BOUND * NOISE[method](cell))


def _made(method: str, cell: Cell, seed: int) -> DPBootstrap | MOutOfNBootstrap | BLBQuantiles:
    """The estimator; ``SPREAD`` in unit coordinates of y is what the last two plan with."""
    penalised = statistic(ridge(method, cell.n, cell.epsilon))
    budget, spread = _budget(cell, seed), SPREAD / simulation.Y_BOUND
    if method == "DP-Bootstrap (20)":
        return DPBootstrap(penalised, replicates=REPLICATES, **budget)
    if method == "m of n, least width":
        return MOutOfNBootstrap(penalised, sizes="width", spread=spread / penalised.l, **budget)
    noise = BLBQuantiles(penalised, **budget).plan(cell.n, 4).estimate_multiplier * penalised.l / math.sqrt(cell.n)
    return BLBQuantiles(penalised, root_bound=ROOTS * math.hypot(spread, noise), **budget)


def fit(method: str, cell: Cell, seed: int, X: Array, y: Array) -> Posterior:
    """Posterior of (intercept, x1, x2, x3), penalised."""
    return _made(method, cell, seed).fit(X, y).posterior_


def fit_mean(method: str, bounds: list[tuple[float, float]], budget: dict[str, Any], X: Array) -> Posterior:
    """Posterior of the mean, with each method's own settings (no ridge is needed)."""
    mean = Mean(bounds)
    if method == "DP-Bootstrap (20)":
        return DPBootstrap(mean, replicates=REPLICATES, **budget).fit(X).posterior_
    if method == "m of n, least width":
        return MOutOfNBootstrap(mean, sizes="width", **budget).fit(X).posterior_
    return BLBQuantiles(mean, **budget).fit(X).posterior_


def survival(errors: str, e: Array) -> Array:
    """P(error > e) of the simulated laws."""
    if errors == "t3":
        return np.asarray(stats.t.sf(2.0 * e, 3))
    return np.asarray(0.9 * stats.norm.sf(e / 0.5) + 0.1 * stats.norm.sf(e / 4.0))


@functools.cache
def target(errors: str, ridge: float) -> tuple[float, ...]:
    """b(ridge), (intercept, x1, x2, x3), by Gauss-Legendre quadrature over the features and the errors.

    Solves E x psi_c(x'(beta - b) + e) = ridge b, with E psi_c(d + e) = -c + int_{-c}^{c} P(e > u - d) du.
    y's bounds do not matter: residuals near them are beyond c either way.
    """
    node, weight = np.polynomial.legendre.leggauss(12)
    x = np.array([(a, b, c) for a in node for b in node for c in node])
    mass = np.prod([(u, v, w) for u in weight for v in weight for w in weight], axis=1) / 8.0
    u, du = np.polynomial.legendre.leggauss(40)
    c = SETTINGS["c"]

    def equation(b: Array) -> Array:
        d = x @ (simulation.TRUTH[1:] - b)
        slope = -c + survival(errors, c * u - d[:, None]) @ (c * du)
        return np.asarray((mass * slope) @ x - ridge * b)

    found = optimize.root(equation, simulation.TRUTH[1:], tol=1e-10)
    if not found.success:
        raise RuntimeError(f"target: no root for ridge {ridge:g}: {found.message}")
    return (0.0, *map(float, found.x))      # both laws are symmetric
