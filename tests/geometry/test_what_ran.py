"""A spy at the door of this geometry: every field of what ran is what ``privacy_`` states; and mutations it must see.

As tests/release/test_what_ran.py for the box.  Noise is what came out less the exact sum, so its size is measured, in
units of the multiplier that the report states for that release; limits are chi-square quantiles at 1e-6 a side, seeds
are fixed.
"""

import math

import numpy as np
import pytest

from pgbb_fast import (
    PrivateExpectileRegressor,
    PrivateGeneralisedRegressor,
    PrivateHuberRegressor,
    PrivateLogisticRegressor,
    PrivatePoissonRegressor,
    PrivateQuantileRegressor,
)
from pgbb_fast.budget.gaussian import FEATURES, GRADIENT, SCORE
from pgbb_fast.errors import BudgetError
from pgbb_fast.kernels import cpu, reference
from pgbb_fast.release import stacked as doors
from pgbb_fast.release.stacked import Door
from tests.problems import PUBLIC, regression
from tests.spying import BUDGET, GRID, WORD, size_is, wrap

N = 400
X, Y = regression(N, np.random.default_rng(0))
SETTINGS = {**BUDGET, **PUBLIC}
CASES = {
    "quantile": (lambda: PrivateQuantileRegressor(**SETTINGS, tau=[0.25, 0.5, 0.75]), Y),
    "huber": (lambda: PrivateHuberRegressor(**SETTINGS), Y),
    "expectile": (lambda: PrivateExpectileRegressor(**SETTINGS, level=0.8), Y),
    "logistic": (lambda: PrivateLogisticRegressor(**BUDGET, x_bounds=PUBLIC["x_bounds"]), Y > 0),
    "poisson": (lambda: PrivatePoissonRegressor(**BUDGET, x_bounds=PUBLIC["x_bounds"], y_bounds=(0, 5)), np.rint(Y**2)),
    "own slope": (
        lambda: PrivateGeneralisedRegressor(
            **SETTINGS, slope=lambda y, eta: float(np.tanh(eta - y)), slope_bound=1.0, eta_reach=2.0
        ),
        Y,
    ),
}


def spy(patch):
    """(name, stack, stream, stated C / n or B^2 / n, exact sum, what came out on the grid) of each release."""
    sums, products, seen = [], [], []

    def kernel(real):
        def call(*arguments):
            out = real(*arguments)
            if real.__name__ == "noisy_stacked":  # with noise: the same sum without it
                sums.append((arguments, cpu.stacked_sums(*arguments)))
            else:
                sums.append((arguments, out.copy()))
            return out

        return call

    def noise(real):
        def call(grid, multiplier, keys, step):
            products.append((keys.secret, step))
            return real(grid, multiplier, keys, step)

        return call

    def release(name):
        def make(real):
            def call(door, *arguments):
                before = len(sums)
                out, sd = real(door, *arguments)
                assert len(sums) == before + 1
                given, exact = sums[-1]
                records, stack = given[2], given[3]
                if name == FEATURES:
                    mapping, bound = arguments
                    assert (stack.feature_bound, stack.clip) == (bound, bound)
                    half = bound**2
                else:
                    theta, _, mapping, stacking = arguments
                    assert (stack.feature_bound, stack.clip) == (stacking.feature_bound, stacking.clip)
                    assert (stack.mix == stacking.mix).all()
                    assert (stack.theta == theta).all()
                    half = stacking.clip if name == GRADIENT else stacking.clip**2
                assert (stack.map == mapping).all()
                assert stack.threshold == WORD
                key = (tuple(given[4].key), given[4].step) if name == GRADIENT else products[-1]
                seen.append((name, len(records.x), key, out * (len(records.x) / half * GRID) - exact, sd / half))
                return out, sd

            return call

        return make

    for owner, names in ((cpu, ("noisy_stacked", "stacked_moments")),
                         (reference, ("stacked_sums_user", "stacked_moments_user"))):  # fmt: skip
        for name in names:
            wrap(patch, owner, name, kernel)
    wrap(patch, doors, "noisy_products", noise)
    for name, method in ((FEATURES, "features"), (GRADIENT, "step"), (SCORE, "scores")):
        wrap(patch, Door, method, release(name))
    return seen


