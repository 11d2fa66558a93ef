"""Bands over rules and curves that don't cross."""

import numpy as np
import pytest
from scipy import stats

from pgbb_fast import DomainError
from pgbb_fast.losses.rules import places, rearranged, sup_t_band


def test_bands_of_independent_normals_have_the_closed_form_width():
    """c: 90% quantile of the largest of L independent |Z|, Phi^-1((1 + .9^(1/L)) / 2); 100,000 draws, 4 errors."""
    draws = np.random.default_rng(0).normal(3.0, 2.0, (100_000, 5, 2))
    for over, number in (("rules", 5), ("all", 10)):
        band = sup_t_band(draws, 0.9, over=over)
        c = stats.norm.ppf((1 + 0.9 ** (1 / number)) / 2)
        density = 2 * number * 0.9 ** (1 - 1 / number) * stats.norm.pdf(c)
        error = 4 * np.sqrt(0.09 / 100_000) / density
        assert np.abs((band[..., 1] - band[..., 0]) / 4 - c).max() < error + 4 * c / np.sqrt(2 * 100_000)
        assert np.abs(band.mean(axis=-1) - 3.0).max() < 4 * 2 / np.sqrt(100_000)


def test_bands_hold_simultaneously_over_their_own_draws():
    rng = np.random.default_rng(1)
    draws = rng.normal(size=(5000, 1, 1)) + 0.5 * rng.gamma(2.0, size=(5000, 4, 3))
    band = sup_t_band(draws, 0.8)
    inside = ((draws >= band[..., 0]) & (draws <= band[..., 1])).all(axis=1).mean(axis=0)
    assert inside == pytest.approx(0.8, abs=1e-3)
    everything = sup_t_band(draws, 0.8, over="all")
    inside = ((draws >= everything[..., 0]) & (draws <= everything[..., 1])).all(axis=(1, 2)).mean()
    assert inside == pytest.approx(0.8, abs=1e-3)


def test_a_coordinate_that_does_not_vary_has_a_band_without_width():
    band = sup_t_band(np.ones((10, 2, 1)), 0.9)
    assert np.array_equal(band, np.ones((2, 1, 2)))


@pytest.mark.parametrize(
    ("draws", "settings"),
    [
        (np.ones((10, 2)), {}),
        (np.ones((1, 2, 2)), {}),
        (np.ones((5, 2, 2)), {"level": 1.0}),
        (np.ones((5, 2, 2)), {"over": "x"}),
    ],
)
def test_bad_bands(draws, settings):
    with pytest.raises(DomainError):
        sup_t_band(draws, **settings)


def test_rearranged_curves_increase_and_come_nearer_to_a_monotone_truth():
    """Sorting never increases the distance to an increasing curve, draw by draw (the rearrangement inequality); rules
    may come in any order, and curves that don't cross stay as they are."""
    rng = np.random.default_rng(2)
    rules = np.array([0.5, 0.1, 0.9, 0.3])
    truth = stats.norm.ppf(rules)[None, :, None]
    curves = truth + rng.normal(size=(300, 4, 6))
    sorted_curves = rearranged(curves, rules)
    order = np.argsort(rules)
    assert (np.diff(sorted_curves[:, order], axis=1) >= 0).all()
    before, after = (((c - truth) ** 2).sum(axis=1) for c in (curves, sorted_curves))
    assert (after <= before + 1e-12).all()
    assert after.mean() < before.mean()
    assert np.array_equal(rearranged(sorted_curves, rules), sorted_curves)


def test_places_of_rules():
    assert places([0.1, 0.9], [0.1, 0.5]) == pytest.approx([stats.norm.ppf(0.1), 0.0])
    assert places([0.5, 2.0], [0.5, 1.0]) == pytest.approx([np.log(0.5), 0.0])
