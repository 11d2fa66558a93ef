"""Draws of the noise-aware posterior, jointly over all rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pgbb_fast import validation as check
from pgbb_fast.budget.gaussian import AnyReport, GaussianReport
from pgbb_fast.budget.report import PrivacyReport
from pgbb_fast.coordinates import AffineMap
from pgbb_fast.errors import DomainError
from pgbb_fast.local.curvature import Hessian
from pgbb_fast.local.model import LocalPosterior, Scores
from pgbb_fast.local.prior import Prior
from pgbb_fast.losses.rules import places
from pgbb_fast.posteriors.base import Posterior, Shapes

__all__ = ["NoiseAwarePosterior"]

Array = NDArray[np.float64]
NORMAL_ARRAYS = ("basis", "mean", "sd")     # of the scores
HESSIAN_ARRAYS = ("basis", "measured", "error", "relative", "typical")
PILED = 0.5  # share of the draws beyond one face of the public box from which the search is taken not to have arrived
WIDE = 0.5  # standard deviation over the prior's from which an interval is called the prior's
HEAP = 0.05  # f h from which the smoothing of the loss is said to widen an interval
PARTS = 2000  # draws from which the variance is split
PRIVATE = 0.5  # share of the variance above which privacy is said to dominate
FEW = 12.0  # degrees of freedom below which more budget for the scores is advised
UNCERTAIN = 4.0  # certainty of H below which its conditioning is said to limit the intervals
DRIFT = 3.0
AT_AN_END = 0.05  # share of a coordinate's draws at an end of its bounds, above which that is said
GEOMETRIES = ("box", "scores")
ARRAYS = ("centre", "gradient", "omega")
SYMMETRIC = ("omega", "public", "hessian.measured", "hessian.error", "hessian.relative", "scores.mean", "scores.sd")
POSITIVE = ("hessian.error", "hessian.relative", "hessian.typical", "scores.sd")  # or zero


class NoiseAwarePosterior(Posterior):
    """theta = theta_0 + H^-1 sqrt(v M) z, with (theta_0, H, M) drawn from their posterior.

    Parameters
    ----------
    local : sequence of LocalPosterior
        One for each rule.
    scores : Scores
        Second moment of the scores, stacked over the rules.
    sampling_factor : float
        v, see :attr:`pgbb_fast.release.blocked.Problem.sampling_factor`.
    box : (d, 2) array
        Draws are moved to the public box.
    prior : Prior, optional
        Of theta; by default as wide as the box.
    correlation : (d, L, L) array, optional
        Square roots of the correlation of the rules' noise, for each coordinate of the local models; by default each
        rule has releases of its own.
    """

    kind = "noise-aware"
    _report = AnyReport
    _unbounded = ("hessian.relative", "hessian.typical")

    def __init__(
        self,
        local: Sequence[LocalPosterior],
        scores: Scores,
        *,
        sampling_factor: float,
        box: Array,
        rules: Sequence[float],
        to_natural: AffineMap,
        names: Sequence[str],
        privacy: PrivacyReport | GaussianReport,
        prior: Prior | None = None,
        correlation: Array | None = None,
    ) -> None:
        super().__init__(rules=rules, to_natural=to_natural, names=names, privacy=privacy)
        self._prior_law = Prior.of_box(box) if prior is None else prior
        self._correlation = correlation
        self._local, self._scores, self._factor, self._box = tuple(local), scores, sampling_factor, box

    def _draw_parts(self, size: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """theta_0 and the sampling deviation from it, each (size, L, d) in unit coordinates; where the search has not
        arrived, draws of the prior and nothing."""
        location, deviation = self._found_parts(size, rng)
        if self._lost.any():
            location = np.where(self._lost, self._prior(size, rng), location)
            deviation = np.where(self._lost, 0.0, deviation)
        return location, deviation

    def _prior(self, size: int, rng: np.random.Generator) -> Array:
        """Draws of the prior: (size, L, d)."""
        return self._prior_law.draw((size, len(self._local)), rng)

    @cached_property
    def _lost(self) -> NDArray[np.bool_]:
        """Coordinates (L, d) of which the releases say that they are outside the public box: either the search has not
        arrived, and the local model is one of a place where the loss is flat, or the bounds are wrong.  One of them
        casts doubt on all coefficients of its rule, but a scale on itself only."""
        location, deviation = self._found_parts(PARTS, np.random.default_rng(0))
        theta = location + deviation
        beyond = np.maximum((theta < self._box[:, 0]).mean(axis=0), (theta > self._box[:, 1]).mean(axis=0)) > PILED
        end = len(self._box) - int(self.names[-1] == "scale")
        beyond[:, :end] = beyond[:, :end].any(axis=1, keepdims=True)
        beyond |= np.array([[local.lost] for local in self._local])
        return np.asarray(beyond)

    def _priors(self) -> NDArray[np.bool_]:
        rng = np.random.default_rng(0)
        prior = self._to_natural(np.clip(self._prior(PARTS, rng), self._box[:, 0], self._box[:, 1]))
        found = self._to_natural(self._unit_draws(PARTS, self.rules, rng))
        return np.asarray(found.std(axis=0) > WIDE * prior.std(axis=0))

    def _found_parts(self, size: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """What the releases say, wherever it is."""
        L, d = len(self._local), len(self._box)
        score = math.sqrt(self._factor) * self._scores.draw(size, rng).reshape(size, L, d)
        location, deviation = np.empty((size, L, d)), np.empty((size, L, d))
        error = None
        if self._correlation is not None:  # releases that are the same for all rules
            error = np.einsum("jkl,mlj->mkj", self._correlation, rng.standard_normal((size, L, d)))
        moment = self._factor * self._scores.moment
        for j, local in enumerate(self._local):
            here = slice(j * d, (j + 1) * d)
            own = None if error is None else error[:, j]
            location[:, j], deviation[:, j] = local.draw(
                size, rng, self._prior_law, score[:, j], moment[here, here], own
            )
        return location, deviation

    def _unit_draws(self, size: int, rules: Sequence[float], rng: np.random.Generator) -> Array:
        location, deviation = self._draw_parts(size, rng)
        theta = np.clip(location + deviation, self._box[:, 0], self._box[:, 1])
        return theta if tuple(rules) == self.rules else self._between(theta, rules)

    def _between(self, theta: Array, rules: Sequence[float]) -> Array:
        """Rules between those fitted, linear in the normal quantile of a level, or in the logarithm."""
        order = np.argsort(self.rules)
        known, wanted = places(self.rules, np.asarray(self.rules)[order]), places(self.rules, rules)
        right = np.clip(np.searchsorted(known, wanted), 1, len(known) - 1) if len(known) > 1 else np.zeros(1, int)
        if len(known) == 1:
            return np.repeat(theta, len(rules), axis=1)
        share = (wanted - known[right - 1]) / (known[right] - known[right - 1])
        left_theta, right_theta = theta[:, order[right - 1]], theta[:, order[right]]
        return np.asarray(left_theta + share[None, :, None] * (right_theta - left_theta))

    def _parts(self) -> tuple[Array, Array]:
        location, deviation = self._draw_parts(PARTS, np.random.default_rng(0))
        # within the box, as draws are: beyond it there are no variances to speak of where the curvature is hardly seen
        theta = np.clip(location + deviation, self._box[:, 0], self._box[:, 1])
        location = np.clip(location, self._box[:, 0], self._box[:, 1])
        total, privacy, sampling = (
            (part @ self._to_natural.matrix.T).var(axis=0) for part in (theta, location, theta - location)
        )
        share = sampling / np.maximum(sampling + privacy, np.finfo(np.float64).tiny)
        return np.asarray(share * total), np.asarray((1.0 - share) * total)

    def diagnostics(self) -> list[dict[str, float]]:
        """For each rule: condition and certainty of H, drift of theta_0, degrees of freedom of the scores, and the
        largest share of a coordinate's variance that is due to privacy."""
        sampling, privacy = self._parts()
        return [
            {
                "condition": local.condition,
                "certainty": local.certainty,
                "drift": local.drift,
                "scores_freedom": self._scores.freedom,
                "privacy_share": float((privacy[j] / (sampling[j] + privacy[j])).max()),
            }
            for j, local in enumerate(self._local)
        ]

    def advice(self) -> tuple[str, ...]:
        """Sentences on what limits the intervals and what would help; empty when all is well."""
        worst = self.diagnostics()
        said = []
        priors, lost = self._priors(), self._lost
        if lost.any():
            said.append(
                f"The search did not arrive within the public bounds ({self._which(lost)}): these intervals are the "
                "prior's, as wide as the bounds; wider coef_bounds, more steps or a larger epsilon help."
            )
        if (priors & ~lost).any():
            said.append(
                f"The releases say little ({self._which(priors & ~lost)}): these intervals are mostly the prior's, as "
                "wide as the bounds; a larger epsilon, more records, tighter bounds or fewer levels help."
            )
        if max(local.heaped for local in self._local) > HEAP:
            said.append(
                "The responses are heaped at a level that was asked for: its interval allows for the loss's smoothing; "
                "a smaller bandwidth helps."
            )
        if max(row["privacy_share"] for row in worst) > PRIVATE:
            said.append(
                "Privacy noise makes up most of some variances: a larger epsilon, tighter bounds or fewer features "
                "help."
            )
        if min(row["certainty"] for row in worst) < UNCERTAIN:
            said.append(
                "The curvature is poorly known in some direction, which widens the intervals: nearly collinear "
                "features, or bounds much wider than the data; fewer features or a larger epsilon help."
            )
        if min(row["scores_freedom"] for row in worst) < FEW:
            said.append(
                "The sampling part rests on few degrees of freedom: a larger moment_share or epsilon helps."
            )
        if max(np.nan_to_num(row["drift"]) for row in worst) > DRIFT:
            said.append("The estimate still moved at the end of the run: more steps, or tighter coef_bounds, help.")
        theta = self._unit_draws(PARTS, self.rules, np.random.default_rng(0))
        ends = (theta <= self._box[:, 0]) | (theta >= self._box[:, 1])
        if ends.mean(axis=0).max() > AT_AN_END:
            said.append(
                "An interval ends where the public bounds of its coefficient (coef_bounds; by default made of the "
                "records' bounds) end, and the value may lie beyond: tighter bounds of y and the features, or wider "
                "coef_bounds, help."
            )
        return tuple(said)

    def _which(self, chosen: NDArray[np.bool_]) -> str:
        """Names of coordinates, by rule: (L, d) flags in words."""
        rules = [f"{self.rule_name} {rule:g}: " for rule in self.rules] if len(self.rules) > 1 else [""]
        names = [", ".join(name for name, flag in zip(self.names, row, strict=True) if flag) for row in chosen]
        return "; ".join(rule + name for rule, name in zip(rules, names, strict=True) if name)

    def _saved(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays = {f"scores.{name}": getattr(self._scores, name) for name in NORMAL_ARRAYS}
        for j, local in enumerate(self._local):
            arrays |= {f"{name}.{j}": getattr(local, name) for name in ARRAYS}
            arrays |= {f"hessian.{name}.{j}": getattr(local.hessian, name) for name in HESSIAN_ARRAYS}
        arrays["box"] = self._box
        if self._correlation is not None:
            arrays |= {"correlation": self._correlation, "prior.mean": self._prior_law.mean}
            arrays["prior.root"] = self._prior_law.root
            for j, local in enumerate(self._local):
                assert local.mapping is not None
                assert local.public is not None
                arrays |= {f"mapping.{j}": local.mapping, f"public.{j}": local.public}
        numbers = [
            {
                "count": local.count,
                "drift": None if math.isnan(local.drift) else local.drift,
                "smoothing": local.smoothing,
                "lost": local.lost,
                "limit": local.hessian.limit if math.isfinite(local.hessian.limit) else None,
            }
            for local in self._local
        ]
        geometry = "box" if self._correlation is None else "scores"
        return arrays, {"local": numbers, "sampling_factor": self._factor, "geometry": geometry}

    @classmethod
    def _shapes(cls, d: int, rules: int, settings: dict[str, Any]) -> Shapes:
        if len(settings["local"]) != rules:
            raise DomainError("rules and their local models don't fit together")
        whole = rules * d
        shapes: Shapes = {"box": (d, 2)}
        shapes |= {f"scores.{name}": (whole, whole) for name in NORMAL_ARRAYS}
        for j in range(rules):
            shapes |= {f"centre.{j}": (d,), f"gradient.{j}": (d,), f"omega.{j}": (d, d)}
            shapes |= {f"hessian.{name}.{j}": (d,) if name == "typical" else (d, d) for name in HESSIAN_ARRAYS}
        if check.one_of("noise-aware posterior", "geometry", settings["geometry"], GEOMETRIES) == "scores":
            shapes |= {"correlation": (d, rules, rules), "prior.mean": (d,), "prior.root": (d, d)}
            shapes |= {f"{name}.{j}": (d, d) for name in ("mapping", "public") for j in range(rules)}
        return shapes

    @classmethod
    def _restored(cls, arrays: dict[str, Array], settings: dict[str, Any], common: dict[str, Any]) -> Self:
        who = "noise-aware posterior"
        for name, array in arrays.items():
            if name.startswith(SYMMETRIC):
                known = np.isfinite(array)
                finite = np.where(known, array, 0.0)
                if (known != known.T).any() or not np.abs(finite - finite.T).max() <= 1e-9 * np.abs(finite).max():
                    raise DomainError(f"{name} is not symmetric")
            if name.startswith(POSITIVE) and not (array >= 0.0).all():
                raise DomainError(f"{name} is negative")
        if not (arrays["box"][:, 0] < arrays["box"][:, 1]).all():
            raise DomainError("box must have low < high")
        hessians: list[Hessian] = []
        for numbers in settings["local"]:
            check.positive(who, "count", numbers["count"])
            if numbers["drift"] is not None:
                check.real(who, "drift", numbers["drift"])
            if check.real(who, "smoothing", numbers["smoothing"]) < 0.0:
                raise DomainError("smoothing is negative")
            limit = math.inf if numbers["limit"] is None else check.positive(who, "limit", numbers["limit"])
            parts: dict[str, Any] = {name: arrays[f"hessian.{name}.{len(hessians)}"] for name in HESSIAN_ARRAYS}
            hessians.append(Hessian(**parts, limit=limit))
        check.positive(who, "sampling_factor", settings["sampling_factor"])
        local = [
            LocalPosterior(
                centre=arrays[f"centre.{j}"],
                gradient=arrays[f"gradient.{j}"],
                hessian=hessians[j],
                omega=arrays[f"omega.{j}"],
                count=numbers["count"],
                drift=math.nan if numbers["drift"] is None else numbers["drift"],
                smoothing=numbers["smoothing"],
                public=arrays.get(f"public.{j}"),
                mapping=arrays.get(f"mapping.{j}"),
                lost=check.flag(who, "lost", numbers["lost"]),
            )
            for j, numbers in enumerate(settings["local"])
        ]
        scores = Scores(*(arrays[f"scores.{name}"] for name in NORMAL_ARRAYS))
        own: dict[str, Any] = {"correlation": arrays.get("correlation")}
        if "prior.mean" in arrays:
            own["prior"] = Prior(arrays["prior.mean"], arrays["prior.root"])
        return cls(local, scores, sampling_factor=settings["sampling_factor"], box=arrays["box"], **own, **common)
