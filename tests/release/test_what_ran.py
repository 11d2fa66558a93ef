"""A spy at the kernels' door: every field of what ran is what ``privacy_`` states; and mutations that it must see.

The spy keeps what each release was asked for and what came out.  Noise is what came out less the same sum without it,
so its size is measured, not believed; seeds are fixed, and limits are chi-square quantiles at 1e-6 a side.  Accounts
of the estimators have given noise multipliers here (calibrations are tested elsewhere, and take time).
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch

from pgbb_fast import (
    Optimiser,
    PrivateExpectileRegressor,
    PrivateGeneralisedRegressor,
    PrivateHuberRegressor,
    PrivateLogisticRegressor,
    PrivateMean,
    PrivateMEstimator,
    PrivateQuantileRegressor,
)
from pgbb_fast.accountant import SubsampledGaussian
from pgbb_fast.baselines import (
    DPSGLD,
    NoisyGibbsMean,
    NoisyGibbsRegressor,
    NoisyNewton,
    newton,
    noisy_gibbs,
    sgld,
)
from pgbb_fast.bootstrap import BLBQuantiles, DPBootstrap, Mean, MOutOfNBootstrap, little
from pgbb_fast.bootstrap import estimators as bootstraps
from pgbb_fast.budget.report import PrivacyReport
from pgbb_fast.estimators import base
from pgbb_fast.kernels import cpu, reference
from pgbb_fast.local import exploration
from pgbb_fast.network import training
from pgbb_fast.release import blocked as releases
from pgbb_fast.release import medians
from pgbb_fast.release.blocked import Problem
from tests.problems import PUBLIC, regression
from tests.spying import BUDGET, GRID, WORD, size_is, wrap

N = 300
RNG = np.random.default_rng(0)
X, Y = regression(N, RNG)
WIDE = RNG.uniform(0, 1, (N, 100))
SHORT = {"steps": 60, "n_blocks": 5, "sampling_rate": 0.3}


@dataclass
class Seen:
    """What was released: steps of gradients (problem, theta, what came out, door), moments, curvatures and so on."""

    doors: list = field(default_factory=list)         # (records, draws, mechanism, stream, exact sum) at the kernels
    steps: list = field(default_factory=list)         # (noise in units of the grid,)
    moments: list = field(default_factory=list)       # (problem, step, noise over the multiplier's)
    curvatures: list = field(default_factory=list)    # (step, multiplier, noise over the multiplier's)
    concentrations: list = field(default_factory=list)
    estimates: list = field(default_factory=list)     # (n, multiplier, noise over the multiplier's)
    replicates: list = field(default_factory=list)    # (m, B, multiplier, noise over the multiplier's)
    medians: list = field(default_factory=list)       # (values, epsilon, number)
    keys: set = field(default_factory=set)


def spy(patch):
    """Watch every door; the functions that it finds there are the ones that run."""
    seen = Seen()

    def built_in(real):
        def call(loss, intercept, records, draws, mechanism, stream):
            exact = cpu.gradient_sums(loss, intercept, records, draws, mechanism, stream)
            seen.doors.append((records, draws, mechanism, stream, exact))
            return real(loss, intercept, records, draws, mechanism, stream)

        return call

    def own(real):
        def call(gradient, records, draws, mechanism, stream):
            exact = real(gradient, records, draws, mechanism, stream)
            seen.doors.append((records, draws, mechanism, stream, exact.copy()))    # noise is added in place
            return exact

        return call

    def step(real):
        def call(problem, keys, number, theta, weights, rule):
            before = len(seen.doors)
            out = real(problem, keys, number, theta, weights, rule)
            assert len(seen.doors) == before + 1
            unit = problem.clip / (problem.block_size * GRID * problem.rate)
            noisy = (out - problem.public_slope(theta.shape[-1]) * theta) / unit
            seen.steps.append(noisy - seen.doors[-1][4])
            return out

        return call

    def moment(real):
        def call(grid, problem, keys, number, unit):
            out = real(grid, problem, keys, number, unit)
            upper = np.triu_indices(len(grid))
            noise = out[0][upper] / (unit / (problem.n_blocks * problem.block_size) / GRID) - grid[upper]
            half = np.where(upper[0] == upper[1], math.sqrt(0.5), 0.5)
            seen.moments.append((problem, number, noise / (half * GRID)))
            seen.keys.add(tuple(keys.secret))
            return out

        return call

    def curvature(real):
        def call(problem, keys, number, theta, bound, multiplier):
            out, error = real(problem, keys, number, theta, bound, multiplier)
            exact = real(problem, keys, number, theta, bound, 1e-9 * multiplier)[0]
            upper = np.triu_indices(len(theta))
            largest = problem.loss.root_bound(bound, theta) / len(problem.records.x)
            half = np.where(upper[0] == upper[1], math.sqrt(0.5), 0.5) * largest
            seen.curvatures.append((number, multiplier, (out - exact)[upper] / half))
            return out, error

        return call

    def dirichlet(real):
        def call(count, blocks, gamma, rng):
            seen.concentrations.append(gamma)
            return real(count, blocks, gamma, rng)

        return call

    def estimate(real):
        def call(task, records, secret, multiplier):
            out = real(task, records, secret, multiplier)
            exact = real(task, records, secret, 1e-9 * multiplier)
            seen.estimates.append((task.n, multiplier, (out - exact) / (task.l / task.n)))
            return out

        return call

    def replicates(real):
        def call(task, records, secret, m, B, multiplier):
            out = real(task, records, secret, m, B, multiplier)
            exact = real(task, records, secret, m, B, 1e-9 * multiplier)
            seen.replicates.append((m, len(out), multiplier, (out - exact) / (task.l / m)))
            return out

        return call

    def median(real):
        def call(values, edges, epsilon, secret, number):
            seen.medians.append((values, epsilon, number))
            return real(values, edges, epsilon, secret, number)

        return call

    wrap(patch, cpu, "noisy_gradient", built_in)
    wrap(patch, reference, "gradient_step", own)
    for module in (exploration, training, sgld, newton, noisy_gibbs):
        wrap(patch, module, "release_step", step)
    wrap(patch, releases, "_noisy_moment", moment)
    wrap(patch, newton, "release_curvature", curvature)
    for module in (exploration, training):
        wrap(patch, module, "dirichlet", dirichlet)
    for module in (bootstraps, little):
        wrap(patch, module, "release_estimate", estimate)
    wrap(patch, bootstraps, "release_replicates", replicates)
    wrap(patch, medians, "_release_median", median)
    return seen


def check_streams(seen):
    """One key, and no place of the noise's stream used twice."""
    seen.keys.update(tuple(door[3].key) for door in seen.doors)
    places = [door[3].step for door in seen.doors]
    places += [number for _, number, _ in seen.moments] + [number for number, *_ in seen.curvatures]
    assert len(seen.keys) <= 1
    assert len(set(places)) == len(places)
    return len(places)


