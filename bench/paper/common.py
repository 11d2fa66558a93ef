"""What the paper's experiments share: paths, resumable tables of rows, Monte Carlo errors, effective sample sizes."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
BENCH = HERE.parent
Array = NDArray[np.float64]
RESULTS = HERE / "results"
QUICK = BENCH / "out" / "paper"
LEVEL = 0.95


@dataclass(frozen=True)
class Run:
    """Where rows go and how much is done: ``quick`` takes minutes and has files of its own."""

    quick: bool
    only: tuple[str, ...] = ()      # methods; empty: all
    replicates: int | None = None   # of the simulations, and runs of table 1, where the command line says

    @property
    def folder(self) -> Path:
        """Folder of tables and figures."""
        return QUICK if self.quick else RESULTS

    def wants(self, method: str) -> bool:
        """Whether the command line asked for this method."""
        return not self.only or method in self.only

    def pick(self, quick: Any, full: Any) -> Any:
        """One of two sizes."""
        return quick if self.quick else full

    def repeats(self, quick: int, full: int) -> int:
        """How many replicates: what the command line asked for, else one of two sizes."""
        return self.replicates or int(self.pick(quick, full))


class Rows:
    """A CSV file of rows with a key; rows that are there are not made again."""

    def __init__(self, path: Path, key: Sequence[str], values: Sequence[str]) -> None:
        self.path, self.key, self.values = path, tuple(key), tuple(values)
        self.done: set[tuple[str, ...]] = set()     # the keys, and their starts
        self._note(tuple(row[k] for k in self.key) for row in self.read())

    def _note(self, keys: Iterable[tuple[str, ...]]) -> None:
        self.done |= {key[:length] for key in keys for length in range(1, len(key) + 1)}

    def read(self) -> list[dict[str, str]]:
        """All rows, as text."""
        if not self.path.exists():
            return []
        with self.path.open(newline="") as file:
            return list(csv.DictReader(file))

    def add(self, key: Sequence[object], make: Callable[[], Iterable[Sequence[object]]]) -> None:
        """Append the rows that ``make`` returns, each (rest of the key, then values), unless there are rows with
        this start of the key."""
        start = tuple(map(str, key))
        if start in self.done:
            return
        rows = [[*start, *map(_text, row)] for row in make()]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = not self.path.exists()
        with self.path.open("a", newline="") as file:
            writer = csv.writer(file)
            if fresh:
                writer.writerow([*self.key, *self.values])
            writer.writerows(rows)
        self._note(tuple(row[: len(self.key)]) for row in rows)

    def groups(self, by: Sequence[str]) -> dict[tuple[str, ...], dict[str, Array]]:
        """Values of the rows by the named columns, which may be part of the key; other keys as text arrays."""
        found: dict[tuple[str, ...], list[dict[str, str]]] = {}
        for row in self.read():
            found.setdefault(tuple(row[name] for name in by), []).append(row)
        return {
            name: {column: _column([row[column] for row in rows]) for column in (*self.key, *self.values)}
            for name, rows in found.items()
        }


def _text(value: object) -> str:
    return f"{value:.8g}" if isinstance(value, float) else str(value)


def _column(texts: Sequence[str]) -> NDArray[Any]:
    try:
        return np.array([float(text) for text in texts])
    except ValueError:
        return np.array(texts)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Result and seconds."""
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def mean_error(values: Array) -> tuple[float, float]:
    """Mean over replicates and its standard error."""
    m = len(values)
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(m)) if m > 1 else float("nan")


def by_replicate(replicate: Array, values: Array) -> Array:
    """Means of ``values`` within each replicate: coefficients of one fit are dependent."""
    return np.array([values[replicate == r].mean() for r in np.unique(replicate)])


def effective_size(chain: Array) -> Array:
    """Effective sample size of each column: n / (1 + 2 sum of autocorrelations), up to the first negative pair
    (Geyer 1992, initial positive sequence)."""
    n = len(chain)
    out = []
    for x in (chain - chain.mean(axis=0)).T:
        spectrum = np.abs(np.fft.rfft(x, 2 * n)) ** 2
        rho = np.fft.irfft(spectrum)[:n]
        if not rho[0] > 0.0:
            out.append(float(n))
            continue
        rho = rho / rho[0]
        pairs = rho[: n - n % 2].reshape(-1, 2).sum(axis=1)
        stop = int(np.argmax(pairs <= 0.0)) if (pairs <= 0.0).any() else len(pairs)
        out.append(n / max(2.0 * pairs[:stop].sum() - 1.0, 1.0 / n))
    return np.minimum(np.array(out), n)


def interval(draws: Array) -> tuple[Array, Array]:
    """Equal-tailed 95% interval over the first axis."""
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return low, high


def figure(path: Path, width: float, height: float, rows: int, columns: int) -> Any:
    """A matplotlib figure with its axes; ``save`` it by calling what is returned last."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib import ticker

    fig, axes = plt.subplots(rows, columns, figsize=(width, height), squeeze=False)

    def save() -> None:
        for axis in [line for ax in axes.flat for line in (ax.xaxis, ax.yaxis) if line.get_scale() == "log"]:
            axis.set_major_locator(ticker.LogLocator(subs=(1.0, 3.0)))
            axis.set_major_formatter(ticker.FormatStrFormatter("%g"))
            axis.set_minor_formatter(ticker.NullFormatter())
        fig.tight_layout()
        path.parent.mkdir(parents=True, exist_ok=True)
        fig.savefig(path, dpi=110)
        plt.close(fig)

    return fig, axes, save
