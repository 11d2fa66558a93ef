"""Linear combinations and squared lengths of a tile's rows, for any number of rows: loops over records outside, over
rows inside, four vectors of records at a time.  The compiler would vectorise the inner loop only."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from pgbb_fast.kernels.cpu.intrinsics import I32, VECTOR, element_of

AT_ONCE = 4     # vectors: one alone would wait for each step's result

_floats, _words = ir.VectorType(ir.FloatType(), VECTOR), ir.VectorType(I32, VECTOR)


def _function(builder: Any, name: str, result: Any, arguments: int) -> Any:
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, [result] * arguments), name)


def _fused(builder: Any) -> Any:
    return _function(builder, f"llvm.fma.v{VECTOR}f32", _floats, 3)


def _pointer(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    return builder.bitcast(element_of(context, builder, kind, array, index), _floats.as_pointer())


def _all_lanes(builder: Any, number: Any) -> Any:
    alone = builder.insert_element(_floats(ir.Undefined), number, I32(0))
    return builder.shuffle_vector(alone, _floats(ir.Undefined), ir.Constant(_words, [0] * VECTOR))


def combine(rows: int, stride: int) -> Callable[..., None]:
    """An intrinsic that writes ``rows`` (one or two) linear combinations of rows of a tile.

    ``f(tile, x, n, table, c, next, start, start_2, out, full)``: row k of the result, from tile[out + k stride] on, is
    the start plus the sum over i < n of table[c + k next + i] times the row from tile[x + i stride] on, by fused steps
    in the order of i; ``full`` records, a multiple of ``AT_ONCE * VECTOR``.  The result may lie on rows it's made of.
    """

    @intrinsic
    def f(
        typing: Any, tile: Any, x: Any, n: Any, table: Any, c: Any, next_: Any, start: Any, start_2: Any, out: Any,
        full: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            tile_, x_, n_, table_, c_, next__, start_, start_2_, out_, full_ = args
            kinds, intp, fused = signature.args, x_.type, _fused(builder)
            starts = [_all_lanes(builder, number) for number in (start_, start_2_)[:rows]]
            places = [(k, v) for k in range(rows) for v in range(AT_ONCE)]
            sums = {place: cgutils.alloca_once(builder, _floats) for place in places}
            with cgutils.for_range_slice(builder, intp(0), full_, intp(AT_ONCE * VECTOR), intp) as (block, _):
                for k, v in places:
                    builder.store(starts[k], sums[k, v])
                with cgutils.for_range(builder, n_, intp=intp) as loop:
                    row = builder.add(builder.add(x_, builder.mul(loop.index, intp(stride))), block)
                    pieces = [
                        builder.load(
                            _pointer(context, builder, kinds[0], tile_, builder.add(row, intp(v * VECTOR))), align=4
                        )
                        for v in range(AT_ONCE)
                    ]
                    for k in range(rows):
                        place = builder.add(builder.add(c_, builder.mul(next__, intp(k))), loop.index)
                        factor = builder.load(element_of(context, builder, kinds[3], table_, place))
                        factor = _all_lanes(builder, factor)
                        for v in range(AT_ONCE):
                            total = builder.call(fused, [factor, pieces[v], builder.load(sums[k, v])])
                            builder.store(total, sums[k, v])
                for k, v in places:
                    where = builder.add(builder.add(out_, block), intp(k * stride + v * VECTOR))
                    pointer = _pointer(context, builder, kinds[0], tile_, where)
                    builder.store(builder.load(sums[k, v]), pointer, align=4)
            return context.get_dummy_value()

        one, number = types.intp, types.float32
        return types.void(tile, one, one, table, one, one, number, number, one, one), generate

    return f  # type: ignore[no-any-return]


def squared_lengths(stride: int) -> Callable[..., Any]:
    """An intrinsic for the squared length of each record's column of a tile.

    ``f(tile, x, n, start, out, full)``: to the row from tile[out] on go the starts plus the squares in the n rows from
    tile[x] on, by fused steps in their order; returns the bits of the largest: a nan is larger than infinity.
    """

    @intrinsic
    def f(typing: Any, tile: Any, x: Any, n: Any, start: Any, out: Any, full: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            tile_, x_, n_, start_, out_, full_ = args
            tile_kind, intp, fused = signature.args[0], x_.type, _fused(builder)
            larger = _function(builder, f"llvm.umax.v{VECTOR}i32", _words, 2)
            first = _all_lanes(builder, start_)
            sums = [cgutils.alloca_once(builder, _floats) for _ in range(AT_ONCE)]
            most = [cgutils.alloca_once(builder, _words) for _ in range(AT_ONCE)]
            for each in most:
                builder.store(_words(None), each)
            with cgutils.for_range_slice(builder, intp(0), full_, intp(AT_ONCE * VECTOR), intp) as (block, _):
                for each in sums:
                    builder.store(first, each)
                with cgutils.for_range(builder, n_, intp=intp) as loop:
                    row = builder.add(builder.add(x_, builder.mul(loop.index, intp(stride))), block)
                    for v, each in enumerate(sums):
                        place = builder.add(row, intp(v * VECTOR))
                        piece = builder.load(_pointer(context, builder, tile_kind, tile_, place), align=4)
                        builder.store(builder.call(fused, [piece, piece, builder.load(each)]), each)
                for v, each in enumerate(sums):
                    place = builder.add(builder.add(out_, block), intp(v * VECTOR))
                    found = builder.load(each)
                    builder.store(found, _pointer(context, builder, tile_kind, tile_, place), align=4)
                    bits = builder.bitcast(found, _words)
                    builder.store(builder.call(larger, [builder.load(most[v]), bits]), most[v])
            whole = builder.load(most[0])
            for each in most[1:]:
                whole = builder.call(larger, [whole, builder.load(each)])
            kind, name = ir.FunctionType(I32, [_words]), f"llvm.vector.reduce.umax.v{VECTOR}i32"
            return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [whole])

        one = types.intp
        return types.uint32(tile, one, one, types.float32, one, one), generate

    return f  # type: ignore[no-any-return]
