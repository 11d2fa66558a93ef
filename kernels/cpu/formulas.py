"""The scalar formulas, compiled for the CPU."""

import numba

from pgbb_fast.kernels.cpu.compile import specialise
from pgbb_fast.kernels.scalar import clip, losses, random

clip_factor = numba.njit(clip.clip_factor)
to_grid = numba.njit(clip.to_grid)

rotate_left = numba.njit(random.rotate_left)
quarter_round = numba.njit(specialise(random.quarter_round, "cpu", rotate_left=rotate_left))
random_block = numba.njit(specialise(random.random_block, "cpu", quarter_round=quarter_round))
block_of = numba.njit(specialise(random.block_of, "cpu", random_block=random_block))
uniform96 = numba.njit(random.uniform96)
normal_pair = numba.njit(specialise(random.normal_pair, "cpu", uniform96=uniform96))

normal_cdf = numba.njit(losses.normal_cdf)
logistic_cdf = numba.njit(losses.logistic_cdf)
huber_psi = numba.njit(losses.huber_psi)
_PARTS = {"normal_cdf": normal_cdf, "logistic_cdf": logistic_cdf, "huber_psi": huber_psi}

REGRESSION_SLOPES = {
    slope.__name__: numba.njit(specialise(slope, "cpu", **_PARTS))
    for slope in (
        losses.quantile_gaussian,
        losses.quantile_logistic,
        losses.huber_concomitant,
        losses.huber_fixed,
        losses.logistic,
    )
}
LOCATION_SLOPES = {slope.__name__: numba.njit(slope) for slope in (losses.mean, losses.exponential_mean)}
WITH_SCALE = frozenset({"huber_concomitant"})
