"""What noisy gradients along a search say of the loss near it: its slope, and where it is flat.

Coordinates here are those of the mapped features: with x~ = W x and theta = W' v, x'theta = x~'v, and under a correct
model H = f E[x~ x~'] is near f I.  Post-processing of releases only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.local.curvature import Slope

__all__ = ["Path", "Tangent"]

Array = NDArray[np.float64]
ENTRY = 0.3  # standard deviation of an entry of H over f, before anything is seen
LEAST = 0.15  # of the guess of f: f is not below it
LOWEST = 0.1  # of f: eigenvalues of H are not below it while searching
RIDGE, NOTHING = 1e-9, 1e-15


@dataclass(frozen=True)
class Tangent:
    """The linear model of the gradient of one rule: gradient at ``centre``, H (both with the public part), and f."""

    centre: Array
    gradient: Array
    hessian: Array
    f: float

    @property
    def step(self) -> Array:
        """From the centre to where the model has its zero."""
        return np.asarray(-np.linalg.solve(self.hessian, self.gradient))


class Path:
    """Releases of one rule, in their order: where, the gradient, its noise variance, and which belong together."""

    def __init__(self, d: int) -> None:
        self.at, self.gradient = np.empty((0, d)), np.empty((0, d))
        self.noise, self.group = np.empty(0), np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.noise)

    def add(self, at: Array, gradient: Array, noise: float, group: int) -> None:
        """Append a release; those of one ``group`` are displacements from one centre."""
        self.at, self.gradient = np.vstack([self.at, at]), np.vstack([self.gradient, gradient])
        self.noise, self.group = np.append(self.noise, noise), np.append(self.group, group)

    @property
    def age(self) -> Array:
        """Releases since each one, (k,)."""
        return np.arange(len(self))[::-1].astype(np.float64)

    def near(self, scale: float) -> Array:
        """Weights that fall with the distance from the latest release, in units of ``scale``."""
        away = np.linalg.norm(self.at - self.at[-1], axis=1) / scale
        return np.asarray(np.exp(-0.5 * away**2))

    def secant(self, weight: Array) -> tuple[float, float]:
        """One number f for H = f I by least squares over the weighted releases, and its standard error."""
        dv, dg = (part - weight @ part / weight.sum() for part in (self.at, self.gradient))
        square = float(weight @ (dv**2).sum(axis=1))
        error = np.sqrt((weight**2 * self.noise) @ (dv**2).sum(axis=1))
        return float(weight @ (dv * dg).sum(axis=1)) / max(square, 1e-300), float(error) / max(square, 1e-300)

    def tangent(
        self, weight: Array, recent: Array, guess: float, certainty: float, shape: Array, public: Array
    ) -> Tangent:
        """A linear model from the releases that ``weight`` weighs, at the mean of those that ``recent`` weighs.

        f is drawn to ``guess`` with the relative standard deviation ``certainty``, H's rows by ridge regression to
        f ``shape`` with the relative standard deviation ``ENTRY`` of an entry: the least change of a first guess that
        the releases ask for (Broyden 1965, with noise).  ``public`` v is added to the gradient.
        """
        precision = weight / self.noise
        middle = precision @ self.at / precision.sum()
        dv, dg = self.at - middle, self.gradient - precision @ self.gradient / precision.sum()
        along = dv @ shape
        square, cross = precision @ (along**2).sum(axis=1), precision @ (along * dg).sum(axis=1)
        prior = 1.0 / (certainty * guess) ** 2
        f = max(float((cross + guess * prior) / (square + prior)), LEAST * guess)
        stiff = 1.0 / (ENTRY * f) ** 2
        d = len(shape)
        left = stiff * np.eye(d) + (dv * precision[:, None]).T @ dv
        hessian = np.linalg.solve(left, stiff * f * shape + (dv * precision[:, None]).T @ dg)
        values, vectors = np.linalg.eigh((hessian + hessian.T) / 2.0)
        hessian = (vectors * np.maximum(values, LOWEST * f)) @ vectors.T
        centre, gradient = recent @ self.at / recent.sum(), recent @ self.gradient / recent.sum()
        return Tangent(centre, gradient + public @ centre, hessian + public, f)

    def slope(self, weight: Array) -> Slope:
        """H by least squares within groups, with the covariance of its error."""
        d = self.at.shape[1]
        square, cross = np.zeros((d, d)), np.zeros((d, d))
        for group in np.unique(self.group[weight > 0]):
            here = (self.group == group) & (weight > 0)
            precision = weight[here] / self.noise[here]
            dv = self.at[here] - precision @ self.at[here] / precision.sum()
            dg = self.gradient[here] - precision @ self.gradient[here] / precision.sum()
            square += (dv * precision[:, None]).T @ dv
            cross += (dv * precision[:, None]).T @ dg
        nothing = NOTHING * float(np.mean(1.0 / self.noise))  # releases that don't span the space say that little
        spread = np.linalg.inv(square + (RIDGE * np.trace(square) / d + nothing) * np.eye(d))
        found = spread @ cross
        return Slope((found + found.T) / 2.0, spread, 1.0)
