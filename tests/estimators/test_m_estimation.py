"""Losses of the user's own, written in torch: gradients, releases, fits, and losses that fail."""

import math
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import torch
from scipy import optimize

from pgbb_fast import DataError, DomainError, Posterior, PrivateMEstimator, losses
from pgbb_fast.baselines import DPSGLD
from pgbb_fast.errors import DeviceError
from pgbb_fast.estimators import autograd
from pgbb_fast.estimators.autograd import RecordGradients
from pgbb_fast.kernels import reference
from pgbb_fast.kernels.arguments import Draws, Mechanism, Records, Stream
from pgbb_fast.release import blocked as releases
from tests.kernels.cases import GRID, problem, tolerance
from tests.problems import X_BOUNDS, classes

ROOT = Path(__file__).resolve().parents[2]
SHORT = {"epsilon": 2.0, "delta": 1e-4, "steps": 120, "n_blocks": 5, "seed": 1}
softplus = torch.nn.functional.softplus


def eta(theta, x):
    return theta[0] + x @ theta[1:]


# as the kernels have them; constants as in test_steps (0.6, 0.35)
TORCH = {
    "logistic": lambda theta, x, y: softplus(eta(theta, x)) - y * eta(theta, x),
    "huber_fixed": lambda theta, x, y: torch.nn.functional.huber_loss(eta(theta, x), y, delta=0.6),
    "mean": lambda theta, x, y: ((theta - x) ** 2).sum() / 2,
    "exponential_mean": lambda theta, x, y: (torch.log(theta) + x / theta).sum(),
}


def squared(theta, x, y):
    return (y - eta(theta, x)) ** 2 / 4     # the middle expectile's: half of half the square


def own(loss, p, has_y=True):
    return losses.user_loss(RecordGradients(loss, p, response=has_y))


def test_gradients_are_those_of_the_formula():
    """Logistic and squared, against NumPy: a handful of roundings of numbers below 10."""
    rng = np.random.default_rng(0)
    theta, x, y = rng.normal(0, 1, 4), rng.uniform(-1, 1, (50, 3)), rng.normal(0, 1, 50)
    design = np.column_stack([np.ones(50), x])
    at = design @ theta
    for loss, slope in ((TORCH["logistic"], 1 / (1 + np.exp(-at)) - y), (squared, (at - y) / 2)):
        got = RecordGradients(loss, 3, response=True)(theta, x, y)
        assert np.abs(got - slope[:, None] * design).max() <= 64 * 10 * 2.0**-53


@pytest.mark.parametrize("name", [*TORCH, "expectile"])
@pytest.mark.parametrize("q", [1.0, 0.3])
def test_a_release_is_the_compiled_kernel_s(name, q):
    """The same minibatch and noise; sums within the kernels' own tolerance, and one 2^-24 more for the clipping limit,
    which belongs to d coefficients here and to p features there."""
    p, reach = 4, 50.0      # no residual is that large: the expectile loss is the squared one
    records, draws, stream, d = problem(name, 3_000, p, 2, 5)
    draws = draws._replace(constants=np.tile([0.5, reach], (2, 1))) if name == "expectile" else draws
    mechanism = Mechanism(0.7, math.floor(q * GRID), 1.5)
    drawn = int(reference.minibatch(stream.key, stream.step, 3_000, mechanism.threshold).sum())
    allowed = (tolerance(name, records, draws, mechanism, stream) + drawn * 2.0**8 + 1) / GRID
    built_in = {
        "logistic": losses.logistic(), "huber_fixed": losses.huber_fixed_scale(0.6), "mean": losses.mean(),
        "exponential_mean": losses.exponential_mean(), "expectile": losses.expectile([0.5], reach),
    }[name]  # fmt: skip
    common = {
        "n_blocks": 5, "block_size": 600, "gamma": 1.0, "clip": 0.7, "sampling_threshold": mechanism.threshold,
        "noise_multiplier": 1.5, "draws_per_step": 2, "steps": 20, "moment_multiplier": 0.7,
    }  # fmt: skip
    keys = releases.Keys(stream.key.astype(np.int64), 1, 2, 3)
    has_slopes = built_in.regression
    mine = own(TORCH.get(name, squared), p)
    problems = [
        releases.Problem(records, built_in, intercept=has_slopes, **common),
        releases.Problem(records, mine, intercept=False, **common),
    ]
    if built_in.additive:   # theta is public there, and stays out of the clipped sum
        draws = draws._replace(theta=np.zeros_like(draws.theta))
    arguments = (keys, stream.step, draws.theta, draws.weights, np.zeros(2, dtype=np.int64))
    a, b = (releases.release_step(problem, *arguments) for problem in problems)
    assert a.shape == b.shape == (2, d)
    assert np.abs(a - b).max() <= allowed * 0.7 / (600 * q)
    assert np.abs(a - b).max() < 1e-3 * np.abs(a).max()
    a, b = (releases.release_moment(problem, keys, draws.theta[:1])[0] for problem in problems)
    # in double precision: a product of at most one has fewer than 64 roundings, and is truncated to the grid
    assert np.abs(a - b).max() <= 0.7**2 * (64 * 2.0**-53 + 2.0**-32)


