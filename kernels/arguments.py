"""What a kernel is given.  Named tuples of arrays: Numba and CUDA take them as they are.

Shapes: n records, p features, S blocks, K draws of theta in R^d.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

NO_STARTS: NDArray[np.int64] = np.empty(0, dtype=np.int64)
NO_MAP: NDArray[np.float32] = np.empty((0, 2), dtype=np.float32)
BFLOAT16 = np.dtype([("bfloat16", np.uint16)])      # NumPy has no such type: the bits of one


def as_double(array: NDArray[Any]) -> NDArray[np.float64]:
    """The stored numbers in double precision, by rows: exact for all types that :class:`Records` takes."""
    if array.dtype == BFLOAT16:     # the upper half of a single-precision number
        array = (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        return array.astype(np.float64, order="C")


class Records(NamedTuple):
    """The data: n records of p features and a response, in any of several layouts.

    Attributes
    ----------
    x : (n, p) or (n, p + 1), C- or F-contiguous
        Features, as float64, float32, float16, ``BFLOAT16``, int8, int16, int32, uint8 or uint16.  With one column
        more than theta has slopes the last one is the response, next to its features in memory, and ``y`` is empty.
    y : (n,), contiguous, any of these types
        Response; unused by the losses of a location.
    block : (n,) integers
        The record's block 0..S - 1, or S: takes no part.  Unused with ``starts``.
    starts : (S + 2,) int64, optional
        For records in block order: those of block b are starts[b] .. starts[b + 1] - 1, starts[0] = 0 and
        starts[S + 1] = n.
    map : (p + 1, 2) float32, optional
        Public affine map of the stored numbers, each rounded to double, then to single precision: column j stands for
        clip(map[j, 0] * x + map[j, 1], -1, 1), the last row is y's.  So the same numbers of any type are the same
        records.  Without a map the stored numbers are the records.
    """

    x: NDArray[Any]
    y: NDArray[Any]
    block: NDArray[Any]
    starts: NDArray[np.int64] = NO_STARTS
    map: NDArray[np.float32] = NO_MAP


class Draws(NamedTuple):
    """Public inputs of one step.

    ``theta`` (K, d) float64, laid out (intercept if any, p slopes, scale if any); ``weights`` (K, S + 1) float64 in
    [0, 1], the Dirichlet draws with a last column of zeros; ``constants`` (K, 2) float64, the loss's two constants.
    """

    theta: NDArray[np.float64]
    weights: NDArray[np.float64]
    constants: NDArray[np.float64]


class Mechanism(NamedTuple):
    """``clip`` > 0, bound of one record's gradient; ``threshold``: a record is drawn with probability at most
    threshold / 2^32 (0..2^32; ``scalar.sampling`` says how); ``noise_multiplier`` = sigma n_S / clip >= 0."""

    clip: float
    threshold: int
    noise_multiplier: float


class Stream(NamedTuple):
    """Where in the random stream: ``key`` (8,) int64 holding 32-bit words, secret; ``step`` in 0..2^32 - 1."""

    key: NDArray[np.int64]
    step: int


class Stack(NamedTuple):
    """Public inputs of one release of the scores of L rules together, in whitened coordinates.

    With xbar = (1, x), or x without an intercept, of m numbers, and psi_t the slope of rule t in its predictor at its
    own theta_t, a record's stacked score is the outer product of ``mix`` psi and f xw, where xw = ``map`` xbar and
    f = min(1, ``feature_bound`` / |xw|); where the loss has a scale, ``scale_mix`` times the slopes in the scales is
    one more column.  The whole is shortened to the length ``clip``.

    Attributes
    ----------
    theta : (L, d) float64
        Laid out (intercept if any, slopes, scale if any), d = m, or m + 1 with a scale.
    constants : (L, 2) float64
        The loss's two constants for each rule.
    map : (m, m) float64, lower triangular
    mix : (L, L) float64, lower triangular
    scale_mix : (L, L) float64, lower triangular; (0, 0) for a loss without a scale
    feature_bound, clip : float
        In 2^-13 .. 2^13 and 2^-50 .. 2^50.
    threshold : int
        As in :class:`Mechanism`; 2^32 takes every record.
    noise_multiplier : float
        Standard deviation of the noise over ``clip``, that is, over half the sensitivity.
    """

    theta: NDArray[np.float64]
    constants: NDArray[np.float64]
    map: NDArray[np.float64]
    mix: NDArray[np.float64]
    scale_mix: NDArray[np.float64]
    feature_bound: float
    clip: float
    threshold: int = 2**32
    noise_multiplier: float = 0.0


def require_stack(who: str, stack: Stack, scale: bool) -> None:
    """Refuse shapes that don't fit each other, or the loss, which has a ``scale`` or none: kernels check no index.

    Raises
    ------
    ValueError
        If a shape is wrong, a matrix not lower triangular, or a bound out of range.
    """
    L, d = stack.theta.shape
    m = d - scale
    shapes = {
        "constants": (L, 2), "map": (m, m), "mix": (L, L), "scale_mix": (L, L) if scale else (0, 0),
    }  # fmt: skip
    for name, shape in shapes.items():
        found = getattr(stack, name)
        if found.shape != shape:
            raise ValueError(f"{who}: stack.{name} must have shape {shape}, got {found.shape}")
        if name != "constants" and np.triu(found, 1).any():
            raise ValueError(f"{who}: stack.{name} must be lower triangular")
    for name, bound, most in (("feature_bound", stack.feature_bound, 13), ("clip", stack.clip, 50)):
        if not 2.0**-most <= bound <= 2.0**most:
            raise ValueError(f"{who}: stack.{name} must lie in [2^-{most}, 2^{most}], got {bound!r}")
