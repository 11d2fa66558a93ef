"""Laplace and discrete Gaussian releases in a ledger, against closed forms and convolutions done here."""

import math

import numpy as np
import pytest
from mpmath import mp, mpf

from pgbb_fast.accountant import (
    DiscreteGaussian,
    Guarantee,
    LaplaceMechanism,
    Ledger,
    ResampledGaussian,
    SubsampledGaussian,
)
from pgbb_fast.errors import BudgetError, DomainError, PrivacyError
from tests.problems import ledger_of

LAPLACE = LaplaceMechanism(scale_over_sensitivity=2.0, steps=1, adjacency="add-remove")
DISCRETE = DiscreteGaussian(sigma=4.0, sensitivity=3, steps=1, adjacency="replace-one")


@pytest.mark.parametrize("scale", [0.3, 2.0, 40.0])
def test_one_laplace_release_has_the_known_curve(scale):
    # delta(eps) = 1 - e^((eps - 1/b) / 2) up to eps = 1/b, 0 beyond (Balle, Barthe and Gaboardi 2018, theorem 3)
    ledger = ledger_of(LaplaceMechanism(scale_over_sensitivity=scale, steps=1, adjacency="replace-one"))
    for share in (0.0, 0.3, 0.9, 0.999):
        truth = -math.expm1((share - 1) / scale / 2)
        assert truth * (1 - 1e-12) <= ledger.delta(epsilon=share / scale) <= truth * 1.002 + 1e-15
    assert ledger.delta(epsilon=1.0001 / scale) == 0.0
    assert 1 / scale * (1 - 1e-5) <= ledger.epsilon(delta=1e-9) <= 1 / scale * (1 + 1e-12)


def laplace_delta(scale, steps, epsilon, points):
    """delta of ``steps`` releases, by convolving the continuous part at ``points`` midpoints (second order)."""
    top = 1 / scale
    width = 2 * top / points
    x = -top + width * (np.arange(points) + 0.5)
    smooth = 0.5 * (np.exp(-(top - x - width / 2) / 2) - np.exp(-(top - x + width / 2) / 2))
    total = 0.0
    for k in range(steps + 1):  # continuous ones
        part = np.ones(1)
        for _ in range(k):
            part = np.convolve(part, smooth)
        base = k * (-top + width / 2) + width * np.arange(len(part))
        for up in range(steps - k + 1):
            down = steps - k - up
            weight = math.comb(steps, k) * math.comb(steps - k, up) * 0.5**up * (0.5 * math.exp(-top)) ** down
            loss = base + (up - down) * top
            total += weight * float((part * np.maximum(-np.expm1(epsilon - loss), 0.0)).sum())
    return total


def test_composed_laplace_releases_meet_a_convolution():
    ledger = ledger_of(LaplaceMechanism(scale_over_sensitivity=2.0, steps=4, adjacency="replace-one"))
    for epsilon in (0.31, 1.03, 1.71):
        truth = laplace_delta(2.0, 4, epsilon, 4000)
        assert truth * (1 - 1e-5) <= ledger.delta(epsilon=epsilon) <= truth * 1.002


def discrete_delta(sigma, shift, steps, epsilon):
    """By enumeration in 30 digits: ``steps`` losses are Delta (steps Delta - 2 sum x) / (2 sigma^2)."""
    with mp.workdps(30):
        reach = int(14 * sigma) + 2
        pmf = np.array([mp.exp(-mpf(x) ** 2 / (2 * mpf(sigma) ** 2)) for x in range(-reach, reach + 1)], dtype=object)
        pmf = pmf / pmf.sum()
        law = pmf
        for _ in range(steps - 1):
            law = np.convolve(law, pmf)
        total = mpf(0)
        for index, mass in enumerate(law):
            loss = mpf(shift) * (steps * shift - 2 * (index - steps * reach)) / (2 * mpf(sigma) ** 2)
            if loss > epsilon:
                total += mass * (1 - mp.exp(epsilon - loss))
        return float(total)


@pytest.mark.parametrize(("sigma", "shift", "steps"), [(0.7, 1, 1), (4.0, 3, 1), (4.0, 4, 2), (2.5, 1, 3), (0.4, 2, 1)])
def test_discrete_gaussian_meets_enumeration(sigma, shift, steps):
    ledger = ledger_of(DiscreteGaussian(sigma=sigma, sensitivity=shift, steps=steps, adjacency="add-remove"))
    for epsilon in (0.2, 1.0, 2.5):
        truth = discrete_delta(sigma, shift, steps, epsilon)
        assert truth * (1 - 1e-12) <= ledger.delta(epsilon=epsilon) <= truth * 1.005 + 1e-30


