"""The bootstraps' contract, and that their intervals cover."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from pgbb_fast import DataError, DomainError, NotFittedError, Posterior
from pgbb_fast.bootstrap import (
    AsymptoticMOutOfNBootstrap,
    BootstrapPosterior,
    Custom,
    DPBootstrap,
    Mean,
    MOutOfNBootstrap,
    RegularisedRegression,
)
from pgbb_fast.posteriors.deconvolved import deconvolve, natural_spline

MEAN = Mean([(-2.0, 2.0)])
BUDGET = {"epsilon": 2.0, "delta": 1e-4}
LAW = stats.truncnorm(-2, 2)


def sample(n=1000, seed=0):
    return LAW.rvs(n, random_state=seed)[:, None]


def models(seed=1):
    return [
        MOutOfNBootstrap(MEAN, seed=seed, **BUDGET),
        MOutOfNBootstrap(MEAN, resample_size=1000, replicates=100, seed=seed, **BUDGET),
        AsymptoticMOutOfNBootstrap(MEAN, mu=1.0, delta=1e-3, seed=seed),
        DPBootstrap(MEAN, seed=seed, **BUDGET),
    ]


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: MOutOfNBootstrap("mean", **BUDGET), "statistic"),
        (lambda: MOutOfNBootstrap(MEAN, epsilon=0.0, delta=1e-4), "epsilon"),
        (lambda: MOutOfNBootstrap(MEAN, epsilon=1.0, delta=1.0), "delta"),
        (lambda: MOutOfNBootstrap(MEAN, resample_size=0, **BUDGET), "resample_size"),
        (lambda: MOutOfNBootstrap(MEAN, replicates=1, **BUDGET), "replicates"),
        (lambda: MOutOfNBootstrap(MEAN, estimate_share=1.0, **BUDGET), "estimate_share"),
        (lambda: MOutOfNBootstrap(MEAN, sizes="best", **BUDGET), "sizes"),
        (lambda: MOutOfNBootstrap(MEAN, sizes="width", replicates=100, **BUDGET), "leave both out"),
        (lambda: MOutOfNBootstrap(MEAN, seed=-1, **BUDGET), "seed"),
        (lambda: AsymptoticMOutOfNBootstrap(MEAN, mu=math.nan, delta=1e-4), "mu"),
        (lambda: AsymptoticMOutOfNBootstrap(MEAN, mu=1.0, delta=1e-4, sizes="width"), "neither"),
        (lambda: DPBootstrap(MEAN, replicates=1, **BUDGET), "replicates"),
    ],
)
def test_bad_settings_are_refused_when_stated(make, word):
    with pytest.raises(DomainError, match=word):
        make()


def test_the_fixture_that_guards_records_works(untouchable):
    with pytest.raises(AssertionError, match="touched"):
        MOutOfNBootstrap(MEAN, **BUDGET).fit(sample())


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"resample_size": 1000, "replicates": 1000}, r"m = o\(n\)"),
        ({"resample_size": 300, "replicates": 1000}, r"m = o\(n\)"),
        ({"resample_size": 1001}, "at most n"),
    ],
)
def test_broken_sizes_are_refused_untouched(settings, word, untouchable):
    with pytest.raises(DomainError, match=word):
        MOutOfNBootstrap(MEAN, **settings, **BUDGET).fit(sample())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_values_that_are_no_records(bad):
    X = sample()
    X[17] = bad
    for model in models():
        with pytest.raises(DataError, match="nan or infinite"):
            model.fit(X)


def test_values_outside_the_bounds_count_as_the_bound():
    X = sample()
    X[3] = 2.0
    far = X.copy()
    far[3] = 1e300
    for a, b in zip(models(), models(), strict=True):
        assert np.array_equal(a.fit(X).posterior_.draws(20), b.fit(far).posterior_.draws(20))


def test_fits_are_functions_of_data_and_seed_and_secret_without_one():
    X = sample()
    for a, b, c in zip(models(), models(), models(2), strict=True):
        draws = [m.fit(X).posterior_.draws(50) for m in (a, b, c)]
        assert np.array_equal(draws[0], draws[1])
        assert not np.array_equal(draws[0], draws[2])
    free = [MOutOfNBootstrap(MEAN, **BUDGET).fit(X).posterior_.draws(5) for _ in range(2)]
    assert not np.array_equal(*free)


def test_contract(tmp_path):
    X = sample()
    for model in models():
        with pytest.raises(NotFittedError, match="fit before"):
            _ = model.posterior_
        posterior = model.fit(X).posterior_
        assert posterior.names == ("x1",)
        assert posterior.draws(7).shape == (7, 1)
        assert posterior.interval().shape == (1, 2)
        row = posterior.summary(0.9).rows[0]
        assert row.low < row.mean < row.high
        assert row.privacy_sd > 0
        folder = posterior.save(tmp_path / posterior.kind)
        again = Posterior.load(folder)
        assert np.array_equal(again.draws(9), posterior.draws(9))
        assert again.privacy == model.privacy_ == model.plan(1000).privacy
        assert '"seed' not in (folder / "posterior.json").read_text()   # the seed itself is nowhere
        assert json.loads((folder / "posterior.json").read_text())["privacy"]["adjacency"] == "replace-one"
    assert "not a bound" in str(models()[2].fit(X).posterior_.summary())
    assert "not a bound" in models()[2].fit(X).privacy_.statement()


def test_several_coordinates_and_natural_units():
    """Fits in other units of x are the same fits: exactly those of the unit box, mapped."""
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, (3000, 2))
    y = (rng.random(3000) < 1 / (1 + np.exp(-X @ [1.0, -1.0]))).astype(float)
    settings = {"epsilon": 50.0, "delta": 1e-4, "resample_size": 300, "replicates": 200, "seed": 3}
    a = MOutOfNBootstrap(RegularisedRegression([(-1, 1)] * 2, 0.1), **settings).fit(X, y).posterior_
    b = (
        MOutOfNBootstrap(RegularisedRegression([(8, 12), (-3, 3)], 0.1), **settings)
        .fit(X * [2, 3] + [10, 0], y)
        .posterior_
    )
    assert a.names == ("intercept", "x1", "x2")
    slope = a.mean()[1:] / [2, 3]
    assert np.abs(b.mean()[1:] / slope - 1).max() < 1e-3  # the features' rounding to single precision
    assert b.mean()[0] == pytest.approx(a.mean()[0] - 10 * slope[0], rel=1e-3)


def posterior(estimate, replicates, **numbers):
    report = AsymptoticMOutOfNBootstrap(MEAN, mu=1.0, delta=1e-3).plan(1000).privacy
    d = len(estimate)
    from pgbb_fast.coordinates import AffineMap

    return BootstrapPosterior(
        np.asarray(estimate), replicates, to_natural=AffineMap(np.eye(d), np.zeros(d)), names="ab"[:d], privacy=report,
        **numbers,
    )  # fmt: skip


def test_without_noise_the_interval_is_that_of_the_method():
    """Centred roots sqrt(m / n) (theta*_b - mean), reflected: quantiles of draws against those of the replicates,
    within 4 Monte Carlo errors of a quantile of 40,000 draws, and section 8's own formula."""
    rng = np.random.default_rng(0)
    replicates = rng.gamma(3.0, 1.0, (4000, 1))
    replicates += 1.0 - replicates.mean()
    p = posterior([1.0], replicates, estimate_sd=1e-12, replicate_sd=1e-12, n=400, resample_size=16)
    root = 0.2 * (replicates[:, 0] - 1.0)
    low, high = 1.0 - np.quantile(root, [0.95, 0.05])
    assert p.unadjusted_interval(0.9)[0] == pytest.approx([low, high], abs=1e-12)
    error = 4 * np.sqrt(0.05 * 0.95 / 40_000) / 0.05  # over the density there, .05 / (gap to the next quantiles)
    gap = np.diff(np.quantile(root, [0.025, 0.05, 0.075, 0.925, 0.95, 0.975])).max() * 2
    assert np.abs(p.interval(0.9, size=40_000)[0] - [low, high]).max() < error * gap + 0.03 * root.std()


