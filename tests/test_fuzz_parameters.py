"""Every public call that takes parameters only, with odd values in the place of each: our error, or success.

One argument at a time is replaced; the rest are valid and cheap.  Records, posteriors and the command line have tests
of this kind of their own.
"""

import dataclasses
import math
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

from pgbb_fast import Exploration, Optimiser, PgbbError, accountant, plan, plan_epsilon
from pgbb_fast.accountant import BlockedGaussian, Guarantee, Ledger, ResampledGaussian, SubsampledGaussian
from pgbb_fast.bootstrap import BLBQuantiles, DPBootstrap, Mean, MOutOfNBootstrap

ODD = [
    None, True, False, 0, 1, -1, 2, 10**400, -(10**400), 0.0, -0.0, 1e-320, 1e-300, 1e300, -1e300, math.nan, math.inf,
    -math.inf, "", "quantile", "0.5", b"1", 1j, Decimal("0.5"), Decimal("NaN"), Fraction(1, 2), Fraction(10**400, 3),
    np.float32(0.5), np.float64(0.5), np.int8(3), np.bool_(True), np.array(0.5), np.array([0.5]), np.array([1, 2]),
    np.array([]), np.datetime64("2000-01-01"), torch.tensor(0.5), torch.tensor([1, 2]), torch.tensor(3), [], (), [0.5],
    [1, 2], (0.2, 0.8), [[1], [2, 3]], {}, {"a": 1}, set(), {0.5}, object(), object, len, range(3), iter([1, 2]),
    np.array(["2.5"]), np.ma.masked_array([1.0], [True]), lambda: None,
]  # fmt: skip
PLAIN = SubsampledGaussian(sampling_rate=1.0, steps=1, adjacency="replace-one", noise_multiplier=10.0)
RESAMPLED = ResampledGaussian(n=100, resample_size=10, replicates=5, noise_multiplier=3.0)
BUDGET = {"epsilon": 1.0, "delta": 1e-5}
BLOCKED = {
    "n": 1000, "n_blocks": 10, "sampling_rate": 0.5, "steps": 20, "minibatch": "shared", "gamma": 0.9,
    "draws_per_step": 2, "noise_multiplier": 2.0,
}  # fmt: skip
DESIGN = {
    "n": 2000, "p": 2, "delta": 1e-5, "loss": "quantile", "tau": 0.5, "levels": 1, "residual_scale": 0.1,
    "feature_sd": 0.5, "n_blocks": 10, "steps": 200, "moment_share": 0.1, "level": 0.95,
}  # fmt: skip
BOOTSTRAP = {"statistic": Mean([(0, 1)]), **BUDGET, "seed": None}
CALLS = {
    "Exploration": (Exploration, dataclasses.asdict(Exploration())),
    "Optimiser": (Optimiser, dataclasses.asdict(Optimiser())),
    "plan": (plan, {"epsilon": 1.0, **DESIGN}),
    "plan_epsilon": (plan_epsilon, {"width": 0.5, "lowest": 0.5, "highest": 2.0, "delta": 1e-5, "n": 2000, "p": 2}),
    "BlockedGaussian": (BlockedGaussian, BLOCKED),
    "SubsampledGaussian": (SubsampledGaussian, dataclasses.asdict(PLAIN)),
    "ResampledGaussian": (ResampledGaussian, dataclasses.asdict(RESAMPLED)),
    "Guarantee": (Guarantee, BUDGET),
    "Ledger": (Ledger, {"budget": Guarantee(**BUDGET)}),
    "record": (lambda entry: Ledger().record(entry), {"entry": PLAIN}),
    "gamma_star": (accountant.gamma_star, {"n": 100, "n_blocks": 10}),
    "epsilon": (accountant.epsilon, {"mechanism": PLAIN, "delta": 1e-5, "method": "pld", "conversion": None}),
    "epsilon_bounds": (accountant.epsilon_bounds, {"mechanism": PLAIN, "delta": 1e-5}),
    "delta": (accountant.delta, {"mechanism": PLAIN, "epsilon": 1.0, "method": "renyi", "conversion": "cks"}),
    "delta_bounds": (accountant.delta_bounds, {"mechanism": PLAIN, "epsilon": 1.0}),
    "noise_multiplier": (accountant.noise_multiplier, {"mechanism": PLAIN, **BUDGET}),
    "noise_multiplier_bounds": (accountant.noise_multiplier_bounds, {"mechanism": PLAIN, **BUDGET}),
    "steps": (accountant.steps, {"mechanism": PLAIN, **BUDGET}),
    "log_moment": (accountant.log_moment, {"mechanism": PLAIN, "order": 3, "method": "renyi"}),
    "deterministic": (accountant.deterministic, {"mechanism": BlockedGaussian(**BLOCKED)}),
    "asymptotic_mu": (accountant.asymptotic_mu, {"mechanism": RESAMPLED}),
    "asymptotic_delta": (accountant.asymptotic_delta, {"mechanism": RESAMPLED, "epsilon": 1.0}),
    "Mean": (Mean, {"x_bounds": [(0, 1)]}),
    "MOutOfNBootstrap": (MOutOfNBootstrap, BOOTSTRAP),
    "DPBootstrap": (DPBootstrap, BOOTSTRAP),
    "BLBQuantiles": (BLBQuantiles, BOOTSTRAP),
}
SLOW = ("plan", "noise_multiplier_bounds")
CASES = [
    pytest.param(name, argument, marks=[pytest.mark.slow] if name in SLOW else [])
    for name, (_, valid) in CALLS.items()
    for argument in valid
]


@pytest.mark.parametrize("name", CALLS)
def test_the_valid_call_succeeds(name):
    call, valid = CALLS[name]
    call(**valid)


@pytest.mark.parametrize(("name", "argument"), CASES)
def test_odd_values_get_our_error_or_success(name, argument):
    call, valid = CALLS[name]
    for odd in ODD:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                call(**{**valid, argument: odd})
            except PgbbError as error:
                text = str(error)
                assert "\n" not in text
                assert "object at 0x" not in text
                assert "array(" not in text
