"""The released posterior: any number of draws, at no further cost."""

from __future__ import annotations

import importlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pgbb_fast import validation as check
from pgbb_fast.budget.report import PrivacyReport, Report, guarantee
from pgbb_fast.coordinates import AffineMap, Domain
from pgbb_fast.errors import DomainError, MissingExtraError, PgbbError, PrivacyError
from pgbb_fast.files import read_pair, write_pair
from pgbb_fast.losses.rules import rearranged, sup_t_band
from pgbb_fast.posteriors.kinds import posterior_class
from pgbb_fast.posteriors.summary import Row, Summary

__all__ = ["Posterior", "Row", "Shapes", "Summary"]

Array = NDArray[np.float64]
DEFAULT_DRAWS = 2000
MAX_NUMBERS = 2**30  # in one set of draws
RULE_NAMES = ("level", "c")
Shapes = dict[str, tuple[int, ...]]


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
    _report: ClassVar[Any] = PrivacyReport  # class of ``privacy``
    _unbounded: ClassVar[tuple[str, ...]] = ()  # how names of saved arrays begin that may hold infinities

    def __init__(self, *, rules: Sequence[float], to_natural: AffineMap, names: Sequence[str], privacy: Report) -> None:
        self.rules, self.names, self.privacy = tuple(rules), tuple(names), privacy
        self._to_natural = to_natural
        self.rule_name = "level"

    def __repr__(self) -> str:
        rules = f", rules={list(self.rules)}" if self.rules else ""
        seed = ", undone by its seed" if getattr(self.privacy, "undone_by_seed", False) else ""
        return f"{type(self).__name__}({', '.join(self.names)}{rules}; epsilon={guarantee(self.privacy, 4)[0]}{seed})"

    @abstractmethod
    def _unit_draws(self, size: int, rules: Sequence[float], rng: np.random.Generator) -> Array:
        """Draws in unit coordinates, (size, len(rules) or 1, d)."""

    @abstractmethod
    def _saved(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Arrays and JSON-able settings from which :meth:`_restored` makes the posterior again."""

    @classmethod
    @abstractmethod
    def _shapes(cls, d: int, rules: int, settings: dict[str, Any]) -> Shapes:
        """Every array that :meth:`_saved` gives for d coordinates and so many rules, with its shape; -1: any length."""

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
        rules : float or sequence of float, optional
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
        chosen = self._chosen(rules)
        size = check.integer("draws", "size", size, 1, MAX_NUMBERS // (len(self.names) * max(1, len(chosen))))
        rng = np.random.default_rng(check.integer("draws", "seed", seed, 0))
        try:
            natural = self._to_natural(self._unit_draws(size, chosen, rng))
        except MemoryError:
            raise DomainError(f"draws: {size} draws don't fit into memory; make fewer at a time") from None
        return natural if len(self.rules) > 1 else np.asarray(natural[:, 0])

    def _chosen(self, rules: Any) -> tuple[float, ...]:
        """``rules`` as numbers: those fitted by default, else one or several between them."""
        if rules is None:
            return self.rules
        if not self.rules:
            raise DomainError("draws: this posterior has a single rule without an index; leave rules out")
        low, high = min(self.rules), max(self.rules)
        try:
            array = np.asarray(rules)
        except Exception:  # what another library's array, or a ragged list, raises
            array = np.empty(0)
        numbers = array.dtype.kind in "iuf" and array.ndim <= 1
        chosen = tuple(map(float, np.atleast_1d(array))) if numbers else ()
        if not chosen or any(not low <= rule <= high for rule in chosen):
            raise DomainError(f"draws: rules must be one or more numbers in [{low:g}, {high:g}]")
        return chosen

    def _several(self, who: str, options: dict[str, Any]) -> Array:
        """At least two draws, for what needs their spread."""
        if "size" in options:
            check.integer(who, "size", options["size"], 2)
        return self.draws(**options)

    def mean(self, **options: Any) -> Array:
        """Posterior mean, (d,) or (L, d); ``options`` go to :meth:`draws`."""
        return np.asarray(self.draws(**options).mean(axis=0))

    def sd(self, **options: Any) -> Array:
        """Posterior standard deviation, (d,) or (L, d)."""
        return np.asarray(self._several("sd", options).std(axis=0, ddof=1))

    def interval(self, level: float = 0.95, **options: Any) -> Array:
        """Equal-tailed intervals of the stated ``level``: (d, 2) or (L, d, 2), low then high."""
        tail = (1.0 - check.between("interval", "level", level, 0.0, 1.0)) / 2.0
        return np.moveaxis(np.quantile(self.draws(**options), [tail, 1.0 - tail], axis=0), 0, -1)

    def summary(self, level: float = 0.95, **options: Any) -> Summary:
        """Mean, standard deviation (with its parts where known) and interval of every coordinate, by rule."""
        level = check.between("summary", "level", level, 0.0, 1.0)
        tail = (1.0 - level) / 2.0
        draws = self._several("summary", options)
        draws = draws[:, None, :] if draws.ndim == 2 else draws
        chosen = options.get("rules")
        rules: Sequence[float | None] = self._chosen(chosen) or (None,)
        mean, sd = draws.mean(axis=0), draws.std(axis=0, ddof=1)
        low, high = np.quantile(draws, [tail, 1.0 - tail], axis=0)
        parts, priors = (self._parts(), self._priors()) if chosen is None else (None, None)
        rows = []
        for j, rule in enumerate(rules):
            for i, name in enumerate(self.names):
                numbers = {"mean": mean, "sd": sd, "low": low, "high": high}
                if parts is not None:
                    numbers |= dict(zip(("sampling_sd", "privacy_sd"), np.sqrt(parts), strict=True))
                own: dict[str, Any] = {key: float(values[j, i]) for key, values in numbers.items()}
                rows.append(Row(rule, name, **own, is_prior=priors is not None and bool(priors[j, i])))
        return Summary(level, tuple(rows), self.advice(), self.rule_name)

    def _by_rule(self, who: str, rules: Sequence[float] | None, options: dict[str, Any]) -> Array:
        """Two draws or more, with an axis for the rules even where there is one, (m, L, d)."""
        draws = self._several(who, {"rules": rules, **options})
        return draws if draws.ndim == 3 else draws[:, None, :]

    def band(
        self, level: float = 0.95, *, over: str = "rules", rules: Sequence[float] | None = None, **options: Any
    ) -> Array:
        """Simultaneous bands (sup-t), for each coefficient over the rules or over everything: (L, d, 2), low then high.

        ``over`` is "rules" or "all"; ``options`` go to :meth:`draws`.  See :func:`pgbb_fast.losses.rules.sup_t_band`.
        """
        level = check.between("band", "level", level, 0.0, 1.0)
        return sup_t_band(self._by_rule("band", rules, options), level, over=over)

    def curves(
        self, X: Any, *, rules: Sequence[float] | None = None, rearrange: bool | None = None, **options: Any
    ) -> Array:
        """Draws of x'beta at public points, by rule: (m, L, k).

        Parameters
        ----------
        X : data frame or mapping with the features' columns, (k, p) or (k, q) array
            Points of your choosing (not records), inside the public bounds.  A frame's columns are taken by name and
            powers made of them; an array has a column for each slope, or for each feature.  See
            :meth:`pgbb_fast.coordinates.Domain.terms`.
        rules : sequence of float, optional
        rearrange : bool, optional
            Sort each draw's curves along the levels so that they don't cross; by default where the rules are levels.
            See :func:`pgbb_fast.losses.rules.rearranged`.

        Raises
        ------
        DomainError
            This posterior is of no linear model; a feature's column is missing; points that aren't finite numbers, or
            lie outside the public bounds, where nothing was fitted.
        """
        domain = self._to_natural.domain
        if domain is None:
            raise DomainError("curves: this posterior is of no linear model")
        if rearrange is not None:
            rearrange = check.flag("curves", "rearrange", rearrange)
        points = domain.terms("curves", X, self.names[domain.slopes])
        draws = self._by_rule("curves", rules, options)
        curves = np.einsum("mlp,kp->mlk", draws[:, :, domain.slopes], points)
        if domain.intercept:
            curves = curves + draws[:, :, :1]
        sort = self.rule_name == "level" if rearrange is None else rearrange
        return rearranged(curves, np.asarray(self._chosen(rules))) if sort and curves.shape[1] > 1 else curves

    def to_arviz(self, **options: Any) -> Any:
        """The draws as ArviZ holds them, with one variable, ``theta``: an ``InferenceData``, or from ArviZ 1 on a
        ``DataTree`` (needs the extra ``arviz``)."""
        from_dict = _arviz()
        coords: dict[str, Any] = {"coefficient": list(self.names)}
        dims = ["coefficient"]
        if len(self.rules) > 1:
            coords["rule"] = list(self._chosen(options.get("rules")))
            dims = ["rule", "coefficient"]
        groups = {"posterior": {"theta": self.draws(**options)[None]}}
        named = {"coords": coords, "dims": {"theta": dims}}
        if "posterior" in inspect.signature(from_dict).parameters:  # before ArviZ 1 groups are arguments
            return from_dict(**groups, **named)
        return from_dict(groups, **named)

    def save(self, folder: str | Path) -> Path:
        """Write ``posterior.json`` and its file of arrays into ``folder`` (made if need be), both or neither.

        They hold released values and public settings only: no records, no random key.  A posterior saved there before
        is replaced.  See :mod:`pgbb_fast.files` for the files and what their checksums tell.

        Raises
        ------
        DomainError
            ``folder`` is a file, or can't be written to; what it held is as it was.
        """
        arrays, settings = self._saved()
        domain = self._to_natural.domain
        description = {
            "kind": self.kind,
            "names": list(self.names),
            "rules": list(self.rules),
            "rule_name": self.rule_name,
            "to_natural": {"matrix": self._to_natural.matrix.tolist(), "offset": self._to_natural.offset.tolist()},
            "domain": None if domain is None else domain.to_dict(),
            "privacy": self.privacy.to_dict(),
            "settings": settings,
        }
        return write_pair("save", folder, description, arrays)

    @classmethod
    def load(cls, folder: str | Path, *, recompute: bool = False) -> Posterior:
        """Inverse of :meth:`save`; reads JSON and safetensors, executes nothing.

        Checksums, shapes and whether all is finite are checked.  The privacy report is taken as it is written there,
        unless ``recompute``: then this version's accountant must find no more epsilon for the mechanisms that the
        report names (seconds, or longer for mechanisms that are hard to account).

        Raises
        ------
        DomainError
            Something is missing, damaged, changed, of another format, or fits nothing that :meth:`save` writes.
        PrivacyError
            With ``recompute``: the report states less than its mechanisms spend.
        """
        recompute = check.flag("load", "recompute", recompute)
        saved, arrays = read_pair("load", folder)
        try:
            posterior = _restored(saved, arrays)
        except Exception as error:  # whatever it holds, it is no posterior
            why = f": {error}" if isinstance(error, PgbbError) else ""
            raise DomainError(f"load: {folder} holds no posterior that this version can have saved{why}") from None
        if recompute and not posterior.privacy.epsilon >= posterior.privacy.recomputed() * (1.0 - 1e-9):
            raise PrivacyError(f"load: {folder} states an epsilon below what its mechanisms spend; don't rely on it")
        return posterior


def _restored(saved: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Posterior:
    """The posterior that a description and arrays make; any exception if they make none."""
    kind, names, rules = posterior_class(saved["kind"]), saved["names"], saved["rules"]
    if not isinstance(names, list) or not isinstance(rules, list):
        raise DomainError("names and rules must be lists")
    d = len(names)
    if not d or not all(isinstance(name, str) for name in names) or len(set(names)) != d:
        raise DomainError("names must be different texts")
    rule_name = check.one_of("rules", "rule_name", saved["rule_name"], RULE_NAMES)
    top = 1.0 if rule_name == "level" else np.inf
    if len({check.between("rules", "rules", rule, 0.0, top) for rule in rules}) != len(rules):
        raise DomainError("rules must be different")
    matrix, offset = (np.array(saved["to_natural"][key], dtype=np.float64) for key in ("matrix", "offset"))
    domain = None if saved["domain"] is None else Domain.from_dict(saved["domain"])
    if matrix.shape != (d, d) or offset.shape != (d,) or not (np.isfinite(matrix).all() and np.isfinite(offset).all()):
        raise DomainError("units and names don't fit together")
    if domain is not None and domain.slopes.stop not in (d, d - 1):
        raise DomainError("domain and names don't fit together")
    shapes = kind._shapes(d, max(1, len(rules)), saved["settings"])
    if set(arrays) != set(shapes):
        raise DomainError("the arrays are not those of its kind")
    for name, shape in shapes.items():
        found = arrays[name].shape
        if len(found) != len(shape) or any(n != m and (m != -1 or n < 1) for n, m in zip(found, shape, strict=True)):
            raise DomainError(f"the array {name!r} has shape {found}")
        if not name.startswith(kind._unbounded) and not np.isfinite(arrays[name]).all():
            raise DomainError(f"the array {name!r} is not finite")
    common = {
        "rules": rules,
        "names": names,
        "to_natural": AffineMap(matrix, offset, domain),
        "privacy": kind._report.from_dict(saved["privacy"]),
    }
    posterior = kind._restored(arrays, saved["settings"], common)
    posterior.rule_name = rule_name
    if posterior.names != tuple(names) or posterior.rules != tuple(rules):
        raise DomainError("names and rules are not those of its kind")
    with np.errstate(all="ignore"):
        sound = np.isfinite(posterior.draws(20)).all()
    if not sound:
        raise DomainError("its draws are not finite")
    return posterior


def _arviz() -> Any:
    """``from_dict`` of ArviZ, or of the part of ArviZ 1 that has it."""
    for name in ("arviz", "arviz_base"):
        try:
            return importlib.import_module(name).from_dict
        except (ImportError, AttributeError):
            continue
    raise MissingExtraError("to_arviz: install the extra, pip install 'pgbb-fast[arviz]'")