def check_estimator(seen, report):
    m = report.mechanism
    assert check_streams(seen) == m.steps + (report.moment.steps if report.moment else 0)
    assert len(seen.doors) == len(seen.steps) == m.steps
    assert m.minibatch == "shared"      # the K draws of a step are one call with one minibatch
    squares = []
    for records, draws, mechanism, _, _ in seen.doors:
        assert len(records.x) == m.n
        sizes = np.bincount(records.block, minlength=m.n_blocks + 1)
        assert (sizes[: m.n_blocks] == m.block_size).all()
        assert draws.theta.shape[0] == m.draws_per_step
        assert draws.weights.shape == (m.draws_per_step, m.n_blocks + 1)
        assert (draws.weights[:, -1] == 0.0).all()
        assert np.abs(draws.weights.sum(axis=1) - 1.0).max() < 1e-12
        assert mechanism.threshold == m.sampling_rate * WORD
        assert mechanism.noise_multiplier == m.noise_multiplier
        assert mechanism.clip == seen.doors[0][2].clip
        squares.append((draws.weights**2).sum(axis=1))
    # the weights' law: E sum u^2 = (gamma + 1) / (S gamma + 1), and the concentration that was asked for
    gamma, squares = m.concentration, np.concatenate(squares)
    wanted = (gamma + 1.0) / (m.n_blocks * gamma + 1.0)
    assert abs(squares.mean() - wanted) < 5.0 * squares.std() / math.sqrt(len(squares))
    assert set(seen.concentrations) == {gamma}
    size_is(seen.steps, m.noise_multiplier * GRID)
    assert len(seen.moments) == (report.moment.steps if report.moment else 0)
    for problem, _, _ in seen.moments:
        assert problem.moment_multiplier == report.moment.noise_multiplier
        assert report.moment.sampling_rate == 1.0
    if seen.moments:
        size_is([noise for *_, noise in seen.moments], report.moment.noise_multiplier)
    assert seen.curvatures == seen.estimates == seen.replicates == seen.medians == []


