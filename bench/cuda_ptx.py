"""Compile every CUDA kernel to PTX and assemble it, without a GPU: registers, spills and shared memory.

    python -m bench.cuda_ptx            writes bench/results/cuda_kernels.md (about ten minutes)
    python -m bench.cuda_ptx --missing  only the kernels that the table lacks

ptxas is that of the package nvidia-cuda-nvcc, which the test extra installs.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from numba import cuda
from numba.cuda import types

from pgbb_fast.kernels.cuda import (
    finite,
    moments,
    records,
    stacked,
    stacked_moments,
    stacked_plan,
    stacked_tiles,
    steps,
    unit,
)
from pgbb_fast.kernels.cuda.compile import BLOCKS_PER_SM, THREADS, WARPS
from pgbb_fast.kernels.cuda.plan import Kind, kind_of
from pgbb_fast.kernels.cuda.sums import FB
from pgbb_fast.kernels.scalar.losses import CONSTANTS

ARCHITECTURES = ((8, 0), (9, 0), (10, 0))
MAX_REGISTERS = 128
TABLE = Path(__file__).parent / "results" / "cuda_kernels.md"
I64, F32, F64 = types.int64, types.float32, types.float64


@dataclass(frozen=True)
class Assembled:
    """What ptxas says of one kernel, and the PTX it was made from."""

    registers: int
    spilled: int        # bytes stored and loaded
    stack: int
    shared: int
    ptx: str

    @property
    def fits(self) -> bool:
        """No spills and at most 128 registers."""
        return self.spilled == 0 and self.registers <= MAX_REGISTERS


def ptxas() -> Path:
    """The assembler of the pip package."""
    for package in ("nvidia-cuda-nvcc", "nvidia-cuda-nvcc-cu13"):
        try:
            files = distribution(package).files or []
        except PackageNotFoundError:
            continue
        for file in files:
            if file.name in ("ptxas", "ptxas.exe"):
                return Path(str(file.locate()))
    raise FileNotFoundError("ptxas: install the package nvidia-cuda-nvcc (pip install 'pgbb-fast[test]')")


def array(kind: Any, dimensions: int = 1) -> Any:
    return types.Array(kind, dimensions, "C")


def of_records(x: Any, y: Any) -> tuple[Any, ...]:
    return array(x), array(y), array(types.uint8), array(F32), types.UniTuple(I64, 6)


def sums_signature(kind: Kind) -> tuple[Any, ...]:
    """What :meth:`Step.launch` passes."""
    x = types.uint32 if kind.packed else types.uint16 if kind.encodings[0] else F32
    sampler = types.Tuple((I64, I64, F64, F64))
    tail = (types.UniTuple(I64, 5), types.UniTuple(F32, 2), sampler, array(I64), array(I64))
    return (*of_records(x, x), array(F32), array(I64), *tail)


def kinds() -> Iterator[Kind]:
    """The fused kernels of the table: every loss, everything or a minibatch, and the layouts."""

    def one(loss: str, p: int, K: int, sampled: bool, mapped: bool = False, packed: str = "", half: str = "") -> Kind:
        rest = {"block": FB, "warps": WARPS, "encodings": (half, half)}
        return kind_of(loss, True, p, K, S=20, sampled=sampled, mapped=mapped, packed=packed, **rest)

    for loss in sorted(set(CONSTANTS) - {"linear"}):    # linear has second moments only
        for sampled in (False, True):
            for p, K in ((4, 1), (10, 10), (40, 10)):
                yield one(loss, p, K, sampled)
    for loss in ("huber_concomitant", "quantile_gaussian", "mean"):
        for packed in ("int8", "uint16"):
            yield one(loss, 10, 10, False, True, packed)
        yield one(loss, 10, 10, True, True)
    yield one("quantile_gaussian", 4, 64, False)
    yield one("huber_concomitant", 32, 10, False)
    yield one("huber_concomitant", 24, 10, True, True)
    for half in ("float16", "bfloat16"):
        for p, sampled in ((4, False), (10, False), (10, True), (40, False)):
            yield one("huber_concomitant", p, 10, sampled, half=half)


def stacked_signature(kind: stacked_plan.StackedKind) -> tuple[Any, ...]:
    """What :meth:`StackedStep.run` passes."""
    x = types.uint16 if kind.encodings[0] else F32
    scratch = () if kind.features else (array(F32),)
    shape = types.UniTuple(I64, 4 if kind.features else 8)
    tail = (shape, types.UniTuple(F32, 3), types.Tuple((I64, I64, F64, F64)), array(I64), array(I64))
    return (array(x), array(x), array(F32), types.UniTuple(I64, 6), array(F32), array(I64), *scratch, *tail)


def stacked_kinds() -> Iterator[stacked_plan.StackedKind]:
    """The stacked kernels of the table: with everything in registers, and those for any size."""

    def one(
        loss: str, p: int, L: int, sampled: bool = False, mapped: bool = False, half: str = ""
    ) -> stacked_plan.StackedKind:
        return stacked_plan.kind_of(
            loss, True, p, L, sampled=sampled, mapped=mapped, stride=stacked_tiles.STRIDE, encodings=(half, half)
        )

    for loss, p, L in (
        ("quantile_gaussian", 4, 1), ("quantile_gaussian", 4, 5), ("quantile_gaussian", 10, 1),
        ("quantile_gaussian", 10, 5), ("quantile_gaussian", 400, 5), ("huber_concomitant", 4, 1),
        ("huber_concomitant", 4, 5), ("huber_concomitant", 10, 5), ("huber_concomitant", 400, 5),
    ):  # fmt: skip
        for sampled in (False, True):
            yield one(loss, p, L, sampled)
    for loss, p, L in (("logistic", 10, 5), ("expectile", 10, 5), ("quantile_gaussian", 11, 4), ("huber_fixed", 5, 8)):
        yield one(loss, p, L)
    yield one("quantile_gaussian", 10, 5, mapped=True)
    yield one("quantile_gaussian", 10, 5, half="float16")


def kernels() -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """(name, kernel, signature) of every kernel."""
    for kind in dict.fromkeys(kinds()):
        yield kind.name, steps.sums_kernel(kind), sums_signature(kind)
    for stack in dict.fromkeys(stacked_kinds()):
        yield f"stacked_{stack.name}", stacked.stacked_kernel(stack), stacked_signature(stack)
    public = (array(F32), array(I64), I64, I64)
    for loss in ("huber_concomitant", "quantile_gaussian", "mean"):
        yield f"publish_{loss}", steps.publish_kernel(loss), (array(F64, 2), array(F64, 2), array(F64, 2), *public)
    places = (types.UniTuple(I64, 6), types.UniTuple(I64, 2), array(I64, 2), array(I64), array(I64))
    yield "finish", steps.finish_kernel(), (array(I64), array(I64), array(I64, 2), *places)
    yield "to_columns", records._to_columns_kernel(), (array(F32), array(F32), array(F32), I64, I64, I64, I64)
    pairs = (array(F64), array(F64), array(types.int32), array(types.int32), array(I64), types.UniTuple(I64, 7), F64)
    for loss in CONSTANTS:
        yield f"moments_{loss}", moments.moments_kernel(loss, True, True), (*of_records(F32, F32), *pairs)
    doubles = (array(F64) for _ in range(5))
    stacks = (*doubles, array(types.int32), array(types.int32), array(I64), types.UniTuple(I64, 9), F64)
    for loss in ("huber_concomitant", "linear"):
        made = stacked_moments.stacked_moments_kernel(loss, True, False)
        yield f"stacked_moments_{loss}", made, (array(F32), array(F32), array(F32), types.UniTuple(I64, 6), *stacks)
    yield "moments_float16", moments.moments_kernel("logistic", True, True, ("float16", "bfloat16")), (
        *of_records(types.uint16, types.uint16),
        *pairs,
    )
    yield "find_float16", finite._find_kernel("float16"), (array(types.uint16), I64, I64, I64, I64, array(types.int32))
    yield "find", finite._find_kernel(), (array(F32), I64, I64, I64, I64, array(types.int32))
    bounds = (array(F64), array(F64), array(F64), array(F64))
    yield "to_unit", unit._to_unit_kernel(), (array(F32), I64, I64, I64, I64, *bounds, array(F32))
    yield "add_up", moments._add_up_kernel(), (array(I64), I64, array(I64))


def assemble(kernel: Any, signature: tuple[Any, ...], cc: tuple[int, int]) -> Assembled:
    """Compile for a compute capability and assemble.  Device functions ask for a current device: they are told this."""
    told = SimpleNamespace(compute_capability=cc)
    with mock.patch("numba.cuda.dispatcher.get_current_device", return_value=told):
        ptx, _ = cuda.compile(
            kernel.py_func, signature, cc=cc, device=False, abi="numba", launch_bounds=(THREADS, BLOCKS_PER_SM)
        )
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx)
        command = [str(ptxas()), "-v", f"-arch=sm_{cc[0]}{cc[1]}", str(source), "-o", f"{folder}/kernel.cubin"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr

    def number(pattern: str) -> int:
        # the kernel's own figures; subroutines for division have none of their own
        return max((int(found) for found in re.findall(pattern, said)), default=0)

    return Assembled(
        number(r"Used (\d+) registers"),
        number(r"(\d+) bytes spill stores") + number(r"(\d+) bytes spill loads"),
        number(r"(\d+) bytes stack frame"),
        number(r"(\d+) bytes smem"),
        ptx,
    )


def main() -> int:
    """Write the table; 1 if a kernel doesn't fit."""
    head = " | ".join(f"sm_{a}{b}" for a, b in ARCHITECTURES)
    lines = [
        "# CUDA kernels: registers, spills and shared memory",
        "",
        f"`python -m bench.cuda_ptx`; ptxas of nvidia-cuda-nvcc {version('nvidia-cuda-nvcc')}, "
        f"numba-cuda {version('numba-cuda')}; {THREADS} threads a block, at least {BLOCKS_PER_SM} blocks a processor.",
        "Names: loss; p features written out (0: any number); k parts of a block x draws in registers; b weights of a",
        "draw in shared memory (0: any number); i(ntercept), s(ampled), m(apped); the type of the integers in a word.",
        "Stacked: l rules, p features (0: any number); t: the tile in shared memory.",
        "",
        f"| kernel | {head} | spilled bytes | stack | shared bytes |",
        "|---|" + "---|" * (len(ARCHITECTURES) + 3),
    ]
    old = TABLE.read_text().splitlines() if "--missing" in sys.argv else []
    known = {line.split("|")[1].strip(): line for line in old if line.count("|") == 8}
    worst, count = 0, 0
    for name, kernel, signature in kernels():
        count += 1
        if name in known:
            lines.append(known[name])
            continue
        results = [assemble(kernel, signature, cc) for cc in ARCHITECTURES]
        worst += not all(result.fits for result in results)
        registers = " | ".join(str(result.registers) for result in results)
        spilled, stack = max(r.spilled for r in results), max(r.stack for r in results)
        lines.append(f"| {name} | {registers} | {spilled} | {stack} | {max(r.shared for r in results)} |")
        print(lines[-1], flush=True)
    verdict = "all fit" if not worst else f"{worst} do not fit"
    lines += ["", f"{count} kernels; {verdict}: at most {MAX_REGISTERS} registers, no spills."]
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text("\n".join(lines) + "\n")
    return int(worst > 0)


if __name__ == "__main__":
    sys.exit(main())
