"""Groups of records, zCDP and GDP, against closed forms and mpmath."""

import math
from dataclasses import replace

import pytest
from mpmath import mp, mpf

from pgbb_fast.accountant import (
    BlockedGaussian,
    DiscreteGaussian,
    LaplaceMechanism,
    Ledger,
    ResampledGaussian,
    SubsampledGaussian,
    for_group,
    group_delta,
    group_epsilon,
    to_gdp,
    to_zcdp,
    with_adjacency,
)
from pgbb_fast.errors import DomainError, PrivacyError
from tests.problems import gaussian_delta

PLAIN = SubsampledGaussian(sampling_rate=1.0, steps=4, adjacency="add-remove", noise_multiplier=6.0)
SAMPLED = replace(PLAIN, sampling_rate=0.1)
LAPLACE = LaplaceMechanism(scale_over_sensitivity=6.0, steps=1, adjacency="add-remove")
DISCRETE = DiscreteGaussian(sigma=4.0, sensitivity=3, steps=2, adjacency="replace-one")
BLOCKED = BlockedGaussian(
    n=1000, n_blocks=10, sampling_rate=0.1, steps=5, minibatch="shared", draws_per_step=4, noise_multiplier=8.0
)
BOOT = ResampledGaussian(n=1000, resample_size=20, replicates=5, noise_multiplier=6.0)


@pytest.mark.parametrize(("adjacency", "apart"), [("add-remove", 1.0), ("replace-one", 2.0)])
def test_a_group_of_gaussians_is_one_longer_shift(adjacency, apart):
    plain = replace(PLAIN, adjacency=adjacency)
    mu = 3 * apart * 2 / 6.0  # three records, two sqrt(steps)
    truth = gaussian_delta(mu, 1.5)
    assert truth * (1 - 1e-12) <= group_delta(plain, size=3, epsilon=1.5) <= truth * 1.003
    found = group_epsilon(plain, size=3, delta=1e-5)
    assert gaussian_delta(mu, found) <= 1e-5 * (1 + 1e-9)
    assert gaussian_delta(mu, found * 0.999) > 1e-5


def test_a_group_under_laplace_noise_and_the_discrete_gaussian():
    # one release: 1 - e^((eps - k/b) / 2)
    truth = -math.expm1((0.2 - 3 / 6.0) / 2)
    assert truth * (1 - 1e-12) <= group_delta(LAPLACE, size=3, epsilon=0.2) <= truth * 1.002
    assert group_delta(LAPLACE, size=3, epsilon=0.5001) == 0.0
    one = replace(DISCRETE, steps=1)
    with mp.workdps(30):
        z = mp.fsum(mp.exp(-(mpf(x) ** 2) / 32) for x in range(-200, 201))
        p = {x: mp.exp(-(mpf(x) ** 2) / 32) / z for x in range(-200, 201)}
        truth = float(mp.fsum(max(p[x] - mp.exp(1) * p.get(x - 6, mpf(0)), mpf(0)) for x in p))
    assert truth * (1 - 1e-12) <= group_delta(one, size=2, epsilon=1.0) <= truth * 1.005


def test_the_generic_bound_is_the_chain_of_inequalities_and_above_the_exact_one():
    one = gaussian_delta(2 / 6.0, 0.5)
    chained = one * (1 + math.exp(0.5) + math.exp(1.0))
    found = group_delta(PLAIN, size=3, epsilon=1.5, bound="generic")
    assert chained * (1 - 1e-12) <= found <= chained * 1.003
    assert found > group_delta(PLAIN, size=3, epsilon=1.5)
    found = group_epsilon(PLAIN, size=3, delta=1e-5, bound="generic")
    assert found > group_epsilon(PLAIN, size=3, delta=1e-5)

    def at(epsilon):
        return gaussian_delta(2 / 6.0, epsilon / 3) * (1 + math.exp(epsilon / 3) + math.exp(2 * epsilon / 3))

    assert at(found) <= 1e-5 * (1 + 1e-9)
    assert at(found * 0.999) > 1e-5
    assert group_delta(SAMPLED, size=2, epsilon=1.0, bound="generic") < group_delta(
        PLAIN, size=2, epsilon=1.0, bound="generic"
    )
    assert group_delta(PLAIN, size=1, epsilon=0.5, bound="generic") <= one * 1.003
    assert group_delta(PLAIN, size=10**6, epsilon=5.0, bound="generic") == 1.0
    # delta(100) underflows, and e^(100 (k - 1)) overflows: nothing is claimed
    assert group_delta(PLAIN, size=50, epsilon=5000.0, bound="generic") == 1.0
    assert group_delta(LAPLACE, size=3, epsilon=0.6, bound="generic") == 0.0


def test_what_has_no_exact_group_bound_is_refused():
    for event in (SAMPLED, BLOCKED, BOOT):
        with pytest.raises(PrivacyError, match="generic"):
            for_group(event, size=2)
        assert for_group(event, size=1) == event
        with pytest.raises(PrivacyError, match="generic"):
            group_epsilon(event, size=2, delta=1e-5)
    for size in (0, 1.0, True, -2):
        with pytest.raises(DomainError):
            group_delta(PLAIN, size=size, epsilon=1.0, bound="generic")
    with pytest.raises(DomainError):
        for_group(LAPLACE, size=10_000)
    with pytest.raises(DomainError):
        group_delta(PLAIN, size=2, epsilon=1.0, bound="loose")
    with pytest.raises(DomainError):
        group_epsilon("a release", size=2, delta=1e-5, bound="generic")
    with pytest.raises(PrivacyError):  # shifts of 10,000 standard deviations
        group_epsilon(replace(PLAIN, noise_multiplier=1e-4), size=50, delta=1e-5, bound="generic")


