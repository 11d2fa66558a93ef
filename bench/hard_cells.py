"""Coverage in hard cells: where privacy noise hides the curvature, and where the design or the errors are awkward.

    python -m bench.hard_cells --replicates 200 --table bench/results/hard_cells.md

Few records, outer levels, many coefficients, a heaped response, rare and (nearly) separated classes; features that are
nearly collinear, hardly ever vary or lie in a box ten times too wide; errors whose spread depends on a feature, or
without moments.  Intervals may be as wide as the public box, but must cover.

The truth is the population's value of the loss's own target, known in closed form: a smoothed quantile of a normal
error e of standard deviation s is the quantile of e plus bandwidth times the kernel's variable, a normal of standard
deviation sqrt(s^2 + h^2); where the spread is linear in a feature so are the quantiles, and where e is Cauchy's they
are known, in both cases but for h, which moves them by less than h^2 over the spread; Huber's slopes are those of the
model for symmetric errors; a logistic model's own coefficients, or with a ridge the root of the penalised equation, by
quadrature.  For the heaped response it is the median itself.

Coverage is that of the coefficients of one kind ("slopes" or "intercept"); replicates are independent, coefficients of
one fit are not, so errors are standard deviations over replicates' means.
"""

from __future__ import annotations

import argparse
import math
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import expit, ndtr, ndtri

import bench.simulation  # noqa: F401 (calibrates once for each set of public numbers)
from pgbb_fast import (
    PrivateExpectileRegressor,
    PrivateGeneralisedRegressor,
    PrivateHuberRegressor,
    PrivateLogisticRegressor,
    PrivateQuantileRegressor,
)
from pgbb_fast.losses import normal_expectile

Array = NDArray[np.float64]
LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
DELTA = 1e-5
SEED = 13
Y_BOUND = 5.0
ERROR = 0.5  # standard deviation of normal errors; y is in [-5, 5]


@dataclass(frozen=True)
class Cell:
    """Records of n rows, an estimator and the truth (L, d)."""

    name: str
    n: int
    p: int
    epsilon: float
    estimator: Callable[..., Any]
    settings: dict[str, Any]
    response: Callable[[Array, np.random.Generator], Array]
    truth: Callable[[Any, int], Array]
    features: Callable[[np.random.Generator, int, int], Array] = lambda rng, n, p: rng.uniform(-1.0, 1.0, (n, p))
    x_bound: float = 1.0

    def data(self, replicate: int) -> tuple[Array, Array]:
        """X, by default ~ U[-1, 1]^p, and y."""
        rng = np.random.default_rng([SEED, replicate, self.n, self.p, round(10 * self.epsilon)])
        X = self.features(rng, self.n, self.p)
        return X, self.response(X, rng)

    def model(self, replicate: int) -> Any:
        """The estimator, at its default settings."""
        return self.estimator(
            epsilon=self.epsilon,
            delta=DELTA,
            x_bounds=[(-self.x_bound, self.x_bound)] * self.p,
            seed=replicate,
            **self.settings,
        )


def slopes(p: int) -> Array:
    """1, -1, 1, ..., less for many features, so that y hardly ever leaves its bounds (it would be moved to them)."""
    return np.where(np.arange(p) % 2 == 0, 1.0, -1.0) * min(1.0, 4.0 / p)


def linear(X: Array, rng: np.random.Generator) -> Array:
    """x'b + e with normal e."""
    return np.asarray(X @ slopes(X.shape[1]) + ERROR * rng.standard_normal(len(X)))


def ones(base: float) -> Callable[[Array, np.random.Generator], Array]:
    """Bernoulli with log odds base + x'b: some 3% ones at -3.9, 2% at -4.3."""
    return lambda X, rng: (rng.random(len(X)) < expit(X @ slopes(X.shape[1]) + base)).astype(np.float64)


def of_ones(base: float) -> Callable[[Any, int], Array]:
    return lambda model, p: np.array([[base, *slopes(p)]])


def skewed(X: Array, rng: np.random.Generator) -> Array:
    """x'b + e with e exponential, less .7: the smoothing moves its outer quantiles by less than h^2 / 2."""
    return np.asarray(X @ slopes(X.shape[1]) + rng.standard_exponential(len(X)) - 0.7)


