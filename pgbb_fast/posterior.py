"""The released posterior: any number of draws, at no further cost."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pgbb_fast import validation as check
from pgbb_fast.errors import DomainError, MissingExtraError
from pgbb_fast.privacy import PrivacyReport, Report, outward
from pgbb_fast.rules import rearranged, sup_t_band

__all__ = ["AffineMap", "Posterior", "Row", "Summary"]

Array = NDArray[np.float64]
FORMAT = 2
DEFAULT_DRAWS = 2000


@dataclass(frozen=True)
class AffineMap:
    """theta (natural units) = matrix @ theta (unit box) + offset; (d, d) and (d,)."""

    matrix: Array
    offset: Array

    def __call__(self, theta: Array) -> Array:
        return np.asarray(theta @ self.matrix.T + self.offset)


@dataclass(frozen=True)
class Row:
    """One line of a summary; ``rule`` is the quantile level, or None.  ``sampling_sd`` and ``privacy_sd`` split the
    standard deviation, where the posterior knows the split; ``is_prior``: the interval is mostly the prior's, as
    wide as the public bounds, because the releases say little."""

    rule: float | None
    name: str
    mean: float
    sd: float
    low: float
    high: float
    sampling_sd: float | None = None
    privacy_sd: float | None = None
    is_prior: bool = False


@dataclass(frozen=True)
class Summary:
    """Posterior means, standard deviations and equal-tailed intervals; prints as a table, then any advice."""

    level: float
    rows: tuple[Row, ...]
    advice: tuple[str, ...] = field(default=())
    rule_name: str = "level"

    def table(self) -> list[str]:
        """A heading and one line for each row."""
        width = max(12, *(len(row.name) for row in self.rows))
        by_rule, split = self.rows[0].rule is not None, self.rows[0].privacy_sd is not None
        head = f"{self.rule_name:>6} " * by_rule + f"{'':<{width}} {'mean':>11} {'sd':>10} "
        head += f"{'sampling':>10} {'privacy':>10} " * split + f"{f'{self.level:.0%} interval':>25}"
        lines = [head]
        for row in self.rows:
            line = (f"{row.rule:>6g} " if by_rule else "") + f"{row.name:<{width}} {row.mean:>11.5g} {row.sd:>10.4g} "
            line += f"{row.sampling_sd:>10.4g} {row.privacy_sd:>10.4g} " if split else ""
            lines.append(f"{line}[{row.low:>11.5g},{row.high:>11.5g}]" + " prior" * row.is_prior)
        return lines

    def __str__(self) -> str:
        return "\n".join([*self.table(), *self.advice])

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {"level": self.level, "rows": [vars(row) for row in self.rows], "advice": list(self.advice)}


class Posterior(ABC):
    """Draws of theta, made of released values only.

    Every method is post-processing: none touches records or spends budget.

    Attributes
    ----------
    names : tuple of str
        Names of the d coordinates of theta.
    rules : tuple of float
        The rules fitted (quantile levels); empty when the loss has no index.
    rule_name : str
        What their index is: "level", or "c" for Huber's constant.
    privacy : PrivacyReport, or another method's report
        What the releases spent.
    """

    kind: ClassVar[str]
    _kinds: ClassVar[dict[str, type[Posterior]]] = {}
    _report: ClassVar[Any] = PrivacyReport  # class of ``privacy``

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        Posterior._kinds[cls.kind] = cls

    def __init__(self, *, rules: Sequence[float], to_natural: AffineMap, names: Sequence[str], privacy: Report) -> None:
        self.rules, self.names, self.privacy = tuple(rules), tuple(names), privacy
        self._to_natural = to_natural
        self.rule_name = "level"

    def __repr__(self) -> str:
        rules = f", rules={list(self.rules)}" if self.rules else ""
        return f"{type(self).__name__}({', '.join(self.names)}{rules}; epsilon={outward(self.privacy.epsilon, 4)})"

    @abstractmethod
    def _unit_draws(self, size: int, rules: Sequence[float], rng: np.random.Generator) -> Array:
        """Draws in unit coordinates, (size, len(rules) or 1, d)."""

    @abstractmethod
    def _saved(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Arrays and JSON-able settings from which :meth:`_restored` makes the posterior again."""

    @classmethod
    @abstractmethod
    def _restored(cls, arrays: dict[str, Array], settings: dict[str, Any], common: dict[str, Any]) -> Posterior:
        """Inverse of :meth:`_saved`; ``common`` are the arguments of ``Posterior.__init__``."""

    def _parts(self) -> tuple[Array, Array] | None:
        """Sampling and privacy variances in natural units, each (L or 1, d), where known."""
        return None

    def _priors(self) -> NDArray[np.bool_] | None:
        """Which intervals are mostly the prior's, (L or 1, d), where known."""
        return None

    def advice(self) -> tuple[str, ...]:
        """Sentences on what limits the intervals and what would help; empty when all is well."""
        return ()

    def draws(self, size: int = DEFAULT_DRAWS, *, rules: Sequence[float] | None = None, seed: int = 0) -> Array:
        """``size`` draws of theta in natural units.

        Parameters
        ----------
        size : int
            Number of draws m.
        rules : sequence of float, optional
            Quantile levels, by default those fitted; any level between the lowest and the highest of them.
        seed : int
            Seed of the (public) randomness; draws of all rules belong together, so differences between rules are
            meaningful.

        Returns
        -------
        (m, d) array for a single rule, (m, L, d) for several rules fitted jointly.

        Raises
        ------
        DomainError
            ``size`` < 1, or a rule outside the range fitted.
        """
        check.integer("draws", "size", size, 1)
        unit = self._unit_draws(size, self._chosen(rules), np.random.default_rng(seed))
        natural = self._to_natural(unit)
        return natural if len(self.rules) > 1 else np.asarray(natural[:, 0])

    def _chosen(self, rules: Sequence[float] | None) -> tuple[float, ...]:
        if rules is None:
            return self.rules
        if not self.rules:
            raise DomainError("draws: this posterior has a single rule without an index; leave rules out")
        low, high = min(self.rules), max(self.rules)
        chosen = tuple(check.real("draws", "rules", rule) for rule in rules)
        if not chosen or any(not low <= rule <= high for rule in chosen):
            raise DomainError(f"draws: rules must be one or more levels in [{low:g}, {high:g}], got {list(chosen)}")
        return chosen

    def mean(self, **options: Any) -> Array:
        """Posterior mean, (d,) or (L, d); ``options`` go to :meth:`draws`."""
        return np.asarray(self.draws(**options).mean(axis=0))

    def sd(self, **options: Any) -> Array:
        """Posterior standard deviation, (d,) or (L, d)."""
        return np.asarray(self.draws(**options).std(axis=0, ddof=1))

    def interval(self, level: float = 0.95, **options: Any) -> Array:
        """Equal-tailed intervals of the stated ``level``: (d, 2) or (L, d, 2), low then high."""
        tail = (1.0 - check.between("interval", "level", level, 0.0, 1.0)) / 2.0
        return np.moveaxis(np.quantile(self.draws(**options), [tail, 1.0 - tail], axis=0), 0, -1)

    def summary(self, level: float = 0.95, **options: Any) -> Summary:
        """Mean, standard deviation (with its parts where known) and interval of every coordinate, by rule."""
        tail = (1.0 - check.between("summary", "level", level, 0.0, 1.0)) / 2.0
        draws = self.draws(**options)
        draws = draws[:, None, :] if draws.ndim == 2 else draws
        chosen = options.get("rules")
        rules: Sequence[float | None] = self._chosen(chosen) or (None,)
        mean, sd = draws.mean(axis=0), draws.std(axis=0, ddof=1)
        low, high = np.quantile(draws, [tail, 1.0 - tail], axis=0)
        parts, priors = (self._parts(), self._priors()) if chosen is None else (None, None)
        rows = []
        for j, rule in enumerate(rules):
            for i, name in enumerate(self.names):
                split = (None, None) if parts is None else tuple(float(np.sqrt(part[j, i])) for part in parts)
                prior = priors is not None and bool(priors[j, i])
                m, s, a, b = (float(part[j, i]) for part in (mean, sd, low, high))
                rows.append(Row(rule, name, m, s, a, b, split[0], split[1], is_prior=prior))
        return Summary(level, tuple(rows), self.advice(), self.rule_name)

    def _by_rule(self, rules: Sequence[float] | None, **options: Any) -> Array:
        """Draws with an axis for the rules even where there is one, (m, L, d)."""
        draws = self.draws(rules=rules, **options)
        return draws if draws.ndim == 3 else draws[:, None, :]

    def band(
        self, level: float = 0.95, *, over: str = "rules", rules: Sequence[float] | None = None, **options: Any
    ) -> Array:
        """Simultaneous bands (sup-t), for each coefficient over the rules or over everything: (L, d, 2), low then high.

        ``over`` is "rules" or "all"; ``options`` go to :meth:`draws`.  See :func:`pgbb_fast.rules.sup_t_band`.
        """
        return sup_t_band(self._by_rule(rules, **options), level, over=over)

    def curves(
        self, X: Any, *, rules: Sequence[float] | None = None, rearrange: bool | None = None, **options: Any
    ) -> Array:
        """Draws of x'beta at public points, by rule: (m, L, k).

        Parameters
        ----------
        X : (k, p) array
            Points of your choosing (not records), one column for each coefficient but the intercept and the scale.
        rules : sequence of float, optional
        rearrange : bool, optional
            Sort each draw's curves along the levels so that they don't cross; by default where the rules are levels.
            See :func:`pgbb_fast.rules.rearranged`.
        """
        first, end = int(self.names[0] == "intercept"), len(self.names) - int(self.names[-1] == "scale")
        points = np.asarray(X, dtype=np.float64)
        if points.ndim != 2 or points.shape[1] != end - first or not np.isfinite(points).all():
            raise DomainError(f"curves: X must be finite, (k, {end - first}): one column for each slope")
        draws = self._by_rule(rules, **options)
        curves = np.einsum("mlp,kp->mlk", draws[:, :, first:end], points)
        if first:
            curves = curves + draws[:, :, :1]
        sort = self.rule_name == "level" if rearrange is None else rearrange
        return rearranged(curves, np.asarray(self._chosen(rules))) if sort and curves.shape[1] > 1 else curves

    def to_arviz(self, **options: Any) -> Any:
        """The draws as an ``arviz.InferenceData`` with one variable, ``theta`` (needs the extra ``arviz``)."""
        try:
            import arviz
        except ImportError as error:
            raise MissingExtraError("to_arviz: install the extra, pip install 'pgbb-fast[arviz]'") from error
        coords: dict[str, Any] = {"coefficient": list(self.names)}
        dims = ["coefficient"]
        if len(self.rules) > 1:
            coords["rule"] = list(self._chosen(options.get("rules")))
            dims = ["rule", "coefficient"]
        return arviz.from_dict(posterior={"theta": self.draws(**options)[None]}, coords=coords, dims={"theta": dims})

    def save(self, folder: str | Path) -> Path:
        """Write ``posterior.safetensors`` and ``posterior.json`` into ``folder`` (made if need be).

        Both hold released values and public settings only: no records, no random key.
        """
        from safetensors.numpy import save_file

        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        arrays, settings = self._saved()
        save_file({name: np.ascontiguousarray(a) for name, a in arrays.items()}, str(path / "posterior.safetensors"))
        description = {
            "format": FORMAT,
            "kind": self.kind,
            "names": list(self.names),
            "rules": list(self.rules),
            "rule_name": self.rule_name,
            "to_natural": {"matrix": self._to_natural.matrix.tolist(), "offset": self._to_natural.offset.tolist()},
            "privacy": self.privacy.to_dict(),
            "settings": settings,
        }
        (path / "posterior.json").write_text(json.dumps(description, indent=1) + "\n")
        return path

    @classmethod
    def load(cls, folder: str | Path) -> Posterior:
        """Inverse of :meth:`save`; reads JSON and safetensors, executes nothing."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        path = Path(folder)
        try:
            saved = json.loads((path / "posterior.json").read_text())
            if saved["format"] != FORMAT:
                raise DomainError(f"load: {path} has format {saved['format']!r}, this version reads {FORMAT}")
            common = {
                "rules": saved["rules"],
                "names": saved["names"],
                "to_natural": AffineMap(*(np.asarray(saved["to_natural"][key]) for key in ("matrix", "offset"))),
                "privacy": _kind(saved["kind"])._report.from_dict(saved["privacy"]),
            }
            arrays = load_file(str(path / "posterior.safetensors"))
            posterior = _kind(saved["kind"])._restored(arrays, saved["settings"], common)
            posterior.rule_name = str(saved.get("rule_name", "level"))
            return posterior
        except FileNotFoundError as error:
            missing = Path(error.filename).name if error.filename else "posterior.safetensors"
            raise DomainError(f"load: {path} is no saved posterior, {missing} is missing") from None
        except (KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
            if isinstance(error, DomainError):
                raise
            raise DomainError(f"load: {path} is damaged or of another format") from error


def _kind(name: str) -> type[Posterior]:
    """The class of a saved posterior; imports the generator's (and torch) only when it is one."""
    import importlib

    home = {
        "noise-aware": "noise_aware_posterior",
        "generator": "generator_posterior",
        "sampled": "baselines.posterior",
        "bootstrap": "bootstrap.posterior",
        "deconvolved": "bootstrap.deconvolution",
        "little-bootstraps": "bootstrap.little",
    }[name]
    importlib.import_module(f"pgbb_fast.{home}")
    return Posterior._kinds[name]