def test_a_replaced_record_moves_the_sum_by_no_more_than_two_bounds():
    """Whatever the record: huge, one for which the loss raises or is nan.  The others' terms keep every bit, so the
    difference is that of two clipped terms of norm at most u."""

    def strange(theta, x, y):
        factor = torch.linalg.cholesky(torch.stack([y, 0 * y, 0 * y, 1 + 0 * y]).reshape(2, 2))     # y > 0
        return (eta(theta, x) - factor[0, 0] ** 2) ** 2 + torch.sqrt(x[0]).sum() * theta[0]

    rng = np.random.default_rng(1)
    n, S, me = 300, 5, 17
    x, y, block = rng.uniform(0, 1, (n, 2)), rng.uniform(0.5, 1, n), np.resize(np.arange(S), n)
    weights = np.zeros((2, S + 1))
    weights[:, :S] = rng.dirichlet(np.ones(S), 2)
    draws = Draws(rng.normal(0, 1, (2, 3)), weights, np.zeros((2, 2)))
    mechanism, stream = Mechanism(1.0, GRID, 0.0), Stream(rng.integers(0, 2**32, 8), 4)
    loss, found = own(strange, 2), []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for feature, response in ((0.5, -1.0), (-1.0, 0.7), (0.5, 0.7), (1e120, 0.7), (0.5, 1e308), (0.0, 1e-300)):
            x[me, 0], y[me] = feature, response
            found.append(
                reference.gradient_step(
                    lambda *parts: loss.user_gradient(*parts, False), Records(x, y, block), draws, mechanism, stream
                )
            )
    for a in found:
        for b in found:
            assert (np.linalg.norm((a - b) / GRID, axis=1) <= 2 * weights[:, block[me]]).all()
    assert np.array_equal(found[0], found[1])       # a loss that raises, or is nan: both count as zero
    assert (found[0] != found[2]).all()
    # the whole bound was used: a record of it, in place of one that counts as zero
    moved = np.linalg.norm((found[3] - found[0]) / GRID, axis=1)
    assert moved == pytest.approx(weights[:, block[me]], rel=1e-4)


def test_a_record_for_which_the_loss_raises_leaves_every_bit_of_the_others(monkeypatch):
    def loss(theta, x, y):
        return theta[0] * torch.linalg.cholesky(x.reshape(2, 2))[1, 1] + theta[1] ** 2 * y

    rng = np.random.default_rng(2)
    x = np.tile(np.eye(2).reshape(-1), (101, 1)) + rng.uniform(0, 0.3, (101, 4))
    y, theta = rng.uniform(0, 1, 101), np.array([0.3, 0.7])
    gradients = RecordGradients(loss, 4, response=True)
    good = gradients(theta, x, y)
    bad = [0, 40, 41, 100]
    x[bad] = -1.0
    got = gradients(theta, x, y)
    assert np.isnan(got[bad]).all()
    rest = np.setdiff1d(np.arange(101), bad)
    assert np.array_equal(got[rest], good[rest])
    monkeypatch.setattr(autograd, "NUMBERS", 64)    # 16 records at a time
    assert np.abs(gradients(theta, x, y)[rest] - good[rest]).max() < 1e-14
    assert np.isnan(gradients(theta, np.repeat(x[:1], 40, axis=0), y[:40])).all()   # every record raises


