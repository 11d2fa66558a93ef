r"""Convolution powers by FFT with a proved bound on the round-off.

A probability vector b is raised to the T-th convolution power through its discrete Fourier transform.  In
floating point an FFT of length N returns y + dy with :math:`\|dy\|_2 \le \eta \|y\|_2`,
:math:`\eta = 16 u \log_2 N` (Higham 2002, *Accuracy and Stability of Numerical Algorithms*, theorem 24.2, whose
constant is below 7 for exact-to-rounding twiddles; 16 leaves room for mixed radix).  The power is taken entry by
entry, so its error has 2-norm at most T eta |b|, as |b^| <= 1; the inverse transform adds eta |c|.  Relative to
the tilted law the error is tiny, and tilting back turns it into a relative error of tail probabilities however
small these are.

*Deflation.*  Where most of the mass is one atom, b = e_j + c with |c| small (a record that is seldom drawn), only c
is transformed: the error is then T eta |c| instead of T eta, and the power is exp(T log1p(c^)) moved by T j.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

UNIT = 2.0**-53
_DEFLATED = 0.5  # an atom of at least this mass is taken out before the transform


def fft_constant(size: int) -> float:
    """eta: the relative error, in 2-norm, allowed to one FFT of length ``size``."""
    return 16 * UNIT * max(1.0, math.log2(size))


def smooth_size(least: int) -> int:
    """Smallest 2^a or 3 2^a that is at least ``least`` (and 16)."""
    power = 1 << max(4, math.ceil(math.log2(max(least, 16))))
    return 3 * power // 4 if 3 * power // 4 >= least else power


def circular_power(factors: Sequence[tuple[Array, int, int]], size: int) -> tuple[Array, float]:
    """Circular convolution of powers of probability vectors, and a bound on its error in 2-norm.

    Parameters
    ----------
    factors : sequence of (vector, offset, count)
        ``vector[i]`` is the mass at integer ``offset + i``; it enters ``count`` times.
    size : int
        Period; masses are folded modulo ``size``.

    Returns
    -------
    values : ndarray, shape (size,)
        ``values[k]`` is the mass at integers congruent to k.
    error : float
        ``|values - exact|_2 <= error``.
    """
    eta = fft_constant(size)
    log_magnitude = np.zeros(size // 2 + 1)
    phase = np.zeros(size // 2 + 1)
    entry_error = np.full(size // 2 + 1, 16.0)
    growth, input_error, shift = 0.0, 0.0, 0
    for vector, offset, count in factors:
        mode = int(np.argmax(vector))
        atom = float(vector[mode]) > _DEFLATED
        if atom:
            vector, shift, offset = _without_atom(vector, mode), shift + count * (offset + mode), -mode
        folded = _fold(vector, offset, size)
        norm = _norm(folded)
        input_error += count * eta * norm
        growth += count * eta * norm * math.sqrt(size)
        transform = np.fft.rfft(folded)
        if atom:
            real, square = transform.real, np.square(np.abs(transform))
            with np.errstate(divide="ignore"):
                log_magnitude += (0.5 * count) * np.log1p(np.maximum(2 * real + square, -1.0))
            angle = np.arctan2(transform.imag, 1.0 + real)
            entry_error += (4.0 * count) * (np.abs(real) + square)
        else:
            with np.errstate(divide="ignore"):
                log_magnitude += count * np.log(np.abs(transform))
            angle = np.angle(transform)
            entry_error += 4.0 * count  # log|b^| is off by one rounding of |b^|, which is nearly 1
        phase += count * angle
        entry_error += (4.0 * count) * np.abs(angle)
    log_magnitude = np.minimum(log_magnitude, 0.0)
    magnitude = np.exp(log_magnitude)
    product = magnitude * (np.cos(phase) + 1j * np.sin(phase))
    finite = np.where(magnitude > 0, np.abs(log_magnitude), 0.0)
    entry_error = magnitude * UNIT * (entry_error + 4 * len(factors) * (finite + np.abs(phase)))
    values = np.roll(np.fft.irfft(product, size), shift % size)
    # half spectra are doubled at most; Parseval divides by sqrt(size)
    own = math.sqrt(2.0) * _norm(entry_error) / math.sqrt(size)
    # (|b^| + e)^(T-1) <= exp(sum T e): `growth` bounds the sum by its largest entry
    inherited = input_error * math.exp(min(growth, 700.0))
    total = inherited + own + eta * _norm(values)
    return values, total


def _without_atom(vector: Array, mode: int) -> Array:
    """``vector`` less a unit mass at ``mode``, whose own mass is taken to be what the others leave of one."""
    deviation = vector.copy()
    deviation[mode] = 0.0
    deviation[mode] = -float(deviation.sum())
    return deviation


def _norm(x: Array) -> float:
    return math.sqrt(float(np.square(x).sum()))


def _fold(vector: Array, offset: int, size: int) -> Array:
    start = offset % size
    if start + len(vector) <= size:
        out = np.zeros(size)
        out[start : start + len(vector)] = vector
        return out
    index = (offset + np.arange(len(vector))) % size
    return np.bincount(index, vector, minlength=size)


def power_tail(mass: Array, count: int, *, error: float) -> tuple[Array, Array]:
    """Lower and upper bounds of P(sum of ``count`` copies > k), k = 0, 1, ..., for ``mass`` on 0, 1, ...

    The tails of ``mass`` are known up to the relative ``error``; a factor (1 + error)^count covers it, one copy
    replaced at a time.  Three tilts are used, so that the bounds are sharp from the bulk to 1e-45.
    """
    k = np.arange(len(mass), dtype=np.float64)
    mean = float((mass * k).sum())
    tilts = [0.0]
    for log_tail in (-30.0, -104.0):
        tilts.append(_tilt_for(mass, k, count, log_tail))
    log_m = _log_mgf(mass, k, tilts[-1])
    last = min((count * log_m + 104.0) / tilts[-1], float(count * (len(mass) - 1)))
    size = smooth_size(int(max(last, mean * count)) + 2)
    if size > 2**23:
        size = 2**23
    beyond = math.exp(min(0.0, count * log_m - tilts[-1] * (size - 1)))
    if size > count * (len(mass) - 1):
        beyond = 0.0
    position = np.arange(size, dtype=np.float64)
    upper = np.ones(size)
    lower = np.zeros(size)
    for tilt in tilts:
        log_m = _log_mgf(mass, k, tilt)
        tilted = mass * np.exp(tilt * k - log_m)
        values, rounding = circular_power([(tilted, 0, count)], size)
        exponent = count * log_m - tilt * position
        scale = np.exp(np.minimum(exponent, 300.0))
        terms = np.where(exponent > 250.0, 0.0, values * scale)
        tail = np.concatenate((np.cumsum(terms[::-1])[::-1][1:], [0.0]))
        slack = rounding * math.sqrt(size) * scale + 4e-16 * size * np.abs(tail) + count * 1e-14 * np.abs(tail)
        usable = exponent < 200.0
        upper = np.where(usable, np.minimum(upper, tail + slack + beyond), upper)
        lower = np.where(usable, np.maximum(lower, tail - slack - beyond * scale), lower)
    factor = 1 + 2 * count * error
    upper = np.minimum(1.0, np.maximum.accumulate((upper * factor)[::-1])[::-1])
    lower = np.minimum.accumulate(np.maximum(lower / factor, 0.0))
    return np.minimum(lower, upper), upper


def _log_mgf(mass: Array, k: Array, tilt: float) -> float:
    exponent = tilt * k
    top = float(exponent[-1])
    return top + math.log(float((mass * np.exp(exponent - top)).sum()))


def _tilt_for(mass: Array, k: Array, count: int, log_tail: float) -> float:
    """A tilt t at which T (K(t) - t K'(t)) is about ``log_tail``."""
    step = max(1, len(k) // 4096)  # any tilt will do, so a coarse law is enough to choose one
    mass, k = np.add.reduceat(mass, np.arange(0, len(mass), step)), k[::step]
    low, high = 1e-12, 1.0
    for _ in range(40):
        middle = math.sqrt(low * high)
        weight = mass * np.exp(middle * (k - k[-1]))
        total = float(weight.sum())
        rate = math.log(total) + middle * float(k[-1]) - middle * float((weight * k).sum()) / total
        if count * rate < log_tail:
            high = middle
        else:
            low = middle
    return math.sqrt(low * high)
