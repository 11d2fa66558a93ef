"""Hessians of several quantile levels, each drawn towards the shape that the others agree on.

For a linear model whose errors don't depend on the features, the Hessians H_tau = f_tau E[x x'] of all levels have one
shape.  Where a level's own releases leave a direction of H_tau uncertain, the other levels say more about it than they
do; where they are certain, they keep it.  A normal prior around the others' shape with relative standard deviation
``PRIOR`` (more where the others are uncertain themselves), combined entry by entry with the level's own estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.noise_aware import LocalPosterior

__all__ = ["pooled"]

Array = NDArray[np.float64]
PRIOR = 0.3     # relative standard deviation of an entry of H around the shape of the other levels


def pooled(local: Sequence[LocalPosterior]) -> list[LocalPosterior]:
    """The same posteriors with ``hessian`` and ``spread`` after pooling; unchanged for a single level."""
    if len(local) < 2:
        return list(local)
    return [_towards(one, [other for other in local if other is not one]) for one in local]


def _noise(one: LocalPosterior) -> float:
    """Variance of one release's noise in a coordinate, averaged."""
    return float(np.trace(one.omega)) / len(one.omega)


def _towards(one: LocalPosterior, others: Sequence[LocalPosterior]) -> LocalPosterior:
    """Posterior of ``one`` given the shape of ``others``."""
    # the best weights for a common shape, H_k = f_k E with error variance s_k: f_k / s_k
    weights = [float(np.trace(o.hessian)) / (_noise(o) * float(np.trace(o.spread))) for o in others]
    shape = sum((w * o.hessian for w, o in zip(weights, others, strict=True)), np.zeros_like(one.hessian))
    values, vectors = np.linalg.eigh(shape)

    def along(o: LocalPosterior) -> Array:
        """Error variances of v_a' H v_a."""
        return np.asarray(_noise(o) * np.einsum("ij,ik,kj->j", vectors, o.spread, vectors))

    uncertainty = sum((w**2 * along(o) for w, o in zip(weights, others, strict=True)), np.zeros(len(values)))
    values = np.maximum(values, np.sqrt(uncertainty))
    # in the basis where the others' shape is the identity
    whiten = vectors / np.sqrt(values)
    own = whiten.T @ one.hessian @ whiten
    half = along(one) / values
    own_variance = (np.add.outer(half, half) / np.sqrt(np.outer(values, values))) / 4.0
    own_variance[np.diag_indices(len(values))] = along(one) / values**2
    diagonal, variance = np.diag(own), np.diag(own_variance)
    others_relative = uncertainty / values**2
    level = float(diagonal.mean())
    for _ in range(20):
        weight = 1.0 / (variance + level**2 * (PRIOR**2 + others_relative))
        level = max(float(weight @ diagonal / weight.sum()), float(weight.sum() ** -0.5))
    prior_variance = level**2 * (PRIOR**2 + (np.add.outer(others_relative, others_relative)) / 2.0)
    precision = 1.0 / own_variance + 1.0 / prior_variance
    mean = (own / own_variance + level * np.eye(len(values)) / prior_variance) / precision
    unwhiten = vectors * np.sqrt(values)
    hessian = unwhiten @ mean @ unwhiten.T
    # a spread with the posterior's variances along the eigenvectors
    spread = (vectors * (np.diag(1.0 / precision) * values**2 / _noise(one))) @ vectors.T
    certain, axes = np.linalg.eigh((hessian + hessian.T) / 2.0)
    error = np.sqrt(_noise(one) * np.einsum("ij,ik,kj->j", axes, spread, axes))
    certain = np.maximum(certain, error)
    return replace(
        one,
        hessian=(axes * certain) @ axes.T,
        spread=spread,
        condition=float(certain.max() / certain.min()),
        certainty=float((certain / error).min()),
    )
