"""Estimators: ``fit`` spends the budget, ``posterior_`` is free."""

from pgbb_fast.estimators.location import PrivateMean
from pgbb_fast.estimators.regression import (
    PrivateExpectileRegressor,
    PrivateHuberRegressor,
    PrivateLogisticRegressor,
    PrivateQuantileRegressor,
)

__all__ = [
    "PrivateExpectileRegressor",
    "PrivateHuberRegressor",
    "PrivateLogisticRegressor",
    "PrivateMean",
    "PrivateQuantileRegressor",
]
