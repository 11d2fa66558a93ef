"""The exact posteriors that are *not private*: ordinary and blocked Bayesian bootstrap (docs/method.md section 7)."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pgbb_fast import validation as check
from pgbb_fast.baselines.solvers import LOSSES, Parts, minimise, ridge
from pgbb_fast.budget.baseline import NoGuarantee
from pgbb_fast.coordinates import AffineMap, Domain
from pgbb_fast.errors import DataError, DomainError, NotFittedError
from pgbb_fast.intake.design import INTERCEPT, SCALE, different_names
from pgbb_fast.intake.records import features, given_names, require_finite, require_host, require_records, target
from pgbb_fast.kernels.arguments import as_double
from pgbb_fast.posteriors.sampled import SampledPosterior
from pgbb_fast.release.blocks import MIN_BLOCKS, dirichlet, gamma_star, partition

__all__ = ["NonPrivateBayesianBootstrap"]

Array = NDArray[np.float64]
KINDS = ("huber", "huber_fixed", "quantile", "logistic", "ridge", "mean", "exponential")
LOCATIONS = ("mean", "exponential")
CHUNK = 4_000_000       # weights held at once by a thread


class NonPrivateBayesianBootstrap:
    """Draws theta*(w) = argmin sum_i w_i l(theta, x_i) + lambda |beta|^2 / 2, exactly re-solved.  NOT PRIVATE.

    Ordinary (Rubin 1981): w ~ Dirichlet(1_n).  Blocked: w_i = u_{pi(i)} / n_S, u ~ Dirichlet(gamma 1_S), pi a random
    partition drawn once.  For tests and benchmarks; its account says that there is no guarantee.

    Parameters
    ----------
    loss : {"huber", "huber_fixed", "quantile", "logistic", "ridge", "mean", "exponential"}
        "exponential": the mean of an exponential law, whose weighted estimate is the weighted mean.
    n_blocks : int, optional
        S for the blocked bootstrap; None: ordinary.
    gamma : float, optional
        Dirichlet concentration per block; gamma*(n, S) by default.
    draws : int
        Number of draws m.
    tau, bandwidth, kernel
        Of the smoothed quantile, bandwidth in units of y (there is no default).
    c, kappa
        Of Huber's loss; c is in units of the scale, or of y for "huber_fixed".
    penalty : float
        lambda, on every coefficient (the intercept too, as in the paper's ridge regression), for "ridge", "logistic".
    fit_intercept : bool
    workers : int
        Threads.
    seed : int
        Of the weights and the partition.
    """

    _who = "NonPrivateBayesianBootstrap"

    def __init__(
        self,
        loss: str,
        *,
        n_blocks: int | None = None,
        gamma: float | None = None,
        draws: int = 2000,
        penalty: float = 0.0,
        fit_intercept: bool = True,
        workers: int = 1,
        seed: int = 0,
        feature_names: Sequence[str] | None = None,
        **constants: Any,
    ) -> None:
        who = self._who
        self.loss = check.one_of(who, "loss", loss, KINDS)
        self.n_blocks = None if n_blocks is None else check.integer(who, "n_blocks", n_blocks, MIN_BLOCKS)
        self.gamma = None if gamma is None else check.positive(who, "gamma", gamma)
        if gamma is not None and n_blocks is None:
            raise DomainError(f"{who}: gamma belongs to the blocked bootstrap; give n_blocks, or leave gamma out")
        self.draws = check.integer(who, "draws", draws, 1)
        self.penalty = check.real(who, "penalty", penalty)
        if not self.penalty >= 0.0 or (self.penalty > 0.0 and loss not in ("ridge", "logistic")):
            raise DomainError(f"{who}: penalty must be 0 or more, and only ridge and logistic have one")
        self.fit_intercept = check.flag(who, "fit_intercept", fit_intercept)
        self.feature_names = given_names(who, "feature_names", feature_names)
        self.workers = check.integer(who, "workers", workers, 1)
        self.seed = check.integer(who, "seed", seed, 0)
        self._parts = self._loss_parts(constants)
        self._posterior: SampledPosterior | None = None

    def _loss_parts(self, constants: dict[str, Any]) -> Parts | None:
        """The loss with its constants; refuses those that it doesn't have."""
        known: dict[str, dict[str, Any]] = {
            "huber": {"c": 1.345, "kappa": 0.71},
            "huber_fixed": {"c": None},
            "quantile": {"tau": None, "bandwidth": None, "kernel": "gaussian"},
        }
        wanted = known.get(self.loss, {})
        unknown = sorted(set(constants) - set(wanted))
        values = {**wanted, **constants}
        missing = [name for name, value in values.items() if value is None]
        if unknown or missing:
            raise DomainError(f"{self._who}: the loss {self.loss!r} lacks {missing} and has no {unknown}")
        for name, value in values.items():
            if name == "kernel":
                check.one_of(self._who, name, value, ("gaussian", "logistic"))
            elif name == "tau":
                check.between(self._who, name, value, 0.0, 1.0)
            else:
                check.positive(self._who, name, value)
        return LOSSES[self.loss](*values.values()) if self.loss in LOSSES else None

    @property
    def posterior_(self) -> SampledPosterior:
        """The draws; ``privacy`` says that there is no guarantee."""
        if self._posterior is None:
            raise NotFittedError(f"{self._who}: call fit before posterior_")
        return self._posterior

    def estimate(self, X: Any, y: Any = None) -> Array:
        """The unweighted minimiser, (d,); not private."""
        design, response, _ = self._records(X, y)
        return np.asarray(self._solve(design, response, np.full((1, len(design)), 1.0 / len(design)), None)[0])

    def fit(self, X: Any, y: Any = None) -> Self:
        """Solve for every draw of the weights."""
        design, response, names = self._records(X, y)
        n, S = len(design), self.n_blocks
        rng = np.random.default_rng(self.seed)
        block = None if S is None else partition(n, S, rng)
        start = self._solve(design, response, np.full((1, n), 1.0 / n), None)[0]
        size = max(1, CHUNK // n)
        seeds = rng.integers(2**63, size=-(-self.draws // size))

        def chunk(number: int) -> Array:
            own = np.random.default_rng(seeds[number])
            count = min(size, self.draws - number * size)
            return self._solve(design, response, self._weights(own, count, n, block), start)

        with ThreadPoolExecutor(self.workers) as pool:
            sample = np.concatenate(list(pool.map(chunk, range(len(seeds)))))
        d, slopes = sample.shape[1], (1,) * len(names)
        if self.loss not in LOCATIONS:
            names = different_names((INTERCEPT,) * self.fit_intercept + names + (SCALE,) * (self.loss == "huber"))
        domain = None if self.loss in LOCATIONS else Domain(slopes, self.fit_intercept)
        identity = AffineMap(np.eye(d), np.zeros(d), domain)
        self._posterior = SampledPosterior(
            sample[:, None, :], rules=(), to_natural=identity, names=names, privacy=NoGuarantee(n)
        )
        return self

    def _records(self, X: Any, y: Any) -> tuple[Array, Array, tuple[str, ...]]:
        """Design (n, d) and response (n,), in double precision, and the features' names."""
        require_host(self._who, X=X, y=y)
        found, names = features(self._who, X, None, self.feature_names)
        array = as_double(found)
        n = len(array)
        require_records(self._who, n, self.n_blocks or 1)
        require_finite(self._who, X=array)
        if self.loss in LOCATIONS:
            return array, np.zeros(0), names
        response = as_double(target(self._who, y, n, X))
        require_finite(self._who, y=response)
        if self.loss == "logistic" and not np.isin(response, (0.0, 1.0)).all():
            raise DataError(f"{self._who}: the logistic loss takes y of zeros and ones")
        return np.column_stack([np.ones(n), array]) if self.fit_intercept else array, response, names

    def _weights(
        self, rng: np.random.Generator, count: int, n: int, block: NDArray[np.unsignedinteger[Any]] | None
    ) -> Array:
        """(count, n) weights that add up to 1."""
        if block is None:
            w = rng.standard_exponential((count, n))
            return np.asarray(w / w.sum(axis=1, keepdims=True))
        assert self.n_blocks is not None
        gamma = self.gamma if self.gamma is not None else gamma_star(n=n, n_blocks=self.n_blocks)
        return np.asarray(dirichlet(count, self.n_blocks, gamma, rng)[:, block] / (n // self.n_blocks))

    def _solve(self, design: Array, y: Array, weights: Array, start: Array | None) -> Array:
        """theta*(w) for each row of ``weights``."""
        if self.loss in LOCATIONS:
            return np.asarray(weights @ design)
        if self._parts is None:
            return ridge(design, y, weights, self.penalty)
        if start is None:
            start = np.asarray(np.linalg.lstsq(design, 0.0 * y if self.loss == "logistic" else y, rcond=None)[0])
            if self._parts.has_scale:
                deviation = np.abs(y - design @ start)
                start = np.append(start, max(float(np.median(deviation)) / 0.6745, 1e-3 * float(deviation.max())))
        return minimise(self._parts, design, y, weights, start, self.penalty)
