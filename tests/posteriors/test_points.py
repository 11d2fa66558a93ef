"""Points of curves: by name, whatever the table and the order of its columns; inside the public bounds."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from pgbb_fast import DomainError
from pgbb_fast.baselines import NonPrivateBayesianBootstrap
from pgbb_fast.budget.baseline import NoGuarantee
from pgbb_fast.coordinates import AffineMap, Domain
from pgbb_fast.posteriors.sampled import SampledPosterior

NAMES = ("intercept", "a", "b", "b^2", "scale")
BOUNDS = np.array([[0.0, 20.0], [-1.0, 3.0]])
THETA = np.array([2.0, 0.5, -1.0, 0.25, 7.0])


def posterior(domain=None, names=NAMES):
    sample = THETA[: len(names)] + np.zeros((5, 1, 1))
    units = AffineMap(np.eye(len(names)), np.zeros(len(names)), domain)
    return SampledPosterior(sample, rules=(), to_natural=units, names=names, privacy=NoGuarantee(9))


MODEL = posterior(Domain((1, 2), True, BOUNDS))
A, B = np.array([1.0, 20.0, 0.0]), np.array([3.0, -1.0, 0.5])
CURVE = 2.0 + 0.5 * A - B + 0.25 * B**2


@pytest.mark.parametrize(
    "X",
    [
        np.column_stack([A, B]),
        np.column_stack([A, B, B**2]),
        np.column_stack([A, B, B**2]).astype(np.float32),
        np.column_stack([A, B]).tolist(),
        {"b": B, "a": A},
        {"b": B.tolist(), "a": A.tolist(), "other": ["x", "y", "z"]},
        pd.DataFrame({"b": B, "c": 0.0, "a": A}),
        pd.DataFrame({"b^2": 99.0, "b": B, "a": A}, index=[7, 7, 1]),
        pa.table({"b": B, "a": A}),
    ],
    ids=lambda X: type(X).__name__,
)
def test_columns_are_found_by_name_and_powers_are_made(X):
    found = MODEL.curves(X)
    assert found.shape == (2000, 1, 3)
    assert np.abs(found - CURVE).max() < 1e-6  # single precision of one of the arrays


@pytest.mark.parametrize(
    ("X", "word"),
    [
        (pd.DataFrame({"a": A}), "lacks b"),
        (pd.DataFrame(np.column_stack([A, B])), "lacks a, b"),
        (pa.table({"x": A, "b": B}), "lacks a"),
        ({"a": A, "b": B[:2]}, "one length"),
        ({"a": A, "b": list("xyz")}, "column b of X must be finite"),
        ({"a": A, "b": [1.0, None, 2.0]}, "column b of X must be finite"),
        (pd.DataFrame({"a": A, "b": pd.array([1, None, 2], dtype="Int64")}), "column b of X must be finite"),
        (np.ma.masked_array(np.column_stack([A, B]), mask=[[0, 1], [0, 0], [0, 0]]), "must be finite"),
        (np.column_stack([A, B]) * 1j, "must be finite"),
        (np.column_stack([A, B]).astype(str), "must be finite"),
        ([[1.0, 2.0], [3.0]], "must be finite"),
        (np.column_stack([A, B * np.nan]), "must be finite"),
        (A, "must be finite"),
        (None, "must be finite"),
        (np.column_stack([A, B, B**2, B**3]), "X must be"),
        (np.column_stack([A, B, B**3]), "isn't that power"),
        (np.column_stack([A + 1e-9, B]), "a of X lies outside the public bounds"),
        ({"a": A, "b": B - 1e-9}, "b of X lies outside the public bounds"),
    ],
    ids=str,
)
def test_points_that_the_model_says_nothing_about_are_refused(X, word):
    with pytest.raises(DomainError, match=word):
        MODEL.curves(X)


def test_a_feature_called_scale_is_a_feature():
    model = posterior(Domain((1, 1), False, BOUNDS), names=("intercept", "scale"))
    assert np.array_equal(model.curves([[1.0, 2.0]])[0, 0], [2.0 * 1.0 + 0.5 * 2.0])


def test_models_that_are_not_linear_have_no_curves():
    with pytest.raises(DomainError, match="no linear model"):
        posterior().curves(np.column_stack([A, B]))
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(40, 2)), columns=["u", "v"])
    line = NonPrivateBayesianBootstrap("ridge", draws=5).fit(frame, rng.normal(size=40)).posterior_
    far = line.curves(pd.DataFrame({"v": [1e3], "u": [-5.0]}), size=5, seed=1)  # without bounds none is too far
    theta = line.draws(5, seed=1)
    assert far[:, 0, 0] == pytest.approx(theta @ [1.0, -5.0, 1e3], rel=1e-12)
    mean = NonPrivateBayesianBootstrap("mean", draws=5).fit(frame).posterior_
    with pytest.raises(DomainError, match="no linear model"):
        mean.curves(frame)


@pytest.mark.parametrize(
    "bad",
    [
        {"degrees": [], "intercept": True, "bounds": None},
        {"degrees": [0], "intercept": True, "bounds": None},
        {"degrees": [1], "intercept": 1, "bounds": None},
        {"degrees": [1], "intercept": True, "bounds": [[0, 1], [0, 1]]},
        {"degrees": [1], "intercept": True, "bounds": [[1, 0]]},
    ],
)
def test_bad_domains(bad):
    with pytest.raises(DomainError):
        Domain.from_dict(bad)
    good = Domain((1, 2), True, BOUNDS)
    assert Domain.from_dict(good.to_dict()) == good
    assert good != Domain((1, 2), True)
