"""Nothing that code remarks on while it sees records gets out, whatever the caller's filters: no warning, no error."""

import threading
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import integrate, special

from pgbb_fast import PrivateGeneralisedRegressor, PrivateMean, PrivateMEstimator, PrivateQuantileRegressor
from pgbb_fast.baselines import DPSGLD, NoisyGibbsMean, NoisyNewton
from pgbb_fast.bootstrap import BLBQuantiles, Custom, DPBootstrap, Mean, MOutOfNBootstrap
from pgbb_fast.silence import unseen

RNG = np.random.default_rng(0)
X = RNG.uniform(0.1, 1, (300, 1))
Y = X[:, 0].copy()
X[7], Y[7] = -1.0, 40.0     # the record of which something will be said
LONG = X.astype(np.longdouble)
LONG[7] = np.longdouble("1e400")    # no infinity, but beyond double precision
BUDGET = {"epsilon": 2.0, "delta": 1e-3, "seed": 1}
PUBLIC = {"x_bounds": [(-1, 1)], "y_bounds": (-1, 50)}
SHORT = {"steps": 30, "n_blocks": 5, "sampling_rate": 0.2}


def quad_slope(y, eta):
    """Numerical integration that gives up, with a warning, for the one record."""
    if y > 30:
        return integrate.quad(lambda t: np.sin(1e6 * t) / max(abs(t - 0.3), 1e-300), 0, 1, limit=3)[0]
    return np.tanh(eta - y)


def warning_slope(y, eta):
    if y > 30:
        warnings.warn(f"a strange record: {y}", stacklevel=1)
        np.log(np.float64(-y))
        special.gammaln(-np.ones(1))
    return np.tanh(eta - y)


def huge(theta, x, y):
    """A record's gradient whose square is beyond double precision."""
    return (theta[0] - y) ** 2 * torch.where(x[0] < 0, 1e300 * x[0] ** 2, 1.0 + 0.0 * x[0]) + theta[1] ** 2


def warning_loss(theta, x, y):
    warnings.warn("about these records", stacklevel=1)
    return (theta[0] - y) ** 2 + theta[1] ** 2


def generalised(slope):
    return PrivateGeneralisedRegressor(**BUDGET, **SHORT, **PUBLIC, slope=slope, slope_bound=2.0, eta_reach=1.0)


def m_estimator(loss):
    return PrivateMEstimator(loss, **BUDGET, **SHORT, **PUBLIC, clip=2.0, coef_bounds=[(-1, 1)] * 2)


def endless(records):
    """Infinite for subsets with the record, so that a difference of two is not a number."""
    return 0.5 if records.min() > 0 else np.inf


