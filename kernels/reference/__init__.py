"""The specification: obvious NumPy, slow and in one place.  Change this first, then the compiled kernels."""

from pgbb_fast.kernels.reference.losses import LOCATION_SLOPES, MOMENT_SLOPES, REGRESSION_SLOPES
from pgbb_fast.kernels.reference.moments import gradient_moments, products, score_moments
from pgbb_fast.kernels.reference.random import normals, rounded_normals, words
from pgbb_fast.kernels.reference.sampling import minibatch
from pgbb_fast.kernels.reference.stacked import (
    noisy_stacked,
    stacked_moments,
    stacked_moments_user,
    stacked_sums,
    stacked_sums_user,
)
from pgbb_fast.kernels.reference.steps import decoded, gradient_step, location_step, noise, regression_step, release

__all__ = [
    "LOCATION_SLOPES",
    "MOMENT_SLOPES",
    "REGRESSION_SLOPES",
    "decoded",
    "gradient_moments",
    "gradient_step",
    "location_step",
    "minibatch",
    "noise",
    "noisy_stacked",
    "normals",
    "products",
    "regression_step",
    "release",
    "rounded_normals",
    "score_moments",
    "stacked_moments",
    "stacked_moments_user",
    "stacked_sums",
    "stacked_sums_user",
    "words",
]
