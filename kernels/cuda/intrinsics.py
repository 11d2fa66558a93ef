"""Single instructions that numba-cuda has no name for.  Memory and arithmetic only; no formula.

``at`` and ``put`` index with 64 bits and without Numba's treatment of negative indices; callers keep within bounds.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import cuda
from numba.cuda import types
from numba.cuda.extending import intrinsic

from pgbb_fast.kernels.cuda import warp
from pgbb_fast.kernels.cuda.compile import device
from pgbb_fast.kernels.scalar.clip import MAGIC, MAGIC_BITS
from pgbb_fast.kernels.specialise import specialise

I32, I64, U32, F32, F64 = np.int32, np.int64, np.uint32, np.float32, np.float64
WORD = ir.IntType(32)
ALL_LANES = 0xFFFFFFFF


def _element(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """Pointer to ``array[index]`` of a one-dimensional contiguous array."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index], inbounds=True)


@intrinsic
def at(typing: Any, array: Any, index: Any) -> Any:
    """``array[index]``, index >= 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_element(context, builder, signature.args[0], args[0], args[1]))

    return array.dtype(array, types.int64), generate


@intrinsic
def put(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """``array[index] = value``, index >= 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], _element(context, builder, signature.args[0], args[0], args[1]))
        return context.get_dummy_value()

    return types.void(array, types.int64, array.dtype), generate


@intrinsic
def fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """``a * b + c``, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return a(a, a, a), generate


@intrinsic
def reload(typing: Any) -> Any:
    """No instruction, but what was read from memory before counts as changed: keeps the compiler from moving the
    reads of theta out of the loop over records, into registers that there aren't."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.asm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", [], True)
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def plus(typing: Any, total: Any, c: Any, x: Any) -> Any:
    """``total`` + round(c x), rounded as ``scalar.clip`` says."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits = builder.bitcast(builder.fma(args[1], args[2], ir.FloatType()(MAGIC)), WORD)
        return builder.add(args[0], builder.sub(bits, WORD(MAGIC_BITS)))

    return types.int32(types.int32, types.float32, types.float32), generate


@intrinsic
def add32(typing: Any, a: Any, b: Any) -> Any:
    """Sum of two words modulo 2^32."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.add(*args)

    return types.uint32(types.uint32, types.uint32), generate


@intrinsic
def xor32(typing: Any, a: Any, b: Any) -> Any:
    """Bitwise exclusive or of two words."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.xor(*args)

    return types.uint32(types.uint32, types.uint32), generate


@intrinsic
def rotate_left(typing: Any, x: Any, r: Any) -> Any:
    """Rotation of a word by 1..31 bits."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        by = builder.trunc(args[1], WORD)
        return builder.or_(builder.shl(args[0], by), builder.lshr(args[0], builder.sub(WORD(32), by)))

    return types.uint32(types.uint32, types.int64), generate


def _piece(bits: int, signed: bool) -> Callable[..., Any]:
    """An intrinsic ``f(word, i)``: the i-th integer of ``bits`` bits in a word, as a single-precision number."""

    @intrinsic
    def piece(typing: Any, word: Any, i: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            by = builder.mul(builder.trunc(args[1], WORD), WORD(bits))
            part = builder.trunc(builder.lshr(args[0], by), ir.IntType(bits))
            return (builder.sitofp if signed else builder.uitofp)(part, ir.FloatType())

        return types.float32(types.uint32, types.int64), generate

    return piece  # type: ignore[no-any-return]


def _half(encoding: str) -> Callable[..., Any]:
    """An intrinsic: the single-precision number that a 16-bit word stands for, exactly."""

    @intrinsic
    def number(typing: Any, word: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            if encoding == "float16":
                return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())
            upper = builder.shl(builder.zext(args[0], WORD), WORD(16))      # a bfloat16 is the upper half of one
            return builder.bitcast(upper, ir.FloatType())

        return types.float32(types.uint16), generate

    return number  # type: ignore[no-any-return]


HALVES = {encoding: _half(encoding) for encoding in ("float16", "bfloat16")}
PIECES = {"int8": _piece(8, True), "uint8": _piece(8, False), "int16": _piece(16, True), "uint16": _piece(16, False)}


def _down(value, lanes):  # type: ignore[no-untyped-def]
    """The value of the lane ``lanes`` further on in the warp."""
    return cuda.shfl_down_sync(ALL_LANES, value, lanes)


def _up(value, lanes):  # type: ignore[no-untyped-def]
    """The value of the lane ``lanes`` before in the warp."""
    return cuda.shfl_up_sync(ALL_LANES, value, lanes)


def _last(value):  # type: ignore[no-untyped-def]
    """The value of the warp's last lane."""
    return cuda.shfl_sync(ALL_LANES, value, 31)


down, up = device(_down), device(_up)
last_lane = device(_last)
warp_scan = device(specialise(warp.scan, "cuda", up=up))
_warp_sum = device(specialise(warp.total, "cuda", down=down))


def _deposit(array, place, value):  # type: ignore[no-untyped-def]
    """Add the warp's sum of ``value`` (int64) to ``array[place]``, which no other warp touches; all lanes take part."""
    whole = _warp_sum(value)
    if cuda.threadIdx.x % 32 == 0:
        put(array, place, at(array, place) + whole)


deposit = device(_deposit)
