"""Hand-written derivatives of stacked generators against autograd in double precision."""

import copy

import numpy as np
import pytest
import torch

from pgbb_fast.losses import huber
from pgbb_fast.network import training
from pgbb_fast.network.generator import ACTIVATIONS, Generator
from pgbb_fast.network.networks import Networks
from pgbb_fast.network.training import train, train_together
from pgbb_fast.release.blocked import Keys, Problem
from pgbb_fast.release.blocks import partition
from tests.problems import blocked_problem

S, K = 5, 3
BOX = [[-2.0, 2.0], [-1.0, 3.0], [0.01, 1.0]]  # intercept, one slope, scale
UNIT = 2.0**-53  # comparisons are in double precision, where a wrong formula can't hide in rounding
STEEPEST, CURVED = 1.13, 1.0  # bounds of the first and second derivatives of all activations


def generators(activation: str = "gelu", rules=(0.2, 0.5), count: int = 4, hidden=(32, 24, 16)) -> list[Generator]:
    return [Generator(S, BOX, rules=rules, hidden=hidden, activation=activation, seed=b) for b in range(count)]


Pair = tuple[torch.Tensor, list[torch.Tensor]]


def problem(seed: int, steps: int = 20) -> Problem:
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(-1, 1, (50, 1)).astype(np.float32), rng.normal(size=50).astype(np.float32)
    return blocked_problem(x, y, partition(50, S, rng), huber(), S, steps=steps)


def exact(generator: Generator, x: torch.Tensor, gradient: torch.Tensor) -> Pair:
    """Output and parameter gradients by autograd in double precision."""
    model = copy.deepcopy(generator)
    theta = model(x)
    theta.backward(gradient)
    return theta.detach(), [p.grad for p in model.parameters()]


def tolerances(generator: Generator, x: torch.Tensor, gradient: torch.Tensor) -> Pair:
    """Bounds of the rounding errors, by running the network forward and backward in absolute values.

    A sum of m products in floating point is off by at most (m + 2) u sum |a b| to first order (Higham 2002, sec. 3.1),
    and an activation by a few u of its bound; slopes are evaluated at sums that are off by the forward error, which the
    second derivative turns into an error of the slope.  N counts all roundings on the longest path, there and back.
    """
    parameters = [p.detach().double().abs() for p in generator.parameters()]
    weights, biases = parameters[::2], parameters[1::2]
    N = 2 * sum(w.shape[1] + 16 for w in weights)
    radius = generator.radius.double()
    inputs = [x.double().abs()]
    for w, b in zip(weights, biases, strict=True):
        inputs.append(STEEPEST * (inputs[-1] @ w.T + b))
    largest = max(float(h.max()) for h in inputs)
    slope_error = 1.0 + CURVED * largest
    delta = gradient.double().abs() * radius
    bounds: list[torch.Tensor] = []
    for layer in range(len(weights) - 1, -1, -1):
        bounds[:0] = [delta.T @ inputs[layer], delta.sum(dim=0)]
        delta = STEEPEST * delta @ weights[layer]
    outer = generator.centre.double().abs() + radius * (1.0 + inputs[-1])
    return N * UNIT * outer, [len(weights) * N * UNIT * slope_error * bound for bound in bounds]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_values_and_gradients_are_those_of_autograd(activation):
    rng = torch.Generator().manual_seed(1)
    models = [model.double() for model in generators(activation)]
    x = torch.randn(len(models), K, S + 2, generator=rng, dtype=torch.float64)
    gradient = torch.randn(len(models), K, len(BOX), generator=rng, dtype=torch.float64)
    wanted = [exact(*each) for each in zip(models, x, gradient, strict=True)]
    allowed = [tolerances(*each) for each in zip(models, x, gradient, strict=True)]
    networks = Networks(models)
    theta = networks.forward(x)
    networks.backward(gradient)
    for b, ((value, slopes), (value_error, slope_errors)) in enumerate(zip(wanted, allowed, strict=True)):
        assert bool(((theta[b] - value).abs() <= value_error).all())
        flat = torch.cat([s.ravel() for s in slopes])
        error = torch.cat([e.ravel() for e in slope_errors])
        assert bool(((networks.flat.grad[b] - flat).abs() <= error).all())
        assert float(error.max()) < 1e-8 * float(flat.abs().max())  # the bound says something


def test_the_generators_follow_and_are_released():
    models = generators()
    networks = Networks(models)
    with torch.no_grad():
        networks.flat.mul_(0.5)
    for row, model in zip(networks.flat, models, strict=True):
        assert torch.equal(row, torch.nn.utils.parameters_to_vector(model.parameters()))
    networks.release()
    before = torch.nn.utils.parameters_to_vector(models[0].parameters()).clone()
    with torch.no_grad():
        networks.flat.zero_()
    assert torch.equal(before, torch.nn.utils.parameters_to_vector(models[0].parameters()))


def test_different_shapes_are_refused():
    with pytest.raises(ValueError, match="shapes"):
        Networks([*generators(count=1), *generators(count=1, hidden=(32,))])


def test_training_together_is_training_apart():
    """Same releases and keys: the first step's parameters agree to the rounding of the gradients.

    Adam's first step is the rate times the sign of each gradient, so entries whose gradient is within the error of
    zero are left out.
    """
    problems = [problem(seed, 1) for seed in range(3)]
    keys = [Keys.fresh(seed) for seed in range(3)]
    together, apart = generators(rules=(), count=3), generators(rules=(), count=3)
    start = [torch.nn.utils.parameters_to_vector(g.parameters()).detach().clone() for g in apart]
    train_together(problems, together, keys)
    for each in zip(problems, apart, keys, strict=True):
        train(*each)
    for one, other, before in zip(together, apart, start, strict=True):
        a, b = (torch.nn.utils.parameters_to_vector(g.parameters()).detach() for g in (one, other))
        moved = (b - before).abs() > 0.9e-3
        assert float(moved.float().mean()) > 0.9
        assert float((a - b).abs()[moved].max()) < 1e-3 * 1e-3 + 4 * 2.0**-24 * float(before.abs().max())


def test_problems_of_different_length_are_refused():
    with pytest.raises(ValueError, match="differ"):
        train_together([problem(1), problem(1, 3)], generators(count=2), [Keys.fresh(1)] * 2)


@pytest.mark.slow
def test_random_inputs_of_one_problem_do_not_depend_on_its_companions(monkeypatch):
    """The public randomness of a problem comes from its own keys."""
    seen: list[np.ndarray] = []
    original = training.release_step

    def recorded(p, keys, step, theta, weights, rule):
        seen.append(weights.copy())
        return original(p, keys, step, theta, weights, rule)

    monkeypatch.setattr(training, "release_step", recorded)
    train_together([problem(1), problem(2)], generators(rules=(), count=2), [Keys.fresh(5), Keys.fresh(6)])
    pair = seen[1::2]
    seen.clear()
    train(problem(2), generators(rules=(), count=1)[0], Keys.fresh(6))
    assert all(np.array_equal(a, b) for a, b in zip(pair, seen, strict=True))
