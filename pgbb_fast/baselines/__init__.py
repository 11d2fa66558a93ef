"""What a user would otherwise pick, and what nobody may publish: private baselines and exact references.

Private, each with its own account: :class:`DPSGLD`, :class:`NoisyGibbsMean`, :class:`NoisyGibbsRegressor`,
:class:`NoisyNewton`.  Not private, for tests and benchmarks: :class:`NonPrivateBayesianBootstrap`.
"""

from pgbb_fast.baselines.bayesian_bootstrap import NonPrivateBayesianBootstrap
from pgbb_fast.baselines.newton import NoisyNewton
from pgbb_fast.baselines.noisy_gibbs import NoisyGibbsMean, NoisyGibbsRegressor
from pgbb_fast.baselines.sgld import DPSGLD
from pgbb_fast.budget.baseline import BaselineReport, NoGuarantee
from pgbb_fast.posteriors.sampled import SampledPosterior

__all__ = [
    "DPSGLD",
    "BaselineReport",
    "NoGuarantee",
    "NoisyGibbsMean",
    "NoisyGibbsRegressor",
    "NoisyNewton",
    "NonPrivateBayesianBootstrap",
    "SampledPosterior",
]
