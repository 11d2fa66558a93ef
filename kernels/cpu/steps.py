"""The fused step on the CPU: sample, gather, residuals of K draws, slope, clip, weight, exact integer sums, noise."""

import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from pgbb_fast.kernels.arguments import Draws, Mechanism, Records, Stream
from pgbb_fast.kernels.cpu import formulas, tile
from pgbb_fast.kernels.cpu.columns import NUMBER, neighbours_to_columns, rows_to_columns
from pgbb_fast.kernels.cpu.compile import compiled, inner, merged
from pgbb_fast.kernels.cpu.formulas import clip_limit, grid_weight, rounding, weight_exponent
from pgbb_fast.kernels.cpu.intrinsics import VECTOR, at, fetch_add, prefetch, put, rarely
from pgbb_fast.kernels.cpu.noise import add_noise, scale_of
from pgbb_fast.kernels.cpu.sampling import (
    BATCH,
    CHUNK_COUNTER,
    GAPS,
    LANES,
    mask,
    measure,
    random_lanes,
    skip,
)
from pgbb_fast.kernels.cpu.threads import run
from pgbb_fast.kernels.cpu.tile import LOOKED_UP, MAX_TILES, PAD, TILE, decode, flush, row, tile_rows, tile_size
from pgbb_fast.kernels.layout import require_layout, stored
from pgbb_fast.kernels.scalar.clip import GRID, MAX_EXPONENT
from pgbb_fast.kernels.scalar.random import PURPOSE_SAMPLE, PURPOSE_SKIP, WORDS
from pgbb_fast.kernels.scalar.sampling import ALL, by_skips, chunk_bits, skip_constants
from pgbb_fast.kernels.specialise import single, specialise

LAG = 192                   # sampled records that wait while their cache lines are on the way
FEW, FEWER = 24, 8          # of those, asked for at once: around cipher and gaps, and between sixteen gaps and the next
AHEAD = 2 * PAD             # of consecutive records, that much is not asked for, because the processor itself does it
QUEUE = LAG + 2 * TILE + PAD   # most records that wait
UNROLLED = 16               # up to as many features get a kernel of their own
SHARES = 16                 # of the data that a group takes, one after the other, if all are equally fast
SERIAL = 40_000             # records x draws x features below which one thread is faster than two

F32, I32, I64 = np.float32, np.int32, np.int64
constants: Any = None
add_tile: Any = None
load: Any = None
load_response: Any = None
columnwise = False          # whether x is stored by columns, (columns, n)
has_scale = False


def _publish(draws_theta: Any, weights: Any, pairs: Any, public: Any, shift: Any) -> None:
    """Round the public inputs to single precision: for each draw theta, three constants, weights on the draw's grid."""
    d, blocks = draws_theta.shape[1], weights.shape[1]
    width, less = d + 3 + blocks, rounding(d)
    for k in range(draws_theta.shape[0]):
        place = k * width
        for j in range(d):
            put(public, place + j, F32(draws_theta[k, j]))
        a, b, c = constants(draws_theta[k, d - 1], pairs[k, 0], pairs[k, 1])
        put(public, place + d, F32(a))
        put(public, place + d + 1, F32(b))
        put(public, place + d + 2, F32(c))
        largest = 0.0
        for s in range(blocks):
            largest = weights[k, s] if weights[k, s] > largest else largest
        exponent = weight_exponent(largest)
        put(shift, k, I64(MAX_EXPONENT - exponent))
        for s in range(blocks):
            put(public, place + d + 3 + s, F32(grid_weight(weights[k, s], exponent, less)))


