"""Problems, ceilings and peers of the kernel benchmark.  Everything is made and compiled before a clock starts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from pgbb_fast.kernels import cpu
from pgbb_fast.kernels.arguments import Draws, Mechanism, Records, Stack, Stream
from pgbb_fast.kernels.cpu.intrinsics import at, prefetch
from pgbb_fast.kernels.cpu.threads import run

S = 20
CLIP = 20.0     # above the loss's own bound, as in a fit: nothing is clipped, but every norm is computed
THREADS = numba.config.NUMBA_NUM_THREADS


def best(function: Callable[[], object], seconds: float = 1.5) -> float:
    """Least wall time of one call within ``seconds``: other work on the machine only adds.

    Calls take about a millisecond, so that some of them fall between the interruptions of a machine that is shared.
    """
    function()
    least, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        function()
        least = min(least, time.perf_counter() - start)
    return least


@dataclass(frozen=True)
class Case:
    """One kernel measurement: ``n`` records a call, cycling through ``slices`` sets of them so that none is cached."""

    name: str
    loss: str
    p: int
    K: int
    n: int
    slices: int = 1
    q: float = 1.0
    ordered: bool = True
    dtype: str = "float32"

    @property
    def bytes_per_record(self) -> int:
        """What a pass has to read: features, response, and a block id unless the records are in block order."""
        return np.dtype(self.dtype).itemsize * (self.p + 1) + (0 if self.ordered else 1)

    @property
    def flops_per_record(self) -> int:
        """A product and a sum for each coordinate of x, and for the intercept, twice: 2 (2 p + 2) K."""
        return 2 * (2 * self.p + 2) * self.K


def theta_size(loss: str, p: int) -> int:
    return p + 1 + (loss == "huber_concomitant")


def build(case: Case) -> Callable[[], NDArray[np.int64]]:
    """A function that runs the case's next step."""
    rng = np.random.default_rng(0)
    total, d = case.n * case.slices, theta_size(case.loss, case.p)
    table = np.empty((total, case.p + 1), dtype=case.dtype)
    for start in range(0, total, 1 << 20):
        part = rng.uniform(-1, 1, (min(1 << 20, total - start), case.p + 1)).astype(np.float32)
        table[start : start + len(part)] = part if table.dtype.kind == "f" else np.rint(100 * part)
    table_map = np.empty((0, 2), np.float32)
    if table.dtype.kind != "f":
        table_map = np.tile(np.array([0.01, 0.0], np.float32), (case.p + 1, 1))
    starts = np.arange(S + 1) * case.n // S
    starts = np.append(starts, case.n).astype(np.int64)
    block = rng.integers(0, S, case.n).astype(np.uint8)
    records = []
    for i in range(case.slices):
        part = table[i * case.n : (i + 1) * case.n]
        if case.ordered:
            records.append(Records(part, part[:0, 0].copy(), block[:0], starts, table_map))
        else:
            x, y = np.ascontiguousarray(part[:, :-1]), np.ascontiguousarray(part[:, -1])
            records.append(Records(x, y, block, map=table_map))
    weights = np.zeros((case.K, S + 1))
    weights[:, :S] = rng.dirichlet(np.ones(S), case.K)
    theta = rng.normal(0, 0.3, (case.K, d))
    theta[:, -1] = np.abs(theta[:, -1]) + 0.3
    constants = (0.5, 0.2) if case.loss.startswith("quantile") else (1.345, 0.71)
    draws = Draws(theta, weights, np.tile(constants, (case.K, 1)))
    key, mechanism, step = rng.integers(0, 2**32, 8), Mechanism(CLIP, int(case.q * 2**32), 1.0), [0]

    def call() -> NDArray[np.int64]:
        step[0] += 1
        stream = Stream(key, step[0])
        return cpu.gradient_sums(case.loss, True, records[step[0] % case.slices], draws, mechanism, stream)

    return call


LEVELS = np.array([0.1, 0.25, 0.5, 0.75, 0.9])


