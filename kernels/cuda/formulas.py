"""The scalar formulas, compiled for the GPU: what ``cpu.formulas`` is for the CPU.

Slopes of a training step in single precision; random bits, sampling and the moment in double precision and words.
"""

from typing import Any

import numpy as np

from pgbb_fast.kernels.cuda.compile import SIMULATED, device
from pgbb_fast.kernels.cuda.instructions import add32, fma, rotate_left, xor32
from pgbb_fast.kernels.scalar import arithmetic, clip, losses, moments, random, sampling, smooth, stacked
from pgbb_fast.kernels.specialise import single, specialise

clip_factor = device(single(clip.clip_factor))
grid_weight, rounding = device(clip.grid_weight), device(clip.rounding)
weight_exponent = device(clip.weight_exponent)
moment_factor = device(moments.moment_factor)
stack_factors = device(single(stacked.stack_factors, fma=fma, clip_factor=clip_factor))
stack_factors_exact = device(
    specialise(stacked.stack_factors, "double", fma=device(arithmetic.fma), clip_factor=device(clip.clip_factor))
)

_SIGMA: dict[str, Any] = {name: np.uint32(getattr(random, name)) for name in ("SIGMA0", "SIGMA1", "SIGMA2", "SIGMA3")}
if SIMULATED:
    _SIGMA = {name: int(value) for name, value in _SIGMA.items()}
quarter_round = device(specialise(random.quarter_round, "cuda", add32=add32, xor32=xor32, rotate_left=rotate_left))
double_round = device(specialise(random.double_round, "cuda", quarter_round=quarter_round))
random_words = device(specialise(random.random_words, "cuda", double_round=double_round, add32=add32, **_SIGMA))

uniform64 = device(sampling.uniform64)
tail_log = device(specialise(sampling.tail_log, "cuda", fma=fma))
gap = device(specialise(sampling.gap, "cuda", tail_log=tail_log))

within = device(single(smooth.within))
squash = device(single(smooth.squash, fma=fma))
half_normal = device(single(smooth.half_normal, fma=fma, within=within, squash=squash))
half_logistic = device(single(smooth.half_logistic, fma=fma, within=within, squash=squash))
exponential = device(single(smooth.exponential, fma=fma, within=within))
_PARTS = {
    "fma": fma, "within": within, "half_normal": half_normal, "half_logistic": half_logistic,
    "exponential": exponential,
}  # fmt: skip
_EXACT = {
    "fma": device(arithmetic.fma),
    "within": device(smooth.within),
    "half_normal": device(smooth.half_normal_exact),
    "half_logistic": device(smooth.half_logistic_exact),
    "exponential": device(smooth.exponential_exact),
}
SINGLE_SLOPES = {f.__name__: device(single(f, **_PARTS)) for f in losses.REGRESSION}
LOCATION_SLOPES = {f.__name__: device(single(f)) for f in losses.LOCATION}
DOUBLE_SLOPES = {f.__name__: device(specialise(f, "double", **_EXACT)) for f in (*losses.REGRESSION, losses.linear)}
DOUBLE_LOCATION_SLOPES = {f.__name__: device(f) for f in losses.LOCATION}
CONSTANTS = {name: device(constants) for name, constants in losses.CONSTANTS.items()}
