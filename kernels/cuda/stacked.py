"""The stacked step on the GPU: all rules of a step as one release; same names and contracts as on the CPU."""

from functools import cache
from typing import Any

import numpy as np
from numba import cuda
from numpy.typing import NDArray

from pgbb_fast.kernels.arguments import Records, Stack, Stream
from pgbb_fast.kernels.cuda import formulas, stacked_registers, stacked_tiles
from pgbb_fast.kernels.cuda.compile import THREADS, WARPS, Launch, expand, groups_for, kernel
from pgbb_fast.kernels.cuda.instructions import NUMBERS
from pgbb_fast.kernels.cuda.records import Placed, place
from pgbb_fast.kernels.cuda.stacked_plan import StackedKind, kind_of, tile_rows
from pgbb_fast.kernels.cuda.steps import finish_kernel
from pgbb_fast.kernels.scalar.clip import GRID, MAX_EXPONENT
from pgbb_fast.kernels.scalar.normal import scale_of, thresholds
from pgbb_fast.kernels.scalar.random import WORDS
from pgbb_fast.kernels.scalar.sampling import ALL, by_skips, chunk_bits, skip_constants
from pgbb_fast.kernels.scalar.stacked import stack_limit, stack_weight

MAX_SCRATCH = 1 << 25  # numbers in all tiles that aren't shared, and in all partial sums


@cache
def stacked_kernel(kind: StackedKind) -> Any:
    """The kernel of one kind, compiled on its first launch."""
    x_number, y_number = (NUMBERS[encoding] for encoding in kind.encodings)
    bound = {"slope": formulas.SINGLE_SLOPES[kind.loss], "x_number": x_number, "y_number": y_number}
    known: dict[str, Any] = {"SAMPLED": kind.sampled, "MAPPED": kind.mapped}
    if kind.features:
        known |= kind.places
        return kernel(expand(stacked_registers._stacked, kind.name, stacked_registers.REGISTERS, known, **bound))
    known |= {"FIRST": kind.first, "SCALE": kind.scale, "SHARED": kind.shared}
    return kernel(expand(stacked_tiles._tiled, kind.name, stacked_tiles.REGISTERS, known, **bound))


