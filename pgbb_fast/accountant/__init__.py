"""Privacy accounting: noisy block-weighted gradients, plain subsampled Gaussians, the m-out-of-n bootstrap."""

from pgbb_fast.accountant.api import (
    delta,
    delta_bounds,
    epsilon,
    epsilon_bounds,
    log_moment,
    noise_multiplier,
    noise_multiplier_bounds,
    steps,
)
from pgbb_fast.accountant.mechanisms import (
    BlockedGaussian,
    Bounds,
    ResampledGaussian,
    SubsampledGaussian,
    deterministic,
    gamma_star,
)

__all__ = [
    "BlockedGaussian",
    "Bounds",
    "ResampledGaussian",
    "SubsampledGaussian",
    "delta",
    "delta_bounds",
    "deterministic",
    "epsilon",
    "epsilon_bounds",
    "gamma_star",
    "log_moment",
    "noise_multiplier",
    "noise_multiplier_bounds",
    "steps",
]
