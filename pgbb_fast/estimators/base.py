"""What every estimator shares: settings, calibration, training, and the fitted attributes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pgbb_fast import validation as check
from pgbb_fast.accountant import BlockedGaussian
from pgbb_fast.budget import Budget
from pgbb_fast.budget.gaussian import GaussianReport, multiplier_of, report_of
from pgbb_fast.budget.report import PrivacyReport, calibrate, require_clip, sampling_threshold, suggested_rate
from pgbb_fast.budget.spending import Spender
from pgbb_fast.coordinates import AffineMap
from pgbb_fast.errors import DeviceError, DomainError
from pgbb_fast.estimators.fitting import POSTERIORS, fit_posterior, fit_scores
from pgbb_fast.geometry.schedule import Schedule, groups, schedule
from pgbb_fast.kernels.arguments import Records
from pgbb_fast.local.exploration import Exploration, number_of_segments
from pgbb_fast.local.prior import Prior
from pgbb_fast.losses import Loss
from pgbb_fast.posteriors.base import Posterior
from pgbb_fast.release.blocked import Keys, Problem
from pgbb_fast.release.blocks import MIN_BLOCKS, block_size, gamma_star, partition
from pgbb_fast.release.devices import DEVICES, Device, place, resolve
from pgbb_fast.release.stacked import Door
from pgbb_fast.release.stacking import stacking

OnStep = Callable[[int], None]
Unit = tuple[NDArray[Any], NDArray[Any], NDArray[np.float32]]   # features, response and map of Records
GEOMETRIES = ("scores", "box")
N_BLOCKS = 20
STEPS, NOISY_TRAINING_STEPS = 3_000, 10_000
MOMENT_SHARE = 0.05
FEWEST = 3  # records of a fit without blocks
ASK_RATE = 0.2  # where the accountant is asked for the rule of the sampling rate


@dataclass(frozen=True)
class Prepared:
    """What a fit will run: everything public is settled, no record's value has been read.

    Attributes
    ----------
    unit : callable
        Checks the records' values and maps them to the unit box.
    n : int
        Number of records.
    loss : Loss
        In unit coordinates.
    clip : float
        C, bound of one record's gradient.
    intercept : bool
        Whether theta begins with one.
    box : (d, 2) array
        Public bounds of theta in unit coordinates.
    to_natural : AffineMap
        theta from unit to the user's coordinates.
    names : tuple of str
        Of theta's coordinates.
    design_bound : float, optional
        Bound of |x| with its constant, where a release of the features' second moment may take part.
    in_place : bool
        Whether the records lie on a GPU, and can be read only there.
    y_radius : float
        Units of y in one unit coordinate.
    """

    unit: Callable[[], Unit]
    n: int
    loss: Loss
    clip: float
    intercept: bool
    box: NDArray[np.float64]
    to_natural: AffineMap
    names: tuple[str, ...]
    design_bound: float | None = None
    in_place: bool = False
    y_radius: float = 1.0

    def natural_over_unit(self) -> NDArray[np.float64]:
        """(d,), what the loss's gradient by unit coordinates is multiplied by when the loss is in natural units."""
        return self.loss.natural_over_unit(self.y_radius, np.diag(self.to_natural.matrix))

    @property
    def common(self) -> dict[str, Any]:
        """What every posterior is told."""
        return {"to_natural": self.to_natural, "names": self.names}


def _require_optimiser(who: str, posterior: str, training: object) -> None:
    """What is no Exploration is the network's Optimiser."""
    if posterior == "generator":
        from pgbb_fast.network.training import Optimiser  # here: estimators may be imported without torch

        if isinstance(training, Optimiser):
            return
    kinds = "an Exploration or an Optimiser" if posterior == "generator" else "an Exploration"
    raise DomainError(f"{who}: training of the {posterior} posterior is {kinds}, got {type(training).__name__}")


