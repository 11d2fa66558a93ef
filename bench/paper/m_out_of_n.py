"""The m-out-of-n paper's tables: length, coverage and running time of private bootstrap intervals (nominal 90%).

    python -m bench.paper.m_out_of_n --quick     two sample sizes, 40 replicates
    python -m bench.paper.m_out_of_n --full      n = 500 to 5000, 500 replicates
    python -m bench.paper.m_out_of_n --required  the mean at n = 1000, m = 10, B = 1000, 2000 replicates

Problems (the paper's own settings are lost; these are ours): the mean of a standard normal truncated to [-2, 2], and
the first slope of a logistic regression with ridge .5 on two features uniform on [-1, 1], coefficients (1, -.5), no
intercept; its target is the ridge estimate of the population.  mu in {.5, 1} stands for the point (epsilon, 1/n) of
mu-Gaussian differential privacy: methods are calibrated for that epsilon and delta with bounds for finite B.  The one
called asymptotic has the paper's central-limit noise instead, which is no bound.

One row for each replicate and method is added to a file in bench/out, so that a run that was stopped goes on where it
was; ``--problems mean`` alone has files of its own (m_out_of_n_mean).  Budgets share data sets, but no noise.  Tables
and figure in bench/paper/results are made of that file.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import minimize
from scipy.special import expit

from pgbb_fast.bootstrap import AsymptoticMOutOfNBootstrap, BLBQuantiles, DPBootstrap, Mean, MOutOfNBootstrap
from pgbb_fast.bootstrap.statistic import RegularisedRegression, Statistic
from pgbb_fast.budget.bootstrap import gaussian_epsilon

Array = NDArray[np.float64]
RESULTS = Path(__file__).resolve().parent / "results"
OUT = RESULTS.parents[1] / "out"
LEVEL = 0.9
COLUMNS = ("problem", "n", "budget", "method", "replicate", "low", "high", "seconds")
LAW = stats.truncnorm(-2, 2)
SLOPES, RIDGE = np.array([1.0, -0.5]), 0.5
METHODS = (
    "m of n",
    "m of n, least width",
    "m of n, section 8",
    "m of n, asymptotic",
    "n of n, section 8",
    "n of n, deconvolved",
    "BLBquant",
    "not private",
)


@dataclass(frozen=True)
class Problem:
    """Where records come from, what is estimated, and its true first coordinate."""

    statistic: Statistic
    data: Callable[[int, int], tuple[Array, Array | None]]
    truth: float


def truncated_normal(n: int, seed: int) -> tuple[Array, None]:
    return LAW.rvs(n, random_state=seed)[:, None], None


def classes(n: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    return X, (rng.random(n) < expit(X @ SLOPES)).astype(float)


def population_slope() -> float:
    """First slope of the population's ridge estimate, by Gauss-Legendre quadrature over the square."""
    node, weight = np.polynomial.legendre.leggauss(40)
    x = np.array([(a, b) for a in node for b in node])
    w = np.outer(weight, weight).reshape(-1) / 4
    p = expit(x @ SLOPES)

    def loss(b: Array) -> float:
        return float(w @ (np.logaddexp(0.0, x @ b) - p * (x @ b)) + RIDGE / 2 * b @ b)

    return float(minimize(loss, np.zeros(2), method="BFGS", options={"gtol": 1e-9}).x[0])


def problems() -> dict[str, Problem]:
    logistic = RegularisedRegression([(-1.0, 1.0)] * 2, RIDGE, fit_intercept=False)
    return {
        "mean": Problem(Mean([(-2.0, 2.0)]), truncated_normal, 0.0),
        "logistic": Problem(logistic, classes, population_slope()),
    }


def budget_of(label: str, n: int) -> tuple[float, float, float | None]:
    """(epsilon, delta, mu): "mu=1", or an explicit "1,1e-4"."""
    if label.startswith("mu="):
        mu = float(label[3:])
        return gaussian_epsilon(mu, 1 / n), 1 / n, mu
    epsilon, delta = map(float, label.split(","))
    return epsilon, delta, None


