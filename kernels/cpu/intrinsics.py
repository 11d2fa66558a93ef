"""Single instructions that Numba has no name for.  Memory and arithmetic only; no formula.

``at`` and ``put`` index without Numba's treatment of negative indices, which would keep loops from vectorising;
callers keep within bounds.
"""

from collections.abc import Callable
from functools import cache
from math import gcd
from typing import Any, NamedTuple

from llvmlite import binding, ir
from numba.core import cgutils, config, types
from numba.extending import intrinsic

from pgbb_fast.kernels.scalar.clip import MAGIC, MAGIC_BITS

I32 = ir.IntType(32)


def _has_avx512() -> bool:
    """Of the processor that Numba compiles for: this one, unless the environment says otherwise."""
    if config.CPU_NAME is None and config.CPU_FEATURES is None:
        return bool(binding.get_host_cpu_features().get("avx512f"))
    return "+avx512f" in (config.CPU_FEATURES or "")


VECTOR = 16 if _has_avx512() else 8     # single-precision numbers in a register


def _element(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """Pointer to ``array[index]`` of a one-dimensional contiguous array."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index], inbounds=True)


def _keep_order(builder: Any) -> None:
    """No instruction, across which the compiler moves nothing that reads or writes memory."""
    builder.asm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", [], True)


@intrinsic
def at(typing: Any, array: Any, index: Any) -> Any:
    """``array[index]``, index >= 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_element(context, builder, signature.args[0], args[0], args[1]))

    return array.dtype(array, types.intp), generate


