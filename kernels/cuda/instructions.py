"""The device's instructions, or their simulation: see :mod:`.intrinsics`."""

from typing import Any

from numba.cuda import types

from pgbb_fast.kernels.cuda.compile import SIMULATED

_source: Any
if SIMULATED:
    from pgbb_fast.kernels.cuda import simulated as _source
else:
    from pgbb_fast.kernels.cuda import intrinsics as _source

I32, I64, U32, F32, F64 = _source.I32, _source.I64, _source.U32, _source.F32, _source.F64
at, put, reload, PIECES = _source.at, _source.put, _source.reload, _source.PIECES
HALVES: Any = _source.HALVES
NUMBERS: Any = {"": F32, **HALVES}      # what a stored number is in single precision, by its encoding
fma, plus = _source.fma, _source.plus
add32, xor32, rotate_left = _source.add32, _source.xor32, _source.rotate_left
warp_scan, last_lane, deposit = _source.warp_scan, _source.last_lane, _source.deposit
FLOAT32, FLOAT64, INT32, INT64 = types.float32, types.float64, types.int32, types.int64     # of shared arrays
