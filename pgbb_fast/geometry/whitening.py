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

from pgbb_fast.local.curvature import Slope
from pgbb_fast.release.stacked import Door
from pgbb_fast.release.stacking import LENGTH

__all__ = ["Whitening", "longest", "whiten"]

Array = NDArray[np.float64]
# what tells few long records from a long tail, and from noise: a moment that is
SHORTENED = 0.35  # of that of the round before, at most,
CLEAR = 3.0  # below it by so many standard errors of that,
SEEN = 1.5  # and at least so many times the edge of noise


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

    A direction in which few records differ from zero, but by much, as an indicator that hardly ever varies, has a small
    moment because those records are shortened.  To amplify it would be in vain, and their predictors would move by many
    residual scales where others' move by one.  It is told by the ratio r < 1 of its moment to what it would be were
    nothing shortened, which the round before knows; with records of the length l, r = (B / l)^2.  It is mapped so that
    l is about B, to the moment r.
    """
    mapping, bound = np.eye(m), math.sqrt(m)
    centre = np.zeros(m)
    whole, error = np.zeros((m, m)), np.zeros((m, m))  # moment were nothing shortened, and spread of its error
    for number in range(rounds):
        moment, noise = door.features(mapping, bound)
        if number == 0 and door.intercept:
            centre = np.clip(moment[0], -1.0, 1.0)
            centre[0] = 1.0
        raw, vectors = np.linalg.eigh(moment)
        edge = 2.0 * math.sqrt(m) * noise
        values = np.maximum(raw, 0.0) + edge if number == 0 else np.maximum(raw, edge)
        values = np.minimum(values, bound**2)  # of vectors no longer than the bound no second moment is larger
        known, sd = np.maximum(raw, 0.0), np.full(m, noise)
        if number > 0:
            before, own = (np.einsum("ik,ij,jk->k", vectors, part, vectors) for part in (whole, error))
            own = np.sqrt(own)
            clear = (before > values + CLEAR * own) & (values < SHORTENED * before) & (values > SEEN * edge)
            ratio = np.where(clear, values / np.maximum(before, values), 1.0)
            known, sd = np.where(ratio < 1.0, before, known), np.where(ratio < 1.0, own, noise)
            values = values / ratio**2
        change = triangular((vectors / values) @ vectors.T)
        mapping, turned = change @ mapping, change @ vectors
        whole, error = (turned * known) @ turned.T, (turned * (sd**2 / values)) @ turned.T
        bound = min(LENGTH * math.sqrt(m), longest(mapping))
    return Whitening(mapping, _known(whole, error, longest(mapping)), centre)


def longest(mapping: Array) -> float:
    """Largest |x~| of a record: |x| <= sqrt(m)."""
    return float(np.linalg.norm(mapping, 2)) * math.sqrt(len(mapping))


def _known(moment: Array, spread: Array, most: float) -> Slope:
    """What is known of E[x~ x~']: the last moment, drawn to the identity as far as its error is large beside what the
    public bounds say, eigenvalues in [0, ``most``^2], of which the map aims at 1."""
    guess = min(1.0, most**2 / 2.0)
    share = guess**2 / (guess**2 + float(np.trace(spread)) / len(spread))
    return Slope(share * moment + (1.0 - share) * guess * np.eye(len(moment)), spread, share)


def triangular(precision: Array) -> Array:
    """The lower triangular T with T'T = ``precision`` and a positive diagonal."""
    reversed_root = np.linalg.cholesky(precision[::-1, ::-1])
    return np.ascontiguousarray(reversed_root.T[::-1, ::-1])