def test_a_fine_grid_is_the_gaussian():
    # delta of a Gaussian (Balle and Wang 2018, theorem 8), which a grid of sigma / 1000 meets
    from scipy.stats import norm

    ledger = ledger_of(DiscreteGaussian(sigma=2000.0, sensitivity=1000, steps=4, adjacency="add-remove"))
    mu = 2 * 0.5
    truth = norm.cdf(mu / 2 - 1.5 / mu) - math.exp(1.5) * norm.cdf(-mu / 2 - 1.5 / mu)
    assert ledger.delta(epsilon=1.5) == pytest.approx(truth, rel=2e-3)


def test_moments_are_those_of_the_laws():
    from pgbb_fast.accountant.events import event_moment

    with mp.workdps(30):
        for order in (2, 5, 40):
            b = mpf(2)
            # E_Q (P/Q)^order, P = Lap(0, 2), Q = Lap(1, 2), by quadrature
            value = mp.quad(
                lambda x, a=order, b=b: mp.exp(-a * abs(x) / b + (a - 1) * abs(x - 1) / b) / (2 * b),
                [-mp.inf, 0, 1, mp.inf],
            )
            exact = mp.log(value)
            assert exact <= event_moment(LAPLACE, order) <= exact * (1 + mpf(10) ** -13) + mpf(10) ** -13
            s, d = mpf(4), 3
            xs = range(-2000, 2001)
            z = mp.fsum(mp.exp(-mpf(x) ** 2 / (2 * s * s)) for x in xs)
            m = mp.fsum(mp.exp((-order * mpf(x) ** 2 + (order - 1) * mpf(x - d) ** 2) / (2 * s * s)) for x in xs) / z
            found = event_moment(DISCRETE, order)
            assert mp.log(m) * (1 - mpf(10) ** -12) <= found <= mp.log(m) * (1 + mpf(10) ** -9)


def test_they_compose_with_the_others_and_stay_within_the_sum():
    boot = ResampledGaussian(n=1000, resample_size=20, replicates=50, noise_multiplier=6.0)
    laplace = LaplaceMechanism(scale_over_sensitivity=2.0, steps=1, adjacency="replace-one")
    total = ledger_of(boot, laplace, DISCRETE).epsilon(delta=1e-5)
    each = [ledger_of(m).epsilon(delta=1e-5 / 3) for m in (boot, laplace, DISCRETE)]
    assert max(ledger_of(m).epsilon(delta=1e-5) for m in (boot, laplace, DISCRETE)) < total < sum(each)
    by_moments = ledger_of(laplace, DISCRETE, method="renyi").epsilon(delta=1e-5)
    assert by_moments > ledger_of(laplace, DISCRETE).epsilon(delta=1e-5)


def test_budget_file_and_refusals():
    ledger = ledger_of(LAPLACE, budget=Guarantee(epsilon=0.8, delta=1e-6))
    with pytest.raises(BudgetError):
        ledger.record(LAPLACE)
    again = Ledger.from_json(ledger.to_json())
    assert again.entries == ledger.entries
    mixed = ledger_of(DISCRETE)
    assert Ledger.from_json(mixed.to_json()).entries == mixed.entries
    with pytest.raises(PrivacyError, match="neighbour relation"):
        mixed.record(LAPLACE)
    with pytest.raises(PrivacyError, match="mixture"):
        mixed.replay(delta=1e-5)
    for bad in ({"sigma": 0.0}, {"sigma": math.nan}, {"sensitivity": 1.5}, {"sensitivity": 900}, {"steps": 0}):
        with pytest.raises(DomainError):
            DiscreteGaussian(**({"sigma": 4.0, "sensitivity": 3, "steps": 1, "adjacency": "add-remove"} | bad))
    for bad in ({"scale_over_sensitivity": math.inf}, {"steps": True}, {"adjacency": "both"}):
        with pytest.raises(DomainError):
            LaplaceMechanism(**({"scale_over_sensitivity": 1.0, "steps": 1, "adjacency": "add-remove"} | bad))
    with pytest.raises(DomainError):
        mixed.record(SubsampledGaussian(sampling_rate=1.0, steps=1, adjacency="replace-one"))


@pytest.mark.parametrize(("scale", "steps"), [(0.002, 1), (0.002, 3), (0.02, 2)])
@pytest.mark.parametrize("small", [1e-9, 1e-12])
def test_all_but_the_largest_loss_is_never_claimed(scale, steps, small):
    # every release loses 1/b with probability 1/2: delta(eps) >= 2^-T (1 - e^(eps - T/b))
    ledger = ledger_of(LaplaceMechanism(scale_over_sensitivity=scale, steps=steps, adjacency="add-remove"))
    found = ledger.epsilon(delta=small)
    assert 2.0**-steps * -math.expm1(min(0.0, found - steps / scale)) <= small * (1 + 1e-3)
    assert found <= steps / scale * (1 + 1e-3)
