"""Arrays that are on a GPU already, as the memory they cover; nothing is copied, and numba-cuda isn't needed."""

from dataclasses import dataclass
from typing import Any

import numpy as np

DLPACK_CUDA = 2     # DLPack's number for memory of an NVIDIA GPU
KINDS = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")


def on_device(array: Any) -> bool:
    """Whether an array is on a GPU: it says so by __cuda_array_interface__ or by DLPack's device type."""
    if hasattr(array, "__cuda_array_interface__"):
        return True
    if isinstance(array, np.ndarray) or not hasattr(array, "__dlpack_device__"):
        return False
    return int(array.__dlpack_device__()[0]) == DLPACK_CUDA


@dataclass(frozen=True)
class Span:
    """The memory that a strided array covers, as a flat array, and the array's strides in numbers."""

    pointer: int
    kind: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    owner: Any
    encoding: str = ""      # "float16" or "bfloat16": what the bits of 16-bit words mean

    @property
    def length(self) -> int:
        """Numbers from the first to the last."""
        if 0 in self.shape:
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        typestr = "<u2" if self.encoding else self.kind.str
        return {"shape": (self.length,), "typestr": typestr, "data": (self.pointer, False), "version": 3}


def span_of(array: Any) -> Span:
    """The span of an array on the device, without a copy."""
    named = str(getattr(array, "dtype", ""))
    if hasattr(array, "__cuda_array_interface__"):
        about = array.__cuda_array_interface__
        kind, shape, pointer = np.dtype(about["typestr"]), tuple(about["shape"]), int(about["data"][0])
        in_bytes = about.get("strides")
        strides = None if in_bytes is None else tuple(int(s) // kind.itemsize for s in in_bytes)
    else:
        from cuda.core.utils import StridedMemoryView

        view = StridedMemoryView.from_dlpack(array, stream_ptr=-1)
        kind, shape, pointer = np.dtype(view.dtype), tuple(view.shape), int(view.ptr)
        strides = None if view.strides is None else tuple(int(s) for s in view.strides)
        array = (array, view)
    if strides is None:
        strides = tuple(int(np.prod(shape[i + 1 :], dtype=np.int64)) for i in range(len(shape)))
    encoding = "float16" if kind == np.float16 else ""
    if kind.itemsize == 2 and named in ("torch.bfloat16", "bfloat16"):
        kind, encoding = np.dtype(np.uint16), "bfloat16"
    if kind.name not in KINDS or min(strides, default=1) < 0:
        raise ValueError(f"place: arrays of {kind} with strides {strides} can't be read in place")
    return Span(pointer, kind, shape, strides, array, encoding)
