"""Statistics: exact where they say so, never more sensitive than they state."""

import numpy as np
import pytest
import statsmodels.api as sm
import torch
from scipy.optimize import minimize
from scipy.special import expit

from pgbb_fast import DataError, DomainError
from pgbb_fast.bootstrap import Custom, Mean, RegularisedRegression
from pgbb_fast.bootstrap.solver import TOLERANCE, Rows, huber_curve, logistic_curve, minimise

RIDGE = 0.05


def regression(n, seed, loss="logistic"):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    eta = 0.3 + X @ [2.0, -1.0]
    y = (rng.random(n) < expit(eta)).astype(float) if loss == "logistic" else eta + rng.standard_t(2, n)
    return X, y


def statistic(loss):
    bounds = [(-1.0, 1.0)] * 2
    if loss == "logistic":
        return RegularisedRegression(bounds, RIDGE)
    return RegularisedRegression(bounds, RIDGE, "huber", y_bounds=(-5.0, 5.0), c=1.0)


def test_means_are_those_of_the_records_inside_the_bounds():
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.normal(0, 2, 500), rng.uniform(5, 6, 500)])
    task = Mean([(-3.0, 3.0), (5.0, 6.0)]).task("t", X, None)
    index = rng.integers(500, size=(7, 40))
    got = task.evaluate(task.load(), index)
    wanted = np.clip(X, [-3, 5], [3, 6])[index].mean(axis=1)
    assert np.abs((got - wanted) / [6, 1]).max() <= 2.0**-31 + 4e-16
    assert task.sensitivity(40) == np.hypot(6.0, 1.0) / 40


def test_a_mean_attains_its_sensitivity_and_never_exceeds_it():
    """The extreme pair moves the mean by l / m to one rounding; 200 random pairs move it by less."""
    n, m = 50, 8
    task = Mean([(-1.0, 3.0)]).task("t", np.full((n, 1), -1.0), None)
    index = np.arange(m)[None]
    low = task.evaluate(task.load(), index)
    other = Mean([(-1.0, 3.0)]).task("t", np.r_[[[3.0]], np.full((n - 1, 1), -1.0)], None)
    assert abs((other.evaluate(other.load(), index) - low)[0, 0] - 4.0 / m) <= 1e-15
    rng = np.random.default_rng(2)
    for _ in range(200):
        x = rng.normal(1, 3, (m, 1))
        y = x.copy()
        y[rng.integers(m)] = rng.normal(1, 30)
        tasks = [Mean([(-1.0, 3.0)]).task("t", v, None) for v in (x, y)]
        a, b = (t.evaluate(t.load(), None) for t in tasks)
        assert abs(a - b)[0, 0] <= 4.0 / m * (1 + 1e-15)


@pytest.mark.parametrize("loss", ["logistic", "huber"])
def test_regressions_solve_their_equation(loss):
    """The gradient, computed here from the loss's definition, is below the stated tolerance; so is the distance from
    scipy's minimiser (which stops at 1e-9) or statsmodels' Newton, by strong convexity."""
    X, y = regression(400, 3, loss)
    task = statistic(loss).task("t", X, y)
    theta = task.evaluate(task.load(), None)[0]
    design = np.column_stack([np.ones(400), X.astype(np.float32)])
    t = y if loss == "logistic" else np.float32(np.clip(y, -5, 5) / 5.0).astype(float)
    c = 0.2

    def slope(b):
        eta = design @ b
        return expit(eta) - t if loss == "logistic" else -np.clip(t - eta, -c, c)

    def gradient(b):
        return slope(b) @ design / 400 + RIDGE * b

    def objective(b):
        eta = design @ b
        r = np.abs(t - eta)
        rho = np.logaddexp(0, eta) - t * eta if loss == "logistic" else np.where(r <= c, r * r / 2, c * r - c * c / 2)
        return rho.mean() + RIDGE / 2 * b @ b

    bound = (1.0 if loss == "logistic" else c) * np.sqrt(3.0)
    assert np.linalg.norm(gradient(theta)) <= TOLERANCE * bound * 1.001
    found = minimize(objective, np.zeros(3), jac=gradient, method="BFGS", options={"gtol": 1e-9})
    assert np.abs(found.x - theta).max() <= (TOLERANCE * bound + 2e-8) / RIDGE


def test_the_logistic_estimate_without_much_ridge_is_statsmodels():
    X, y = regression(2000, 4)
    task = RegularisedRegression([(-1.0, 1.0)] * 2, 1e-6).task("t", X, y)
    theta = task.to_natural(task.evaluate(task.load(), None))[0]
    exact = sm.Logit(y, sm.add_constant(X)).fit(disp=0).params
    assert np.abs(theta - exact).max() < 1e-4  # the ridge moves it by about 1e-6 |theta| / 0.07, float32 by 1e-7


@pytest.mark.parametrize("curve", [logistic_curve(), huber_curve(0.3)])
def test_both_layouts_give_the_same_estimates(curve):
    X, y = regression(60, 5)
    index = np.random.default_rng(0).integers(60, size=(9, 30))
    count = np.stack([np.bincount(row, minlength=60) for row in index]).astype(float)
    gathered = minimise(Rows(X[index], y[index]), curve, 0.1, np.sqrt(2.0))
    shared = minimise(Rows(X, y, count), curve, 0.1, np.sqrt(2.0))
    assert np.abs(gathered - shared).max() <= 2 * TOLERANCE * np.sqrt(2.0) * curve.slope_bound / 0.1 + 1e-12


