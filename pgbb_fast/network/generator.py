"""The generator G_phi(u) -> theta: a small network with a bounded output (docs/method.md section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pgbb_fast import validation as check
from pgbb_fast.errors import DomainError
from pgbb_fast.losses.rules import places

__all__ = ["ACTIVATIONS", "Generator"]

ACTIVATIONS: dict[str, type[nn.Module]] = {"gelu": nn.GELU, "tanh": nn.Tanh, "silu": nn.SiLU, "softplus": nn.Softplus}

RULE_SCALE = 3.0        # height of the hat functions: rules differ more than draws of u do


class Generator(nn.Module):
    """theta_lo + (theta_hi - theta_lo) (tanh(net(scale (S u - 1), rule)) + 1) / 2.

    Parameters
    ----------
    n_blocks : int
        S, the number of Dirichlet weights.
    box : (d, 2) array
        Public bounds of theta, low then high; theta never leaves them.
    rules : sequence of float
        Index of each decision rule (quantile levels).  With more than one the net also sees the rule's hat functions:
        1 at the rule itself, 0 at the others, linear in Phi^{-1}(index) (or the logarithm) in between.
    hidden : sequence of int
        Widths of the hidden layers.
    activation : str
        One of ``ACTIVATIONS``, all smooth.
    input_scale : float
        ``scale``; the smaller, the more slowly the response to u is learnt, beside the constant part.
    initial : float
        Multiplier of the initial weights of the last layer: at 0 the untrained net does not respond to u at all.
    seed : int
        Seed of the initial parameters; public.
    """

    def __init__(
        self,
        n_blocks: int,
        box: NDArray[np.float64] | Sequence[Sequence[float]],
        *,
        rules: Sequence[float] = (),
        hidden: Sequence[int] = (256, 256, 256),
        activation: str = "gelu",
        input_scale: float = 1.0,
        initial: float = 1.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.input_scale = check.positive("Generator", "input_scale", input_scale)
        check.one_of("Generator", "activation", activation, tuple(ACTIVATIONS))
        bounds = np.asarray(box, dtype=np.float64)
        ordered = bounds.ndim == 2 and bounds.shape[1] == 2 and bool(np.all(bounds[:, 0] < bounds[:, 1]))
        if not ordered or np.isinf(bounds).any():
            raise DomainError(f"Generator: box must be (d, 2), finite, low < high, got shape {bounds.shape}")
        self.n_blocks, self.rules, self.hidden, self.activation = n_blocks, tuple(rules), tuple(hidden), activation
        self.register_buffer("centre", torch.tensor(bounds.mean(axis=1), dtype=torch.float32))
        self.register_buffer("radius", torch.tensor((bounds[:, 1] - bounds[:, 0]) / 2, dtype=torch.float32))
        self.centre: torch.Tensor
        self.radius: torch.Tensor
        sizes = [n_blocks + (len(self.rules) if len(self.rules) > 1 else 0), *self.hidden]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            layers: list[nn.Module] = []
            for fan_in, fan_out in pairwise(sizes):
                layers += [nn.Linear(fan_in, fan_out), ACTIVATIONS[activation]()]
            layers.append(last := nn.Linear(sizes[-1], len(bounds)))
            with torch.no_grad():
                last.weight.mul_(initial)
            self.net = nn.Sequential(*layers)

    def inputs(self, weights: NDArray[np.float64], index: NDArray[np.float64]) -> torch.Tensor:
        """The net's input for Dirichlet ``weights`` (K, >= S) and rule ``index`` (K,): (K, S or S + L) float32."""
        x = self.input_scale * (self.n_blocks * weights[:, : self.n_blocks] - 1.0)
        if len(self.rules) > 1:
            order = np.argsort(self.rules)
            place, known = places(self.rules, index), places(self.rules, np.asarray(self.rules)[order])
            hats = [np.interp(place, known, row) for row in RULE_SCALE * np.eye(len(order))[np.argsort(order)]]
            x = np.column_stack([x, *hats])
        return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """theta for :meth:`inputs`: (K, d), inside the box."""
        return self.centre + self.radius * torch.tanh(self.net(x))

    def description(self) -> dict[str, Any]:
        """Constructor arguments in JSON-able form (the parameters themselves are in ``state_dict``)."""
        low, high = (self.centre - self.radius).tolist(), (self.centre + self.radius).tolist()
        return {
            "n_blocks": self.n_blocks,
            "box": [[a, b] for a, b in zip(low, high, strict=True)],
            "rules": list(self.rules),
            "hidden": list(self.hidden),
            "activation": self.activation,
            "input_scale": self.input_scale,
        }
