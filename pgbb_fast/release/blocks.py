"""The random partition into blocks and the Dirichlet weights over them (docs/method.md sections 1 and 2)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.accountant import gamma_star
from pgbb_fast.errors import DomainError

__all__ = ["block_size", "dirichlet", "gamma_star", "partition"]

MIN_BLOCKS = 3


def block_size(n: int, n_blocks: int) -> int:
    """Records in each block, ``floor(n / n_blocks)``.

    When S doesn't divide n, the last n - S n_S records *of the random permutation* take no part: which records
    those are is independent of the data, and gamma* and the accountant use n' = S n_S.
    """
    if n_blocks < MIN_BLOCKS or n < n_blocks:
        raise DomainError(f"blocks: need {MIN_BLOCKS} <= n_blocks <= n, got n_blocks = {n_blocks} and n = {n}")
    return n // n_blocks


def partition(n: int, n_blocks: int, rng: np.random.Generator) -> NDArray[np.unsignedinteger[Any]]:
    """Uniform random partition into blocks of equal size: (n,) of the smallest unsigned type that holds S, values
    0..S - 1, and S for "takes no part"."""
    size = block_size(n, n_blocks)
    kind = np.min_scalar_type(n_blocks)
    block = np.full(n, n_blocks, dtype=kind)
    block[: n_blocks * size].reshape(n_blocks, size)[:] = np.arange(n_blocks, dtype=kind)[:, None]
    rng.shuffle(block)
    return block


def dirichlet(count: int, n_blocks: int, gamma: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """``count`` draws u ~ Dirichlet(gamma 1_S) with a last column of zeros for "takes no part": (count, S + 1)."""
    out = np.zeros((count, n_blocks + 1))
    out[:, :n_blocks] = rng.dirichlet(np.full(n_blocks, gamma), size=count)
    return out