@pytest.mark.parametrize(("adjacency", "apart"), [("add-remove", 1), ("replace-one", 2)])
def test_plain_gaussians_in_both_definitions(adjacency, apart):
    event = replace(PLAIN, steps=1, noise_multiplier=1.5, adjacency=adjacency)
    rho = to_zcdp(event)
    assert rho.adjacency == adjacency
    with mp.workdps(30):
        m = apart / mpf("1.5")
        for order in (mpf("1.01"), mpf(2), mpf(9)):
            value = mp.quad(
                lambda x, a=order, m=m: mp.npdf(x, m) ** a * mp.npdf(x) ** (1 - a), [-mp.inf, order * m, mp.inf]
            )
            divergence = mp.log(value) / (order - 1)
            assert divergence <= rho.rho * order
            assert divergence >= rho.rho * order * (1 - mpf(10) ** -12)
    mu = to_gdp(event).mu
    assert float(m) <= mu <= float(m) * (1 + 1e-12)


def test_laplace_and_discrete_gaussian_are_concentrated():
    with mp.workdps(30):
        for scale in (mpf("0.2"), mpf(1), mpf(20)):
            rho = to_zcdp(replace(LAPLACE, scale_over_sensitivity=float(scale))).rho
            for order in (mpf("1.0001"), mpf(2), mpf(30)):
                # Mironov 2017, table II
                e = 1 / mpf(float(scale))
                moment = order / (2 * order - 1) * mp.exp((order - 1) * e)
                moment += (order - 1) / (2 * order - 1) * mp.exp(-order * e)
                assert mp.log(moment) / (order - 1) <= rho * order
        assert to_zcdp(replace(LAPLACE, scale_over_sensitivity=20.0)).rho == pytest.approx(1 / 800, rel=1e-12)
        rho = to_zcdp(replace(DISCRETE, steps=1)).rho
        z = mp.fsum(mp.exp(-(mpf(x) ** 2) / 32) for x in range(-400, 401))
        for order in (2, 7):
            total = mp.fsum(
                mp.exp((-order * mpf(x) ** 2 + (order - 1) * mpf(x - 3) ** 2) / 32) for x in range(-400, 401)
            )
            divergence = mp.log(total / z) / (order - 1)
            assert rho * order * (1 - mpf(10) ** -9) <= divergence <= rho * order


def test_ledgers_add_up_and_labels_stay():
    ledger = Ledger()
    for event in (PLAIN, replace(PLAIN, steps=1, noise_multiplier=2.0)):
        ledger.record(event)
    assert to_gdp(ledger).mu == pytest.approx(math.sqrt(4 / 36 + 1 / 4), rel=1e-12)
    assert to_zcdp(ledger).rho == pytest.approx((4 / 36 + 1 / 4) / 2, rel=1e-12)
    ledger.record(LAPLACE)
    assert to_zcdp(ledger).rho == pytest.approx((4 / 36 + 1 / 4) / 2 + 1 / 72, rel=1e-12)
    with pytest.raises(PrivacyError, match="zCDP"):
        to_gdp(ledger)
    unsampled = to_gdp(SAMPLED, bound="unsampled")
    assert (unsampled.bound, to_gdp(PLAIN).bound) == ("unsampled", "exact")
    assert unsampled.mu == to_gdp(PLAIN).mu
    # five steps of four draws, each of distance 2 / 8 at weight 1
    assert to_gdp(BLOCKED, bound="unsampled").mu == pytest.approx(math.sqrt(5 * 4) * 2 / 8, rel=1e-12)
    assert to_zcdp(BLOCKED, bound="unsampled").rho == pytest.approx(5 * 4 * (2 / 8) ** 2 / 2, rel=1e-12)


def test_exports_refuse_what_they_cannot_say():
    for export in (to_zcdp, to_gdp):
        for event in (SAMPLED, BLOCKED, BOOT):
            with pytest.raises(PrivacyError):
                export(event)
        with pytest.raises(PrivacyError):
            export(BOOT, bound="unsampled")
        with pytest.raises(DomainError):
            export(Ledger())
        with pytest.raises(DomainError):
            export(3.0)
        with pytest.raises(DomainError):
            export(PLAIN, bound="asymptotic")
        with pytest.raises(DomainError):
            export(replace(PLAIN, noise_multiplier=None))
    with pytest.raises(PrivacyError):
        to_gdp(DISCRETE)


def test_the_same_release_under_the_other_relation():
    assert to_gdp(with_adjacency(PLAIN, "replace-one")).mu == pytest.approx(2 * 2 / 6.0, rel=1e-12)
    assert with_adjacency(with_adjacency(SAMPLED, "replace-one"), "add-remove") == SAMPLED
    moved = Ledger()
    moved.record(with_adjacency(LAPLACE, "replace-one"))
    truth = -math.expm1((0.2 - 2 / 6.0) / 2)  # twice the shift
    assert truth * (1 - 1e-12) <= moved.delta(epsilon=0.2) <= truth * 1.002
    counted = with_adjacency(replace(DISCRETE, adjacency="add-remove"), "replace-one")
    assert (counted.sensitivity, counted.adjacency) == (6, "replace-one")
    for event in (BLOCKED, BOOT, DISCRETE, replace(LAPLACE, adjacency="replace-one")):
        assert with_adjacency(event, "replace-one") == event
        with pytest.raises(PrivacyError):
            with_adjacency(event, "add-remove")
    for bad in (("a release", "add-remove"), (PLAIN, "zero-out"), (PLAIN, None)):
        with pytest.raises(DomainError):
            with_adjacency(*bad)