@intrinsic
def put(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """``array[index] = value``, index >= 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], _element(context, builder, signature.args[0], args[0], args[1]))
        return context.get_dummy_value()

    return types.void(array, types.intp, array.dtype), generate


@intrinsic
def fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """``a * b + c``, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return a(a, a, a), generate


@intrinsic
def rarely(typing: Any) -> Any:
    """No instruction; keeps the compiler from spending its time and code on a loop that hardly ever runs."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _keep_order(builder)
        return context.get_dummy_value()

    return types.void(), generate


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
    """Rotation of a word."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        rotate = cgutils.get_or_insert_function(builder.module, ir.FunctionType(I32, [I32] * 3), "llvm.fshl.i32")
        return builder.call(rotate, [args[0], args[0], builder.trunc(args[1], I32)])

    return types.uint32(types.uint32, types.intp), generate


@intrinsic
def prefetch(typing: Any, array: Any, index: Any) -> Any:
    """Ask for the cache line that holds ``array[index]``."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, I32, I32, I32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        pointer = builder.bitcast(_element(context, builder, signature.args[0], args[0], args[1]), byte)
        builder.call(function, [pointer, I32(0), I32(3), I32(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@intrinsic
def fetch_add(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """``array[index]``, to which ``value`` is added at once, whatever other threads do; what was written before is seen
    by whoever sees the sum."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _element(context, builder, signature.args[0], args[0], args[1])
        return builder.atomic_rmw("add", pointer, args[2], "acq_rel")

    return types.int64(array, types.intp, types.int64), generate


@intrinsic
def latest(typing: Any, array: Any, index: Any) -> Any:
    """``array[index]`` as other threads have left it."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_element(context, builder, signature.args[0], args[0], args[1]), "acquire", 8)

    return types.int64(array, types.intp), generate


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
            stored = builder.load(_element(context, builder, signature.args[0], args[0], args[1]))
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
                hit = builder.load(_element(context, builder, kinds[3], hits_, builder.add(first_, intp(r))))
                start = builder.add(builder.mul(hit, width_), column_)
                read, whole = 0, ir.VectorType(element, lanes)(ir.Undefined)
                for size in (8, 4, 2, 1):
                    if columns & size:
                        pointer = _element(context, builder, kinds[0], x_, builder.add(start, intp(read)))
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
                pointer = _element(context, builder, kinds[5], buffer_, at_)
                builder.store(v[j], builder.bitcast(pointer, v[j].type.as_pointer()), align=4)
            return context.get_dummy_value()

        one = types.intp
        return types.void(x, one, one, hits, one, buffer, one, one), generate

    return transpose  # type: ignore[no-any-return]


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
                _keep_order(builder)
                pointer = _element(context, builder, kinds[0], x_, builder.add(start, intp(16 * i)))
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
                pointer = _element(
                    context, builder, kinds[2], buffer_, builder.add(place_, builder.mul(stride_, intp(column)))
                )
                value = shuffle(a, a, [(row, column) for row in range(16)]).value
                builder.store(value, builder.bitcast(pointer, value.type.as_pointer()), align=4)
            return context.get_dummy_value()

        one = types.intp
        return types.void(x, one, buffer, one, one), generate

    return transpose  # type: ignore[no-any-return]


class _Labelled(NamedTuple):
    """A vector and which (row, column) is in each of its lanes."""

    value: Any
    labels: list[tuple[int, int]]


ENCODINGS = ("", "float16", "bfloat16")    # "": what the array's own type says
NUMBER = {encoding: _number(encoding) for encoding in ENCODINGS}


@intrinsic
def larger_bits(typing: Any, bits: Any, value: Any) -> Any:
    """The larger, as unsigned words, of ``bits`` and the bit pattern of a single-precision number.

    Patterns of non-negative numbers are ordered as the numbers, and a nan is beyond infinity.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(I32, [I32, I32])
        larger = cgutils.get_or_insert_function(builder.module, kind, "llvm.umax.i32")
        return builder.call(larger, [args[0], builder.bitcast(args[1], I32)])

    return types.uint32(types.uint32, types.float32), generate


def _terms(draws: int, features: int, stride: int) -> Callable[..., None]:
    """An intrinsic that adds round(c_k x_j) over records to partial sums, one for each lane of a vector.

    ``f(tile, c, x, full, sums, place, next)``: coefficients c_k from tile[c + k stride] on, features x_j from
    tile[x + j stride] on, k < ``draws``, j < ``features``, ``full`` records (a multiple of ``VECTOR``).  The lanes of
    (k, j) are sums[place + k next + j VECTOR ...], int32.  Rounding is that of ``scalar.clip``: the bits of
    fma(c, x, MAGIC), less those of MAGIC once for each record.
    """

    @intrinsic
    def terms(
        typing: Any, tile: Any, c: Any, x: Any, full: Any, sums: Any, place: Any, next_: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            tile_, c_, x_, full_, sums_, place_, next__ = args
            intp = c_.type
            floats, words = ir.VectorType(ir.FloatType(), VECTOR), ir.VectorType(I32, VECTOR)
            magic = ir.Constant(floats, [MAGIC] * VECTOR)
            kind = ir.FunctionType(floats, [floats] * 3)
            fused = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{VECTOR}f32")

            def pointer(kind: Any, array: Any, index: Any, vector: Any) -> Any:
                return builder.bitcast(_element(context, builder, kind, array, index), vector.as_pointer())

            def number(start: Any, row: int, i: Any) -> Any:
                index = builder.add(builder.add(start, intp(row * stride)), i)
                return builder.load(pointer(signature.args[0], tile_, index, floats), align=4)

            pairs = [(k, j) for k in range(draws) for j in range(features)]
            lanes, sum_of = {}, {}
            for k, j in pairs:
                index = builder.add(builder.add(place_, builder.mul(next__, intp(k))), intp(j * VECTOR))
                lanes[k, j] = pointer(signature.args[4], sums_, index, words)
                sum_of[k, j] = cgutils.alloca_once(builder, words)
                builder.store(builder.load(lanes[k, j], align=4), sum_of[k, j])
            with cgutils.for_range_slice(builder, intp(0), full_, intp(VECTOR), intp) as (i, _):
                factors = [number(c_, k, i) for k in range(draws)]
                for j in range(features):
                    column = number(x_, j, i)
                    for k in range(draws):
                        term = builder.bitcast(builder.call(fused, [factors[k], column, magic]), words)
                        builder.store(builder.add(builder.load(sum_of[k, j]), term), sum_of[k, j])
            records = builder.trunc(builder.udiv(full_, intp(VECTOR)), I32)
            too_much = builder.insert_element(words(None), builder.mul(records, I32(MAGIC_BITS)), I32(0))
            too_much = builder.shuffle_vector(too_much, words(None), ir.Constant(words, [0] * VECTOR))
            for pair in pairs:
                builder.store(builder.sub(builder.load(sum_of[pair]), too_much), lanes[pair], align=4)
            return context.get_dummy_value()

        one = types.intp
        return types.void(tile, one, one, one, sums, one, one), generate

    return terms  # type: ignore[no-any-return]


def terms(stride: int) -> dict[tuple[int, int], Callable[..., None]]:
    """The intrinsics of :func:`_terms` by numbers of draws and of features."""
    return {(draws, features): _terms(draws, features, stride) for draws in (1, 2) for features in (1, 2, 4)}


@intrinsic
def look_up(typing: Any, table: Any, place: Any, indices: Any, i: Any, out: Any, j: Any) -> Any:
    """``out[j + l] = table[place + indices[i + l]]``, l < VECTOR, for indices in 0..31, and 32 numbers that can be read
    from the place on: from two registers where there are such permutations (AVX-512), which a gather isn't near."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        table_, place_, indices_, i_, out_, j_ = args
        kinds, intp = signature.args, place_.type
        floats, words = ir.VectorType(ir.FloatType(), VECTOR), ir.VectorType(I32, VECTOR)

        def vector(kind: Any, array: Any, start: Any, type_: Any) -> Any:
            return builder.bitcast(_element(context, builder, kind, array, start), type_.as_pointer())

        where = builder.load(vector(kinds[2], indices_, i_, words), align=4)
        if VECTOR == 16:
            low = builder.load(vector(kinds[0], table_, place_, floats), align=4)
            high = builder.load(vector(kinds[0], table_, builder.add(place_, intp(16)), floats), align=4)
            kind = ir.FunctionType(floats, [floats, words, floats])
            permute = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.vpermi2var.ps.512")
            found = builder.call(permute, [low, where, high])
        else:
            found = floats(ir.Undefined)
            for lane in range(VECTOR):
                index = builder.add(place_, builder.zext(builder.extract_element(where, I32(lane)), intp))
                number = builder.load(_element(context, builder, kinds[0], table_, index))
                found = builder.insert_element(found, number, I32(lane))
        builder.store(found, vector(kinds[4], out_, j_, floats), align=4)
        return context.get_dummy_value()

    one = types.intp
    return types.void(table, one, indices, one, out, one), generate


@intrinsic
def number_of(typing: Any, bits: Any) -> Any:
    """The single-precision number with these bits."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.uint32), generate


@intrinsic
def bits_of(typing: Any, value: Any) -> Any:
    """The bit pattern of a single-precision number."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], I32)

    return types.uint32(types.float32), generate
