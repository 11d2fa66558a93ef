"""Estimators: ``fit`` spends the budget, ``posterior_`` is free."""

from pgbb_fast.estimators.location import PrivateMean
from pgbb_fast.estimators.regression import PrivateHuberRegressor, PrivateQuantileRegressor

__all__ = ["PrivateHuberRegressor", "PrivateMean", "PrivateQuantileRegressor"]
