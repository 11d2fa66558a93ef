"""The noise-aware posterior: its least squares, its score moment, its spread and its coverage."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pgbb_fast import PrivateHuberRegressor, PrivateMean, losses
from pgbb_fast.budget.report import MIN_MULTIPLIER, PASSES, outward
from pgbb_fast.coordinates import AffineMap
from pgbb_fast.estimators.base import ASK_RATE
from pgbb_fast.kernels import cpu, reference
from pgbb_fast.kernels.arguments import Draws, Records
from pgbb_fast.local import model as noise_aware
from pgbb_fast.local.curvature import Hessian
from pgbb_fast.local.exploration import Exploration, explore
from pgbb_fast.local.model import LocalPosterior, Scores, local_posteriors, scores_posterior
from pgbb_fast.local.prior import Prior
from pgbb_fast.local.statistics import ReleaseStatistics
from pgbb_fast.posteriors.noise_aware import NoiseAwarePosterior
from pgbb_fast.release import blocked as releases
from pgbb_fast.release.blocked import Keys, Problem, release_design, release_moment
from pgbb_fast.release.blocks import dirichlet, gamma_star, partition
from tests.problems import blocked_problem

S = 6
WIDE = np.array([[-1e4, 1e4]] * 2)


def problem(n: int = 600, seed: int = 0, loss: losses.Loss | None = None, **changes) -> Problem:
    rng = np.random.default_rng(seed)
    x, y, block = rng.uniform(-1, 1, (n, 2)), rng.normal(0, 0.3, n), partition(n, S, np.random.default_rng(1))
    settings = {
        "gamma": gamma_star(n=n, n_blocks=S), "clip": 1.5, "sampling_threshold": 2**31, "noise_multiplier": 1.0,
        "draws_per_step": 1, "steps": 400,
    }  # fmt: skip
    return blocked_problem(x, y, block, loss or losses.huber(), S, **{**settings, **changes})


def synthetic(segments: int, per: int, seed: int = 0):
    """Releases of an exactly linear model with known slope, zero and scores, and their statistics."""
    rng = np.random.default_rng(seed)
    d = 3
    hessian = np.array([[2.0, 0.3, 0.1], [0.3, 1.0, -0.2], [0.1, -0.2, 0.5]])
    zero, scores = np.array([0.2, -0.1, 0.3]), rng.normal(size=(S, d))
    scores -= scores.mean(axis=0)
    middle = np.array([0.1, 0.0, 0.0])
    statistics = ReleaseStatistics(1, segments, middle, S)
    rows = []
    for segment in range(segments):
        theta = zero + 0.05 * segment + 0.1 * rng.normal(size=(per, d))
        u = dirichlet(per, S, 0.8, rng)
        noise = 0.01 * rng.normal(size=(per, d))
        g = (theta - zero) @ hessian - (u[:, :S] - 1 / S) @ scores + noise
        statistics.add(segment, np.zeros(per, dtype=np.int64), theta, u, g)
        rows.append((theta, u[:, :S] - 1 / S, g))
    return statistics, rows, hessian, zero, scores


def test_pooled_fit_is_ordinary_least_squares():
    statistics, rows, hessian, zero, _ = synthetic(4, 200)
    theta, u, g = (np.concatenate(part) for part in zip(*rows, strict=True))
    centre = theta.mean(axis=0)
    design = np.column_stack([np.ones(len(theta)), theta - centre, u[:, :-1]])  # the last weight is redundant
    truth = np.linalg.lstsq(design, g, rcond=None)[0]
    fit = statistics.fit(0, np.ones(4), with_scores=True)
    assert np.allclose(fit.centre, centre, rtol=0, atol=1e-12)
    assert np.allclose(fit.hessian, (truth[1:4] + truth[1:4].T) / 2, rtol=0, atol=1e-6)
    at_mean_weights = truth[0]
    assert np.allclose(fit.gradient, at_mean_weights, rtol=0, atol=1e-6)
    residual = g - design @ truth
    # the ridge, 1e-9, moves the explained part, which is 1e3 times the residual one
    truth = residual.T @ residual / (len(theta) - design.shape[1])
    assert np.allclose(fit.residual, truth, rtol=0, atol=2e-6 * np.diag(truth).max())
    assert np.abs(fit.hessian - hessian).max() < 5 * 0.01 / (0.1 * math.sqrt(800))
    assert np.abs(fit.centre - np.linalg.solve(fit.hessian, fit.gradient) - zero).max() < 0.01


def test_scores_are_the_block_scores():
    statistics, _, _, _, scores = synthetic(4, 400)
    fit = statistics.fit(0, np.ones(4), with_scores=True)
    sd = 0.01 * math.sqrt(fit.scores_spread)
    assert np.abs(fit.scores - scores).max() < 5 * sd
    assert np.abs(fit.scores.sum(axis=0)).max() < 1e-10


def test_fit_within_segments_is_least_squares_with_a_dummy_for_each():
    statistics, rows, *_ = synthetic(5, 80)
    theta, _, g = (np.concatenate(part) for part in zip(*rows, strict=True))
    dummies = np.kron(np.eye(5), np.ones((80, 1)))
    truth = np.linalg.lstsq(np.column_stack([dummies, theta]), g, rcond=None)[0][5:]
    location = np.array([0, 0, 1.0, 1, 1])
    fit = statistics.fit(0, np.ones(5), location=location)
    assert np.allclose(fit.hessian, (truth + truth.T) / 2, rtol=0, atol=1e-6)
    late = slice(160, 400)
    assert np.allclose(fit.centre, theta[late].mean(axis=0), rtol=0, atol=1e-12)
    assert np.allclose(fit.gradient, g[late].mean(axis=0), rtol=0, atol=1e-12)
    assert fit.count == 240


@pytest.mark.parametrize("loss", sorted([*reference.MOMENT_SLOPES, *reference.LOCATION_SLOPES]))
@pytest.mark.parametrize("K", [1, 3])
def test_moment_kernel_equals_reference(loss, K):
    rng = np.random.default_rng(2)
    n, p = 1_003, 3
    location = loss in reference.LOCATION_SLOPES
    d = p if location else p + 1 + (loss == "huber_concomitant")
    theta = np.abs(rng.normal(0, 0.5, (K, d))) + 0.2
    records = Records(
        rng.uniform(0, 1, (n, p)).astype(np.float32),
        rng.integers(0, 2, n).astype(np.float32),
        rng.integers(0, S + 1, n).astype(np.int32),
    )
    draws = Draws(theta, np.zeros((K, S + 1)), np.tile([0.6, 0.35], (K, 1)))
    want = reference.score_moments(loss, True, records, draws, 0.7)
    got = cpu.score_moments(loss, True, records, draws, 0.7)
    assert np.array_equal(got, got.T)
    # a product's rounding moves its truncation by at most one grid point, and rarely
    assert np.abs(got - want).max() <= 3 + n // 256


@given(data=st.data())
def test_replacing_a_record_moves_the_moment_by_at_most_the_stated_sensitivity(data):
    """|V - V'|_F <= sqrt(2) in units of L C^2, whatever the record."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**20)))
    extreme = st.floats(-1e6, 1e6, width=32)
    x, y = rng.uniform(-1, 1, (30, 2)).astype(np.float32), rng.normal(size=30).astype(np.float32)
    block = np.resize(np.arange(S), 30).astype(np.int32)
    draws = Draws(rng.normal(0, 1, (2, 3)), np.zeros((2, S + 1)), np.tile([0.5, 0.2], (2, 1)))
    bound = data.draw(st.sampled_from([1e-2, 1.0, 30.0]))
    a = cpu.score_moments("huber_fixed", True, Records(x, y, block), draws, bound)
    x[4], y[4] = [data.draw(extreme) for _ in range(2)], data.draw(extreme)
    b = cpu.score_moments("huber_fixed", True, Records(x, y, block), draws, bound)
    assert np.linalg.norm((a - b).astype(float)) <= math.sqrt(2) * 2**32