def check_sgld(seen, report):
    m = report.mechanism
    assert check_streams(seen) == len(seen.steps) == m.steps
    for records, draws, mechanism, _, _ in seen.doors:
        assert len(records.x) == report.n
        assert (draws.weights == [1.0, 0.0]).all()
        assert mechanism.threshold == m.sampling_rate * WORD
        # L gradients of norm C are one vector of norm sqrt(L) C
        assert mechanism.noise_multiplier / math.sqrt(len(draws.theta)) == pytest.approx(m.noise_multiplier, rel=1e-12)
        assert mechanism.noise_multiplier >= m.noise_multiplier
    size_is(seen.steps, m.noise_multiplier * math.sqrt(len(seen.doors[0][1].theta)) * GRID)


def check_shares(seen, report):
    """Each release, in the order of the stream, has its share of mu^2."""
    whole = report.mechanism.noise_multiplier
    assert (report.mechanism.sampling_rate, report.mechanism.steps) == (1.0, 1)
    assert check_streams(seen) == len(report.shares)
    found = {door[3].step: door[2].noise_multiplier for door in seen.doors}
    found |= {number: multiplier for number, multiplier, _ in seen.curvatures}
    found |= {number: problem.moment_multiplier for problem, number, _ in seen.moments}
    places = sorted(found)
    for place, share in zip(places, report.shares, strict=True):
        assert found[place] == pytest.approx(whole / math.sqrt(share), rel=1e-11)
    assert math.fsum(v**-2 for v in found.values()) <= whole**-2
    for _, _, mechanism, _, _ in seen.doors:
        assert mechanism.threshold == WORD
    noise = [part / (door[2].noise_multiplier * GRID) for part, door in zip(seen.steps, seen.doors, strict=True)]
    noise += [part / problem.moment_multiplier for problem, _, part in seen.moments]
    noise += [part / multiplier for _, multiplier, part in seen.curvatures]
    size_is(noise, 1.0)
    if seen.curvatures:
        size_is([part / multiplier for _, multiplier, part in seen.curvatures], 1.0)


def check_bootstrap(seen, report):
    ((m, B, multiplier, noise),) = seen.replicates
    assert (m, B) == (report.mechanism.resample_size, report.mechanism.replicates)
    assert report.mechanism.n == N
    assert multiplier == report.replicate_multiplier
    size_is([noise], multiplier)
    assert len(seen.estimates) == (report.estimate is not None)
    for n, own, part in seen.estimates:
        assert n == report.mechanism.n
        assert own == report.estimate_multiplier
        size_is([part], own)


def check_little(seen, report):
    ((n, own, noise),) = seen.estimates
    assert n == report.n
    assert own == report.estimate_multiplier
    size_is([noise], own)
    assert len(seen.medians) == report.medians == len({number for *_, number in seen.medians})
    for values, epsilon, _ in seen.medians:
        assert len(values) == report.subsets
        assert epsilon == report.median_epsilon


def regressor(cls, **changes):
    return cls(**{**BUDGET, **SHORT, **PUBLIC, **changes})


def joint(**changes):
    return regressor(PrivateQuantileRegressor, tau=[0.25, 0.5, 0.75], draws_per_step=3, **changes)


def squared(theta, x, y):
    return (y - theta[0] - theta[1] * x[0]) ** 2 / 10 + theta[2] ** 2


CASES = {
    "quantile": (lambda: joint(), (X, Y), check_estimator),
    "no moments": (lambda: joint(moment_share=0.0), (X, Y), check_estimator),
    "huber": (lambda: regressor(PrivateHuberRegressor), (X, Y), check_estimator),
    "expectile": (lambda: regressor(PrivateExpectileRegressor), (X, Y), check_estimator),
    "logistic": (
        lambda: PrivateLogisticRegressor(**BUDGET, **SHORT, x_bounds=PUBLIC["x_bounds"]), (X, Y > 0), check_estimator
    ),
    "own slope": (
        lambda: regressor(PrivateGeneralisedRegressor, slope=lambda y, eta: eta - y, slope_bound=9.0, eta_reach=2.0),
        (X, Y), check_estimator,
    ),
    "own loss": (
        lambda: regressor(PrivateMEstimator, loss=squared, clip=4.0, coef_bounds=[(-2, 2)] * 3), (X, Y), check_estimator
    ),
    "mean": (lambda: PrivateMean(**BUDGET, **SHORT, x_bounds=PUBLIC["x_bounds"]), (X,), check_estimator),
    "gamma": (lambda: joint(gamma=0.3), (X, Y), check_estimator),
    "trained network": (
        lambda: joint(posterior="generator", training=Optimiser(learning_rate=1e-4)), (X, Y), check_estimator
    ),
    "fitted network": (lambda: joint(posterior="generator"), (X, Y), check_estimator),
    "sgld": (lambda: DPSGLD(joint(), steps=50, sampling_rate=0.3), (X, Y), check_sgld),
    "newton": (lambda: NoisyNewton(joint()), (X, Y), check_shares),
    "newton huber": (lambda: NoisyNewton(regressor(PrivateHuberRegressor)), (X, Y), check_shares),
    "gibbs": (lambda: NoisyGibbsRegressor(**BUDGET, **PUBLIC, iterations=200), (X, Y), check_shares),
    "gibbs mean": (
        lambda: NoisyGibbsMean(**BUDGET, x_bounds=[(0, 1)] * 12, iterations=100), (WIDE[:, :12],), check_shares
    ),
    "gibbs exponential": (
        lambda: NoisyGibbsMean(**BUDGET, x_bounds=[(0, 1)], family="exponential", iterations=1000), (WIDE[:, :1],),
        check_shares,
    ),
    "m out of n": (lambda: MOutOfNBootstrap(Mean([(0, 1)] * 100), **BUDGET), (WIDE,), check_bootstrap),
    "n out of n": (lambda: DPBootstrap(Mean([(0, 1)] * 3), **BUDGET), (WIDE[:, :3],), check_bootstrap),
    "little": (
        lambda: BLBQuantiles(Mean([(0, 1)] * 60), **BUDGET, subsets=10, resamples=20), (WIDE[:, :60],), check_little
    ),
}  # fmt: skip


