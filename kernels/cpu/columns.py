"""Stored numbers in single precision: one by one, and rows of them as columns.  Memory and shuffles only."""

from collections.abc import Callable
from functools import cache
from math import gcd
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from pgbb_fast.kernels.cpu.intrinsics import I32, element_of, keep_order


def _as_float(builder: Any, value: Any, element: Any, encoding: str, lanes: int = 0) -> Any:
    """A number, or a vector of ``lanes`` of them, in single precision.

    ``element`` is Numba's type of what is stored; ``encoding`` says what the bits of unsigned 16-bit words mean.
    """
    kind, word = (ir.VectorType(t, lanes) if lanes else t for t in (ir.FloatType(), I32))

    def all_of(type_: Any, constant: Any) -> Any:
        return ir.Constant(type_, [constant] * lanes if lanes else constant)

    if encoding:
        bits = builder.zext(value, word)
        if encoding == "bfloat16":      # the upper half of a single-precision number
            return builder.bitcast(builder.shl(bits, all_of(word, 16)), kind)
        size = builder.and_(bits, all_of(word, 0x7FFF))
        sign = builder.shl(builder.and_(bits, all_of(word, 0x8000)), all_of(word, 16))
        moved = builder.shl(size, all_of(word, 13))
        normal = builder.add(moved, all_of(word, 112 << 23))
        tiny = builder.bitcast(builder.fmul(builder.uitofp(size, kind), all_of(kind, 2.0**-24)), word)
        wide = builder.or_(moved, all_of(word, 0x7F800000))
        found = builder.select(builder.icmp_unsigned("<", size, all_of(word, 0x0400)), tiny, normal)
        found = builder.select(builder.icmp_unsigned(">=", size, all_of(word, 0x7C00)), wide, found)
        return builder.bitcast(builder.or_(found, sign), kind)
    if element == types.float32:
        return value
    if element == types.float64:
        return builder.fptrunc(value, kind)
    return builder.sitofp(value, kind) if element.signed else builder.uitofp(value, kind)


