"""Private baselines: the noise that is added is the accountant's, and without noise each finds its known limit."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from pgbb_fast import PrivateHuberRegressor, PrivateMean, PrivateQuantileRegressor
from pgbb_fast.accountant import SubsampledGaussian, epsilon, noise_multiplier
from pgbb_fast.baselines import (
    DPSGLD,
    BaselineReport,
    NoisyGibbsMean,
    NoisyGibbsRegressor,
    NoisyNewton,
    SampledPosterior,
    newton,
    noisy_gibbs,
    sgld,
)
from pgbb_fast.baselines.solvers import huber_scale, minimise, quantile
from pgbb_fast.budget.baseline import calibrated, share_multiplier
from pgbb_fast.errors import DataError, DomainError, NotFittedError
from pgbb_fast.intake import records
from pgbb_fast.kernels import reference
from pgbb_fast.losses import huber, huber_fixed_scale, logistic, smoothed_quantile
from pgbb_fast.posteriors.base import Posterior
from pgbb_fast.release import hessian as curvature
from pgbb_fast.release.blocked import Keys
from pgbb_fast.silence import unseen
from tests.problems import PUBLIC, blocked_problem, gaussian_delta, regression

EXACT = 1e4         # an epsilon at which the accountant asks for (almost) no noise


def huber_model(**changes):
    return PrivateHuberRegressor(**{"epsilon": 1.0, "delta": 1e-5, "seed": 1, **PUBLIC, **changes})


def mean_model(**changes):
    return PrivateMean(**{"epsilon": 1.0, "delta": 1e-5, "seed": 1, "x_bounds": [(-1.0, 3.0)], **changes})


PLAIN = SubsampledGaussian(sampling_rate=1.0, steps=1, adjacency="replace-one")


@pytest.mark.parametrize("eps", [0.3, 1.0, 4.0])
def test_the_plans_have_the_accountants_noise(eps):
    wanted = noise_multiplier(PLAIN, epsilon=eps, delta=1e-5)
    for method in (
        NoisyNewton(huber_model(epsilon=eps)),
        NoisyGibbsRegressor(epsilon=eps, delta=1e-5, **PUBLIC),
        NoisyGibbsMean(epsilon=eps, delta=1e-5, x_bounds=[(0, 1)]),
        NoisyGibbsMean(epsilon=eps, delta=1e-5, x_bounds=[(0, 1)], family="exponential"),
    ):
        report = method.plan(1000)
        assert abs(report.mechanism.noise_multiplier - wanted) <= 1e-9 * wanted
        assert report.epsilon == epsilon(report.mechanism, delta=1e-5) <= eps
        # independent truth: the closed form, with mu = 2 / multiplier under replace-one
        assert gaussian_delta(2 / wanted, eps) <= 1e-5
        assert gaussian_delta(2 / (wanted * (1 - 1e-3)), eps) > 1e-5
    chain = DPSGLD(huber_model(epsilon=eps), steps=300, sampling_rate=0.1).plan(1000)
    alone = SubsampledGaussian(sampling_rate=chain.mechanism.sampling_rate, steps=300, adjacency="replace-one")
    assert abs(chain.mechanism.noise_multiplier - noise_multiplier(alone, epsilon=eps, delta=1e-5)) <= 1e-9
    assert 0 <= 0.1 - chain.mechanism.sampling_rate < 2**-32


class Recorder:
    """Stands in for a release function and keeps what went in and out."""

    def __init__(self, monkeypatch, module, name):
        self.real, self.calls = getattr(module, name), []
        monkeypatch.setattr(module, name, self)

    def __call__(self, *args):
        result = self.real(*args)
        self.calls.append((*args, result))
        return result


@pytest.mark.parametrize("rules", [1, 3])
def test_sgld_adds_the_planned_noise(monkeypatch, rules):
    """Every slope is zero for tau = 1/2 and records at the centre; with three levels the noise grows by sqrt(3)."""
    seen = Recorder(monkeypatch, sgld, "release_step")
    tau = [0.5] if rules == 1 else [0.25, 0.5, 0.75]
    model = PrivateQuantileRegressor(tau=tau, epsilon=1.0, delta=1e-5, seed=3, x_bounds=[(-1, 1)], y_bounds=(-1, 1))
    method = DPSGLD(model, steps=20, sampling_rate=1.0).fit(np.zeros((500, 1)), np.zeros(500))
    planned = method.privacy_.mechanism.noise_multiplier
    C = max(tau) * math.sqrt(2) if rules > 1 else 0.5 * math.sqrt(2)
    key = Keys.fresh(3).secret
    assert [call[2] for call in seen.calls] == list(range(20))
    for problem, _, step, theta, *_, released in seen.calls:
        z = reference.normals(key, step, rules * 2).reshape(rules, 2)
        noise = z * (planned * math.sqrt(rules) * C / 500)
        h = problem.loss.constants[0][1]
        slope = stats.norm.cdf(theta[:, 0] / h) - np.array(tau)
        # the kernel's cdf is within 1e-7, its grid is 2^-22 of C; the slopes of a feature at 0 are exactly 0
        np.testing.assert_allclose(released[:, 0] - slope, noise[:, 0], atol=2e-6)
        np.testing.assert_allclose(released[:, 1], noise[:, 1], atol=2**-32 * C / 500 + 1e-9 * np.abs(noise).max())


def test_newtons_releases_add_up_to_the_budget(monkeypatch):
    names = ("release_step", "release_curvature", "release_moment")
    seen = {name: Recorder(monkeypatch, newton, name) for name in names}
    method = NoisyNewton(PrivateQuantileRegressor(tau=[0.2, 0.5], epsilon=1.0, delta=1e-5, seed=1, **PUBLIC))
    method.fit(*regression(2000))
    whole = noise_multiplier(PLAIN, epsilon=1.0, delta=1e-5)
    multipliers = [call[0].noise_multiplier for call in seen["release_step"].calls]
    multipliers += [call[5] for call in seen["release_curvature"].calls]
    multipliers += [call[0].moment_multiplier for call in seen["release_moment"].calls]
    assert len(multipliers) == 2 * 21
    assert abs(sum(m**-2 for m in multipliers) ** -0.5 - whole) <= 1e-9 * whole
    assert sum(m**-2 for m in multipliers) <= whole**-2
    streams = [call[2] for call in seen["release_step"].calls] + [call[2] for call in seen["release_curvature"].calls]
    streams += [call[0].steps for call in seen["release_moment"].calls]
    assert len(set(streams)) == len(streams)        # no noise is used twice
    for call in seen["release_step"].calls:         # a level's own clip: max(tau, 1 - tau) |(1, x)|
        tau = call[0].loss.rules[0]
        assert call[0].clip == pytest.approx(max(tau, 1 - tau) * math.sqrt(3), rel=1e-12)


def single_problem(loss, x, y, clip=1.0):
    once = {"gamma": 1.0, "sampling_threshold": 2**32, "noise_multiplier": 1.0, "draws_per_step": 1, "steps": 1}
    return blocked_problem(x, y, np.zeros(len(x), dtype=np.uint8), loss, 1, clip=clip, **once)


@pytest.mark.parametrize(
    ("loss", "theta"),
    [
        (huber(), [0.1, 0.3, -0.2, 0.4]),
        (smoothed_quantile([0.3], 0.2), [0.1, 0.3, -0.2]),
        (smoothed_quantile([0.3], 0.2, "logistic"), [0.1, 0.3, -0.2]),
        (logistic(), [0.1, 0.3, -0.2]),
    ],
)
def test_the_curvature_release(loss, theta):
    """The Hessian of the reference's slopes by differences, the planned noise, and a bound that records keep to."""
    rng = np.random.default_rng(5)
    x = rng.uniform(-1, 1, (300, 2)).astype(np.float32)
    y = rng.uniform(-1, 1, 300)
    y = (y < 0.2 if loss.kernel == "logistic" else y).astype(np.float32)
    theta = np.array(theta)
    problem, keys = single_problem(loss, x, y), Keys.fresh(2)
    design = np.column_stack([np.ones(300), x.astype(float)])

    def gradient(t):
        slopes = reference.REGRESSION_SLOPES[loss.kernel]
        slope, by_scale = slopes(y.astype(float), design @ t[:3], t[-1], *loss.constants[0])
        return np.append(slope @ design, by_scale.sum() if loss.has_scale else [])[: len(t)] / 300

    e, d = 1e-6, len(theta)
    exact = np.array([(gradient(theta + e * row) - gradient(theta - e * row)) / (2 * e) for row in np.eye(d)])
    bound = loss.root_bound(math.sqrt(3), theta)
    exactly, error = curvature.release_curvature(problem, keys, 7, theta, math.sqrt(3), 1e-9)
    np.testing.assert_allclose(exactly, exact, atol=3e-6 * bound)        # SAFE is 1 - 1e-6; kinks are far from records
    noisy, error = curvature.release_curvature(problem, keys, 7, theta, math.sqrt(3), 5.0)
    upper = np.triu_indices(d)
    z = reference.normals(keys.secret, 7, len(upper[0]))
    sd = 5.0 * bound / (300 * math.sqrt(2))
    assert error == pytest.approx(sd, rel=1e-12)
    planned = z * np.where(upper[0] == upper[1], sd, sd / math.sqrt(2))
    np.testing.assert_allclose((noisy - exactly)[upper], planned, atol=1e-8 * sd)
    corners = np.array([[a, b] for a in (-1.0, 1.0) for b in (-1.0, 1.0)])
    everywhere = np.linspace(-3, 3, 601)
    for corner in corners:      # no record of the unit box has a longer root
        D = np.tile(np.append(1.0, corner), (601, 1))
        y_all = everywhere + D @ theta[:3]
        assert (loss.hessian_roots(D, y_all, theta) ** 2).sum(axis=1).max() <= bound * (1 + 1e-12)


