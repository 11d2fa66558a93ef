"""What surrounds the CUDA kernels and needs no GPU: warp sums, plans, placing, and what is said without a GPU."""

import ctypes
import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from pgbb_fast import PrivateMean, PrivateQuantileRegressor
from pgbb_fast.baselines import DPSGLD
from pgbb_fast.errors import DataError, DeviceError, DomainError
from pgbb_fast.estimators import base, location
from pgbb_fast.intake import design as estimators_design
from pgbb_fast.intake import records as taken
from pgbb_fast.intake.design import Design
from pgbb_fast.kernels import cpu
from pgbb_fast.kernels.cuda import plan, probe, records, spans, sums, warp
from pgbb_fast.kernels.cuda.compile import expand, static, unrolled
from pgbb_fast.kernels.scalar import random, sampling
from pgbb_fast.kernels.scalar.clip import TERM_BITS
from pgbb_fast.kernels.specialise import specialise
from pgbb_fast.release import blocked as releases
from pgbb_fast.release import devices


def lanes(direction: int):
    """Shuffles on 32 lanes at once: beyond the warp's end a lane keeps its own value."""

    def shuffle(values, by):
        source = np.arange(32) + direction * by
        return np.where((source >= 0) & (source < 32), values[np.clip(source, 0, 31)], values)

    return shuffle


def test_warp_sums_and_scans():
    values = np.random.default_rng(0).integers(-(2**40), 2**40, 32)
    total = specialise(warp.total, "lanes", down=lanes(1))(values)
    assert total[0] == values.sum()
    scan = specialise(warp.scan, "lanes", up=lanes(-1))(values, np.arange(32))
    assert np.array_equal(scan, np.cumsum(values))


acc = None


def _template(n, out):
    for k in unrolled(A):
        for j in unrolled(k + 1):
            acc[k, j] = n * k + j
    for k in unrolled(A):
        if static(k % 2 == 0):
            out.append(acc[k, k])
        else:
            out.append(-acc[k, 0])


A = 2


def test_templates_are_written_out():
    for count in (2, 5):
        made = expand(_template, "x", ("acc",), {"A": count})
        out = []
        made(10, out)
        assert out == [11 * k if k % 2 == 0 else -10 * k for k in range(count)]
        assert f"acc_{count - 1}_0" in made.__code__.co_varnames
        assert made.__code__.co_filename == __file__


def test_sums_of_32_bits_can_not_overflow():
    assert (sums.MOST + 3) * 2**TERM_BITS < 2**31
    assert sums.MOST % 4 == 0
    # a helping of hits and those that wait fit into the queue; a chunk's counter has room for every helping
    assert sums.QUEUE >= sums.THREADS * random.WORDS + sums.THREADS - 1
    assert sums.WARPS * 32 * sums.GAPS + sums.THREADS - 1 <= sums.QUEUE
    assert records.LARGEST_CHUNK == 1 << sampling.MAX_BITS
    assert records.LARGEST_CHUNK % random.WORDS == 0


def kind_of(loss, p, K, **sizes):
    return plan.kind_of(loss, True, p, K, mapped=False, packed="int8", block=8, warps=4, **sizes)