def test_noise_is_exchanged_for_the_estimates_in_every_direction():
    """d = 2, B = 40,000 replicates of known covariance: the draws' covariance against Sigma / n + sigma_e^2 I, within
    2.5% of its largest entry (4 Monte Carlo errors of the replicates' and the draws' variances)."""
    rng = np.random.default_rng(1)
    sigma = np.array([[2.0, 0.6], [0.6, 0.5]])
    n, m, noise, own = 500, 20, 0.3, 0.05
    replicates = rng.multivariate_normal([0, 0], sigma / m + noise**2 * np.eye(2), 40_000)
    p = posterior([0.0, 0.0], replicates, estimate_sd=own, replicate_sd=noise, n=n, resample_size=m)
    wanted = sigma / n + own**2 * np.eye(2)
    # errors of Sigma are those of S = Sigma + m noise^2 I, up to 3.8 / 2 times as large
    assert np.abs(np.cov(p.draws(40_000).T) - wanted).max() < 4 * math.sqrt(2 / 40_000) * (wanted.max() + 3.8 / n)
    sampling, privacy = p._parts()
    assert sampling[0] == pytest.approx(np.diag(sigma) / n, rel=0.1)
    assert privacy[0] == pytest.approx([own**2] * 2)


def test_where_noise_hides_the_sampling_variance_intervals_widen_and_say_why():
    rng = np.random.default_rng(2)
    replicates = rng.normal(0, 10.0, (100, 1))
    p = posterior([0.0], replicates, estimate_sd=1e-3, replicate_sd=10.0, n=1000, resample_size=10)
    floor = 2 * 1.645 * 1e-3
    assert np.diff(p.interval(0.9))[0, 0] > 20 * floor
    assert any("hides the sampling variance" in sentence for sentence in p.advice())


