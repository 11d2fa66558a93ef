"""The stacked step on the CPU: all records, the rules' slopes mixed and mapped, one clip, exact integer sums, noise."""

import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from pgbb_fast.kernels.arguments import Records, Stack, Stream, require_stack
from pgbb_fast.kernels.cpu import formulas, stacked_tile, tile
from pgbb_fast.kernels.cpu.columns import NUMBER, neighbours_to_columns, rows_to_columns
from pgbb_fast.kernels.cpu.compile import compiled, inner, merged
from pgbb_fast.kernels.cpu.intrinsics import VECTOR, fetch_add, put
from pgbb_fast.kernels.cpu.mapping import mapped_rows
from pgbb_fast.kernels.cpu.noise import add_noise, scale_of
from pgbb_fast.kernels.cpu.stacked_tile import TABLE, stacked_rows, stacked_tile_size
from pgbb_fast.kernels.cpu.steps import AHEAD, SERIAL, UNROLLED, _aligned
from pgbb_fast.kernels.cpu.threads import run
from pgbb_fast.kernels.cpu.tile import MAX_TILES, PAD, SQUARE, STRIDE, TILE, X, decode, flush
from pgbb_fast.kernels.layout import require_layout, stored
from pgbb_fast.kernels.reference.sampling import minibatch
from pgbb_fast.kernels.scalar.clip import GRID, MAX_EXPONENT
from pgbb_fast.kernels.scalar.sampling import ALL
from pgbb_fast.kernels.scalar.stacked import stack_limit, stack_weight
from pgbb_fast.kernels.specialise import single, specialise

SHARE = 64          # tiles that a thread takes at a time

F32, I32, I64 = np.float32, np.int32, np.int64
constants: Any = None
add_tile: Any = None
load: Any = None
load_response: Any = None
columnwise = False
has_scale = False
intercept = False
rows_of_x: Any = None


def _publish(theta: Any, pairs: Any, public: Any, place: Any) -> None:
    """For each rule theta and its three constants, in single precision, from public[place] on."""
    d = theta.shape[1]
    for k in range(theta.shape[0]):
        start = place + k * (d + 3)
        for j in range(d):
            put(public, start + j, F32(theta[k, j]))
        a, b, c = constants(theta[k, d - 1], pairs[k, 0], pairs[k, 1])
        put(public, start + d, F32(a))
        put(public, start + d + 1, F32(b))
        put(public, start + d + 2, F32(c))


publish: Any = None


def _share(
    progress: Any, x: Any, y: Any, table: Any, theta: Any, pairs: Any, public: Any, place: Any, size: Any, shift: Any,
    values: Any, hits: Any, sums: Any, total: Any,
) -> None:  # fmt: skip
    """Sums over the shares of the data that this group takes, in ``total`` (at least L d).

    ``progress`` counts the shares that some group has taken, and the groups that are done.
    """
    n = x.shape[1] if columnwise else x.shape[0]
    columns = x.shape[0] if columnwise else x.shape[1]
    L, d = theta.shape
    p = d - (1 if has_scale else 0) - (1 if intercept else 0)
    publish(theta, pairs, public, place)
    packed = y.size == 0
    for i in range(L * d):
        put(total, i, I64(0))
        for lane in range(VECTOR):
            put(sums, i * VECTOR + lane, I32(0))
    span = size * SHARE
    tiles = I64(0)
    start = fetch_add(progress, 0, 1) * span
    while start < n:
        end = start + span if start + span < n else n
        while start < end:
            m = end - start if end - start < size else size
            full = (m + PAD - 1) // PAD * PAD
            load(x, hits, start, m, full, values)
            if not packed:
                load_response(y, p, hits, start, m, full, values)
            if table.size > 0:
                decode(table, columns if packed else columns + 1, full, values)
            ahead, next_m = start + m + AHEAD, m
            if ahead + m > n:
                ahead, next_m = (ahead, n - ahead) if ahead < n else (I64(-1), I64(0))
            add_tile(x, ahead, next_m, intercept, p, L, public, place, m, full, values, sums, total)
            tiles += 1
            if tiles == MAX_TILES:
                flush(L, d, shift, sums, total)
                tiles = I64(0)
            start += m
        start = fetch_add(progress, 0, 1) * span
    flush(L, d, shift, sums, total)
    fetch_add(progress, 1, 1)


def _map_fixed(intercept: Any, p: Any, m: Any, full: Any, public: Any, out: Any, values: Any) -> None:
    """The map for the number of features that the kernel is made for."""
    rows_of_x(values, I64(X), out, I64(SQUARE), full, public, I64(TABLE))


