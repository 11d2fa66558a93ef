"""From a problem to a posterior: spend the releases, then post-process them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.errors import DomainError, PgbbError
from pgbb_fast.geometry.fit import find
from pgbb_fast.geometry.schedule import Schedule
from pgbb_fast.local.exploration import Exploration, explore
from pgbb_fast.local.model import (
    LocalPosterior,
    estimated_moment,
    estimated_response,
    local_posteriors,
    scores_posterior,
)
from pgbb_fast.local.prior import Prior
from pgbb_fast.local.statistics import ReleaseStatistics
from pgbb_fast.posteriors.base import Posterior
from pgbb_fast.posteriors.noise_aware import NoiseAwarePosterior
from pgbb_fast.release.blocked import Keys, Problem, release_moment
from pgbb_fast.release.stacked import Door
from pgbb_fast.validation import shown

Array = NDArray[np.float64]
OnStep = Callable[[int], None]
DISTILLED_SCALE = 0.1   # of the inputs of a generator that is fitted in closed form
# shape of one that is trained on the noisy gradients, the best of bench/results/generator_study.md
TRAINED: dict[str, Any] = {"hidden": (64, 64), "input_scale": 0.3, "initial": 0.0}
TARGET_DRAWS = 8_000    # of the noise-aware posterior, for the mean and covariance that a generator is fitted to


def fit_posterior(
    kind: str, problem: Problem, box: Array, keys: Keys, training: Any, on_step: OnStep | None, **common: Any
) -> Posterior:
    """Spend the releases of ``problem`` and return a posterior of the stated ``kind``."""
    return POSTERIORS[kind](problem, box, keys, training, on_step, common)


def _noise_aware(
    problem: Problem, box: Array, keys: Keys, training: Any, on_step: OnStep | None, common: dict[str, Any]
) -> Posterior:
    if training is not None and not isinstance(training, Exploration):
        raise DomainError(f"fit: training of the noise-aware posterior is an Exploration, got {shown(training)}")
    return _explored(problem, box, keys, training, on_step, common)[0]


def _explored(
    problem: Problem, box: Array, keys: Keys, training: Any, on_step: OnStep | None, common: dict[str, Any]
) -> tuple[NoiseAwarePosterior, list[LocalPosterior], ReleaseStatistics]:
    """The noise-aware posterior, its local model of each rule, and the statistics of the releases."""
    statistics = explore(problem, box, keys, training, on_step)
    first = local_posteriors(statistics, problem)
    if problem.moment_multiplier is None:
        moment, noise = estimated_moment(statistics, problem)
    else:
        at = np.clip(np.stack([local.location(box) for local in first]), box[:, 0], box[:, 1])
        moment, noise = release_moment(problem, keys, at)
    scores = scores_posterior(moment, noise, problem, first)
    local = local_posteriors(statistics, problem, scores.moment)
    posterior = NoiseAwarePosterior(
        local, scores, sampling_factor=problem.sampling_factor, box=box, rules=_known(problem), **common
    )
    if not all(np.isfinite(part.hessian.mean).all() for part in local):
        raise PgbbError("fit: the releases give no finite estimate; use more steps (the budget is spent)")
    return posterior, local, statistics


def fit_scores(
    door: Door, box: Array, plan: Schedule, keys: Keys, on_step: OnStep | None, prior: Prior, **common: Any
) -> NoiseAwarePosterior:
    """Spend the releases of ``plan``, whose noise has the shape of the scores, and return the noise-aware posterior."""

    def tell() -> None:
        if on_step is not None:
            on_step(door.released)

    found = find(door, box, plan, keys.weights, tell)
    if not all(np.isfinite(part.hessian.mean).all() for part in found.local):
        raise PgbbError("fit: the releases give no finite estimate (the budget is spent)")
    return NoiseAwarePosterior(
        found.local,
        found.scores,
        sampling_factor=1.0 / door.n,
        box=box,
        rules=tuple(rule for rule in door.loss.rules if not np.isnan(rule)),
        prior=prior,
        correlation=found.correlation,
        **common,
    )


def _known(problem: Problem) -> tuple[float, ...]:
    return tuple(rule for rule in problem.loss.rules if not np.isnan(rule))


def _generator(
    problem: Problem, box: Array, keys: Keys, training: Any, on_step: OnStep | None, common: dict[str, Any]
) -> Posterior:
    from pgbb_fast.network.generator import Generator
    from pgbb_fast.network.training import Optimiser, train
    from pgbb_fast.posteriors.generator import GeneratorPosterior

    if training is not None and not isinstance(training, Exploration | Optimiser):
        raise DomainError(f"fit: training of the generator is an Exploration or an Optimiser, got {shown(training)}")
    if isinstance(training, Optimiser):
        generator = Generator(problem.n_blocks, box, rules=_known(problem), seed=keys.network, **TRAINED)
        if problem.device == "cuda":
            from pgbb_fast.network.device_training import train_on_device

            train_on_device(problem, generator, keys, training, on_step)
        else:
            train(problem, generator, keys, training, on_step)
    else:
        generator = Generator(
            problem.n_blocks, box, rules=_known(problem), input_scale=DISTILLED_SCALE, seed=keys.network
        )
        _distilled(generator, *_explored(problem, box, keys, training, on_step, common), problem, keys)
    return GeneratorPosterior(generator, gamma=problem.gamma, **common)


def _distilled(
    generator: Any,
    posterior: NoiseAwarePosterior,
    local: Sequence[LocalPosterior],
    statistics: ReleaseStatistics,
    problem: Problem,
    keys: Keys,
) -> None:
    """Fit ``generator`` to the posterior's mean and covariance, along the response that the releases estimate."""
    from pgbb_fast.network.distillation import Target, distil, nearest_response

    draws = posterior._unit_draws(TARGET_DRAWS, posterior.rules, np.random.default_rng(keys.network))
    targets = []
    for number, part in enumerate(local):
        estimate = estimated_response(statistics, problem, number, part)
        response = nearest_response(np.atleast_2d(np.cov(draws[:, number].T)), estimate, problem.gamma)
        targets.append(Target(draws[:, number].mean(axis=0), response))
    distil(generator, targets, problem.gamma, keys.network)


POSTERIORS: dict[str, Callable[..., Posterior]] = {"noise-aware": _noise_aware, "generator": _generator}