def test_moment_noise_has_the_stated_variance():
    """Weighted by the Frobenius norm's counting, the noise is isotropic; chi-square, false alarm 1e-6, seeds fixed."""
    quiet = problem(60, moment_multiplier=0.0, loss=losses.smoothed_quantile([0.3, 0.6], 0.1))
    noisy = problem(60, moment_multiplier=2.5, loss=losses.smoothed_quantile([0.3, 0.6], 0.1))
    theta = np.zeros((2, 3))
    base = release_moment(quiet, Keys.fresh(0), theta)[0]
    total, count = 0.0, 0
    for seed in range(200):
        moment, sd = release_moment(noisy, Keys.fresh(seed), theta)
        error = moment - base
        total += float((error**2).sum()) / sd[0, 0] ** 2  # the norm counts off-diagonal entries twice
        count += 6 * 7 // 2
    assert stats.chi2.ppf(5e-7, count) < total < stats.chi2.isf(5e-7, count)
    # half the sensitivity is sqrt(2) L C^2 / 2, over n'
    assert np.allclose(sd, 2.5 * 2 * 1.5**2 / math.sqrt(2) / 60, rtol=1e-12, atol=0)


def test_the_features_moment_is_that_of_the_records_that_take_part():
    """Without noise: exact to the grid, half a unit of 2^-32 (and the safety 2^-20) for each record."""
    case = problem(605, moment_multiplier=0.0, design_bound=math.sqrt(3.0), block_size=100)
    moment, noise = release_design(case, Keys.fresh(0), 3)
    part = case.records.block < S
    v = np.column_stack([np.ones(605), case.records.x.astype(np.float64)])[part]
    assert part.sum() == 600
    assert np.allclose(moment, v.T @ v / 600, rtol=0, atol=3.0 * (2.0**-20 + 2.0**-32))
    assert noise == 0.0