def plain_and_stacked(p: int, n: int) -> tuple[Callable[[], NDArray[np.int64]], Callable[[], NDArray[np.int64]]]:
    """A full pass of five quantiles, normal kernel, as separate gradients and as one stack in whitened coordinates, on
    the same records in block order.  A few per cent of them have shortened features; no score is shortened."""
    rng = np.random.default_rng(0)
    table = rng.uniform(-1, 1, (n, p + 1)).astype(np.float32)
    starts = np.append(np.arange(S + 1) * n // S, n).astype(np.int64)
    records = Records(table, table[:0, 0].copy(), np.empty(0, np.int32), starts)
    L, m = len(LEVELS), p + 1
    theta = np.zeros((L, m))
    theta[:, 0] = 2 * LEVELS - 1        # the response's quantiles
    weights = np.zeros((L, S + 1))
    weights[:, :S] = rng.dirichlet(np.ones(S), L)
    constants = np.column_stack([LEVELS, np.full(L, 0.2)])
    whiten = np.diag(np.append(1.0, np.full(p, 3**0.5))) + np.tril(rng.normal(0, 0.1, (m, m)), -1)
    mix = np.linalg.inv(np.linalg.cholesky(np.minimum.outer(LEVELS, LEVELS) - np.outer(LEVELS, LEVELS)))
    bound = float(np.quantile(np.linalg.norm(table[:10_000, :p] @ whiten[1:, 1:].T + whiten[1:, 0], axis=1), 0.95))
    bound = (1 + bound**2) ** 0.5
    stack = Stack(theta, constants, whiten, mix, np.empty((0, 0)), bound, 3.2 * bound)
    draws, mechanism = Draws(theta, weights, constants), Mechanism(CLIP, 2**32, 1.0)
    stream = Stream(rng.integers(0, 2**32, 8), 1)
    return (
        lambda: cpu.gradient_sums("quantile_gaussian", True, records, draws, mechanism, stream),
        lambda: cpu.stacked_sums("quantile_gaussian", True, records, stack, stream),
    )


def ratio(first: Callable[[], object], second: Callable[[], object], seconds: float = 10.0) -> float:
    """Least wall time of a call of the second over that of the first, in turn: both meet the same other work."""
    first(), second()
    least, end = [float("inf")] * 2, time.perf_counter() + seconds
    while time.perf_counter() < end:
        for i, call in enumerate((first, second)):
            start = time.perf_counter()
            call()
            least[i] = min(least[i], time.perf_counter() - start)
    return least[1] / least[0]


# ---- ceilings -------------------------------------------------------------------------------------------------


def matrix_product_rate() -> float:
    """Flops a second of a large single-precision matrix product by the BLAS that NumPy uses, all threads."""
    a = np.random.default_rng(0).random((768, 768)).astype(np.float32)
    out = np.empty_like(a)
    return 2 * 768**3 / best(lambda: np.matmul(a, a, out=out))


@numba.njit(nogil=True, fastmath={"reassoc", "nsz"})
def _total(x):  # type: ignore[no-untyped-def]
    total = np.float32(0.0)
    for i in range(x.size):
        total += x[i]
    return total


@numba.njit(nogil=True)
def _touch(x, width, hits):  # type: ignore[no-untyped-def]
    total, ahead = 0.0, 400
    for i in range(hits.size):
        if i + ahead < hits.size:
            start = at(hits, i + ahead) * width
            prefetch(x, start)
            prefetch(x, start + width - 1)
        start = at(hits, i) * width
        total += at(x, start) + at(x, start + width - 1)
    return total


def read_rate() -> float:
    """Bytes a second that all threads read from memory, summing 512 MiB of numbers in windows of 16 MiB."""
    x, window, place = np.ones(1 << 27, np.float32), 1 << 22, [0]

    def call() -> None:
        place[0] = (place[0] + window) % x.size
        run(_total, [(part,) for part in np.array_split(x[place[0] : place[0] + window], THREADS)])

    return 4 * window / best(call)


def random_rate(records: int, width: int, hits: int) -> float:
    """Rows a second of which all threads read the first and the last number, at ascending random places, asked for long
    before and without arithmetic: the fastest of some ways that were tried."""
    x = np.ones((records, width), np.float32)
    rng = np.random.default_rng(0)
    sets = [np.sort(rng.integers(0, records, hits)) for _ in range(40)]
    place = [0]

    def call() -> None:
        place[0] += 1
        parts = np.array_split(sets[place[0] % len(sets)], THREADS)
        run(_touch, [(x, width, part) for part in parts])

    return hits / best(call)


# ---- peers: the same loss (Huber, fixed scale), weights and clipping ----------------------------------------------


@dataclass(frozen=True)
class Data:
    """Plain arrays for the peers: design with a column of ones, response, weights of each record for each draw."""

    design: NDArray[np.float32]
    y: NDArray[np.float32]
    weights: NDArray[np.float32]
    theta: NDArray[np.float32]


def plain_data(n: int, p: int, K: int) -> Data:
    rng = np.random.default_rng(0)
    design = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, p))]).astype(np.float32)
    weights = rng.dirichlet(np.ones(S), K)[:, rng.integers(0, S, n)].T
    theta = rng.normal(0, 0.3, (K, p + 1))
    y = rng.uniform(-1, 1, n).astype(np.float32)
    return Data(design, y, np.ascontiguousarray(weights, np.float32), theta.astype(np.float32))