def _number(encoding: str) -> Callable[..., Any]:
    """An intrinsic: ``array[index]``, index >= 0, in single precision."""

    @intrinsic
    def number(typing: Any, array: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            stored = builder.load(element_of(context, builder, signature.args[0], args[0], args[1]))
            return _as_float(builder, stored, signature.args[0].dtype, encoding)

        return types.float32(array, types.intp), generate

    return number  # type: ignore[no-any-return]


@cache
def rows_to_columns(columns: int, encoding: str) -> Callable[..., None]:
    """An intrinsic that turns pieces of 16 rows into ``columns`` (at most 8) columns of 16 numbers each.

    ``f(x, width, column, hits, first, buffer, place, stride)``: x[row r, column + j], r < 16, j < columns, goes to
    buffer[place + j * stride + r]; row r is hits[first + r].  Nothing else is read: what lies behind a row may be in
    another cache line.  A butterfly of two or three steps; shuffles only, of which the compiler leaves out what isn't
    needed.
    """
    lanes = 4 if columns <= 4 else 8

    @intrinsic
    def transpose(
        typing: Any, x: Any, width: Any, column: Any, hits: Any, first: Any, buffer: Any, place: Any, stride: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds = signature.args
            x_, width_, column_, hits_, first_, buffer_, place_, stride_ = args
            element = context.get_data_type(kinds[0].dtype)
            intp = width_.type

            def row(r: int) -> Any:
                hit = builder.load(element_of(context, builder, kinds[3], hits_, builder.add(first_, intp(r))))
                start = builder.add(builder.mul(hit, width_), column_)
                read, whole = 0, ir.VectorType(element, lanes)(ir.Undefined)
                for size in (8, 4, 2, 1):
                    if columns & size:
                        pointer = element_of(context, builder, kinds[0], x_, builder.add(start, intp(read)))
                        part_type = ir.VectorType(element, size)
                        part = builder.bitcast(pointer, part_type.as_pointer())
                        part = builder.load(part, align=context.get_abi_sizeof(element))
                        part = shuffle(part, part_type(ir.Undefined), [min(i, size) for i in range(lanes)])
                        new = range(read, read + size)
                        whole = shuffle(whole, part, [lanes + i - read if i in new else i for i in range(lanes)])
                        read += size
                return _as_float(builder, whole, kinds[0].dtype, encoding, lanes)

            def shuffle(a: Any, b: Any, order: list[int]) -> Any:
                mask = ir.Constant(ir.VectorType(I32, len(order)), [I32(i) for i in order])
                return builder.shuffle_vector(a, b, mask)

            def join(parts: list[Any]) -> Any:
                while len(parts) > 1:
                    size = parts[0].type.count
                    parts = [shuffle(a, b, list(range(2 * size))) for a, b in zip(parts[::2], parts[1::2], strict=True)]
                return parts[0]

            v = [join([row(r + lanes * g) for g in range(16 // lanes)]) for r in range(lanes)]
            half = lanes // 2
            while half:
                low = [i if not i & half else 16 + i - half for i in range(16)]
                high = [i + half if not i & half else 16 + i for i in range(16)]
                for i in range(lanes):
                    if not i & half:
                        v[i], v[i + half] = shuffle(v[i], v[i + half], low), shuffle(v[i], v[i + half], high)
                half //= 2
            for j in range(columns):
                at_ = builder.add(place_, builder.mul(stride_, intp(j)))
                pointer = element_of(context, builder, kinds[5], buffer_, at_)
                builder.store(v[j], builder.bitcast(pointer, v[j].type.as_pointer()), align=4)
            return context.get_dummy_value()

        one = types.intp
        return types.void(x, one, one, hits, one, buffer, one, one), generate

    return transpose  # type: ignore[no-any-return]


class _Labelled(NamedTuple):
    """A vector and which (row, column) is in each of its lanes."""

    value: Any
    labels: list[tuple[int, int]]


@cache
def neighbours_to_columns(width: int, encoding: str) -> Callable[..., None]:
    """An intrinsic that turns 16 rows of ``width`` (at most 17) numbers, one after the other, into columns.

    ``f(x, first, buffer, place, stride)``: x[first + r, j], r < 16, j < width, goes to buffer[place + j * stride + r].
    The rows are read as ``width`` vectors of 16 numbers, nothing else is.  With g = gcd(width, 16) and w = width / g,
    16 / g rows fill w vectors, number i being in vector i div 16, lane i mod 16.  Column a g + b has the lanes l that
    are b modulo g, all of them once, for 16 / g and w have no common factor; and it has them from vector
    (a - l div g) / (16 / g) modulo w.  So w vectors, in the order of that quotient, are moved on by l div g in
    each lane l: a barrel shifter, which takes a choice for each vector and bit.  Shuffles then part the b, where g > 1,
    and put the rows into order.
    """
    common = gcd(width, 16)
    w, lanes = width // common, 16 // common
    order = [pow(lanes, -1, w) * a % w for a in range(w)]

    @intrinsic
    def transpose(typing: Any, x: Any, first: Any, buffer: Any, place: Any, stride: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds = signature.args
            x_, first_, buffer_, place_, stride_ = args
            element = context.get_data_type(kinds[0].dtype)
            intp = first_.type
            start = builder.mul(first_, intp(width))

            def vector(i: int) -> _Labelled:
                keep_order(builder)
                pointer = element_of(context, builder, kinds[0], x_, builder.add(start, intp(16 * i)))
                wide = builder.bitcast(pointer, ir.VectorType(element, 16).as_pointer())
                size = context.get_abi_sizeof(element)
                stored = builder.load(wide, align=size)
                value = _as_float(builder, stored, kinds[0].dtype, encoding, 16)
                return _Labelled(value, [divmod(16 * i + lane, width) for lane in range(16)])

            def shuffle(a: _Labelled, b: _Labelled, labels: list[tuple[int, int]]) -> _Labelled:
                both = a.labels + b.labels
                mask = ir.Constant(ir.VectorType(I32, 16), [I32(both.index(label)) for label in labels])
                return _Labelled(builder.shuffle_vector(a.value, b.value, mask), labels)

            groups = []     # of rows; each has, for every a and what is known of b, a vector
            for group in range(common):
                read = [vector(group * w + i) for i in range(w)]
                v = [read[i] for i in order]
                bit = 1
                while bit < w:
                    moved = [lane // common % w & bit != 0 for lane in range(16)]
                    mask = ir.Constant(ir.VectorType(ir.IntType(1), 16), moved)
                    v = [
                        _Labelled(
                            builder.select(mask, v[a - bit].value, v[a].value),
                            [v[a - bit * m].labels[lane] for lane, m in enumerate(moved)],
                        )
                        for a in range(w)
                    ]
                    bit *= 2
                groups.append(v)
            bit = 1
            while len(groups) > 1:
                pairs = zip(groups[::2], groups[1::2], strict=True)
                groups = [
                    [
                        shuffle(a, b, sorted(i for i in a.labels + b.labels if i[1] % common & bit == side))
                        for a, b in zip(left, right, strict=True)
                        for side in (0, bit)
                    ]
                    for left, right in pairs
                ]
                bit *= 2
            for a in groups[0]:
                column = a.labels[0][1]
                pointer = element_of(
                    context, builder, kinds[2], buffer_, builder.add(place_, builder.mul(stride_, intp(column)))
                )
                value = shuffle(a, a, [(row, column) for row in range(16)]).value
                builder.store(value, builder.bitcast(pointer, value.type.as_pointer()), align=4)
            return context.get_dummy_value()

        one = types.intp
        return types.void(x, one, buffer, one, one), generate

    return transpose  # type: ignore[no-any-return]


ENCODINGS = ("", "float16", "bfloat16")    # "": what the array's own type says
NUMBER = {encoding: _number(encoding) for encoding in ENCODINGS}
