"""What was spent stays on record: refits, interrupted fits, seeds; and what a fit that fails leaves behind."""

import copy
import json
import math
import pickle
import re
from dataclasses import replace

import numpy as np
import pytest

from pgbb_fast import (
    DomainError,
    NotFittedError,
    Optimiser,
    PgbbError,
    Posterior,
    PrivateHuberRegressor,
    PrivateMean,
    PrivateQuantileRegressor,
)
from pgbb_fast.accountant import SubsampledGaussian
from pgbb_fast.baselines import DPSGLD, NoisyGibbsMean, NoisyGibbsRegressor, NoisyNewton
from pgbb_fast.bootstrap import BLBQuantiles, DPBootstrap, Mean, MOutOfNBootstrap
from pgbb_fast.budget.report import PrivacyReport
from pgbb_fast.estimators import base
from pgbb_fast.kernels import cpu
from pgbb_fast.local.exploration import MIN_SEGMENTS, Exploration

X = np.random.default_rng(0).uniform(0, 1, (300, 1))
Y = X[:, 0]
BUDGET = {"epsilon": 1.0, "delta": 1e-4}
PUBLIC = {"x_bounds": [(0, 1)], "y_bounds": (0, 1)}


def mean_model(**changes):
    return PrivateMean(**{**BUDGET, "x_bounds": [(0, 1)], "steps": 60, "n_blocks": 5, **changes})


def quantile_model(**changes):
    return PrivateQuantileRegressor(**{**BUDGET, **PUBLIC, "steps": 60, "n_blocks": 5, **changes})


