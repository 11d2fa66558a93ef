"""The scalar formulas, compiled for the CPU.

``SINGLE_SLOPES`` and ``LOCATION_SLOPES`` are what a training step uses, in single precision, with ready constants.
``REGRESSION_SLOPES`` are the same formulas in double precision, ``f(y, eta, scale, first, second)``, for what is
computed once.
"""

from typing import Any

import numba
import numpy as np

from pgbb_fast.kernels.cpu.compile import inlined
from pgbb_fast.kernels.cpu.intrinsics import add32, fma, rotate_left, xor32
from pgbb_fast.kernels.scalar import arithmetic, clip, losses, random, sampling, smooth, stacked
from pgbb_fast.kernels.specialise import single, specialise

clip_factor = inlined(single(clip.clip_factor))
stack_factors = inlined(single(stacked.stack_factors, fma=fma, clip_factor=clip_factor))
clip_limit = numba.njit(clip.clip_limit)
weight_exponent = numba.njit(clip.weight_exponent)
grid_weight = numba.njit(clip.grid_weight)
rounding = numba.njit(clip.rounding)

_WORDS = {"add32": add32, "xor32": xor32, "rotate_left": rotate_left}
_SIGMA = {name: np.uint32(getattr(random, name)) for name in ("SIGMA0", "SIGMA1", "SIGMA2", "SIGMA3")}
quarter_round = inlined(specialise(random.quarter_round, "cpu", **_WORDS))
double_round = inlined(specialise(random.double_round, "cpu", quarter_round=quarter_round))
random_words = inlined(specialise(random.random_words, "cpu", double_round=double_round, add32=add32, **_SIGMA))

uniform64 = inlined(sampling.uniform64)
tail_log = inlined(specialise(sampling.tail_log, "cpu", fma=fma))
gap = inlined(specialise(sampling.gap, "cpu", tail_log=tail_log))

within = inlined(single(smooth.within))
squash = inlined(single(smooth.squash, fma=fma))
half_normal = inlined(single(smooth.half_normal, fma=fma, within=within, squash=squash))
half_logistic = inlined(single(smooth.half_logistic, fma=fma, within=within, squash=squash))
exponential = inlined(single(smooth.exponential, fma=fma, within=within))
_PARTS = {
    "fma": fma, "within": within, "half_normal": half_normal, "half_logistic": half_logistic,
    "exponential": exponential,
}  # fmt: skip

SINGLE_SLOPES = {slope.__name__: inlined(single(slope, **_PARTS)) for slope in losses.REGRESSION}
LOCATION_SLOPES = {slope.__name__: inlined(single(slope)) for slope in losses.LOCATION}
_EXACT = {
    "fma": numba.njit(arithmetic.fma),
    "within": numba.njit(smooth.within),
    "half_normal": numba.njit(smooth.half_normal_exact),
    "half_logistic": numba.njit(smooth.half_logistic_exact),
    "exponential": numba.njit(smooth.exponential_exact),
}
CONSTANTS = {name: numba.njit(constants, error_model="numpy") for name, constants in losses.CONSTANTS.items()}
WITH_SCALE = losses.WITH_SCALE


def _in_double(y, eta, scale, first, second):  # type: ignore[no-untyped-def]
    """A slope in double precision, from theta's scale and the loss's two constants."""
    a, b, c = constants(scale, first, second)
    return slope(y, eta, a, b, c)


slope: Any = None
constants: Any = None
REGRESSION_SLOPES = {
    f.__name__: numba.njit(
        specialise(
            _in_double,
            f.__name__,
            slope=numba.njit(specialise(f, "double", **_EXACT), error_model="numpy"),
            constants=CONSTANTS[f.__name__],
        )
    )
    for f in (*losses.REGRESSION, losses.linear)  # linear is for second moments, no loss to train with
}