def test_plans_keep_sums_within_the_registers():
    for loss in sorted(plan.CONSTANTS):
        for p in (1, 4, 10, 16, 32, 33, 500):
            for K in (1, 2, 3, 7, 10, 13, 64):
                kind = kind_of(loss, p, K, S=20, sampled=False)
                assert 1 <= kind.draws <= K
                assert kind.draws * kind.sums(8) <= max(plan.MAX_SUMS, kind.sums(8))
                assert kind.parts in (1, 2, 4)
                at_once = kind.draws * kind.parts
                padded = -(-K // at_once) * at_once
                assert padded - K < at_once
                assert padded <= 1.2 * (K + max(1, plan.MAX_SUMS // kind.sums(8)) - 1)
                assert (kind.features == p) == (p <= 32)
                assert kind.blocks == 24
                assert not kind.features or kind.row % 4 == 0
    assert kind_of("mean", 3, 2, S=9_000, sampled=True).blocks == 0
    with pytest.raises(ValueError, match="no such loss"):
        plan.Kind("median", True, 1, 1, False, False, 0)


class OnDevice:
    """An array that says it is on a GPU; the memory is the host's, and only its address is looked at."""

    def __init__(self, array):
        self.array, self.shape = array, array.shape

    def __len__(self):
        return len(self.array)

    @property
    def __cuda_array_interface__(self):
        about = dict(self.array.__array_interface__)
        about["version"] = 3
        return about


@pytest.mark.parametrize("layout", ["rows", "columns", "slice"])
def test_arrays_on_the_device_are_read_in_place_by_their_strides(layout):
    base = np.arange(60, dtype=np.float32).reshape(12, 5)
    array = {"rows": base, "columns": base.T.copy().T, "slice": np.asfortranarray(base)[1::2, ::2]}[layout]
    assert spans.on_device(OnDevice(array))
    span = spans.span_of(OnDevice(array))
    flat = (ctypes.c_float * span.length).from_address(span.pointer)
    for i in range(array.shape[0]):
        for j in range(array.shape[1]):
            assert flat[i * span.strides[0] + j * span.strides[1]] == array[i, j]
    assert span.__cuda_array_interface__["shape"] == (span.length,)
    assert span.length == 1 + (array.shape[0] - 1) * span.strides[0] + (array.shape[1] - 1) * span.strides[1]


def test_dlpack_is_read_without_a_copy():
    """torch on the CPU stands in: DLPack says the same there, but for the device."""
    tensor = torch.arange(24, dtype=torch.float64).reshape(6, 4)[:, 1:]
    span = spans.span_of(tensor)
    assert span.pointer == tensor.data_ptr()
    assert (span.shape, span.strides, span.kind) == ((6, 3), (4, 1), np.dtype(np.float64))
    assert not spans.on_device(tensor)
    assert not spans.on_device(np.zeros(3))


class Tensor(OnDevice):
    """As torch's tensors of bfloat16 describe themselves."""

    dtype = "torch.bfloat16"

    @property
    def __cuda_array_interface__(self):
        return {**super().__cuda_array_interface__, "typestr": "<V2"}


def test_half_precision_on_the_device_is_read_as_words_with_a_meaning():
    base = np.arange(12, dtype=np.float16).reshape(4, 3)
    words = base.view(np.uint16)
    for array, encoding in ((OnDevice(base), "float16"), (Tensor(words), "bfloat16"), (OnDevice(words), "")):
        span = spans.span_of(array)
        assert (span.encoding, span.strides, span.pointer) == (encoding, (3, 1), base.ctypes.data)
        assert span.__cuda_array_interface__["typestr"] == "<u2"


def test_arrays_that_can_not_be_read_in_place_are_refused():
    for array in (np.zeros((3, 2), np.complex64), np.zeros((3, 2), np.float32)[::-1]):
        with pytest.raises(ValueError, match="can't be read in place"):
            spans.span_of(OnDevice(array))


@pytest.mark.parametrize("bytes_each", [1, 21, 45, 4_000])
def test_chunks_of_streamed_records(bytes_each):
    for room in (0.0, 1e6, 1e9, 1e12):
        rows = records.rows_per_chunk(bytes_each, room)
        assert rows % 2**20 == 0    # the sampler's chunks and words start anew at every one
        assert rows >= 2**20
        assert rows == 2**20 or (rows * bytes_each <= records.STREAMED and 2 * rows * bytes_each <= room)


class Machine:
    """A system with everything, of which parts can be taken away."""

    def __init__(self, **changed):
        self.has = {
            "package": "0.30.4", "driver_error": None, "driver": (13, 0), "toolkit": (13, 0),
            "gpus": [("NVIDIA H200", (9, 0))], "trial": None, **changed,
        }  # fmt: skip

    def __getattr__(self, name):
        found = self.has[name]

        def answer():
            if isinstance(found, Exception):
                raise found
            return found

        return answer


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"package": None}, ["numba-cuda is not installed", "pip install"]),
        ({"driver_error": "CUDA driver library cannot be found"}, ["no usable NVIDIA driver", "cannot be found"]),
        ({"gpus": []}, ["CUDA 13.0", "no GPU"]),
        ({"gpus": [("Tesla K80", (3, 7))]}, ["Tesla K80", "3.7"]),
        ({"trial": "it gave wrong numbers"}, ["test kernel on NVIDIA H200 failed", "wrong numbers"]),
        (
            {"toolkit": (13, 5), "trial": "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
            ["toolkit 13.5 is newer than CUDA 13.0", "update the driver", "cuda-toolkit==13.0.*", "PTX_VERSION"],
        ),
        ({"toolkit": RuntimeError("no nvrtc")}, ["can't ask the driver or the toolkit", "no nvrtc"]),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(changed, words, monkeypatch):
    finding = probe.judge(Machine(**changed))
    assert not finding.usable
    assert all(word in finding.sentence for word in words)
    assert "\n" not in finding.sentence
    monkeypatch.setattr(devices, "probe", lambda: finding)
    assert devices.resolve("fit", "auto") == devices.Device("cpu", finding.sentence)
    with pytest.raises(DeviceError, match="device='cuda' can't be used") as error:
        devices.resolve("fit", "cuda")
    assert finding.sentence in str(error.value)
    assert devices.resolve("fit", "cpu").kind == "cpu"


def test_a_gpu_that_works_is_taken(monkeypatch):
    for changed in ({}, {"toolkit": (13, 5)}):      # a newer toolkit of the same major version may well work
        finding = probe.judge(Machine(**changed))
        assert finding.usable
        assert "NVIDIA H200" in finding.sentence
        monkeypatch.setattr(devices, "probe", lambda finding=finding: finding)
        assert devices.resolve("fit", "auto").kind == devices.resolve("fit", "cuda").kind == "cuda"


def test_the_device_is_settled_before_any_record_is_touched(monkeypatch):
    monkeypatch.setattr(devices, "probe", lambda: probe.Finding(False, "no GPU here"))
    settings = {"x_bounds": [(0, 1)], "epsilon": 1.0, "delta": 1e-5, "n_blocks": 3, "seed": 1}
    bad = np.full((300, 1), math.nan)
    with pytest.raises(DeviceError, match="PrivateMean: device='cuda' can't be used: no GPU here"):
        PrivateMean(**settings, device="cuda").fit(bad)
    with pytest.raises(DomainError, match="device must be one of"):
        PrivateMean(**settings, device="gpu")
    x = np.random.default_rng(0).uniform(0, 1, (3_000, 1))
    found = [PrivateMean(**settings, device=device, steps=300).fit(x) for device in ("auto", "cpu")]
    assert found[0].device_.sentence == "no GPU here"
    assert found[0].device_.kind == found[1].device_.kind == "cpu"
    assert np.array_equal(found[0].posterior_.mean(), found[1].posterior_.mean())


def test_arrays_on_a_gpu_need_one_and_a_design_that_is_affine(monkeypatch):
    monkeypatch.setattr(devices, "probe", lambda: probe.Finding(False, "no GPU here"))
    settings = {"x_bounds": [(0, 4), (-1, 1)], "y_bounds": (0, 1), "epsilon": 1.0, "delta": 1e-5, "n_blocks": 3}
    x, y = OnDevice(np.zeros((300, 2), np.float32)), OnDevice(np.zeros(300, np.float32))
    with pytest.raises(DeviceError, match="X is on a GPU, but kernels would run on the CPU: no GPU here"):
        PrivateQuantileRegressor(**settings).fit(x, y)
    with pytest.raises(DataError, match="one is on a GPU and the other on the host"):
        PrivateQuantileRegressor(**settings).fit(x, np.zeros(300))
    with pytest.raises(DomainError, match="arrays on a GPU can have no degrees above 1"):
        PrivateQuantileRegressor(**settings, degrees={"x1": 2}).fit(x, y)
    with pytest.raises(DeviceError, match="PrivateMean: X is on a GPU, but kernels would run on the CPU: no GPU here"):
        PrivateMean(x_bounds=[(0, 1)] * 2, epsilon=1.0, delta=1e-5).fit(x)
    with pytest.raises(DataError, match=r"X must have shape \(n, p\), got 1"):
        PrivateMean(x_bounds=[(0, 1)], epsilon=1.0, delta=1e-5).fit(y)
    with pytest.raises(DataError, match="baselines: X is on a GPU; this method takes host arrays"):
        DPSGLD(PrivateMean(x_bounds=[(0, 1)] * 2, epsilon=1.0, delta=1e-5)).fit(x)
    with pytest.raises(DataError, match=r"X must have shape \(n, p\)"):
        PrivateQuantileRegressor(**settings).fit(y, y)


@pytest.fixture
def pretended(monkeypatch):
    """The host plays the GPU: what is handed to the device is looked at, and read by the CPU's kernels."""
    seen = []

    def place(kind, placed, response):
        if kind == "cuda":
            seen.append(placed)
        return placed._replace(x=getattr(placed.x, "array", placed.x), y=getattr(placed.y, "array", placed.y))

    def unit_columns(array, bounds, centre, radius):
        inside = np.clip(array.array.astype(np.float64).reshape(-1, len(bounds)), bounds[:, 0], bounds[:, 1])
        return OnDevice(np.asarray((inside - centre) / radius).astype(np.float32).reshape(array.array.shape))

    monkeypatch.setattr(devices, "probe", lambda: probe.Finding(True, "a pretended GPU"))
    monkeypatch.setattr(base, "place", place)
    monkeypatch.setattr(releases, "kernels", lambda kind: cpu)
    monkeypatch.setattr(taken, "all_finite", lambda array: bool(np.isfinite(array.array).all()))
    for module in (location, estimators_design):
        monkeypatch.setattr(module, "unit_columns", unit_columns)
    return seen


MEANS = [
    ("squared", [(-1.0, 3.0), (0.0, 4.0)], True),
    ("squared", [(-1.0, 3.0), (1990.0, 2020.0)], False),    # too far from zero for a map in single precision
    ("exponential", [(0.5, 6.0)], False),
]


@pytest.mark.parametrize(("loss", "bounds", "in_place"), MEANS)
@pytest.mark.parametrize("kind", ["noise-aware", "generator"])
def test_means_of_an_array_on_a_gpu_are_those_of_the_host_s(loss, bounds, in_place, kind, pretended):
    x = np.random.default_rng(4).uniform(-2, 9, (2_000, len(bounds))).astype(np.float32)
    settings = {
        "x_bounds": bounds, "coef_bounds": [(max(low, 1.0), high) for low, high in bounds], "loss": loss, "clip": 0.8,
        "epsilon": 2.0, "delta": 1e-5, "n_blocks": 4, "seed": 3, "steps": 120, "posterior": kind,
    }  # fmt: skip
    there = PrivateMean(**settings).fit(OnDevice(x))
    assert there.device_.kind == "cuda"
    (placed,) = pretended
    assert isinstance(placed.x, OnDevice)
    assert (placed.x.array is x) == in_place
    assert np.array_equal(there.posterior_.draws(50), PrivateMean(**settings, device="cpu").fit(x).posterior_.draws(50))


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("far", ["x", "y", ""])
def test_regressions_of_arrays_on_a_gpu_are_those_of_the_host_s(far, intercept, pretended):
    """Bounds alone decide what is read in place and what is mapped in double precision, there as here."""
    rng = np.random.default_rng(5)
    near, years = (-6.0, 6.0), (1990.0, 2020.0)
    x = np.column_stack([rng.uniform(-8, 8, 2_000), rng.uniform(1985, 2025, 2_000)]).astype(np.float32)
    y = (x[:, 0] if far != "y" else x[:, 1] + x[:, 0]).astype(np.float32)
    settings = {
        "x_bounds": [near, years if far == "x" else near], "y_bounds": years if far == "y" else near, "epsilon": 2.0,
        "delta": 1e-5, "n_blocks": 4, "seed": 3, "steps": 120, "fit_intercept": intercept,
    }  # fmt: skip
    x = x if far == "x" else x[:, [0, 0]] * np.float32([1, -0.5])
    there = PrivateQuantileRegressor(**settings).fit(OnDevice(x), OnDevice(y))
    (placed,) = pretended
    assert [placed.x.array is x, placed.y.array is y] == [far != "x", far != "y"]
    host = PrivateQuantileRegressor(**settings, device="cpu").fit(x, y)
    assert np.array_equal(there.posterior_.draws(50), host.posterior_.draws(50))


@pytest.mark.parametrize(("loss", "bounds", "in_place"), MEANS)
def test_an_array_on_a_gpu_with_a_number_that_is_none_is_refused_without_a_place(loss, bounds, in_place, pretended):
    x = np.full((300, len(bounds)), 2.0, np.float32)
    x[123, -1] = math.nan
    model = PrivateMean(x_bounds=bounds, coef_bounds=[(1.0, 3.0)] * len(bounds), loss=loss, clip=1.0, epsilon=1.0,
                        delta=1e-5)  # fmt: skip
    with pytest.raises(DataError, match="X has values that are nan or infinite") as error:
        model.fit(OnDevice(x))
    assert "123" not in str(error.value)
    assert not pretended


def test_the_map_of_records_in_place_is_that_of_host_records():
    """In single precision: two roundings of numbers of at most 1 + |centre| / radius."""
    rng = np.random.default_rng(1)
    design = Design(("a", "b"), np.array([[0.0, 20.0], [-3.0, 1.0]]), (2.0, 12.0), True, (1, 1))
    x, y = rng.uniform(-5, 25, (1_000, 2)).astype(np.float32), rng.uniform(0, 14, 1_000).astype(np.float32)
    slope, offset = np.concatenate(design.maps).astype(np.float64).T
    mapped = np.clip(np.column_stack([x, y]) * slope + offset, -1, 1)
    assert np.abs(mapped[:, :2] - design.unit_features(x)).max() <= 8 * 2.0**-24
    assert np.abs(mapped[:, 2] - design.unit_target(y)).max() <= 8 * 2.0**-24
    assert (np.abs(mapped) == 1).any(axis=0).all()


def test_importing_the_package_never_brings_in_numba_cuda():
    code = (
        "import sys, pgbb_fast, pgbb_fast.release.devices, pgbb_fast.kernels.cuda.probe, pgbb_fast.kernels.cuda.plan\n"
        "print([name for name in sys.modules if name.startswith(('numba.cuda', 'numba_cuda'))])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