def _process(
    hits: Any, first: Any, m: Any, low: Any, ahead: Any, next_m: Any, x: Any, y: Any, block: Any, starts: Any,
    table: Any, p: Any, intercept: Any, K: Any, public: Any, width: Any, inverse: Any, limit: Any, shift: Any,
    blocks: Any, values: Any, sums: Any, total: Any,
) -> Any:  # fmt: skip
    """Gather m records, ``hits`` (ascending) or those from ``first`` on if that isn't negative, into a tile and add
    their terms to ``total``, while ``next_m`` rows from ``ahead`` on (< 0: none) are asked for.  ``low`` guesses the
    block of the first record; returns that of the last."""
    full = (m + PAD - 1) // PAD * PAD
    if first < 0:
        for i in range(m, full):
            rarely()
            put(hits, i, at(hits, m - 1))
    columns = x.shape[0] if columnwise else x.shape[1]
    packed = y.size == 0
    load(x, hits, first, m, full, values)
    if not packed:
        load_response(y, p, hits, first, m, full, values)
    if table.size > 0:
        decode(table, columns if packed else columns + 1, full, values)
    uniform = -1
    if starts.size > 0:
        start = row(hits, first, m, 0)
        if start < at(starts, low) or at(starts, low + 1) <= start:
            low, high = I64(0), starts.size - 2
            while low < high:
                middle = (low + high + 1) // 2
                if at(starts, middle) <= start:
                    low = middle
                else:
                    high = middle - 1
        if row(hits, first, m, m - 1) < at(starts, low + 1):
            uniform = low
        else:
            for i in range(full):
                rarely()
                while row(hits, first, m, i) >= at(starts, low + 1):
                    low += 1
                put(blocks, i, np.int32(low))
    elif first >= 0:
        for i in range(m):
            put(blocks, i, np.int32(at(block, first + i)))
        for i in range(m, full):
            rarely()
            put(blocks, i, np.int32(0))
    else:
        for i in range(full):
            put(blocks, i, np.int32(at(block, at(hits, i))))
    add_tile(
        x, ahead, next_m, intercept, p, K, public, width, inverse, limit, shift, blocks, uniform, m, full, values, sums,
        total,
    )  # fmt: skip
    return low


def _ask(count: Any, asked: Any, m: Any, queue: Any, x: Any, y: Any, block: Any, starts: Any) -> Any:
    """Ask for the cache lines of the next ``count`` of the queue's m records, of which the first ``asked`` have been
    asked for; returns how many have been then."""
    until = asked + count if asked + count < m else m
    for i in range(asked, until):
        rarely()
        hit = at(queue, i)
        if columnwise:
            for j in range(x.shape[0]):
                prefetch(x, j * x.shape[1] + hit)
        else:
            prefetch(x, hit * x.shape[1])
            prefetch(x, hit * x.shape[1] + x.shape[1] - 1)
        if y.size > 0:
            prefetch(y, hit)
        if starts.size == 0:
            prefetch(block, hit)
    return until


ask: Any = None
process: Any = None
publish: Any = None
regression = True