def test_gibbs_moments_have_the_planned_noise(monkeypatch):
    seen = Recorder(monkeypatch, noisy_gibbs, "release_moment")
    n = 400
    X, y = np.column_stack([np.zeros(n), np.full(n, 2.5)]), np.zeros(n)      # the centre of the bounds
    method = NoisyGibbsRegressor(epsilon=1.0, delta=1e-5, iterations=100, seed=4, **PUBLIC).fit(X, y)
    (*_, (moment, noise)) = seen.calls[0]
    planned = method.privacy_.mechanism.noise_multiplier * 4 / (n * math.sqrt(2))       # |v|^2 <= 4
    assert noise[0] == pytest.approx(planned, rel=1e-12)
    upper = np.triu_indices(4)
    z = reference.normals(Keys.fresh(4).secret, 1, 10) * np.where(upper[0] == upper[1], planned, planned / math.sqrt(2))
    z[0] += 1.0
    z[0] -= 2.0**-20        # the kernel's products are that much short
    np.testing.assert_allclose(moment[upper], z, atol=1e-8 * planned + 2.0**-32)


def test_exponential_gibbs_has_the_planned_noise(monkeypatch):
    seen = Recorder(monkeypatch, noisy_gibbs, "release_step")
    method = NoisyGibbsMean(epsilon=1.0, delta=1e-5, family="exponential", x_bounds=[(0, 8)], iterations=1000, seed=4)
    method.fit(np.full((300, 1), 4.0))
    planned = method.privacy_.mechanism.noise_multiplier / 300
    z = reference.normals(Keys.fresh(4).secret, 0, 1)[0]
    assert seen.calls[0][-1][0, 0] == pytest.approx(planned * z, rel=1e-8)


