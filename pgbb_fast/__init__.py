"""Bootstrap intervals under differential privacy, on compiled kernels.

Names are loaded when first used: importing this package imports neither torch nor Numba.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pgbb_fast.bootstrap import MOutOfNBootstrap
    from pgbb_fast.budget import Budget
    from pgbb_fast.errors import (
        BudgetError,
        DataError,
        DeviceError,
        DomainError,
        MissingExtraError,
        NotFittedError,
        PgbbError,
        PrivacyError,
    )
    from pgbb_fast.estimators import (
        PrivateExpectileRegressor,
        PrivateGeneralisedRegressor,
        PrivateHuberRegressor,
        PrivateLogisticRegressor,
        PrivateMean,
        PrivateMEstimator,
        PrivatePoissonRegressor,
        PrivateQuantileRegressor,
    )
    from pgbb_fast.local.exploration import Exploration
    from pgbb_fast.network.training import Optimiser
    from pgbb_fast.planner import Plan, plan, plan_epsilon
    from pgbb_fast.posteriors.base import Posterior

__version__ = "0.1.0"

_HOME = {
    "Budget": "budget",
    "BudgetError": "errors",
    "DataError": "errors",
    "DeviceError": "errors",
    "DomainError": "errors",
    "MOutOfNBootstrap": "bootstrap",
    "MissingExtraError": "errors",
    "NotFittedError": "errors",
    "Exploration": "local.exploration",
    "Plan": "planner",
    "Optimiser": "network.training",
    "PgbbError": "errors",
    "Posterior": "posteriors.base",
    "PrivacyError": "errors",
    "PrivateExpectileRegressor": "estimators",
    "PrivateGeneralisedRegressor": "estimators",
    "PrivateHuberRegressor": "estimators",
    "PrivateLogisticRegressor": "estimators",
    "PrivateMEstimator": "estimators",
    "PrivateMean": "estimators",
    "PrivatePoissonRegressor": "estimators",
    "PrivateQuantileRegressor": "estimators",
    "plan": "planner",
    "plan_epsilon": "planner",
}

__all__ = [
    "Budget",
    "BudgetError",
    "DataError",
    "DeviceError",
    "DomainError",
    "Exploration",
    "MOutOfNBootstrap",
    "MissingExtraError",
    "NotFittedError",
    "Optimiser",
    "PgbbError",
    "Plan",
    "Posterior",
    "PrivacyError",
    "PrivateExpectileRegressor",
    "PrivateGeneralisedRegressor",
    "PrivateHuberRegressor",
    "PrivateLogisticRegressor",
    "PrivateMEstimator",
    "PrivateMean",
    "PrivatePoissonRegressor",
    "PrivateQuantileRegressor",
    "__version__",
    "plan",
    "plan_epsilon",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"pgbb_fast.{_HOME[name]}"), name)
    raise AttributeError(f"module 'pgbb_fast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