def test_the_features_moment_has_noise_of_its_own():
    """Isotropic in the Frobenius norm with the stated size, and independent of the score moment's: chi-square and
    normal bounds with false alarm 1e-6 each, seeds fixed."""
    loss = losses.smoothed_quantile([0.4], 0.1)
    settings = {"design_bound": math.sqrt(3.0), "loss": loss}
    quiet, noisy = problem(60, moment_multiplier=0.0, **settings), problem(60, moment_multiplier=2.5, **settings)
    theta = np.zeros((1, 3))
    base = release_design(quiet, Keys.fresh(0), 3)[0], release_moment(quiet, Keys.fresh(0), theta)[0]
    total, product, count = 0.0, 0.0, 0
    for seed in range(200):
        moment, sd = release_design(noisy, Keys.fresh(seed), 3)
        scores, scores_sd = release_moment(noisy, Keys.fresh(seed), theta)
        error = (moment - base[0]) / sd
        total += float((error**2).sum())
        product += float((error * (scores - base[1])).sum() / scores_sd[0, 0])
        count += 6
    assert stats.chi2.ppf(5e-7, count) < total < stats.chi2.isf(5e-7, count)
    assert abs(product) < 4.9 * math.sqrt(count)
    assert sd == pytest.approx(2.5 * 3.0 / math.sqrt(2) / 60, rel=1e-12)


def test_sampling_factor_is_the_blocked_bootstraps_variance():
    """Variance of the blocked bootstrap mean, averaged over partitions, is v times the records' variance (finite-
    population factor n/(n-1)); 4,000 partitions, 5 standard errors."""
    n = 60
    rng = np.random.default_rng(3)
    x = rng.normal(size=n)
    case = problem(n)
    gamma = case.gamma
    weight = (S - 1) / (S**2 * (S * gamma + 1))
    values = []
    for _ in range(4_000):
        block = partition(n, S, rng)
        means = np.array([x[block == s].mean() for s in range(S)])
        # Var(sum_s u_s m_s) = Var(u) S/(S-1) sum (m_s - mean)^2
        values.append(weight * S / (S - 1) * ((means - means.mean()) ** 2).sum())
    values = np.array(values)
    expected = case.sampling_factor * x.var() * n / (n - 1)
    assert abs(values.mean() - expected) < 5 * values.std() / math.sqrt(len(values))
    assert case.sampling_factor * n == pytest.approx((n - 1) / (n + 1), rel=1e-12)


