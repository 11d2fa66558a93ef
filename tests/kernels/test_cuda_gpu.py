"""The kernels on a real GPU: the simulator's cases, tensors in place, streamed records, torch's stream, the graph."""

import numpy as np
import pytest

from pgbb_fast.kernels import cpu, reference
from pgbb_fast.kernels.cuda.probe import probe
from tests.kernels import test_cuda_simulated as simulated

FOUND = probe()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not FOUND.usable, reason=f"needs a GPU: {FOUND.sentence}")]


@pytest.mark.parametrize("name", list(simulated.cases()))
def test_a_release_equals_the_reference_and_the_cpu(name):
    from pgbb_fast.kernels.cuda import api

    case = simulated.cases()[name]
    got = api.noisy_gradient(*case)
    simulated.check(got, *case)
    assert np.array_equal(got, api.noisy_gradient(*case))       # the same bits in every run
    if "q =" in name:
        noise = reference.noise(got.shape, case[4], case[5])
        assert np.array_equal(got - noise, cpu.gradient_sums(*case))


def test_a_large_full_pass_has_the_bits_of_the_cpu():
    """Enough records that 32-bit sums are emptied several times, in every thread."""
    from pgbb_fast.kernels.cuda import api

    case = simulated.case("huber_concomitant", 20_000_000, 4, 3, 20, 1.0)
    assert np.array_equal(api.gradient_sums(*case), cpu.gradient_sums(*case))


@pytest.mark.parametrize("q", [0.4, 0.001])
def test_a_large_minibatch_has_the_bits_of_the_cpu(q):
    from pgbb_fast.kernels.cuda import api

    case = simulated.case("quantile_gaussian", 5_000_000, 4, 3, 20, q)
    assert np.array_equal(api.gradient_sums(*case), cpu.gradient_sums(*case))


@pytest.mark.parametrize("name", simulated.MOMENTS)
def test_score_moments(name):
    from pgbb_fast.kernels.cuda import api

    case = simulated.moment_case(name)
    want = reference.score_moments(*case)
    assert np.abs(api.score_moments(*case) - want).max() <= len(case[2].x) * (1 + 64 * 2.0**-53 * 2**32)


@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_torch_tensors_are_read_in_place_on_torch_s_stream(layout):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    from numba import cuda

    from pgbb_fast.kernels.cuda.records import place
    from pgbb_fast.kernels.cuda.steps import Step

    loss, intercept, records, draws, mechanism, stream = simulated.case("huber_concomitant", 10_007, 4, 3, 20, 0.3)
    x, y, block = (torch.from_numpy(part).cuda() for part in records[:3])
    x = x.t().contiguous().t() if layout == "columns" else x
    placed = place(records._replace(x=x, y=y, block=block), response=True)
    assert placed.chunk.table.device_ctypes_pointer.value == x.data_ptr()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step = Step(loss, intercept, placed, 3, 20, mechanism, side.cuda_stream)
        step.key.copy_to_device(np.asarray(stream.key, dtype=np.int64))
        step.counter.copy_to_device(np.array([stream.step]))
        parts = [torch.from_numpy(part).cuda() for part in draws]
        side.synchronize()
        step.launch(*(cuda.as_cuda_array(part, sync=False) for part in parts))
        grid = torch.as_tensor(step.grid, device="cuda").cpu().numpy()
    assert np.array_equal(grid, cpu.noisy_gradient(loss, intercept, records, draws, mechanism, stream))


@pytest.mark.parametrize("encoding", ["float16", "bfloat16"])
def test_tensors_of_half_precision_are_read_in_place(encoding):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    from pgbb_fast.kernels.cuda import api

    case = simulated.half(encoding, encoding, q=0.4, n=5_003)
    loss, intercept, records, draws, mechanism, stream = case
    kind = {"float16": torch.float16, "bfloat16": torch.bfloat16}[encoding]
    x, y = (torch.from_numpy(part.view(np.int16)).cuda().view(kind) for part in (records.x, records.y))
    got = api.noisy_gradient(loss, intercept, records._replace(x=x, y=y), draws, mechanism, stream)
    assert np.array_equal(got, cpu.noisy_gradient(*case))


