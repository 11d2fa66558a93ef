"""Estimators and posteriors go through pickle, fitted or not; what is drawn afterwards is the same."""

import math
import pickle

import numpy as np
import pytest

from pgbb_fast import (
    MOutOfNBootstrap,
    PrivateGeneralisedRegressor,
    PrivateHuberRegressor,
    PrivateMean,
    PrivateMEstimator,
)
from pgbb_fast.baselines import NoisyGibbsMean, NonPrivateBayesianBootstrap
from pgbb_fast.bootstrap import BLBQuantiles, Custom, DPBootstrap, Mean, RegularisedRegression


def poisson(y, eta):
    """Slope of the negative log likelihood."""
    return math.exp(eta) - y


def square(theta, x):
    """A loss of one record."""
    return ((theta - x) ** 2).sum()


def middle(records):
    """An estimate."""
    return records.mean()


RUN = {"epsilon": 2.0, "delta": 1e-3, "steps": 100, "moment_share": 0.0, "seed": 1}
BOOT = {"epsilon": 2.0, "delta": 1e-3, "seed": 1}
LINE = {"x_bounds": [(0, 1)], "y_bounds": (0, 3)}
MODELS = {
    "slope": lambda: PrivateGeneralisedRegressor(slope=poisson, slope_bound=8.0, eta_reach=1.0, **LINE, **RUN),
    "loss": lambda: PrivateMEstimator(square, x_bounds=[(0, 1)], coef_bounds=[(0, 1)], clip=1.0, **RUN),
    "huber": lambda: PrivateHuberRegressor(posterior="generator", **LINE, **RUN),
    "mean": lambda: PrivateMean(x_bounds=[(0, 1)], **RUN),
    "bootstrap": lambda: MOutOfNBootstrap(Mean([(0, 1)]), resample_size=10, replicates=20, **BOOT),
    "custom": lambda: DPBootstrap(Custom(middle, 1.0, [(0, 1)]), replicates=20, **BOOT),
    "ridge": lambda: MOutOfNBootstrap(RegularisedRegression([(0, 1)], 0.5), resample_size=10, replicates=20, **BOOT),
    "little": lambda: BLBQuantiles(Mean([(0, 1)]), resamples=20, **BOOT),
    "gibbs": lambda: NoisyGibbsMean(x_bounds=[(0, 1)], epsilon=2.0, delta=1e-3, iterations=200, seed=1),
    "exact": lambda: NonPrivateBayesianBootstrap("ridge", draws=5),
}


@pytest.mark.parametrize("name", MODELS)
def test_pickled_models_fit_and_draw_as_the_originals(name):
    rng = np.random.default_rng(0)
    x = rng.random((400, 1))
    y = rng.poisson(np.exp(x[:, 0] - 0.5)).astype(float)
    records = (x, y) if name in ("slope", "huber", "ridge", "exact") else (x,)
    model = MODELS[name]()
    copy = pickle.loads(pickle.dumps(model))
    draws = model.fit(*records).posterior_.draws(7)
    assert np.array_equal(copy.fit(*records).posterior_.draws(7), draws)
    fitted = pickle.dumps(model)
    assert np.array_equal(pickle.loads(fitted).posterior_.draws(7), draws)
    assert x[17].tobytes() not in fitted
