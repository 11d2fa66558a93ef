"""One command for a machine with an NVIDIA GPU: correctness, then kernel and step times, in under six minutes.

    python -m bench.gpu_check [--seconds 340]

Runs the tests marked gpu, then times the fused kernel at n = 1e6 .. 3e8, p = 4, 10, 32 and K = 1, 10, 64 against a copy
from device to device measured in the same run and against torch (eager and compiled), the stacked kernel, and whole
training steps with and without the CUDA graph.  Writes bench/results/gpu_check.md.  What was not measured has no number
there: what doesn't fit into the memory or the time is listed as such.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pgbb_fast.kernels.cuda.probe import probe

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).resolve().parent / "results" / "gpu_check.md"
S, CLIP, C = 20, 20.0, 1.345
SIZES = (10**6, 10**8, 3 * 10**8)
FEATURES, DRAWS = (4, 10, 32), (1, 10, 64)
FREE = 4 << 30      # bytes of device memory that are left alone


class Clock:
    """Time that is left, and median times of work on the GPU."""

    def __init__(self, seconds: float) -> None:
        self.end = time.perf_counter() + seconds

    def left(self) -> float:
        return self.end - time.perf_counter()

    def seconds(self, call: Callable[[], object], budget: float = 0.6) -> float:
        """Median seconds of one call, by CUDA events around each; compiled and warm before."""
        import torch

        for _ in range(3):
            call()
        torch.cuda.synchronize()
        times, stop = [], time.perf_counter() + budget
        while len(times) < 5 or (time.perf_counter() < stop and len(times) < 200):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) / 1e3)
        return float(np.median(times))


def run_tests(seconds: float) -> str:
    """The tests marked gpu, in a process of their own; their closing line."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "tests/kernels/test_cuda_gpu.py"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=max(1.0, seconds))
    except subprocess.TimeoutExpired:
        return f"not finished within {seconds:.0f} s"
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    for line in lines:
        if line.startswith(("FAILED", "ERROR")):
            print(line)
    return lines[-1].strip("= ") if lines else f"pytest ended with {done.returncode}"


def copy_rate(clock: Clock) -> float:
    """Bytes a second of a copy from device to device, reads and writes counted."""
    import torch

    source = torch.empty(1 << 30, dtype=torch.float32, device="cuda").zero_()
    target = torch.empty_like(source)
    return 2 * source.numel() * 4 / clock.seconds(lambda: target.copy_(source))