def test_draws_of_the_moment_have_the_stated_law():
    """Mean and variance of entries of W over 40,000 draws, 5 standard errors; roots square to symmetric matrices."""
    basis = np.diag([1.0, 2.0])
    mean, sd = np.array([[4.0, 0.5], [0.5, 3.0]]), np.array([[0.2, 0.1], [0.1, 0.15]])
    scores = Scores(basis, mean, sd)
    roots = scores.draw_roots(40_000, np.random.default_rng(4))
    inner = np.linalg.inv(basis) @ (roots @ roots.transpose(0, 2, 1)) @ np.linalg.inv(basis).T
    assert np.abs(inner - inner.transpose(0, 2, 1)).max() < 1e-12
    assert (np.abs(inner.mean(axis=0) - mean) < 5 * sd / 200).all()
    assert (np.abs(inner.var(axis=0) / sd**2 - 1) < 5 * math.sqrt(2 / 40_000)).all()


def test_scores_are_drawn_with_their_second_moment():
    """M known: covariance over 40,000 draws within 5 standard errors, whatever the number of different roots."""
    moment = np.array([[4.0, 0.5], [0.5, 3.0]])
    draws = Scores(np.eye(2), moment, np.zeros((2, 2))).draw(40_000, np.random.default_rng(4))
    scale = np.sqrt(np.outer(np.diag(moment), np.diag(moment)))
    assert (np.abs(draws.T @ draws / 40_000 - moment) < 5 * scale * math.sqrt(2 / 40_000)).all()


def _local(hessian: np.ndarray, omega: float = 0.0, spread: float = 0.0, count: float = 100.0) -> LocalPosterior:
    d = len(hessian)
    error, none = np.full((d, d), spread), np.full((d, d), np.inf)
    known = Hessian(np.linalg.cholesky(hessian), np.eye(d), error, none, np.ones(d))
    return LocalPosterior(np.zeros(d), np.zeros(d), known, (omega + 1e-18) * np.eye(d), count, 1.0)


def test_a_precise_measurement_of_the_moment_is_kept_and_a_useless_one_gives_the_prior():
    hessian = np.array([[2.0, 0.4], [0.4, 0.5]])
    moment = np.array([[0.3, 0.1], [0.1, 0.2]])
    case = problem()
    kept = scores_posterior(moment, np.array([[1e-9]]), case, [_local(hessian)])
    assert np.allclose(kept.moment, moment, rtol=1e-6, atol=0)
    # with noise far above M in every direction the shape is H's, and each variance is as uncertain as the prior says
    vague = scores_posterior(moment, np.array([[50.0]]), case, [_local(hessian)])
    assert np.allclose(vague.moment / hessian, (vague.moment / hessian)[0, 0], rtol=0.05, atol=0)


def test_moment_posterior_is_conjugate():
    """One coordinate: normal prior and measurement give the precision-weighted mean (closed form)."""
    case = problem()
    got = scores_posterior(np.array([[2.0]]), np.array([[0.5]]), case, [_local(np.array([[4.0]]))])
    measured, error = 0.5, 0.125
    prior = measured  # with a single coordinate the level is the measurement itself
    prior_sd = noise_aware.PRIOR * prior
    assert got.mean[0, 0] == pytest.approx(measured, rel=1e-6)
    assert got.sd[0, 0] == pytest.approx((prior_sd**-2 + error**-2) ** -0.5, rel=1e-6)


def test_location_draws_have_the_privacy_covariance():
    """H known: theta_0's draws have covariance H^-1 Omega H^-1 / count; 20,000 draws, 5 standard errors."""
    hessian = np.array([[2.0, 0.4], [0.4, 0.5]])
    local = _local(hessian, omega=0.3, count=50.0)
    score = np.tile([0.2, -0.1], (20_000, 1))
    location, deviation = local.draw(20_000, np.random.default_rng(5), Prior.of_box(WIDE), score, np.zeros((2, 2)))
    truth = np.linalg.inv(hessian) @ (0.3 * np.eye(2)) @ np.linalg.inv(hessian) / 50
    # a prior as wide as the box, 1e4, weighs 1e-10 of the releases
    assert np.allclose(deviation, np.linalg.solve(hessian, [0.2, -0.1]), rtol=1e-6, atol=0)
    error = np.abs(np.cov(location.T) - truth) / np.sqrt(np.outer(np.diag(truth), np.diag(truth)))
    assert error.max() < 5 * math.sqrt(2 / 20_000)