# torch's operations whose batches might be computed by groups of values, and the usual ones
ROWS = {
    "sine": lambda t, x, y: torch.sin(x @ t) * torch.cos(x * t).sum(),
    "power": lambda t, x, y: ((x * t).abs() + 0.1).pow(2.5).sum() * torch.exp(-y),
    "gamma": lambda t, x, y: torch.lgamma(y * torch.exp(t[0])) - t[1] * torch.digamma(y),
    "normal": lambda t, x, y: torch.special.log_ndtr(x @ t).sum() + torch.erf(t[0] * y),
    "sum of exponentials": lambda t, x, y: torch.logsumexp(x * t, 0) + torch.softmax(x * t, 0)[1],
    "product": lambda t, x, y: (x.reshape(2, 3) @ t.reshape(3, 2)).pow(3).sum(),
    "matrix exponential": lambda t, x, y: torch.linalg.matrix_exp((x[:4] * t[:4]).reshape(2, 2)).sum() * y,
    "cholesky": lambda t, x, y: torch.linalg.cholesky(torch.eye(3, dtype=t.dtype) + torch.outer(x[:3], t[:3])).sum(),
    "solve": lambda t, x, y: torch.linalg.solve(torch.eye(3, dtype=t.dtype) + torch.outer(x[:3], t[:3]), x[3:]).sum(),
    "eigenvalues": lambda t, x, y: torch.linalg.eigvalsh(torch.diag(x[:3]) + torch.outer(t[:3], t[:3])).prod(),
    "sort": lambda t, x, y: (torch.sort(x * t)[0] * x).sum() + torch.cumsum(x * t, 0).sin().sum(),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_s_bits_do_not_depend_on_the_other_rows(name):
    """Whatever the other record: ordinary, huge, infinite, nan, or one that raises."""
    rng = np.random.default_rng(3)
    x, y, theta = rng.normal(0, 1, (203, 6)), rng.uniform(0.1, 2, 203), rng.normal(0, 1, 6)
    gradients = RecordGradients(ROWS[name], 6, response=True)
    before = gradients(theta, x, y)
    for me in (0, 3, 101, 202):
        others = np.arange(203) != me
        for value in (0.0, 17.0, -60.0, 1e5, -1e200, math.inf, math.nan):
            new_x, new_y = x.copy(), y.copy()
            new_x[me], new_y[me] = value, abs(value)
            assert np.array_equal(gradients(theta, new_x, new_y)[others], before[others], equal_nan=True)


def raising_below(theta, x, y):
    """Raises for records with x_1 < theta_1, a made-up one in the middle of any bounds included once theta is high."""
    return (eta(theta, x) - y) ** 2 + 0 * torch.linalg.cholesky((x[:1] - theta[:1]).reshape(1, 1)).sum()


@pytest.mark.slow
@pytest.mark.parametrize("loss", [raising_below, lambda t, x, y: raising_below(t, x, y) * torch.exp(x[0])])
@pytest.mark.parametrize("low", [-0.5, 0.55, 0.9])
def test_a_record_that_raises_moves_the_sum_by_its_own_term_at_every_theta(loss, low):
    """Exact integer sums over 300 records, at a theta at which a record in the middle of the bounds, (1/2, 1/2), raises
    (low = .55 and .9) or doesn't: replacing one, by one that raises or doesn't, moves the sum by at most the two terms'
    bounds, 2 u; and whoever raises counts as zero."""
    rng = np.random.default_rng(5)
    n, S, me = 300, 5, 17
    x, y, block = rng.uniform(0.6, 1, (n, 2)), rng.uniform(0, 1, n), np.resize(np.arange(S), n)
    weights = np.zeros((1, S + 1))
    weights[:, :S] = rng.dirichlet(np.ones(S), 1)
    draws = Draws(np.array([[low, 0.2, -0.4]]), weights, np.zeros((1, 2)))
    mechanism, stream, mine = Mechanism(1.0, GRID, 0.0), Stream(rng.integers(0, 2**32, 8), 4), own(loss, 2)
    sums = []
    for feature in (-2.0, 0.2, 0.52, 0.7, 0.95, 1e200):
        x[me, 0] = feature
        sums.append(
            reference.gradient_step(
                lambda *parts: mine.user_gradient(*parts, False), Records(x, y, block), draws, mechanism, stream
            )[0]
        )
    for a in sums:
        for b in sums:
            assert np.linalg.norm((a - b) / GRID) <= 2 * weights[0, block[me]]
    raises = np.array([-2.0, 0.2, 0.52, 0.7, 0.95]) <= low
    zero = next((total for total, fails in zip(sums, raises, strict=False) if fails), None)
    if zero is not None:
        assert all(np.array_equal(total, zero) == fails for total, fails in zip(sums, raises, strict=False))
    assert np.abs(sums[-2]).max() > 0      # the others are there: not everything counts as zero


def test_a_loss_that_raises_for_every_batch_is_computed_by_copies():
    """What raises without a record that raises by itself is no loss of one record: each then stands alone."""
    rng = np.random.default_rng(6)
    x, y, theta = rng.uniform(0, 1, (7, 2)), rng.uniform(0, 1, 7), np.array([0.1, 0.5, -0.2])
    gradients = RecordGradients(squared, 2, response=True)
    truth, real = gradients(theta, x, y), gradients.tried

    def mixed(theta, x, y):
        if len(x) > 1 and (x != x[0]).any():
            raise RuntimeError
        return real(theta, x, y)

    gradients.tried = mixed
    assert np.array_equal(gradients(theta, x, y), truth)


def test_a_loss_that_ends_the_process_for_a_record_counts_as_zero():
    slope = losses.user_slope(lambda y, eta: sys.exit() if y > 1 else y, 2.0)
    got = slope.user_gradient(np.zeros(1), np.ones((2, 1)), np.array([1.0, 3.0]), False)
    assert got[0, 0] == 0.5
    assert math.isnan(got[1, 0])


def test_torch_keeps_its_threads_and_an_empty_minibatch_has_no_gradient():
    before = torch.get_num_threads()
    got = RecordGradients(TORCH["logistic"], 2, response=True)(np.zeros(3), np.zeros((0, 2)), np.zeros(0))
    assert got.shape == (0, 3)
    assert torch.get_num_threads() == before


def test_slopes_and_gradients_beyond_all_measure_are_clipped_without_a_word():
    """1e200 squared overflows, of which NumPy would warn: seen or not, that would tell of a record."""
    records = Records(np.full((6, 1), 0.6, np.float32), np.full(6, 1e200), np.resize(np.arange(3), 6))
    weights = np.array([[0.2, 0.3, 0.5, 0.0]])
    gradients = own(lambda theta, x, y: -y * theta[0] * x[0] + 0 * theta[1], 1)
    mechanism, stream = Mechanism(1.0, GRID, 0.0), Stream(np.arange(8), 0)
    slopes = losses.user_slope(lambda y, eta: -y, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for loss, intercept, d in ((gradients, False, 2), (slopes, False, 1)):
            got = reference.gradient_step(
                lambda *parts, loss=loss, intercept=intercept: loss.user_gradient(*parts, intercept), records,
                Draws(np.zeros((1, d)), weights, np.zeros((1, 2))), mechanism, stream,
            )  # fmt: skip
            assert got[0, 0] / GRID == pytest.approx(-2.0, abs=1e-4)    # six records of the full bound, weights 2 x 1


LOGISTIC = {
    "loss": TORCH["logistic"], "x_bounds": X_BOUNDS, "y_bounds": (0, 1), "clip": 8.0,
    "coef_bounds": {"intercept": (-5, 5), "a": (-2.5, 2.5), "b": (-2, 2)},
}  # fmt: skip


def clipped_logistic(X, y, start):
    """Root of the mean of the records' clipped gradients in the coordinates in which coefficients are in [-1, 1]: what
    is estimated; at this clip up to .74 standard errors from the maximum likelihood."""
    radius, design = np.array([5.0, 2.5, 2.0]), np.column_stack([np.ones(len(y)), X])

    def mean(theta):
        gradient = (1 / (1 + np.exp(-design @ theta)) - y)[:, None] * design * radius
        norm = np.linalg.norm(gradient, axis=1, keepdims=True)
        return (gradient / np.maximum(norm / LOGISTIC["clip"], 1.0)).mean(axis=0)

    return optimize.root(mean, start, tol=1e-10).x


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["noise-aware", "generator"])
def test_logistic_regression_written_in_torch_is_statsmodels(kind):
    """n = 20,000, epsilon 8: three coefficients within 5 standard deviations of the privacy part (false alarm 2e-6) of
    the clipped equation's root, which is within a standard error of statsmodels'; standard deviations within 30%."""
    X, y = classes(20_000, 7)
    model = PrivateMEstimator(**LOGISTIC, posterior=kind, epsilon=8.0, delta=1e-5, steps=1_500, seed=8).fit(X, y)
    exact = sm.Logit(y, sm.add_constant(X)).fit(disp=0)
    root = clipped_logistic(X, y, exact.params)
    assert (np.abs(root - exact.params) < exact.bse).all()
    p = model.posterior_
    privacy = np.sqrt(p._parts()[1][0]) if kind == "noise-aware" else 0.5 * exact.bse
    assert (np.abs(p.mean() - root) < 5 * privacy).all()
    assert p.sd() == pytest.approx(exact.bse, rel=0.3)
    assert p.names == ("intercept", "a", "b")
    assert model.privacy_.epsilon <= 8.0
    assert model.device_.kind == "cpu"


def location_scale(theta, x, y):
    """Normal errors whose standard deviation is the exponential of theta[-1]."""
    z = (y - theta[0] - x @ theta[1:-1]) * torch.exp(-theta[-1])
    return z**2 / 2 + theta[-1]


@pytest.mark.slow
def test_a_normal_model_with_its_scale_is_least_squares():
    """The maximum likelihood in closed form: least squares, and the logarithm of the residuals' root mean square.
    n = 20,000, epsilon 8: four parameters within 5 privacy standard deviations (false alarm 2e-6) and a tenth of the
    sampling one, for the clipping; standard deviations between .8 and 1.6 of the exact ones."""
    rng = np.random.default_rng(5)
    X = np.column_stack([rng.uniform(-2, 2, 20_000), rng.uniform(0, 5, 20_000)])
    y = 1.0 + X @ [0.8, -0.5] + rng.normal(0, 0.5, 20_000)
    model = PrivateMEstimator(
        location_scale, x_bounds=X_BOUNDS, y_bounds=(-6, 6), clip=120.0, epsilon=8.0, delta=1e-5, steps=1_500, seed=4,
        coef_bounds=[(-4, 4), (-2, 2), (-2, 2), (-2, 2)],
    ).fit(X, y)  # fmt: skip
    exact = sm.OLS(y, sm.add_constant(X)).fit()
    truth = np.append(exact.params, math.log(np.sqrt(np.mean(exact.resid**2))))
    sd = np.append(exact.bse, math.sqrt(0.5 / 20_000))
    p = model.posterior_
    privacy = np.sqrt(p._parts()[1][0])
    assert (np.abs(p.mean() - truth) < 5 * privacy + 0.1 * sd).all()
    assert (p.sd() > 0.8 * sd).all()
    assert (p.sd() < 1.6 * sd + 2 * privacy).all()
    assert p.names == ("theta1", "theta2", "theta3", "theta4")


@pytest.mark.slow
def test_without_a_response_and_from_a_data_frame(tmp_path):
    """The mean and log standard deviation of normal numbers, within 5 reported standard deviations (1e-6)."""
    x = np.random.default_rng(6).normal(1.0, 0.7, 5_000)

    def normal(theta, x):
        return ((x[0] - theta[0]) * torch.exp(-theta[1])) ** 2 / 2 + theta[1]

    settings = {"x_bounds": {"income": (-5, 5)}, "coef_bounds": {"mean": (-3, 3), "log sd": (-2, 2)}, "clip": 12.0}
    model = PrivateMEstimator(normal, **settings, epsilon=4.0, delta=1e-5, steps=600, seed=2)
    p = model.fit(pd.DataFrame({"income": x})).posterior_
    assert (np.abs(p.mean() - [x.mean(), math.log(x.std())]) < 5 * p.sd()).all()
    assert (p.sd() < 0.1).all()
    assert np.array_equal(Posterior.load(p.save(tmp_path / "own")).draws(5), p.draws(5))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "int16", ">f8"])
