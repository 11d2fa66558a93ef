"""Noisy training of the generator (docs/method.md sections 4 and 5, the paper's Algorithms 1 and 2).

The optimiser, the schedule and the averages see the releases of :mod:`pgbb_fast.release.blocked` and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from pgbb_fast import validation as check
from pgbb_fast.errors import DomainError, PgbbError
from pgbb_fast.network.generator import Generator
from pgbb_fast.network.networks import Networks
from pgbb_fast.release.blocked import Keys, Problem, release_step
from pgbb_fast.release.blocks import dirichlet

__all__ = ["Optimiser", "one_torch_thread", "train", "train_together"]

AHEAD = 500     # steps whose public inputs are drawn at once
SCHEDULES = ("exponential", "cosine")


@dataclass(frozen=True)
class Optimiser:
    """Adam with a decaying rate, and an average of the iterates; defaults by bench/results/generator_study.md.

    Attributes
    ----------
    learning_rate, final_rate : float
        Rate at the first and at the last step.
    average : float
        Share of the steps, at the end, over which the parameters are averaged uniformly (Polyak and Juditsky 1992);
        0 keeps the last iterate.
    schedule : {"exponential", "cosine"}
        How the rate gets from the first value to the last.
    """

    learning_rate: float = 1e-3
    final_rate: float = 1e-4
    average: float = 0.5
    schedule: str = "exponential"

    def __post_init__(self) -> None:
        who = "Optimiser"
        for name in ("learning_rate", "final_rate"):
            check.between(who, name, getattr(self, name), 1e-100, 1e100)
        if not 0.0 <= check.real(who, "average", self.average) <= 1.0:
            raise DomainError(f"{who}: average must lie in [0, 1], got {self.average:g}")
        check.one_of(who, "schedule", self.schedule, SCHEDULES)

    def rate(self, done: float) -> float:
        """Rate when a share ``done`` of the steps, in [0, 1], is over."""
        if self.schedule == "cosine":
            return self.final_rate + (self.learning_rate - self.final_rate) * (1.0 + math.cos(math.pi * done)) / 2.0
        return float(self.learning_rate * (self.final_rate / self.learning_rate) ** done)


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Small matrix products are fastest, and the same on every machine size, in one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class _Inputs:
    """The public randomness of one problem, drawn ``AHEAD`` steps at once: weights, rules, and the net's inputs."""

    def __init__(self, problem: Problem, generator: Generator, keys: Keys) -> None:
        self.problem, self.generator = problem, generator
        self.rng = np.random.default_rng(keys.weights)
        self.rules, self.chances = np.asarray(problem.loss.rules), problem.loss.rule_probabilities()

    def draw(self, count: int) -> tuple[NDArray[np.float64], NDArray[np.int64], torch.Tensor]:
        K, S = self.problem.draws_per_step, self.generator.n_blocks
        u = dirichlet(count * K, S, self.problem.gamma, self.rng).reshape(count, K, -1)
        rule = self.rng.choice(len(self.chances), size=(count, K), p=self.chances)
        inputs = self.generator.inputs(u.reshape(count * K, -1), self.rules[rule.reshape(-1)])
        return u, rule, inputs.reshape(count, K, -1)


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
    train_together([problem], [generator], [keys], optimiser, on_step)


def train_together(
    problems: Sequence[Problem],
    generators: Sequence[Generator],
    keys: Sequence[Keys],
    optimiser: Optimiser | None = None,
    on_step: Callable[[int], None] | None = None,
) -> None:
    """:func:`train` for several problems at once, one generator each, all of the same shape and number of steps."""
    settings = optimiser or Optimiser()
    K, steps = problems[0].draws_per_step, problems[0].steps
    if any((other.draws_per_step, other.steps) != (K, steps) for other in problems):
        raise ValueError("train_together: the problems differ in steps or draws per step")
    networks = Networks(generators)
    adam = torch.optim.Adam([networks.flat], lr=settings.learning_rate, fused=True)
    averaged_from = steps - int(settings.average * steps)
    average = torch.zeros_like(networks.flat.data)
    sources = [_Inputs(*each) for each in zip(problems, generators, keys, strict=True)]
    with one_torch_thread():
        for start in range(0, steps, AHEAD):
            count = min(AHEAD, steps - start)
            drawn = [source.draw(count) for source in sources]
            inputs = torch.stack([x for _, _, x in drawn], dim=1)
            for t in range(count):
                at = networks.forward(inputs[t]).numpy().astype(np.float64)
                gradient = np.empty(at.shape, dtype=np.float32)
                for b, (problem, (u, rule, _)) in enumerate(zip(problems, drawn, strict=True)):
                    gradient[b] = release_step(problem, keys[b], start + t, at[b], u[t], rule[t]) / K
                networks.backward(torch.from_numpy(gradient))
                adam.param_groups[0]["lr"] = settings.rate((start + t) / max(1, steps - 1))
                adam.step()
                if start + t >= averaged_from:
                    average += networks.flat.data
                if on_step is not None:
                    on_step(start + t + 1)
        if averaged_from < steps:
            networks.flat.data.copy_(average / (steps - averaged_from))
    networks.release()
    if not bool(torch.isfinite(networks.flat).all()):
        raise PgbbError("train: the generator's parameters diverged; lower the learning rate (the budget is spent)")
