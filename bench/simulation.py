"""The simulated regressions of docs/method.md section 9, their exact fits, and the floor of docs/refinement.md."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pgbb_fast import PrivateHuberRegressor
from pgbb_fast.estimators import base
from pgbb_fast.release.blocks import block_size

Array = NDArray[np.float64]
ERRORS = ("t3", "contaminated")
SIZES = (10_000, 40_000)
EPSILONS = (1.0, 2.0, 4.0)
NAMES = ("intercept", "x1", "x2", "x3")
TRUTH = np.array([0.0, 1.5, -1.5, 1.0])
Y_BOUND = 10.0
C, KAPPA = 1.345, 0.71
FEATURE_BOUND = 2.0             # |(1, x)| for x in [-1, 1]^3
SEED = 4

for _name in ("calibrate", "suggested_rate"):       # functions of public numbers: once per cell, not per replicate
    setattr(base, _name, functools.lru_cache(maxsize=None)(getattr(base, _name)))


@dataclass(frozen=True)
class Cell:
    """One of the twelve cells; delta = 1 / n."""

    errors: str
    n: int
    epsilon: float

    def __str__(self) -> str:
        return f"{self.errors}:{self.n}:{self.epsilon:g}"

    @classmethod
    def parse(cls, text: str) -> Cell:
        """Inverse of ``str``."""
        errors, n, epsilon = text.split(":")
        return cls(errors, int(n), float(epsilon))

    def data(self, replicate: int) -> tuple[Array, Array]:
        """X ~ U[-1,1]^3 and y = x'beta + e; e is 0.5 t_3, or 0.9 N(0, .25) + 0.1 N(0, 16)."""
        rng = np.random.default_rng([SEED, replicate, self.n, round(10 * self.epsilon), ERRORS.index(self.errors)])
        X = rng.uniform(-1.0, 1.0, (self.n, 3))
        if self.errors == "t3":
            e = 0.5 * rng.standard_t(3, self.n)
        else:
            e = np.where(rng.random(self.n) < 0.9, rng.normal(0.0, 0.5, self.n), rng.normal(0.0, 4.0, self.n))
        return X, X @ TRUTH[1:] + e

    def model(self, seed: int, **settings: Any) -> PrivateHuberRegressor:
        """The estimator, with public bounds that a user would state."""
        return PrivateHuberRegressor(
            epsilon=self.epsilon,
            delta=1.0 / self.n,
            x_bounds=[(-1, 1)] * 3,
            y_bounds=(-Y_BOUND, Y_BOUND),
            seed=seed,
            **settings,
        )


CELLS = tuple(Cell(errors, n, epsilon) for errors in ERRORS for n in SIZES for epsilon in EPSILONS)


class Exact(NamedTuple):
    """Non-private fit: theta = (beta, s), Hessian and score moment (5, 5), natural units."""

    theta: Array
    hessian: Array
    moment: Array


def exact_fit(X: Array, y: Array, weights: Array | None = None) -> Exact:
    """Huber's M-estimator with concomitant scale by iterated reweighting (Huber 1981, ch. 7.8), to 1e-10.

    ``weights`` (n,) sum to n; by default all are one.
    """
    w = np.ones(len(y)) if weights is None else weights
    D = np.column_stack([np.ones(len(X)), X])
    beta = np.linalg.lstsq(D, y, rcond=None)[0]
    s = float(np.median(np.abs(y - D @ beta))) / 0.6745
    for _ in range(500):
        z = np.abs(y - D @ beta) / s
        inner = w * np.minimum(1.0, C / np.maximum(z, 1e-12))
        new = np.linalg.solve(D.T @ (D * inner[:, None]), D.T @ (inner * y))
        new_s = s * math.sqrt(float(w @ np.minimum(z * z, C * C)) / (len(y) * KAPPA))
        moved = float(np.abs(new - beta).max()) + abs(new_s - s)
        beta, s = new, new_s
        if moved < 1e-10:
            break
    z = (y - D @ beta) / s
    psi, inside = np.clip(z, -C, C), (np.abs(z) < C) * w
    scores = np.column_stack([-psi[:, None] * D, KAPPA / 2.0 - psi**2 / 2.0])
    V = np.column_stack([D, z])
    hessian = V.T @ (V * inside[:, None]) / (len(y) * s)
    return Exact(np.append(beta, s), hessian, scores.T @ (scores * w[:, None]) / len(y))


def floor_parts(exact: Exact, n: int, model: PrivateHuberRegressor) -> tuple[Array, Array]:
    """sd_nonprivate (4,), the sandwich's, and sd_privacy (4,).

    With noise in the shape of the scores sd_privacy is kappa times the former, with the whole budget spent on the
    location (docs/geometry.md, section 5).  In the box it is |H^-1| sigma / (q sqrt(TK)), rows' Euclidean norms; unit
    coordinates divide y by ``Y_BOUND``, which leaves scores as they are and multiplies H by ``Y_BOUND``.
    """
    if model.geometry == "scores":
        inverse = np.linalg.inv(exact.hessian)
        sampling = np.sqrt(np.diag(inverse @ exact.moment @ inverse) / n)[:4]
        return sampling, sampling * model._schedule(n, *model._planned(n)).kappa
    mechanism = model.plan(n).mechanism if model._posterior is None else model.privacy_.mechanism
    assert mechanism.noise_multiplier is not None
    clip = math.hypot(C * FEATURE_BOUND, max(KAPPA / 2.0, (C * C - KAPPA) / 2.0))
    noise = mechanism.noise_multiplier * clip / (block_size(n, mechanism.n_blocks) * mechanism.sampling_rate)
    inverse = np.linalg.inv(exact.hessian)
    sampling = np.sqrt(np.diag(inverse @ exact.moment @ inverse) / n)
    privacy = np.sqrt(np.diag(inverse @ inverse.T)) * noise / math.sqrt(mechanism.steps * mechanism.draws_per_step)
    return sampling[:4], privacy[:4]