def numpy_step(data: Data) -> Callable[[], NDArray[np.float32]]:
    """Matrix products by BLAS, elementwise work by NumPy."""
    c = np.float32(1.345)

    def call() -> NDArray[np.float32]:
        slope = np.clip(data.design @ data.theta.T - data.y[:, None], -c, c)
        norm = np.abs(slope) * np.sqrt((data.design**2).sum(axis=1))[:, None]
        factor = np.minimum(np.float32(1.0), np.float32(CLIP) / np.maximum(norm, np.float32(1e-30)))
        return np.asarray((slope * factor * data.weights).T @ data.design)

    return call


def torch_step(data: Data) -> Callable[[], object]:
    """The same in torch, eager."""
    import torch

    design, y, weights, theta = (torch.from_numpy(a) for a in (data.design, data.y, data.weights, data.theta))

    def call() -> object:
        with torch.no_grad():
            slope = (design @ theta.T - y[:, None]).clamp(-1.345, 1.345)
            norm = slope.abs() * design.square().sum(1).sqrt()[:, None]
            factor = (CLIP / norm.clamp(min=1e-30)).clamp(max=1.0)
            return (slope * factor * weights).T @ design

    return call


def func_step(data: Data) -> Callable[[], object]:
    """Per-record gradients by torch.func: vmap over records of grad, for each draw."""
    import torch

    design, y, weights, theta = (torch.from_numpy(a) for a in (data.design, data.y, data.weights, data.theta))

    def loss(beta: torch.Tensor, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.huber_loss(x @ beta, target, delta=1.345)

    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))

    def call() -> object:
        sums = []
        for k in range(len(theta)):
            g = gradients(theta[k], design, y)
            factor = (CLIP / g.norm(dim=1).clamp(min=1e-30)).clamp(max=1.0)
            sums.append((factor * weights[:, k]) @ g)
        return torch.stack(sums)

    return call


def opacus_step(data: Data) -> Callable[[], object]:
    """Per-record gradients by Opacus' GradSampleModule of a linear layer, for each draw.  ImportError without it."""
    import torch
    from opacus import GradSampleModule

    design, y, weights, theta = (torch.from_numpy(a) for a in (data.design, data.y, data.weights, data.theta))
    layer = torch.nn.Linear(design.shape[1], 1, bias=False)
    module = GradSampleModule(layer, loss_reduction="sum")

    def call() -> object:
        sums = []
        for k in range(len(theta)):
            with torch.no_grad():
                layer.weight.copy_(theta[k][None])
            module.zero_grad()
            layer.weight.grad_sample = None
            torch.nn.functional.huber_loss(module(design)[:, 0], y, delta=1.345, reduction="sum").backward()
            g = layer.weight.grad_sample[:, 0]
            factor = (CLIP / g.norm(dim=1).clamp(min=1e-30)).clamp(max=1.0)
            sums.append((factor * weights[:, k]) @ g)
        return torch.stack(sums)

    return call


PEERS = {"NumPy + BLAS": numpy_step, "torch": torch_step, "torch.func": func_step, "Opacus": opacus_step}


def honest_environment() -> dict[str, str]:
    """The environment without settings that hold BLAS below what the machine can do."""
    return {name: value for name, value in os.environ.items() if name not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
