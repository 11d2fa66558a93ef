"""Kernels for NVIDIA GPUs compile without one, assemble without spills, and use the arithmetic that the proofs need."""

import re

import numpy as np
import pytest

from bench import cuda_ptx as ptx
from pgbb_fast.kernels.cuda import stacked_plan
from pgbb_fast.kernels.cuda.plan import kind_of
from pgbb_fast.kernels.cuda.sums import FB
from pgbb_fast.kernels.scalar import clip

# a sample of the table, every loss and every kind of kernel; all of it takes minutes (python -m bench.cuda_ptx)
SAMPLE = [
    ("quantile_gaussian", 4, 1, False, (9, 0)),
    pytest.param("huber_concomitant", 10, 10, False, (10, 0), marks=pytest.mark.slow),
    pytest.param("huber_concomitant", 10, 10, True, (8, 0), marks=pytest.mark.slow),
    pytest.param("logistic", 40, 10, True, (9, 0), marks=pytest.mark.slow),
    pytest.param("mean", 10, 10, False, (8, 0), marks=pytest.mark.slow),
]


def kind(loss, p, K, sampled):
    return kind_of(loss, True, p, K, S=20, sampled=sampled, mapped=False, packed="", block=8, warps=4)


@pytest.mark.parametrize(("loss", "p", "K", "sampled", "cc"), SAMPLE)
def test_fused_kernels_assemble_without_spills(loss, p, K, sampled, cc):
    made = kind(loss, p, K, sampled)
    result = ptx.assemble(ptx.steps.sums_kernel(made), ptx.sums_signature(made), cc)
    assert result.fits, (result.registers, result.spilled)
    assert result.stack == 0                                # no array was left in local memory
    assert ".local" not in result.ptx
    assert not re.search(r"\.approx|\.ftz|\bfma\.rn\.ftz", result.ptx)      # IEEE arithmetic, nans and subnormals kept
    # terms are rounded by the fused step with the magic number, not by a conversion, which is slow on a GPU
    magic = np.float32(clip.MAGIC).view(np.uint32)
    assert len(re.findall(rf"fma\.rn\.f32[^;]*0f{magic:08X};", result.ptx)) >= made.draws * made.sums(FB)
    assert "cvt.rzi.s32.f32" not in result.ptx
    assert not re.search(r"\b(atom|red)\.\w*\.?(global|shared)?\.?add\.f", result.ptx)      # no float atomics
    if not sampled:
        assert "shfl.sync" in result.ptx
        assert "bar.sync" in result.ptx


STACKED = [
    ("quantile_gaussian", 4, 1, False, (8, 0)),
    pytest.param("quantile_gaussian", 10, 5, False, (9, 0), marks=pytest.mark.slow),
    pytest.param("huber_concomitant", 10, 5, True, (10, 0), marks=pytest.mark.slow),    # in a tile
]


@pytest.mark.parametrize(("loss", "p", "L", "sampled", "cc"), STACKED)
def test_stacked_kernels_assemble_without_spills(loss, p, L, sampled, cc):
    made = stacked_plan.kind_of(loss, True, p, L, sampled=sampled, mapped=False, stride=ptx.stacked_tiles.STRIDE)
    result = ptx.assemble(ptx.stacked.stacked_kernel(made), ptx.stacked_signature(made), cc)
    assert result.fits, (result.registers, result.spilled)
    assert result.stack == 0
    assert ".local" not in result.ptx
    assert not re.search(r"\.approx|\.ftz|\bfma\.rn\.ftz", result.ptx)
    magic = np.float32(clip.MAGIC).view(np.uint32)
    sums = L * (p + 1) if made.features else stacked_plan.ROWS
    assert len(re.findall(rf"fma\.rn\.f32[^;]*0f{magic:08X};", result.ptx)) >= sums
    assert "cvt.rzi.s32.f32" not in result.ptx
    assert not re.search(r"\b(atom|red)\.\w*\.?(global|shared)?\.?add\.f", result.ptx)
    if made.features:       # public numbers come four at a time
        assert result.ptx.count("ld.shared.v4") >= L * (p + 1) // 4


@pytest.mark.slow
def test_half_precision_is_converted_exactly():
    """float16 by the instruction for it, bfloat16 by a shift."""
    for encoding, wanted in (("float16", "cvt.f32.f16"), ("bfloat16", "shl.b32")):
        made = kind_of(
            "huber_fixed", True, 4, 1, S=20, sampled=False, mapped=False, packed="", block=8, warps=4,
            encodings=(encoding, encoding),
        )  # fmt: skip
        result = ptx.assemble(ptx.steps.sums_kernel(made), ptx.sums_signature(made), (9, 0))
        assert result.fits
        assert wanted in result.ptx
        assert "ld.global.u16" in result.ptx or "ld.global.b16" in result.ptx


SMALL = {"publish_quantile_gaussian", "finish", "to_columns", "find", "to_unit", "add_up", "moments_huber_concomitant"}


@pytest.mark.slow
@pytest.mark.parametrize("cc", ptx.ARCHITECTURES)
def test_small_kernels_assemble_without_spills(cc):
    for name, kernel, signature in ptx.kernels():
        if name in SMALL:
            assert ptx.assemble(kernel, signature, cc).fits, name


@pytest.mark.slow
def test_the_committed_table_has_every_kernel_and_all_of_them_fit():
    rows = re.findall(r"^\| (\S+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", ptx.TABLE.read_text(), re.MULTILINE)
    assert [row[0] for row in rows] == [name for name, _, _ in ptx.kernels()]
    for name, *registers, spilled in rows:
        assert max(map(int, registers)) <= ptx.MAX_REGISTERS, name
        assert int(spilled) == 0, name
