"""Peak memory of a fit, against the records themselves: ``python -m bench.memory [n]`` writes bench/results/memory.md.

Each fit runs in a process of its own.  Two peaks of its resident memory (``getrusage``) are given: of the whole
process, interpreter and libraries included, and beyond what it held when the records were made and the libraries
loaded, which is what the fit itself adds.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
P = 5
KINDS = ("float32", "float16", "int8", "float64", "float32, a square")
CHUNK = 1 << 20


def peak() -> int:
    """Bytes: the largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def resident() -> int:
    """Bytes: the present resident size."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def measure(n: int, kind: str) -> dict[str, float]:
    """One fit in this process."""
    from pgbb_fast import PrivateHuberRegressor

    dtype = np.dtype(kind.split(",")[0])
    scale = 100.0 if dtype.kind == "i" else 1.0     # of the stored numbers: int8 holds hundredths
    settings = {
        "x_bounds": [(-scale, scale)] * P,
        "y_bounds": (-scale, scale),
        "epsilon": 1.0,
        "delta": 1e-9,
        "steps": 300,
        "degrees": {"x1": 2} if "square" in kind else {},
    }
    rng = np.random.default_rng(0)

    def records(count: int) -> tuple[np.ndarray, np.ndarray]:
        X, y = np.empty((count, P), dtype), np.empty(count, dtype)
        for start in range(0, count, CHUNK):
            part = scale * (2.0 * rng.random((min(CHUNK, count - start), P), dtype=np.float32) - 1.0)
            X[start : start + CHUNK] = part
            y[start : start + CHUNK] = part @ np.full(P, 0.15, np.float32)
        return X, y

    PrivateHuberRegressor(**settings).fit(*records(10_000))     # loads and compiles
    X, y = records(n)
    before, start = resident(), time.perf_counter()
    PrivateHuberRegressor(**settings).fit(X, y)
    seconds, most, size = time.perf_counter() - start, peak(), X.nbytes + y.nbytes
    return {"bytes": size, "whole": most / size, "fit": (size + most - before) / size, "s": seconds}


def main() -> None:
    from bench.machine import processor

    n = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000_000
    lines = [
        f"{processor()}.  A fit (Huber's regression, p = {P}, 300 steps) on {n / 1e6:g} million records.  Peaks are "
        "multiples of the records' own size, where kernels come from the cache (the compiler keeps another 0.04 GB).",
        "",
        "| records | size, GB | peak of the process | records and what the fit adds | seconds |",
        "|---|--:|--:|--:|--:|",
    ]
    for kind in KINDS:
        run = subprocess.run(
            [sys.executable, "-m", "bench.memory", "--one", str(n), kind], capture_output=True, text=True, check=True
        )
        found = json.loads(run.stdout.splitlines()[-1])
        lines.append(
            f"| {kind} | {found['bytes'] / 1e9:.2f} | {found['whole']:.2f} | {found['fit']:.2f} | {found['s']:.0f} |"
        )
        print(lines[-1], flush=True)
    (HERE / "results" / "memory.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(int(sys.argv[2]), sys.argv[3])))
    else:
        main()