class StackedStep:
    """One problem's stacked step, with its buffers; everything but the public inputs stays on the device.

    Parameters
    ----------
    loss, intercept
        As for ``reference.stacked_sums``.
    records : Placed
        Records on the device, or on the host in chunks; block ids aren't used.
    L : int
        Rules of each step.
    threshold : int
        Of the sampler, 0..2^32.
    stream : int
        Address of the CUDA stream that kernels run on; 0: the default one.
    """

    def __init__(
        self, loss: str, intercept: bool, records: Placed, L: int, threshold: int, stream: int = 0
    ) -> None:
        if loss not in formulas.SINGLE_SLOPES:
            raise ValueError(f"no stacked step for this loss: {loss}")
        if not records.has_response:
            raise ValueError(f"{loss}: the records have no response")
        p = records.features
        self.records, self.L = records, L
        self.kind = kind = kind_of(
            loss, intercept, p, L, sampled=threshold < ALL, mapped=records.mapped, stride=stacked_tiles.STRIDE,
            encodings=records.encodings,
        )  # fmt: skip
        self.stream: Any = cuda.external_stream(stream) if stream else 0
        self.m = p + kind.first
        self.d = self.m + kind.scale
        bits = chunk_bits(threshold) if by_skips(threshold) else 0
        self.sampler = (threshold, bits, *(skip_constants(threshold) if bits else (0.0, 0.0)))
        per_group = THREADS * WORDS if kind.sampled else THREADS
        if bits:
            per_group = WARPS << bits
        rows = tile_rows(self.m, L, kind.scale) * stacked_tiles.STRIDE
        held = 0 if kind.features or kind.shared else rows      # of a block of threads in the device's memory
        most = max(1, MAX_SCRATCH // max(L * self.d, held))
        self.groups = [min(most, groups_for(-(-n // per_group))) for n in records.sizes]
        self.columns = sum(self.groups)
        self.partial = cuda.device_array(L * self.d * self.columns, np.int64)
        self.scratch = cuda.device_array(max(1, held * max(self.groups)), np.float32)
        self.grid = cuda.device_array((L, self.d), np.int64)
        self.shift = cuda.to_device(np.full(L, MAX_EXPONENT, dtype=np.int64))
        made, shared = stacked_kernel(kind), 4 * rows if kind.shared else 0
        self.sums = [Launch(made, (1, groups), self.stream, shared) for groups in self.groups]
        self.finish = Launch(finish_kernel(), (L, self.d), self.stream)
        self.thresholds = cuda.to_device(np.array(thresholds()))

    def run(self, stack: Stack, stream: Stream, noisy: bool = True) -> NDArray[np.int64]:
        """The step's sums, and noise if ``noisy``: (L, d) int64 on the host."""
        kind, p = self.kind, self.records.features
        public = cuda.to_device(kind.arranged(stack, self.m))
        key = cuda.to_device(np.ascontiguousarray(stream.key, dtype=np.int64))
        counter = cuda.to_device(np.array([stream.step], dtype=np.int64))
        limits = (stack.feature_bound, stack_limit(self.L, self.m), stack_weight(self.L, self.d))
        scales = tuple(map(np.float32, limits))
        column = 0
        chunks = zip(self.records.chunks(self.stream), self.groups, self.sums, strict=True)
        for chunk, groups, sums in chunks:
            table, y, _, sizes = chunk.arguments(False)
            shape: tuple[int, ...] = (p, self.L, column, self.columns)
            where: tuple[Any, ...] = (self.partial,)
            if not kind.features:
                shape, where = shape + kind.tile_places(self.m, self.L), (self.partial, self.scratch)
            sums(table, y, self.records.map, sizes, public, *where, shape, scales, self.sampler, key, counter)
            column += groups
        noise = scale_of(stack.noise_multiplier * GRID) if noisy else (0, 1)
        places = (self.L, self.d, self.columns, kind.first, p, 0)
        self.finish(self.partial, self.shift, self.grid, places, noise, self.thresholds, key, counter)
        if self.stream:
            self.stream.synchronize()
        return np.asarray(self.grid.copy_to_host())


def stacked_sums(
    loss: str, intercept: bool, records: Records | Placed, stack: Stack, stream: Stream
) -> NDArray[np.int64]:
    """The sums without noise; same contract as ``cpu.stacked_sums``.  Not a release."""
    return _step(loss, intercept, records, stack).run(stack, stream, noisy=False)


def noisy_stacked(
    loss: str, intercept: bool, records: Records | Placed, stack: Stack, stream: Stream
) -> NDArray[np.int64]:
    """One release: :func:`stacked_sums` plus the Gaussian perturbation, whatever the minibatch (an empty one too)."""
    return _step(loss, intercept, records, stack).run(stack, stream)


def _step(loss: str, intercept: bool, records: Records | Placed, stack: Stack) -> StackedStep:
    """The step of these sizes, kept with the records where those are placed already."""
    L, threshold = len(stack.theta), stack.threshold
    if isinstance(records, Records):
        return StackedStep(loss, intercept, placed(records, response=True), L, threshold)
    key = ("stacked", loss, intercept, L, threshold)
    if key not in records.steps:
        records.steps[key] = StackedStep(loss, intercept, records, L, threshold)
    step: StackedStep = records.steps[key]
    return step


def placed(records: Records, response: bool) -> Placed:
    """Records for a stacked step, with or without block ids, which it doesn't use."""
    if not records.starts.shape[0] and not records.block.shape[0]:
        records = records._replace(block=np.zeros(int(records.x.shape[0]), dtype=np.uint8))
    return place(records, response)
