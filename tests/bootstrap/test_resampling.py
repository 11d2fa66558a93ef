"""Resamples: exactly uniform, a function of the key alone."""

import numpy as np
import pytest
from scipy import stats

from pgbb_fast import DomainError
from pgbb_fast.kernels import reference
from pgbb_fast.release.resampling import MAX_RECORDS, Resampler

KEY = np.arange(1, 9, dtype=np.int64)


@pytest.mark.parametrize("n", [1, 3, 1000, 2**31 - 1, 2**31])
def test_indices_are_words_below_a_multiple_of_n_modulo_n(n):
    """The definition in plain Python integers: among the accepted words every remainder occurs equally often."""
    words = [int(w) for w in reference.words(KEY, 4, 0, np.arange(200)).reshape(-1)]
    limit = 2**32 // n * n
    assert limit % n == 0
    wanted = [w % n for w in words if w < limit]
    assert Resampler(KEY, n).draw(1500).tolist() == wanted[:1500]


def test_indices_do_not_depend_on_how_many_are_asked_for():
    whole = Resampler(KEY, 77).draw(1000)
    parts = Resampler(KEY, 77)
    assert np.array_equal(whole, np.concatenate([parts.draw(k) for k in (1, 0, 16, 333, 650)]))
    assert not np.array_equal(whole, Resampler(KEY + 1, 77).draw(1000))


def test_counts_are_multinomial():
    """Chi-square of 50 cells; false alarm 1e-4 a side."""
    counts = np.bincount(Resampler(KEY, 50).draw(100_000), minlength=50)
    assert 1e-4 < stats.chisquare(counts).pvalue < 1 - 1e-4


@pytest.mark.parametrize("n", [0, MAX_RECORDS + 1, 2.0])
def test_sizes_that_cannot_be_drawn_from(n):
    with pytest.raises(DomainError, match="n"):
        Resampler(KEY, n)
