"""Table 1, figures 5 and 6: Census and natality quantile regressions, five levels, 10 runs (section 6).

Reads the shared files as bench/real_data.py does; nothing to do where they are absent.  Statistical use only.
"""

from __future__ import annotations

import json
from functools import partial

import numpy as np

from bench.paper.common import QUICK, Array, Rows, Run, by_replicate, figure, interval, mean_error, timed
from bench.paper.methods import PAPER_GRID, QUANTILES, QuantileCell
from bench.real_data import DATA, Source, sandwich
from bench.real_data import SOURCES as ALL_SOURCES
from pgbb_fast.baselines.solvers import minimise, quantile

SOURCES = ALL_SOURCES[:3]    # the paper's
EPSILONS = (1.0, 4.0)
KEY = ("method", "source", "epsilon", "run", "tau", "name")
VALUES = ("mean", "low", "high", "sd", "exact", "se", "seconds")
DRAWS = 4000
SHOWN_RUNS = 3      # of figure 5
BANDWIDTHS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)     # over the spread of y


def rows(run: Run) -> Rows:
    """One row for each method, data set, epsilon, run, level and coefficient."""
    return Rows(run.folder / "quantiles.csv", KEY, VALUES)


def exact_fits(source: Source, X: Array, y: Array) -> dict[float, tuple[Array, Array]]:
    """Non-private coefficients and standard errors at the grid's levels; kept in a file, since they take a while.

    By continuation down to the check loss smoothed over 0.1% of the spread of y: within .15 standard errors of the
    linear programme's solutions in ../shared/data, which ties of rounded outcomes make non-unique.
    """
    path = QUICK / f"exact_{source.name}.json"
    if path.exists():
        saved = json.loads(path.read_text())
        return {float(tau): (np.array(beta), np.array(se)) for tau, (beta, se) in saved.items()}
    design = source.design(X)
    scale = np.abs(design).max(axis=0)
    weights = np.full((1, len(y)), 1.0 / len(y))
    out = {}
    for tau in PAPER_GRID:
        beta = np.linalg.lstsq(design / scale, y, rcond=None)[0]
        for share in BANDWIDTHS:
            beta = minimise(quantile(tau, share * float(y.std())), design / scale, y, weights, beta)[0]
        out[tau] = (beta / scale, sandwich(design, y, beta / scale, tau))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({tau: [b.tolist(), s.tolist()] for tau, (b, s) in out.items()}))
    return out


def table1(run: Run) -> None:
    """Compute what is missing, then draw figures 5 and 6."""
    if not DATA.is_dir():
        print("table1: the shared reference data are not here; nothing to do.")
        return
    table = rows(run)
    for source in SOURCES[: run.pick(1, len(SOURCES))]:
        X, y = source.load()
        exact = exact_fits(source, X, y)
        for number in range(run.repeats(1, 10)):
            for epsilon in EPSILONS[: run.pick(1, 2)]:
                for method in QUANTILES:
                    if run.wants(method):
                        make = partial(_fit, method, QuantileCell(source, epsilon), number, X, y, exact)
                        table.add((method, source.name, f"{epsilon:g}", number), make)
    figure5(run)
    figure6(run)


def _fit(
    method: str, cell: QuantileCell, number: int, X: Array, y: Array, exact: dict[float, tuple[Array, Array]]
) -> list[tuple[object, ...]]:
    posterior, seconds = timed(lambda: QUANTILES[method](cell, number, X, y))
    draws = posterior.draws(DRAWS)
    low, high = interval(draws)
    out = []
    for level, tau in enumerate(PAPER_GRID):
        for j, name in enumerate(posterior.names):
            here = draws[:, level, j]
            known = (exact[tau][0][j], exact[tau][1][j])
            values = (here.mean(), low[level, j], high[level, j], here.std(), *known, seconds)
            out.append((f"{tau:g}", name, *map(float, values)))
    return out


def summary(run: Run) -> dict[tuple[str, ...], dict[str, float]]:
    """Table 1 by source, epsilon and method: MAE of the posterior mean and width, each over the coefficient's standard
    error so that coefficients can be averaged, and inclusion of the exact fit; standard errors over runs."""
    out = {}
    for key, group in rows(run).groups(("source", "epsilon", "method")).items():
        row = {"runs": float(len(np.unique(group["run"])))}
        inside = (group["low"] <= group["exact"]) & (group["exact"] <= group["high"])
        slope = group["name"] != "intercept"
        for name, values in (
            ("mae", np.abs(group["mean"] - group["exact"])),
            ("mae_over_se", np.abs(group["mean"] - group["exact"]) / group["se"]),
            ("inclusion", inside.astype(float)),
            ("width", group["high"] - group["low"]),
            ("width_over_exact", (group["high"] - group["low"]) / (3.92 * group["se"])),
        ):
            row[name], row[f"{name}_se"] = mean_error(by_replicate(group["run"][slope], values[slope]))
        row["seconds"] = float(np.median(group["seconds"]))
        out[key] = row
    return out