def not_private(statistic: Statistic, X: Array, y: Array | None, seed: int) -> Array:
    """The interval of the ordinary n-out-of-n bootstrap, 400 resamples."""
    task = statistic.task("bench", X, y)
    records = task.load()
    index = np.random.default_rng(seed).integers(len(X), size=(400, len(X)))
    roots = (task.evaluate(records, index) - task.evaluate(records, None))[:, 0]
    return task.evaluate(records, None)[0, 0] - np.quantile(roots, [(1 + LEVEL) / 2, (1 - LEVEL) / 2])


def intervals(
    problem: Problem, n: int, label: str, seed: int, sizes: dict[str, int]
) -> Iterator[tuple[str, Array, float]]:
    """(method, interval, seconds) of every method on one data set; calibrations are made before the clock starts."""
    X, y = problem.data(n, seed)
    epsilon, delta, mu = budget_of(label, n)
    key = int.from_bytes(hashlib.sha256(f"{n}|{label}|{seed}".encode()).digest()[:6], "little")
    common: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "seed": key}
    full = {"resample_size": n, "replicates": max(50, n // 10)}
    models: dict[str, Any] = {"m of n": MOutOfNBootstrap(problem.statistic, **common, **sizes)}
    if not sizes:
        models["m of n, least width"] = MOutOfNBootstrap(problem.statistic, sizes="width", **common)
    if mu is not None:
        models["m of n, asymptotic"] = AsymptoticMOutOfNBootstrap(
            problem.statistic, mu=mu, delta=delta, seed=key, **sizes
        )
    if not sizes:
        models["n of n, section 8"] = MOutOfNBootstrap(problem.statistic, **common, **full)
        models["n of n, deconvolved"] = DPBootstrap(problem.statistic, replicates=full["replicates"], **common)
        models["BLBquant"] = BLBQuantiles(problem.statistic, level=LEVEL, **common)
    for name, model in models.items():
        model.plan(n)
        start = time.perf_counter()
        posterior = model.fit(X, y).posterior_
        plain = name in ("m of n, asymptotic", "n of n, section 8")
        interval = posterior.unadjusted_interval(LEVEL) if plain else posterior.interval(LEVEL)
        seconds = time.perf_counter() - start
        yield name, interval[0], seconds
        if name == "m of n":
            yield "m of n, section 8", posterior.unadjusted_interval(LEVEL)[0], seconds
    start = time.perf_counter()
    yield "not private", not_private(problem.statistic, X, y, seed), time.perf_counter() - start


def read(path: Path) -> dict[tuple[str, str, str], dict[str, dict[int, Array]]]:
    """By (problem, n, budget), method and replicate: low, high, seconds."""
    found: dict[tuple[str, str, str], dict[str, dict[int, Array]]] = {}
    if path.exists():
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                cell = found.setdefault((row["problem"], row["n"], row["budget"]), {})
                values = np.array([float(row[c]) for c in COLUMNS[5:]])
                cell.setdefault(row["method"], {})[int(row["replicate"])] = values
    return found


def run(path: Path, cells: list[tuple[str, int, str]], replicates: int, sizes: dict[str, int]) -> None:
    """Add the replicates that are missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    known, known_problems, fresh = read(path), problems(), not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        if fresh:
            writer.writerow(COLUMNS)
        for name, n, label in cells:
            done = known.get((name, str(n), label), {}).get("not private", {})
            for replicate in range(replicates):
                if replicate in done:
                    continue
                for method, (low, high), seconds in intervals(known_problems[name], n, label, replicate, sizes):
                    row = [name, n, label, method, replicate, f"{low:.8g}", f"{high:.8g}", f"{seconds:.5f}"]
                    writer.writerow(row)
                file.flush()


def summary(path: Path) -> list[dict[str, Any]]:
    """Coverage with its 95% limits (Clopper and Pearson), mean length and median seconds of each cell and method."""
    lines = []
    truth = {name: problem.truth for name, problem in problems().items()}
    for (name, n, label), cell in read(path).items():
        for method in METHODS:
            if method not in cell:
                continue
            rows = np.stack(list(cell[method].values()))
            hits, count = int(((rows[:, 0] <= truth[name]) & (truth[name] <= rows[:, 1])).sum()), len(rows)
            low = stats.beta.ppf(0.025, hits, count - hits + 1) if hits else 0.0
            high = stats.beta.ppf(0.975, hits + 1, count - hits) if hits < count else 1.0
            line = {"problem": name, "n": n, "budget": label, "method": method, "replicates": count}
            line |= {"coverage": f"{hits / count:.3f}", "low": f"{low:.3f}", "high": f"{high:.3f}"}
            line |= {"length": f"{(rows[:, 1] - rows[:, 0]).mean():.4f}", "seconds": f"{np.median(rows[:, 2]):.4f}"}
            lines.append(line)
    return lines


def write(base: str, lines: list[dict[str, Any]]) -> str:
    """The summary as CSV and as a Markdown table."""
    with (RESULTS / f"{base}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    rows = [list(lines[0]), ["---"] * len(lines[0]), *([str(v) for v in line.values()] for line in lines)]
    text = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    (RESULTS / f"{base}.md").write_text(text + "\n")
    return text


def figure(path: Path, target: Path) -> None:
    """Coverage, length over the non-private one, and seconds against n, for each problem and budget."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    truth = {name: problem.truth for name, problem in problems().items()}
    found = read(path)
    groups = sorted({(name, label) for name, _, label in found})
    figure, axes = plt.subplots(len(groups), 3, figsize=(12, 2.9 * len(groups)), squeeze=False)
    for row, (name, label) in zip(axes, groups, strict=True):
        sizes = sorted(int(n) for a, n, b in found if (a, b) == (name, label))
        for number, method in enumerate(METHODS):
            points = []
            for n in sizes:
                cell = found[name, str(n), label]
                if method not in cell:
                    continue
                rows, free = (np.stack(list(cell[m].values())) for m in (method, "not private"))
                covered = ((rows[:, 0] <= truth[name]) & (truth[name] <= rows[:, 1])).mean()
                length = (rows[:, 1] - rows[:, 0]).mean() / (free[:, 1] - free[:, 0]).mean()
                points.append((n, covered, length, np.median(rows[:, 2])))
            if points:
                columns = np.array(points).T
                for axis, values in zip(row, columns[1:], strict=True):
                    axis.plot(columns[0], values, marker="o", markersize=3, color=f"C{number}", label=method)
        row[0].axhline(LEVEL, color="grey", linewidth=0.8)
        for axis, title in zip(row, ("coverage", "length / not private", "seconds"), strict=True):
            axis.set_title(f"{name}, {label}: {title}", fontsize=9)
            axis.set_xscale("log")
        row[1].set_yscale("log")
        row[2].set_yscale("log")
    axes[0][0].legend(fontsize=6)
    figure.tight_layout()
    figure.savefig(target, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group(required=True)
    for name in ("quick", "full", "required"):
        mode.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--replicates", type=int)
    parser.add_argument("--problems", default="mean,logistic", help="one of them: files of its own")
    args = parser.parse_args()
    sizes: dict[str, int] = {}
    if args.required:
        base, replicates, sizes = "m_out_of_n_required", 2000, {"resample_size": 10, "replicates": 1000}
        cells = [("mean", 1000, label) for label in ("1,1e-4", "4,1e-4", "mu=0.5", "mu=1")]
    else:
        ns = (500, 1000) if args.quick else (500, 1000, 2000, 5000)
        base, replicates = "m_out_of_n", 40 if args.quick else 500
        if "," not in args.problems:
            base += f"_{args.problems}"
        cells = [(p, n, label) for p in args.problems.split(",") for label in ("mu=0.5", "mu=1") for n in ns]
    path = OUT / f"{base}.csv"
    run(path, cells, args.replicates or replicates, sizes)
    print(write(base, summary(path)))
    figure(path, RESULTS / f"{base}.png")


if __name__ == "__main__":
    main()
