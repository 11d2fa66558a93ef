"""A problem to train on, a generator for it, and its parameters in one vector."""

import numpy as np
import torch

from pgbb_fast import losses
from pgbb_fast.network.generator import Generator
from pgbb_fast.release.blocked import Problem
from pgbb_fast.release.blocks import partition
from tests.problems import blocked_problem

S = 5


def problem(seed: int, loss: losses.Loss | None = None, **changes) -> Problem:
    """200 records that follow no model; Huber's regression by default."""
    rng, n = np.random.default_rng(seed), 200
    x, y = rng.uniform(-1, 1, (n, 2)), rng.normal(size=n)
    block = partition(n, S, np.random.default_rng(0))
    return blocked_problem(x, y, block, loss or losses.huber(), S, **changes)


def generator() -> Generator:
    return Generator(S, [[-2, 2], [-2, 2], [-2, 2], [0.01, 1]], seed=1)


def parameters(model: Generator) -> torch.Tensor:
    return torch.cat([p.detach().ravel() for p in model.parameters()])