def test_shares():
    whole, _ = calibrated(PLAIN, budget_epsilon=1.0, budget_delta=1e-5)
    assert share_multiplier(whole, (0.25, 0.75), 0) == pytest.approx(2 * whole.noise_multiplier, rel=1e-11)
    for bad in ((0.5, 0.6), (1.0, -0.1), (math.nan, 0.1)):
        with pytest.raises(DomainError, match="shares"):
            share_multiplier(whole, bad, 0)
    with pytest.raises(DomainError, match="plain"):
        share_multiplier(replace(whole, steps=2), (0.5,), 0)


# --- limits without noise


@pytest.mark.slow
def test_sgld_on_a_quadratic_has_its_stationary_law():
    """theta <- (1 - h) theta + h xbar + sqrt(2 h t) xi has the law N(xbar, t / (1 - h / 2)), autocorrelation (1 - h)^k.

    60,000 kept steps at h = 0.2 are about 6,700 independent ones for the mean and 13,200 for the variance; 4.5
    standard errors, a false alarm of 7e-6 each.
    """
    x = np.random.default_rng(0).normal(1.0, 0.5, (400, 1))
    method = DPSGLD(mean_model(epsilon=EXACT), omega=4.0, steps=120_000, sampling_rate=1.0, step_size=0.2).fit(x)
    draws = method.posterior_.sample[:, 0]
    h, variance = 0.2, 1 / (4.0 * 400) / (1 - 0.1)
    thin = 60_000 // len(draws)
    rho = (1 - h) ** thin
    for_mean, for_variance = len(draws) * (1 - rho) / (1 + rho), len(draws) * (1 - rho**2) / (1 + rho**2)
    inside = np.clip(x, -1, 3)
    assert abs(draws.mean() - inside.mean()) < 4.5 * math.sqrt(variance / for_mean)
    assert abs(draws.var() / variance - 1) < 4.5 * math.sqrt(2 / for_variance)


