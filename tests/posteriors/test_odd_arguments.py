"""Every argument of what comes after a fit, given what it isn't made for: an error of ours in one line, or success."""

import math
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pgbb_fast import PgbbError, Posterior, PrivateQuantileRegressor
from pgbb_fast.bootstrap import BLBQuantiles, DPBootstrap, Mean, MOutOfNBootstrap
from pgbb_fast.budget.baseline import NoGuarantee
from pgbb_fast.coordinates import AffineMap, Domain
from pgbb_fast.plots import epsilon_sweeps, quantile_effects, trade_off_curve
from pgbb_fast.posteriors.sampled import SampledPosterior


class Hostile:
    """Nothing about it can be asked."""

    def _no(self, *arguments):
        raise RuntimeError("canary")

    __len__ = __iter__ = __getitem__ = __array__ = __float__ = __index__ = __fspath__ = __eq__ = __str__ = _no
    __repr__ = __bool__ = _no
    __hash__ = object.__hash__


ODD = [
    *(None, True, False, 0, 1, 2, -1, 0.4, -0.0, 1.5, math.nan, math.inf, -math.inf, 1e308, 10**400, -(10**400)),
    *("", "a", "0.4", "rules", "all", "x" * 5000, "\ud800", b"a", 1j, Fraction(2, 5), Decimal("0.4"), 2**70),
    *([], (), [0.4], (0.3, 0.7), [0.4, "a"], [[0.4], [0.3, 0.5]], [None], {0.4}, {}, {"a": 1}, {0.5: [1.0]}, range(2)),
    *(np.float32(0.4), np.int8(3), np.bool_(True), np.array(0.4), np.array([0.3, 0.6]), np.array([["a"]])),
    *(np.array([]), np.array([[0.5, 0.5]]), np.zeros((2, 2, 2)), np.array([1j]), np.array([np.nan])),
    np.array([None, 1.0]),
    *(np.ma.masked_array([0.4], mask=[True]), np.datetime64("2000-01-01"), np.array(["2000"], dtype="datetime64[D]")),
    *(pd.Series([0.4, 0.5]), pd.DataFrame({"x1": [0.5]}), pd.NA, pd.Timestamp("2000-01-01")),
    *(torch.tensor(0.4), torch.tensor([0.4, 0.5], requires_grad=True), torch.zeros(2, 2)),
    *(object(), int, len, lambda: 0.4, slice(2), iter([0.4]), memoryview(b"ab"), Hostile(), ...),
]


def odd(seed):
    return ODD[seed % len(ODD)]


@pytest.fixture(scope="module")
def posteriors():
    rng = np.random.default_rng(0)
    X = rng.random((300, 2))
    budget = {"epsilon": 2.0, "delta": 1e-3, "seed": 1}
    line = {"x_bounds": [(0, 1)] * 2, "y_bounds": (0, 1)}
    domain = Domain((1, 1), True, np.array([[0.0, 1.0], [0.0, 1.0]]))
    names = ("intercept", "x1", "x2")
    units = AffineMap(np.eye(3), np.zeros(3), domain)
    common = {"to_natural": units, "names": names, "privacy": NoGuarantee(9)}
    quantiles = PrivateQuantileRegressor(tau=[0.3, 0.7], steps=200, moment_share=0.0, **line, **budget)
    return [
        quantiles.fit(X, X[:, 0]).posterior_,
        SampledPosterior(rng.normal(size=(30, 2, 3)), rules=(0.3, 0.7), **common),
        SampledPosterior(rng.normal(size=(30, 1, 3)), rules=(), **common),
        MOutOfNBootstrap(Mean([(0, 1)] * 2), resample_size=10, replicates=20, **budget).fit(X).posterior_,
        DPBootstrap(Mean([(0, 1)] * 2), replicates=20, **budget).fit(X).posterior_,
        BLBQuantiles(Mean([(0, 1)] * 2), resamples=20, **budget).fit(X).posterior_,
    ]


