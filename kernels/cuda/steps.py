"""A step on the GPU: kernels made for a loss and its sizes, buffers that are kept, launches on a stream."""

from functools import cache
from typing import Any

import numpy as np
from numba import cuda
from numpy.typing import NDArray

from pgbb_fast.kernels.arguments import Draws, Mechanism, Records, Stream
from pgbb_fast.kernels.cuda import ends, formulas
from pgbb_fast.kernels.cuda.compile import THREADS, WARPS, Launch, expand, groups_for, kernel
from pgbb_fast.kernels.cuda.instructions import NUMBERS, PIECES
from pgbb_fast.kernels.cuda.plan import Kind, kind_of
from pgbb_fast.kernels.cuda.records import Placed, place
from pgbb_fast.kernels.cuda.sums import FB, REGISTERS, _sums
from pgbb_fast.kernels.scalar.clip import GRID, clip_limit
from pgbb_fast.kernels.scalar.normal import scale_of, thresholds
from pgbb_fast.kernels.scalar.random import WORDS
from pgbb_fast.kernels.scalar.sampling import ALL, by_skips, chunk_bits, skip_constants
from pgbb_fast.kernels.specialise import specialise


@cache
def sums_kernel(kind: Kind) -> Any:
    """The fused kernel of one kind, compiled on its first launch."""
    known: dict[str, Any] = {
        "KB": kind.draws, "PARTS": kind.parts, "LANES": THREADS // kind.parts, "P": kind.features,
        "XS": kind.features or FB, "A": kind.sums(FB), "ROW": kind.row, "EXTRA": kind.row, "FIRST": kind.first,
        "SCALE": kind.scale, "BLOCKS": kind.blocks, "V": kind.per_word, "SHIFT": kind.per_word.bit_length() - 1,
        "SAMPLED": kind.sampled, "AHEAD": kind.ahead, "MAPPED": kind.mapped, "INTERCEPT": kind.intercept,
        "REGRESSION": kind.regression,
    }  # fmt: skip
    slopes = formulas.SINGLE_SLOPES if kind.regression else formulas.LOCATION_SLOPES
    bound = {"slope": slopes[kind.loss], "piece": PIECES.get(kind.packed)}
    x_number, y_number = (NUMBERS[encoding] for encoding in kind.encodings)
    return kernel(expand(_sums, kind.name, REGISTERS, known, x_number=x_number, y_number=y_number, **bound))


@cache
def publish_kernel(loss: str) -> Any:
    """Rounds the public inputs of one loss."""
    return kernel(specialise(ends._publish, f"publish_{loss}", constants=formulas.CONSTANTS[loss]))


@cache
def finish_kernel() -> Any:
    """The second pass."""
    return kernel(ends.finish)