# what makes each, its records, and where its releases can be interrupted
CASES = {
    "estimator": (mean_model, (X,), "pgbb_fast.local.exploration.release_step"),
    "regressor": (quantile_model, (X, Y), "pgbb_fast.estimators.fitting.release_moment"),
    "m-out-of-n": (
        lambda seed=None: MOutOfNBootstrap(Mean([(0, 1)]), **BUDGET, seed=seed), (X,),
        "pgbb_fast.bootstrap.estimators.release_estimate",
    ),
    "n-out-of-n": (
        lambda seed=None: DPBootstrap(Mean([(0, 1)]), **BUDGET, seed=seed), (X,),
        "pgbb_fast.bootstrap.estimators.release_replicates",
    ),
    "little": (
        lambda seed=None: BLBQuantiles(Mean([(0, 1)]), **BUDGET, seed=seed), (X,),
        "pgbb_fast.release.medians._release_median",
    ),
    "sgld": (
        lambda seed=None: DPSGLD(quantile_model(seed=seed), steps=50), (X, Y), "pgbb_fast.baselines.sgld.release_step"
    ),
    "newton": (
        lambda seed=None: NoisyNewton(quantile_model(seed=seed)), (X, Y),
        "pgbb_fast.baselines.newton.release_curvature",
    ),
    "gibbs": (
        lambda seed=None: NoisyGibbsRegressor(**BUDGET, **PUBLIC, iterations=1000, seed=seed), (X, Y),
        "pgbb_fast.baselines.noisy_gibbs.release_moment",
    ),
    "gibbs mean": (
        lambda seed=None: NoisyGibbsMean(**BUDGET, x_bounds=[(0, 1)], iterations=1000, seed=seed), (X,),
        "pgbb_fast.baselines.noisy_gibbs.release_moment",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_refit_keeps_the_old_posterior_and_counts_as_spent(name, error, monkeypatch):
    make, records, where = CASES[name]
    model = make()
    assert model.spent_ == ()
    model.fit(*records)
    old, first = model.posterior_, model.privacy_
    assert [s.finished for s in model.spent_] == [True]
    assert model.spent_[0].report is first
    assert "Fit number" not in first.statement()

    def broken(*arguments):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(where, broken)
        with pytest.raises(error):
            model.fit(*records)
    assert model.posterior_ is old
    assert model.privacy_ is first
    assert [s.finished for s in model.spent_] == [True, False]
    lost = model.spent_[1].report
    assert (lost.epsilon, lost.delta) == (first.epsilon, first.delta)
    assert "budget spent 2 time(s), 1 without a result" in repr(model)
    third = model.fit(*records).privacy_
    assert [s.finished for s in model.spent_] == [True, False, True]
    assert third.earlier == ((first.epsilon, first.delta),) * 2
    found = re.search(r"Fit number 3 of the same object: .* by \((\S+), (\S+)\) in all", third.statement())
    assert 3 * first.epsilon <= float(found[1]) <= 3 * first.epsilon * (1 + 1e-5)
    assert 3 * first.delta <= float(found[2]) <= 3 * first.delta * (1 + 1e-5)


@pytest.mark.parametrize("name", CASES)
def test_an_interrupted_first_fit_says_what_it_spent(name, monkeypatch):
    make, records, where = CASES[name]
    model = make()

    def broken(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(where, broken)
        with pytest.raises(KeyboardInterrupt):
            model.fit(*records)
    assert not model.spent_[0].finished
    with pytest.raises(NotFittedError, match="an interrupted fit has spent its budget"):
        _ = model.posterior_
    assert "not fitted; budget spent 1 time(s), 1 without a result" in repr(model)


@pytest.mark.parametrize("name", CASES)
def test_what_is_refused_spends_nothing_and_keeps_the_old_posterior(name):
    make, records, _ = CASES[name]
    model = make().fit(*records)
    old = model.posterior_
    bad = [array.copy() for array in records]
    bad[-1].flat[5] = math.nan
    with pytest.raises(PgbbError):
        model.fit(*bad)
    with pytest.raises(PgbbError):
        model.fit(*[array[:1] for array in records])
    assert model.posterior_ is old
    assert len(model.spent_) == 1


def test_copies_and_pickles_carry_the_account_along():
    model = mean_model().fit(X)
    for other in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert [s.report for s in other.spent_] == [s.report for s in model.spent_]
        other.fit(X)
        assert len(other.privacy_.earlier) == 1
    assert len(model.spent_) == 1


@pytest.mark.parametrize("name", CASES)
def test_a_seeded_fit_says_that_its_noise_can_be_undone(name, tmp_path):
    make, records, _ = CASES[name]
    sentence = "A seed was given: whoever knows it can undo the noise"
    free, seeded = make().fit(*records), make(seed=7).fit(*records)
    assert seeded.privacy_.undone_by_seed
    assert sentence in seeded.privacy_.statement()
    assert "undone by its seed" in repr(seeded)
    assert "undone by its seed" in repr(seeded.posterior_)
    description = json.loads((seeded.posterior_.save(tmp_path / name) / "posterior.json").read_text())
    assert description["privacy"]["undone_by_seed"] is True
    assert Posterior.load(tmp_path / name).privacy == seeded.privacy_
    assert not free.privacy_.undone_by_seed
    assert "seed" not in free.privacy_.statement() + repr(free) + repr(free.posterior_)
    # nobody could redo the noise from what is shown: 7 stands nowhere as a seed
    assert not re.search(r"seed\W+7", json.dumps(description) + seeded.privacy_.statement() + repr(seeded))


def test_earlier_fits_are_saved(tmp_path):
    model = mean_model().fit(X).fit(X)
    again = Posterior.load(model.posterior_.save(tmp_path / "again")).privacy
    assert again == model.privacy_
    assert "Fit number 2" in again.statement()


@pytest.mark.parametrize(
    ("posterior", "training"),
    [("noise-aware", Optimiser()), ("noise-aware", "adam"), ("generator", 3)],
)
def test_training_of_another_kind_is_refused_when_stated(posterior, training):
    with pytest.raises(DomainError, match="training of the"):
        mean_model(posterior=posterior, training=training)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Exploration(search=2.0),
        lambda: Exploration(reach=math.nan),
        lambda: Exploration(memory=0.0),
        lambda: Optimiser(average=1.5),
        lambda: Optimiser(learning_rate=math.nan),
    ],
)
def test_settings_that_would_fail_in_the_middle_of_a_run_are_refused(make):
    with pytest.raises(DomainError):
        make()


def smallest(kind, p, K, S, share, n):
    """The fewest steps that a run may have."""
    d = p + 1 + (kind is PrivateHuberRegressor)
    least = MIN_SEGMENTS * (d + 2)
    if share == 0.0:
        least = max(least, 4 * (1 + d + S))
    return max(MIN_SEGMENTS, -(-least // K))


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5])
@pytest.mark.parametrize("K", [1, 10])
@pytest.mark.parametrize("S", [3, 24])
@pytest.mark.parametrize("q", [1e-4, 1.0])
def test_every_extreme_of_the_settings_gives_a_posterior(q, S, K, share, monkeypatch):
    """24 records, S = 3 or as many as records, the fewest steps: a posterior that is finite, and spans something.  The
    noise is a given one, for the time that calibrations take."""
    n, rng = 24, np.random.default_rng(3)

    def given(mechanism, *, budget_epsilon, budget_delta, moment_share, moments):
        plain = SubsampledGaussian(sampling_rate=1.0, steps=moments, adjacency="replace-one", noise_multiplier=5.0)
        calibrated = replace(mechanism, noise_multiplier=1.0)
        return PrivacyReport(budget_epsilon, budget_delta, calibrated, plain if moment_share > 0.0 else None)

    monkeypatch.setattr(base, "calibrate", given)
    x = rng.uniform(0, 1, (n, 1))
    settings = {"n_blocks": S, "draws_per_step": K, "sampling_rate": q, "moment_share": share}
    for kind in (PrivateQuantileRegressor, PrivateHuberRegressor):
        steps = smallest(kind, 1, K, S, share, n)
        model = kind(epsilon=2.0, delta=1e-3, **PUBLIC, steps=steps, seed=1, **settings)
        draws = model.fit(x, x[:, 0]).posterior_.draws(200)
        assert np.isfinite(draws).all()
        assert (draws.std(axis=0) > 0).all()
        with pytest.raises(DomainError, match="too few"):
            kind(epsilon=2.0, delta=1e-3, **PUBLIC, steps=max(1, steps - 1), seed=1, **settings).fit(x, x[:, 0])


def test_without_minibatches_the_blocks_tell_the_scores_moment():
    """q = 1 and no share for the moment, the mean of uniform numbers at next to no noise: the sampling part is
    sd / sqrt(n), from S - 1 = 199 degrees of freedom: within a quarter (5 standard errors of 5%)."""
    x = np.random.default_rng(5).uniform(0, 1, (4000, 1))
    model = mean_model(epsilon=1000.0, n_blocks=200, steps=3000, sampling_rate=1.0, moment_share=0.0, seed=2).fit(x)
    sampling, privacy = model.posterior_._parts()
    assert math.sqrt(sampling[0, 0]) == pytest.approx(x.std() / math.sqrt(4000), rel=0.25)
    assert privacy[0, 0] < sampling[0, 0]


def test_the_kernels_are_not_asked_for_anything_before_the_account_is_opened(monkeypatch):
    """Whenever a release is computed, the fit stands in the account already."""
    model, seen = quantile_model(), []
    real = cpu.noisy_gradient

    def watched(*arguments):
        seen.append(len(model.spent_))
        return real(*arguments)

    monkeypatch.setattr(cpu, "noisy_gradient", watched)
    model.fit(X, Y)
    assert set(seen) == {1}
