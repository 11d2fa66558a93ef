"""The only door from records to the rest of this package: the estimate and its resamples, with noise.

Values are rounded to a grid of 2^-40 of the sensitivity and noise is added in integers (``kernels.scalar.normal``: the
law of a rounded normal, exactly), so what is released depends on its exact value through the integers only.  Two
roundings move a coordinate by at most one unit: less than 2^-30 of the sensitivity for up to 2^20 coordinates, and the
noise is larger than the accountant's by that much.  What rounding in double precision adds before is part of the
statistic's own sensitivity (``Task``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.errors import DomainError
from pgbb_fast.kernels import cpu
from pgbb_fast.kernels.scalar.normal import MAX_SIGMA
from pgbb_fast.release.resampling import MAX_RECORDS, Resampler
from pgbb_fast.release.statistic import Task

__all__ = ["SLACK", "noise_sd", "release_estimate", "release_replicates", "require_grid"]

Array = NDArray[np.float64]
GRID = 2.0**40
SLACK = 2.0**-30
MAX_UNITS = 2.0**22  # of the box's width over the sensitivity
MAX_NOISE = MAX_SIGMA / GRID / (1.0 + 2.0 * SLACK)  # of the noise multiplier: 16 standard deviations fit into 64 bits
MIN_SENSITIVITY, MAX_SENSITIVITY = 2.0**-900, 2.0**900  # so that the grid has double precision
ESTIMATE, REPLICATES = 0, 1  # steps of the noise stream
CHUNK = 1 << 20  # resampled rows at a time


@dataclass(frozen=True)
class Secret:
    """Key words of one fit; never shown."""

    key: NDArray[np.int64]

    def __repr__(self) -> str:
        return "Secret(...)"


def noise_sd(task: Task, m: int, noise_multiplier: float) -> float:
    """Standard deviation of the noise of a release on m records: the multiplier times the sensitivity."""
    return noise_multiplier * (1.0 + SLACK) * task.sensitivity(m)


def require_grid(who: str, task: Task, m: int, noise_multiplier: float) -> None:
    """Refuse, on public numbers, what does not fit into 64-bit integers."""
    if task.n > MAX_RECORDS:
        raise DomainError(f"{who}: at most {MAX_RECORDS} records can be resampled, got {task.n}")
    if not MIN_SENSITIVITY <= task.sensitivity(m) <= MAX_SENSITIVITY:
        raise DomainError(f"{who}: the sensitivity l / m is {task.sensitivity(m):.4g} at m = {m}; rescale the records")
    width = float((task.box[:, 1] - task.box[:, 0]).max())
    if not width <= MAX_UNITS * task.sensitivity(m):
        raise DomainError(f"{who}: the box of theta is over {MAX_UNITS:.0f} sensitivities l / m wide at m = {m}")
    if not 0.0 <= noise_multiplier <= MAX_NOISE:
        raise DomainError(
            f"{who}: the budget needs a noise multiplier of {noise_multiplier:.4g}; noise fits into the 64-bit "
            f"integers of a release up to {MAX_NOISE:.4g}: raise epsilon or delta, or take fewer or smaller resamples"
        )


def _noise(secret: Secret, step: int, shape: tuple[int, int], noise_multiplier: float) -> NDArray[np.int64]:
    """The noise of a release in units of the grid."""
    scale = cpu.scale_of(noise_multiplier * (1.0 + SLACK) * GRID)
    return cpu.add_noise(np.zeros(shape, dtype=np.int64), scale, secret.key, step)


def _noisy(task: Task, theta: Array, m: int, noise: NDArray[np.int64]) -> Array:
    """theta (b, d), relative to the box's low corner, on the grid, plus ``noise`` on the grid; then the corner is
    added.  What is not a number counts as the corner."""
    low, high = task.box[:, 0], task.box[:, 1]
    unit = task.sensitivity(m) / GRID
    value = np.rint(np.fmin(np.fmax(theta, 0.0), high - low) / unit).astype(np.int64)
    return np.asarray(low + (value + noise) * unit)


def release_estimate(task: Task, records: object, secret: Secret, noise_multiplier: float) -> Array:
    """The estimate on all n records with noise, (d,)."""
    noise = _noise(secret, ESTIMATE, (1, len(task.box)), noise_multiplier)
    return np.asarray(_noisy(task, task.above(records, None), task.n, noise)[0])


def release_replicates(
    task: Task, records: object, secret: Secret, m: int, replicates: int, noise_multiplier: float
) -> Array:
    """Estimates on B resamples of size m with replacement, each with noise: (B, d).

    Resamples and noise come from the secret key, fresh for each replicate (docs/method.md section 8).
    """
    d = len(task.box)
    resampler = Resampler(secret.key, task.n)
    out = np.empty((replicates, d))
    at_once = max(1, CHUNK // m)
    noise = _noise(secret, REPLICATES, (replicates, d), noise_multiplier)
    for start in range(0, replicates, at_once):
        count = min(at_once, replicates - start)
        index = resampler.draw(count * m).reshape(count, m)
        theta = task.above(records, index)
        out[start : start + count] = _noisy(task, theta, m, noise[start : start + count])
    return out