def test_a_direction_without_curvature_keeps_the_prior():
    """One eigenvalue is nothing, the other large: theta has the box's spread along the first, the releases' along the
    second; 20,000 draws, 5 standard errors."""
    local = _local(np.diag([1e-8, 2.0]), omega=0.3, count=50.0)
    box = np.array([[-1.0, 3.0], [-2.0, 2.0]])
    score = np.zeros((20_000, 2))
    location, _ = local.draw(20_000, np.random.default_rng(6), Prior.of_box(box), score, np.zeros((2, 2)))
    sd = np.array([2.0, math.sqrt(0.3 / 50) / 2.0])
    assert np.abs(location.mean(axis=0) - [1.0, 0.0] - 0.0).max() < 5 * sd.max() / math.sqrt(20_000)
    assert np.abs(location.std(axis=0) / sd - 1).max() < 5 / math.sqrt(40_000) + 1e-3
    assert np.allclose(local.location(box), [1.0, 0.0], rtol=0, atol=1e-3)


def posterior_of(local: LocalPosterior, box: np.ndarray, names: tuple[str, ...]) -> NoiseAwarePosterior:
    d = len(box)
    scores = Scores(np.eye(d), 1e-4 * np.eye(d), np.full((d, d), 1e-6))
    report = PrivateMean(x_bounds=[(-1, 1)], epsilon=1.0, delta=1e-4).plan(1_000)
    common = {"rules": (), "to_natural": AffineMap(np.eye(d), np.zeros(d)), "names": names, "privacy": report}
    return NoiseAwarePosterior([local], scores, sampling_factor=1e-3, box=box, **common)


def test_without_a_measurement_the_interval_is_the_public_box_and_says_so():
    """The prior is normal with the box's half-width, cut at the box, so a 95% interval is the whole of it."""
    box = np.array([[-1.0, 3.0], [-2.0, 2.0]])
    unseen = Hessian(np.eye(2), np.zeros((2, 2)), np.full((2, 2), 1e9), np.full((2, 2), 0.3), np.full(2, 1e-6))
    local = LocalPosterior(np.zeros(2), np.zeros(2), unseen, np.eye(2), 1.0, 1.0)
    posterior = posterior_of(local, box, ("intercept", "x1"))
    assert np.allclose(posterior.interval(), box, rtol=0, atol=1e-9)
    summary = posterior.summary()
    assert all(row.is_prior for row in summary.rows)
    assert summary.table()[1].endswith("prior")
    assert any("say little (intercept, x1)" in line for line in summary.advice)
    seen = posterior_of(_local(np.diag([2.0, 2.0]), omega=0.3), box, ("intercept", "x1"))
    assert not any(row.is_prior for row in seen.summary().rows)
    assert not any("prior" in line for line in seen.advice())


def test_draws_beyond_the_box_give_the_prior_not_its_face():
    """A gradient that a known curvature extrapolates to far outside the box: without the guard every draw would lie on
    its face, an interval of no width.  A scale beyond its bounds casts doubt on itself only."""
    box = np.array([[-1.0, 1.0], [-2.0, 2.0], [1e-3, 1.0]])
    known, omega = _local(np.eye(3)).hessian, 1e-4 * np.eye(3)
    away = LocalPosterior(np.zeros(3), np.array([30.0, 0.0, 0.0]), known, omega, 9.0, 1.0)
    posterior = posterior_of(away, box, ("intercept", "x1", "scale"))
    interval = posterior.interval()
    assert np.allclose(interval[:2], box[:2], rtol=0, atol=1e-9)
    assert any("did not arrive within the public bounds (intercept, x1" in line for line in posterior.advice())
    narrow = LocalPosterior(np.zeros(3), np.array([0.0, 0.0, 30.0]), known, omega, 9.0, 1.0)
    interval = posterior_of(narrow, box, ("intercept", "x1", "scale")).interval()
    assert (np.diff(interval[:2])[:, 0] < 0.2).all()
    assert np.allclose(interval[2], box[2], rtol=0, atol=1e-9)


