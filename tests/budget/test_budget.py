"""One budget for all releases of a data set: what it holds, what it refuses, and that nothing is lost in between."""

import copy
import json
import math
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
from scipy import optimize

from pgbb_fast import (
    Budget,
    BudgetError,
    DomainError,
    MOutOfNBootstrap,
    PrivacyError,
    PrivateHuberRegressor,
    PrivateMean,
    PrivateQuantileRegressor,
)
from pgbb_fast.accountant import SubsampledGaussian
from pgbb_fast.baselines import DPSGLD, NoisyNewton
from pgbb_fast.bootstrap import Mean
from pgbb_fast.files import sealed_json
from pgbb_fast.posteriors.base import Posterior
from tests.problems import gaussian_delta

N = 400
RNG = np.random.default_rng(3)
X = RNG.uniform(-1, 1, (N, 2))
Y = X @ [1.0, -1.0] + 0.3 * RNG.standard_normal(N)
PUBLIC = {"x_bounds": [(-1, 1)] * 2, "y_bounds": (-4, 4)}
GAUSS_CHARGE = {"label": "x", "epsilon": 1.0, "delta": 1e-6}
GAUSS = {"sampling_rate": 1.0, "adjacency": "replace-one"}


def regressor(cls=PrivateQuantileRegressor, **budget):
    return cls(**{**PUBLIC, "epsilon": 1.0, "delta": 1e-6, **budget})


def gaussian_epsilon(multiplier, delta):
    return optimize.brentq(lambda e: gaussian_delta(2.0 / multiplier, e) - delta, 0.0, 100.0, xtol=1e-13)


def test_shares_of_fits_use_the_budget_up_and_no_more():
    """Three equal Gaussian fits have mu over sqrt(3) each; a fourth of any size is refused, and nothing is charged."""
    budget = Budget(2.0, 1e-6)
    share = budget.share(3)
    whole = optimize.brentq(lambda m: gaussian_delta(2.0 / m, 2.0) - 1e-6, 0.5, 50.0, xtol=1e-13)
    assert share["epsilon"] == pytest.approx(gaussian_epsilon(whole * math.sqrt(3.0), 1e-6), rel=1e-5)
    for cls in (PrivateQuantileRegressor, PrivateHuberRegressor, PrivateQuantileRegressor):
        model = regressor(cls, **share).fit(X, Y, budget=budget)
    assert len(budget.charges) == 3
    epsilon, delta = budget.spent()
    assert epsilon <= 2.0
    assert delta == 1e-6
    assert epsilon == pytest.approx(2.0, rel=1e-4)
    assert model.privacy_.together == (epsilon, delta, 3)
    assert "3 charge(s)" in model.privacy_.statement()
    assert "3 charge(s)" in budget.statement()
    with pytest.raises(BudgetError, match="past the budget"):
        regressor(epsilon=0.05).fit(X, Y, budget=budget)
    assert budget.share()["epsilon"] < 0.02
    assert len(budget.charges) == 3


def test_the_sum_of_gaussians_is_theirs_in_closed_form():
    budget = Budget(6.0, 1e-5)
    for multiplier, steps in ((4.0, 1), (9.0, 5), (2.5, 1)):
        budget.spend(SubsampledGaussian(**GAUSS, steps=steps, noise_multiplier=multiplier))
    together = (1 / 16 + 5 / 81 + 1 / 6.25) ** -0.5
    truth = gaussian_epsilon(together, 1e-5)
    assert truth <= budget.spent()[0] <= truth * (1 + 1e-6)


def test_basic_composition_adds_up_and_takes_everything():
    budget = Budget(4.0, 1e-4, accounting="basic")
    share = budget.share(4)
    assert share["epsilon"] == pytest.approx(1.0, rel=1e-12)
    assert share["delta"] == pytest.approx(2.5e-5, rel=1e-12)
    regressor(**share).fit(X, Y, budget=budget)
    PrivateMean(x_bounds=[(-1, 1)] * 2, **share).fit(X, budget=budget)
    MOutOfNBootstrap(Mean([(-1, 1)] * 2), **share).fit(X, budget=budget)
    budget.spend((share["epsilon"], share["delta"]), label="a count")
    assert budget.spent()[0] <= 4.0
    assert math.fsum(c.epsilon for c in budget.charges) <= budget.spent()[0]
    labels = [c.label for c in budget.charges]
    assert labels == ["PrivateQuantileRegressor", "PrivateMean", "MOutOfNBootstrap", "a count"]
    with pytest.raises(BudgetError):
        budget.spend((0.1, 0.0))
    with pytest.raises(BudgetError, match="nothing is left"):
        budget.share()


