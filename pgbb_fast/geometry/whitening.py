"""Rounds of private second moments, and the triangular map W that they make.

x~ = W x has a second moment near the identity, so that noise of one size in every coordinate of x~ is small where the
features vary little (iterated private preconditioning: Kamath, Li, Singhal and Ullman 2019; Biswas, Dong, Kamath and
Ullman 2020).  Everything after a release is a function of released and public values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.curvature import Slope
from pgbb_fast.geometry.door import Door
from pgbb_fast.geometry.stacking import LENGTH

__all__ = ["Whitening", "longest", "whiten"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Whitening:
    """The map W and what is known of E[x~ x~'].

    Attributes
    ----------
    mapping : (m, m) array
        W, lower triangular with a positive diagonal.
    shape : Slope
        The last round's moment, in the coordinates of x~, with its error.
    centre : (m,) array
        Estimate of E x; the intercept's 1 comes first where there is one.
    """

    mapping: Array
    shape: Slope
    centre: Array


def whiten(door: Door, m: int, rounds: int) -> Whitening:
    """Spend ``rounds`` releases.

    The first is of the features as they are, |x| <= sqrt(m); the largest eigenvalue that its noise alone can have, the
    edge, is added to every eigenvalue.  Later ones are of mapped features, shortened to ``LENGTH`` sqrt(m), with
    eigenvalues floored at the edge: a direction that noise hides is shrunk, not amplified, until a round shows it.
    """
    mapping, bound = np.eye(m), math.sqrt(m)
    centre = np.zeros(m)
    for number in range(rounds):
        moment, noise = door.features(mapping, bound)
        if number == 0 and door.intercept:
            centre = np.clip(moment[0], -1.0, 1.0)
            centre[0] = 1.0
        values, vectors = np.linalg.eigh(moment)
        edge = 2.0 * math.sqrt(m) * noise
        values = np.maximum(values, 0.0) + edge if number == 0 else np.maximum(values, edge)
        values = np.minimum(values, bound**2)  # of vectors no longer than the bound no second moment is larger
        before, mapping = mapping, triangular(mapping.T @ (vectors / values) @ vectors.T @ mapping)
        bound = min(LENGTH * math.sqrt(m), longest(mapping))
    change = mapping @ np.linalg.inv(before)
    outer = change @ change.T
    return Whitening(mapping, _known(change @ moment @ change.T, outer @ outer, noise, longest(mapping)), centre)


def longest(mapping: Array) -> float:
    """Largest |x~| of a record: |x| <= sqrt(m)."""
    return float(np.linalg.norm(mapping, 2)) * math.sqrt(len(mapping))


def _known(moment: Array, spread: Array, noise: float, most: float) -> Slope:
    """What is known of E[x~ x~']: the last moment, drawn to the identity as far as its noise is large beside what the
    public bounds say, eigenvalues in [0, ``most``^2], of which the map aims at 1."""
    guess = min(1.0, most**2 / 2.0)
    share = guess**2 / (guess**2 + noise**2 * float(np.trace(spread)) / len(spread))
    return Slope(share * moment + (1.0 - share) * guess * np.eye(len(moment)), spread, share * noise**2)


def triangular(precision: Array) -> Array:
    """The lower triangular T with T'T = ``precision`` and a positive diagonal."""
    reversed_root = np.linalg.cholesky(precision[::-1, ::-1])
    return np.ascontiguousarray(reversed_root.T[::-1, ::-1])
