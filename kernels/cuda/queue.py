"""Which records a block of threads works on next: hits of the sampler, which wait in shared memory for a thread each.

For kernels whose threads all work on one record at a time; :mod:`.sums` describes the queue.  What is needed only when
hits are drawn lies in shared memory, too: registers are for sums.
"""

from typing import Any

from numba import cuda

from pgbb_fast.kernels.cuda.compile import THREADS, WARPS, device
from pgbb_fast.kernels.cuda.instructions import I32, I64, at, put
from pgbb_fast.kernels.cuda.sums import hits
from pgbb_fast.kernels.scalar.random import WORDS

STATE = 2 + 2 * WARPS       # window and helping, then where each warp is in its chunk, and the chunk's end


def _open(state: Any, window: Any, n: Any, bits: Any) -> None:
    """The first helping of a window of records; without chunks (a mask draws them) it is the only one."""
    me = I64(cuda.threadIdx.x)
    warp = me >> 5
    if me == 0:
        put(state, I64(0), window)
        put(state, I64(1), I64(0))
    if me & 31 == 0:
        record, end = I64(0), I64(0)
        if bits > 0:
            record = (window * WARPS + warp) << bits
            end = min(n, record + (I64(1) << bits))
        put(state, 2 + warp, record)
        put(state, 2 + WARPS + warp, end)


open_window = device(_open)


def _windows(n: Any, bits: Any) -> Any:
    """Windows of ``n`` records."""
    per_window = I64(THREADS * WORDS)
    if bits > 0:
        per_window = I64(WARPS) << bits
    return (n + per_window - 1) // per_window


windows_of = device(_windows)


def _taken(count: Any, queue: Any) -> Any:
    """(this thread's record or -1, hits that wait then): one for each thread, or what is left."""
    me, here = I64(cuda.threadIdx.x), I64(-1)
    chosen = min(count, I32(THREADS))
    if me < chosen:
        here = I64(at(queue, I64(count - chosen) + me))
    return here, I32(count - chosen)


taken = device(_taken)


def _refilled(
    count: Any, state: Any, first: Any, n: Any, step: Any, sampler: Any, key: Any, queue: Any, size: Any
) -> Any:
    """Draw a helping beside the ``count`` hits that wait: (how many wait then, whether more can be drawn)."""
    me, more = I64(cuda.threadIdx.x), I32(1)
    cuda.syncthreads()
    if me == 0:
        put(size, I64(0), count)
    cuda.syncthreads()
    warp = me >> 5
    window, helping = at(state, I64(0)), at(state, I64(1))
    record, end = at(state, 2 + warp), at(state, 2 + WARPS + warp)
    record, left = hits((first, n, window, helping, record, end, step), sampler, key, queue, size)
    if left == 0:
        window += I64(cuda.gridDim.y)
        open_window(state, window, n, sampler[1])
        more = I32(1 if window < windows_of(n, sampler[1]) else 0)
    else:
        if me == 0:
            put(state, I64(1), helping + 1)
        if me & 31 == 0:
            put(state, 2 + warp, record)
    return I32(at(size, I64(0))), more


refilled = device(_refilled)