def _share(
    progress: Any, groups: Any, intercept: Any, x: Any, y: Any, block: Any, starts: Any, table: Any, theta: Any,
    weights: Any, pairs: Any, clip: Any, threshold: Any, inverse_log: Any, limit: Any, bits: Any, key: Any, step: Any,
    public: Any, shift: Any, values: Any, queue: Any, blocks: Any, words: Any, gaps: Any, sums: Any,
    total: Any,
) -> None:  # fmt: skip
    """Sums over the minibatch's records in the shares of the data that this group takes, in ``total`` (at least K d).

    ``progress`` counts the pieces of data that some group has taken, and the groups that are done.
    """
    n = x.shape[1] if columnwise else x.shape[0]
    K, d = theta.shape
    p = d - (1 if has_scale else 0) - (1 if intercept and regression else 0)
    everything, skipping = threshold >= ALL, bits > 0
    streamed = x.itemsize * (x.shape[0] if columnwise else x.shape[1]) if everything else 0
    publish(theta, weights, pairs, public, shift)
    width, inverse, longest = d + 3 + weights.shape[1], F32(1.0 / clip), F32(clip_limit(p))
    most = I64(tile_size(K, p, streamed))
    for i in range(K * d):
        put(total, i, I64(0))
        for lane in range(VECTOR):
            put(sums, i * VECTOR + lane, I32(0))
    size = most if everything else I64(BATCH)
    if skipping:
        size = I64(1) << bits
    lag = I64(0 if everything else LAG)
    units = (n + size - 1) // size
    share = units // (groups * SHARES) + 1
    unit, last, more = I64(0), I64(0), True
    record, end, index, m, asked, tiles, first, low = I64(0), I64(0), I64(0), I64(0), I64(0), I64(0), I64(-1), I64(0)
    while more or record < end or m > 0:
        if unit >= last and record >= end and more:
            unit = fetch_add(progress, 0, share)
            last = unit + share if unit + share < units else units
            more = unit < units
        if unit < last or record < end:
            if record >= end:
                record, index = unit * size, unit << CHUNK_COUNTER
                unit += 1
                end = unit * size if unit < units else n
            if everything:
                first, m, record = record, end - record, end
            elif skipping:
                old, parts = m, I64(GAPS // LANES)
                for i in range(parts + 2):      # the hits so far are asked for meanwhile, a few at a time
                    asked = ask(FEWER if 1 < i <= parts else FEW, asked, old, queue, x, y, block, starts)
                    if i == 0:
                        random_lanes(key, I64(PURPOSE_SKIP), step, index, words)
                        index += LANES
                    elif i <= parts:
                        measure(i - 1, words, inverse_log, limit, gaps)
                    else:
                        m, record = skip(gaps, record, end, I64(limit), queue, m)
            else:
                random_lanes(key, I64(PURPOSE_SAMPLE), step, record // WORDS, words)
                asked = ask(m, asked, m, queue, x, y, block, starts)
                m, record = mask(words, record, end, threshold, queue, m), end
        done = not more
        while m >= lag + most or ((done or everything) and m > 0):
            part = m if m < most else most
            ahead, next_m = I64(-1), I64(0)
            if everything and end + AHEAD < n:
                ahead, next_m = end + AHEAD, part if end + AHEAD + part < n else n - end - AHEAD
            low = process(queue, first, part, low, ahead, next_m, x, y, block, starts, table, p, intercept, K, public,
                          width, inverse, longest, shift, blocks, values, sums, total)  # fmt: skip
            tiles += 1
            if tiles == MAX_TILES:
                flush(K, d, shift, sums, total)
                tiles = I64(0)
            m -= part
            asked = asked - part if asked > part else I64(0)
            for i in range(m):
                put(queue, i, at(queue, i + part))
    flush(K, d, shift, sums, total)
    fetch_add(progress, 1, 1)


@cache
def _kernel(loss: str, p: int, width: int, x_encoding: str, y_encoding: str) -> Callable[..., Any]:
    """The compiled sums of one loss for p features and rows of ``width`` numbers (0: any number; width -1: x is stored
    by columns), and what the bits of x and y mean."""
    regression = loss in formulas.SINGLE_SLOPES
    scale = loss in formulas.WITH_SCALE
    slope = formulas.SINGLE_SLOPES[loss] if regression else formulas.LOCATION_SLOPES[loss]
    name = f"{loss}_{p}_{width}{x_encoding}{y_encoding}"
    bound: dict[str, Any] = {"P": p, "slope": slope, "has_scale": scale, "regression": regression}
    bound["columnwise"] = width < 0

    def part(template: Callable[..., Any], **more: Any) -> Any:
        return inner(special(template, **more))

    def special(template: Callable[..., Any], **more: Any) -> Any:
        return specialise(single(template), name, **bound, **more)

    squares, coefficients = part(tile._squares), part(tile._coefficients, predict=part(tile._predict))
    body = tile.regression_tile if regression else tile.location_tile
    number = NUMBER[x_encoding]
    if width < 0:
        load = part(tile._load_columns, number=number)
    else:
        pieces = {"by_eight": rows_to_columns(8, x_encoding), "by_rest": rows_to_columns(width % 8 or 8, x_encoding)}
        pieces["neighbours"] = neighbours_to_columns(width or 1, x_encoding)    # not used for any number
        load = part(tile._load, WIDTH=width, number=number, **pieces)
    response = part(tile._load_response, number=NUMBER[y_encoding])
    add_tile = merged(special(body, squares=squares, coefficients=coefficients, fetch=part(tile._fetch)))
    process = merged(special(_process, load=load, load_response=response, add_tile=add_tile))
    publish = inner(specialise(_publish, name, constants=formulas.CONSTANTS[loss]))
    return compiled(specialise(_share, name, process=process, publish=publish, ask=part(_ask), **bound))


class _Scratch(threading.local):
    """Working memory of the calling thread, kept from step to step."""

    def __init__(self) -> None:
        self.made: dict[tuple[int, int, int, int], list[tuple[NDArray[Any], ...]]] = {}

    def get(self, groups: int, K: int, d: int, S: int) -> list[tuple[NDArray[Any], ...]]:
        """For each group of records: public, shift, values, queue, blocks, words, gaps, sums, total."""
        found = self.made.get((groups, K, d, S))
        if found is None:
            if len(self.made) > 16:
                self.made.clear()
            found = self.made[groups, K, d, S] = [
                (
                    np.zeros(K * (d + 3 + S + 1) + LOOKED_UP, dtype=np.float32),
                    np.zeros(K, dtype=np.int64),
                    _aligned(tile_rows(d) * tile.STRIDE),
                    np.zeros(QUEUE, dtype=np.int64),
                    np.zeros(TILE, dtype=np.int32),
                    np.zeros(BATCH, dtype=np.uint32),
                    np.zeros(GAPS, dtype=np.int64),
                    np.zeros(K * d * VECTOR, dtype=np.int32),
                    np.zeros(K * d, dtype=np.int64),
                )
                for _ in range(groups)
            ]
        return found


def _aligned(size: int) -> NDArray[np.float32]:
    """Single-precision numbers that start on a cache line."""
    room = np.zeros(size + 16, dtype=np.float32)
    start = -room.ctypes.data % 64 // 4
    return room[start : start + size]


_scratch = _Scratch()


@cache
def _sampling(threshold: int) -> tuple[float, float, int]:
    """1 / l, the longest gap and the bits of a chunk; zeros without skips."""
    return (*skip_constants(threshold), chunk_bits(threshold)) if by_skips(threshold) else (0.0, 0.0, 0)


def gradient_sums(
    loss: str, intercept: bool, records: Records, draws: Draws, mechanism: Mechanism, stream: Stream
) -> NDArray[np.int64]:
    """The sums without noise, (K, d) int64 in units of C / (n_S 2^32); same contract as ``reference.regression_step``
    and ``reference.location_step``.  Not a release: for tests, benchmarks and :func:`noisy_gradient`."""
    K, d = draws.theta.shape
    n, columns = records.x.shape
    threshold = mechanism.threshold
    regression = loss in formulas.SINGLE_SLOPES
    p = d - intercept - (loss in formulas.WITH_SCALE) if regression else d
    (x, x_encoding), (y, y_encoding) = stored(records.x), stored(records.y if regression else records.y[:0])
    by_rows = require_layout(loss, x, p + (regression and y.size == 0))
    work = n * (threshold / ALL) * K * (p + 2)
    groups = 1 if work < SERIAL else numba.get_num_threads()
    unrolled = p <= UNROLLED
    width = (columns if unrolled else 0) if by_rows else -1
    kernel = _kernel(loss, p if unrolled else 0, width, x_encoding, y_encoding)
    constants = _sampling(threshold)
    x = x if by_rows else x.T
    scratch = _scratch.get(groups, K, d, draws.weights.shape[1] - 1)
    progress = np.zeros(2, dtype=np.int64)
    jobs = [
        (
            progress, groups, intercept, x, y, records.block, records.starts, records.map, draws.theta, draws.weights,
            draws.constants, mechanism.clip, threshold, *constants, stream.key, stream.step, *memory,
        )
        for memory in scratch
    ]  # fmt: skip
    run(kernel, jobs, progress[1:])
    total: NDArray[np.int64] = scratch[0][-1].copy()
    for memory in scratch[1:]:
        total += memory[-1]
    return total.reshape(K, d)


def noisy_gradient(
    loss: str, intercept: bool, records: Records, draws: Draws, mechanism: Mechanism, stream: Stream
) -> NDArray[np.int64]:
    """One release: :func:`gradient_sums` plus the Gaussian perturbation, whatever the minibatch (an empty one too)."""
    scale = scale_of(mechanism.noise_multiplier * GRID)
    grid = gradient_sums(loss, intercept, records, draws, mechanism, stream)
    return add_noise(grid, scale, stream.key, stream.step)
