"""Noisy training (method.md section 4): the only code between the records and the generator.

Each step releases Y = sum_i w_i clip_C(grad_i) + sigma Z and nothing else: the optimiser, the schedule and the
averages see only Y.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from pgbb_fast.blocks import dirichlet
from pgbb_fast.errors import PgbbError
from pgbb_fast.generator import Generator
from pgbb_fast.kernels import cpu
from pgbb_fast.kernels.arguments import Draws, Mechanism, Records, Stream
from pgbb_fast.kernels.scalar.clip import GRID
from pgbb_fast.losses import Loss

__all__ = ["Keys", "Optimiser", "Problem", "train"]

AHEAD = 500     # steps whose public inputs are drawn at once


@dataclass(frozen=True)
class Keys:
    """Random keys of one fit.  ``secret`` decides minibatches and noise: whoever knows it can undo the noise, so it is
    never saved or shown.  The public seeds decide the partition, the Dirichlet weights and the initial parameters."""

    secret: NDArray[np.int64]
    partition: int
    weights: int
    network: int

    @classmethod
    def fresh(cls, seed: int | None = None) -> Keys:
        """Keys from the operating system's entropy, or (tests, audits) from ``seed``; each a separate SHA-256."""
        root = secrets.token_bytes(32) if seed is None else b"seed:" + str(seed).encode()

        def derive(label: str) -> bytes:
            return hashlib.sha256(root + b"|" + label.encode()).digest()

        words = np.frombuffer(derive("secret"), dtype="<u4").astype(np.int64)
        partition, weights, network = (
            int.from_bytes(derive(label)[:8], "little") >> 1 for label in ("partition", "weights", "network")
        )
        return cls(words, partition, weights, network)

    def __repr__(self) -> str:
        return "Keys(secret=...)"


@dataclass(frozen=True)
class Problem:
    """What is trained on: the records, the loss and the mechanism's constants (all public but ``records``)."""

    records: Records
    loss: Loss
    intercept: bool
    block_size: int
    gamma: float
    clip: float
    sampling_threshold: int
    noise_multiplier: float
    draws_per_step: int

    def __repr__(self) -> str:
        return f"Problem(loss={self.loss.kernel!r}, records=...)"


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


def _rule_probabilities(rules: tuple[float, ...]) -> NDArray[np.float64]:
    """P_tau over the grid of rules, proportional to 1 / (tau (1 - tau)) (method.md section 5)."""
    if len(rules) == 1:
        return np.ones(1)
    tau = np.asarray(rules)
    p = 1.0 / (tau * (1.0 - tau))
    return np.asarray(p / p.sum())


def train(
    problem: Problem,
    generator: Generator,
    steps: int,
    keys: Keys,
    optimiser: Optimiser | None = None,
    on_step: Callable[[int], None] | None = None,
) -> None:
    """Train ``generator`` in place with ``steps`` releases of ``draws_per_step`` gradients each.

    ``on_step(t)`` is called after step t with the number of steps done, which is public, and nothing else.

    Raises
    ------
    PgbbError
        When the parameters are no longer finite at the end (a function of the releases only).
    """
    settings = optimiser or Optimiser()
    loss, K = problem.loss, problem.draws_per_step
    rng = np.random.default_rng(keys.weights)
    mechanism = Mechanism(problem.clip, problem.sampling_threshold, problem.noise_multiplier)
    unit = problem.clip / (problem.block_size * GRID) * 2.0**32 / problem.sampling_threshold / K
    constants, rules, chances = np.asarray(loss.constants), np.asarray(loss.rules), _rule_probabilities(loss.rules)
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
                draws = Draws(0.0 * at if loss.additive else at, u[t], constants[rule[t]])
                stream = Stream(keys.secret, start + t)
                y = cpu.noisy_gradient(loss.kernel, problem.intercept, problem.records, draws, mechanism, stream)
                gradient = y * unit + at / K if loss.additive else y * unit
                theta.backward(torch.from_numpy(gradient).to(torch.float32))
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
