"""What every estimator shares: settings, calibration, training, and the fitted attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pgbb_fast import validation as check
from pgbb_fast.accountant import BlockedGaussian
from pgbb_fast.blocks import MIN_BLOCKS, block_size, gamma_star, partition
from pgbb_fast.errors import NotFittedError
from pgbb_fast.generator import Generator
from pgbb_fast.kernels.arguments import Records
from pgbb_fast.losses import Loss
from pgbb_fast.posterior import AffineMap, Posterior
from pgbb_fast.privacy import PrivacyReport, calibrate, sampling_threshold
from pgbb_fast.training import Keys, Optimiser, Problem, train

OnStep = Callable[[int], None]


class PrivateEstimator:
    """Base of the estimators.  Subclasses say which loss and which map; this class spends the budget.

    Parameters
    ----------
    epsilon, delta : float
        The budget of one ``fit``, replace-one adjacency; epsilon > 0, 0 < delta < 1.
    n_blocks : int
        S, the number of blocks; at least 3.
    gamma : float, optional
        Dirichlet concentration per block; by default gamma*(n, S), which depends on (n, S) only.
    sampling_rate : float
        q, the probability with which a record is in a step's minibatch.
    steps, draws_per_step : int
        T and K.  The K draws of a step share one minibatch, and the accountant knows.
    optimiser : Optimiser, optional
        Learning rate and averaging; sees noisy gradients only.
    seed : int, optional
        For tests and audits only: the seed decides the noise, so whoever knows it can undo it.  By default the
        operating system's entropy.

    Attributes
    ----------
    posterior_ : Posterior
        Draws, means, intervals, summary; save and load.
    privacy_ : PrivacyReport
        What was spent, on what, under which adjacency.
    """

    _who: ClassVar[str] = "PrivateEstimator"

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float,
        n_blocks: int = 20,
        gamma: float | None = None,
        sampling_rate: float = 0.05,
        steps: int = 10_000,
        draws_per_step: int = 1,
        optimiser: Optimiser | None = None,
        seed: int | None = None,
    ) -> None:
        who = self._who
        self.epsilon = check.positive(who, "epsilon", epsilon)
        self.delta = check.between(who, "delta", delta, 0.0, 1.0)
        self.n_blocks = check.integer(who, "n_blocks", n_blocks, MIN_BLOCKS)
        self.gamma = None if gamma is None else check.positive(who, "gamma", gamma)
        self.sampling_rate = check.probability(who, "sampling_rate", sampling_rate)
        self.steps = check.integer(who, "steps", steps, 1, 2**32 - 1)
        self.draws_per_step = check.integer(who, "draws_per_step", draws_per_step, 1)
        self.optimiser = optimiser or Optimiser()
        self.seed = None if seed is None else check.integer(who, "seed", seed, 0)
        self._posterior: Posterior | None = None

    def __repr__(self) -> str:
        fitted = "fitted" if self._posterior is not None else "not fitted"
        return f"{self._who}(epsilon={self.epsilon:g}, delta={self.delta:g}, {fitted})"

    @property
    def posterior_(self) -> Posterior:
        """The released posterior."""
        if self._posterior is None:
            raise NotFittedError(f"{self._who}: call fit before posterior_")
        return self._posterior

    @property
    def privacy_(self) -> PrivacyReport:
        """What was spent, on what, under which adjacency."""
        return self.posterior_.privacy

    def _mechanism(self, n: int) -> BlockedGaussian:
        """The mechanism that ``fit`` on n records will run, without its noise multiplier."""
        threshold = sampling_threshold(self._who, self.sampling_rate)
        return BlockedGaussian(
            n=n,
            n_blocks=self.n_blocks,
            gamma=self.gamma,
            sampling_rate=threshold / 2**32,
            steps=self.steps,
            draws_per_step=self.draws_per_step,
            noise_multiplier=None,
            minibatch="shared",
        )

    def plan(self, n: int) -> PrivacyReport:
        """What ``fit`` on n records will spend and with which noise; touches no record and spends nothing."""
        check.integer(self._who, "n", n, self.n_blocks)
        return calibrate(self._mechanism(n), budget_epsilon=self.epsilon, budget_delta=self.delta)

    def _run(
        self,
        unit: Callable[[], tuple[NDArray[np.float32], NDArray[np.float32]]],
        n: int,
        loss: Loss,
        *,
        clip: float,
        intercept: bool,
        box: NDArray[np.float64],
        to_natural: AffineMap,
        names: tuple[str, ...],
        on_step: OnStep | None,
    ) -> None:
        """Calibrate, partition, train; everything public first, then ``unit()`` maps the records."""
        report = self.plan(n)
        multiplier = report.mechanism.noise_multiplier
        assert multiplier is not None
        gamma = self.gamma if self.gamma is not None else gamma_star(n=n, n_blocks=self.n_blocks)
        keys = Keys.fresh(self.seed)
        block = partition(n, self.n_blocks, np.random.default_rng(keys.partition))
        rules = tuple(rule for rule in loss.rules if not np.isnan(rule))
        generator = Generator(self.n_blocks, box, rules=rules, seed=keys.network)
        x, y = unit()
        problem = Problem(
            records=Records(x, y, block),
            loss=loss,
            intercept=intercept,
            block_size=block_size(n, self.n_blocks),
            gamma=gamma,
            clip=clip,
            sampling_threshold=sampling_threshold(self._who, self.sampling_rate),
            noise_multiplier=multiplier,
            draws_per_step=self.draws_per_step,
        )
        self._posterior = None
        train(problem, generator, self.steps, keys, self.optimiser, on_step)
        self._posterior = Posterior(generator, gamma=gamma, to_natural=to_natural, names=names, privacy=report)
