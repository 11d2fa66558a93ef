"""Privacy noise: the law of a rounded normal, cell by cell, and the same integers from every implementation.

Statistical tests have fixed seeds and false-alarm rates of 1e-6 each.
"""

import math
from fractions import Fraction
from functools import cache

import mpmath
import numba
import numpy as np
import pytest
from scipy import stats

from pgbb_fast.kernels import cpu, reference
from pgbb_fast.kernels.cpu import noise as compiled
from pgbb_fast.kernels.reference import random as slow
from pgbb_fast.kernels.scalar import normal
from tests.auditing import box_muller_reaches

KEY = np.random.default_rng(5).integers(0, 2**32, 8)
TABLE = np.array(normal.thresholds())
LARGEST = math.nextafter(normal.MAX_SIGMA, 0.0)
SIGMAS = (1e-300, 2.0**-20, 0.3, 1.0, 123456.789, 1.7 * 2.0**32, 2.0**46.6, 3.0 * 2.0**54, LARGEST)


def drawn(sigma, count, step=3, key=KEY):
    return cpu.add_noise(np.zeros(count, dtype=np.int64), cpu.scale_of(sigma), key, step)


def scalar(sigma, count, step=3):
    """The scalar formulas in plain Python."""
    key, pair = [int(word) for word in KEY], normal.scale_of(sigma)
    return [normal.rounded_normal(*pair, key, step, i, TABLE, [0] * 16 + [-1]) for i in range(count)]


def law(sigma, values):
    """P(round(sigma Z) = v) for each v, by differences of Phi with 50 digits."""
    with mpmath.workdps(50):
        return np.array([float(mpmath.ncdf((v + 0.5) / sigma) - mpmath.ncdf((v - 0.5) / sigma)) for v in values])


def test_the_table_is_the_cumulative_law_of_the_cells():
    with mpmath.workdps(200):
        weights = [mpmath.exp(-mpmath.mpf(j) ** 2 / 512) for j in range(normal.CELLS)]
        total, below = mpmath.fsum(weights), mpmath.mpf(0)
        for weight, row in zip(weights, normal.thresholds(), strict=True):
            below += weight
            value = sum(word << 32 * (normal.DIGITS - 1 - i) for i, word in enumerate(row))
            assert all(0 <= word < 2**32 for word in row) or value == 2**256
            assert -1 < value - below / total * 2**256 <= mpmath.mpf(10) ** -80


def test_the_mass_left_out_is_what_the_proof_says():
    with mpmath.workdps(80):
        assert mpmath.erfc(normal.REACH / mpmath.sqrt(2)) < mpmath.mpf(2) ** -188.9


@pytest.mark.parametrize("sigma", SIGMAS)
def test_scalar_reference_and_compiled_agree(sigma):
    wanted = reference.rounded_normals(KEY, 3, np.full(300, sigma))
    assert scalar(sigma, 300) == wanted.tolist()
    assert np.array_equal(drawn(sigma, 300), wanted)


def test_scales_are_exact():
    for sigma in (*SIGMAS, 0.0, 5e-324, math.nextafter(2.0**53, 0), 2.0**53 + 2, *np.random.default_rng(1).random(100)):
        mantissa, shift = normal.scale_of(float(sigma))
        assert Fraction(mantissa) / 2**shift == Fraction(float(sigma)) / 16
        assert mantissa < 2**53
        assert shift >= 1


@pytest.mark.parametrize("sigma", [normal.MAX_SIGMA, math.inf, math.nan, -1.0])
def test_what_does_not_fit_is_refused(sigma):
    with pytest.raises(ValueError, match="2\\^56"):
        cpu.scale_of(sigma)
    with pytest.raises(ValueError, match="2\\^56"):
        cpu.scales_of(np.array([1.0, sigma]))


def test_no_noise_is_none():
    assert not drawn(0.0, 100).any()
    assert not reference.rounded_normals(KEY, 3, np.zeros(10)).any()


# --- what seldom happens, made to happen -----------------------------------------------------------------------------

FEW = np.array([0, 1 << 31, (1 << 32) - 1, *TABLE[10:31:10, 0]])
TIES, HASHED, ONES = (np.full(8, kind) for kind in range(3))      # "keys" of the words below


@numba.njit
def other_words(key, step, index, room):
    """In place of the cipher.  TIES: words with few values, those of the table's thresholds among them, so that
    uniforms tie with one another and with thresholds, in up to all of their words.  HASHED: quickly made ones.  ONES:
    all bits set."""
    for i in range(16):
        x = (index * 40503 + (index >> 40) * 7919 + i * 9973 + 77) & 0xFFFFFFFF
        for _ in range(2):
            x = (x * 1103515 + (x >> 15) + 12345) & 0xFFFFFFFF
        room[i] = x
        if key[0] == 0:
            first = i % 2 == 0 and (index >> 40) % 4 == 0
            room[i] = FEW[(x >> 9) % (len(FEW) if first else 2)]
        if key[0] == 2:
            room[i] = 0xFFFFFFFF