def test_records_are_read_where_they_are_and_values_outside_count_as_the_nearest_bound(dtype):
    rng = np.random.default_rng(8)
    X, y = rng.integers(-5, 10, (600, 2)).astype(dtype), rng.integers(-2, 3, 600).astype(dtype)
    inside = np.clip(X.astype(float), *np.transpose(X_BOUNDS)), np.clip(y.astype(float), 0, 1)
    results = [PrivateMEstimator(**LOGISTIC, **SHORT).fit(*data).posterior_.draws(5) for data in ((X, y), inside)]
    assert np.array_equal(*results)


def test_a_loss_that_fails_for_a_record_tells_nothing(capfd):
    """It raises for one record and is nan for another: the fit ends, nothing is shown, and both count as zero."""
    X, y = classes(600, 4)
    X[:, 0] = np.abs(X[:, 0]) + 0.1
    X[7, 0], X[9, 0] = 0.0, -1.0

    def loss(theta, x, y):
        return TORCH["logistic"](theta, x, y) * torch.linalg.cholesky(x[:1].reshape(1, 1))[0, 0] ** 2

    def nan(theta, x, y):
        return TORCH["logistic"](theta, x, y) * torch.where((x[0] <= 0) & (x[0] > -1.5), x[0] / 0.0 * 0.0, x[0])

    settings = {**LOGISTIC, "x_bounds": [(-1.0, 2.0), (0.0, 5.0)]}
    found = []
    for failing in (loss, nan):
        model = PrivateMEstimator(**{**settings, "loss": failing}, **SHORT)
        model._try = lambda gradients, bounds: None     # the trial would have refused these
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found.append(model.fit(X, y).posterior_.draws(20))
    assert np.allclose(*found, rtol=1e-6)
    assert capfd.readouterr() == ("", "")


