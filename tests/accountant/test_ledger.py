"""The ledger: composition, refusals, JSON, and a replay by dp-accounting."""

import json
from dataclasses import replace

import pytest

from pgbb_fast.accountant import (
    BlockedGaussian,
    Guarantee,
    Ledger,
    ResampledGaussian,
    SubsampledGaussian,
    curve,
    delta,
    epsilon,
    epsilon_bounds,
    sweep,
    trade_off,
)
from pgbb_fast.accountant.replay import events, replay_with_dp_accounting
from pgbb_fast.errors import BudgetError, DomainError, PrivacyError

FIT = BlockedGaussian(
    n=10_000, n_blocks=20, sampling_rate=0.05, steps=2000, minibatch="independent", noise_multiplier=2.2536
)
PLAIN = SubsampledGaussian(sampling_rate=0.02, steps=300, adjacency="replace-one", noise_multiplier=2.0)
BOOT = ResampledGaussian(n=1000, resample_size=20, replicates=50, noise_multiplier=6.0)


@pytest.mark.parametrize("method", ["pld", "renyi"])
def test_halves_make_the_whole(method):
    ledger = Ledger(method=method)
    ledger.record(replace(FIT, steps=800))
    ledger.append(replace(FIT, steps=1200))
    whole = epsilon(FIT, delta=1e-5, method=method)
    assert ledger.epsilon(delta=1e-5) == pytest.approx(whole, rel=1e-9)
    assert ledger.delta(epsilon=0.5) == pytest.approx(delta(FIT, epsilon=0.5, method=method), rel=1e-6)


def test_unlike_mechanisms_compose_between_their_largest_and_their_sum():
    ledger = Ledger()
    for m in (FIT, PLAIN, BOOT):
        ledger.record(m)
    total = ledger.epsilon(delta=1e-5)
    each = [epsilon_bounds(m, delta=1e-5).lower for m in (FIT, PLAIN, BOOT)]
    parts = [epsilon(m, delta=1e-5 / 3) for m in (FIT, PLAIN, BOOT)]
    assert max(each) < total < sum(parts)
    assert ledger.delta(epsilon=total) <= 1e-5 * 1.01


def test_renyi_adds_and_is_not_below_the_privacy_loss_distribution():
    by_moments, by_losses = Ledger(method="renyi"), Ledger()
    for m in (FIT, PLAIN):
        by_moments.record(m)
        by_losses.record(m)
    assert by_moments.epsilon(delta=1e-5) > by_losses.epsilon(delta=1e-5)


def test_budget_is_held_and_a_refusal_records_nothing():
    ledger = Ledger(budget=Guarantee(epsilon=1.0, delta=1e-4))
    assert ledger.remaining() == 1.0
    ledger.record(replace(FIT, steps=5000), label="first fit")
    left = ledger.remaining()
    assert 0 < left < 1
    with pytest.raises(BudgetError, match="nothing was recorded"):
        ledger.record(replace(FIT, steps=6000))
    assert len(ledger.entries) == 1
    assert ledger.remaining() == left
    ledger.record(replace(FIT, steps=4900))
    assert 0 <= ledger.remaining() < 0.05
    assert ledger.remaining(Guarantee(epsilon=3.0, delta=1e-4)) == pytest.approx(2 + ledger.remaining())


def test_refusals():
    ledger = Ledger()
    ledger.record(FIT)
    with pytest.raises(PrivacyError, match="neighbour relation"):
        ledger.record(SubsampledGaussian(sampling_rate=0.1, steps=1, adjacency="add-remove", noise_multiplier=1.0))
    with pytest.raises(DomainError):
        ledger.record(replace(FIT, noise_multiplier=None))
    with pytest.raises(DomainError):
        ledger.record("a fit")
    with pytest.raises(DomainError):
        ledger.record(FIT, label=3)
    with pytest.raises(DomainError):
        Ledger(budget=(1.0, 1e-5))
    with pytest.raises(DomainError):
        Ledger(method="renyi-series")
    with pytest.raises(DomainError):
        ledger.remaining()
    for bad in (
        {"epsilon": 0.0, "delta": 1e-5},
        {"epsilon": 1.0, "delta": 1.0},
        {"epsilon": float("nan"), "delta": 0.1},
    ):
        with pytest.raises(DomainError):
            Guarantee(**bad)
    with pytest.raises(AttributeError):
        ledger.entries = ()
    with pytest.raises(PrivacyError):
        events(BOOT, 1e-5, 20)


def test_json_round_trip():
    ledger = Ledger(budget=Guarantee(epsilon=2.0, delta=1e-5))
    for m in (FIT, PLAIN, BOOT):
        ledger.record(m, label=type(m).__name__)
    text = ledger.to_json()
    back = Ledger.from_json(text)
    assert back.to_json() == text
    assert back.entries == ledger.entries
    assert back.epsilon(delta=1e-5) == ledger.epsilon(delta=1e-5)
    data = json.loads(text)
    for spoil in (
        lambda d: d.pop("method"),
        lambda d: d.update(format="other"),
        lambda d: d.update(extra=1),
        lambda d: d["entries"][0].pop("label"),
        lambda d: d["entries"][0].update(mechanism="Laplace"),
        lambda d: d["entries"][0].update(adjacency="add-remove"),
        lambda d: d["entries"][0]["parameters"].update(noise_multiplier=float("nan")),
        lambda d: d["entries"][0]["parameters"].update(sigma=3),
    ):
        spoiled = json.loads(text)
        spoil(spoiled)
        with pytest.raises(DomainError):
            Ledger.from_dict(spoiled)
    data["budget"]["epsilon"] = 0.1  # a ledger past its budget is not taken over in silence
    with pytest.raises(BudgetError):
        Ledger.from_dict(data)
    with pytest.raises(DomainError):
        Ledger.from_json("{")


def test_replay_by_dp_accounting_comes_out_above_and_near():
    groups = [events(replace(FIT, steps=400), 1e-5, 100), events(PLAIN, 1e-5, 10)]
    ledger = Ledger()
    ledger.record(replace(FIT, steps=400))
    ledger.record(PLAIN)
    flat = ledger.replay(delta=1e-5, bins=100)
    assert len(flat) == len(groups[0]) + len(events(PLAIN, 1e-5, 100))
    json.dumps(flat)
    theirs = replay_with_dp_accounting(groups, delta=1e-5, interval=5e-4)
    ours = ledger.epsilon(delta=1e-5)
    assert ours * 0.999 < theirs < ours * 1.06


def test_curves():
    points = curve(FIT, epsilons=[0.0, 0.2, 0.5, 1.0])
    json.dumps(points)
    assert points["delta"] == sorted(points["delta"], reverse=True)
    errors = trade_off(points, alphas=[0.0, 0.1, 0.5, 1.0])
    assert errors == sorted(errors, reverse=True)
    assert all(0 <= f <= 1 - a + 1e-12 for f, a in zip(errors, [0.0, 0.1, 0.5, 1.0], strict=True))
    data = sweep(FIT, parameter="n_blocks", values=[5, 20], delta=1e-5)
    assert all(a < b for a, b in zip(data["epsilon"], data["epsilon_without_weights"], strict=True))
    with pytest.raises(DomainError):
        sweep(FIT, parameter="n", values=[10], delta=1e-5)
