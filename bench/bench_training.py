"""One training step of the generator beside torch's own forward + backward + fused Adam, in one run.

``pytest bench/bench_training.py`` times both with pytest-benchmark; ``python -m bench.bench_training`` interleaves
them, takes the best of each and writes bench/results/training_step.md.  n = 40,000, q n = 500, K = 1, three hidden
layers of 256, one torch thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from pgbb_fast import losses
from pgbb_fast.kernels.arguments import Records
from pgbb_fast.network.generator import Generator
from pgbb_fast.network.training import train
from pgbb_fast.release.blocked import Keys, Problem, release_step
from pgbb_fast.release.blocks import gamma_star, partition

N, P, S, WIDTH = 40_000, 4, 20, 256
STEPS = 2_000   # of one timed run, in which a run's first allocations count for little
ROUNDS = 8
KEYS = Keys.fresh(0)


def problem() -> Problem:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (N, P)).astype(np.float32)
    y = (0.3 * x[:, 0] + 0.1 * rng.standard_normal(N)).astype(np.float32)
    return Problem(
        records=Records(x, y, partition(N, S, rng)),
        loss=losses.smoothed_quantile([0.5], 0.1),
        intercept=True,
        n_blocks=S,
        block_size=N // S,
        gamma=gamma_star(n=N, n_blocks=S),
        clip=1.2,
        sampling_threshold=round(500 / N * 2**32),
        noise_multiplier=1.0,
        draws_per_step=1,
        steps=STEPS,
    )


def generator() -> Generator:
    return Generator(S, np.tile([-2.0, 2.0], (P + 1, 1)), hidden=(WIDTH,) * 3, seed=1)


def whole_steps() -> Callable[[], None]:
    """``STEPS`` steps as :func:`train` does them: public draws, network, release from the records, Adam, average."""
    data, net = problem(), generator()
    return lambda: train(data, net, KEYS)


def torch_steps() -> Callable[[], None]:
    """``STEPS`` times forward, backward and a fused Adam step by torch's own means, on a fixed input."""
    net = generator()
    adam = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    inputs = net.inputs(np.full((1, S + 1), 1.0 / S), np.zeros(1))
    gradient = torch.full((1, P + 1), 1e-3)

    def call() -> None:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        for _ in range(STEPS):
            adam.zero_grad()
            net(inputs).backward(gradient)
            adam.step()
        torch.set_num_threads(threads)

    return call


def releases() -> Callable[[], None]:
    """``STEPS`` releases alone: sampling, gradients of 500 records, noise."""
    data = problem()
    weights = np.zeros((1, S + 1))
    weights[0, :S] = 1.0 / S
    theta, rule = np.zeros((1, P + 1)), np.zeros(1, dtype=np.int64)

    def call() -> None:
        for step in range(STEPS):
            release_step(data, KEYS, step, theta, weights, rule)

    return call


CALLS = {
    "a whole step": whole_steps,
    "torch: forward, backward, fused Adam": torch_steps,
    "of a step, the release": releases,
}


@pytest.mark.parametrize("name", CALLS)
def test_step(benchmark, name):
    call = CALLS[name]()
    call()
    benchmark.extra_info["steps"] = STEPS
    benchmark.pedantic(call, rounds=3, warmup_rounds=1)


def main() -> None:
    from bench.machine import processor

    calls = {name: make() for name, make in CALLS.items()}
    best = dict.fromkeys(calls, float("inf"))
    for name in calls:
        calls[name]()
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], (time.perf_counter() - start) / STEPS)
    ours, theirs = (best[name] for name in list(calls)[:2])
    lines = [
        f"{processor()}; n = {N:,}, q n = 500, K = 1, three hidden layers of {WIDTH}; best of {ROUNDS} interleaved "
        f"runs of {STEPS} steps, one thread.",
        "",
        "| | ms a step |",
        "|---|--:|",
        *(f"| {name} | {1e3 * seconds:.3f} |" for name, seconds in best.items()),
        "",
        f"A whole step takes {1e3 * (ours - theirs):+.3f} ms compared with torch's own part.",
    ]
    out = Path(__file__).resolve().parent / "results" / "training_step.md"
    out.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