class Step:
    """One problem's step, with its buffers; everything stays on the device.

    Parameters
    ----------
    loss, intercept
        As for ``reference.regression_step``.
    records : Placed
        Records on the device, or on the host in chunks.
    K, S : int
        Draws and blocks of each step.
    mechanism : Mechanism
    stream : int
        Address of the CUDA stream that kernels run on (torch.cuda.current_stream().cuda_stream); 0: the default one.
    """

    def __init__(
        self, loss: str, intercept: bool, records: Placed, K: int, S: int, mechanism: Mechanism, stream: int = 0
    ) -> None:
        p = records.features
        self.records, self.mechanism, self.K, self.S = records, mechanism, K, S
        threshold = mechanism.threshold
        self.kind = kind_of(
            loss, intercept, p, K, S=S, sampled=threshold < ALL, mapped=records.mapped, packed=records.packed, block=FB,
            warps=WARPS, encodings=records.encodings,
        )  # fmt: skip
        kind = self.kind
        if kind.regression and not records.has_response:
            raise ValueError(f"{loss}: the records have no response")
        self.stream = cuda.external_stream(stream) if stream else 0
        self.d = kind.first + p + kind.scale
        self.row = kind.row + (0 if kind.features else p)
        self.padded = -(-K // (kind.draws * kind.parts)) * kind.draws * kind.parts
        self.tiles = 1 if kind.features else -(-p // FB)
        bits = chunk_bits(threshold) if by_skips(threshold) else 0
        skips = skip_constants(threshold) if bits else (0.0, 0.0)
        self.sampler = (threshold, bits, *skips)
        self.scales = (np.float32(1.0 / mechanism.clip), np.float32(clip_limit(p)))
        per_group = THREADS * WORDS if kind.sampled else THREADS // kind.parts * kind.per_word
        if bits:
            per_group = (THREADS // 32) << bits
        self.groups = [groups_for(-(-n // per_group)) for n in records.sizes]
        self.columns = sum(self.groups)
        self.blocks = kind.blocks or S + 1
        self.public = cuda.device_array(self.padded * (self.row + self.blocks), np.float32)
        self.shift = cuda.device_array(self.padded, np.int64)
        self.partial = cuda.device_array(self.padded * kind.sums(FB) * self.tiles * self.columns, np.int64)
        self.grid = cuda.device_array((K, self.d), np.int64)
        self.publish = Launch(publish_kernel(loss), self.padded, self.stream)
        across = self.padded // (kind.draws * kind.parts)
        made = sums_kernel(kind)
        self.sums = [Launch(made, (across, groups, self.tiles), self.stream) for groups in self.groups]
        self.finish = Launch(finish_kernel(), (K, self.d), self.stream)
        self.noise = scale_of(mechanism.noise_multiplier * GRID)
        self.thresholds = cuda.to_device(np.array(thresholds()))
        self.key = cuda.device_array(8, np.int64)
        self.counter = cuda.device_array(1, np.int64)

    def launch(self, theta: Any, weights: Any, constants: Any, noisy: bool = True) -> Any:
        """Sums, and noise if ``noisy``, into ``self.grid`` (K, d) int64 on the device, which is returned.

        ``theta`` (K, d), ``weights`` (K, S + 1) and ``constants`` (K, 2), float64, are device arrays or anything with
        __cuda_array_interface__; ``self.key`` and ``self.counter`` say where in the random stream.  Nothing waits for
        the device, unless the records are on the host.
        """
        kind = self.kind
        self.publish(theta, weights, constants, self.public, self.shift, self.row, self.blocks)
        column = 0
        chunks = zip(self.records.chunks(self.stream), self.groups, self.sums, strict=True)
        for chunk, groups, sums in chunks:
            table, y, block, sizes = chunk.arguments(bool(kind.packed))
            shape = (self.records.features, self.padded, self.blocks, column, self.columns)
            sums(
                table, y, block, self.records.map, sizes, self.public, self.partial, shape,
                self.scales, self.sampler, self.key, self.counter,
            )  # fmt: skip
            column += groups
        fb = 0 if kind.features else FB
        places = (kind.draws, kind.sums(FB), self.columns, kind.first, self.records.features, fb)
        self.finish(
            self.partial, self.shift, self.grid, places, self.noise if noisy else (0, 1), self.thresholds,
            self.key, self.counter,
        )  # fmt: skip
        return self.grid

    def run(self, draws: Draws, stream: Stream, noisy: bool = True) -> NDArray[np.int64]:
        """:meth:`launch` for arrays on the host, and the result there."""
        self.key.copy_to_device(np.ascontiguousarray(stream.key, dtype=np.int64))
        self.counter.copy_to_device(np.array([stream.step], dtype=np.int64))
        theta, weights, constants = (cuda.to_device(np.ascontiguousarray(part, dtype=np.float64)) for part in draws)
        return np.asarray(self.launch(theta, weights, constants, noisy).copy_to_host())


def gradient_sums(
    loss: str, intercept: bool, records: Records | Placed, draws: Draws, mechanism: Mechanism, stream: Stream
) -> NDArray[np.int64]:
    """The sums without noise; same contract as ``cpu.gradient_sums``.  Not a release."""
    return _step(loss, intercept, records, draws, mechanism).run(draws, stream, noisy=False)


def noisy_gradient(
    loss: str, intercept: bool, records: Records | Placed, draws: Draws, mechanism: Mechanism, stream: Stream
) -> NDArray[np.int64]:
    """One release: :func:`gradient_sums` plus the Gaussian perturbation, whatever the minibatch (an empty one too)."""
    return _step(loss, intercept, records, draws, mechanism).run(draws, stream)


def _step(loss: str, intercept: bool, records: Records | Placed, draws: Draws, mechanism: Mechanism) -> Step:
    """The step of these sizes, kept with the records where those are placed already."""
    K, S = len(draws.theta), draws.weights.shape[1] - 1
    if isinstance(records, Records):
        regression = Kind(loss, intercept, 0, 1, False, False, 0).regression
        return Step(loss, intercept, place(records, response=regression), K, S, mechanism)
    key = (loss, intercept, K, S, mechanism)
    if key not in records.steps:
        records.steps[key] = Step(loss, intercept, records, K, S, mechanism)
    step: Step = records.steps[key]
    return step
