"""Figure 4: means of a normal and an exponential law (section 5.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.paper.common import Rows, Run, by_replicate, effective_size, figure, interval, mean_error, timed
from bench.paper.methods import MEANS, REFERENCE, MeanCell
from bench.paper.regression import table_line

LAWS, SIZES, EPSILONS = ("normal", "exponential"), (500, 5000), (1.0, 2.0, 4.0)
CELLS = tuple(MeanCell(law, n, epsilon) for law in LAWS for n in SIZES for epsilon in EPSILONS)
KEY = ("method", "law", "n", "epsilon", "replicate")
VALUES = ("mean", "low", "high", "truth", "ess", "seconds")
DRAWS = 4000


def rows(run: Run) -> Rows:
    """One row for each method, cell and replicate."""
    return Rows(run.folder / "means.csv", KEY, VALUES)


def _fit(method: str, cell: MeanCell, replicate: int) -> list[tuple[float, ...]]:
    X = cell.data(replicate)
    posterior, seconds = timed(lambda: MEANS[method](cell, replicate, X))
    draws = posterior.draws(DRAWS)[:, 0]
    low, high = interval(draws)
    chain = method == "DP-SGLD" or (method == "NoisyGibbs" and cell.law == "normal")
    ess = effective_size(posterior.sample)[0] if chain else np.nan
    return [tuple(map(float, (draws.mean(), low, high, cell.truth, ess, seconds)))]


def figure4(run: Run) -> None:
    """Compute what is missing, then draw."""
    table = rows(run)
    cells = run.pick([CELLS[0], CELLS[3], CELLS[6], CELLS[9]], CELLS)
    for replicate in range(run.repeats(3, 100)):
        for cell in cells:
            for method in MEANS:
                if run.wants(method):
                    key = (method, cell.law, cell.n, f"{cell.epsilon:g}", replicate)
                    table.add(key, lambda m=method, c=cell, r=replicate: _fit(m, c, r))
    found = summary(run, tuple(MEANS))
    cells_found = list(dict.fromkeys(key[1:] for key in found))
    _, axes, save = figure(run.folder / "figure4.png", 11, 0.35 * len(cells_found) + 2.2, 1, 3)
    for shift, method in zip(np.linspace(0.3, -0.3, len(MEANS)), MEANS, strict=True):
        for axis, measure in zip(axes[0], ("mae", "coverage", "width"), strict=True):
            mine = [(cells_found.index(key[1:]), row) for key, row in found.items() if key[0] == method]
            axis.errorbar(
                [row[measure] for _, row in mine],
                [shift - at for at, _ in mine],
                xerr=[2 * row[f"{measure}_se"] for _, row in mine],
                fmt="x" if method == REFERENCE else "o",
                ms=3,
                lw=1,
                label=method,
            )
            axis.set_xlabel({"mae": "MAE"}.get(measure, measure))
            words = [", ".join(cell) for cell in cells_found] if measure == "mae" else []
            axis.set_yticks(-np.arange(len(cells_found)) if words else [], words)
    axes[0][0].set_xscale("log")
    axes[0][2].set_xscale("log")
    axes[0][1].axvline(0.95, color="0.7", lw=0.8)
    axes[0][2].legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save()


def summary(run: Run, methods: Sequence[str]) -> dict[tuple[str, ...], dict[str, float]]:
    """By method, law, n, epsilon: MAE, coverage, width with standard errors, ess, seconds, replicates."""
    out = {}
    for key, group in rows(run).groups(KEY[:4]).items():
        if key[0] in methods:
            row = {"replicates": float(len(group["replicate"]))}
            inside = (group["low"] <= group["truth"]) & (group["truth"] <= group["high"])
            for name, values in (
                ("mae", np.abs(group["mean"] - group["truth"])),
                ("coverage", inside.astype(float)),
                ("width", group["high"] - group["low"]),
            ):
                row[name], row[f"{name}_se"] = mean_error(values)
            row["ess"], row["seconds"] = float(np.mean(group["ess"])), float(np.median(group["seconds"]))
            out[key] = row
    return out


def coverage(run: Run) -> dict[str, tuple[float, float]]:
    """By method: coverage over all cells and its standard error over replicates (a seed's noise is in all cells)."""
    out = {}
    for (method,), group in rows(run).groups(KEY[:1]).items():
        inside = (group["low"] <= group["truth"]) & (group["truth"] <= group["high"])
        out[method] = mean_error(by_replicate(group["replicate"], inside.astype(float)))
    return out


def markdown(run: Run) -> str:
    """Numbers behind figure 4."""
    lines = ["| law, n, epsilon | method | replicates | MAE (SE) | coverage (SE) | width (SE) |", "|---" * 6 + "|"]
    found = summary(run, tuple(MEANS))
    for cell in dict.fromkeys(key[1:] for key in found):
        for method in MEANS:
            row = found.get((method, *cell))
            if row:
                lines.append(table_line(cell, method, row))
    return "\n".join(lines)
