"""Which class a saved posterior is of; its module, and with the generator torch, is imported when one is loaded."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgbb_fast.posteriors.base import Posterior

__all__ = ["KINDS", "posterior_class"]

KINDS = {
    "noise-aware": ("noise_aware", "NoiseAwarePosterior"),
    "generator": ("generator", "GeneratorPosterior"),
    "sampled": ("sampled", "SampledPosterior"),
    "bootstrap": ("bootstrap", "BootstrapPosterior"),
    "deconvolved": ("deconvolved", "DeconvolvedPosterior"),
    "little-bootstraps": ("little", "LittlePosterior"),
}


def posterior_class(kind: str) -> type[Posterior]:
    """The class of ``kind``; KeyError if there is none."""
    module, name = KINDS[kind]
    found: type[Posterior] = getattr(import_module(f"pgbb_fast.posteriors.{module}"), name)
    return found
