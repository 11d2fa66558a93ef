"""Canary audits of the flagship: an empirical lower bound of epsilon from what PrivateQuantileRegressor releases.

Synthetic data only.  All records but the canary lie in the middle of the bounds, where the median's slope is zero; the
canary has the largest gradient there is, in one direction or the other.  The adversary sees every release and the
public weights, and uses the exact likelihood ratio.  Half of the runs choose the threshold, the other half give the
bound: Clopper-Pearson limits at 1 - 1e-4 each, so that a sound mechanism fails one of these tests with probability at
most 2e-4, were the seeds not fixed.  bench/canary_audit.py is the same with many more runs.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from pgbb_fast import PrivateQuantileRegressor
from pgbb_fast.estimators import base
from pgbb_fast.release.blocked import Keys, release_step
from pgbb_fast.release.blocks import dirichlet
from tests.auditing import lower_bound

CLAIM, DELTA, N, S = 2.0, 0.01, 12, 3


class BuiltError(Exception):
    """Ends a fit once its problem is there."""


def problem(monkeypatch, canary, steps, rate, epsilon=CLAIM):
    """What ``fit`` would spend its budget on, with the canary as the first record."""
    kept = []

    def keep(kind, found, *rest, **common):
        kept.append(found)
        raise BuiltError

    with monkeypatch.context() as patch:
        patch.setattr(base, "number_of_segments", lambda *a, **k: 1)    # an audit of one step is no fit
        patch.setattr(base, "fit_posterior", keep)
        model = PrivateQuantileRegressor(
            epsilon=epsilon, delta=DELTA, x_bounds=[(-1, 1)], y_bounds=(-1, 1), n_blocks=S, steps=steps,
            sampling_rate=rate, moment_share=0.0, seed=3,
        )  # fmt: skip
        x, y = np.zeros((N, 1)), np.zeros(N)
        x[0], y[0] = 1.0, canary
        with pytest.raises(BuiltError):
            model.fit(x, y)
    return kept[0]


def log_ratios(found, side, steps, runs):
    """log dP_1 / dP_-1 of each run: the canary shifts a step, in noise standard deviations, by its block's weight over
    the noise multiplier, if it is drawn; along (1, 1) / sqrt(2), downwards for y = 1.  A run has places of its own in
    the random stream, which are as good as a key of its own."""
    keys, block = Keys.fresh(side), int(found.records.block[0])
    weights = dirichlet(runs * steps, S, found.gamma, np.random.default_rng(side))
    zero, rule = np.zeros((1, 2)), np.zeros(1, dtype=np.int64)
    z = np.array([release_step(found, keys, t, zero, weights[t : t + 1], rule)[0].sum() for t in range(runs * steps)])
    z /= -math.sqrt(2.0) * found.noise
    r, q = weights[:, block] / found.noise_multiplier, found.rate
    up, down = (np.log((1.0 - q) + q * np.exp(sign * r * z - r * r / 2.0)) for sign in (1, -1))
    return (up - down).reshape(runs, steps).sum(axis=1)


def proved(pair, steps, runs):
    """What that many runs of either problem prove of epsilon."""
    return lower_bound(*(log_ratios(found, side, steps, runs) for side, found in enumerate(pair)), DELTA)


@pytest.mark.parametrize(("steps", "rate", "runs", "least"), [(1, 1.0, 16_000, CLAIM / 2), (3, 0.5, 3_000, 0.5)])
def test_the_audit_stays_below_the_claim_and_has_power(steps, rate, runs, least, monkeypatch):
    """One step of all records is tight: the proof reaches above half of the claim.  Noise of another claim is seen."""
    pair = [problem(monkeypatch, canary, steps, rate) for canary in (1.0, -1.0)]
    found = proved(pair, steps, runs)
    assert least < found <= CLAIM
    loud = [replace(found, noise_multiplier=found.noise_multiplier / 6) for found in pair]
    assert proved(loud, steps, 1500) > CLAIM
