"""Coverage, error and width over the twelve cells of docs/method.md section 9, against the floor of docs/refinement.md.

    python -m bench.coverage --replicates 100 --table bench/results/coverage

One row for each replicate is appended to bench/out/coverage.csv, so that a run that was stopped goes on where it was;
the table and the plot are made of that file.  ``--table`` without replicates left to do only makes them again.

Statistics.  A replicate's coverage is the mean over the four coefficients, so the Monte Carlo error of a cell's is
sd / sqrt(replicates) over replicates, coefficients being dependent; the 99% interval is Student's.  Comparisons of two
settings pair replicates, which share records and (where the mechanism is the same) random keys: a paired t-test on the
difference of the replicates' coverage, and of log width.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from bench.simulation import CELLS, NAMES, TRUTH, Cell, exact_fit, floor_parts

Array = NDArray[np.float64]
HERE = Path(__file__).resolve().parent
FIELDS = ("low", "high", "mean", "exact", "sampling", "privacy")
COLUMNS = ("setting", "cell", "replicate", "seconds", *(f"{field}.{name}" for field in FIELDS for name in NAMES))


def setting(args: argparse.Namespace) -> str:
    """The settings that make rows comparable, as one word."""
    if args.geometry == "scores":
        return f"{args.posterior} scores"
    parts = [args.posterior, f"S={args.blocks}", f"gamma={args.gamma or 'star'}", f"K={args.draws_per_step}"]
    return " ".join(parts + ([f"T={args.steps}"] if args.steps else []))


def replicate_row(cell: Cell, replicate: int, args: argparse.Namespace) -> list[object]:
    """Fit one replicate."""
    X, y = cell.data(replicate)
    options = {"steps": args.steps} if args.steps else {}
    if args.geometry == "box":
        options |= {"n_blocks": args.blocks, "gamma": args.gamma, "draws_per_step": args.draws_per_step}
    model = cell.model(replicate, posterior=args.posterior, geometry=args.geometry, **options)
    model.plan(cell.n)
    start = time.perf_counter()
    posterior = model.fit(X, y).posterior_
    seconds = time.perf_counter() - start
    draws = posterior.draws(4000)[:, :4]
    exact = exact_fit(X, y)
    sampling, privacy = floor_parts(exact, cell.n, model)
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    fields = (low, high, draws.mean(axis=0), exact.theta[:4], sampling, privacy)
    values = [f"{value:.8g}" for field in fields for value in field]
    return [setting(args), str(cell), replicate, f"{seconds:.4f}", *values]


def read(path: Path) -> dict[tuple[str, str], dict[int, dict[str, Array]]]:
    """Rows by setting and cell, then by replicate: seconds (1,) and each field (4,)."""
    found: dict[tuple[str, str], dict[int, dict[str, Array]]] = {}
    if path.exists():
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                fields = {f: np.array([float(row[f"{f}.{name}"]) for name in NAMES]) for f in FIELDS}
                fields["seconds"] = np.array([float(row["seconds"])])
                found.setdefault((row["setting"], row["cell"]), {})[int(row["replicate"])] = fields
    return found


def run(path: Path, args: argparse.Namespace, cells: Sequence[Cell]) -> None:
    """Add the replicates that are missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    known = read(path)
    fresh = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        if fresh:
            writer.writerow(COLUMNS)
        for cell in cells:
            done = known.get((setting(args), str(cell)), {})
            for replicate in range(args.replicates):
                if replicate not in done:
                    writer.writerow(replicate_row(cell, replicate, args))
                    file.flush()


class Result:
    """What a cell's replicates say."""

    def __init__(self, rows: dict[int, dict[str, Array]]) -> None:
        self.replicates = sorted(rows)
        get = {f: np.stack([rows[r][f] for r in self.replicates]) for f in (*FIELDS, "seconds")}
        floor = 3.92 * np.sqrt(get["sampling"] ** 2 + get["privacy"] ** 2)
        self.covered = ((get["low"] <= TRUTH) & (get["high"] >= TRUTH)).mean(axis=1)
        self.log_width = np.log((get["high"] - get["low"]) / floor).mean(axis=1)
        self.coverage = float(self.covered.mean())
        m = len(self.covered)
        self.error = float(stats.t.ppf(0.995, m - 1) * self.covered.std(ddof=1) / np.sqrt(m)) if m > 1 else np.nan
        self.width = float(((get["high"] - get["low"]).mean(axis=0) / floor.mean(axis=0)).mean())
        mean_square = ((get["mean"] - TRUTH) ** 2).mean(axis=0)
        # the floor's root mean square error, and what this very set of samples would give without privacy: the ratio
        # to the latter plus the known privacy variance is free of the luck of the samples
        lucky = ((get["exact"] - TRUTH) ** 2 + get["privacy"] ** 2).mean(axis=0)
        self.rmse = float(np.sqrt(mean_square.mean() / ((floor / 3.92) ** 2).mean()))
        self.rmse_lucky = float(np.sqrt(mean_square.mean() / lucky.mean()))
        self.privacy_share = float((get["privacy"] ** 2).sum() / ((floor / 3.92) ** 2).sum())
        self.raw_width = float((get["high"] - get["low"]).mean())
        self.seconds = float(np.median(get["seconds"]))


