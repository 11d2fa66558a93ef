"""Single instructions that Numba has no name for.  Memory and arithmetic only; no formula.

``at`` and ``put`` index without Numba's treatment of negative indices, which would keep loops from vectorising;
callers keep within bounds.
"""

from collections.abc import Callable
from typing import Any

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


def element_of(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """Pointer to ``array[index]`` of a one-dimensional contiguous array."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index], inbounds=True)


def keep_order(builder: Any) -> None:
    """No instruction, across which the compiler moves nothing that reads or writes memory."""
    builder.asm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", [], True)


@intrinsic
def at(typing: Any, array: Any, index: Any) -> Any:
    """``array[index]``, index >= 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(element_of(context, builder, signature.args[0], args[0], args[1]))

    return array.dtype(array, types.intp), generate


@intrinsic
def put(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """``array[index] = value``, index >= 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], element_of(context, builder, signature.args[0], args[0], args[1]))
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
        keep_order(builder)
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
        pointer = builder.bitcast(element_of(context, builder, signature.args[0], args[0], args[1]), byte)
        builder.call(function, [pointer, I32(0), I32(3), I32(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@intrinsic
def fetch_add(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """``array[index]``, to which ``value`` is added at once, whatever other threads do; what was written before is seen
    by whoever sees the sum."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = element_of(context, builder, signature.args[0], args[0], args[1])
        return builder.atomic_rmw("add", pointer, args[2], "acq_rel")

    return types.int64(array, types.intp, types.int64), generate


@intrinsic
def latest(typing: Any, array: Any, index: Any) -> Any:
    """``array[index]`` as other threads have left it."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(element_of(context, builder, signature.args[0], args[0], args[1]), "acquire", 8)

    return types.int64(array, types.intp), generate


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
                return builder.bitcast(element_of(context, builder, kind, array, index), vector.as_pointer())

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
            return builder.bitcast(element_of(context, builder, kind, array, start), type_.as_pointer())

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
                number = builder.load(element_of(context, builder, kinds[0], table_, index))
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
