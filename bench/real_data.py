"""Quantile regressions on public microdata: do the intervals include the exact non-private fit, and how wide are they?

    python -m bench.real_data --runs 10 --table bench/results/real_data.md

Census 1980 and 2000 extracts (log weekly wage on schooling, experience and its square, black), the 1980 Census on
schooling and years of birth, the demo's records, and births of 1997, at the levels .1 .25 .5 .75 .9 jointly and at .5
alone, epsilon 1 and 4, delta = 1e-5.  Bounds are public, as a user would state them.  Reference: exact fits from
../shared/data, with the sandwich of quantile regression (Powell 1991; Gaussian kernel, Hall and Sheather's 1988
bandwidth) for the non-private 95% width.  "Planned" is what ``plan`` says of the ratio before any data.  Inclusion is
of the exact fit of the same records: an interval that allows for sampling too includes it nearly always where privacy
is a small part.  Statistical use only.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import bench.simulation  # noqa: F401 (calibrates once for each set of public numbers)
from pgbb_fast import PrivateQuantileRegressor, plan

Array = NDArray[np.float64]
HERE = Path(__file__).resolve().parent
DATA = HERE.parents[1] / "shared" / "data"
LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
EPSILONS = (1.0, 4.0)
DELTA = 1e-5


@dataclass(frozen=True)
class Source:
    """A data set: outcome, features with their public bounds, powers, and indicator columns (column, value)."""

    name: str
    outcome: str
    y_bounds: tuple[float, float]
    x_bounds: dict[str, tuple[float, float]]
    degrees: dict[str, int]
    indicators: dict[str, tuple[str, int]] = field(default_factory=dict)
    factors: tuple[float, ...] = ()  # of the reference's coefficients

    def exact(self, fit: list[float]) -> Array:
        """The reference's coefficients, for the features as they are."""
        return np.asarray(fit) * (np.asarray(self.factors) if self.factors else 1.0)

    def load(self) -> tuple[Array, Array]:
        """X (n, p) and y (n,)."""
        import pyarrow.parquet as pq

        columns = pq.read_table(DATA / f"{self.name}.parquet").to_pydict()
        data = {name: np.asarray(values, dtype=np.float64) for name, values in columns.items()}
        for name, (column, value) in self.indicators.items():
            data[name] = (data[column] == value).astype(np.float64)
        return np.column_stack([data[name] for name in self.x_bounds]), data[self.outcome]

    def design(self, X: Array) -> Array:
        """Intercept, then each feature with its powers: the order of the estimator and of the reference fits."""
        columns = [np.ones(len(X))]
        for j, name in enumerate(self.x_bounds):
            columns += [X[:, j] ** power for power in range(1, self.degrees.get(name, 1) + 1)]
        return np.column_stack(columns)


CENSUS: dict[str, Any] = {
    "outcome": "logwk",
    "y_bounds": (2.0, 9.0),
    "x_bounds": {"educ": (0.0, 20.0), "exper": (0.0, 60.0), "black": (0.0, 1.0)},
    "degrees": {"exper": 2},
}
UNIT = (0.0, 1.0)
SOURCES = (
    Source("acf_census80", **CENSUS),
    Source("acf_census00", **CENSUS),
    Source(
        "natality1997_50k",
        "bweight",
        (0.0, 7000.0),
        {
            "boy": UNIT,
            "married": UNIT,
            "black": UNIT,
            "age": (15.0, 50.0),
            **{f"educ4_{k}": UNIT for k in (1, 2, 3)},
            **{f"prenatal4_{k}": UNIT for k in (0, 2, 3)},
            "smoke": UNIT,
            "cigs": (0.0, 60.0),
            "wtgain": (0.0, 100.0),
        },
        {"age": 2, "wtgain": 2},
        {f"{column}_{k}": (column, k) for column, ks in (("educ4", (1, 2, 3)), ("prenatal4", (0, 2, 3))) for k in ks},
    ),
    Source(
        "ak1980_329k", "logwk", (0.0, 10.0), {"educ": (0.0, 20.0), **{f"yob_{k}": UNIT for k in range(30, 39)}}, {},
        {f"yob_{k}": ("yob", k) for k in range(30, 39)},
    ),
    Source(
        "demo_census2000_29k", "lweekinc", (2.0, 12.0), {"educ": (0.0, 20.0), "exper": (0.0, 60.0)}, {"exper": 2},
        factors=(1.0, 1.0, 1.0, 0.01),
    ),
)  # fmt: skip


def sandwich(design: Array, y: Array, beta: Array, tau: float) -> Array:
    """Standard errors of quantile regression, H^-1 tau (1 - tau) E[x x'] H^-1 / n with H = E[K_h(r) x x']."""
    n = len(y)
    z = stats.norm.ppf(tau)
    density = stats.norm.pdf(z)
    share = n ** (-1 / 3) * stats.norm.ppf(0.975) ** (2 / 3) * (1.5 * density**2 / (2 * z**2 + 1)) ** (1 / 3)
    residual = y - design @ beta
    spread = min(residual.std(), np.subtract(*np.quantile(residual, [0.75, 0.25])) / 1.34)
    low, high = max(tau - share, 1e-3), min(tau + share, 1 - 1e-3)
    h = spread * (stats.norm.ppf(high) - stats.norm.ppf(low))
    scale = np.abs(design).max(axis=0)
    scaled = design / scale
    H = scaled.T @ (scaled * stats.norm.pdf(residual / h)[:, None] / h) / n
    inverse = np.linalg.inv(H)
    error = np.sqrt(np.diag(inverse @ (scaled.T @ scaled / n) @ inverse) * tau * (1 - tau) / n) / scale
    return np.asarray(error)


