"""Privacy accounting: noisy block-weighted gradients, plain subsampled Gaussians, the m-out-of-n bootstrap."""

from pgbb_fast.accountant.adaptive import PrivacyFilter
from pgbb_fast.accountant.adjacency import with_adjacency
from pgbb_fast.accountant.api import (
    delta,
    delta_bounds,
    epsilon,
    epsilon_bounds,
    log_moment,
    noise_multiplier,
    noise_multiplier_bounds,
    steps,
)
from pgbb_fast.accountant.asymptotic import asymptotic_delta, asymptotic_mu, asymptotic_noise_multiplier
from pgbb_fast.accountant.curves import curve, sweep, trade_off
from pgbb_fast.accountant.dp_events import from_dp_accounting, to_dp_accounting
from pgbb_fast.accountant.events import DiscreteGaussian, LaplaceMechanism
from pgbb_fast.accountant.exports import GaussianPrivacy, ZeroConcentrated, to_gdp, to_zcdp
from pgbb_fast.accountant.group import for_group, group_delta, group_epsilon
from pgbb_fast.accountant.ledger import Entry, Guarantee, Ledger
from pgbb_fast.accountant.mechanisms import (
    BlockedGaussian,
    Bounds,
    ResampledGaussian,
    SubsampledGaussian,
    deterministic,
    gamma_star,
)

__all__ = [
    "BlockedGaussian",
    "Bounds",
    "DiscreteGaussian",
    "Entry",
    "GaussianPrivacy",
    "Guarantee",
    "LaplaceMechanism",
    "Ledger",
    "PrivacyFilter",
    "ResampledGaussian",
    "SubsampledGaussian",
    "ZeroConcentrated",
    "asymptotic_delta",
    "asymptotic_mu",
    "asymptotic_noise_multiplier",
    "curve",
    "delta",
    "delta_bounds",
    "deterministic",
    "epsilon",
    "epsilon_bounds",
    "for_group",
    "from_dp_accounting",
    "gamma_star",
    "group_delta",
    "group_epsilon",
    "log_moment",
    "noise_multiplier",
    "noise_multiplier_bounds",
    "steps",
    "sweep",
    "to_dp_accounting",
    "to_gdp",
    "to_zcdp",
    "trade_off",
    "with_adjacency",
]