def test_what_a_theorem_does_not_cover_is_refused_before_anything_is_charged():
    budget = Budget(5.0, 1e-4)
    for model in (PrivateMean(x_bounds=[(-1, 1)] * 2, epsilon=1.0, delta=1e-5), DPSGLD(regressor(), steps=20)):
        with pytest.raises(PrivacyError, match="accounting='basic'"):
            model.fit(X, *([] if isinstance(model, PrivateMean) else [Y]), budget=budget)
        assert model.spent_ == ()
    with pytest.raises(PrivacyError, match="basic"):
        budget.spend((1.0, 1e-6))
    NoisyNewton(regressor()).fit(X, Y, budget=budget)
    assert len(budget.charges) == 1


def test_a_fit_that_does_not_fit_touches_no_record(monkeypatch):
    """``unit()``, which checks and maps records, is not called."""
    from pgbb_fast.estimators import base

    monkeypatch.setattr(base, "place", lambda *a: pytest.fail("records were placed"))
    wrong = X.copy()
    wrong[3] = np.nan  # would be refused with another error were it looked at
    with pytest.raises(BudgetError):
        regressor(epsilon=3.0).fit(wrong, Y, budget=Budget(1.0, 1e-6))


def test_an_interrupted_fit_is_charged():
    budget = Budget(2.0, 1e-6)

    def stop(step):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        regressor().fit(X, Y, on_step=stop, budget=budget)
    assert len(budget.charges) == 1
    assert budget.spent()[0] == pytest.approx(1.0, rel=1e-5)


def test_what_a_budget_keeps_and_says_does_not_depend_on_a_record(tmp_path):
    """Neighbours, one with an enormous value: the same bytes in the file, the same words, the same refusal."""
    told = []
    for name, value in (("a", 0.1), ("b", 1e30)):
        x = X.copy()
        x[7] = value
        budget = Budget.open(tmp_path / f"{name}.json", epsilon=1.5, delta=1e-6)
        model = regressor().fit(x, Y, budget=budget)
        with pytest.raises(BudgetError) as refused:
            regressor(epsilon=1.4).fit(x, Y, budget=budget)
        text = (tmp_path / f"{name}.json").read_bytes()
        told.append((text, budget.statement(), repr(budget), str(refused.value), model.privacy_.statement()))
    assert told[0] == told[1]


def test_a_budget_in_memory_is_not_copied():
    for make in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(DomainError, match="spent twice"):
            make(Budget(1.0, 1e-6))


def test_a_saved_fit_keeps_the_sum(tmp_path):
    budget = Budget(2.0, 1e-6)
    regressor(epsilon=0.7).fit(X, Y, budget=budget)
    model = regressor(epsilon=0.7).fit(X, Y, budget=budget)
    model.posterior_.save(tmp_path)
    loaded = Posterior.load(tmp_path)
    assert loaded.privacy.together == model.privacy_.together
    assert loaded.privacy.statement() == model.privacy_.statement()


def test_in_a_file_it_lasts(tmp_path):
    path = tmp_path / "wages.json"
    first = Budget.open(path, epsilon=2.0, delta=1e-6)
    regressor(epsilon=0.7).fit(X, Y, budget=first)
    second = Budget.open(path)
    assert (second.epsilon, second.delta, second.accounting) == (2.0, 1e-6, "gaussian")
    assert second.charges == first.charges
    regressor(epsilon=0.7).fit(X, Y, budget=second)
    assert len(first.charges) == 2
    assert first.spent() == second.spent()
    again = pickle.loads(pickle.dumps(first))
    assert again.charges == first.charges
    with pytest.raises(DomainError, match=r"epsilon = 2\.0"):
        Budget.open(path, epsilon=3.0)
    with pytest.raises(DomainError, match="give epsilon and delta"):
        Budget.open(tmp_path / "other.json")


@pytest.mark.parametrize("damage", ["byte", "epsilon", "charge", "field", "not json", "gone", "another"])
def test_a_damaged_file_is_refused(tmp_path, damage):
    path = tmp_path / "b.json"
    budget = Budget.open(path, epsilon=2.0, delta=1e-6)
    budget.spend(SubsampledGaussian(**GAUSS, steps=1, noise_multiplier=5.0))
    text = path.read_text()
    values = json.loads(text)
    if damage == "byte":
        path.write_text(text.replace("5.0", "6.0"))
    elif damage == "epsilon":
        path.write_text(json.dumps({**values, "epsilon": 9.0}))
    elif damage == "charge":
        path.write_text(json.dumps({**values, "charges": []}))
    elif damage == "field":
        path.write_text(json.dumps({k: v for k, v in values.items() if k != "adjacency"}))
    elif damage == "not json":
        path.write_text(text[:-9])
    elif damage == "gone":
        path.unlink()
    else:
        path.unlink()
        Budget.open(path, epsilon=7.0, delta=1e-6)
    with pytest.raises(DomainError):
        budget.spend(SubsampledGaussian(**GAUSS, steps=1, noise_multiplier=5.0))


