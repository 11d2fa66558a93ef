"""Private bootstraps of an estimate with a stated sensitivity: m out of n, n out of n, little bootstraps."""

from pgbb_fast.bootstrap.accounting import BootstrapReport
from pgbb_fast.bootstrap.estimators import AsymptoticMOutOfNBootstrap, BootstrapPlan, DPBootstrap, MOutOfNBootstrap
from pgbb_fast.bootstrap.little import BLBQuantiles, LittleReport
from pgbb_fast.bootstrap.posterior import BootstrapPosterior
from pgbb_fast.bootstrap.statistic import Custom, Mean, RegularisedRegression, Statistic

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