def given(mechanism, *, budget_epsilon, budget_delta, moment_share, moments):
    """A report with given noise, in the place of a calibration."""
    moment = SubsampledGaussian(sampling_rate=1.0, steps=moments, adjacency="replace-one", noise_multiplier=7.0)
    calibrated = replace(mechanism, noise_multiplier=1.7)
    return PrivacyReport(budget_epsilon, budget_delta, calibrated, moment if moment_share > 0.0 else None)


def audit(name, patch, inner=None, outer=None):
    """Fit under the spy and compare; ``inner`` mutates what the doors call, ``outer`` what calls the doors."""
    make, records, check = CASES[name]
    patch.setattr(base, "calibrate", given)
    if inner:
        inner(patch)
    seen = spy(patch)
    if outer:
        outer(patch)
    model = make().fit(*records)
    check(seen, model.privacy_)


@pytest.mark.parametrize("name", CASES)
def test_what_ran_is_what_is_stated(name, monkeypatch):
    if "network" in name:
        torch.manual_seed(0)
    audit(name, monkeypatch)


def problem_with(**changes):
    """Problem as ``fit`` builds it, with some fields multiplied."""

    def build(**fields):
        for key, factor in changes.items():
            fields[key] = type(fields[key])(fields[key] * factor)
        return Problem(**fields)

    return lambda patch: patch.setattr(base, "Problem", build)


def account_with(**changes):
    """The account's mechanism with some fields changed."""

    def make(real):
        return lambda self, n: replace(real(self, n), **{k: v(real(self, n)) for k, v in changes.items()})

    return lambda patch: wrap(patch, base.PrivateEstimator, "_mechanism", make)


def argument(owner, name, place, change):
    """Argument number ``place`` of a function changed on its way."""

    def make(real):
        def call(*arguments):
            changed = list(arguments)
            changed[place] = change(changed[place])
            return real(*changed)

        return call

    return lambda patch: wrap(patch, owner, name, make)


def twice(owner, name):
    """A release that happens twice."""

    def make(real):
        def call(*arguments):
            real(*arguments)
            return real(*arguments)

        return call

    return lambda patch: wrap(patch, owner, name, make)


