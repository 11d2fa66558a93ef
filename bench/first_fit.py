"""How long a user waits for a first fit: nothing compiled or calibrated before, then with what earlier processes kept.

`python -m bench.first_fit` writes bench/results/first_fit.md.  CPU seconds, each in a process of its own: they don't
depend on what else the machine does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.machine import processor

HERE = Path(__file__).resolve().parent
ONE = """
import json, sys, time
import numpy as np
start = time.process_time()
from pgbb_fast import PrivateQuantileRegressor
marks = [time.process_time()]
kind, levels, n = sys.argv[1], json.loads(sys.argv[2]), 20_000
rng = np.random.default_rng(0)
X, y = rng.random((n, 4)).astype(kind), rng.random(n).astype(kind)
model = PrivateQuantileRegressor(tau=levels, epsilon=1, delta=1e-5, x_bounds=[(0, 1)] * 4, y_bounds=(0, 1))
model.plan(n)
marks.append(time.process_time())
model.fit(X, y)
marks.append(time.process_time())
model.fit(X, y)
marks.append(time.process_time())
print(json.dumps([b - a for a, b in zip([start, *marks], marks)]))
"""
LEVELS = [0.1, 0.25, 0.5, 0.75, 0.9]
CASES = (
    ("nothing kept", "float32", LEVELS),
    ("the same again", "float32", LEVELS),
    ("another type of records", "float64", LEVELS),
    ("another number of levels", "float32", [0.5]),
)


def main() -> None:
    lines = [
        f"{processor()}; CPU seconds of one process each; quantile regression, n = 20,000, p = 4.",
        "",
        "| after | records | levels | import | calibration | first fit | second fit |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        kept = {"NUMBA_CACHE_DIR": f"{folder}/kernels", "PGBB_FAST_CACHE": f"{folder}/calibrations"}
        for name, kind, levels in CASES:
            command = [sys.executable, "-c", ONE, kind, json.dumps(levels)]
            said = subprocess.run(command, env={**os.environ, **kept}, capture_output=True, text=True, check=True)
            seconds = " | ".join(f"{value:.1f}" for value in json.loads(said.stdout))
            lines.append(f"| {name} | {kind} | {len(levels)} | {seconds} |")
            print(lines[-1], flush=True)
    (HERE / "results" / "first_fit.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
