"""Numba kernels for the CPU."""

from pgbb_fast.kernels.cpu.moments import score_moments
from pgbb_fast.kernels.cpu.steps import gradient_sums, noisy_gradient

__all__ = ["gradient_sums", "noisy_gradient", "score_moments"]