@pytest.mark.slow
def test_coverage_of_a_truncated_mean():
    """n = 1000, m = 10, B = 1000, finite-B noise for (1, 1e-4): 300 fits, nominal .9.  Binomial limits .9 +- .057,
    false alarm 1e-3.  section 8's interval, which takes the noise for sampling, covers nearly always and is over
    twice as wide."""
    covered, wide, width, wider = 0, 0, 0.0, 0.0
    for seed in range(300):
        model = MOutOfNBootstrap(MEAN, epsilon=1.0, delta=1e-4, resample_size=10, replicates=1000, seed=seed)
        p = model.fit(sample(seed=seed)).posterior_
        (low, high), (lower, higher) = p.interval(0.9)[0], p.unadjusted_interval(0.9)[0]
        covered, wide = covered + (low <= 0 <= high), wide + (lower <= 0 <= higher)
        width, wider = width + high - low, wider + higher - lower
    assert abs(covered / 300 - 0.9) < 0.057
    assert wide / 300 > 0.98
    assert wider > 2 * width


def test_predicted_width_is_met():
    """Mean realised width over 40 fits within 10% of the plan's (95% level, true spread)."""
    settings = {"epsilon": 2.0, "delta": 1e-4, "resample_size": 10, "replicates": 1000}
    plan = MOutOfNBootstrap(MEAN, **settings).plan(1000, spread=LAW.std() / 4)
    widths = [
        np.diff(MOutOfNBootstrap(MEAN, seed=seed, **settings).fit(sample(seed=seed)).posterior_.interval())[0, 0]
        for seed in range(40)
    ]
    assert abs(np.mean(widths) / plan.width - 1) < 0.1


