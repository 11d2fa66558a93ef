"""Properties over wide ranges: order of bounds, monotonicity, safety of calibration, extremes."""

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pgbb_fast.accountant import (
    BlockedGaussian,
    ResampledGaussian,
    SubsampledGaussian,
    delta_bounds,
    epsilon,
    epsilon_bounds,
    noise_multiplier,
)

pytestmark = pytest.mark.slow


def logs(low, high):
    return st.floats(math.log(low), math.log(high)).map(math.exp)


def whole(low, high):
    return logs(low, high).map(round)


@st.composite
def mechanisms(draw):
    kind = draw(st.sampled_from(["blocked", "blocked", "plain", "resampled"]))
    count = draw(whole(1, 3000))
    noise = draw(logs(0.3, 50))
    if kind == "resampled":
        n = draw(whole(10, 5000))
        return ResampledGaussian(
            n=n, resample_size=draw(whole(1, 2 * n)), replicates=count, noise_multiplier=draw(logs(2, 100))
        )
    q = draw(logs(1e-3, 1.0))
    if kind == "plain":
        adjacency = draw(st.sampled_from(["add-remove", "replace-one"]))
        return SubsampledGaussian(sampling_rate=q, steps=count, adjacency=adjacency, noise_multiplier=max(noise, 0.6))
    blocks = draw(whole(3, 200))
    return BlockedGaussian(
        n=1000,
        n_blocks=blocks,
        sampling_rate=q,
        steps=count,
        gamma=draw(logs(0.2, 5)),
        minibatch="independent",
        noise_multiplier=noise,
    )


@given(m=mechanisms(), d=logs(1e-12, 0.3))
@settings(max_examples=60)
def test_bounds_are_ordered_and_monotone_in_delta_and_noise(m, d):
    low, high = epsilon_bounds(m, delta=d)
    assert 0 <= low <= high
    value = epsilon(m, delta=d)
    assert low <= value
    # a bound at a larger delta, or with more noise, is at most the bound here up to both widths
    assert epsilon_bounds(m, delta=min(0.5, 2 * d)).lower <= value
    assert epsilon_bounds(replace(m, noise_multiplier=m.noise_multiplier * 1.1), delta=d).lower <= value
    if math.isfinite(high) and 0 < high < 300:
        under, over = delta_bounds(m, epsilon=high)
        assert under <= d * (1 + 1e-9)
        assert under <= over


@given(m=mechanisms(), d=logs(1e-10, 1e-2))
@settings(max_examples=40)
def test_more_releases_and_higher_rates_cost_more(m, d):
    low = epsilon_bounds(m, delta=d).lower
    more = (
        replace(m, replicates=m.replicates + 1) if isinstance(m, ResampledGaussian) else replace(m, steps=m.steps + 1)
    )
    assert low <= epsilon(more, delta=d)
    if not isinstance(m, ResampledGaussian):
        assert low <= epsilon(replace(m, sampling_rate=min(1.0, m.sampling_rate * 1.2)), delta=d)
    if isinstance(m, BlockedGaussian):
        # fewer blocks at the same concentration: a stochastically larger weight
        assume(m.n_blocks > 3)
        assert low <= epsilon(replace(m, n_blocks=m.n_blocks - 1), delta=d)
        whole_weight = SubsampledGaussian(
            sampling_rate=m.sampling_rate, steps=m.steps, adjacency="replace-one", noise_multiplier=m.noise_multiplier
        )
        assert low <= epsilon(whole_weight, delta=d)


@given(m=mechanisms(), d=logs(1e-10, 1e-2))
@settings(max_examples=20)
def test_renyi_is_never_below_the_lower_bound(m, d):
    assume(not isinstance(m, ResampledGaussian))
    low = epsilon_bounds(m, delta=d).lower
    methods = ["renyi"]
    if m.adjacency == "replace-one" and isinstance(m, BlockedGaussian):
        methods.append("renyi-series")
    for method in methods:
        for conversion in ("cks", "standard"):
            assert epsilon(m, delta=d, method=method, conversion=conversion) >= low


@given(m=mechanisms(), e=logs(0.01, 20), d=logs(1e-10, 1e-2))
@settings(max_examples=25)
def test_calibrated_noise_is_safe_and_not_wasteful(m, e, d):
    s = noise_multiplier(m, epsilon=e, delta=d)
    assert epsilon(replace(m, noise_multiplier=s), delta=d) <= e
    if s > 2e-4:
        assert epsilon(replace(m, noise_multiplier=s * 0.98), delta=d) > e * 0.98


@given(
    blocks=whole(3, 100_000),
    gamma=logs(0.01, 10),
    q=logs(1e-6, 1.0),
    count=whole(1, 10_000_000),
    noise=logs(0.05, 1e4),
    d=logs(1e-30, 0.5),
)
@settings(max_examples=25)
def test_extremes_are_bracketed(blocks, gamma, q, count, noise, d):
    m = BlockedGaussian(
        n=100_000,
        n_blocks=blocks,
        gamma=gamma,
        sampling_rate=q,
        steps=count,
        minibatch="independent",
        noise_multiplier=noise,
    )
    from pgbb_fast.accountant.pairs import Quality, pair_for
    from pgbb_fast.accountant.pld import epsilon_bound

    parts = [(pair_for(m, noise), count)]
    low = epsilon_bound(parts, d, Quality(), upper=False)
    high = epsilon_bound(parts, d, Quality(), upper=True)
    assert 0 <= low <= high