class PrivateEstimator(Spender):
    """Base of the estimators.  Subclasses say which loss and which map; this class spends the budget.

    Parameters
    ----------
    epsilon, delta : float
        The budget of one ``fit``, replace-one adjacency; epsilon > 0, 0 < delta < 1.
    geometry : {"scores", "box"}, optional
        The shape of the releases' noise.  "scores": that of the scores, in coordinates that are whitened by released
        second moments, all rules in one Gaussian release a step, all records with equal weights (docs/geometry.md).
        "box": that of the public box, with Dirichlet weights over blocks (docs/method.md section 4), as the paper's
        training needs it.  By default "scores" where the estimator has it, unless one of the settings that only "box"
        has is given: ``n_blocks``, ``gamma``, ``sampling_rate``, ``steps``, ``draws_per_step``, ``moment_share``,
        ``training``, or a generator as posterior.
    n_blocks : int
        S, the number of blocks; at least 3, by default 20.
    gamma : float, optional
        Dirichlet concentration per block; by default gamma*(n, S), which depends on (n, S) only.
    posterior : {"noise-aware", "generator"}
        How draws are made of the releases: from the local model with the noise's known law (docs/refinement.md), or as
        outputs of a network G(u): fitted to that local model, or, with an ``Optimiser`` as ``training``, trained on the
        noisy gradients themselves (the paper's method; its intervals are too wide or too narrow, depending on the
        noise: bench/results/generator_study.md).
    sampling_rate : float, optional
        q, the probability with which a record is in a step's minibatch.  By default a public rule of the budget and
        the steps: a rate at which subsampling is at its best, and at which (with a release of the score moment) a
        record is visited some 300 times, so that minibatches add little to the variances.
    steps : int, optional
        T; by default 3,000, and 10,000 for a network trained on the noisy gradients.
    draws_per_step : int, optional
        K, by default the number of rules (quantile levels).  The K draws of a step share one minibatch, and the
        accountant knows.
    moment_share : float, optional
        Share of the budget, in [0, 0.5], for one release of the scores' second moment, which pins the sampling part
        of the posterior.  By default 0.05, and 0 for a network trained on the noisy gradients, which can't use it.
    training : Exploration or Optimiser, optional
        How the steps are used; sees releases only.
    device : {"auto", "cpu", "cuda"}
        Where the record kernels run; "auto" takes an NVIDIA GPU where one can be used.  The releases are the same.
    seed : int, optional
        For tests and audits only: the seed decides the noise, so whoever knows it can undo it.  By default the
        operating system's entropy.

    Attributes
    ----------
    posterior_ : Posterior
        Draws, means, intervals, summary; save and load.
    privacy_ : PrivacyReport, or GaussianReport
        What was spent, on what, under which adjacency.
    spent_ : tuple of Spending
        Every fit of this object that has begun to release, those included that were interrupted.  A further fit spends
        again; until it is done the posterior of the last one stays.
    device_ : Device
        Where the kernels of the last fit ran, and which GPU, or why the CPU.
    """

    _who: ClassVar[str] = "PrivateEstimator"

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float,
        geometry: str | None = None,
        n_blocks: int | None = None,
        gamma: float | None = None,
        posterior: str = "noise-aware",
        sampling_rate: float | None = None,
        steps: int | None = None,
        draws_per_step: int | None = None,
        moment_share: float | None = None,
        training: Exploration | Any = None,
        device: str = "auto",
        seed: int | None = None,
    ) -> None:
        who = self._who
        self.epsilon = check.positive(who, "epsilon", epsilon)
        self.delta = check.between(who, "delta", delta, 0.0, 1.0)
        self.posterior = check.one_of(who, "posterior", posterior, tuple(POSTERIORS))
        blocked = {
            "n_blocks": n_blocks,
            "gamma": gamma,
            "sampling_rate": sampling_rate,
            "steps": steps,
            "draws_per_step": draws_per_step,
            "moment_share": moment_share,
            "training": training,
            "posterior": None if self.posterior == "noise-aware" else posterior,
        }
        self.geometry = self._given_geometry(geometry, [name for name, value in blocked.items() if value is not None])
        self.n_blocks = check.integer(who, "n_blocks", N_BLOCKS if n_blocks is None else n_blocks, MIN_BLOCKS)
        self.gamma = None if gamma is None else check.positive(who, "gamma", gamma)
        self.sampling_rate = None if sampling_rate is None else check.probability(who, "sampling_rate", sampling_rate)
        self._explores = training is None or isinstance(training, Exploration)
        if not self._explores:
            _require_optimiser(who, posterior, training)
        default_steps = STEPS if self._explores else NOISY_TRAINING_STEPS
        self.steps = check.integer(who, "steps", default_steps if steps is None else steps, 1, 2**32 - 2)
        self.draws_per_step = (
            None if draws_per_step is None else check.integer(who, "draws_per_step", draws_per_step, 1)
        )
        default_share = MOMENT_SHARE * self._moments if self._explores else 0.0
        self.moment_share = check.real(who, "moment_share", default_share if moment_share is None else moment_share)
        if not 0.0 <= self.moment_share <= 0.5 or (self.moment_share > 0.0 and not self._explores):
            raise DomainError(f"{who}: moment_share must lie in [0, 0.5], and be 0 with an Optimiser as training")
        self.training = training
        self.device = check.one_of(who, "device", device, DEVICES)
        self.seed = None if seed is None else check.integer(who, "seed", seed, 0)
        self.device_: Device | None = None

    _no_scores: ClassVar[str] = "its gradients have no features that could be whitened"

    def _given_geometry(self, geometry: str | None, blocked: list[str]) -> str:
        """"scores" or "box"; ``blocked`` are settings that were given and only "box" has."""
        if geometry is None:
            return "box" if blocked or self._no_scores else "scores"
        if check.one_of(self._who, "geometry", geometry, GEOMETRIES) == "scores":
            if self._no_scores:
                raise DomainError(f"{self._who}: geometry='scores' can't be used: {self._no_scores}; leave it out")
            if blocked:
                raise DomainError(
                    f"{self._who}: {', '.join(blocked)} can't be given with geometry='scores', whose releases are of "
                    "all records and follow a public schedule; leave one or the other out"
                )
        return geometry

    def __repr__(self) -> str:
        seed = "" if self.seed is None else ", undone by its seed"
        return f"{self._who}(epsilon={self.epsilon:g}, delta={self.delta:g}{seed}, {self._state()})"

    @property
    def posterior_(self) -> Posterior:
        """The released posterior."""
        posterior: Posterior = self._require_fitted()
        return posterior

    @property
    def privacy_(self) -> PrivacyReport | GaussianReport:
        """What was spent, on what, under which adjacency."""
        report = self.posterior_.privacy
        assert isinstance(report, PrivacyReport | GaussianReport)
        return report

    @property
    def _rules(self) -> int:
        """Number of rules fitted jointly."""
        return 1

    @property
    def _moments(self) -> int:
        """Number of second moments that the ``moment_share`` is for."""
        return 1

    _slow: ClassVar[bool] = False  # records are then visited no more often than privacy wants

    def _mechanism(self, n: int) -> BlockedGaussian:
        """The mechanism that ``fit`` on n records will run, without its noise multiplier."""
        mechanism = BlockedGaussian(
            n=n,
            n_blocks=self.n_blocks,
            gamma=self.gamma,
            sampling_rate=ASK_RATE,
            steps=self.steps,
            draws_per_step=self.draws_per_step or self._rules,
            noise_multiplier=None,
            minibatch="shared",
        )
        rate = self.sampling_rate
        if rate is None:
            rate = suggested_rate(
                mechanism,
                budget_epsilon=self.epsilon,
                budget_delta=self.delta,
                with_moment=self.moment_share > 0.0 and not self._slow,
            )
        return replace(mechanism, sampling_rate=sampling_threshold(self._who, rate) / 2**32)

    def plan(self, n: int) -> PrivacyReport | GaussianReport:
        """What ``fit`` on n records will spend and with which noise; touches no record and spends nothing."""
        check.integer(self._who, "n", n, self._fewest)
        if self.geometry == "scores":
            return self._scores_report(n, *self._planned(n))
        return self._blocked_report(n)

    @property
    def _fewest(self) -> int:
        """Records that a fit needs at least."""
        return self.n_blocks if self.geometry == "box" else FEWEST

    def _planned(self, n: int) -> tuple[Loss, int]:
        """The loss and the number of coordinates of a fit on n records, for ``plan``."""
        raise NotImplementedError

    def _scores_report(self, n: int, loss: Loss, d: int) -> GaussianReport:
        """What a fit with noise in the shape of the scores will spend."""
        return replace(
            report_of(
                groups(self._schedule(n, loss, d)), n=n, budget_epsilon=self.epsilon, budget_delta=self.delta
            ),
            undone_by_seed=self.seed is not None,
        )

    def _schedule(self, n: int, loss: Loss, d: int) -> Schedule:
        return schedule(loss, n, d, multiplier_of(self.epsilon, self.delta))

    def _blocked_report(self, n: int) -> PrivacyReport:
        report = calibrate(
            self._mechanism(n),
            budget_epsilon=self.epsilon,
            budget_delta=self.delta,
            moment_share=self.moment_share,
            moments=self._moments,
        )
        return replace(report, undone_by_seed=self.seed is not None)

    def _prepare(self, X: Any, y: Any) -> Prepared:
        """Check what is public of a fit on these records; reads none of them, spends nothing."""
        raise NotImplementedError

    def _run(self, fit: Prepared, on_step: OnStep | None, budget: Budget | None) -> None:
        """Calibrate, partition, release; everything public first, then ``fit.unit()`` checks and maps the records."""
        if self._slow and self.device == "cuda":
            raise DeviceError(f"{self._who}: device must be 'cpu' or 'auto': a loss of your own runs on the CPU")
        device = resolve(self._who, "cpu" if self._slow else self.device)
        if fit.in_place and device.kind == "cpu":
            raise DeviceError(f"{self._who}: X is on a GPU, but kernels would run on the CPU: {device.sentence}")
        if self.geometry == "scores":
            self._run_scores(fit, device, on_step, budget)
            return
        n, loss = fit.n, fit.loss
        report = self._blocked_report(n)
        self._afford(report, budget)
        require_clip(self._who, fit.clip, fit.design_bound or 1.0)
        mechanism = report.mechanism
        if self._explores:  # refuses too short a run
            number_of_segments(
                loss,
                steps=self.steps,
                draws_per_step=mechanism.draws_per_step,
                d=len(fit.box),
                n_blocks=self.n_blocks,
                with_moment=report.moment is not None,
            )
        assert mechanism.noise_multiplier is not None
        keys = Keys.fresh(self.seed)
        block = partition(n, self.n_blocks, np.random.default_rng(keys.partition))
        x, y, table = fit.unit()
        problem = Problem(
            records=place(device.kind, Records(x, y, block, map=table), loss.regression),
            loss=loss,
            intercept=fit.intercept,
            n_blocks=self.n_blocks,
            block_size=block_size(n, self.n_blocks),
            gamma=self.gamma if self.gamma is not None else gamma_star(n=n, n_blocks=self.n_blocks),
            clip=fit.clip,
            sampling_threshold=round(mechanism.sampling_rate * 2**32),
            noise_multiplier=mechanism.noise_multiplier,
            draws_per_step=mechanism.draws_per_step,
            steps=self.steps,
            moment_multiplier=None if report.moment is None else report.moment.noise_multiplier,
            design_bound=None if report.moment is None else fit.design_bound,
            device=device.kind,
        )
        report = self._start(report, budget)
        posterior = fit_posterior(
            self.posterior, problem, fit.box, keys, self.training, on_step, privacy=report, **fit.common
        )
        posterior.rule_name = loss.rule_name
        self._finish(report, _posterior=posterior, device_=device)

    def _run_scores(self, fit: Prepared, device: Device, on_step: OnStep | None, budget: Budget | None) -> None:
        """The same with noise in the shape of the scores."""
        n, loss, box = fit.n, fit.loss, fit.box
        plan, report = self._schedule(n, loss, len(box)), self._scores_report(n, loss, len(box))
        self._afford(report, budget)
        require_clip(self._who, stacking(loss, len(box) - loss.has_scale, plan.length).clip)
        keys = Keys.fresh(self.seed)
        x, y, table = fit.unit()
        nobody = np.empty(0, dtype=np.uint8)  # no blocks
        records = place(device.kind, Records(x, y, nobody, map=table), loss.regression)
        report = self._start(report, budget)
        door = Door(records, loss, fit.intercept, n, report, keys, device.kind)
        prior = self._prior(box, fit.to_natural, fit.names)
        posterior = fit_scores(door, box, plan, keys, on_step, prior=prior, privacy=report, **fit.common)
        posterior.rule_name = loss.rule_name
        self._finish(report, _posterior=posterior, device_=device)

    def _prior(self, box: NDArray[np.float64], to_natural: AffineMap, names: tuple[str, ...]) -> Prior:
        """Of theta in unit coordinates: as wide as the public box."""
        return Prior.of_box(box)