def table(results: dict[str, Result]) -> str:
    """Markdown, one line for each cell and one for all."""
    lines = [
        "| cell (errors, n, eps) | replicates | coverage (99% interval) | RMSE / floor | RMSE / same samples' floor "
        "| width / floor | width | privacy share | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, r in results.items():
        lines.append(
            f"| {name.replace(':', ', ')} | {len(r.replicates)} | {r.coverage:.3f} ± {r.error:.3f} | {r.rmse:.2f} "
            f"| {r.rmse_lucky:.2f} | {r.width:.2f} | {r.raw_width:.4f} | {r.privacy_share:.0%} | {r.seconds:.2f} |"
        )
    if len(results) > 1:
        every = list(results.values())
        covered = np.concatenate([r.covered for r in every])
        error = stats.norm.ppf(0.995) * covered.std(ddof=1) / np.sqrt(len(covered))
        lines.append(
            f"| all | {len(covered)} | {covered.mean():.3f} ± {error:.3f} | {max(r.rmse for r in every):.2f} (largest) "
            f"| {max(r.rmse_lucky for r in every):.2f} (largest) | {max(r.width for r in every):.2f} (largest) | | | |"
        )
    return "\n".join(lines)


def differences(first: Result, second: Result) -> tuple[Array, Array]:
    """Of coverage and of log width, replicate by replicate."""
    both = sorted(set(first.replicates) & set(second.replicates))
    a, b = ([r.replicates.index(i) for i in both] for r in (first, second))
    return second.covered[b] - first.covered[a], second.log_width[b] - first.log_width[a]


def comparison(covered: Array, width: Array) -> tuple[float, float, float, float, float]:
    """Difference of coverage, its p-value and 99% half width, ratio of widths and its p-value; paired t-tests."""
    half = float(stats.t.ppf(0.995, len(covered) - 1) * covered.std(ddof=1) / np.sqrt(len(covered)))
    p = float(stats.ttest_1samp(covered, 0.0).pvalue) if covered.any() else 1.0
    return float(covered.mean()), p, half, float(np.exp(width.mean())), float(stats.ttest_1samp(width, 0.0).pvalue)


def plot(results: dict[str, Result], path: Path, title: str) -> None:
    """Coverage with its interval, and width over floor, for each cell."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    place = np.arange(len(results))[::-1]
    every = list(results.values())
    axes[0].errorbar([r.coverage for r in every], place, xerr=[r.error for r in every], fmt="o", ms=4, lw=1)
    axes[0].axvline(0.95, color="0.6", lw=0.8)
    axes[0].set(xlabel="coverage of 95% intervals, with 99% Monte Carlo interval", xlim=(0.8, 1.0))
    axes[0].set_yticks(place, [name.replace(":", ", ") for name in results])
    axes[1].plot([r.width for r in every], place, "o", ms=4, label="width")
    axes[1].plot([r.rmse for r in every], place, "x", ms=5, label="RMSE")
    axes[1].axvline(1.0, color="0.6", lw=0.8)
    axes[1].set(xlabel="over the floor")
    axes[1].legend(frameon=False)
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=80)


def arguments(values: Sequence[str] | None = None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--posterior", choices=("noise-aware", "generator"), default="noise-aware")
    parser.add_argument("--geometry", choices=("scores", "box"), default="scores")
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--blocks", type=int, default=20, help="S")
    parser.add_argument("--gamma", type=float, help="Dirichlet concentration; by default gamma*")
    parser.add_argument("--draws-per-step", type=int, default=1, help="K")
    parser.add_argument("--steps", type=int, help="T; by default the posterior's own")
    parser.add_argument("--cells", nargs="*", type=Cell.parse, default=CELLS, help="errors:n:epsilon, all by default")
    parser.add_argument("--quick", action="store_true", help="3 replicates of 2 cells, in a file of their own")
    parser.add_argument("--table", type=Path, help="write TABLE.md and TABLE.png")
    parser.add_argument("--against", help="a setting as the csv file has it; adds a table of paired tests")
    return parser.parse_args(values)


def main() -> None:
    """Run, then print the table."""
    args = arguments()
    path, cells = HERE / "out" / "coverage.csv", list(args.cells)
    if args.quick:
        path, cells, args.replicates = HERE / "out" / "quick.csv", cells[:2], 3
    run(path, args, cells)
    rows = read(path)
    results = {str(c): Result(rows[setting(args), str(c)]) for c in cells if (setting(args), str(c)) in rows}
    text = f"{setting(args)}\n\n{table(results)}\n"
    if args.against:
        text += f"\nAgainst {args.against}: paired over replicates, two-sided t-tests\n\n"
        text += "| cell | coverage difference (99%) | p | width ratio | p |\n|---|---|---|---|---|\n"
        both = [name for name in results if (args.against, name) in rows]
        pairs = [differences(Result(rows[args.against, name]), results[name]) for name in both]
        if len(pairs) > 1:
            both.append("all")
            pairs.append((np.concatenate([p[0] for p in pairs]), np.concatenate([p[1] for p in pairs])))
        for name, pair in zip(both, pairs, strict=True):
            d, p, half, ratio, p_width = comparison(*pair)
            text += f"| {name.replace(':', ', ')} | {d:+.3f} ± {half:.3f} | {p:.2g} | {ratio:.3f} | {p_width:.2g} |\n"
    print(text)
    if args.table:
        args.table.parent.mkdir(parents=True, exist_ok=True)
        args.table.with_suffix(".md").write_text(text)
        plot(results, args.table.with_suffix(".png"), setting(args))


if __name__ == "__main__":
    main()
