"""Figure 1: epsilon against S, gamma and T, with the Dirichlet weights' law and without it."""

from __future__ import annotations

from bench.paper.common import Rows, Run, figure
from pgbb_fast.accountant import BlockedGaussian, sweep

DELTA = 1e-4
BASE = BlockedGaussian(
    n=10_000, n_blocks=20, sampling_rate=0.05, steps=10_000, minibatch="shared", noise_multiplier=2.5
)
SWEEPS = {
    "n_blocks": (5, 10, 20, 50, 100, 200),
    "gamma": (0.3, 0.6, 0.9, 1.0, 2.0, 5.0),
    "steps": (1000, 2000, 5000, 10_000, 20_000, 50_000),
}
WORDS = {"n_blocks": "blocks S, sigma fixed", "gamma": "concentration gamma", "steps": "steps T"}


def rows(run: Run) -> Rows:
    """One row for each value of each parameter."""
    return Rows(run.folder / "figure1.csv", ("parameter", "value"), ("epsilon", "epsilon_without_weights"))


def figure1(run: Run) -> None:
    """Compute what is missing, then draw."""
    table = rows(run)
    for parameter, values in SWEEPS.items():
        for value in values[:: run.pick(2, 1)]:

            def make(parameter: str = parameter, value: float = value) -> list[tuple[float, float]]:
                found = sweep(BASE, parameter=parameter, values=[value], delta=DELTA)
                return [(found["epsilon"][0], found["epsilon_without_weights"][0])]

            table.add((parameter, value), make)
    _, axes, save = figure(run.folder / "figure1.png", 9, 3, 1, 3)
    for axis, ((parameter,), group) in zip(axes[0], table.groups(("parameter",)).items(), strict=True):
        axis.loglog(group["value"], group["epsilon"], "o-", label="weights' law")
        axis.loglog(group["value"], group["epsilon_without_weights"], "s--", label="weights at their bound")
        axis.set(xlabel=WORDS[parameter], ylabel=f"epsilon at delta = {DELTA:g}")
    axes[0][0].legend(frameon=False, fontsize=8)
    save()
