"""Privacy noise on the GPU: the integers of ``scalar.normal``, one at a time in one thread."""

from collections.abc import Callable
from typing import Any

from pgbb_fast.kernels.cuda.compile import called
from pgbb_fast.kernels.cuda.formulas import double_round
from pgbb_fast.kernels.cuda.instructions import I64, U32, add32, at, put
from pgbb_fast.kernels.scalar import normal
from pgbb_fast.kernels.scalar.random import PURPOSE_NOISE, SIGMA0, SIGMA1, SIGMA2, SIGMA3
from pgbb_fast.kernels.specialise import specialise


def _fill(key: Any, step: Any, index: Any, room: Any) -> None:
    """The noise's block ``index`` of a step, in room[:16]: RFC 8439's block function, its rounds in a loop."""
    start = (
        U32(SIGMA0), U32(SIGMA1), U32(SIGMA2), U32(SIGMA3),
        U32(at(key, I64(0))), U32(at(key, I64(1))), U32(at(key, I64(2))), U32(at(key, I64(3))),
        U32(at(key, I64(4))), U32(at(key, I64(5))), U32(at(key, I64(6))), U32(at(key, I64(7))),
        U32(index & 0xFFFFFFFF), U32(index >> 32), U32(step), U32(PURPOSE_NOISE),
    )  # fmt: skip
    x = start
    for _ in range(10):
        x = double_round(*x)
    put(room, I64(0), I64(add32(x[0], start[0])))
    put(room, I64(1), I64(add32(x[1], start[1])))
    put(room, I64(2), I64(add32(x[2], start[2])))
    put(room, I64(3), I64(add32(x[3], start[3])))
    put(room, I64(4), I64(add32(x[4], start[4])))
    put(room, I64(5), I64(add32(x[5], start[5])))
    put(room, I64(6), I64(add32(x[6], start[6])))
    put(room, I64(7), I64(add32(x[7], start[7])))
    put(room, I64(8), I64(add32(x[8], start[8])))
    put(room, I64(9), I64(add32(x[9], start[9])))
    put(room, I64(10), I64(add32(x[10], start[10])))
    put(room, I64(11), I64(add32(x[11], start[11])))
    put(room, I64(12), I64(add32(x[12], start[12])))
    put(room, I64(13), I64(add32(x[13], start[13])))
    put(room, I64(14), I64(add32(x[14], start[14])))
    put(room, I64(15), I64(add32(x[15], start[15])))


def _part(template: Callable[..., Any], **parts: Any) -> Any:
    return called(specialise(template, "cuda", **parts))


fill = _part(_fill)
digit = _part(normal.digit, fill=fill)
carried = _part(normal.carried)
below = _part(normal.below, digit=digit)
below_threshold = _part(normal.below_threshold, digit=digit)
cell = _part(normal.cell, digit=digit, below_threshold=below_threshold)
rounded_normal = _part(normal.rounded_normal, digit=digit, below=below, cell=cell, carried=carried)