def test_a_heap_widens_by_the_bandwidth_and_a_smooth_density_by_nothing():
    """Curvature known: deviations have variance h^2 min(1, f h / .1)^2 beside the scores'; 40,000 draws, 5 standard
    errors."""
    none, h = np.zeros((40_000, 2)), 0.01
    for f, share in ((40.0, 1.0), (1.0, 0.1)):
        known = _local(f * np.eye(2))
        local = replace(known, smoothing=h)
        deviation = local.draw(40_000, np.random.default_rng(3), Prior.of_box(WIDE), none, np.zeros((2, 2)))[1]
        assert np.abs(deviation.std(axis=0) / (h * share) - 1).max() < 5 / math.sqrt(80_000)
        assert local.heaped == pytest.approx(f * h)


def test_between_rules_that_were_not_measured_together_the_prior_speaks():
    """moment_share = 0 measures each rule alone: differences between levels keep the correlation of a correct model."""
    case = problem(loss=losses.smoothed_quantile([0.25, 0.5], 0.1))
    H = np.array([[2.0, 0.4], [0.4, 0.5]])
    blocks = np.zeros((4, 4))
    blocks[:2, :2], blocks[2:, 2:] = 0.1 * H, 0.15 * H
    noise = np.array([[1e-9, np.inf], [np.inf, 1e-9]])
    found = scores_posterior(blocks, noise, case, [_local(H), _local(H)]).moment
    correlation = math.sqrt(0.25 * 0.5 / (0.5 * 0.75))
    assert np.allclose(found[:2, 2:], correlation * math.sqrt(0.1 * 0.15) * H, rtol=1e-6, atol=0)


def test_exploration_sees_the_releases_only(monkeypatch):
    """With the releases held fixed, different records give the same statistics to the last bit."""
    fixed = np.random.default_rng(7).integers(-(2**34), 2**34, (400, 1, 4))
    monkeypatch.setattr(releases.cpu, "noisy_gradient", lambda *args: fixed[args[-1].step])
    box = np.array([[-2.0, 2.0]] * 3 + [[1e-3, 1.0]])
    case = [explore(problem(seed=seed, moment_multiplier=1.0), box, Keys.fresh(9)) for seed in (1, 2)]
    for name in ("zz", "zg", "gg"):
        assert np.array_equal(getattr(case[0], name), getattr(case[1], name))


def test_gradients_are_asked_for_inside_the_box_and_once_a_step(monkeypatch):
    asked = []
    original = releases.cpu.noisy_gradient

    def watched(*args):
        asked.append((args[-1].step, args[3].theta.copy()))
        return original(*args)

    monkeypatch.setattr(releases.cpu, "noisy_gradient", watched)
    box = np.array([[-0.05, 0.05]] * 3 + [[0.1, 0.5]])
    seen = []
    explore(problem(moment_multiplier=1.0), box, Keys.fresh(9), Exploration(first_rate=1.0), on_step=seen.append)
    assert [step for step, _ in asked] == list(range(400))
    assert seen == list(range(1, 401))
    theta = np.concatenate([t for _, t in asked])
    assert (theta >= box[:, 0]).all()
    assert (theta <= box[:, 1]).all()


@pytest.mark.slow
def test_location_of_a_quadratic_loss_is_the_mean_and_its_error_is_the_stated_one():
    """Means: H = I exactly, so theta_0's error over 150 seeds is chi-square with its stated variance (1e-6)."""
    rng = np.random.default_rng(8)
    x = (0.3 + 0.2 * rng.uniform(-1, 1, (600, 2))).astype(np.float32)
    box = np.array([[-1.0, 1.0]] * 2)
    total = 0.0
    for seed in range(150):
        records = Records(x, np.zeros(0, dtype=np.float32), partition(600, S, np.random.default_rng(1)))
        case = problem(
            loss=losses.mean(), intercept=False, records=records, noise_multiplier=6.0, steps=200, moment_multiplier=1.0
        )
        statistics = explore(case, box, Keys.fresh(seed))
        local = local_posteriors(statistics, case, np.cov(x.T))[0]
        error = local.centre - local.gradient - x.mean(axis=0)
        total += float(error @ np.linalg.solve(local.omega / local.count, error))
    assert stats.chi2.ppf(5e-7, 300) < total < stats.chi2.isf(5e-7, 300)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.05, 0.0])
