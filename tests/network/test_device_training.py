"""The step of the CUDA graph, run on the CPU: it trains as ``train`` does, and its state can be set back."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pgbb_fast import losses
from pgbb_fast.kernels import cpu
from pgbb_fast.kernels.arguments import Draws, Mechanism, Records, Stream
from pgbb_fast.network import device_training
from pgbb_fast.network.generator import Generator
from pgbb_fast.network.training import Optimiser, _Inputs, train
from pgbb_fast.release.blocked import Keys
from tests.network import training


class CpuRelease:
    """The contract of DeviceRelease, kept by the CPU's kernels."""

    def __init__(self, problem, keys, d):
        K, S = problem.draws_per_step, problem.n_blocks
        self.problem, self.keys = problem, keys
        self.theta, self.weights = torch.zeros(K, d, dtype=torch.float64), torch.zeros(K, S + 1, dtype=torch.float64)
        self.constants = torch.zeros(K, 2, dtype=torch.float64)
        self.grid, self.counter = torch.zeros(K, d, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)

    def __call__(self):
        p = self.problem
        draws = Draws(self.theta.numpy(), self.weights.numpy(), self.constants.numpy())
        mechanism = Mechanism(p.clip, p.sampling_threshold, p.noise_multiplier)
        stream = Stream(self.keys.secret, int(self.counter))
        self.grid.copy_(
            torch.from_numpy(cpu.noisy_gradient(p.loss.kernel, p.intercept, p.records, draws, mechanism, stream))
        )


def made(loss: str):
    """A problem of two quantile levels, of logistic regression with a ridge, or of a mean; and its generator."""
    if loss == "quantiles":
        problem = training.problem(3, loss=losses.smoothed_quantile([0.3, 0.6], 0.5), steps=700)
        return problem, Generator(5, [[-2, 2]] * 3, rules=(0.3, 0.6), hidden=(16, 16), seed=1)
    if loss == "ridge":
        problem = training.problem(3, loss=losses.logistic(0.5), steps=60)
        return problem, Generator(5, [[-2, 2]] * 3, hidden=(8,), seed=1)
    x = np.random.default_rng(0).uniform(-1, 1, (200, 2)).astype(np.float32)
    records = Records(x, np.zeros(0, np.float32), training.problem(3).records.block)
    problem = training.problem(3, loss=losses.mean(), intercept=False, steps=60)
    return replace(problem, records=records), Generator(5, [[-1, 1]] * 2, hidden=(8,), seed=1)


@pytest.mark.parametrize("loss", [pytest.param("quantiles", marks=pytest.mark.slow), "ridge", "mean"])
def test_the_step_of_the_graph_trains_as_the_plain_loop_does(loss):
    """More steps than are drawn at once; learning rates are in single precision here: 2^-24 of a sum of 1e-3 a step.
    Parameters are too: a few units in the last place of the largest."""
    problem, expected = made(loss)
    settings, keys, told = Optimiser(), Keys.fresh(7), []
    train(problem, expected, keys, settings)
    _, model = made(loss)
    step = device_training.TensorStep(problem, model, settings, CpuRelease(problem, keys, len(model.centre)))
    device_training.run(step, _Inputs(problem, model, keys), lambda: step, told.append)
    assert told == list(range(1, problem.steps + 1))
    difference = (training.parameters(model) - training.parameters(expected)).abs().max()
    last_place = 2.0**-23 * training.parameters(expected).abs().max()
    assert difference <= problem.steps * 1e-3 * 2.0**-20 + 2 * last_place
    assert (training.parameters(made(loss)[1]) - training.parameters(model)).abs().max() > 1e-3


def test_what_a_step_changes_can_be_set_back():
    """As before the capture of the graph: the first step is run, undone, and run again with the same result."""
    problem, model = made("quantiles")
    keys = Keys.fresh(7)
    release = CpuRelease(problem, keys, len(model.centre))
    step = device_training.TensorStep(problem, model, Optimiser(), release)
    step.fill(_Inputs(problem, model, keys), 0, 10)
    before = [value.clone() for value in step.state()]
    step()
    first, grid = [value.clone() for value in step.state()], release.grid.clone()
    assert int(release.counter) == int(step.t) == 1
    device_training._set_back(step.state(), before)
    assert all(torch.equal(*pair) for pair in zip(step.state(), before, strict=False))
    assert not any(value.any() for value in step.state()[len(before) :])
    step()
    assert torch.equal(release.grid, grid)
    assert all(torch.equal(*pair) for pair in zip(step.state(), first, strict=True))