def check(seen, report):
    """Releases are those of the report, in order, each with its noise, and no place of the stream is used twice."""
    stated = [
        (name, float(group.noise_multiplier))
        for group, name in zip(report.releases, report.names, strict=True)
        for _ in range(group.steps)
    ]
    assert [name for name, *_ in seen] == [name for name, _ in stated]
    assert {n for _, n, *_ in seen} == {report.n} == {N}
    assert {group.sampling_rate for group in report.releases} == {1.0}
    assert len({tuple(key[0]) for _, _, key, *_ in seen}) == 1
    assert len({key[1] for _, _, key, *_ in seen}) == len(seen)
    for kind in (FEATURES, GRADIENT, SCORE):
        noise = []
        for (name, _, _, part, sd), (_, multiplier) in zip(seen, stated, strict=True):
            if name != kind:
                continue
            if kind == GRADIENT:
                noise.append(np.ravel(part) / (multiplier * GRID))
                assert sd == pytest.approx(multiplier / N, rel=1e-12)
            else:
                upper = np.triu_indices(len(part))
                half = np.where(upper[0] == upper[1], math.sqrt(0.5), 0.5)
                noise.append(part[upper] / (half * multiplier * GRID))
        size_is(noise, 1.0)


def audit(name, patch, mutate=None):
    make, y = CASES[name]
    if mutate:
        mutate(patch)
    seen = spy(patch)
    model = make().fit(X, y)
    check(seen, model.privacy_)


@pytest.mark.parametrize("name", CASES)
def test_what_ran_is_what_is_stated(name, monkeypatch):
    audit(name, monkeypatch)


def next_with(change):
    """``Door._next`` with its stream and multiplier changed."""
    return lambda patch: wrap(patch, Door, "_next", lambda real: lambda door, name: change(*real(door, name)))


def stack_with(**changes):
    """``Door._stack`` with some fields changed."""

    def make(real):
        def call(*arguments):
            stack = real(*arguments)
            return stack._replace(**{k: v(getattr(stack, k)) for k, v in changes.items()})

        return call

    return lambda patch: wrap(patch, Door, "_stack", make)


def twice(patch):
    """A second gradient at each step, which is used instead of the first."""

    def make(real):
        def call(door, *arguments):
            real(door, *arguments)
            return real(door, *arguments)

        return call

    wrap(patch, Door, "step", make)


def moments_with(factor):
    return lambda patch: wrap(
        patch, doors, "noisy_products", lambda real: lambda grid, m, keys, step: real(grid, factor * m, keys, step)
    )


MUTATIONS = {
    "noise of a step halved": next_with(lambda stream, multiplier: (stream, multiplier / 2.0)),
    "noise of a step 20% less": next_with(lambda stream, multiplier: (stream, 0.8 * multiplier)),
    "a stream used again": next_with(lambda stream, multiplier: (stream._replace(step=0), multiplier)),
    "another key": next_with(lambda stream, m: (stream._replace(key=stream.key + (stream.step > 3)), m)),
    "clip 1% longer": stack_with(clip=lambda clip: 1.01 * clip),
    "features 1% longer": stack_with(feature_bound=lambda bound: 1.01 * bound),
    "slopes not mixed": stack_with(mix=lambda mix: np.eye(len(mix))),
    "features not mapped": stack_with(map=lambda mapping: np.eye(len(mapping))),
    "half of the records": stack_with(threshold=lambda threshold: threshold // 2),
    "noise in the kernel halved": stack_with(noise_multiplier=lambda multiplier: multiplier / 2.0),
    "moments' noise halved": moments_with(0.5),
    "a release more at each step": twice,
}  # fmt: skip


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_spy_sees_the_mutation(mutation, monkeypatch):
    """An assertion of the spy, or the door's own refusal."""
    with pytest.raises((AssertionError, BudgetError)):
        audit("quantile", monkeypatch, MUTATIONS[mutation])
