"""From a problem to a posterior: spend the releases, then post-process them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.errors import DomainError, PgbbError
from pgbb_fast.exploration import Exploration, explore
from pgbb_fast.noise_aware import estimated_moment, local_posterior, scores_posterior
from pgbb_fast.noise_aware_posterior import NoiseAwarePosterior
from pgbb_fast.posterior import Posterior
from pgbb_fast.releases import Keys, Problem, release_moment

Array = NDArray[np.float64]
OnStep = Callable[[int], None]


class Kind(NamedTuple):
    """Default number of steps of a posterior, and what makes it."""

    steps: int
    fit: Callable[..., Posterior]


def fit_posterior(
    kind: str, problem: Problem, box: Array, keys: Keys, training: Any, on_step: OnStep | None, **common: Any
) -> Posterior:
    """Spend the releases of ``problem`` and return a posterior of the stated ``kind``."""
    return POSTERIORS[kind].fit(problem, box, keys, training, on_step, common)


def _noise_aware(
    problem: Problem, box: Array, keys: Keys, training: Any, on_step: OnStep | None, common: dict[str, Any]
) -> Posterior:
    if training is not None and not isinstance(training, Exploration):
        raise DomainError(f"fit: training of the noise-aware posterior is an Exploration, got {training!r}")
    statistics = explore(problem, box, keys, training, on_step)
    rules = range(len(problem.loss.rules))
    d = len(box)
    first = [local_posterior(statistics, problem, number, None) for number in rules]
    if problem.moment_multiplier is None:
        moment, noise = estimated_moment(statistics, problem)
    else:
        at = np.clip(np.stack([local.location for local in first]), box[:, 0], box[:, 1])
        moment, noise = release_moment(problem, keys, at)
    scores = scores_posterior(moment, noise, problem, first)
    blocks = [slice(number * d, (number + 1) * d) for number in rules]
    local = [local_posterior(statistics, problem, number, scores.moment[b, b]) for number, b in enumerate(blocks)]
    known = tuple(rule for rule in problem.loss.rules if not np.isnan(rule))
    posterior = NoiseAwarePosterior(
        local, scores, sampling_factor=problem.sampling_factor, box=box, rules=known, **common
    )
    if not all(np.isfinite(part.hessian).all() for part in local):
        raise PgbbError("fit: the releases give no finite estimate; use more steps (the budget is spent)")
    return posterior


def _generator(
    problem: Problem, box: Array, keys: Keys, training: Any, on_step: OnStep | None, common: dict[str, Any]
) -> Posterior:
    from pgbb_fast.generator import Generator
    from pgbb_fast.generator_posterior import GeneratorPosterior
    from pgbb_fast.training import Optimiser, train

    if training is not None and not isinstance(training, Optimiser):
        raise DomainError(f"fit: training of the generator is an Optimiser, got {training!r}")
    rules = tuple(rule for rule in problem.loss.rules if not np.isnan(rule))
    generator = Generator(problem.n_blocks, box, rules=rules, seed=keys.network)
    train(problem, generator, keys, training, on_step)
    return GeneratorPosterior(generator, gamma=problem.gamma, **common)


POSTERIORS = {"noise-aware": Kind(3_000, _noise_aware), "generator": Kind(10_000, _generator)}
