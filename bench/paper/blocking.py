"""Figure 2: blocked against ordinary Bayesian bootstrap of a ridge regression, over n and S.

X ~ N(0, I_5), y = X'theta + N(0, 1), theta_j = (-1)^j / (1 + j), lambda = 1e-4, no intercept (section 4.1).
Wasserstein distances between two samples of m draws are not zero for equal laws: ``null`` is that of two independent
ordinary samples, and is taken off in squares.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy import stats

from bench.paper.common import Array, Rows, Run, figure, interval, mean_error
from pgbb_fast.baselines import NonPrivateBayesianBootstrap

P, PENALTY = 5, 1e-4
TRUTH = (-1.0) ** np.arange(P) / (1.0 + np.arange(P))
FIXED_BLOCKS, FIXED_SIZE = 20, 25
SIZES = (200, 400, 800, 1600, 3200, 6400)     # multiples of both: a record that takes no part moves the location
COVERAGE_BLOCKS = (5, 10, 20, 50)
COVERAGE_SIZE = 1000


def data(n: int, replicate: int) -> tuple[Array, Array]:
    """One sample."""
    rng = np.random.default_rng([2, n, replicate])
    X = rng.standard_normal((n, P))
    return X, X @ TRUTH + rng.standard_normal(n)


def draws(X: Array, y: Array, seed: int, count: int, blocks: int | None = None, gamma: float | None = None) -> Array:
    """Bootstrap draws, (count, P)."""
    options = {"penalty": PENALTY, "fit_intercept": False, "draws": count, "seed": seed}
    return NonPrivateBayesianBootstrap("ridge", n_blocks=blocks, gamma=gamma, **options).fit(X, y).posterior_.sample


def distance(first: Array, second: Array) -> float:
    """1-Wasserstein distance averaged over the coefficients."""
    return float(np.mean([stats.wasserstein_distance(a, b) for a, b in zip(first.T, second.T, strict=True)]))


def tables(run: Run) -> tuple[Rows, Rows]:
    """Distances and variance ratios; coverage."""
    first = Rows(
        run.folder / "figure2.csv",
        ("n", "replicate", "fixed", "S"),
        ("distance", "null", "ratio_star", "ratio_one"),
    )
    return first, Rows(run.folder / "figure2_coverage.csv", ("S", "gamma", "replicate"), ("covered", "width"))


def _compare(n: int, replicate: int, count: int) -> list[tuple[object, ...]]:
    """One sample: with S fixed and with n_S fixed."""
    X, y = data(n, replicate)
    ordinary, again = (draws(X, y, 10 * replicate + j, count) for j in (0, 1))
    variance, null = ordinary.var(axis=0).sum(), distance(ordinary, again)
    out: list[tuple[object, ...]] = []
    for fixed, S in (("S", FIXED_BLOCKS), ("n_S", n // FIXED_SIZE)):
        star, one = (draws(X, y, 10 * replicate + 2, count, S, gamma) for gamma in (None, 1.0))
        ratios = [float(b.var(axis=0).sum() / variance) for b in (star, one)]
        out.append((fixed, S, distance(star, ordinary), null, *ratios))
    return out


def figure2(run: Run) -> None:
    """Compute what is missing, then draw."""
    table, coverage = tables(run)
    count, replicates = run.pick(1000, 4000), run.pick(5, 150)
    for replicate in range(replicates):
        for n in SIZES[: run.pick(4, len(SIZES))]:
            table.add((n, replicate), partial(_compare, n, replicate, count))
    for S in COVERAGE_BLOCKS:
        for word, gamma in (("star", None), ("1", 1.0)):
            for replicate in range(run.pick(20, 400)):

                def cover(S: int = S, gamma: float | None = gamma, r: int = replicate) -> list[tuple[float, float]]:
                    X, y = data(COVERAGE_SIZE, 10_000 + r)
                    low, high = interval(draws(X, y, r, 2000, S, gamma))
                    return [(float(((low <= TRUTH) & (high >= TRUTH)).mean()), float((high - low).mean()))]

                coverage.add((S, word, replicate), cover)
    draw(run)


def debiased(group: dict[str, Array]) -> tuple[float, float]:
    """Mean distance with the null's square taken off, and its standard error."""
    value, error = mean_error(group["distance"])
    square = value**2 - float(np.mean(group["null"])) ** 2
    return float(np.sqrt(max(square, 0.0))), error * value / max(np.sqrt(max(square, 0.0)), 1e-300)


def slope(n: Array, value: Array, error: Array) -> tuple[float, float]:
    """Weighted least squares of log value on log n: slope and standard error."""
    x, y, weight = np.log(n), np.log(value), (value / error) ** 2
    centre = (weight @ x) / weight.sum()
    spread = weight @ (x - centre) ** 2
    return float(weight @ ((x - centre) * y) / spread), float(spread**-0.5)


def rates(run: Run) -> dict[str, tuple[Array, Array, Array]]:
    """For fixed S and fixed n_S: n, distance, standard error."""
    found: dict[str, list[tuple[float, float, float]]] = {}
    for (fixed, n), group in tables(run)[0].groups(("fixed", "n")).items():
        found.setdefault(fixed, []).append((float(n), *debiased(group)))
    return {fixed: tuple(np.array(sorted(points)).T) for fixed, points in found.items()}


def draw(run: Run) -> None:
    """Three panels."""
    table, coverage = tables(run)
    _, axes, save = figure(run.folder / "figure2.png", 10, 3.2, 1, 3)
    for fixed, (n, value, error) in rates(run).items():
        label = f"S = {FIXED_BLOCKS}" if fixed == "S" else f"n_S = {FIXED_SIZE}"
        axes[0][0].errorbar(n, value, yerr=2 * error, marker="o", ms=3, label=label)
    axes[0][0].set(xscale="log", yscale="log", xlabel="n", ylabel="1-Wasserstein distance")
    axes[0][0].legend(frameon=False, fontsize=8)
    for name, marker in (("ratio_star", "o"), ("ratio_one", "s")):
        points = [
            (float(n), *mean_error(g[name])) for (fixed, n), g in table.groups(("fixed", "n")).items() if fixed == "S"
        ]
        n, value, error = np.array(sorted(points)).T
        label = "gamma*" if name == "ratio_star" else "gamma = 1"
        axes[0][1].errorbar(n, value, yerr=2 * error, marker=marker, ms=3, label=label)
    axes[0][1].axhline(1.0, color="0.7", lw=0.8)
    axes[0][1].set(xscale="log", xlabel=f"n, S = {FIXED_BLOCKS}", ylabel="variance, blocked / ordinary")
    axes[0][1].legend(frameon=False, fontsize=8)
    for word in ("star", "1"):
        points = [
            (float(S), *mean_error(g["covered"])) for (S, gamma), g in coverage.groups(("S", "gamma")).items()
            if gamma == word
        ]  # fmt: skip
        S, value, error = np.array(sorted(points)).T
        label = "gamma*" if word == "star" else "gamma = 1"
        axes[0][2].errorbar(S, value, yerr=2 * error, marker="o", ms=3, label=label)
    axes[0][2].axhline(0.95, color="0.7", lw=0.8)
    axes[0][2].set(xscale="log", xlabel=f"S, n = {COVERAGE_SIZE}", ylabel="coverage of 95% intervals")
    axes[0][2].legend(frameon=False, fontsize=8)
    save()