POINTS = [[0.5, 0.25]]
RANGE = {"alpha": [0.0, 1.0], "beta": [1.0, 0.0]}
SWEEP = {"parameter": "steps", "values": [1, 2], "epsilon": [1.0, 2.0], "epsilon_without_weights": [2.0, 3.0]}
CALLS = {
    "draws": (lambda p, **kw: p.draws(**kw), ("size", "rules", "seed")),
    "mean": (lambda p, **kw: p.mean(**kw), ("size", "rules", "seed")),
    "sd": (lambda p, **kw: p.sd(**kw), ("size", "rules", "seed")),
    "interval": (lambda p, **kw: p.interval(**kw), ("level", "size", "rules", "seed")),
    "summary": (lambda p, **kw: str(p.summary(**kw)), ("level", "size", "rules", "seed")),
    "band": (lambda p, **kw: p.band(**kw), ("level", "over", "rules", "size", "seed")),
    "curves": (lambda p, **kw: p.curves(**{"X": POINTS, **kw}), ("X", "rules", "rearrange", "size", "seed")),
    "arviz": (lambda p, **kw: p.to_arviz(**{"size": 20, **kw}), ("rules", "size", "seed")),
    "save": (lambda p, **kw: p.save(**{"folder": "saved", **kw}), ("folder",)),
    "load": (lambda p, **kw: Posterior.load(**{"folder": "saved", **kw}), ("folder", "recompute")),
    "effects": (
        lambda p, **kw: quantile_effects(**{"posterior": p, "path": "a.png", **kw}),
        ("posterior", "path", "level", "reference", "units"),
    ),
    "trade-off": (lambda p, **kw: trade_off_curve(**{"points": RANGE, "path": "b.png", **kw}), ("points", "path")),
    "trade-off numbers": (lambda p, **kw: trade_off_curve({**RANGE, **kw}, "b.png"), ("alpha", "beta")),
    "sweeps": (
        lambda p, **kw: epsilon_sweeps({"sweeps": [SWEEP], "delta": 0.1, "trade_off": RANGE, **kw}, "c.png"),
        ("sweeps", "delta", "trade_off"),
    ),
    "sweep": (
        lambda p, **kw: epsilon_sweeps({"sweeps": [{**SWEEP, **kw}], "delta": 0.1, "trade_off": RANGE}, "c.png"),
        ("parameter", "values", "epsilon"),
    ),
    "unadjusted": (lambda p, **kw: getattr(p, "unadjusted_interval", p.interval)(**kw), ("level",)),
}


def comes_or_is_refused(call, posterior, given):
    """True if the call succeeds."""
    refused = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call(posterior, **given)
    except PgbbError as error:
        refused = error
    if refused is None:
        return True
    text = str(refused)
    assert 0 < len(text) < 400
    assert "\n" not in text
    assert "canary" not in text
    assert refused.__cause__ is None
    assert refused.__suppress_context__ or refused.__context__ is None
    return False


SLOW = ("sweep", "summary", "band", "effects", "draws", "arviz")
ARGUMENTS = [
    pytest.param(name, argument, marks=[pytest.mark.slow] if name in SLOW else [])
    for name, (_, wanted) in CALLS.items()
    for argument in wanted
]


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_one_odd_argument(name, argument, posteriors, tmp_path, monkeypatch):
    """Each value for each argument, in turn on each kind of posterior that the value may matter to."""
    monkeypatch.chdir(tmp_path)
    call, slow = CALLS[name][0], name in ("effects", "trade-off", "trade-off numbers", "sweeps", "sweep")
    outcomes = []
    for number, value in enumerate(ODD[:: 9 if argument in ("parameter", "delta") else 2 if slow else 1]):
        chosen = posteriors[:1] if slow else (posteriors[number % len(posteriors)], posteriors[0])
        outcomes += [comes_or_is_refused(call, posterior, {argument: value}) for posterior in chosen]
    assert argument == "parameter" or not all(outcomes)


@given(name=st.sampled_from(list(CALLS)), which=st.integers(0, 5), seeds=st.lists(st.integers(0, 999), min_size=5))
@settings(max_examples=150)
def test_several_odd_arguments(name, which, seeds, posteriors, tmp_path_factory):
    call, wanted = CALLS[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("odd"))
        comes_or_is_refused(call, posteriors[which], {a: odd(s) for a, s in zip(wanted, seeds, strict=False)})
