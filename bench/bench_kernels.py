"""Kernels against the machine's limits and against peers, all in one run.

``pytest bench/bench_kernels.py`` times every case with pytest-benchmark; ``python -m bench.bench_kernels`` measures
the ceilings too and writes bench/results/kernels_<threads>.md and bench/figures/kernels.png (NUMBA_NUM_THREADS says how
many threads; set OPENBLAS_NUM_THREADS to the same).  Nothing here claims correctness: that is the business of
tests/kernels.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bench.kernel_cases import (
    PEERS,
    THREADS,
    Case,
    best,
    build,
    honest_environment,
    matrix_product_rate,
    plain_and_stacked,
    plain_data,
    random_rate,
    ratio,
    read_rate,
)
from bench.machine import processor

HERE = Path(__file__).resolve().parent
CASES = [
    Case("Huber, scale", "huber_concomitant", 10, 10, 2_000_000, 2),
    Case("Huber", "huber_fixed", 10, 10, 2_000_000, 2),
    Case("Huber, block ids", "huber_fixed", 10, 10, 2_000_000, 2, ordered=False),
    Case("quantile, normal", "quantile_gaussian", 10, 10, 2_000_000, 2),
    Case("quantile, logistic", "quantile_logistic", 10, 10, 2_000_000, 2),
    Case("logistic", "logistic", 10, 10, 2_000_000, 2),
    Case("Huber, int16", "huber_fixed", 10, 10, 2_000_000, 2, dtype="int16"),
    Case("Huber", "huber_fixed", 4, 1, 2_000_000, 10),
    Case("Huber, scale", "huber_concomitant", 4, 1, 2_000_000, 10),
    Case("quantile, normal", "quantile_gaussian", 4, 1, 2_000_000, 10),
    Case("logistic", "logistic", 4, 1, 2_000_000, 10),
    Case("Huber, int8", "huber_fixed", 4, 1, 4_000_000, 10, dtype="int8"),
    Case("Huber, scale", "huber_concomitant", 5, 1, 2_000_000, 10),
    Case("Huber, scale", "huber_concomitant", 5, 10, 400_000, 10),
    Case("Huber, Poisson", "huber_concomitant", 5, 1, 50_000_000, 1, q=4e-4),
    Case("Huber, Poisson", "huber_concomitant", 5, 10, 50_000_000, 1, q=4e-4),
    Case("Huber, Poisson", "huber_concomitant", 4, 1, 40_000, 1, q=0.0125),
]
PEER_SIZE = {"NumPy + BLAS": 200_000, "torch": 200_000, "torch.func": 20_000, "Opacus": 20_000}


def label(case: Case) -> str:
    return f"{case.name}-{case.p}-{case.K}-{case.q:g}"


@pytest.mark.parametrize("case", [case for case in CASES if case.n < 10_000_000], ids=label)
def test_kernel(benchmark, case):
    call = build(case)
    call()
    benchmark.extra_info["bytes per record"] = case.bytes_per_record
    benchmark.extra_info["flops per record"] = case.flops_per_record
    benchmark.extra_info["records"] = case.n * case.q
    benchmark(call)


@pytest.mark.parametrize("p", [4, 10])
def test_stacked(benchmark, p):
    """One release of five rules as a stack, and its time over that of the same rules' separate gradients."""
    plain, stacked = plain_and_stacked(p, 1_000_000)
    benchmark.extra_info["time over separate gradients"] = ratio(plain, stacked)
    benchmark.extra_info["records"] = 1_000_000
    benchmark(stacked)


@pytest.mark.parametrize("peer", sorted(PEERS))
def test_peer(benchmark, peer):
    try:
        call = PEERS[peer](plain_data(PEER_SIZE[peer], 10, 10))
    except ImportError as reason:
        pytest.skip(f"{peer} is not installed: {reason}")
    call()
    benchmark.extra_info["records"] = PEER_SIZE[peer]
    benchmark.pedantic(call, rounds=3, warmup_rounds=1)


Point = tuple[str, float, float, bool]


