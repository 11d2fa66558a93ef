"""The posterior of a private bootstrap: the noisy estimate and replicates, with their noise's known law."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtr, chdtri

from pgbb_fast import validation as check
from pgbb_fast.budget.bootstrap import BootstrapReport
from pgbb_fast.coordinates import AffineMap
from pgbb_fast.errors import DomainError
from pgbb_fast.posteriors.base import Posterior, Shapes

__all__ = ["BootstrapPosterior"]

Array = NDArray[np.float64]
PARTS = 2000
FEW = 12.0


class BootstrapPosterior(Posterior):
    """theta = theta_bar - root / sqrt(n), with roots made of the released replicates.

    docs/method.md section 8 takes the roots sqrt(m) (theta*_b - theta_bar) as they are (:meth:`unadjusted_interval`).
    They carry the replicates' noise, of known variance v_b = m sigma_b^2, and lack the estimate's, v_e = n sigma_e^2,
    so intervals are too wide wherever noise isn't negligible.  Draws here exchange one for the other: with
    S = Cov(roots), roots about their mean are multiplied by (S - v_b + v_e)^(1/2) S^(-1/2).  S is uncertain too: along
    each of its eigenvectors its variance has the posterior (B - 1) S / chi^2_(B-1), cut off below v_b.  Without noise
    the draws are those of docs/method.md section 8, centred.

    Parameters
    ----------
    estimate : (d,) array
    replicates : (B, d) array
        In unit coordinates, as released.
    estimate_sd, replicate_sd : float
        Standard deviations of their noise.
    n, resample_size : int
    """

    kind = "bootstrap"
    _report: ClassVar[Any] = BootstrapReport

    def __init__(
        self,
        estimate: Array,
        replicates: Array,
        *,
        estimate_sd: float,
        replicate_sd: float,
        n: int,
        resample_size: int,
        to_natural: AffineMap,
        names: Sequence[str],
        privacy: BootstrapReport,
        rules: Sequence[float] = (),
    ) -> None:
        super().__init__(rules=rules, to_natural=to_natural, names=names, privacy=privacy)
        self._estimate, self._replicates = estimate, replicates
        self._only_claimed = privacy.asymptotic_mu is not None
        self._estimate_sd, self._replicate_sd, self._n, self._m = estimate_sd, replicate_sd, n, resample_size
        roots = math.sqrt(resample_size) * (replicates - replicates.mean(axis=0))
        values, self._vectors = np.linalg.eigh(np.atleast_2d(np.cov(roots, rowvar=False)))
        self._values = np.maximum(values, 1e-300)
        self._standard = roots @ self._vectors / np.sqrt(self._values)

    @property
    def estimate(self) -> Array:
        """The released estimate in natural units, (d,)."""
        return self._to_natural(self._estimate)

    @property
    def replicates(self) -> Array:
        """The released replicates in natural units, (B, d)."""
        return self._to_natural(self._replicates)

    @property
    def _noise(self) -> tuple[float, float]:
        """v_b and v_e."""
        return self._m * self._replicate_sd**2, self._n * self._estimate_sd**2

    def _sampling_values(self, size: int, rng: np.random.Generator) -> Array:
        """Draws of the sampling variance along the eigenvectors of S, (size, d)."""
        freedom = len(self._replicates) - 1.0
        scaled = freedom * self._values
        v_b = self._noise[0]
        top = chdtr(freedom, scaled / v_b) if v_b > 0.0 else np.ones_like(scaled)
        u = rng.random((size, len(scaled)))
        # chdtri inverts the upper tail; where even that underflows the variance is taken to be the noise's
        chi = np.maximum(chdtri(freedom, 1.0 - u * top), 1e-300)
        return np.asarray(np.maximum(scaled / chi - v_b, 0.0))

    def _unit_draws(self, size: int, rules: Sequence[float], rng: np.random.Generator) -> Array:
        variance = self._sampling_values(size, rng) + self._noise[1]
        chosen = self._standard[rng.integers(len(self._standard), size=size)]
        root = (np.sqrt(variance) * chosen) @ self._vectors.T
        return np.asarray(self._estimate - root / math.sqrt(self._n))[:, None, :]

    def _parts(self) -> tuple[Array, Array]:
        values = self._sampling_values(PARTS, np.random.default_rng(0)).mean(axis=0) / self._n
        turned = self._to_natural.matrix @ self._vectors
        sampling = np.einsum("ij,j,ij->i", turned, values, turned)
        privacy = self._estimate_sd**2 * (self._to_natural.matrix**2).sum(axis=1)
        return np.asarray(sampling)[None], np.asarray(privacy)[None]

    def __repr__(self) -> str:
        text = super().__repr__()
        asymptotic = isinstance(self.privacy, BootstrapReport) and self.privacy.asymptotic_mu is not None
        return text.replace("epsilon=", "asymptotic epsilon, no bound: ") if asymptotic else text

    def unadjusted_interval(self, level: float = 0.95) -> Array:
        """The interval of docs/method.md section 8, noise and all, [theta_bar - q_hi / sqrt(n), theta_bar - q_lo /
        sqrt(n)], q the quantiles of sqrt(m) (theta*_b - theta_bar); (d, 2), natural units (Dette and Graw,
        arXiv:2505.01197)."""
        tail = (1.0 - check.between("unadjusted_interval", "level", level, 0.0, 1.0)) / 2.0
        root = math.sqrt(self._m / self._n) * (self.replicates - self.estimate)
        high, low = np.quantile(root, [1.0 - tail, tail], axis=0)
        return np.stack([self.estimate - high, self.estimate - low], axis=-1)

    def advice(self) -> tuple[str, ...]:
        """Sentences on what limits the intervals; empty when all is well."""
        v_b, v_e = self._noise
        sampling = np.maximum(self._values - v_b, 0.0)
        freedom = (len(self._replicates) - 1.0) * ((sampling + v_e) / self._values) ** 2
        said = []
        if float(freedom.min()) < FEW:
            said.append(
                "The replicates' noise hides the sampling variance in some direction, which widens the intervals: a "
                'larger epsilon, tighter bounds or sizes="width" help.'
            )
        if bool((v_e > sampling).any()):
            said.append("Privacy noise makes up most of some variances: a larger epsilon or tighter bounds help.")
        if self._only_claimed:
            said.append("The privacy stated is the central limit's claim, not a bound.")
        return tuple(said)

    def _saved(self) -> tuple[dict[str, Array], dict[str, Any]]:
        numbers = {
            "estimate_sd": self._estimate_sd,
            "replicate_sd": self._replicate_sd,
            "n": self._n,
            "resample_size": self._m,
        }
        return {"estimate": self._estimate, "replicates": self._replicates}, numbers

    @classmethod
    def _shapes(cls, d: int, rules: int, settings: dict[str, Any]) -> Shapes:
        return {"estimate": (d,), "replicates": (-1, d)}

    @classmethod
    def _restored(cls, arrays: dict[str, Array], settings: dict[str, Any], common: dict[str, Any]) -> Self:
        run = common["privacy"].mechanism
        if (settings["n"], settings["resample_size"], len(arrays["replicates"])) != (
            run.n,
            run.resample_size,
            run.replicates,
        ):
            raise DomainError("records, resamples and replicates are not those of the privacy report")
        for name in ("estimate_sd", "replicate_sd"):
            check.positive("bootstrap posterior", name, settings[name])
        return cls(arrays["estimate"], arrays["replicates"], **settings, **common)
