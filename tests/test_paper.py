"""What the paper's experiments rest on: rows that are not made twice, effective sizes, slopes."""

import importlib
import math
import sys
from pathlib import Path

import numpy as np
import pytest

BENCH = Path(__file__).resolve().parents[1] / "bench" / "paper"


@pytest.fixture(scope="module")
def paper():
    """bench/paper's modules, imported as its own commands import them; the path is put back afterwards."""
    before = list(sys.path)
    sys.path.append(str(BENCH))
    loaded = {name: importlib.import_module(name) for name in ("common", "blocking", "methods", "run")}
    sys.path[:] = before
    return loaded


def test_rows_are_made_once(paper, tmp_path):
    path, made = tmp_path / "rows.csv", []

    def make():
        made.append(1)
        return [("a", 1.5), ("b", 2.5)]

    for _ in range(2):      # a second run reads the file
        table = paper["common"].Rows(path, ("cell", "replicate", "name"), ("value",))
        table.add(("c", 0), make)
        table.add(("c", 0), make)
    assert len(made) == 1
    table.add(("c", 1), make)
    table.add(("c1", 0), make)
    groups = table.groups(("cell",))
    assert list(groups["c",]["value"]) == [1.5, 2.5, 1.5, 2.5]
    assert list(groups["c1",]["name"]) == ["a", "b"]


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.95])
def test_effective_size_of_an_autoregression(paper, rho):
    """n (1 - rho) / (1 + rho); 200,000 steps leave an error of a few percent."""
    rng, n = np.random.default_rng(1), 200_000
    x, noise = np.empty(n), rng.standard_normal(n) * math.sqrt(1 - rho**2)
    x[0] = 0.0
    for i in range(1, n):
        x[i] = rho * x[i - 1] + noise[i]
    assert paper["common"].effective_size(x[:, None])[0] == pytest.approx(n * (1 - rho) / (1 + rho), rel=0.12)


def test_slope_of_a_power_law(paper):
    n = np.array([100.0, 200.0, 400.0, 800.0])
    value = 3.0 * n**-0.7
    b, se = paper["blocking"].slope(n, value, 0.02 * value)
    assert b == pytest.approx(-0.7, abs=1e-12)
    assert se == pytest.approx(0.02 / np.std(np.log(n)) / 2, rel=1e-9)


def test_every_experiment_has_a_command(paper):
    commands = {"figure1", "figure2", "figure3", "figure3b", "table_s6", "figure4", "table1"}
    assert set(paper["run"].COMMANDS) == commands
    assert {"noise-aware", "generator", "DP-SGLD", "NoisyGibbs"} <= set(paper["methods"].REGRESSION)
