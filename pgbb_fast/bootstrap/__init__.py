"""Private bootstraps of an estimate with a stated sensitivity: m out of n, n out of n, little bootstraps."""

from pgbb_fast.bootstrap.estimators import AsymptoticMOutOfNBootstrap, BootstrapPlan, DPBootstrap, MOutOfNBootstrap
from pgbb_fast.bootstrap.little import BLBQuantiles, LittleReport
from pgbb_fast.bootstrap.statistic import Custom, Mean, RegularisedRegression, Statistic
from pgbb_fast.budget.bootstrap import BootstrapReport
from pgbb_fast.posteriors.bootstrap import BootstrapPosterior

__all__ = [
    "AsymptoticMOutOfNBootstrap",
    "BLBQuantiles",
    "BootstrapPlan",
    "BootstrapPosterior",
    "BootstrapReport",
    "Custom",
    "DPBootstrap",
    "LittleReport",
    "MOutOfNBootstrap",
    "Mean",
    "RegularisedRegression",
    "Statistic",
]
