"""Estimators: ``fit`` spends the budget, ``posterior_`` is free."""

from pgbb_fast.estimators.generalised import PrivateGeneralisedRegressor, PrivateLogisticRegressor
from pgbb_fast.estimators.location import PrivateMean
from pgbb_fast.estimators.m_estimation import PrivateMEstimator
from pgbb_fast.estimators.poisson import PrivatePoissonRegressor
from pgbb_fast.estimators.regression import (
    PrivateExpectileRegressor,
    PrivateHuberRegressor,
    PrivateQuantileRegressor,
)

__all__ = [
    "PrivateExpectileRegressor",
    "PrivateGeneralisedRegressor",
    "PrivateHuberRegressor",
    "PrivateLogisticRegressor",
    "PrivateMEstimator",
    "PrivateMean",
    "PrivatePoissonRegressor",
    "PrivateQuantileRegressor",
]
