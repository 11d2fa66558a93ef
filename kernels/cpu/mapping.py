"""The triangular map of one tile's features, in registers."""

from collections.abc import Callable
from functools import cache
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from pgbb_fast.kernels.cpu.intrinsics import VECTOR, element_of


@cache
def mapped_rows(p: int, intercept: bool, stride: int) -> Callable[..., None]:
    """An intrinsic that maps p features by a lower triangular matrix, and adds up squares.

    ``f(tile, x, out, square, full, public, place)``: features from tile[x + j stride] on, j < p; mapped ones, m = p + 1
    with an intercept, to tile[out + j stride], the sum of their squares to tile[square], for ``full`` records (a
    multiple of ``VECTOR``).  The matrix lies by rows, m numbers each, from public[place] on.  Fused steps in the order
    of the columns, the intercept's number first.
    """
    m = p + intercept

    @intrinsic
    def mapped(typing: Any, tile: Any, x: Any, out: Any, square: Any, full: Any, public: Any, place: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            tile_, x_, out_, square_, full_, public_, place_ = args
            intp = x_.type
            floats = ir.VectorType(ir.FloatType(), VECTOR)
            kind = ir.FunctionType(floats, [floats] * 3)
            fused = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{VECTOR}f32")
            lanes = ir.Constant(ir.VectorType(ir.IntType(32), VECTOR), [0] * VECTOR)

            def row(start: Any, number: int, i: Any) -> Any:
                index = builder.add(builder.add(start, intp(number * stride)), i)
                pointer = element_of(context, builder, signature.args[0], tile_, index)
                return builder.bitcast(pointer, floats.as_pointer())

            def number(j: int, k: int) -> Any:
                index = builder.add(place_, intp(j * m + k))
                value = builder.load(element_of(context, builder, signature.args[5], public_, index))
                one = builder.insert_element(floats(ir.Undefined), value, ir.IntType(32)(0))
                return builder.shuffle_vector(one, floats(ir.Undefined), lanes)

            with cgutils.for_range_slice(builder, intp(0), full_, intp(VECTOR), intp) as (i, _):
                features = [builder.load(row(x_, j, i), align=4) for j in range(p)]
                total = ir.Constant(floats, [0.0] * VECTOR)
                for j in range(m):
                    value = number(j, 0) if intercept else builder.fmul(number(j, 0), features[0])
                    for k in range(1, j + 1):
                        value = builder.call(fused, [number(j, k), features[k - intercept], value])
                    builder.store(value, row(out_, j, i), align=4)
                    total = builder.call(fused, [value, value, total])
                builder.store(total, row(square_, 0, i), align=4)
            return context.get_dummy_value()

        one = types.intp
        return types.void(tile, one, one, one, one, public, one), generate

    return mapped  # type: ignore[no-any-return]