def collinear(rng: np.random.Generator, n: int, p: int) -> Array:
    """Normal with standard deviation a third and correlations .95, kept in [-1, 1]."""
    z = math.sqrt(0.05) * rng.standard_normal((n, p)) + math.sqrt(0.95) * rng.standard_normal((n, 1))
    return np.clip(z / 3.0, -1.0, 1.0)


def seldom(rng: np.random.Generator, n: int, p: int) -> Array:
    """Uniform, but for the first feature: 1 with probability .02, else -1."""
    X = rng.uniform(-1.0, 1.0, (n, p))
    X[:, 0] = np.where(rng.random(n) < 0.02, 1.0, -1.0)
    return X


def spreading(X: Array, rng: np.random.Generator) -> Array:
    """x'b + (.5 + .3 x_1) e with normal e."""
    return np.asarray(X @ slopes(X.shape[1]) + (0.5 + 0.3 * X[:, 0]) * rng.standard_normal(len(X)))


def cauchy(X: Array, rng: np.random.Generator) -> Array:
    """x'b + e / 4 with e Cauchy's; the quantiles asked for are within the bounds of y."""
    return np.asarray(X @ slopes(X.shape[1]) + 0.25 * rng.standard_cauchy(len(X)))


def steep(X: Array, rng: np.random.Generator) -> Array:
    """Bernoulli with log odds 12 x_1: all but separated."""
    return (rng.random(len(X)) < expit(12.0 * X[:, 0])).astype(np.float64)


def separated(X: Array, rng: np.random.Generator) -> Array:
    """1 where x_1 is above 0."""
    return (X[:, 0] > 0.0).astype(np.float64)


def heaped(X: Array, rng: np.random.Generator) -> Array:
    """Four fifths at 0, the rest uniform on [0, 100]."""
    return np.where(rng.random(len(X)) < 0.8, 0.0, rng.uniform(0.0, 100.0, len(X)))


def of_quantiles(model: Any, p: int) -> Array:
    h = model._loss(model.n_, p, 1.0).constants[0][1] * Y_BOUND
    return np.array([[math.hypot(ERROR, h) * ndtri(tau), *slopes(p)] for tau in model.tau])


def of_linear(model: Any, p: int) -> Array:
    return np.array([[0.0, *slopes(p)]])


def counts(X: Array, rng: np.random.Generator) -> Array:
    """Poisson with log mean x'b; at most 20, which hardly ever matters."""
    return np.minimum(rng.poisson(np.exp(X @ slopes(X.shape[1]))), 20.0)


def poisson(y: float, eta: float) -> float:
    """Slope of Poisson's log likelihood, its sign changed."""
    return math.exp(eta) - y


def probits(X: Array, rng: np.random.Generator) -> Array:
    """Bernoulli, some 4% ones: Phi(-1.9 + x'b / 2)."""
    return (rng.random(len(X)) < ndtr(X @ slopes(X.shape[1]) / 2.0 - 1.9)).astype(np.float64)


def probit(y: float, eta: float) -> float:
    """Slope of the probit log likelihood, its sign changed."""
    p, q = float(ndtr(eta)), float(ndtr(-eta))
    return math.exp(-0.5 * eta * eta) / math.sqrt(2.0 * math.pi) * (p - y) / max(p * q, 1e-12)


def of_probits(model: Any, p: int) -> Array:
    return np.array([[-1.9, *slopes(p) / 2.0]])


def of_steep(model: Any, p: int) -> Array:
    return np.array([[0.0, 12.0, *np.zeros(p - 1)]])


def of_separated(model: Any, p: int) -> Array:
    """E (expit(b x) - 1[x > 0]) x + ridge b = 0 for x ~ U[-1, 1]; the mean is that of -x expit(-b x) over (0, 1)."""

    def slope(b: float) -> float:
        return model.ridge * b - float(quad(lambda x: x * expit(-b * x), 0.0, 1.0)[0])

    return np.array([[0.0, float(brentq(slope, 0.0, 100.0)), *np.zeros(p - 1)]])


def of_spreading(model: Any, p: int) -> Array:
    first, *rest = slopes(p)
    return np.array([[0.5 * ndtri(tau), first + 0.3 * ndtri(tau), *rest] for tau in model.tau])


