"""Noisy training with everything on one GPU: network, sampling, clipping, noise and Adam, as one CUDA graph.

The step is that of :mod:`pgbb_fast.network.training`, written so that nothing of it depends on the host: which step it
is, its inputs, weights and learning rate are read from tensors by a counter on the device.  A graph replays it with one
call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from pgbb_fast.errors import PgbbError
from pgbb_fast.network.generator import Generator
from pgbb_fast.network.networks import Networks
from pgbb_fast.network.training import AHEAD, Optimiser, _Inputs
from pgbb_fast.release.blocked import Keys, Problem
from pgbb_fast.release.on_gpu import DeviceRelease, Release

__all__ = ["TensorStep", "graphed", "train_on_device"]

Tensor = torch.Tensor


class TensorStep:
    """One training step as tensor operations without a word from the host; on any device.

    Parameters
    ----------
    release : Release
        Its tensors say where the step runs.
    """

    def __init__(self, problem: Problem, generator: Generator, settings: Optimiser, release: Release) -> None:
        self.problem, self.release, self.settings = problem, release, settings
        K, S = problem.draws_per_step, problem.n_blocks
        self.where = release.theta.device
        self.networks = Networks([generator])
        self.flat = self.networks.flat
        self.rate = torch.tensor(settings.learning_rate, device=self.where)
        on_gpu = self.where.type == "cuda"
        self.adam = torch.optim.Adam([self.flat], lr=self.rate, fused=True, capturable=on_gpu)
        self.average = torch.zeros_like(self.flat.data)
        self.t = torch.zeros(1, dtype=torch.int64, device=self.where)
        width = S + (len(generator.rules) if len(generator.rules) > 1 else 0)
        self.inputs = torch.zeros(AHEAD, K, width, device=self.where)
        self.weights = torch.zeros(AHEAD, K, S + 1, dtype=torch.float64, device=self.where)
        self.constants = torch.zeros(AHEAD, K, 2, dtype=torch.float64, device=self.where)
        self.rates, self.keep = torch.zeros(AHEAD, device=self.where), torch.zeros(AHEAD, device=self.where)
        self.public = torch.from_numpy(problem.public_slope(release.theta.shape[1])).to(self.where)
        self.unit = problem.unit

    def fill(self, source: _Inputs, start: int, count: int) -> None:
        """Public inputs of the steps ``start`` .. ``start + count - 1``, and their learning rates."""
        steps = self.problem.steps
        u, rule, inputs = source.draw(count)
        averaged_from = steps - int(self.settings.average * steps)
        rates = [self.settings.rate((start + i) / max(1, steps - 1)) for i in range(count)]
        self.inputs[:count].copy_(inputs)
        self.weights[:count].copy_(torch.from_numpy(u))
        self.constants[:count].copy_(torch.from_numpy(np.asarray(self.problem.loss.constants, dtype=np.float64)[rule]))
        self.rates[:count].copy_(torch.tensor(rates))
        self.keep[:count].copy_((torch.arange(start, start + count) >= averaged_from).float())
        self.t.zero_()

    @torch.no_grad()
    def __call__(self) -> None:
        release = self.release
        theta = self.networks.forward(self.inputs.index_select(0, self.t))[0].double()
        release.theta.copy_(torch.zeros_like(theta) if self.problem.loss.additive else theta)
        release.weights.copy_(self.weights.index_select(0, self.t)[0])
        release.constants.copy_(self.constants.index_select(0, self.t)[0])
        release()
        gradient = release.grid.double() * self.unit + self.public * theta
        self.networks.backward((gradient / self.problem.draws_per_step).float()[None])
        self.rate.copy_(self.rates.index_select(0, self.t)[0])
        self.adam.step()
        self.average.add_(self.flat.data * self.keep.index_select(0, self.t))
        self.t.add_(1)
        release.counter.add_(1)

    def state(self) -> list[Tensor]:
        """Every tensor that a step changes and the next one reads."""
        moments = [value for kept in self.adam.state.values() for value in kept.values() if torch.is_tensor(value)]
        return [self.flat.data, self.average, self.t, self.rate, self.release.counter, *moments]


def graphed(step: TensorStep, stream: Any) -> Callable[[], None]:
    """``step`` as a CUDA graph on ``stream``.

    Before the capture the first step is run twice, so that kernels are compiled and Adam has its moments; each time
    everything it changed is set back.  These are the first step's own release, with the same theta and the same noise:
    nothing more is learned from the records.
    """
    before = [value.clone() for value in step.state()]
    for _ in range(2):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            step()
        stream.synchronize()
        _set_back(step.state(), before)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step()
    return graph.replay


def _set_back(state: Sequence[Tensor], before: Sequence[Tensor]) -> None:
    """The values of ``before``, and zero for what wasn't there yet (Adam's moments and its count)."""
    for i, value in enumerate(state):
        if i < len(before):
            value.copy_(before[i])
        else:
            value.zero_()


def train_on_device(
    problem: Problem,
    generator: Generator,
    keys: Keys,
    optimiser: Optimiser | None = None,
    on_step: Callable[[int], None] | None = None,
) -> None:
    """:func:`~pgbb_fast.network.training.train` on the GPU that holds ``problem.records``: same releases."""
    generator.to("cuda")
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    step = TensorStep(problem, generator, optimiser or Optimiser(), DeviceRelease(problem, keys, stream))
    run(step, _Inputs(problem, generator, keys), lambda: graphed(step, stream), on_step)
    generator.to("cpu")
    if not all(bool(torch.isfinite(p).all()) for p in generator.parameters()):
        raise PgbbError("train: the generator's parameters diverged; lower the learning rate (the budget is spent)")


def run(
    step: TensorStep, source: _Inputs, make: Callable[[], Callable[[], None]], on_step: Callable[[int], None] | None
) -> None:
    """All steps of the problem; ``make`` turns ``step`` into what is called, once its first inputs are there."""
    steps, call = step.problem.steps, None
    for start in range(0, steps, AHEAD):
        count = min(AHEAD, steps - start)
        step.fill(source, start, count)
        call = make() if call is None else call
        for i in range(count):
            call()
            if on_step is not None:
                on_step(start + i + 1)
    averaged = int(step.settings.average * steps)
    if averaged:
        step.flat.data.copy_(step.average / averaged)
    step.networks.release()
