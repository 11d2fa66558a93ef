"""The losses users can ask for, and families of them indexed by a level or a constant.

``loss``   slopes, constants and proved bounds of each loss
``rules``  families: where a level lies, simultaneous bands, curves that don't cross

Nothing here sees a record.
"""

from pgbb_fast.losses.loss import (
    QUANTILE_KERNELS,
    TYPICAL,
    Loss,
    expectile,
    exponential_mean,
    huber,
    huber_fixed_scale,
    huber_kappa,
    logistic,
    mean,
    normal_expectile,
    smoothed_quantile,
    user_loss,
    user_slope,
    with_curvature,
)

__all__ = [
    "QUANTILE_KERNELS",
    "TYPICAL",
    "Loss",
    "expectile",
    "exponential_mean",
    "huber",
    "huber_fixed_scale",
    "huber_kappa",
    "logistic",
    "mean",
    "normal_expectile",
    "smoothed_quantile",
    "user_loss",
    "user_slope",
    "with_curvature",
]
