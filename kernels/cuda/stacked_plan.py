"""Which kernel serves a stacked step, and how its public numbers lie in memory; numbers only."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.kernels.arguments import Stack, require_stack
from pgbb_fast.kernels.scalar.losses import CONSTANTS, WITH_SCALE

MAX_COORDINATES = 12   # of xbar that a kernel with everything in registers has ...
MAX_RULES = 8          # ... as many rules ...
MAX_SUMS = 55          # ... and as many sums; measured: bench/results/cuda_kernels.md
SAMPLED_COORDINATES = 11    # beside a cipher block there is room for one rule only
ROWS = 8                # of a matrix that a kernel for any size works on at once
TILE_BYTES = 47 << 10   # of shared memory for its tile, and ...
SAMPLED_BYTES = 28 << 10    # ... beside the queue of a minibatch


@dataclass(frozen=True)
class StackedKind:
    """What a kernel is made for; ``rules`` and ``features`` 0 mean any number, ``shared`` where its tile is."""

    loss: str
    intercept: bool
    rules: int
    features: int
    sampled: bool
    mapped: bool
    shared: bool = False
    encodings: tuple[str, str] = ("", "")   # of features and response, as ``plan.Kind`` has them

    @property
    def first(self) -> int:
        """1 if theta begins with an intercept."""
        return int(self.intercept)

    @property
    def scale(self) -> int:
        """1 if theta ends with a scale."""
        return int(self.loss in WITH_SCALE)

    @property
    def name(self) -> str:
        """Part of the kernel's name."""
        on = (("i", self.intercept), ("s", self.sampled), ("m", self.mapped), ("t", self.shared))
        flags = "".join(flag for flag, there in on if there)
        return "_".join(filter(None, (self.loss, f"p{self.features}_l{self.rules}", flags, *self.encodings)))

    @property
    def places(self) -> dict[str, int]:
        """Sizes and places that a kernel of known size is compiled with; W is at 0."""
        m = self.features + self.first
        d = m + self.scale
        row, triangle = padded(d + 3), padded(self.rules * (self.rules + 1) // 2)
        rules = padded(m * (m + 1) // 2)
        mix = rules + self.rules * row
        return {
            "L": self.rules, "P": self.features, "M": m, "D": d, "FIRST": self.first, "SCALE": self.scale, "ROW": row,
            "RULES": rules, "MIX": mix, "SCALE_MIX": mix + triangle, "PUBLIC": mix + triangle * (1 + self.scale),
        }  # fmt: skip

    def tile_places(self, m: int, L: int) -> tuple[int, int, int, int]:
        """Where a kernel of any size finds each rule's theta, the constants, V, and V of the scale."""
        rows, rules = -(-m // ROWS) * ROWS, -(-L // ROWS) * ROWS
        fixed = rows * m + rules * m
        return rows * m, fixed, fixed + 3 * L, fixed + 3 * L + rules * L

    def arranged(self, stack: Stack, m: int) -> NDArray[np.float32]:
        """The public numbers of a step in single precision: W, each rule's theta and constants, V / C, the scale's.

        Of known size triangles come row by row, the last row first.  Of any size matrices come in blocks of ``ROWS``
        rows, stored column by column and filled up with zeros, and the constants after all thetas.
        """
        check(self.loss, stack, m, self.scale)
        d = m + self.scale
        scales = stack.theta[:, d - 1] if self.scale else np.ones(len(stack.theta))
        rules = zip(scales, *stack.constants.T, strict=True)
        with np.errstate(divide="ignore", over="ignore"):
            constants = np.array([CONSTANTS[self.loss](*rule) for rule in rules], dtype=np.float64)
            mixes = [part / stack.clip for part in (stack.mix, stack.scale_mix)[: 1 + self.scale]]
            if self.features:
                rows = np.column_stack([stack.theta, constants])
                rows = np.pad(rows, ((0, 0), (0, padded(rows.shape[1]) - rows.shape[1])))
                parts = [backwards(stack.map), rows.reshape(-1), *map(backwards, mixes)]
            else:
                theta = stack.theta[:, :m]
                parts = [in_blocks(stack.map), in_blocks(theta), constants.reshape(-1), *map(in_blocks, mixes)]
            return np.concatenate(parts).astype(np.float32)


def check(loss: str, stack: Stack, m: int, scale: int) -> None:
    """ValueError unless the arrays of a stack fit each other, the loss, and the ``m`` coordinates of the records."""
    require_stack(loss, stack, bool(scale))
    if len(stack.map) != m:
        raise ValueError(f"{loss}: stack.map is for {len(stack.map)} coordinates; the records have {m}")


def padded(count: int) -> int:
    """The next multiple of 4, as many numbers as one read brings."""
    return -(-count // 4) * 4


def backwards(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """The lower triangle row by row, the last row first."""
    out = np.concatenate([matrix[i, : i + 1] for i in range(len(matrix) - 1, -1, -1)])
    return np.pad(out, (0, padded(len(out)) - len(out)))


def in_blocks(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Blocks of ``ROWS`` rows, each column by column."""
    rows, columns = matrix.shape
    whole = np.pad(matrix, ((0, -rows % ROWS), (0, 0)))
    return np.asarray(whole.reshape(-1, ROWS, columns).transpose(0, 2, 1).reshape(-1))


def kind_of(
    loss: str, intercept: bool, p: int, L: int, *,
    sampled: bool, mapped: bool, stride: int, encodings: tuple[str, str] = ("", ""),
) -> StackedKind:  # fmt: skip
    """The kernel for ``p`` features and ``L`` rules; ``stride`` numbers in a row of a tile."""
    one = StackedKind(loss, intercept, L, p, sampled, mapped, encodings=encodings)
    m = p + one.first
    if sampled:
        fits = m <= SAMPLED_COORDINATES and L == 1
    else:
        fits = m <= MAX_COORDINATES and L <= MAX_RULES and L * (m + one.scale) <= MAX_SUMS
    if fits:
        return one
    size = 4 * tile_rows(m, L, one.scale) * stride
    shared = size <= (SAMPLED_BYTES if sampled else TILE_BYTES)
    return StackedKind(loss, intercept, 0, 0, sampled, mapped, shared, encodings)


def tile_rows(m: int, L: int, scale: int) -> int:
    """Numbers of a record in a tile."""
    return m + L + scale * (L + 1)
