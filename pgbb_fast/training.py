"""Noisy training of the generator (method.md sections 4 and 5, the paper's Algorithms 1 and 2).

The optimiser, the schedule and the averages see the releases of :mod:`pgbb_fast.releases` and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from pgbb_fast.blocks import dirichlet
from pgbb_fast.errors import PgbbError
from pgbb_fast.generator import Generator
from pgbb_fast.releases import Keys, Problem, release_step

__all__ = ["Optimiser", "train"]

AHEAD = 500     # steps whose public inputs are drawn at once


@dataclass(frozen=True)
class Optimiser:
    """Adam with an exponentially decaying rate, and an average of the iterates.

    Attributes
    ----------
    learning_rate, final_rate : float
        Rate at the first and at the last step.
    average : float
        Share of the steps, at the end, over which the parameters are averaged uniformly (Polyak and Juditsky 1992);
        0 keeps the last iterate.
    """

    learning_rate: float = 1e-3
    final_rate: float = 1e-5
    average: float = 0.0


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    """Small matrix products are fastest, and the same on every machine size, in one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def train(
    problem: Problem,
    generator: Generator,
    keys: Keys,
    optimiser: Optimiser | None = None,
    on_step: Callable[[int], None] | None = None,
) -> None:
    """Train ``generator`` in place with ``problem.steps`` releases of ``draws_per_step`` gradients each.

    ``on_step(t)`` is called after step t with the number of steps done, which is public, and nothing else.

    Raises
    ------
    PgbbError
        When the parameters are no longer finite at the end (a function of the releases only).
    """
    settings = optimiser or Optimiser()
    K, steps = problem.draws_per_step, problem.steps
    rng = np.random.default_rng(keys.weights)
    rules, chances = np.asarray(problem.loss.rules), problem.loss.rule_probabilities()
    parameters = [p for p in generator.parameters() if p.requires_grad]
    adam = torch.optim.Adam(parameters, lr=settings.learning_rate, fused=True)
    decay = (settings.final_rate / settings.learning_rate) ** (1.0 / max(1, steps - 1))
    averaged_from = steps - int(settings.average * steps)
    average = [torch.zeros_like(p) for p in parameters]
    with _one_torch_thread():
        for start in range(0, steps, AHEAD):
            count = min(AHEAD, steps - start)
            u = dirichlet(count * K, generator.n_blocks, problem.gamma, rng).reshape(count, K, -1)
            rule = rng.choice(len(chances), size=(count, K), p=chances)
            inputs = generator.inputs(u.reshape(count * K, -1), rules[rule.reshape(-1)]).reshape(count, K, -1)
            for t in range(count):
                theta = generator(inputs[t])
                at = theta.detach().numpy().astype(np.float64)
                gradient = release_step(problem, keys, start + t, at, u[t], rule[t]) / K
                theta.backward(torch.from_numpy(gradient.astype(np.float32)))
                adam.param_groups[0]["lr"] = settings.learning_rate * decay ** (start + t)
                adam.step()
                adam.zero_grad(set_to_none=False)
                if start + t >= averaged_from:
                    torch._foreach_add_(average, [p.detach() for p in parameters])
                if on_step is not None:
                    on_step(start + t + 1)
    if averaged_from < steps:
        with torch.no_grad():
            for parameter, total in zip(parameters, average, strict=True):
                parameter.copy_(total / (steps - averaged_from))
    if not all(bool(torch.isfinite(p).all()) for p in parameters):
        raise PgbbError("train: the generator's parameters diverged; lower the learning rate (the budget is spent)")
