"""Figure 3, tables S2 to S7: the regressions with heavy-tailed errors, all methods (section 5.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bench.paper import bootstraps
from bench.paper.common import Rows, Run, by_replicate, effective_size, figure, interval, mean_error, timed
from bench.paper.methods import CONCENTRATION, DRAWS_PER_STEP, REFERENCE, REGRESSION
from bench.simulation import CELLS, NAMES, TRUTH, Cell
from pgbb_fast.baselines import SampledPosterior
from pgbb_fast.posteriors.base import Posterior

SHOWN = (1, 2, 3)       # the paper's three coefficients; the intercept is ours
KEY = ("method", "errors", "n", "epsilon", "replicate", "coefficient")
VALUES = ("mean", "low", "high", "ess", "seconds")
DRAWS = 4000
HARD = (Cell("t3", 10_000, 4.0), Cell("contaminated", 10_000, 4.0))
ALL = {**REGRESSION, **CONCENTRATION, **DRAWS_PER_STEP}


def rows(run: Run) -> Rows:
    """One row for each method, cell, replicate and coefficient."""
    return Rows(run.folder / "regression.csv", KEY, VALUES)


def _fit(method: str, cell: Cell, replicate: int) -> list[tuple[object, ...]]:
    X, y = cell.data(replicate)
    posterior, seconds = timed(lambda: ALL[method](cell, replicate, X, y))
    draws = posterior.draws(DRAWS)
    low, high = interval(draws)
    ess = _effective(posterior, method)
    return [
        (NAMES[j], *map(float, (draws[:, j].mean(), low[j], high[j], ess[j], seconds))) for j in range(len(NAMES))
    ]


def _effective(posterior: Posterior, method: str) -> np.ndarray:
    """Effective size of a chain; independent draws have none."""
    chain = isinstance(posterior, SampledPosterior) and method in ("DP-SGLD", "NoisyGibbs")
    return effective_size(posterior.sample) if chain else np.full(len(NAMES), np.nan)


def _run(run: Run, methods: Sequence[str], cells: Sequence[Cell], replicates: int) -> Rows:
    table = rows(run)
    for replicate in range(replicates):     # so that a run that was stopped has all methods and cells
        for cell in cells:
            for method in methods:
                if run.wants(method):
                    key = (method, cell.errors, cell.n, f"{cell.epsilon:g}", replicate)
                    table.add(key, lambda m=method, c=cell, r=replicate: _fit(m, c, r))
    return table


def figure3(run: Run) -> None:
    """All methods over the twelve cells; then figure 3(a)."""
    cells = run.pick([CELLS[0], CELLS[-1]], CELLS)
    table = _run(run, tuple(REGRESSION), cells, run.repeats(2, 100))
    _draw(run, table, tuple(REGRESSION), "figure3a")


def figure3b(run: Run) -> None:
    """gamma = 1 against gamma*, S = 5 and 20; then figure 3(b)."""
    table = _run(run, tuple(CONCENTRATION), HARD, run.repeats(2, 200))
    _draw(run, table, tuple(CONCENTRATION), "figure3b")


def table_s6(run: Run) -> None:
    """K = 10 against K = 1 over the twelve cells."""
    _run(run, tuple(DRAWS_PER_STEP), run.pick([CELLS[0]], CELLS), run.repeats(2, 100))


Summary = dict[tuple[str, ...], dict[str, float]]


def penalised(key: tuple[str, ...]) -> tuple[float, ...]:
    """What a bootstrap estimates, (intercept, x1, x2, x3), of key (method, errors, n, epsilon)."""
    method, errors, n, epsilon = key
    return bootstraps.target(errors, bootstraps.ridge(method, int(n), float(epsilon)))


def summary(run: Run, methods: Sequence[str], coefficient: str | None = None, own: bool = False) -> Summary:
    """By method, errors, n and epsilon: MAE, coverage, width with their standard errors, ess, seconds, replicates.

    The mean over the three coefficients, or one of them; standard errors are over replicates.  ``own``: against the
    bootstraps' penalised coefficients in place of the true ones.
    """
    names = [coefficient] if coefficient else [NAMES[j] for j in SHOWN]
    out = {}
    for key, group in rows(run).groups(KEY[:4]).items():
        if key[0] not in methods:
            continue
        truth = dict(zip(NAMES, penalised(key) if own else TRUTH, strict=True))
        take = np.isin(group["coefficient"], names)
        part = {name: values[take] for name, values in group.items()}
        true = np.array([truth[name] for name in part["coefficient"]])
        replicate = part["replicate"]
        measures: dict[str, np.ndarray] = {
            "mae": np.abs(part["mean"] - true),
            "coverage": ((part["low"] <= true) & (true <= part["high"])).astype(float),
            "width": part["high"] - part["low"],
        }
        row = {"replicates": float(len(np.unique(replicate)))}
        for name, values in measures.items():
            row[name], row[f"{name}_se"] = mean_error(by_replicate(replicate, values))
        row["ess"], row["seconds"] = float(np.mean(part["ess"])), float(np.median(part["seconds"]))
        out[key] = row
    return out


def _draw(run: Run, table: Rows, methods: Sequence[str], name: str) -> None:
    """MAE, coverage and width by cell; one colour for each method."""
    found = summary(run, methods)
    cells = list(dict.fromkeys(key[1:] for key in found))
    _, axes, save = figure(run.folder / f"{name}.png", 11, 0.35 * len(cells) + 2.2, 1, 3)
    place = {cell: -i for i, cell in enumerate(cells)}
    for shift, method in zip(np.linspace(0.3, -0.3, len(methods)), methods, strict=True):
        mine = [(place[key[1:]] + shift, row) for key, row in found.items() if key[0] == method]
        if not mine:
            continue
        for axis, measure in zip(axes[0], ("mae", "coverage", "width"), strict=True):
            axis.errorbar(
                [row[measure] for _, row in mine],
                [at for at, _ in mine],
                xerr=[2 * row[f"{measure}_se"] for _, row in mine],
                fmt="x" if method == REFERENCE else "o",
                ms=3,
                lw=1,
                label=method,
            )
    for axis, word in zip(axes[0], ("MAE", "coverage", "width"), strict=True):
        ticks = cells if word == "MAE" else []
        axis.set_yticks([place[c] for c in ticks], [", ".join(c) for c in ticks])
        axis.set_xlabel(word)
    axes[0][0].set_xscale("log")
    axes[0][2].set_xscale("log")
    axes[0][1].axvline(0.95, color="0.7", lw=0.8)
    axes[0][2].legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save()


def table_line(cell: tuple[str, ...], method: str, row: dict[str, float]) -> str:
    """One line of a table like S2."""
    numbers = [f"{row[name]:.4f} ({row[f'{name}_se']:.4f})" for name in ("mae", "coverage", "width")]
    return f"| {', '.join(cell)} | {method} | {row['replicates']:.0f} | {' | '.join(numbers)} |"


def markdown(run: Run, methods: Sequence[str], coefficient: str | None = None) -> str:
    """A table like S2 (or S3 to S5 for one coefficient)."""
    lines = ["| errors, n, epsilon | method | replicates | MAE (SE) | coverage (SE) | width (SE) |", "|---" * 6 + "|"]
    found = summary(run, methods, coefficient)
    for cell in dict.fromkeys(key[1:] for key in found):
        for method in methods:
            row = found.get((method, *cell))
            if row:
                lines.append(table_line(cell, method, row))
    return "\n".join(lines)


def coverage(run: Run) -> dict[str, tuple[float, float]]:
    """By method: coverage over coefficients and cells, its standard error over replicates (a seed's noise is in all
    cells)."""
    truth = dict(zip(NAMES, TRUTH, strict=True))
    out = {}
    for (method,), group in rows(run).groups(KEY[:1]).items():
        take = np.isin(group["coefficient"], [NAMES[j] for j in SHOWN])
        true = np.array([truth[name] for name in group["coefficient"][take]])
        inside = (group["low"][take] <= true) & (true <= group["high"][take])
        out[method] = mean_error(by_replicate(group["replicate"][take], inside.astype(float)))
    return out


def penalised_markdown(run: Run) -> str:
    """The bootstraps against their own targets."""
    lines = [
        "| errors, n, epsilon | method | ridge | penalised x1, x2, x3 | MAE (SE) | coverage (SE) |",
        "|---" * 6 + "|",
    ]
    found = summary(run, tuple(bootstraps.NOISE), own=True)
    for cell in dict.fromkeys(key[1:] for key in found):
        for method in bootstraps.NOISE:
            if (method, *cell) in found:
                row = found[method, *cell]
                size = bootstraps.ridge(method, int(cell[1]), float(cell[2]))
                b = ", ".join(f"{value:.3f}" for value in penalised((method, *cell))[1:])
                numbers = [f"{row[name]:.4f} ({row[f'{name}_se']:.4f})" for name in ("mae", "coverage")]
                lines.append(f"| {', '.join(cell)} | {method} | {size:.5f} | {b} | {' | '.join(numbers)} |")
    return "\n".join(lines)


TABLES: dict[str, Callable[[Run], str]] = {
    "S2": lambda run: markdown(run, tuple(REGRESSION)),
    "S3": lambda run: markdown(run, tuple(REGRESSION), "x1"),
    "S4": lambda run: markdown(run, tuple(REGRESSION), "x2"),
    "S5": lambda run: markdown(run, tuple(REGRESSION), "x3"),
    "S6": lambda run: markdown(run, tuple(DRAWS_PER_STEP)),
}
