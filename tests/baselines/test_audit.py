"""Canary audits: an empirical lower bound of epsilon from what each method releases on worst-case neighbours.

Synthetic data only: every record but the canary is at the centre of the bounds.  The adversary sees every release (more
than is published) and uses the likelihood ratio.  Half of the runs choose the threshold, the other half give the bound:
Clopper-Pearson intervals at 1 - 1e-4 each, so that a sound mechanism fails one of these tests with probability at most
2e-4, were the seeds not fixed.  Each audit must also *find* a mechanism with five times the epsilon.
"""

import math

import numpy as np
import pytest

from pgbb_fast import PrivateMean
from pgbb_fast.accountant import SubsampledGaussian
from pgbb_fast.baselines import (
    DPSGLD,
    NoisyGibbsMean,
    NoisyGibbsRegressor,
    NoisyNewton,
    newton,
    noisy_gibbs,
    sgld,
)
from pgbb_fast.budget.baseline import calibrated
from pgbb_fast.kernels import cpu, reference
from pgbb_fast.kernels.arguments import Records
from pgbb_fast.losses import huber
from pgbb_fast.release import hessian as curvature
from pgbb_fast.release.blocked import Keys, Problem
from tests.auditing import lower_bound

pytestmark = pytest.mark.slow
RUNS = {"sgld": 4000, "newton": 4000, "gibbs": 3000, "exponential": 4000, "curvature": 3000}
CLAIM, DELTA = 2.0, 0.01


class Watch:
    """Keeps what the release functions of a module return, and with which theta."""

    def __init__(self, monkeypatch, module, name):
        self.real, self.calls = getattr(module, name), []
        monkeypatch.setattr(module, name, self)

    def __call__(self, *args):
        result = self.real(*args)
        self.calls.append((args, result))
        return result

    def take(self):
        taken, self.calls = self.calls, []
        return taken


def mean_records(canary):
    x = np.zeros((20, 1))
    x[0] = canary
    return x


def mean_model(epsilon, seed):
    return PrivateMean(epsilon=epsilon, delta=DELTA, x_bounds=[(-1, 1)], seed=seed)


def sgld_statistic(monkeypatch):
    """Log likelihood ratio of three subsampled releases: mixtures of normals at 0 and at the canary's gradient."""
    watch = Watch(monkeypatch, sgld, "release_step")

    def statistic(epsilon, canary, seed):
        DPSGLD(mean_model(epsilon, seed), steps=3, sampling_rate=0.5).fit(mean_records(canary))
        total = 0.0
        for (problem, _, _, theta, *_), released in watch.take():
            y = (released - theta)[0, 0] / problem.noise
            r, q = 1.0 / problem.noise_multiplier, problem.rate
            up, down = ((1 - q) + q * math.exp(sign * r * y - r * r / 2) for sign in (-1, 1))
            total += math.log(up / down)
        return total

    return statistic


def newton_statistic(monkeypatch):
    watch = Watch(monkeypatch, newton, "release_step")
    monkeypatch.setattr(newton, "DRAWS", 1)
    monkeypatch.setattr(newton, "release_moment", lambda *_: (np.eye(1), None))     # x^2 is the same for both canaries

    def statistic(epsilon, canary, seed):
        NoisyNewton(mean_model(epsilon, seed), steps=5).fit(mean_records(canary))
        return sum(-(y - theta)[0, 0] / problem.noise**2 for (problem, _, _, theta, *_), y in watch.take())

    return statistic


def gibbs_statistic(monkeypatch):
    """The release that the sampler starts from; (1, 1, 1) against (1, -1, -1)."""
    v, w = np.ones(3), np.array([1.0, -1.0, -1.0])
    direction = np.outer(v, v) - np.outer(w, w)

    def statistic(epsilon, canary, seed):
        x = mean_records(canary).astype(np.float32)
        method = NoisyGibbsRegressor(epsilon=epsilon, delta=DELTA, x_bounds=[(-1, 1)], y_bounds=(-1, 1))
        moment, _ = noisy_gibbs._moments(np.column_stack([x, x]), method.plan(20), Keys.fresh(seed))
        return float((direction * moment).sum())

    return statistic


def exponential_statistic(monkeypatch):
    watch = Watch(monkeypatch, noisy_gibbs, "release_step")

    def statistic(epsilon, canary, seed):
        method = NoisyGibbsMean(
            epsilon=epsilon, delta=DELTA, x_bounds=[(0, 2)], family="exponential", iterations=1000, seed=seed
        )
        method.fit(1.0 + mean_records(canary))
        ((_, released),) = watch.take()
        return -float(released[0, 0])

    return statistic


def curvature_statistic(monkeypatch):
    """Records at (1, 1, z = c) and (1, -1, z = -c): roots of the greatest norm that point far apart."""
    theta, c = np.array([0.0, 0.0, 0.5]), 1.345
    v, w = np.array([1.0, 1.0, c]), np.array([1.0, -1.0, -c])
    direction = np.outer(v, v) - np.outer(w, w)

    def statistic(epsilon, canary, seed):
        plain = SubsampledGaussian(sampling_rate=1.0, steps=1, adjacency="replace-one")
        mechanism, _ = calibrated(plain, budget_epsilon=epsilon, budget_delta=DELTA)
        x = np.zeros((5, 1), dtype=np.float32)
        x[0] = canary
        problem = Problem(
            records=Records(x, (x[:, 0] * 0.999 * c * 0.5).astype(np.float32), np.zeros(5, dtype=np.uint8)),
            loss=huber(), intercept=True, n_blocks=1, block_size=5, gamma=1.0, clip=1.0, sampling_threshold=2**32,
            noise_multiplier=1.0, draws_per_step=1, steps=1,
        )  # fmt: skip
        released, _ = curvature.release_curvature(
            problem, Keys.fresh(seed), 0, theta, math.sqrt(2), mechanism.noise_multiplier
        )
        return float((direction * released).sum())

    return statistic


@pytest.fixture(autouse=True)
def tiny_sums(monkeypatch):
    """The moments' reference kernel (the same numbers): a parallel one waits for threads, thousands of times."""
    monkeypatch.setattr(cpu, "score_moments", reference.score_moments)


AUDITS = {
    "sgld": sgld_statistic,
    "newton": newton_statistic,
    "gibbs": gibbs_statistic,
    "exponential": exponential_statistic,
    "curvature": curvature_statistic,
}


@pytest.mark.parametrize("name", AUDITS)
def test_the_audit_stays_below_the_claim_and_has_power(name, monkeypatch):
    statistic = AUDITS[name](monkeypatch)

    def audit(epsilon, runs, first_seed):
        first = np.array([statistic(epsilon, 1.0, first_seed + 2 * i) for i in range(runs)])
        second = np.array([statistic(epsilon, -1.0, first_seed + 2 * i + 1) for i in range(runs)])
        return lower_bound(first, second, DELTA)

    found = audit(CLAIM, RUNS[name], 0)
    assert 0.2 < found <= CLAIM         # above 0.2: the audit sees part of what is there
    assert audit(5 * CLAIM, RUNS[name] // 3, 10**6) > CLAIM       # noise of another claim is found out
