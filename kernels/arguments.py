"""What a kernel is given.  Named tuples of arrays: Numba and CUDA take them as they are.

Shapes: n records, p features, S blocks, K draws of theta in R^d.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Records(NamedTuple):
    """The data.  ``x`` (n, p) float32 in [-1, 1]; ``y`` (n,) float32; ``block`` (n,) int32 in 0..S, S: takes no part."""

    x: NDArray[np.float32]
    y: NDArray[np.float32]
    block: NDArray[np.int32]


class Draws(NamedTuple):
    """Public inputs of one step.

    ``theta`` (K, d) float64, laid out (intercept if any, p slopes, scale if any); ``weights`` (K, S + 1) float64,
    the Dirichlet draws with a last column of zeros; ``constants`` (K, 2) float64, the loss's two constants.
    """

    theta: NDArray[np.float64]
    weights: NDArray[np.float64]
    constants: NDArray[np.float64]


class Mechanism(NamedTuple):
    """``clip`` > 0, bound of one record's gradient; ``threshold``: a record is drawn if its 32-bit word is below it
    (0..2^32, inclusion probability threshold / 2^32 exactly); ``noise_multiplier`` = sigma n_S / clip >= 0."""

    clip: float
    threshold: int
    noise_multiplier: float


class Stream(NamedTuple):
    """Where in the random stream: ``key`` (8,) int64 holding 32-bit words, secret; ``step`` in 0..2^32 - 1."""

    key: NDArray[np.int64]
    step: int