def inputs(K: int, d: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    weights = np.zeros((K, S + 1))
    weights[:, :S] = rng.dirichlet(np.ones(S), K)
    theta = rng.normal(0, 0.3, (K, d))
    return theta, weights, np.tile([C, 0.0], (K, 1))


def kernel_call(table: Any, block: Any, K: int, q: float) -> Callable[[], object]:
    """A step of Huber's loss with fixed scale on tensors in place, on torch's stream."""
    import torch
    from numba import cuda

    from pgbb_fast.kernels.arguments import Mechanism, Records
    from pgbb_fast.kernels.cuda.records import place
    from pgbb_fast.kernels.cuda.steps import Step

    p = len(table) - 1
    placed = place(Records(table[:p].t(), table[p], block), response=True)
    stream = torch.cuda.current_stream().cuda_stream
    step = Step("huber_fixed", True, placed, K, S, Mechanism(CLIP, int(q * 2**32), 1.0), stream)
    step.key.copy_to_device(np.arange(8, dtype=np.int64))
    step.counter.copy_to_device(np.zeros(1, dtype=np.int64))
    views = [cuda.to_device(part) for part in inputs(K, p + 1)]
    return lambda: step.launch(*views)


def torch_call(table: Any, block: Any, K: int, compiled: bool) -> Callable[[], object]:
    """The same sums in torch, in floating point: slopes, norms, clipping and weights, then one matrix product."""
    import torch

    p = len(table) - 1
    theta, weights, _ = inputs(K, p + 1)
    beta = torch.tensor(theta, dtype=torch.float32, device="cuda")
    w = torch.tensor(weights, dtype=torch.float32, device="cuda")

    def step(x: Any, y: Any, ids: Any) -> Any:
        slope = (beta[:, 1:] @ x + beta[:, :1] - y).clamp(-C, C)
        norm = slope.abs() * (1.0 + x.square().sum(0)).sqrt()
        c = slope * (CLIP / norm.clamp(min=1e-30)).clamp(max=1.0) * w[:, ids]
        return c.sum(1), c @ x.t()

    run = torch.compile(step) if compiled else step
    ids = block.to(torch.int32)
    return lambda: run(table[:p], table[p], ids)


def kernels_section(clock: Clock, copy: float) -> list[str]:
    """Full passes and minibatches of the fused kernel, and torch beside some of them."""
    import torch

    lines = ["| n | p | K | q | records / s | GB / s | of the copy | torch eager | torch compiled |", "|" + "---|" * 9]
    left_out: list[str] = []
    plan = [(n, p, K, 1.0) for n in (10**8, 10**6, 3 * 10**8) for p in FEATURES for K in DRAWS]
    plan.sort(key=lambda row: (row[:3] not in ((10**8, 4, 1), (10**8, 10, 10)), row[0] != 10**8))
    plan += [(10**8, 4, 1, q) for q in (0.3, 0.01, 1e-4)]
    for n, p, K, q in plan:
        name = f"n = {n:.0e}, p = {p}, K = {K}, q = {q:g}"
        size = 4 * (p + 1) + 1
        if size * n + FREE > torch.cuda.mem_get_info()[0]:
            left_out.append(f"{name}: not enough device memory")
            continue
        if clock.left() < 60:
            left_out.append(f"{name}: out of time")
            continue
        table = torch.empty(p + 1, n, device="cuda").uniform_(-1, 1)
        block = torch.randint(0, S, (n,), dtype=torch.uint8, device="cuda")
        seconds = clock.seconds(kernel_call(table, block, K, q))
        peers = ["", ""]
        wanted = q == 1.0 and (n, p, K) in ((10**8, 4, 1), (10**8, 10, 10), (10**6, 10, 10))
        for i, compiled in enumerate((False, True)):
            if not wanted or clock.left() < 90:
                continue
            try:
                peers[i] = f"{clock.seconds(torch_call(table, block, K, compiled)) / seconds:.1f} times as long"
            except Exception as failure:  # out of memory, or no compiler: said, not hidden
                peers[i] = f"failed: {type(failure).__name__}"
                torch.cuda.empty_cache()
        rate = size * n * q / seconds
        share = f"{rate / copy:.0%}" if q == 1.0 else ""
        lines.append(
            f"| {n:.0e} | {p} | {K} | {q:g} | {n * q / seconds:.3g} | {rate / 1e9:.0f} | {share} | "
            f"{' | '.join(peers)} |"
        )
        print(lines[-1], flush=True)
        del table, block
        torch.cuda.empty_cache()
    return [*lines, "", *[f"* not measured: {what}" for what in left_out]]


def stacked_call(table: Any, L: int, q: float) -> Callable[[], object]:
    """A stacked step of L smoothed quantiles on tensors in place, by the host function that a fit calls."""
    import torch

    from pgbb_fast.kernels.arguments import Records, Stack, Stream
    from pgbb_fast.kernels.cuda.stacked import noisy_stacked, placed

    p = len(table) - 1
    m, rng = p + 1, np.random.default_rng(0)
    block = torch.zeros(table.shape[1], dtype=torch.uint8, device="cuda")
    records = placed(Records(table[:p].t(), table[p], block), True)
    levels = (np.arange(L) + 1) / (L + 1)
    mix = np.linalg.inv(np.linalg.cholesky(np.minimum.outer(levels, levels) - np.outer(levels, levels)))
    theta, whitening = rng.normal(0, 0.1, (L, m)), np.tril(rng.normal(0, 0.1, (m, m))) + np.eye(m)
    stack = Stack(
        theta, np.column_stack([levels, np.full(L, 0.2)]), whitening, mix, np.zeros((0, 0)), 1.5 * m**0.5, 4.5 * m**0.5,
        int(q * 2**32), 1.0,
    )  # fmt: skip
    stream = Stream(np.arange(8, dtype=np.int64), 0)
    return lambda: noisy_stacked("quantile_gaussian", True, records, stack, stream)


def stacked_section(clock: Clock) -> list[str]:
    """Full passes and a minibatch of the stacked kernel: p = 4 and 10 in registers, 17 in a tile."""
    import torch

    lines = ["| n | p | L | q | milliseconds | records / s | GB / s |", "|" + "---|" * 7]
    plan = [(10**8, 10, 5, 1.0), (10**8, 4, 1, 1.0), (10**6, 10, 5, 1.0), (10**7, 17, 5, 1.0), (10**8, 4, 5, 0.1)]
    for n, p, L, q in plan:
        if 4 * (p + 2) * n + FREE > torch.cuda.mem_get_info()[0] or clock.left() < 40:
            lines.append(f"| {n:.0e} | {p} | {L} | {q:g} | not measured | | |")
            continue
        table = torch.empty(p + 1, n, device="cuda").uniform_(-1, 1)
        seconds = clock.seconds(stacked_call(table, L, q))
        rate, name = n * q / seconds, f"{n:.0e} | {p} | {L} | {q:g}"
        lines.append(f"| {name} | {1e3 * seconds:.3g} | {rate:.3g} | {4 * (p + 1) * rate / 1e9:.0f} |")
        print(lines[-1], flush=True)
        del table
        torch.cuda.empty_cache()
    return lines


def steps_section(clock: Clock) -> list[str]:
    """A whole training step at n = 40,000, q n = 500, K = 1, a 3 x 256 network."""
    import torch

    from pgbb_fast import losses
    from pgbb_fast.kernels.arguments import Records
    from pgbb_fast.network.device_training import DeviceRelease, TensorStep, graphed
    from pgbb_fast.network.generator import Generator
    from pgbb_fast.network.training import Optimiser, _Inputs
    from pgbb_fast.release.blocked import Keys, Problem
    from pgbb_fast.release.blocks import partition
    from pgbb_fast.release.devices import place

    rng, n = np.random.default_rng(0), 40_000
    x, y = rng.uniform(-1, 1, (n, 4)).astype(np.float32), rng.normal(0, 0.3, n).astype(np.float32)
    records = place("cuda", Records(x, y, partition(n, S, rng)), True)
    problem = Problem(
        records=records, loss=losses.huber_fixed_scale(C), intercept=True, n_blocks=S, block_size=n // S, gamma=1.0,
        clip=CLIP, sampling_threshold=int(500 / n * 2**32), noise_multiplier=1.0, draws_per_step=1, steps=10_000,
        device="cuda",
    )  # fmt: skip
    lines = ["| whole step, n = 40,000, q n = 500, K = 1, 3 x 256 | microseconds |", "|---|---|"]
    for name in ("launched one by one", "CUDA graph"):
        generator = Generator(S, [[-2, 2]] * 5, seed=1).to("cuda")
        stream = torch.cuda.Stream()
        keys = Keys.fresh(1)
        step = TensorStep(problem, generator, Optimiser(), DeviceRelease(problem, keys, stream))
        step.fill(_Inputs(problem, generator, keys), 0, 500)
        torch.cuda.synchronize()
        if name == "CUDA graph":
            call = graphed(step, stream)
            batch = 400
            call()
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(batch):
                call()
            torch.cuda.synchronize()
        else:
            batch = 100
            with torch.cuda.stream(stream):
                for _ in range(5):
                    step()
                torch.cuda.synchronize()
                start = time.perf_counter()
                for _ in range(batch):
                    step()
                torch.cuda.synchronize()
        lines.append(f"| {name} | {(time.perf_counter() - start) / batch * 1e6:.0f} |")
        print(lines[-1], flush=True)
    return lines


def main() -> int:
    """0 when everything ran, 2 without a GPU."""
    parser = argparse.ArgumentParser(description="Correctness and speed on an NVIDIA GPU, in under six minutes.")
    parser.add_argument("--seconds", type=float, default=340.0, help="for everything")
    clock = Clock(parser.parse_args().seconds)
    found = probe()
    if not found.usable:
        print(f"gpu_check: {found.sentence}. Nothing was measured and nothing written.")
        return 2
    import torch

    if not torch.cuda.is_available():
        print("gpu_check: this torch has no CUDA; install a CUDA build. Nothing was measured and nothing written.")
        return 2
    tests = run_tests(min(150.0, clock.left() - 180.0))
    print(f"tests marked gpu: {tests}", flush=True)
    copy = copy_rate(clock)
    print(f"copy from device to device: {copy / 1e9:.0f} GB/s", flush=True)
    whole = steps_section(clock)
    stacks = stacked_section(clock)
    kernels = kernels_section(clock, copy)
    text = [
        "# Kernels and steps on a GPU", "",
        f"`python -m bench.gpu_check`; {found.sentence}; torch {torch.__version__}.", "",
        f"Tests marked gpu: {tests}.", f"Copy from device to device: {copy / 1e9:.0f} GB/s (reads and writes).", "",
        "Fused step of Huber's loss with second pass and noise; single precision, a byte of block id.", "",
        *kernels, "", "Stacked step of L smoothed quantiles, with upload, second pass and noise.", "",
        *stacks, "", *whole,
    ]  # fmt: skip
    TABLE.write_text("\n".join(text) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