def measure() -> tuple[str, list[Point], float, float]:
    """The table, the points (label, flops per byte, flops per second, ours) and the two ceilings.

    Ceilings are measured before, between and after the kernels; the highest counts.
    """
    flops, read = [matrix_product_rate()], [read_rate()]
    rates: dict[tuple[str, int, int, float], float] = {}
    for i, case in enumerate(CASES):
        rates[case.name, case.p, case.K, case.q] = case.n * case.q / best(build(case))
        print(label(case), f"{rates[case.name, case.p, case.K, case.q] / 1e6:.0f}", flush=True)
        if i % 6 == 5:
            flops.append(matrix_product_rate())
            read.append(read_rate())
    product, bandwidth = max(*flops, matrix_product_rate()), max(*read, read_rate())
    lines = [
        f"{processor()}; {THREADS} thread(s); measured in this run: single-precision matrix product "
        f"{product / 1e9:.0f} Gflop/s, read {bandwidth / 1e9:.1f} GB/s.",
        "",
        "| kernel | p | K | q | 10^6 records/s | bytes/record | flops/record | of read rate | of matrix product |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    points = []
    for case in CASES:
        rate = rates[case.name, case.p, case.K, case.q]
        lines.append(
            f"| {case.name} | {case.p} | {case.K} | {case.q:g} | {rate / 1e6:.0f} | {case.bytes_per_record} | "
            f"{case.flops_per_record} | {rate * case.bytes_per_record / bandwidth:.0%} | "
            f"{rate * case.flops_per_record / product:.0%} |"
        )
        if case.q == 1:
            intensity = case.flops_per_record / case.bytes_per_record
            points.append((f"{case.name}, p={case.p}, K={case.K}", intensity, rate * case.flops_per_record, True))
    table, more = peers(rates)
    lines += [*table, *poisson(rates), *first_calls()]
    return "\n".join(lines) + "\n", points + more, product, bandwidth


def peers(rates: dict[tuple[str, int, int, float], float]) -> tuple[list[str], list[Point]]:
    """Lines and points of the peers, on as many records a call as ours, or a tenth where they need the memory."""
    lines = ["", "| peer, Huber, p = 10, K = 10 | 10^6 records/s | ours is faster by |", "|---|--:|--:|"]
    points = []
    ids, ordered = rates["Huber, block ids", 10, 10, 1.0], rates["Huber", 10, 10, 1.0]
    for peer, make in PEERS.items():
        try:
            call = make(plain_data(PEER_SIZE[peer], 10, 10))
        except ImportError as reason:
            lines.append(f"| {peer} | not installed ({reason}) | |")
            continue
        rate = PEER_SIZE[peer] / best(call)
        lines.append(f"| {peer} | {rate / 1e6:.3g} | {ordered / rate:.0f} (with block ids {ids / rate:.0f}) |")
        flops = CASES[1].flops_per_record
        points.append((peer, flops / CASES[1].bytes_per_record, rate * flops, False))
    return lines, points


def poisson(rates: dict[tuple[str, int, int, float], float]) -> list[str]:
    """Small minibatches of many records, against the full pass and against random rows alone."""
    rows, lines = random_rate(50_000_000, 6, 20_000), []
    for K in (1, 10):
        drawn, full = rates["Huber, Poisson", 5, K, 4e-4], rates["Huber, scale", 5, K, 1.0]
        lines += [
            "",
            f"Poisson, q n = 20,000 of 50 million, p = 5, K = {K}: {drawn / 1e6:.0f} million records/s, "
            f"{drawn / full:.0%} of the full pass ({full / 1e6:.0f}) and {drawn / rows:.0%} of the rate at which as "
            f"many random rows come from memory ({rows / 1e6:.0f}): with sampling and arithmetic for nothing, "
            f"{rows / full:.0%} of the full pass.",
        ]
    return lines


FIRST_CALL = """
import time
import numpy as np
from pgbb_fast.kernels import cpu
from pgbb_fast.kernels.arguments import Draws, Mechanism, Records, Stream
records = Records(np.zeros((64, 5), np.float32), np.zeros(64, np.float32), np.zeros(64, np.int32))
draws = Draws(np.ones((1, {d})), np.array([[1.0, 0.0]]), np.array([[0.5, 0.5]]))
start = time.perf_counter()
cpu.noisy_gradient("{loss}", True, records, draws, Mechanism(1.0, 2**32, 1.0), Stream(np.arange(8), 0))
print(time.perf_counter() - start)
"""


def first_calls() -> list[str]:
    """Seconds of a process's first release, without and with what an earlier process has compiled."""
    lines = ["", "| first release, p = 5 | seconds, nothing compiled yet | compiled before |", "|---|--:|--:|"]
    for loss, d in (("huber_concomitant", 7), ("quantile_gaussian", 6), ("logistic", 6)):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-c", FIRST_CALL.format(loss=loss, d=d)]
            environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
            said = [subprocess.run(command, env=environment, capture_output=True, text=True, check=True) for _ in "12"]
        lines.append(f"| {loss} | {float(said[0].stdout):.1f} | {float(said[1].stdout):.2f} |")
    return lines


def draw(points: list[Point], flops: float, read: float, path: Path) -> None:
    """The roofline: attainable flops against flops per byte, and where the kernels are."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5))
    x = [0.25, flops / read, 64]
    axes.loglog(x, [min(flops, read * v) / 1e9 for v in x], color="black", label="measured ceilings")
    for i, (name, intensity, rate, ours) in enumerate(points):
        axes.loglog(intensity, rate / 1e9, "o" if ours else "x", color=f"C{i % 10}", label=name)
    axes.set_xlabel("flops per byte read")
    axes.set_ylabel("Gflop/s")
    axes.legend(fontsize=6, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.grid(alpha=0.3)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)


def main() -> None:
    """Run in a process of its own, whose BLAS is not held back by the environment."""
    if "--here" not in sys.argv:
        command = [sys.executable, "-m", "bench.bench_kernels", "--here"]
        raise SystemExit(subprocess.call(command, env=honest_environment()))
    table, points, flops, read = measure()
    out = HERE / "results" / f"kernels_{THREADS}.md"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(table)
    draw(points, flops, read, HERE / "figures" / "kernels.png")
    print(table)


if __name__ == "__main__":
    main()