def uneven(n, S, rng):
    block = np.minimum(np.arange(n) // 40, S - 1).astype(np.uint8)
    rng.shuffle(block)
    return block


def one_moment(patch):
    wrap(patch, base, "calibrate", lambda real: lambda mechanism, **k: real(mechanism, **{**k, "moments": 1}))


def half_mechanism(mechanism):
    return mechanism._replace(noise_multiplier=mechanism.noise_multiplier / 2)


def half_moment(problem):
    return replace(problem, moment_multiplier=problem.moment_multiplier / 2)


def half(value):
    return value / 2


MUTATIONS = {
    "sampling probability + 1%": ("quantile", None, problem_with(sampling_threshold=1.01)),
    "sampling probability doubled": ("quantile", None, problem_with(sampling_threshold=2)),
    "sampling probability doubled, own loss": ("own slope", None, problem_with(sampling_threshold=2)),
    "noise halved in fit": ("quantile", None, problem_with(noise_multiplier=0.5)),
    "noise halved in fit, own loss": ("own loss", None, problem_with(noise_multiplier=0.5)),
    "moments' multiplier halved in fit": ("quantile", None, problem_with(moment_multiplier=0.5)),
    "a shared minibatch accounted as independent": ("quantile", account_with(minibatch=lambda m: "independent"), None),
    "a larger gamma in the account": ("quantile", account_with(gamma=lambda m: 1.5 * m.concentration), None),
    "a smaller gamma in the fit": ("quantile", None, problem_with(gamma=0.7)),
    "a smaller gamma in the weights": ("quantile", argument(exploration, "dirichlet", 2, lambda g: 0.5 * g), None),
    "more records in the account": ("quantile", account_with(n=lambda m: 2 * m.n), None),
    "more blocks in the account": ("quantile", account_with(n_blocks=lambda m: m.n_blocks + 1), None),
    "more draws in the fit": ("quantile", None, problem_with(draws_per_step=2)),
    "fewer steps in the account": ("quantile", account_with(steps=lambda m: m.steps - 1), None),
    "fewer moments in the account": ("quantile", one_moment, None),
    "blocks of different sizes": ("quantile", lambda patch: patch.setattr(base, "partition", uneven), None),
    "noise halved below the door": ("quantile", argument(cpu, "noisy_gradient", 4, half_mechanism), None),
    "moments' noise halved below the door": ("quantile", argument(releases, "_noisy_moment", 1, half_moment), None),
    "a step's noise used again": ("quantile", None, argument(exploration, "release_step", 2, lambda step: step // 2)),
    "a moment with a step's noise": ("quantile", None, argument(releases, "_noisy_moment", 3, lambda step: 5)),
    "a step released twice": ("quantile", None, twice(exploration, "release_step")),
    "noise halved in a trained network": ("trained network", None, problem_with(noise_multiplier=0.5)),
    "sgld without the root of the rules": (
        "sgld", None,
        lambda patch: wrap(
            patch, sgld, "whole_batch",
            lambda real: lambda t, **k: real(t, **{**k, "noise_multiplier": k["noise_multiplier"] / math.sqrt(3)}),
        ),
    ),
    "sgld's noise used again": ("sgld", None, argument(sgld, "release_step", 2, lambda step: step // 2)),
    "newton's shares halved": (
        "newton", None, lambda patch: wrap(patch, newton, "share_multiplier", lambda real: lambda *a: real(*a) / 2)
    ),
    "newton's curvature with half its noise": ("newton", None, argument(newton, "release_curvature", 5, half)),
    "newton's curvature halved below the door": ("newton", argument(newton, "release_curvature", 5, half), None),
    "newton's curvature with a step's noise": ("newton", None, argument(newton, "release_curvature", 2, lambda s: 0)),
    "gibbs with half its noise": ("gibbs", None, argument(noisy_gibbs, "release_moment", 0, half_moment)),
    "gibbs halved below the door": ("gibbs mean", argument(releases, "_noisy_moment", 1, half_moment), None),
    "gibbs exponential with half its noise": (
        "gibbs exponential", None,
        argument(noisy_gibbs, "release_step", 0, lambda p: replace(p, noise_multiplier=p.noise_multiplier / 2)),
    ),
    "a bootstrap estimate with half its noise": ("m out of n", None, argument(bootstraps, "release_estimate", 3, half)),
    "an estimate halved below the door": ("m out of n", argument(bootstraps, "release_estimate", 3, half), None),
    "replicates with half their noise": ("m out of n", None, argument(bootstraps, "release_replicates", 5, half)),
    "replicates halved below the door": ("n out of n", argument(bootstraps, "release_replicates", 5, half), None),
    "larger resamples": ("m out of n", None, argument(bootstraps, "release_replicates", 3, lambda m: 2 * m)),
    "one replicate more": ("n out of n", None, argument(bootstraps, "release_replicates", 4, lambda B: B + 1)),
    "a little estimate with half its noise": ("little", None, argument(little, "release_estimate", 3, half)),
    "a little estimate halved below the door": ("little", argument(little, "release_estimate", 3, half), None),
    "medians at twice their epsilon": ("little", None, argument(medians, "_release_median", 2, lambda e: 2 * e)),
    "a median's words used again": ("little", None, argument(medians, "_release_median", 4, lambda n: 0)),
    "a median released twice": ("little", None, twice(medians, "_release_median")),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_spy_sees_the_mutation(mutation, monkeypatch):
    name, inner, outer = MUTATIONS[mutation]
    with pytest.raises(AssertionError):
        audit(name, monkeypatch, inner, outer)
