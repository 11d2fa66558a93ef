"""The release of a training step whose arguments and result stay on the GPU, for use in a CUDA graph."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch

from pgbb_fast.kernels.arguments import Mechanism
from pgbb_fast.release.blocked import Keys, Problem

__all__ = ["DeviceRelease", "Release"]

Tensor = torch.Tensor


class Release(Protocol):
    """A release whose arguments and result are tensors that stay where they are."""

    theta: Tensor       # (K, d) float64, filled before each call
    weights: Tensor     # (K, S + 1) float64
    constants: Tensor   # (K, 2) float64
    grid: Tensor        # (K, d) int64, the result
    counter: Tensor     # (1,) int64, number of the step

    def __call__(self) -> None:
        """Compute ``grid``."""


class DeviceRelease:
    """The CUDA kernels' release on a torch stream; tensors are shared with them, not copied."""

    def __init__(self, problem: Problem, keys: Keys, stream: Any) -> None:
        from numba import cuda  # here: this module may be imported without numba-cuda

        from pgbb_fast.kernels.cuda.steps import Step

        K, S = problem.draws_per_step, problem.n_blocks
        mechanism = Mechanism(problem.clip, problem.sampling_threshold, problem.noise_multiplier)
        address = int(stream.cuda_stream)
        self._step = Step(problem.loss.kernel, problem.intercept, problem.records, K, S, mechanism, address)
        self._step.key.copy_to_device(np.ascontiguousarray(keys.secret, dtype=np.int64))
        self._step.counter.copy_to_device(np.zeros(1, dtype=np.int64))
        place: dict[str, Any] = {"dtype": torch.float64, "device": "cuda"}
        self.theta, self.weights = torch.zeros(K, self._step.d, **place), torch.zeros(K, S + 1, **place)
        self.constants = torch.zeros(K, 2, **place)
        self._views = [cuda.as_cuda_array(t, sync=False) for t in (self.theta, self.weights, self.constants)]
        self.grid = torch.as_tensor(self._step.grid, device="cuda")
        self.counter = torch.as_tensor(self._step.counter, device="cuda")

    def __call__(self) -> None:
        self._step.launch(*self._views)
