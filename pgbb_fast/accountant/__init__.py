"""Privacy accounting for noisy block-weighted gradients, plain subsampled Gaussians and the m-out-of-n bootstrap."""

from pgbb_fast.accountant.api import delta, epsilon, log_moment, noise_multiplier
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
    "deterministic",
    "epsilon",
    "gamma_star",
    "log_moment",
    "noise_multiplier",
]
