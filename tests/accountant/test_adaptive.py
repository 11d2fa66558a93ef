"""The filter and odometer for adaptive budgets, against closed forms and an adaptive adversary."""

import math
from dataclasses import replace

import numpy as np
import pytest

from pgbb_fast.accountant import (
    BlockedGaussian,
    Guarantee,
    LaplaceMechanism,
    PrivacyFilter,
    ResampledGaussian,
    SubsampledGaussian,
)
from pgbb_fast.errors import BudgetError, DomainError, PrivacyError

BUDGET = Guarantee(epsilon=1.0, delta=1e-5)
PLAIN = SubsampledGaussian(sampling_rate=1.0, steps=1, adjacency="add-remove", noise_multiplier=20.0)


def capacity(epsilon, delta, order):
    """(order - 1) epsilon + log delta less order log(1 - 1/order) - log(order - 1): CKS 2020, proposition 12."""
    return (order - 1) * epsilon + math.log(delta) - order * math.log1p(-1 / order) + math.log(order - 1)


@pytest.mark.parametrize("order", [14, 25, 60])
def test_as_many_plain_releases_fit_as_the_closed_form_allows(order):
    account = PrivacyFilter(budget=BUDGET, adjacency="add-remove", order=order)
    fits = math.floor(capacity(1.0, 1e-5, order) / (order * (order - 1) / (2 * 20.0**2)))
    for _ in range(fits):
        account.spend(PLAIN)
    with pytest.raises(BudgetError, match="nothing was recorded"):
        account.spend(PLAIN)
    assert len(account.entries) == fits
    spent = fits * order * (order - 1) / 800
    assert account.remaining() == pytest.approx(1 - spent / capacity(1.0, 1e-5, order), rel=1e-9, abs=1e-12)
    account.spend(replace(PLAIN, noise_multiplier=1e5))  # what is small still fits


def test_the_order_taken_is_the_best_one():
    best = PrivacyFilter(budget=BUDGET, adjacency="add-remove").order
    value = {k: capacity(1.0, 1e-5, k) / (k * (k - 1)) for k in range(2, 200)}
    assert value[best] >= 0.98 * max(value.values())
    sampled = SubsampledGaussian(sampling_rate=0.01, steps=10, adjacency="add-remove", noise_multiplier=2.0)
    chosen = PrivacyFilter(budget=BUDGET, adjacency="add-remove", like=sampled)
    other = PrivacyFilter(budget=BUDGET, adjacency="add-remove")
    for account in (chosen, other):
        account.spend(sampled)
    assert chosen.remaining() >= other.remaining()


def test_parameters_chosen_from_outputs_keep_within_the_budget():
    """An adversary who takes the larger noise after a large loss: delta(epsilon) of the whole by simulation.

    Under P the transcript's loss L is known exactly along each path, and delta(epsilon) is E (1 - e^(epsilon - L))+.
    200,000 paths at epsilon 1, delta 0.02; the bound is exceeded by chance with probability below 1e-6 (five standard
    errors, which are added to the budget).
    """
    budget = Guarantee(epsilon=1.0, delta=0.02)
    order = PrivacyFilter(budget=budget, adjacency="add-remove").order
    limit = capacity(1.0, 0.02, order)
    rng = np.random.default_rng(7)
    loss, spent = np.zeros(200_000), np.zeros(200_000)
    for _ in range(12):
        mu = np.where(loss > 0.4, 0.12, 0.45)
        cost = order * (order - 1) * mu**2 / 2
        mu = np.where(spent + cost <= limit, mu, 0.0)
        spent += order * (order - 1) * mu**2 / 2
        loss += mu * (rng.standard_normal(len(loss)) + mu) - mu**2 / 2
    gain = np.maximum(-np.expm1(np.minimum(1.0 - loss, 0.0)), 0.0)
    assert gain.mean() <= 0.02 + 5 * gain.std() / math.sqrt(len(gain))
    # and the class counts as the simulation did
    account = PrivacyFilter(budget=budget, adjacency="add-remove", order=order)
    taken = 0.0
    for mu in (0.45, 0.12, 0.45, 0.12):
        cost = order * (order - 1) * mu**2 / 2
        event = replace(PLAIN, noise_multiplier=1 / mu)
        if taken + cost <= limit:
            account.spend(event)
            taken += cost
        else:
            with pytest.raises(BudgetError):
                account.spend(event)
    assert account.remaining() == pytest.approx(1 - taken / limit, rel=1e-9)


def test_odometer_holds_at_all_times_at_once():
    """100,000 Gaussian paths of 30 releases: the loss crosses the odometer with probability at most delta = .05.

    The line is crossed by chance though the bound holds with probability below 1e-6 (five standard errors).
    """
    account = PrivacyFilter(budget=Guarantee(epsilon=20.0, delta=0.05), adjacency="add-remove", order=4)
    assert account.odometer(delta=0.05) == 0.0
    rng = np.random.default_rng(11)
    loss, crossed, mu = np.zeros(100_000), np.zeros(100_000, dtype=bool), 1 / 4
    for step in range(1, 31):
        account.spend(replace(PLAIN, noise_multiplier=4.0))
        line = account.odometer(delta=0.05)
        # (A + log 1/delta) / 3, A = 4 x 3 / 2 mu^2 a step
        assert line == pytest.approx((6 * mu**2 * step + math.log(20)) / 3, rel=1e-12)
        loss += mu * (rng.standard_normal(len(loss)) + mu) - mu**2 / 2
        crossed |= loss > line
    share = crossed.mean()
    assert 0 < share <= 0.05 + 5 * math.sqrt(0.05 * 0.95 / len(crossed))


def test_every_kind_of_release_and_refusals():
    account = PrivacyFilter(budget=BUDGET, adjacency="replace-one", order=20)
    account.spend(LaplaceMechanism(scale_over_sensitivity=50.0, steps=1, adjacency="replace-one"), label="a count")
    blocked = BlockedGaussian(
        n=10_000, n_blocks=20, sampling_rate=0.05, steps=100, minibatch="shared", noise_multiplier=2.5
    )
    account.spend(blocked)
    assert [e.label for e in account.entries] == ["a count", ""]
    before = account.remaining()
    boot = ResampledGaussian(n=1000, resample_size=20, replicates=50, noise_multiplier=6.0)
    for event, error in (
        (PLAIN, PrivacyError),
        (boot, PrivacyError),
        (replace(blocked, noise_multiplier=None), DomainError),
        ("a release", DomainError),
        (replace(blocked, noise_multiplier=1e-3), BudgetError),
    ):
        with pytest.raises(error):
            account.spend(event)
    with pytest.raises(DomainError):
        account.spend(blocked, label=3)
    assert account.remaining() == before
    with pytest.raises(PrivacyError, match="larger order"):
        PrivacyFilter(budget=BUDGET, adjacency="add-remove", order=3)
    for bad in (
        {"budget": (1.0, 1e-5)},
        {"adjacency": "both"},
        {"order": 1},
        {"order": 2.0},
        {"order": 20, "like": PLAIN},
        {"like": "a release"},
    ):
        with pytest.raises(DomainError):
            PrivacyFilter(**({"budget": BUDGET, "adjacency": "add-remove"} | bad))
    with pytest.raises(PrivacyError):
        PrivacyFilter(budget=BUDGET, adjacency="replace-one", like=PLAIN)
    with pytest.raises(PrivacyError, match="no order"):
        PrivacyFilter(budget=Guarantee(epsilon=1e-9, delta=1e-9), adjacency="add-remove")
    for delta in (0.0, 1.0, math.nan):
        with pytest.raises(DomainError):
            account.odometer(delta=delta)
