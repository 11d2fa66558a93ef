"""The losses users can ask for, and families of them indexed by a level or a constant.

``base``      what a loss is: slopes' bounds, curvature, correlation of scores
``quantile``, ``robust``, ``logistic``, ``location``, ``user``: one class a loss, and the function that makes it
``rules``     families: where a level lies, simultaneous bands, curves that don't cross

Nothing here sees a record.
"""

from pgbb_fast.losses.base import TYPICAL, Loss
from pgbb_fast.losses.location import exponential_mean, mean
from pgbb_fast.losses.logistic import logistic
from pgbb_fast.losses.quantile import QUANTILE_KERNELS, smoothed_quantile
from pgbb_fast.losses.robust import expectile, huber, huber_fixed_scale, huber_kappa, normal_expectile
from pgbb_fast.losses.user import UserLoss, user_loss, user_slope, with_curvature

__all__ = [
    "QUANTILE_KERNELS",
    "TYPICAL",
    "Loss",
    "UserLoss",
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