@pytest.mark.parametrize(
    "change",
    [
        {"format": "pgbb-fast budget 0"},
        {"adjacency": "add-remove"},
        {"more": 1},
        {"epsilon": -1.0},
        {"accounting": "none"},
        {"charges": [{"label": "x", "epsilon": math.pi, "delta": -1.0, "gaussians": []}]},
        {"charges": [{"label": 3, "epsilon": 1.0, "delta": 1e-6, "gaussians": []}]},
        {"charges": [{"label": "x", "epsilon": 1.0, "delta": 1e-6, "gaussians": [{"steps": 1}]}]},
        {"charges": [{"label": "x", "epsilon": 1.0, "delta": 1e-6, "gaussians": []}]},  # not Gaussian
        {"charges": 2 * [{**GAUSS_CHARGE, "gaussians": [{**GAUSS, "steps": 1, "noise_multiplier": 1.0}]}]},  # too many
        {"charges": "none"},
    ],
)
def test_a_file_that_was_made_anew_with_its_checksum_is_checked(tmp_path, change):
    path = tmp_path / "b.json"
    Budget.open(path, epsilon=2.0, delta=1e-6)
    values = {**json.loads(path.read_text()), **change}
    del values["sha256"]
    path.write_bytes(sealed_json(values))
    with pytest.raises((DomainError, PrivacyError)):
        Budget.open(path)


SPEND = """
import sys
from pgbb_fast import Budget, BudgetError
from pgbb_fast.accountant import SubsampledGaussian
done = 0
for _ in range(int(sys.argv[2])):
    try:
        event = SubsampledGaussian(sampling_rate=1.0, steps=1, adjacency="replace-one", noise_multiplier=20.0)
        Budget.open(sys.argv[1]).spend(event)
        done += 1
    except BudgetError:
        break
print(done)
"""


@pytest.mark.slow
def test_processes_that_share_a_file_never_spend_more_than_it_holds(tmp_path):
    """Room for 25 charges, four processes that want 10 each: 25 are made, whoever makes them."""
    path = tmp_path / "b.json"
    epsilon = gaussian_epsilon(20.0 / math.sqrt(25.5), 1e-6)
    budget = Budget.open(path, epsilon=epsilon, delta=1e-6)
    command = [sys.executable, "-c", SPEND, str(path), "10"]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    made = [int(one.communicate(timeout=300)[0]) for one in running]
    assert sum(made) == len(budget.charges) == 25


def test_threads_that_share_a_budget_never_spend_more_than_it_holds():
    budget = Budget(gaussian_epsilon(20.0 / math.sqrt(25.5), 1e-6), 1e-6)
    made = []

    def spend():
        for _ in range(10):
            try:
                budget.spend(SubsampledGaussian(**GAUSS, steps=1, noise_multiplier=20.0))
            except BudgetError:
                return
            made.append(1)

    threads = [threading.Thread(target=spend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == len(budget.charges) == 25


@pytest.mark.parametrize(
    "call",
    [
        lambda b: Budget(0.0, 1e-6),
        lambda b: Budget(1.0, 1.0),
        lambda b: Budget(1.0, 1e-6, accounting="renyi"),
        lambda b: b.share(0),
        lambda b: b.share(1.5),
        lambda b: b.spend("all"),
        lambda b: b.spend(SubsampledGaussian(**GAUSS, steps=1)),
        lambda b: b.spend(SubsampledGaussian(**{**GAUSS, "sampling_rate": 0.5}, steps=1, noise_multiplier=5.0)),
        lambda b: b.spend(SubsampledGaussian(**{**GAUSS, "adjacency": "add-remove"}, steps=1, noise_multiplier=5.0)),
        lambda b: b.spend(SubsampledGaussian(**GAUSS, steps=1, noise_multiplier=5.0), label=3),
        lambda b: regressor().fit(X, Y, budget=2.0),
        lambda b: Budget.open(3),
    ],
)
def test_bad_input_is_refused(call):
    budget = Budget(1.0, 1e-6)
    with pytest.raises(DomainError):
        call(budget)
    assert budget.charges == ()


def test_an_adaptive_adversary_gains_nothing_over_one_release():
    """The theorem by simulation: sizes chosen by the likelihood ratio so far, sum of squares at most mu^2.

    Of an analyst who stops as soon as the ratio is above e^epsilon, and else takes larger and larger shares: the
    hockey-stick divergence of 4e5 transcripts against that of one Gaussian release, plus 4.5 standard errors (3e-6).
    """
    mu, epsilon, rng = 1.0, 0.8, np.random.default_rng(11)
    size = 400_000
    ratio, left = np.zeros(size), np.full(size, mu**2)
    for share in (0.05, 0.1, 0.2, 0.4, 0.8, 1.0):
        part = np.where(ratio > epsilon, 0.0, share * left)
        ratio += part / 2 + np.sqrt(part) * rng.standard_normal(size)
        left -= part
    gain = np.maximum(1.0 - np.exp(epsilon - ratio), 0.0)
    assert gain.mean() <= gaussian_delta(mu, epsilon) + 4.5 * gain.std() / math.sqrt(size)
    assert gain.mean() > 0.5 * gaussian_delta(mu, epsilon)