def test_intervals_of_means_cover(share):
    """95% intervals for a population mean: 150 fits x 2 columns; binomial two-sided false alarm about 1e-4 each side,
    seeds fixed.  Columns are independent, fits are too."""
    covered, plan, truth = 0, None, np.array([1.5, 1.0])
    for seed in range(150):
        rng = np.random.default_rng([9, seed])
        X = np.column_stack([rng.normal(1.5, 0.5, 2_000), rng.exponential(1.0, 2_000)])
        model = PrivateMean(
            x_bounds=[(-2, 5), (0, 12)], epsilon=1.0, delta=1e-4, steps=400, seed=seed, moment_share=share
        )
        plan = plan or model.plan(2_000)
        model.plan = lambda n, plan=plan: plan
        interval = model.fit(X).posterior_.interval()
        covered += int(((interval[:, 0] <= truth) & (interval[:, 1] >= truth)).sum())
    assert stats.binom.ppf(1e-4, 300, 0.95) <= covered <= 299


@pytest.mark.slow
def test_variances_are_split_and_the_split_adds_up():
    rng = np.random.default_rng(10)
    X = rng.uniform(-1, 1, (5_000, 2))
    y = X @ [1.0, -1.0] + 0.3 * rng.normal(size=5_000)
    settings = {"x_bounds": [(-1, 1)] * 2, "y_bounds": (-3, 3), "delta": 1e-5, "seed": 3, "steps": 1_000}
    small = PrivateHuberRegressor(epsilon=0.5, **settings).fit(X, y).posterior_.summary()
    large = PrivateHuberRegressor(epsilon=8.0, **settings).fit(X, y).posterior_.summary()
    for row in (*small.rows, *large.rows):
        # 2,000 draws each: a ratio of standard deviations within 5 of its standard errors
        assert abs(row.sd / math.hypot(row.sampling_sd, row.privacy_sd) - 1) < 5 / math.sqrt(2_000)
    assert small.rows[1].privacy_sd > 5 * large.rows[1].privacy_sd
    assert small.advice
    assert not large.advice
    assert "privacy" in str(large).splitlines()[0]


def test_the_moments_share_is_composed_and_the_rate_is_a_public_rule():
    model = PrivateHuberRegressor(epsilon=1.0, delta=1e-4, x_bounds=[(-1, 1)], y_bounds=(-1, 1), geometry="box")
    report = model.plan(10_000)
    assert 0.998 < report.epsilon <= 1.0
    alone = PrivateHuberRegressor(epsilon=1.0, delta=1e-4, x_bounds=[(-1, 1)], y_bounds=(-1, 1), moment_share=0.0)
    free = alone.plan(10_000)
    # a share s of mu^2 leaves 1 - s: noise grows by about 1 / sqrt(1 - s)
    ratio = report.mechanism.noise_multiplier / free.mechanism.noise_multiplier
    assert 1.0 < ratio < 1.02 / math.sqrt(0.9) * report.mechanism.sampling_rate / free.mechanism.sampling_rate
    assert free.moment is None
    assert report.moment.steps == 2  # of the scores, and of the features
    assert report.mechanism.sampling_rate == pytest.approx(PASSES / model.steps, rel=1e-6)
    assert abs(free.mechanism.noise_multiplier / MIN_MULTIPLIER - 1) < 0.1
    assert free.mechanism.sampling_rate < ASK_RATE


@pytest.mark.parametrize("value", [0.9992478630830645, 1e-5, 1 / 3, 2.25, 1.0000004, 123456.7, 3e-17])
@pytest.mark.parametrize("digits", [3, 6])
def test_printed_bounds_are_rounded_outward(value, digits):
    up, low = outward(value, digits), outward(value, digits, down=True)
    assert float(low) <= value <= float(up)
    assert float(up) - float(low) <= 1.0001 * value * 10.0 ** (1 - digits)