def of_cauchy(model: Any, p: int) -> Array:
    return np.array([[0.25 * math.tan(math.pi * (tau - 0.5)), *slopes(p)] for tau in model.tau])


def of_heap(model: Any, p: int) -> Array:
    return np.array([[0.0, *np.zeros(p)]])


def of_expectiles(model: Any, p: int) -> Array:
    return np.array([[ERROR * normal_expectile(level), *slopes(p)] for level in model.level])


def of_skewed(model: Any, p: int) -> Array:
    return np.array([[-math.log(0.05) - 0.7, *slopes(p)]])


Y = {"y_bounds": (-Y_BOUND, Y_BOUND)}
QUANTILE, LOGISTIC = PrivateQuantileRegressor, PrivateLogisticRegressor
FIVE: dict[str, Any] = {**Y, "tau": LEVELS}
HEAP: dict[str, Any] = {"y_bounds": (-100, 100)}
CELLS = (
    *(Cell(f"Huber, n = {n}", n, 1, 1.0, PrivateHuberRegressor, Y, linear, of_linear) for n in (30, 100, 300)),
    *(Cell(f"median, n = {n}", n, 1, 1.0, QUANTILE, Y, linear, of_quantiles) for n in (100, 300)),
    Cell("median, n = 2,000, p = 3", 2_000, 3, 1.0, QUANTILE, Y, linear, of_quantiles),
    Cell("Huber, n = 2,000, p = 3", 2_000, 3, 1.0, PrivateHuberRegressor, Y, linear, of_linear),
    Cell("logistic, n = 300", 300, 1, 1.0, LOGISTIC, {}, ones(0.0), of_ones(0.0)),
    Cell("logistic, 3% ones, n = 5,000", 5_000, 1, 1.0, LOGISTIC, {}, ones(-3.9), of_ones(-3.9)),
    Cell("logistic, 2% ones, n = 20,000, p = 3", 20_000, 3, 1.0, LOGISTIC, {}, ones(-4.3), of_ones(-4.3)),
    Cell(
        "logistic, nearly separated, n = 5,000, p = 2", 5_000, 2, 1.0, LOGISTIC,
        {"coef_bounds": [(-20, 20)] * 2}, steep, of_steep,
    ),
    Cell(
        "logistic, separated, ridge .01, n = 5,000, p = 2", 5_000, 2, 1.0, LOGISTIC, {"ridge": 0.01}, separated,
        of_separated,
    ),
    Cell("five levels, n = 5,000, p = 5, epsilon .5", 5_000, 5, 0.5, QUANTILE, FIVE, linear, of_quantiles),
    Cell("five levels, n = 40,000, p = 10", 40_000, 10, 1.0, QUANTILE, FIVE, linear, of_quantiles),
    Cell(
        "five levels, correlations .95, n = 20,000, p = 3", 20_000, 3, 1.0, QUANTILE, FIVE, linear, of_quantiles,
        collinear,
    ),
    Cell("five levels, dummy of 2%, n = 20,000, p = 3", 20_000, 3, 1.0, QUANTILE, FIVE, linear, of_quantiles, seldom),
    Cell(
        "five levels, features' box 10 times too wide, n = 20,000, p = 3", 20_000, 3, 1.0, QUANTILE,
        {**FIVE, "coef_bounds": [(-5, 5)] * 3}, linear, of_quantiles, x_bound=10.0,
    ),
    Cell("five levels, heteroscedastic, n = 20,000, p = 3", 20_000, 3, 1.0, QUANTILE, FIVE, spreading, of_spreading),
    Cell(
        "levels .05 .5 .95, Cauchy errors, n = 20,000, p = 3", 20_000, 3, 1.0, QUANTILE,
        {**Y, "tau": (0.05, 0.5, 0.95)}, cauchy, of_cauchy,
    ),
    Cell(
        "levels .05 .95 .98, n = 20,000, p = 3", 20_000, 3, 1.0, QUANTILE, {**Y, "tau": (0.05, 0.95, 0.98)}, linear,
        of_quantiles,
    ),
    Cell("tau = .95, n = 2,000", 2_000, 1, 1.0, QUANTILE, {**Y, "tau": 0.95}, linear, of_quantiles),
    Cell("tau = .98, n = 5,000, epsilon 2", 5_000, 1, 2.0, QUANTILE, {**Y, "tau": 0.98}, linear, of_quantiles),
    Cell("heaped, median, n = 5,000", 5_000, 1, 1.0, QUANTILE, HEAP, heaped, of_heap),
    Cell("heaped, median, n = 20,000, epsilon 4", 20_000, 1, 4.0, QUANTILE, HEAP, heaped, of_heap),
    Cell(
        "expectile .9, n = 5,000", 5_000, 1, 1.0, PrivateExpectileRegressor, {**Y, "level": 0.9}, linear, of_expectiles
    ),
    Cell(
        "Poisson, a slope of one's own, n = 5,000, p = 3", 5_000, 3, 1.0, PrivateGeneralisedRegressor,
        {"slope": poisson, "slope_bound": 20.0, "eta_reach": 3.0, "y_bounds": (0, 20)}, counts, of_linear,
    ),
    Cell(
        "probit, a slope of one's own, 4% ones, n = 5,000, p = 3", 5_000, 3, 1.0, PrivateGeneralisedRegressor,
        {"slope": probit, "slope_bound": 4.0, "eta_reach": 3.0, "y_bounds": (0, 1)}, probits, of_probits,
    ),
    Cell(
        "tau = .95, n = 2,000, exponential errors, y in [-10, 10]", 2_000, 1, 1.0, QUANTILE,
        {"y_bounds": (-10, 10), "tau": 0.95}, skewed, of_skewed,
    ),
)  # fmt: skip


