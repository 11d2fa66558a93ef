"""What asking for more quantile levels at once costs: 1, 5, 9, 19 and 39 equally spaced ones.

    python -m bench.levels --replicates 20 --table bench/results/levels.md

n = 50,000, x ~ U[-1, 1]^3, y = x'b + e in [-5, 5] with normal e of standard deviation .5, epsilon 1, delta = 1e-5.
A^2 is the largest squared length of a record's mixed slopes (docs/geometry.md, section 4), here the largest found over
all places of the record among the levels' curves; one level more or less must not matter but for the gap between
neighbours: A^2 = 1 / gap - 1.  kappa is the standard deviation of privacy noise over that of sampling with the whole
budget spent on the location; widths are over those of the non-private sandwich, sqrt(tau (1 - tau)) / f(q) times the
root of diag(E[x x']^-1) / n, a closed form here.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from bench.hard_cells import DELTA, ERROR, Y_BOUND, linear, processor, slopes
from pgbb_fast import PrivateQuantileRegressor, plan
from pgbb_fast.geometry.schedule import ROUND, schedule
from pgbb_fast.losses import smoothed_quantile
from pgbb_fast.release.stacking import stacking

Array = NDArray[np.float64]
LEVELS = (1, 5, 9, 19, 39)
N, P, EPSILON, SEED = 50_000, 3, 1.0, 29


def longest_slopes(taus: Array) -> float:
    """Largest |R^-1 psi|^2 over the cells between curves, psi_l = 1[y below curve l] - tau_l."""
    mix = stacking(smoothed_quantile(list(taus), 0.01), P + 1).mix
    psi = np.triu(np.ones((len(taus) + 1, len(taus))), 0)[: len(taus) + 1] - taus
    return float(((psi @ mix.T) ** 2).sum(axis=1).max())


def row(L: int, replicates: int) -> str:
    """One line of the table."""
    taus = np.arange(1, L + 1) / (L + 1)
    planned = plan(n=N, p=P, epsilon=EPSILON, delta=DELTA, loss="quantile", levels=tuple(taus))
    z = ndtri(taus)
    f = np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi) / ERROR
    design = np.array([1.0, *np.full(P, 3.0)])  # diag of E[x x']^-1
    sandwich = 3.92 * np.sqrt((taus * (1.0 - taus))[:, None] * design / N) / f[:, None]
    hits, ratios = [], []
    for replicate in range(replicates):
        rng = np.random.default_rng([SEED, replicate])
        X = rng.uniform(-1.0, 1.0, (N, P))
        model = PrivateQuantileRegressor(
            tau=tuple(taus),
            epsilon=EPSILON,
            delta=DELTA,
            x_bounds=[(-1.0, 1.0)] * P,
            y_bounds=(-Y_BOUND, Y_BOUND),
            seed=replicate,
        )
        interval = model.fit(X, linear(X, rng)).posterior_.interval(size=4000).reshape(L, P + 1, 2)
        truth = np.column_stack([ERROR * z, np.tile(slopes(P), (L, 1))])
        hits.append(((interval[..., 0] <= truth) & (truth <= interval[..., 1])).mean())
        ratios.append((interval[..., 1] - interval[..., 0]) / sandwich)
    s = planned.privacy.releases[0].noise_multiplier * math.sqrt(ROUND)
    kappa = schedule(smoothed_quantile(list(taus), 0.01), N, P + 1, s).kappa
    ratio = np.median(ratios, axis=0)
    error = np.std(hits) / math.sqrt(replicates)
    return (
        f"| {L} | {longest_slopes(taus):.3f} | {kappa:.3f} | {kappa / math.sqrt(longest_slopes(taus)):.3f} "
        f"| {planned.ratio:.2f} | {np.median(ratio):.2f} ({ratio.max():.2f}) | {np.mean(hits):.3f} ± {error:.3f} |"
    )


def main() -> None:
    """Run and print; write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=20)
    parser.add_argument("--table", type=Path)
    args = parser.parse_args()
    lines = [
        "| levels | A^2 | kappa | kappa / A | planned width / non-private | measured: median (worst) | coverage |",
        "|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for L in LEVELS:
        lines.append(row(L, args.replicates))
        print(lines[-1], flush=True)
    if args.table:
        head = f"n = {N:,}, p = {P}, epsilon {EPSILON:g}, {args.replicates} replicates; {processor()}.\n\n"
        args.table.write_text(head + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