def branching(theta, x, y):
    return y * theta[0] if y > 0 else theta[1] * x[0]


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"loss": 3}, "callable"),
        ({"loss": branching}, "loss fails on made-up records"),
        ({"loss": lambda theta, x: theta.sum()}, "positional argument"),
        ({"loss": lambda theta, x, y: theta * y}, "scalar"),
        ({"loss": lambda theta, x, y: float("nan")}, "loss fails"),
        ({"loss": lambda theta, x, y: theta[3] * y}, "out of bounds"),
        ({"loss": lambda theta, x, y: theta @ x}, "loss fails"),
        ({"loss": lambda theta, x, y: theta[0] * torch.rand(())}, "random"),
        ({"loss": lambda theta, x, y: torch.sqrt(theta[0] - 10) * y}, "no finite gradient"),
        ({"loss": lambda theta, x, y: theta[0] * torch.log(x[1])}, r"no finite gradient at .* x = \[-2.0, 0.0\]"),
        ({"loss": lambda theta, x, y: x[0] + 0 * y}, "does not change with theta"),
        ({"clip": 0.0}, "clip"),
        ({"clip": math.nan}, "clip"),
        ({"coef_bounds": [(1, 0)] * 3}, "coef_bounds"),
        ({"y_bounds": (1, 0)}, "y_bounds"),
        ({"x_bounds": None}, "x_bounds"),
    ],
)
def test_a_loss_or_setting_that_is_wrong_is_refused_before_any_record_is_read(changed, word):
    with pytest.raises(DomainError, match=word):
        PrivateMEstimator(**{**LOGISTIC, **changed}, **SHORT).fit(np.full((50, 2), math.nan), np.zeros(50))