def markdown(run: Run) -> str:
    """Table 1, slopes only."""
    lines = [
        "| data | epsilon | method | runs | MAE (SE) | MAE / se | inclusion (SE) | width (SE) | width / non-private |",
        "|---" * 9 + "|",
    ]
    for (source, epsilon, method), r in sorted(summary(run).items()):
        lines.append(
            f"| {source} | {epsilon} | {method} | {r['runs']:.0f} | {r['mae']:.4g} ({r['mae_se']:.2g}) "
            f"| {r['mae_over_se']:.2f} | {r['inclusion']:.3f} ({r['inclusion_se']:.3f}) "
            f"| {r['width']:.4g} ({r['width_se']:.2g}) | {r['width_over_exact']:.2f} |"
        )
    return "\n".join(lines)


def figure5(run: Run) -> None:
    """Coefficients over the levels, three runs, at epsilon = 1."""
    groups = {k: g for k, g in rows(run).groups(("source", "name", "method")).items() if k[1] != "intercept"}
    for source in dict.fromkeys(key[0] for key in groups):
        names = [k[1] for k in groups if k[0] == source]
        names = list(dict.fromkeys(names))
        across = min(len(names), 4)
        down = -(-len(names) // across)
        _, axes, save = figure(run.folder / f"figure5_{source}.png", 2.6 * across, 2.2 * down, down, across)
        for axis, name in zip(axes.flat, names, strict=False):
            mine = [(m, g) for (s, x, m), g in groups.items() if (s, x) == (source, name)]
            for shift, (method, group) in zip(np.linspace(-0.03, 0.03, len(mine)), mine, strict=True):
                take = (group["epsilon"] == EPSILONS[0]) & (group["run"] < SHOWN_RUNS)
                middle, low, high = (group[c][take] for c in ("mean", "low", "high"))
                axis.errorbar(
                    group["tau"][take] + shift, middle, yerr=np.abs([middle - low, high - middle]), fmt="o", ms=2,
                    lw=0.7, alpha=0.7, label=method,
                )  # fmt: skip
            tau, where = np.unique(mine[0][1]["tau"], return_index=True)
            axis.plot(tau, mine[0][1]["exact"][where], "k_", ms=12, label="exact, not private")
            axis.set_title(name, fontsize=9)
        for axis in axes.flat[len(names) :]:
            axis.set_axis_off()
        last = axes.flat[-1]        # the legend is there if it's free
        last.legend(*axes[0][0].get_legend_handles_labels(), frameon=False, fontsize=6)
        save()


def figure6(run: Run) -> None:
    """Standard error of the exact fit, against the mean posterior sd (within) and the sd of means (between runs)."""
    _, axes, save = figure(run.folder / "figure6.png", 8, 3.4, 1, 2)
    points: dict[str, list[tuple[float, float, float]]] = {}
    for (_, epsilon, method, _, _), g in rows(run).groups(("source", "epsilon", "method", "tau", "name")).items():
        if epsilon == f"{EPSILONS[0]:g}" and len(g["mean"]) > 1:
            between = float(g["mean"].std(ddof=1))
            points.setdefault(method, []).append((float(g["se"][0]), float(g["sd"].mean()), between))
    for method, values in points.items():
        se, within, between = np.array(values).T
        axes[0][0].loglog(se, within, "o", ms=2, label=method)
        axes[0][1].loglog(se, between, "o", ms=2, label=method)
    for axis, word in zip(axes[0], ("within one run", "between runs"), strict=True):
        axis.set(xlabel="standard error, not private", ylabel=f"standard deviation {word}")
    if points:
        axes[0][0].legend(frameon=False, fontsize=7)
    save()


def variability(run: Run, epsilon: float = EPSILONS[0]) -> dict[str, tuple[float, float]]:
    """Median over coefficients of within and between sd over the exact standard error, by method."""
    found: dict[str, list[tuple[float, float]]] = {}
    for (_, eps, method, _, _), g in rows(run).groups(("source", "epsilon", "method", "tau", "name")).items():
        if eps == f"{epsilon:g}" and len(g["mean"]) > 1:
            within, between = (float(v / g["se"][0]) for v in (g["sd"].mean(), g["mean"].std(ddof=1)))
            found.setdefault(method, []).append((within, between))
    return {method: tuple(np.median(np.array(v), axis=0)) for method, v in found.items()}
