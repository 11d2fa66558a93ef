"""Wrong use is impossible or loud."""

import math
import subprocess
import sys

import pytest

import pgbb_fast.accountant as accountant
from pgbb_fast.accountant import (
    BlockedGaussian,
    ResampledGaussian,
    SubsampledGaussian,
    asymptotic_mu,
    delta,
    deterministic,
    epsilon,
    epsilon_bounds,
    gamma_star,
    log_moment,
    noise_multiplier,
    steps,
)
from pgbb_fast.errors import DomainError, PgbbError, PrivacyError

GOOD = {
    "n": 1000,
    "n_blocks": 10,
    "sampling_rate": 0.1,
    "steps": 10,
    "minibatch": "independent",
    "noise_multiplier": 2.0,
}
NAN = float("nan")


def blocked(**changes):
    return BlockedGaussian(**(GOOD | changes))


@pytest.mark.parametrize(
    "change",
    [
        {"n": 2},
        {"n": 1000.0},
        {"n": True},
        {"n": "1000"},
        {"n_blocks": 2},
        {"n_blocks": 1001},
        {"n_blocks": NAN},
        {"sampling_rate": 0.0},
        {"sampling_rate": 1.0001},
        {"sampling_rate": NAN},
        {"sampling_rate": -0.1},
        {"sampling_rate": 0.1 + 0j},
        {"steps": 0},
        {"steps": 1.5},
        {"draws_per_step": 0},
        {"gamma": 0.0},
        {"gamma": NAN},
        {"gamma": math.inf},
        {"noise_multiplier": 0.0},
        {"noise_multiplier": NAN},
        {"noise_multiplier": -1.0},
        {"noise_multiplier": math.inf},
        {"minibatch": "both"},
        {"minibatch": None},
    ],
)
def test_blocked_gaussian_refuses(change):
    with pytest.raises(DomainError) as caught:
        blocked(**change)
    assert "BlockedGaussian" in str(caught.value)
    assert next(iter(change)) in str(caught.value)


def test_descriptions_are_keyword_only_frozen_and_complete():
    with pytest.raises(TypeError):
        BlockedGaussian(1000, 10, 0.1, 10, "independent")
    with pytest.raises(TypeError):  # no default for what the guarantee depends on
        BlockedGaussian(n=1000, n_blocks=10, sampling_rate=0.1, steps=10)
    with pytest.raises(TypeError):
        SubsampledGaussian(sampling_rate=0.1, steps=10, noise_multiplier=1.0)
    with pytest.raises(DomainError, match="adjacency"):
        SubsampledGaussian(sampling_rate=0.1, steps=10, noise_multiplier=1.0, adjacency="replace")
    with pytest.raises(AttributeError):
        blocked().steps = 3


@pytest.mark.parametrize("bad", [0.0, 1.0, -1e-9, NAN, math.inf, "1e-5", None, True])
def test_delta_out_of_range(bad):
    for call in (
        lambda: epsilon(blocked(), delta=bad),
        lambda: epsilon_bounds(blocked(), delta=bad),
        lambda: noise_multiplier(blocked(), epsilon=1.0, delta=bad),
        lambda: steps(blocked(), epsilon=1.0, delta=bad),
    ):
        with pytest.raises(DomainError, match="delta"):
            call()


@pytest.mark.parametrize("bad", [-1e-9, NAN, math.inf, "1", None, True])
def test_epsilon_out_of_range(bad):
    for call in (
        lambda: delta(blocked(), epsilon=bad),
        lambda: noise_multiplier(blocked(), epsilon=bad, delta=1e-5),
        lambda: steps(blocked(), epsilon=bad, delta=1e-5),
    ):
        with pytest.raises(DomainError, match="epsilon"):
            call()
    for none in (0.0, 1e5, 1e6):
        with pytest.raises(DomainError, match="epsilon"):
            noise_multiplier(blocked(), epsilon=none, delta=1e-5)


def test_mix_ups_of_positional_numbers():
    with pytest.raises(TypeError):
        epsilon(blocked(), 1e-5)
    with pytest.raises(TypeError):
        noise_multiplier(blocked(), 1.0, 1e-5)
    with pytest.raises(DomainError, match="describe the mechanism"):
        epsilon(2.5, delta=1e-5)
    with pytest.raises(DomainError, match="noise_multiplier is None"):
        epsilon(blocked(noise_multiplier=None), delta=1e-5)


