"""Training sees records only through the accounted releases."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pgbb_fast import losses
from pgbb_fast.errors import DomainError
from pgbb_fast.kernels.arguments import Records
from pgbb_fast.network.generator import Generator
from pgbb_fast.network.training import Optimiser, train
from pgbb_fast.release import blocked as releases
from pgbb_fast.release.blocked import Keys
from pgbb_fast.release.blocks import partition
from tests.network.training import S, generator, parameters, problem


def test_everything_but_the_releases_is_independent_of_the_records(monkeypatch):
    """With the releases held fixed, different records give the same parameters to the last bit."""
    fixed = np.random.default_rng(3).integers(-(2**34), 2**34, (20, 2, 4))
    monkeypatch.setattr(releases.cpu, "noisy_gradient", lambda *args: fixed[args[-1].step])
    results = []
    for seed in (1, 2):
        model = generator()
        train(problem(seed), model, Keys.fresh(7))
        results.append(parameters(model))
    assert torch.equal(*results)


def test_one_release_for_each_step_and_in_order(monkeypatch):
    steps = []
    original = releases.cpu.noisy_gradient

    def counted(*args):
        steps.append(args[-1].step)
        return original(*args)

    monkeypatch.setattr(releases.cpu, "noisy_gradient", counted)
    seen = []
    train(problem(1, steps=730), generator(), Keys.fresh(7), on_step=seen.append)
    assert steps == list(range(730))
    assert seen == list(range(1, 731))


def test_noise_alone_moves_the_parameters_and_both_keys_matter():
    base = generator()
    train(problem(1), base, Keys.fresh(7))
    for keys in (Keys.fresh(8), replace(Keys.fresh(7), secret=Keys.fresh(8).secret)):
        other = generator()
        train(problem(1), other, keys)
        assert not torch.equal(parameters(base), parameters(other))


def test_the_number_of_torch_threads_is_restored():
    before = torch.get_num_threads()
    train(problem(1, steps=2), generator(), Keys.fresh(7))
    assert torch.get_num_threads() == before


def test_averaging_keeps_the_mean_of_the_last_iterates():
    """Parameters after averaging the last half equal the mean of snapshots taken at each step."""
    snapshots = []
    model = generator()

    def snapshot(_: int) -> None:
        snapshots.append(parameters(model).clone())

    train(problem(1, steps=40), model, Keys.fresh(7), Optimiser(average=0.5), on_step=snapshot)
    mean = torch.stack(snapshots[20:]).double().mean(dim=0)
    assert torch.allclose(parameters(model).double(), mean, rtol=0, atol=40 * 2**-24 * float(mean.abs().max()))


@pytest.mark.slow
def test_noise_free_training_reaches_the_weighted_solutions():
    """Means of two columns without noise: G(u) is the weighted mean of the block means, which is linear in u."""
    rng = np.random.default_rng(4)
    n = 500
    x = rng.uniform(-1, 1, (n, 2)).astype(np.float32) * 0.5 + np.float32(0.2)
    block = partition(n, S, np.random.default_rng(0))
    quiet = problem(
        0,
        records=Records(x, np.zeros(0, np.float32), block),
        loss=losses.mean(),
        intercept=False,
        block_size=n // S,
        clip=2.0,
        sampling_threshold=2**32,
        noise_multiplier=0.0,
        draws_per_step=8,
        steps=3_000,
    )
    model = Generator(S, [[-1, 1], [-1, 1]], seed=1)
    train(quiet, model, Keys.fresh(7))
    u = np.random.default_rng(5).dirichlet(np.full(S, 0.7), 400)
    block_means = np.stack([x[block == s].astype(float).mean(axis=0) for s in range(S)])
    with torch.no_grad():
        theta = model(model.inputs(u, np.full(400, np.nan))).numpy()
    error = np.abs(theta - u @ block_means)
    assert error.mean() < 0.1 * (u @ block_means).std(axis=0).mean()


@pytest.mark.parametrize("box", [[[1, 0]], [[0, np.inf]], [[np.nan, 1]], [0, 1], [[0, 1, 2]]])
def test_boxes_must_be_ordered_and_finite(box):
    with pytest.raises(DomainError, match="box"):
        Generator(S, box)


def test_the_generator_never_leaves_its_box():
    model = Generator(S, [[-2, 2], [0.01, 1]], activation="tanh", seed=3)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(50)
        u = np.random.default_rng(6).dirichlet(np.full(S, 0.1), 500)
        theta = model(model.inputs(u, np.full(500, np.nan))).numpy()
    assert (theta >= np.float32([-2, 0.01]) - 1e-6).all()
    assert (theta <= np.float32([2, 1]) + 1e-6).all()
    assert np.abs(theta).max() > 1.9