def test_records_streamed_from_the_host():
    from pgbb_fast.kernels.cuda import api
    from pgbb_fast.kernels.cuda.records import place

    for loss, intercept, records, draws, mechanism, stream in (
        simulated.streamed_case(),
        simulated.case("quantile_logistic", 5_300_000, 6, 2, 20, 1.0),
    ):
        placed = place(records, response=True, limit=0)
        assert len(placed.sizes) > 2
        for _ in range(2):
            got = api.gradient_sums(loss, intercept, placed, draws, mechanism, stream)
            assert np.array_equal(got, cpu.gradient_sums(loss, intercept, records, draws, mechanism, stream))


def test_training_as_a_graph_equals_training_on_the_cpu():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    from dataclasses import replace

    from pgbb_fast.network.device_training import train_on_device
    from pgbb_fast.network.training import train
    from pgbb_fast.release.blocked import Keys
    from pgbb_fast.release.devices import place
    from tests.network import training

    problem, results = training.problem(3, steps=600), []
    for device in ("cpu", "cuda"):
        model = training.generator()
        here = replace(problem, records=place(device, problem.records, True), device=device)
        (train if device == "cpu" else train_on_device)(here, model, Keys.fresh(7))
        results.append(training.parameters(model).cpu())
    # matrix products differ in their last bits; the noise keeps a run from following them far
    assert (results[0] - results[1]).abs().max() <= 1e-3


def test_a_fit_on_the_gpu_equals_the_fit_on_the_cpu():
    from pgbb_fast import PrivateQuantileRegressor

    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (20_000, 2))
    y = x @ [1.0, -1.0] + rng.normal(0, 0.3, 20_000)
    settings = {"x_bounds": [(0, 1)] * 2, "y_bounds": (-3, 3), "epsilon": 2.0, "delta": 1e-5, "seed": 1, "steps": 500}
    means = [PrivateQuantileRegressor(**settings, device=d).fit(x, y).posterior_.mean() for d in ("cpu", "cuda")]
    assert np.allclose(means[0], means[1], rtol=1e-6)


class ByDLPack:
    """A tensor that says no more than DLPack does."""

    def __init__(self, tensor):
        self.tensor, self.shape = tensor, tuple(tensor.shape)

    def __dlpack__(self, **asked):
        return self.tensor.__dlpack__(**asked)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
@pytest.mark.parametrize("loss", ["squared", "far from zero", "exponential"])
def test_means_of_arrays_on_the_gpu_equal_those_of_the_host(loss, dtype):
    """Tensors by row and by column, DLPack alone, and the array interface: what the CPU makes of the host's array, but
    for a unit of the grid in each release."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    from numba import cuda

    from pgbb_fast import DataError, PrivateMean

    bounds = {"squared": [(-1, 6), (0, 8)], "far from zero": [(-1, 6), (1990, 2020)], "exponential": [(0, 16)]}[loss]
    x = np.random.default_rng(4).uniform(-2, 12, (20_000, len(bounds))).astype(dtype)
    settings = {
        "x_bounds": bounds, "coef_bounds": [(max(low, 1), high) for low, high in bounds], "clip": 0.8,
        "loss": "exponential" if loss == "exponential" else "squared", "epsilon": 2.0, "delta": 1e-5, "seed": 3,
        "steps": 300,
    }  # fmt: skip
    want = PrivateMean(**settings, device="cpu").fit(x).posterior_.mean()
    rows = torch.from_numpy(x).cuda()
    for there in (rows, rows.t().contiguous().t(), ByDLPack(rows), cuda.to_device(x)):
        model = PrivateMean(**settings).fit(there)
        assert model.device_.kind == "cuda"
        assert np.allclose(model.posterior_.mean(), want, rtol=1e-6)
    if dtype != "int16":
        rows[777, -1] = float("nan")
        with pytest.raises(DataError, match="X has values that are nan or infinite"):
            PrivateMean(**settings).fit(rows)