class OnDevice:
    shape = (50, 2)
    __cuda_array_interface__ = None


def test_what_else_is_refused():
    X, y = classes(50, 1)
    model = PrivateMEstimator(**LOGISTIC, **SHORT)
    with pytest.raises(DataError, match="pass y together with y_bounds"):
        model.fit(X)
    with pytest.raises(DataError, match="pass y together with y_bounds"):
        PrivateMEstimator(**{**LOGISTIC, "y_bounds": None}, **SHORT).fit(X, y)
    with pytest.raises(DataError, match="X is on a GPU; this method takes host arrays"):
        model.fit(OnDevice(), y)
    with pytest.raises(DeviceError, match="a loss of your own runs on the CPU"):
        PrivateMEstimator(**LOGISTIC, **SHORT, device="cuda").fit(X, y)
    for where in (X, y):
        where.flat[3] = math.inf
        with pytest.raises(DataError, match="nan or infinite"):
            model.fit(X, y)
        where.flat[3] = 0.0
    with pytest.raises(DomainError, match="no unit is known"):
        DPSGLD(model).fit(X, y)


@pytest.mark.slow
def test_the_guide_s_example_runs():
    """The block of docs/guide.md, on Poisson counts with its names: within 5 reported standard deviations (1e-6)."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "guide.md").read_text(), re.DOTALL)
    (block,) = (block for block in blocks if "PrivateMEstimator(" in block)
    rng = np.random.default_rng(3)
    age = rng.uniform(20, 70, 5_000)
    known = {"X": pd.DataFrame({"age": age}), "visits": rng.poisson(np.exp(0.2 + 0.5 * (age - 45) / 25))}
    exec(block, known)
    p = known["model"].posterior_
    assert (np.abs(p.mean() - [0.2, 0.5]) < 5 * p.sd()).all()
    assert (p.sd() < 0.2).all()
