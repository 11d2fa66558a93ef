"""Deconvolution of scalars: the law of the replicates without their noise of known variance.

Efron's g-modelling (Efron 2016, Biometrika 103(1), 1-20; Narasimhan and Efron 2020, JSS 94(11)): on a grid of support
points g is proportional to carrier * exp(Q a), Q a natural cubic spline, and a maximises the likelihood of the noisy
values less |a|.  The carrier here is normal with the moments' mean and variance, max(S - sigma^2, sqrt(2 / B) S), where
the originals have a flat one: with noise much wider than what is sought the penalty then pulls towards that normal law.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from pgbb_fast import validation as check
from pgbb_fast.budget.bootstrap import BootstrapReport
from pgbb_fast.coordinates import AffineMap
from pgbb_fast.errors import DomainError
from pgbb_fast.posteriors.base import Posterior, Shapes

__all__ = ["DeconvolvedPosterior", "deconvolve", "natural_spline"]

Array = NDArray[np.float64]
POINTS = 201
REACH = 4.5  # of the support, in standard deviations of the carrier
FREEDOM = 5
PENALTY = 1.0
SMOOTH = 1e-6  # |a| as sqrt(|a|^2 + SMOOTH^2), so that it has a gradient at 0


def natural_spline(x: Array, freedom: int) -> Array:
    """Natural cubic splines with ``freedom`` + 1 knots at equal steps of the range of ``x``, without the constant:
    (len(x), freedom), columns centred and of unit norm (Hastie, Tibshirani and Friedman 2009, section 5.2.1)."""
    knots = np.linspace(x.min(), x.max(), freedom + 1)

    def d(k: int) -> Array:
        cube = np.maximum(x - knots[k], 0.0) ** 3 - np.maximum(x - knots[-1], 0.0) ** 3
        return np.asarray(cube / (knots[-1] - knots[k]))

    columns = [x, *(d(k) - d(freedom - 1) for k in range(freedom - 1))]
    basis = np.column_stack(columns)
    basis = basis - basis.mean(axis=0)
    return np.asarray(basis / np.linalg.norm(basis, axis=0))


def deconvolve(values: Array, sigma: float, *, penalty: float = PENALTY) -> tuple[Array, Array]:
    """Support points (K,) and masses (K,) of the law of t where ``values`` (B,) are t + N(0, sigma^2)."""
    variance = float(values.var(ddof=1))
    inner = max(variance - sigma**2, math.sqrt(2.0 / len(values)) * variance)
    z = np.linspace(-REACH, REACH, POINTS)
    support = float(values.mean()) + math.sqrt(inner) * z
    basis = natural_spline(z, FREEDOM)
    # the carrier's own noise is on top of sigma where sigma is below the grid's step
    width = max(sigma, float(support[1] - support[0]))
    kernel = np.exp(-0.5 * ((values[:, None] - support) / width) ** 2)

    def masses(a: Array) -> Array:
        log = basis @ a - 0.5 * z * z
        g = np.exp(log - log.max())
        return np.asarray(g / g.sum())

    def objective(a: Array) -> tuple[float, Array]:
        g = masses(a)
        likelihood = kernel @ g + 1e-300
        size = math.sqrt(float(a @ a) + SMOOTH**2)
        share = g * (kernel / likelihood[:, None]).sum(axis=0) - len(values) * g
        return float(-np.log(likelihood).sum() + penalty * size), -basis.T @ share + penalty * a / size

    found = minimize(objective, np.zeros(FREEDOM), jac=True, method="BFGS")
    return support, masses(found.x)


class DeconvolvedPosterior(Posterior):
    """The replicates' law without their noise, each coordinate by :func:`deconvolve`; coordinates keep the order in
    which the noisy replicates have them.

    Parameters
    ----------
    replicates : (B, d) array
        As released, in unit coordinates.
    noise_sd : float
        Standard deviation of their noise.
    """

    kind = "deconvolved"
    _report: ClassVar[Any] = BootstrapReport

    def __init__(
        self,
        replicates: Array,
        *,
        noise_sd: float,
        to_natural: AffineMap,
        names: Sequence[str],
        privacy: BootstrapReport,
        rules: Sequence[float] = (),
    ) -> None:
        super().__init__(rules=rules, to_natural=to_natural, names=names, privacy=privacy)
        self._replicates, self._noise_sd = replicates, noise_sd
        self._laws = [deconvolve(column, noise_sd) for column in replicates.T]
        self._ranks = replicates.argsort(axis=0).argsort(axis=0)

    @property
    def replicates(self) -> Array:
        """The released replicates in natural units, (B, d)."""
        return self._to_natural(self._replicates)

    def _unit_draws(self, size: int, rules: Sequence[float], rng: np.random.Generator) -> Array:
        B = len(self._replicates)
        chosen = rng.integers(B, size=size)
        level = (self._ranks[chosen] + rng.random((size, len(self._laws)))) / B
        columns = []
        for (support, mass), u in zip(self._laws, level.T, strict=True):
            # the cumulative law is linear between the middles of neighbouring points
            step = support[1] - support[0]
            edges = np.append(support, support[-1] + step) - step / 2
            columns.append(np.interp(u, np.concatenate([[0.0], np.cumsum(mass)]), edges))
        return np.column_stack(columns)[:, None, :]

    def _parts(self) -> tuple[Array, Array]:
        """Sampling: of the deconvolved law; privacy: of the replicates' mean."""
        draws = self.draws()
        noise = self._noise_sd**2 / len(self._replicates) * (self._to_natural.matrix**2).sum(axis=1)
        return np.asarray(draws.var(axis=0))[None], np.asarray(noise)[None]

    def _saved(self) -> tuple[dict[str, Array], dict[str, Any]]:
        return {"replicates": self._replicates}, {"noise_sd": self._noise_sd}

    @classmethod
    def _shapes(cls, d: int, rules: int, settings: dict[str, Any]) -> Shapes:
        return {"replicates": (-1, d)}

    @classmethod
    def _restored(cls, arrays: dict[str, Array], settings: dict[str, Any], common: dict[str, Any]) -> Self:
        if len(arrays["replicates"]) != common["privacy"].mechanism.replicates:
            raise DomainError("replicates are not those of the privacy report")
        check.positive("deconvolved posterior", "noise_sd", settings["noise_sd"])
        return cls(arrays["replicates"], noise_sd=settings["noise_sd"], **common)