def test_natural_splines_are_linear_at_the_ends_and_span_what_they_should():
    """Second derivatives vanish at both ends; a line is in the span; five independent columns."""
    x = np.linspace(-4, 4, 401)
    basis = natural_spline(x, 5)
    bend = np.diff(basis, 2, axis=0) / (x[1] - x[0]) ** 2
    assert np.abs(bend[[0, -1]]).max() < 0.02 * np.abs(bend).max()
    fitted = basis @ np.linalg.lstsq(basis, x, rcond=None)[0]
    assert np.abs(fitted - x).max() < 1e-10
    assert np.linalg.matrix_rank(basis) == 5


@pytest.mark.parametrize("ratio", [0.5, 1.0, 2.0])
def test_deconvolution_removes_the_noise(ratio):
    """Normal values, noise ``ratio`` times their spread, 3,000 of them: standard deviation within 4 errors,
    sd(S) = sqrt(2/B) (1 + ratio^2) / 2, and a mean within 4 sqrt((1 + ratio^2) / B)."""
    rng = np.random.default_rng(4)
    values = 5.0 + rng.normal(0, 1, 3000) + rng.normal(0, ratio, 3000)
    support, mass = deconvolve(values, ratio)
    mean = float(mass @ support)
    sd = math.sqrt(float(mass @ (support - mean) ** 2))
    spread = (1 + ratio**2) / math.sqrt(3000)
    assert abs(mean - 5.0) < 4 * math.sqrt((1 + ratio**2) / 3000)
    assert abs(sd - 1.0) < 4 * spread / math.sqrt(2)
    assert mass.sum() == pytest.approx(1.0)


def test_deconvolution_sees_two_modes():
    rng = np.random.default_rng(5)
    values = np.where(rng.random(5000) < 0.5, -2.0, 2.0) + rng.normal(0, 0.3, 5000) + rng.normal(0, 0.5, 5000)
    support, mass = deconvolve(values, 0.5)
    assert mass[np.abs(support) < 0.7].sum() < 0.5 * mass[np.abs(np.abs(support) - 2.0) < 0.7].sum()


def test_the_n_out_of_n_bootstrap_finds_the_sampling_law_of_a_mean():
    """Little noise (epsilon 200): sd of the draws within 4 errors of sqrt(Var / n), B = 400."""
    X = sample(2000, 3)
    p = DPBootstrap(MEAN, epsilon=200.0, delta=1e-4, replicates=400, seed=1).fit(X).posterior_
    noise = p._noise_sd
    truth = X.std() / math.sqrt(2000)
    error = 4 * math.sqrt(2 / 400) * (truth**2 + noise**2) / (2 * truth)
    assert abs(p.sd()[0] - truth) < error
    assert abs(p.mean()[0] - X.mean()) < 4 * math.hypot(truth, noise) / 20


def test_a_function_of_the_users_own_can_be_bootstrapped():
    trimmed = Custom(lambda r: np.clip(r[:, 0], -1, 1).mean(), 2.0, [(-1.0, 1.0)], names=["trimmed"])
    p = MOutOfNBootstrap(trimmed, epsilon=4.0, delta=1e-4, seed=1).fit(sample()).posterior_
    assert abs(p.mean()[0]) < 5 * p.sd()[0]


def test_an_asymptotic_epsilon_is_never_shown_as_a_bound():
    X = np.random.default_rng(0).uniform(0.0, 1.0, (1000, 1))
    claim = AsymptoticMOutOfNBootstrap(MEAN, mu=1.0, delta=1e-3, seed=1).fit(X).posterior_
    bound = MOutOfNBootstrap(MEAN, epsilon=1.0, delta=1e-3, seed=1).fit(X).posterior_
    assert "epsilon=" not in repr(claim)
    assert "asymptotic epsilon, no bound" in repr(claim)
    assert "not a bound" in claim.privacy.statement()
    assert "epsilon=1" in repr(bound) or "epsilon=0.99" in repr(bound)