@pytest.mark.parametrize("loss", ["logistic", "huber"])
@pytest.mark.parametrize("m", [2, 20])
def test_regressions_are_never_more_sensitive_than_they_state(loss, m):
    """One record replaced by a corner of its domain, 100 times; the largest move is over a twentieth of the bound."""
    rng = np.random.default_rng(6)
    corners = np.array([[a, b] for a in (-1.0, 1.0) for b in (-1.0, 1.0)])
    largest = 0.0
    for k in range(100):
        X, y = regression(m, k, loss)
        X2, y2 = X.copy(), y.copy()
        X[0], X2[0] = corners[rng.integers(4)], corners[rng.integers(4)]
        y[0], y2[0] = (0.0, 1.0) if loss == "logistic" else (-5.0, 5.0)
        tasks = [statistic(loss).task("t", a, b) for a, b in ((X, y), (X2, y2))]
        a, b = (t.evaluate(t.load(), None) for t in tasks)
        move = float(np.linalg.norm(a - b)) / tasks[0].sensitivity(m)
        assert move <= 1.0
        largest = max(largest, move)
    assert largest > 0.05


def test_any_response_counts_as_the_nearer_class():
    X, y = regression(100, 7)
    far = np.where(y > 0.5, 1e9, -3.0)
    a, b = (RegularisedRegression([(-1.0, 1.0)] * 2, RIDGE).task("t", X, v) for v in (y, far))
    assert np.array_equal(a.evaluate(a.load(), None), b.evaluate(b.load(), None))


def test_a_function_of_the_users_own():
    X = np.arange(12.0).reshape(6, 2)
    task = Custom(lambda r: (r[:, 0].min(), r[:, 2].max()), 3.0, [(-9.0, 9.0), (0.0, 50.0)]).task("t", X, X[:, 1] + 1)
    records = task.load()
    assert task.evaluate(records, None).tolist() == [[0.0, 12.0]]
    assert task.evaluate(records, np.array([[1, 1], [5, 2]])).tolist() == [[2.0, 4.0], [4.0, 12.0]]
    assert task.sensitivity(4) == 0.75
    assert task.names == ("theta1", "theta2")
    empty = Custom(lambda r: np.nan, 1.0, [(2.0, 6.0)]).task("t", X, None)
    assert empty.evaluate(empty.load(), None).tolist() == [[4.0]]


def test_whether_the_users_function_fails_does_not_depend_on_records():
    """It is tried on made-up records before; a record that makes it fail counts as the middle of the box, silently."""

    def failing(records):
        if records.max() > 700:
            raise ValueError(f"value {records.max()}")
        return 0.25

    task = Custom(failing, 1.0, [(0.0, 1.0)]).task("t", np.array([[1.0], [777.0]]), None)
    assert task.evaluate(task.load(), np.array([[0, 0], [0, 1]])).tolist() == [[0.25], [0.5]]
    with pytest.raises(DomainError, match="must return 1"):
        Custom(lambda r: (1.0, 2.0), 1.0, [(0.0, 1.0)]).task("t", np.zeros((5, 1)), None)
    with pytest.raises(DomainError, match="ZeroDivisionError"):
        Custom(lambda r: 1 / 0, 1.0, [(0.0, 1.0)]).task("t", np.zeros((5, 1)), None)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: Mean([]), "x_bounds"),
        (lambda: Mean([(1.0, 0.0)]), "low < high"),
        (lambda: RegularisedRegression([(0.0, 1.0)], 0.0), "ridge"),
        (lambda: RegularisedRegression([(0.0, 1.0)], 1.0, "quantile"), "loss"),
        (lambda: RegularisedRegression([(0.0, 1.0)], 1.0, "huber", c=1.0), "y_bounds"),
        (lambda: RegularisedRegression([(0.0, 1.0)], 1.0, c=1.0, y_bounds=(0, 1)), "y_bounds"),
        (lambda: Custom(3, 1.0, [(0.0, 1.0)]), "callable"),
        (lambda: Custom(np.mean, float("nan"), [(0.0, 1.0)]), "l "),
        (lambda: Custom(np.mean, 1.0, [(0.0, 1.0)], names=["a", "b"]), "names"),
    ],
)
def test_bad_settings(make, word):
    with pytest.raises(DomainError, match=word):
        make()


def test_records_of_the_wrong_form():
    for X, word in ((np.zeros((1, 1)), "2 records"), (np.zeros((4, 2)), "features"), (np.zeros(4), "shape")):
        with pytest.raises(DataError, match=word):
            Mean([(0.0, 1.0)]).task("t", X, None)
    with pytest.raises(DataError, match="records but y"):
        RegularisedRegression([(0.0, 1.0)], 1.0).task("t", np.zeros((4, 1)), np.zeros(3))


def test_half_precision_records_are_decoded():
    """bfloat16 and float16 hold these numbers exactly, so the estimate is that of double precision."""
    values = np.arange(64.0)[:, None] / 8.0
    want = Mean([(0.0, 8.0)]).task("test", values, None)
    exact = want.evaluate(want.load(), None)
    for records in (values.astype(np.float16), torch.tensor(values).to(torch.bfloat16)):
        task = Mean([(0.0, 8.0)]).task("test", records, None)
        assert np.array_equal(task.evaluate(task.load(), None), exact)
