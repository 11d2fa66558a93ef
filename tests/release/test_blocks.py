"""Partition and Dirichlet weights."""

import numpy as np
import pytest
from scipy import stats

from pgbb_fast.errors import DomainError
from pgbb_fast.release import blocks


@pytest.mark.parametrize(("n", "S"), [(63, 4), (29_404, 32), (60, 20), (3, 3), (7, 3)])
def test_blocks_are_equal_and_the_rest_takes_no_part(n, S):
    block = blocks.partition(n, S, np.random.default_rng(0))
    counts = np.bincount(block, minlength=S + 1)
    assert counts[:S].tolist() == [n // S] * S
    assert counts[S] == n - S * (n // S)
    assert blocks.block_size(n, S) == n // S


def test_every_record_is_as_likely_to_be_in_any_block():
    """Chi-square over 4,000 partitions of 13 records in 3 blocks, one left out; false alarm 1e-6, seed fixed."""
    rng = np.random.default_rng(1)
    counts = np.zeros((13, 4))
    for _ in range(4_000):
        counts[np.arange(13), blocks.partition(13, 3, rng)] += 1
    expected = np.tile(np.array([4, 4, 4, 1]) / 13 * 4_000, (13, 1))
    # within a partition counts are constrained, so the statistic is stochastically below chi-square with 39
    assert stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), 39) > 1e-6


@pytest.mark.parametrize(("n", "S"), [(2, 3), (10, 2), (10, 0), (0, 3)])
def test_too_few_records_or_blocks(n, S):
    with pytest.raises(DomainError, match="n_blocks"):
        blocks.block_size(n, S)


def test_dirichlet_moments():
    """Var u_s = (S - 1) / (S^2 (S gamma + 1)); Beta marginal by Kolmogorov-Smirnov, false alarm 1e-6, seed fixed."""
    S, gamma = 20, 0.9
    u = blocks.dirichlet(50_000, S, gamma, np.random.default_rng(2))
    assert u.shape == (50_000, S + 1)
    assert (u[:, S] == 0).all()
    assert np.abs(u.sum(axis=1) - 1).max() <= 8 * S * 2**-53
    assert stats.kstest(u[:, 3], stats.beta(gamma, (S - 1) * gamma).cdf).pvalue > 1e-6
    variance = (S - 1) / (S**2 * (S * gamma + 1))
    # fourth moment of the Beta law gives the standard error of a sample variance; 5 of them is a 6e-7 event
    law = stats.beta(gamma, (S - 1) * gamma)
    mean = law.mean()
    fourth = law.expect(lambda v: (v - mean) ** 4)
    assert abs(u[:, 7].var() - variance) < 5 * np.sqrt((fourth - variance**2) / 50_000)
