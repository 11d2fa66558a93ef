"""Numba kernels for the CPU."""

from pgbb_fast.kernels.cpu.moments import score_moments
from pgbb_fast.kernels.cpu.noise import add_noise, scale_of, scales_of
from pgbb_fast.kernels.cpu.stacked import noisy_stacked, stacked_sums
from pgbb_fast.kernels.cpu.stacked_moments import stacked_moments
from pgbb_fast.kernels.cpu.steps import gradient_sums, noisy_gradient

__all__ = [
    "add_noise",
    "gradient_sums",
    "noisy_gradient",
    "noisy_stacked",
    "scale_of",
    "scales_of",
    "score_moments",
    "stacked_moments",
    "stacked_sums",
]