CASES = {
    "a logarithm": (
        lambda: MOutOfNBootstrap(Custom(lambda r: np.log(r).mean(), 3.0, [(-3, 0)]), **BUDGET), (X,)
    ),
    "a quotient, n out of n": (
        lambda: DPBootstrap(Custom(lambda r: (r / (r - r[0])).mean(), 3.0, [(-3, 3)]), **BUDGET), (X,)
    ),
    "a complex number": (lambda: DPBootstrap(Custom(lambda r: r.mean() + 0j, 3.0, [(-3, 3)]), **BUDGET), (X,)),
    "little bootstraps' own difference": (
        lambda: BLBQuantiles(Custom(endless, 1.0, [(0, 1)]), **BUDGET, resamples=20), (X,)
    ),
    "a slope by quadrature": (lambda: generalised(quad_slope), (X, Y)),
    "a slope that warns": (lambda: generalised(warning_slope), (X, Y)),
    "huge gradients": (lambda: m_estimator(huge), (X, Y)),
    "a loss that warns": (lambda: m_estimator(warning_loss), (X, Y)),
    "long doubles, regression": (lambda: PrivateQuantileRegressor(**BUDGET, **SHORT, **PUBLIC), (LONG, Y)),
    "long doubles, mean": (lambda: PrivateMean(**BUDGET, **SHORT, x_bounds=[(-1, 1)]), (LONG,)),
    "long doubles, bootstrap": (lambda: DPBootstrap(Mean([(-1, 1)]), **BUDGET), (LONG,)),
    "long doubles, gibbs": (lambda: NoisyGibbsMean(**BUDGET, x_bounds=[(-1, 1)], iterations=200), (LONG,)),
    "long doubles, sgld": (lambda: DPSGLD(PrivateMean(**BUDGET, x_bounds=[(-1, 1)]), steps=20), (LONG,)),
    "a sharp quantile, newton": (
        lambda: NoisyNewton(PrivateQuantileRegressor(**BUDGET, **PUBLIC, bandwidth=1e-90)), (X, Y)
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_fit_says_nothing_and_is_the_same_under_every_filter(name, capfd):
    make, records = CASES[name]
    plain = make().fit(*records).posterior_.draws(50)
    before = list(warnings.filters)
    with warnings.catch_warnings(), np.errstate(all="raise"), special.errstate(all="raise"):
        warnings.simplefilter("error")
        strict = make().fit(*records).posterior_
    assert np.array_equal(strict.draws(50), plain)
    with warnings.catch_warnings(record=True) as caught, np.errstate(all="warn"):
        warnings.simplefilter("always")
        make().fit(*records)
    assert caught == []
    assert list(warnings.filters) == before
    assert capfd.readouterr() == ("", "")


def test_these_cases_have_something_to_say():
    """Without the guard each function warns of the record."""
    for function, arguments in (
        (lambda r: np.log(r).mean(), (X,)),
        (lambda r: endless(r) - endless(r), (X,)),
        (quad_slope, (40.0, 0.1)),
        (warning_slope, (40.0, 0.1)),
        (lambda r: r.astype(np.float64), (LONG,)),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = function(*arguments)
        assert caught or not np.all(np.isfinite(result))


def test_a_thread_that_leaves_does_not_uncover_one_that_is_inside():
    entered, left, said = threading.Event(), threading.Event(), []

    def other():
        with unseen():
            entered.set()
            assert left.wait(10)
            warnings.warn("of a record", stacklevel=1)
            said.append(True)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = list(warnings.filters)
        with unseen():
            thread = threading.Thread(target=other)
            thread.start()
            assert entered.wait(10)
        left.set()
        thread.join()
        assert said == [True]
        assert list(warnings.filters) == before
        with pytest.raises(UserWarning):
            warnings.warn("outside", stacklevel=1)


def test_errors_pass_and_the_filters_are_put_back():
    before = list(warnings.filters)
    with pytest.raises(KeyError), unseen():
        raise KeyError
    assert list(warnings.filters) == before


def test_a_function_that_changes_its_sample_changes_no_other():
    """Sorting in place, which a sample is free to: the same estimates, replicates and intervals as on a copy."""

    def in_place(records):
        records.sort(axis=0)
        middle = float(records[len(records) // 2, 0])
        records[:] = 0.0
        return middle

    def on_a_copy(records):
        return float(np.sort(records, axis=0)[len(records) // 2, 0])

    inside, mine = np.clip(X, 0, 1), X.copy()
    for make in (
        lambda f: MOutOfNBootstrap(Custom(f, 1.0, [(0, 1)]), **BUDGET),
        lambda f: DPBootstrap(Custom(f, 1.0, [(0, 1)]), **BUDGET),
        lambda f: BLBQuantiles(Custom(f, 1.0, [(0, 1)]), **BUDGET, resamples=20),
    ):
        for records in (inside, pd.DataFrame(inside), mine):
            a, b = (make(f).fit(records).posterior_.draws(40) for f in (in_place, on_a_copy))
            assert np.array_equal(a, b)
    assert np.array_equal(mine, X)      # nor the caller's records
