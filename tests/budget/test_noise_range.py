"""Noise and sums that don't fit into a release's integers are refused before a record is looked at.

Every record here is nan: an error about the records instead of the budget would mean that they were.
"""

import math

import numpy as np
import pytest

from pgbb_fast import DomainError, PrivateHuberRegressor, PrivateMean, PrivateMEstimator, plan
from pgbb_fast.baselines import DPSGLD, NoisyGibbsMean, NoisyGibbsRegressor, NoisyNewton
from pgbb_fast.bootstrap import BLBQuantiles, Custom, DPBootstrap, Mean, MOutOfNBootstrap
from pgbb_fast.budget.report import MAX_MULTIPLIER, MAX_RECORDS, require_clip, require_noise
from pgbb_fast.kernels.scalar.clip import GRID
from pgbb_fast.kernels.scalar.normal import MAX_SIGMA, REACH
from pgbb_fast.release.blocked import Keys, Problem

X, Y = np.full((1000, 1), np.nan), np.full(1000, np.nan)
BOUNDS = {"x_bounds": [(0.0, 1.0)], "y_bounds": (0.0, 1.0)}
TINY = {"epsilon": 1e-10, "delta": 1e-12}
ONE = {"epsilon": 1.0, "delta": 1e-6}
COEFFICIENTS = {"level": (-1.0, 1.0), "slope": (-1.0, 1.0)}


def huber(**settings):
    return PrivateHuberRegressor(**{**BOUNDS, **ONE, "steps": 500, **settings})


def user_loss(theta, x, y):
    return (y - theta[0] - theta[1] * x[0]) ** 2


NOISE = {
    "a regression": lambda: huber(**TINY).fit(X, Y),
    "a regression's plan": lambda: huber(**TINY).plan(1000),
    "the planner": lambda: plan(n=1000, p=1, **TINY),
    "a mean": lambda: PrivateMean(x_bounds=[(0, 1)], steps=500, **TINY).fit(X),
    "the moments' share": lambda: huber(moment_share=1e-20).fit(X, Y),
    "no double has the moments' noise": lambda: huber(moment_share=1e-310).fit(X, Y),
    "SGLD": lambda: DPSGLD(huber(**TINY), steps=500).fit(X, Y),
    "Newton": lambda: NoisyNewton(huber(**TINY)).fit(X, Y),
    "Gibbs": lambda: NoisyGibbsRegressor(**BOUNDS, **TINY).fit(X, Y),
    "Gibbs for a mean": lambda: NoisyGibbsMean(x_bounds=[(0, 1)], **TINY).fit(X),
    "replicates": lambda: DPBootstrap(Mean([(0, 1)]), **TINY).fit(X),
    "the estimate": lambda: MOutOfNBootstrap(Mean([(0, 1)]), estimate_share=1e-20, **ONE).fit(X),
    "the little bootstraps' estimate": lambda: BLBQuantiles(Mean([(0, 1)]), estimate_share=1e-20, **ONE).fit(X),
}


@pytest.mark.parametrize("name", NOISE)
def test_noise_beyond_64_bits_is_refused_before_the_records(name):
    with pytest.raises(DomainError, match=r"needs a noise multiplier of .* raise epsilon"):
        NOISE[name]()


def test_the_limits_leave_room_in_64_bits():
    assert MAX_RECORDS * GRID + REACH * MAX_SIGMA < 2**63
    assert MAX_MULTIPLIER * GRID == MAX_SIGMA
    assert MAX_RECORDS >= 1e9
    require_noise("who", MAX_RECORDS, 0.0, math.nextafter(MAX_MULTIPLIER, 0.0))
    for bad in (MAX_MULTIPLIER, math.inf, math.nan, -1.0):
        with pytest.raises(DomainError, match=r"who: .*noise multiplier"):
            require_noise("who", 10, 1.0, bad)
    with pytest.raises(DomainError, match="who: at most 1073741824 records"):
        require_noise("who", MAX_RECORDS + 1, 1.0)


@pytest.mark.parametrize("bad", [1e-320, 1e-40, 1e-16, 1e16, 1e39, math.inf, math.nan])
def test_clips_that_single_precision_does_not_have_are_refused(bad):
    with pytest.raises(DomainError, match=r"who: .*clipped at .*rescale"):
        require_clip("who", 1.0, bad)
    if math.isfinite(bad):
        with pytest.raises(DomainError, match=r"PrivateMEstimator: .*clipped at"):
            PrivateMEstimator(user_loss, coef_bounds=COEFFICIENTS, clip=bad, **BOUNDS, **ONE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noise_multiplier": 1e10}, "noise multiplier"),
        ({"moment_multiplier": 1e10}, "noise multiplier"),
        ({"block_size": 2**30}, "records"),
        ({"clip": 1e-30}, "clipped"),
        ({"design_bound": 1e30}, "clipped"),
    ],
)
def test_no_problem_is_made_that_could_overflow(change, message):
    """The last line: whoever calls the releases has made a problem."""
    right = {
        "records": None, "loss": None, "intercept": True, "n_blocks": 5, "block_size": 10, "gamma": 1.0, "clip": 1.0,
        "sampling_threshold": 2**32, "noise_multiplier": 1.0, "draws_per_step": 1, "steps": 1,
    }  # fmt: skip
    Problem(**right)
    with pytest.raises(DomainError, match=message):
        Problem(**{**right, **change})


@pytest.mark.parametrize("width", [1e-300, 1e-290])
def test_a_bootstrap_of_tiny_ranges_is_refused(width):
    with pytest.raises(DomainError, match=r"x_bounds\[0\] must be .* change the units"):
        DPBootstrap(Mean([(0.0, width)]), **ONE).fit(X)
    tiny = Custom(lambda sample: 0.0, width, [(0.0, 1e-20)])
    with pytest.raises(DomainError, match="box of theta is over"):
        DPBootstrap(tiny, **ONE).fit(X)


def test_large_noise_still_averages_out_to_the_truth():
    """Just inside the limit: the mean of 4 million zeros under noise of 8 million times the sensitivity."""
    from pgbb_fast.kernels import cpu

    noise = cpu.add_noise(np.zeros(4_000_000, dtype=np.int64), cpu.scale_of(2.0**55), Keys.fresh(1).secret, 0)
    assert abs(noise.mean()) < 4.9 * 2.0**55 / 2_000
    assert abs(noise.std() / 2.0**55 - 1) < 4.9 / math.sqrt(8_000_000)