def replicate_of(cell: Cell, replicate: int) -> tuple[Array, Array, Array, float]:
    """Intervals (L, d, 2), truth (L, d), the box's widths (d,) in natural units, and seconds."""
    X, y = cell.data(replicate)
    model = cell.model(replicate)
    model.plan(cell.n)
    start = time.perf_counter()
    posterior = model.fit(X, y).posterior_
    seconds = time.perf_counter() - start
    model.n_ = cell.n
    truth = cell.truth(model, cell.p)
    interval = posterior.interval(size=4000)
    interval = interval if interval.ndim == 3 else interval[None]
    size = truth.shape[1]
    radius = np.abs(np.diag(posterior._to_natural.matrix))
    return interval[:, :size], truth, (radius * (posterior._box[:, 1] - posterior._box[:, 0]))[:size], seconds


def row(cell: Cell, replicates: int) -> str:
    """One line of the table."""
    found = [replicate_of(cell, replicate) for replicate in range(replicates)]
    hits = np.array([(i[..., 0] <= t) & (t <= i[..., 1]) for i, t, _, _ in found])
    share = np.median([(i[..., 1] - i[..., 0]) / w for i, _, w, _ in found], axis=0)
    parts = []
    for which in (slice(0, 1), slice(1, None)):
        covered = hits[..., which].mean(axis=2)
        worst = covered.mean(axis=0)
        error = covered.mean(axis=1).std() / math.sqrt(replicates)
        parts.append(f"{covered.mean():.3f} ± {error:.3f}" + (f" ({worst.min():.2f})" if len(worst) > 1 else ""))
    widths = f"{np.median(share[:, 0]):.2f} | {np.median(share[:, 1:]):.2f}"
    seconds = np.median([f[3] for f in found])
    return f"| {cell.name} | {replicates} | {parts[0]} | {parts[1]} | {widths} | {seconds:.2f} |"


def processor() -> str:
    """Its name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def main() -> None:
    """Run and print; write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=200)
    parser.add_argument("--cells", nargs="*", default=[], help="parts of cells' names; all by default")
    parser.add_argument("--table", type=Path)
    args = parser.parse_args()
    lines = [
        "| cell | replicates | intercept covered (worst level) | slopes covered (worst level) "
        "| intercept's width / box, median | slopes' | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for cell in CELLS:
        if not args.cells or any(part in cell.name for part in args.cells):
            lines.append(row(cell, args.replicates))
            print(lines[-1], flush=True)
    text = f"Epsilon 1 unless stated, delta = {DELTA:g}, 95% intervals. One process on {processor()}, shared.\n\n"
    if args.table:
        args.table.write_text(text + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