def run(path: Path, runs: int, sources: tuple[Source, ...]) -> None:
    """Add the runs that are missing: one line for each coefficient, level and run."""
    reference = json.loads((DATA / "reference_fits.json").read_text())
    done = {(r["source"], r["levels"], r["epsilon"], r["run"]) for r in read(path)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        if not file.tell():
            writer.writerow(COLUMNS)
        for source in sources:
            X, y = source.load()
            design = source.design(X)
            fits = {tau: source.exact(reference[source.name]["qr"][f"{tau:g}"]["coef"]) for tau in LEVELS}
            errors = {tau: sandwich(design, y, fits[tau], tau) for tau in LEVELS}
            p = sum(source.degrees.get(name, 1) for name in source.x_bounds)
            for levels in (LEVELS, (0.5,)):
                word = "joint" if len(levels) > 1 else "median"
                for epsilon in EPSILONS:
                    for number in range(runs):
                        if (source.name, word, f"{epsilon:g}", str(number)) in done:
                            continue
                        model = PrivateQuantileRegressor(
                            tau=levels,
                            x_bounds=source.x_bounds,
                            y_bounds=source.y_bounds,
                            degrees=source.degrees,
                            feature_names=tuple(source.x_bounds),
                            epsilon=epsilon,
                            delta=DELTA,
                            seed=number,
                        )
                        start = time.perf_counter()
                        posterior = model.fit(X, y).posterior_
                        seconds = time.perf_counter() - start
                        d = len(posterior.names)
                        planned = plan(n=len(y), p=p, epsilon=epsilon, delta=DELTA, loss="quantile", levels=levels)
                        for i, row in enumerate(posterior.summary(size=8000).rows):
                            tau = levels[i // d]
                            assert row.privacy_sd is not None
                            assert row.sampling_sd is not None
                            share = row.privacy_sd**2 / (row.privacy_sd**2 + row.sampling_sd**2)
                            known = (fits[tau][i % d], errors[tau][i % d], planned.ratio)
                            values = (row.mean, row.low, row.high, *known, share, seconds)
                            what = (source.name, word, f"{epsilon:g}", number, tau, row.name)
                            writer.writerow([*what, *(f"{v:.8g}" for v in values)])
                        file.flush()


WHAT = ("source", "levels", "epsilon", "run", "tau", "name")
VALUES = ("mean", "low", "high", "exact", "se", "planned", "share", "seconds")
COLUMNS = (*WHAT, *VALUES)


def read(path: Path) -> list[dict[str, str]]:
    """All rows."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def tables(rows: list[dict[str, str]]) -> str:
    """Two tables: for each fit, and for each coefficient of the joint fits."""
    first = [
        "| data | levels | eps | runs | inclusion | width / non-private, median (worst coefficient) | planned "
        "| mean absolute error / non-private standard error | privacy share, median | seconds |",
        "|" + "---|" * 10,
    ]
    second = ["| data | coefficient | eps | inclusion | width / non-private | error / standard error | privacy share |"]
    second.append("|" + "---|" * 7)
    groups: dict[tuple[str, str, str], list[dict[str, str]]] = {}
    for row in rows:
        groups.setdefault((row["source"], row["levels"], row["epsilon"]), []).append(row)
    for (source, levels, epsilon), group in groups.items():
        value = {c: np.array([float(r[c]) for r in group]) for c in VALUES}
        included = (value["low"] <= value["exact"]) & (value["exact"] <= value["high"])
        ratio = (value["high"] - value["low"]) / (3.92 * value["se"])
        error = np.abs(value["mean"] - value["exact"]) / value["se"]
        runs = len({r["run"] for r in group})
        keys = np.array([f"{r['name']} {r['tau']}" for r in group])
        worst = max(float(np.median(ratio[keys == k])) for k in np.unique(keys))
        first.append(
            f"| {source} | {levels} | {epsilon} | {runs} | {included.mean():.3f} "
            f"| {np.median(ratio):.2f} ({worst:.2f}) | {value['planned'][0]:.2f} | {error.mean():.2f} "
            f"| {np.median(value['share']):.0%} | {np.median(value['seconds']):.1f} |"
        )
        if levels == "joint":
            for name in dict.fromkeys(r["name"] for r in group):
                these = np.array([r["name"] == name for r in group])
                second.append(
                    f"| {source} | {name} | {epsilon} | {included[these].mean():.2f} | {np.median(ratio[these]):.2f} "
                    f"| {error[these].mean():.2f} | {np.median(value['share'][these]):.0%} |"
                )
    middle = "\n\nJoint fits, each coefficient over the five levels:\n\n"
    return "\n".join(first) + middle + "\n".join(second) + "\n"


def main() -> None:
    """Run what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--sources", nargs="*", default=[s.name for s in SOURCES])
    parser.add_argument("--table", type=Path)
    args = parser.parse_args()
    if not DATA.is_dir():
        print("real_data: the shared reference data are not here; nothing to do.")
        return
    path = HERE / "out" / "real_data.csv"
    run(path, args.runs, tuple(s for s in SOURCES if s.name in args.sources))
    text = tables(read(path))
    print(text)
    if args.table:
        args.table.write_text(text)


if __name__ == "__main__":
    main()
