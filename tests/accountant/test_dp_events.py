"""dp-accounting's events in and out; its own accountant is the independent truth."""

import sys
from dataclasses import replace

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant

from pgbb_fast.accountant import (
    BlockedGaussian,
    DiscreteGaussian,
    LaplaceMechanism,
    ResampledGaussian,
    SubsampledGaussian,
    from_dp_accounting,
    to_dp_accounting,
)
from pgbb_fast.errors import DomainError, MissingExtraError, PrivacyError
from tests.problems import ledger_of

RELATIONS = {
    "add-remove": dp.NeighboringRelation.ADD_OR_REMOVE_ONE,
    "replace-one": dp.NeighboringRelation.REPLACE_ONE,
}
GAUSS = dp.GaussianDpEvent(3.0)
SAMPLED = dp.PoissonSampledDpEvent(0.1, GAUSS)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_both_accountants_agree_on_what_went_across(adjacency):
    event = dp.ComposedDpEvent([GAUSS, dp.SelfComposedDpEvent(SAMPLED, 30), dp.NoOpDpEvent()])
    imported = from_dp_accounting(event, adjacency=adjacency)
    assert [m.steps for m in imported] == [1, 30]
    ledger = ledger_of(*imported)
    theirs = PLDAccountant(RELATIONS[adjacency]).compose(event).get_epsilon(1e-5)
    ours = ledger.epsilon(delta=1e-5)
    assert theirs * 0.999 < ours < theirs * 1.001
    back = PLDAccountant(RELATIONS[adjacency]).compose(to_dp_accounting(ledger)).get_epsilon(1e-5)
    assert back == pytest.approx(theirs, rel=1e-9)


def test_laplace_noise_is_over_the_sensitivity_here_and_over_one_record_there():
    event = dp.LaplaceDpEvent(3.0)
    (one,) = from_dp_accounting(event, adjacency="add-remove")
    theirs = PLDAccountant(RELATIONS["add-remove"]).compose(event).get_epsilon(1e-9)
    assert ledger_of(*[one]).epsilon(delta=1e-9) == pytest.approx(theirs, abs=1e-4)  # their interval
    for scale in (3.0, np.float32(3.0), 3):
        (one,) = from_dp_accounting(dp.LaplaceDpEvent(scale), adjacency="replace-one")
        assert one.scale_over_sensitivity == 1.5  # contributions of size C lie 2 C apart


@pytest.mark.parametrize(
    "mechanism",
    [
        SubsampledGaussian(sampling_rate=1.0, steps=1, adjacency="replace-one", noise_multiplier=2.0),
        SubsampledGaussian(sampling_rate=0.3, steps=7, adjacency="add-remove", noise_multiplier=0.7),
        LaplaceMechanism(scale_over_sensitivity=2.3, steps=1, adjacency="add-remove"),
        LaplaceMechanism(scale_over_sensitivity=2.3, steps=4, adjacency="replace-one"),
    ],
)
def test_round_trips(mechanism):
    assert from_dp_accounting(to_dp_accounting(mechanism), adjacency=mechanism.adjacency) == (mechanism,)
    nested = dp.SelfComposedDpEvent(dp.SelfComposedDpEvent(to_dp_accounting(mechanism), 3), 2)
    (found,) = from_dp_accounting(nested, adjacency=mechanism.adjacency)
    assert found == replace(mechanism, steps=6 * mechanism.steps)


def test_what_either_cannot_say_is_refused():
    blocked = BlockedGaussian(n=1000, n_blocks=10, sampling_rate=0.1, steps=5, minibatch="shared", noise_multiplier=8.0)
    boot = ResampledGaussian(n=1000, resample_size=20, replicates=5, noise_multiplier=6.0)
    discrete = DiscreteGaussian(sigma=4.0, sensitivity=3, steps=1, adjacency="replace-one")
    for mechanism in (blocked, boot, discrete, ledger_of(*[blocked])):
        with pytest.raises(PrivacyError, match="no event"):
            to_dp_accounting(mechanism)
    with pytest.raises(DomainError):
        to_dp_accounting(SubsampledGaussian(sampling_rate=1.0, steps=1, adjacency="add-remove"))
    with pytest.raises(DomainError):
        to_dp_accounting(3.0)
    deep = GAUSS
    for _ in range(60):
        deep = dp.ComposedDpEvent([deep])
    for event in (
        dp.NonPrivateDpEvent(),
        dp.UnsupportedDpEvent(),
        dp.PoissonSampledDpEvent(0.1, dp.SelfComposedDpEvent(GAUSS, 2)),
        dp.PoissonSampledDpEvent(0.1, dp.LaplaceDpEvent(1.0)),
        dp.PoissonSampledDpEvent(0.1, SAMPLED),
        dp.SampledWithoutReplacementDpEvent(100, 10, GAUSS),
        dp.ComposedDpEvent([GAUSS, dp.NonPrivateDpEvent()]),
        dp.RandomizedResponseDpEvent(0.5, 4),
        deep,
    ):
        with pytest.raises(PrivacyError):
            from_dp_accounting(event, adjacency="add-remove")
    for event in (
        "an event",
        dp.GaussianDpEvent(0.0),
        dp.GaussianDpEvent(float("nan")),
        dp.GaussianDpEvent(None),
        dp.LaplaceDpEvent("3"),
        dp.PoissonSampledDpEvent(0.0, GAUSS),
        dp.PoissonSampledDpEvent(1.2, GAUSS),
        dp.SelfComposedDpEvent(GAUSS, 0),
        dp.SelfComposedDpEvent(GAUSS, 2.5),
    ):
        with pytest.raises(DomainError):
            from_dp_accounting(event, adjacency="add-remove")
    with pytest.raises(DomainError):
        from_dp_accounting(GAUSS, adjacency="zero-out")


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(MissingExtraError, match="dp-accounting"):
        from_dp_accounting(GAUSS, adjacency="add-remove")