def other_blocks(key, purpose, step, index):
    blocks = np.empty((len(index), 16), dtype=np.int64)
    for i in range(len(index)):
        other_words(key, step, int(index[i]), blocks[i])
    return blocks.astype(np.uint32)


@pytest.fixture
def others(monkeypatch):
    """Every implementation on these words: plain Python, fractions, and (returned) the compiled sampler."""
    fast = _compiled()
    monkeypatch.setattr(normal, "fill", other_words)
    monkeypatch.setattr(slow, "words", other_blocks)
    return fast


@cache
def _compiled():
    part, bind = compiled._part, compiled.specialise
    digit = part(bind(normal.digit, "other", fill=other_words))
    below = part(bind(normal.below, "other", digit=digit))
    threshold = part(bind(normal.below_threshold, "other", digit=digit))
    cell = part(bind(normal.cell, "other", digit=digit, below_threshold=threshold))
    parts = {"digit": digit, "below": below, "cell": cell, "carried": compiled.carried}
    rounded = part(bind(normal.rounded_normal, "other", **parts))

    @numba.njit
    def run(mantissa, shift, key, table, room, out):
        for i in range(out.size):
            room[16] = -1
            out[i] = rounded(mantissa, shift, key, 3, i, table, room)

    def several(sigma, count, key):
        out = np.zeros(count, dtype=np.int64)
        run(*normal.scale_of(sigma), key, TABLE, np.zeros(17, dtype=np.int64), out)
        return out.tolist()

    return several


def plain(sigma, number, key):
    """The scalar formulas in plain Python on these words."""
    room = np.array([0] * 16 + [-1])
    return int(normal.rounded_normal(*normal.scale_of(sigma), key, 3, number, TABLE, room))


@pytest.mark.slow
def test_ties_are_decided_by_later_words(others, monkeypatch):
    """Ties with other uniforms and with thresholds, and numbers that take many uniforms."""
    seen = {"fourth word": 0, "page": 0, "threshold": 0}
    digit, below_threshold = normal.digit, normal.below_threshold

    def watched_digit(key, step, number, u, i, room):
        seen["fourth word"] += i == 3
        seen["page"] += u >= 8
        return digit(key, step, number, u, i, room)

    def watched_threshold(*args):
        seen["threshold"] += 1
        return below_threshold(*args)

    monkeypatch.setattr(normal, "digit", watched_digit)
    monkeypatch.setattr(normal, "below_threshold", watched_threshold)
    for sigma in (3.0, 2.0**33, 1.5 * 2.0**52, LARGEST):
        wanted = reference.rounded_normals(TIES, 3, np.full(400, sigma)).tolist()
        assert [plain(sigma, i, TIES) for i in range(400)] == wanted
        assert others(sigma, 400, TIES) == wanted
        assert len(set(wanted)) > 5
    assert min(seen.values()) > 30


@pytest.mark.slow
def test_roundings_that_64_bits_do_not_decide(others, monkeypatch):
    """One in 2^12 at the largest sigma: all bits of x are looked at then, and the fractions' integer comes out."""
    calls, carried = [0], normal.carried

    def watched(*args):
        calls[0] += 1
        return carried(*args)

    monkeypatch.setattr(normal, "carried", watched)
    fast, rare = others(LARGEST, 20_000, HASHED), 0
    for i in range(20_000):
        before = calls[0]
        got = plain(LARGEST, i, HASHED)
        assert got == fast[i]
        if calls[0] - before > 4:
            rare += 1
            page = slow._pages(HASHED, 3, np.array([i]), 0)[0]
            assert got == slow.rounded(Fraction(LARGEST) * slow._normal(slow.Uniforms(HASHED, 3, i, page)))
    assert rare >= 2


@pytest.mark.slow
def test_the_largest_noise_fits(others):
    """All bits set: cell 255, x = 1 - 2^-256, minus; -16 sigma, rounded, in 64 bits."""
    wanted = -round(Fraction(LARGEST) * 16 - Fraction(LARGEST) / 2**260)
    assert others(LARGEST, 1, ONES) == [plain(LARGEST, 0, ONES)] == [wanted]
    assert -(2**60) <= wanted < -(2**59)