@pytest.mark.slow
def test_sgld_counts_privacy_noise_as_langevin_noise():
    """With noise sigma in the gradient and h (h sigma^2 <= 2 t) the law is the same as without: t / (1 - h / 2)."""
    x = np.zeros((2000, 1))
    method = DPSGLD(mean_model(epsilon=20.0), omega=1.0, steps=100_000, sampling_rate=1.0, step_size=0.02).fit(x)
    sigma = method.privacy_.mechanism.noise_multiplier / 2000       # x - 1 in [-2, 2]: unit of radius 2, C = 1
    temperature = 1 / (4.0 * 2000)          # natural loss is 4 times the unit one
    assert 0.02 * sigma**2 < 2 * temperature
    draws = method.posterior_.sample[:, 0] / 2.0
    assert (0.02 * sigma) ** 2 > 0.1 * 2 * 0.02 * temperature       # there is something to count
    rho = 0.98 ** (50_000 // len(draws))
    effective = len(draws) * (1 - rho**2) / (1 + rho**2)
    assert abs(draws.var() / (temperature / 0.99) - 1) < 4.5 * math.sqrt(2 / effective)


@pytest.mark.slow
def test_noisy_gibbs_regression_tends_to_the_conjugate_posterior():
    """Jointly normal (x, y) with a weak inverse Wishart prior: given the records, slopes follow the usual Student law
    about least squares.  10,000 kept draws at epsilon = 1e4 (nearly independent): 5% of a standard deviation is seven
    standard errors."""
    X, y = regression(3000)
    method = NoisyGibbsRegressor(epsilon=EXACT, delta=1e-5, iterations=40_000, seed=1, **PUBLIC)
    sample = method.fit(X, y).posterior_.sample
    D = np.column_stack([np.ones(3000), X])
    beta, rss, *_ = np.linalg.lstsq(D, y, rcond=None)
    sd = np.sqrt(np.diag(np.linalg.inv(D.T @ D)) * rss / (3000 - 3))
    np.testing.assert_allclose(sample.std(axis=0) / sd, 1.0, atol=0.05)
    np.testing.assert_allclose((sample.mean(axis=0) - beta) / sd, 0.0, atol=0.08)


@pytest.mark.slow
def test_noisy_gibbs_means_tend_to_the_conjugate_posteriors():
    rng = np.random.default_rng(2)
    x = rng.normal(1.5, 0.5, (500, 1))
    sample = NoisyGibbsMean(epsilon=EXACT, delta=1e-5, x_bounds=[(-1, 4)], seed=1).fit(x).posterior_.sample[:, 0]
    assert abs(sample.mean() - x.mean()) < 0.05 * x.std() / math.sqrt(500)
    assert abs(sample.std() / (x.std(ddof=1) / math.sqrt(499 - 2)) - 1) < 0.04
    x = rng.exponential(2.0, (500, 1))
    sample = NoisyGibbsMean(epsilon=EXACT, delta=1e-5, x_bounds=[(0, 40)], family="exponential", seed=1).fit(x)
    truth = stats.invgamma(501, scale=x.sum())
    assert stats.kstest(sample.posterior_.sample[::5, 0], truth.cdf).pvalue > 1e-4


def test_normal_gibbs_at_heavy_noise_has_the_marginal_law():
    """With the covariance known to the data and noise that dominates, mean | release ~ N(noisy mean, noise^2 + v / n),
    flat prior: the latent mean integrated out."""
    x = np.random.default_rng(3).normal(0.3, 0.1, (2000, 1))
    method = NoisyGibbsMean(epsilon=1.0, delta=1e-5, x_bounds=[(-1, 1)], iterations=400_000, seed=6).fit(x)
    noise = method.privacy_.mechanism.noise_multiplier / 2000
    assert noise > 1.5 * 0.1 / math.sqrt(2000)
    sd = method.posterior_.sd(size=10_000)[0]
    assert abs(sd / math.hypot(noise, 0.1 / math.sqrt(2000)) - 1) < 0.15


@pytest.mark.slow
@pytest.mark.parametrize("levels", [None, (0.2, 0.5, 0.9)])
def test_newton_tends_to_the_exact_fit_with_the_usual_sandwich(levels):
    X, y = regression(4000)
    D = np.column_stack([np.ones(4000), X])
    one = np.full((1, 4000), 1 / 4000)
    if levels is None:
        model = huber_model(epsilon=EXACT)
        theta = minimise(huber_scale(1.345, 0.71), D, y, one, np.array([0.0, 0.0, 0.0, 1.0]))
        z = (y - D @ theta[0, :3]) / theta[0, 3]
        psi = np.clip(z, -1.345, 1.345)
        scores = [np.column_stack([-psi[:, None] * D, 0.355 - psi**2 / 2])]
        V = np.column_stack([D, z]) * (np.abs(z) < 1.345)[:, None]
        hessians = [V.T @ V / (4000 * theta[0, 3])]
    else:
        h = 0.3
        model = PrivateQuantileRegressor(tau=levels, bandwidth=h, epsilon=EXACT, delta=1e-5, seed=1, **PUBLIC)
        theta = np.vstack([minimise(quantile(tau, h), D, y, one, np.zeros(3)) for tau in levels])
        r = [y - D @ t for t in theta]
        scores = [(stats.norm.cdf(-e / h) - tau)[:, None] * D for e, tau in zip(r, levels, strict=True)]
        hessians = [D.T @ (D * stats.norm.pdf(e / h)[:, None]) / (4000 * h) for e in r]
    sample = NoisyNewton(model).fit(X, y).posterior_.sample.reshape(10_000, len(theta), -1)
    for j, (t, g, H) in enumerate(zip(theta, scores, hessians, strict=True)):
        inverse = np.linalg.inv(H)
        sandwich = np.sqrt(np.diag(inverse @ (g.T @ g / 4000) @ inverse) / 4000)
        # 10,000 normal draws: a mean is off by 1% of a standard deviation, that by 0.7% of itself; 5 of each
        np.testing.assert_allclose((sample[:, j].mean(axis=0) - t) / sandwich, 0.0, atol=0.06)
        np.testing.assert_allclose(sample[:, j].std(axis=0) / sandwich, 1.0, atol=0.04)


@pytest.mark.parametrize("loss", ["squared", "exponential"])
def test_newton_finds_means(loss):
    x = np.minimum(np.random.default_rng(1).exponential(2.0, (3000, 1)), 20.0)
    options = {"loss": "exponential", "clip": 150.0, "coef_bounds": [(0.5, 20.0)]} if loss == "exponential" else {}
    model = PrivateMean(epsilon=EXACT, delta=1e-5, x_bounds=[(0, 20)], seed=1, **options)
    sample = NoisyNewton(model).fit(x).posterior_.sample[:, 0]
    sd = x.std() / math.sqrt(3000)
    assert abs(sample.mean() - x.mean()) < 0.06 * sd
    assert abs(sample.std() / sd - 1) < 0.04


# --- the contract


METHODS = {
    "sgld": lambda: DPSGLD(huber_model(), steps=50),
    "newton": lambda: NoisyNewton(huber_model()),
    "gibbs": lambda: NoisyGibbsRegressor(epsilon=1.0, delta=1e-5, iterations=200, seed=1, **PUBLIC),
}


@pytest.mark.parametrize("name", METHODS)
def test_the_contract(name, tmp_path):
    method = METHODS[name]()
    with pytest.raises(NotFittedError):
        _ = method.posterior_
    assert method.fit(*regression(500)) is method
    posterior = method.posterior_
    assert isinstance(posterior, SampledPosterior)
    assert isinstance(method.privacy_, BaselineReport)
    assert method.privacy_ == method.plan(500)
    assert method.privacy_.epsilon <= 1.0
    assert "differential privacy" in method.privacy_.statement()
    names = ("intercept", "x1", "x2") + (() if name == "gibbs" else ("scale",))
    assert posterior.names == names
    assert posterior.summary().rows[0].privacy_sd is None
    loaded = Posterior.load(posterior.save(tmp_path))
    np.testing.assert_array_equal(loaded.draws(20), posterior.draws(20))
    assert loaded.privacy == posterior.privacy
    again = METHODS[name]().fit(*regression(500)).posterior_
    np.testing.assert_array_equal(again.sample, posterior.sample)


@pytest.mark.parametrize("name", METHODS)
def test_nothing_is_read_before_everything_public_is_settled(name, monkeypatch):
    X, y = regression(50)
    with pytest.raises(DataError, match="nan"):
        METHODS[name]().fit(X, np.full(50, np.nan))

    def touched(*args, **kwargs):
        raise AssertionError("a record was touched")

    monkeypatch.setattr(records, "_require_finite", touched)
    for bad in (X[:, :1], X.ravel()):
        with pytest.raises(DataError):
            METHODS[name]().fit(bad, y)
    with pytest.raises(AssertionError, match="touched"):
        METHODS[name]().fit(X, y)


def test_draws_at_levels_that_were_not_fitted_are_refused():
    model = PrivateQuantileRegressor(tau=[0.2, 0.8], epsilon=1.0, delta=1e-5, seed=1, **PUBLIC)
    posterior = NoisyNewton(model).fit(*regression(500)).posterior_
    assert posterior.draws(5, rules=[0.8]).shape == (5, 1, 3)
    assert posterior.draws(20_000).shape == (20_000, 2, 3)
    with pytest.raises(DomainError, match="levels"):
        posterior.draws(5, rules=[0.5])


@pytest.mark.parametrize(
    ("build", "word"),
    [
        (lambda: DPSGLD("huber"), "estimator"),
        (lambda: DPSGLD(huber_model(), omega=0.0), "omega"),
        (lambda: DPSGLD(huber_model(), omega=math.nan), "omega"),
        (lambda: DPSGLD(huber_model(), steps=1), "steps"),
        (lambda: DPSGLD(huber_model(), sampling_rate=2.0), "sampling_rate"),
        (lambda: DPSGLD(huber_model(), step_size=-1.0), "step_size"),
        (lambda: NoisyNewton(None), "estimator"),
        (lambda: NoisyNewton(huber_model(), steps=2), "steps"),
        (lambda: NoisyGibbsRegressor(epsilon=0.0, delta=1e-5, **PUBLIC), "epsilon"),
        (lambda: NoisyGibbsRegressor(epsilon=1.0, delta=2.0, **PUBLIC), "delta"),
        (lambda: NoisyGibbsRegressor(epsilon=1.0, delta=1e-5, x_bounds=None, y_bounds=(0, 1)), "x_bounds"),
        (lambda: NoisyGibbsMean(epsilon=1.0, delta=1e-5, x_bounds=[(0, 1)], family="gamma"), "family"),
        (lambda: NoisyGibbsMean(epsilon=1.0, delta=1e-5, x_bounds=[(0, 1)], iterations=10), "iterations"),
    ],
)
def test_bad_settings(build, word):
    with pytest.raises(DomainError, match=word):
        build()


def test_the_exponential_family_needs_a_lower_bound_of_zero():
    method = NoisyGibbsMean(epsilon=1.0, delta=1e-5, x_bounds=[(1, 2)], family="exponential")
    with pytest.raises(DomainError, match="exponential"):
        method.fit(np.ones((10, 1)))


def test_a_loss_of_unknown_unit_is_refused():
    class Fixed(PrivateHuberRegressor):
        _scale = False

        def _loss(self, n, p, reach):
            return huber_fixed_scale(0.5)

    with pytest.raises(DomainError, match="unit"):
        DPSGLD(Fixed(epsilon=1.0, delta=1e-5, **PUBLIC), steps=10).fit(*regression(50))


def test_a_root_that_is_not_finite_counts_as_zero():
    """Whatever a root is, one record moves the curvature's sum by at most its bound: nan and infinities by none."""
    x, y = np.full((40, 1), 0.5, dtype=np.float32), np.linspace(-1, 1, 40).astype(np.float32)
    theta, bound = np.array([0.1, 0.2, 0.5]), math.sqrt(2)
    loss, found = huber(), []
    roots = type(loss).hessian_roots
    for value in (0.0, math.nan, math.inf, 1e200):

        def strange(self, design, y, theta, value=value):
            out = roots(self, design, y, theta)
            out[3] = value
            return out

        with unseen(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(loss), "hessian_roots", strange)
            problem = single_problem(loss, x, y)
            released, _ = curvature.release_curvature(problem, Keys.fresh(1), 0, theta, bound, 1e-6)
        found.append(released)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])
    assert np.isfinite(found[3]).all()


def test_a_loss_too_sharp_for_a_curvature_is_refused_before_records_are_read(monkeypatch):
    monkeypatch.setattr(records, "_require_finite", None)
    model = PrivateQuantileRegressor(epsilon=1.0, delta=1e-5, bandwidth=1e-150, **PUBLIC)
    method = NoisyNewton(model)
    with pytest.raises(DomainError, match="too sharp"):
        method.fit(*regression(50))
    assert method.spent_ == ()