def test_orders_methods_and_conversions():
    for order in (1, 0, -3, 1.5, NAN, True):
        with pytest.raises(DomainError, match="order"):
            log_moment(blocked(), order=order)
    with pytest.raises(DomainError, match="method"):
        epsilon(blocked(), delta=1e-5, method="rdp")
    with pytest.raises(DomainError, match="conversion"):
        epsilon(blocked(), delta=1e-5, method="renyi", conversion="improved")
    with pytest.raises(DomainError, match="Renyi methods"):
        epsilon(blocked(), delta=1e-5, method="pld", conversion="cks")
    with pytest.raises(PrivacyError):
        log_moment(blocked(), order=2, method="pld")


def test_methods_without_a_proof_are_refused():
    shared = blocked(minibatch="shared", draws_per_step=4)
    with pytest.raises(PrivacyError, match="shared"):
        epsilon(shared, delta=1e-5, method="renyi-series")
    assert epsilon(shared, delta=1e-5, method="renyi") > 0
    one = blocked(minibatch="shared", draws_per_step=1)
    assert epsilon(one, delta=1e-5, method="renyi-series") == epsilon(blocked(), delta=1e-5, method="renyi-series")
    resampled = ResampledGaussian(n=100, resample_size=10, replicates=5, noise_multiplier=1.0)
    with pytest.raises(PrivacyError, match="not proved"):
        epsilon(resampled, delta=1e-5, method="renyi")
    plain = SubsampledGaussian(sampling_rate=0.1, steps=5, adjacency="add-remove", noise_multiplier=1.0)
    with pytest.raises(PrivacyError, match="replace-one"):
        epsilon(plain, delta=1e-5, method="renyi-series")
    with pytest.raises(DomainError):
        deterministic(plain)
    with pytest.raises(DomainError):
        asymptotic_mu(blocked())


def test_gamma_star_refuses():
    for n, s in ((10, 2), (2, 3), (3, 4), (10.0, 3), (NAN, 3), (10, True)):
        with pytest.raises(DomainError, match="gamma_star"):
            gamma_star(n=n, n_blocks=s)
    with pytest.raises(TypeError):
        gamma_star(10, 3)


def test_not_even_one_step_fits():
    with pytest.raises(PrivacyError, match="not even one step"):
        steps(blocked(noise_multiplier=0.05), epsilon=0.1, delta=1e-9)


def test_the_central_limit_is_never_reached_by_a_plain_name():
    limits = [name for name in accountant.__all__ if "asymptotic" in name]
    assert sorted(limits) == ["asymptotic_delta", "asymptotic_mu", "asymptotic_noise_multiplier"]
    few = ResampledGaussian(n=1000, resample_size=10, replicates=1000, noise_multiplier=1 / 3.155)
    assert delta(few, epsilon=1.0) > 7 * accountant.asymptotic_delta(few, epsilon=1.0)


def test_exports_exist_and_errors_are_of_the_package():
    for name in accountant.__all__:
        assert hasattr(accountant, name)
    assert issubclass(DomainError, PgbbError)


def test_import_is_light():
    code = (
        "import sys, pgbb_fast.accountant as a;"
        "heavy = {'numba', 'torch', 'scipy', 'mpmath', 'matplotlib'} & set(sys.modules);"
        "assert not heavy, heavy;"
        "m = a.BlockedGaussian(n=100, n_blocks=5, sampling_rate=.1, steps=2, minibatch='independent',"
        "noise_multiplier=2.);"
        "a.epsilon(m, delta=1e-5); assert not {'numba', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 2**60},
        {"draws_per_step": 2**60},
        {"n": 10**400},
        {"gamma": 1e-320},
        {"gamma": 1e308},
        {"noise_multiplier": 1e-320},
        {"noise_multiplier": 1e308},
    ],
)
def test_numbers_beyond_what_double_precision_can_account_are_refused(change):
    run = {"n": 100, "n_blocks": 5, "sampling_rate": 0.05, "steps": 5, "minibatch": "shared", "noise_multiplier": 1.0}
    with pytest.raises(DomainError, match=next(iter(change))):
        BlockedGaussian(**{**run, **change})
    for budget, word in (({"epsilon": 1e-320, "delta": 1e-3}, "epsilon"), ({"epsilon": 1.0, "delta": 1e-320}, "delta")):
        with pytest.raises(DomainError, match=word):
            noise_multiplier(BlockedGaussian(**run), **budget)
    with pytest.raises(DomainError, match="delta"):
        epsilon(BlockedGaussian(**run), delta=1e-320)
