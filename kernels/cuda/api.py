"""The kernels as the CPU's: same names, same contracts, arrays on the host in and out."""

from pgbb_fast.kernels.cuda.moments import score_moments
from pgbb_fast.kernels.cuda.stacked import noisy_stacked, stacked_sums
from pgbb_fast.kernels.cuda.stacked_moments import stacked_moments
from pgbb_fast.kernels.cuda.steps import gradient_sums, noisy_gradient

__all__ = ["gradient_sums", "noisy_gradient", "noisy_stacked", "score_moments", "stacked_moments", "stacked_sums"]
