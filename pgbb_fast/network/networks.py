"""Several generators of one shape as one flat array of parameters, with hand-written derivatives.

A training step of one small network is mostly overhead: of autograd's graph, of one optimiser update for each layer.
Here all parameters of B generators lie in one (B, P) array, in the order of ``Generator.parameters()``; a layer is one
batched matrix product, and an optimiser sees a single tensor.  What is computed is the same as by autograd
(``tests/network/test_networks.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from pgbb_fast.network.generator import Generator

__all__ = ["Networks"]

Tensor = torch.Tensor
_aten = torch.ops.aten

# activation -> (value of x, derivative's product: (incoming, x, value) -> outgoing)
_VALUES: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": _aten.gelu,
    "tanh": torch.tanh,
    "silu": _aten.silu,
    "softplus": _aten.softplus,
}
_SLOPES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "gelu": lambda g, x, value: _aten.gelu_backward(g, x),
    "tanh": lambda g, x, value: _aten.tanh_backward(g, value),
    "silu": lambda g, x, value: _aten.silu_backward(g, x),
    "softplus": lambda g, x, value: _aten.softplus_backward(g, x, 1.0, 20.0),
}


class Networks:
    """B generators that share shape and box; their parameters become views of :attr:`flat`.

    Parameters
    ----------
    generators : sequence of Generator
        Changed in place: whatever happens to ``flat`` happens to them, until :meth:`release`.

    Attributes
    ----------
    flat : (B, P) parameter
        All parameters, with ``flat.grad`` a buffer that :meth:`backward` overwrites.
    """

    def __init__(self, generators: Sequence[Generator]) -> None:
        first = generators[0]
        shape = (first.n_blocks, len(first.rules), first.hidden, first.activation, len(first.centre))
        for other in generators:
            if (other.n_blocks, len(other.rules), other.hidden, other.activation, len(other.centre)) != shape:
                raise ValueError("Networks: generators of different shapes can't be trained together")
        self.generators = tuple(generators)
        self._value, self._slope = _VALUES[first.activation], _SLOPES[first.activation]
        self._centre = torch.stack([g.centre for g in generators])[:, None]
        self._radius = torch.stack([g.radius for g in generators])[:, None]
        with torch.no_grad():
            flat = torch.stack([torch.nn.utils.parameters_to_vector(g.parameters()) for g in generators])
        self.flat = torch.nn.Parameter(flat)
        self.flat.grad = torch.zeros_like(flat)
        self._layers = [(w, b.unsqueeze(1)) for w, b in self._views(self.flat.data)]
        self._gradients = self._views(self.flat.grad)
        for row, generator in enumerate(generators):
            views = [part[row] for pair in self._views(self.flat.data) for part in pair]
            for parameter, view in zip(generator.parameters(), views, strict=True):
                parameter.data = view
        self._inputs: list[Tensor] = []
        self._sums: list[Tensor] = []

    def _views(self, flat: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Weights (B, out, in) and biases (B, out) of each layer."""
        views, place, B = [], 0, len(self.generators)
        shapes = [p.shape for p in self.generators[0].parameters()]
        for weight, bias in zip(shapes[::2], shapes[1::2], strict=True):
            middle, end = place + weight.numel(), place + weight.numel() + bias.numel()
            views.append((flat[:, place:middle].view(B, *weight), flat[:, middle:end]))
            place = end
        return views

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """theta (B, K, d) for inputs (B, K, S or S + L); remembered for :meth:`backward`."""
        self._inputs, self._sums = [x], []
        for weight, bias in self._layers[:-1]:
            self._sums.append(torch.baddbmm(bias, self._inputs[-1], weight.transpose(1, 2)))
            self._inputs.append(self._value(self._sums[-1]))
        weight, bias = self._layers[-1]
        self._bounded = torch.tanh(torch.baddbmm(bias, self._inputs[-1], weight.transpose(1, 2)))
        return torch.addcmul(self._centre, self._radius, self._bounded)

    @torch.no_grad()
    def backward(self, gradient: Tensor) -> None:
        """Set ``flat.grad`` to J' ``gradient`` (B, K, d), J the Jacobian of the last :meth:`forward`."""
        delta = _aten.tanh_backward(gradient * self._radius, self._bounded)
        for layer in range(len(self._layers) - 1, -1, -1):
            weight, bias = self._gradients[layer]
            torch.bmm(delta.transpose(1, 2), self._inputs[layer], out=weight)
            torch.sum(delta, dim=1, out=bias)
            if layer:
                incoming = torch.bmm(delta, self._layers[layer][0])
                delta = self._slope(incoming, self._sums[layer - 1], self._inputs[layer])

    def release(self) -> None:
        """Give each generator parameters of its own again, with their present values."""
        for generator in self.generators:
            for parameter in generator.parameters():
                parameter.data = parameter.data.clone()
