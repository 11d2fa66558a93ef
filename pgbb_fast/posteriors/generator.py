"""The generator's own draws: G(u) at fresh Dirichlet weights."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from pgbb_fast import validation as check
from pgbb_fast.budget.report import PrivacyReport
from pgbb_fast.coordinates import AffineMap
from pgbb_fast.errors import DomainError
from pgbb_fast.network.generator import Generator
from pgbb_fast.posteriors.base import Posterior, Shapes
from pgbb_fast.release.blocks import dirichlet

__all__ = ["GeneratorPosterior"]

Array = NDArray[np.float64]


class GeneratorPosterior(Posterior):
    """Draws G(u, rule), u ~ Dirichlet(gamma 1_S), of a trained generator (:mod:`pgbb_fast.network`)."""

    kind = "generator"

    def __init__(
        self, generator: Generator, *, gamma: float, to_natural: AffineMap, names: Sequence[str], privacy: PrivacyReport
    ) -> None:
        super().__init__(rules=generator.rules, to_natural=to_natural, names=names, privacy=privacy)
        self._generator, self._gamma = generator, gamma

    def _unit_draws(self, size: int, rules: Sequence[float], rng: np.random.Generator) -> Array:
        u = dirichlet(size, self._generator.n_blocks, self._gamma, rng)
        by_rule = []
        for rule in rules or (np.nan,):
            with torch.no_grad():
                theta = self._generator(self._generator.inputs(u, np.full(size, rule)))
            by_rule.append(theta.numpy().astype(np.float64))
        return np.stack(by_rule, axis=1)

    def _saved(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays = {name: value.numpy() for name, value in self._generator.state_dict().items()}
        return arrays, {"gamma": self._gamma, "generator": self._generator.description()}

    @classmethod
    def _shapes(cls, d: int, rules: int, settings: dict[str, Any]) -> Shapes:
        """Weights and biases of each layer; activations in between have none, so layers have even numbers."""
        sizes = [settings["generator"]["n_blocks"] + (rules if rules > 1 else 0), *settings["generator"]["hidden"], d]
        shapes: Shapes = {"centre": (d,), "radius": (d,)}
        for number, (fan_in, fan_out) in enumerate(pairwise(sizes)):
            shapes |= {f"net.{2 * number}.weight": (fan_out, fan_in), f"net.{2 * number}.bias": (fan_out,)}
        return shapes

    @classmethod
    def _restored(cls, arrays: dict[str, Array], settings: dict[str, Any], common: dict[str, Any]) -> Self:
        check.positive("generator posterior", "gamma", settings["gamma"])
        generator = Generator(**settings["generator"])
        generator.load_state_dict({name: torch.from_numpy(value) for name, value in arrays.items()})
        if list(generator.rules) != list(common.pop("rules")):
            raise DomainError("rules are not the generator's")
        if generator.n_blocks != common["privacy"].mechanism.n_blocks:
            raise DomainError("blocks are not those of the releases")
        return cls(generator, gamma=settings["gamma"], **common)