# --- the law ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.3, 1.0, 2.7])
def test_every_cell_has_its_probability(sigma):
    """Chi-square over the integers expected 5 times or more of 1,000,000 numbers; the others together by Poisson."""
    noise = drawn(sigma, 1_000_000, step=int(10 * sigma))
    reach = math.ceil(9 * sigma)
    values = np.arange(-reach, reach + 1)
    expected = law(sigma, values) * noise.size
    observed = np.bincount(noise + reach, minlength=values.size)
    often = expected >= 5.0
    assert observed[~often].sum() <= stats.poisson.isf(1e-6, expected[~often].sum())
    share = expected[often] / expected[often].sum()
    assert stats.chisquare(observed[often], share * observed[often].sum()).pvalue > 1e-6


def test_large_noise_is_normal_and_independent():
    """Kolmogorov-Smirnov, the far cells, and products of neighbours in one step and between steps."""
    z = np.concatenate([drawn(2.0**40, 200_000, step) for step in range(3)]) * 2.0**-40
    assert stats.kstest(z, "norm").pvalue > 1e-6
    edges = np.array([-np.inf, -4, -3, -2, -1, 0, 1, 2, 3, 4, np.inf])
    expected = np.diff(stats.norm.cdf(edges)) * z.size
    assert stats.chisquare(np.histogram(z, bins=edges)[0], expected).pvalue > 1e-6
    for a, b in ((z[:-1], z[1:]), (z[:200_000], z[200_000:400_000]), (z[:-1] ** 2 - 1, z[1:] ** 2 - 1)):
        correlation = (a * b).mean() / (a.std() * b.std())
        assert abs(correlation) * math.sqrt(a.size) < 4.9
    for k, moment in ((1, 0), (2, 1), (3, 0), (4, 3)):
        spread = math.sqrt((math.factorial(2 * k) // (2**k * math.factorial(k)) - moment**2) / z.size)
        assert abs((z**k).mean() - moment) < 4.9 * spread


@pytest.mark.parametrize("sigma", [2.0**30, 2.0**46.6, LARGEST])
def test_the_last_bits_are_uniform_near_zero_too(sigma):
    """Noise of this size modulo 64, all of it and the part within sigma / 50 of zero, is uniform to 1e-8."""
    noise = drawn(sigma, 400_000)
    for part in (noise, noise[np.abs(noise) < sigma / 50]):
        assert part.size > 5_000
        assert stats.chisquare(np.bincount(part % 64, minlength=64)).pvalue > 1e-6


def test_pairs_near_zero_reach_every_square():
    """Of pairs within sigma / 32 of zero at sigma = 2^51, most are where no radius of a double-precision Box-Muller
    lands; uniform points of that disc say how many (a binomial with a false alarm of 1e-6)."""
    sigma, disc = 2.0**51, 1 / 32
    pairs = drawn(sigma, 4_000_000).reshape(-1, 2)
    a, b = pairs[np.hypot(*pairs.T) < sigma * disc].T
    missed = ~box_muller_reaches(a, b, sigma)
    assert abs(a.size - 2e6 * disc**2 / 2) < 4.9 * math.sqrt(2e6 * disc**2 / 2)
    rng = np.random.default_rng(2)
    radius, angle = sigma * disc * np.sqrt(rng.random(400_000)), 2 * math.pi * rng.random(400_000)
    share = 1 - box_muller_reaches(np.rint(radius * np.cos(angle)), np.rint(radius * np.sin(angle)), sigma).mean()
    assert share > 0.5
    assert stats.binomtest(int(missed.sum()), a.size, share).pvalue > 1e-6


# --- the stream ------------------------------------------------------------------------------------------------------


def test_numbers_do_not_depend_on_the_others():
    whole = drawn(2.0**33, 100)
    for count in (1, 15, 16, 17, 50):
        assert np.array_equal(drawn(2.0**33, count), whole[:count])
    scales = np.where(np.arange(100) % 3 == 0, 2.0**33, 5.0)
    several = cpu.add_noise(np.zeros((10, 10), dtype=np.int64), cpu.scales_of(scales), KEY, 3).reshape(-1)
    assert np.array_equal(several[::3], whole[::3])
    assert np.array_equal(several, reference.rounded_normals(KEY, 3, scales))
    assert not np.array_equal(drawn(2.0**33, 100, step=4), whole)
    assert not np.array_equal(drawn(2.0**33, 100, key=KEY[::-1].copy()), whole)


def test_noise_is_added_in_place():
    grid = np.arange(12, dtype=np.int64).reshape(3, 4)
    got = cpu.add_noise(grid, cpu.scale_of(9.0), KEY, 3)
    assert got is grid
    assert np.array_equal(got.reshape(-1), np.arange(12) + drawn(9.0, 12))
    with pytest.raises(ValueError, match="2 scales for 12"):
        cpu.add_noise(grid, cpu.scales_of(np.ones(2)), KEY, 3)
    with pytest.raises(ValueError, match="contiguous"):
        cpu.add_noise(grid.T, cpu.scale_of(9.0), KEY, 3)