@cache
def _kernel(loss: str, p: int, width: int, intercept: bool, x_encoding: str, y_encoding: str) -> Callable[..., Any]:
    """The compiled sums of one loss for p features (0: any number) and rows of ``width`` numbers (0: any number; -1: x
    is stored by columns)."""
    scale = loss in formulas.WITH_SCALE
    name = f"{loss}_{p}_{width}_{intercept:d}{x_encoding}{y_encoding}"
    bound: dict[str, Any] = {"P": p, "slope": formulas.SINGLE_SLOPES[loss], "has_scale": scale, "columnwise": width < 0}
    bound["intercept"] = intercept

    def part(template: Callable[..., Any], **more: Any) -> Any:
        return inner(special(template, **more))

    def special(template: Callable[..., Any], **more: Any) -> Any:
        return specialise(single(template), name, **{**bound, **more})

    number = NUMBER[x_encoding]
    if width < 0:
        load = part(tile._load_columns, number=number)
    else:
        pieces = {"by_eight": rows_to_columns(8, x_encoding), "by_rest": rows_to_columns(width % 8 or 8, x_encoding)}
        pieces["neighbours"] = neighbours_to_columns(width or 1, x_encoding)
        load = part(tile._load, WIDTH=width, number=number, **pieces)
    response = part(tile._load_response, number=NUMBER[y_encoding])
    fixed = part(_map_fixed, rows_of_x=mapped_rows(p, intercept, STRIDE)) if p else None
    add_tile = merged(
        special(
            stacked_tile.stacked_tile,
            map_rows=fixed or part(stacked_tile._map_any),
            weigh_features=part(stacked_tile._weigh_features),
            mix=part(stacked_tile._mix),
            shorten=part(stacked_tile._shorten),
            predict=part(tile._predict),
            fetch=part(tile._fetch),
        )
    )
    publish = inner(specialise(_publish, name, constants=formulas.CONSTANTS[loss]))
    return compiled(
        specialise(_share, name, **bound, load=load, load_response=response, add_tile=add_tile, publish=publish)
    )


class _Scratch(threading.local):
    """Working memory of the calling thread, kept from step to step."""

    def __init__(self) -> None:
        self.made: dict[tuple[int, ...], list[tuple[NDArray[Any], ...]]] = {}

    def get(self, groups: int, p: int, m: int, L: int, d: int, scale: bool) -> list[tuple[NDArray[Any], ...]]:
        """For each group of records: public, values, hits, sums, total."""
        found = self.made.get((groups, p, m, L, d))
        if found is None:
            if len(self.made) > 16:
                self.made.clear()
            found = self.made[groups, p, m, L, d] = [
                (
                    np.zeros(TABLE + m * m + (1 + scale) * L * L + L * (d + 3), dtype=np.float32),
                    _aligned(stacked_rows(p, m, L, scale) * STRIDE),
                    np.zeros(TILE, dtype=np.int64),
                    np.zeros(L * d * VECTOR, dtype=np.int32),
                    np.zeros(L * d, dtype=np.int64),
                )
                for _ in range(groups)
            ]
        return found


_scratch = _Scratch()


def _drawn(records: Records, stack: Stack, stream: Stream) -> Records:
    """The minibatch's records, copied: fits take all records in every step, so sampling has no path of its own."""
    take = minibatch(stream.key, stream.step, len(records.x), stack.threshold)
    y = records.y[take] if records.y.size else records.y
    return records._replace(x=np.ascontiguousarray(records.x[take]), y=y)


def stacked_sums(loss: str, intercept: bool, records: Records, stack: Stack, stream: Stream) -> NDArray[np.int64]:
    """The sums without noise, (L, d) int64 in units of C 2^-32; same contract as ``reference.stacked_sums``.  Not a
    release: for tests, benchmarks and :func:`noisy_stacked`."""
    require_stack(loss, stack, loss in formulas.WITH_SCALE)
    if stack.threshold < ALL:
        records = _drawn(records, stack, stream)
    L, d = stack.theta.shape
    m, scale = len(stack.map), loss in formulas.WITH_SCALE
    n, columns = records.x.shape
    p = m - intercept
    (x, x_encoding), (y, y_encoding) = stored(records.x), stored(records.y)
    by_rows = require_layout(loss, x, p + (y.size == 0))
    groups = 1 if n * L * (p + 2) < SERIAL else numba.get_num_threads()
    unrolled = p <= UNROLLED
    width = (columns if unrolled else 0) if by_rows else -1
    kernel = _kernel(loss, p if unrolled else 0, width, bool(intercept), x_encoding, y_encoding)
    size = stacked_tile_size(stacked_rows(p, m, L, scale))
    scratch = _scratch.get(groups, p, m, L, d, scale)
    progress = np.zeros(2, dtype=np.int64)
    shift = np.full(L, MAX_EXPONENT, dtype=np.int64)
    bounds = np.array([stack.feature_bound, stack_limit(L, m), stack_weight(L, d)])
    parts = [bounds, stack.map.ravel(), stack.mix.ravel() / stack.clip, stack.scale_mix.ravel() / stack.clip]
    with np.errstate(over="ignore"):
        table = np.concatenate(parts).astype(np.float32)
    jobs = []
    for public, *rest in scratch:
        public[: len(table)] = table
        jobs.append(
            (
                progress, x if by_rows else x.T, y, records.map, stack.theta, stack.constants, public, len(table), size,
                shift, *rest,
            )
        )  # fmt: skip
    run(kernel, jobs, progress[1:])
    total: NDArray[np.int64] = scratch[0][-1].copy()
    for memory in scratch[1:]:
        total += memory[-1]
    return total.reshape(L, d)


def noisy_stacked(loss: str, intercept: bool, records: Records, stack: Stack, stream: Stream) -> NDArray[np.int64]:
    """One release: :func:`stacked_sums` plus the Gaussian perturbation."""
    scale = scale_of(stack.noise_multiplier * GRID)
    return add_noise(stacked_sums(loss, intercept, records, stack, stream), scale, stream.key, stream.step)
