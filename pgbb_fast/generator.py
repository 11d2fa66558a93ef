"""The generator G_phi(u) -> theta: a small network with a bounded output (method.md section 3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri
from torch import nn

from pgbb_fast import validation as check
from pgbb_fast.errors import DomainError

__all__ = ["ACTIVATIONS", "Generator"]

ACTIVATIONS: dict[str, type[nn.Module]] = {"gelu": nn.GELU, "tanh": nn.Tanh, "silu": nn.SiLU, "softplus": nn.Softplus}


class Generator(nn.Module):
    """theta_lo + (theta_hi - theta_lo) (tanh(net(S u - 1, index)) + 1) / 2.

    Parameters
    ----------
    n_blocks : int
        S, the number of Dirichlet weights.
    box : (d, 2) array
        Public bounds of theta, low then high; theta never leaves them.
    rules : sequence of float
        Index of each decision rule (quantile levels).  With more than one the net also sees Phi^{-1}(index).
    hidden : sequence of int
        Widths of the hidden layers.
    activation : str
        One of ``ACTIVATIONS``, all smooth.
    seed : int
        Seed of the initial parameters; public.
    """

    def __init__(
        self,
        n_blocks: int,
        box: NDArray[np.float64],
        *,
        rules: Sequence[float] = (),
        hidden: Sequence[int] = (256, 256, 256),
        activation: str = "gelu",
        seed: int = 0,
    ) -> None:
        super().__init__()
        check.one_of("Generator", "activation", activation, tuple(ACTIVATIONS))
        box = np.asarray(box, dtype=np.float64)
        if box.ndim != 2 or box.shape[1] != 2 or not np.all(np.isfinite(box)) or not np.all(box[:, 0] < box[:, 1]):
            raise DomainError(f"Generator: box must be (d, 2), finite, low < high, got shape {box.shape}")
        self.n_blocks, self.rules, self.hidden, self.activation = n_blocks, tuple(rules), tuple(hidden), activation
        self.register_buffer("middle", torch.tensor(box.mean(axis=1), dtype=torch.float32))
        self.register_buffer("half", torch.tensor((box[:, 1] - box[:, 0]) / 2, dtype=torch.float32))
        self.middle: torch.Tensor
        self.half: torch.Tensor
        sizes = [n_blocks + (len(self.rules) > 1), *self.hidden]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            layers: list[nn.Module] = []
            for fan_in, fan_out in zip(sizes[:-1], sizes[1:], strict=True):
                layers += [nn.Linear(fan_in, fan_out), ACTIVATIONS[activation]()]
            layers.append(nn.Linear(sizes[-1], len(box)))
            self.net = nn.Sequential(*layers)

    def inputs(self, weights: NDArray[np.float64], rule: NDArray[np.int64]) -> torch.Tensor:
        """The net's input for Dirichlet ``weights`` (K, S) and ``rule`` numbers (K,): (K, S or S + 1) float32."""
        x = self.n_blocks * weights[:, : self.n_blocks] - 1.0
        if len(self.rules) > 1:
            x = np.column_stack([x, ndtri(np.asarray(self.rules))[rule]])
        return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """theta for :meth:`inputs`: (K, d), inside the box."""
        return self.middle + self.half * torch.tanh(self.net(x))
