"""The released posterior: any number of draws, at no further cost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from pgbb_fast import validation as check
from pgbb_fast.blocks import dirichlet
from pgbb_fast.errors import DomainError, MissingExtraError
from pgbb_fast.generator import Generator
from pgbb_fast.privacy import PrivacyReport

__all__ = ["AffineMap", "Posterior", "Row", "Summary"]

FORMAT = 1
DEFAULT_DRAWS = 2000


@dataclass(frozen=True)
class AffineMap:
    """theta (natural units) = matrix @ theta (unit box) + offset; (d, d) and (d,)."""

    matrix: NDArray[np.float64]
    offset: NDArray[np.float64]

    def __call__(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(theta @ self.matrix.T + self.offset)


@dataclass(frozen=True)
class Row:
    """One line of a summary; ``rule`` is the quantile level, or None."""

    rule: float | None
    name: str
    mean: float
    sd: float
    low: float
    high: float


@dataclass(frozen=True)
class Summary:
    """Posterior means, standard deviations and equal-tailed intervals; prints as a table."""

    level: float
    rows: tuple[Row, ...]

    def __str__(self) -> str:
        width = max(12, *(len(row.name) for row in self.rows))
        head = f"{'level':>6} " if self.rows[0].rule is not None else ""
        lines = [f"{head}{'':<{width}} {'mean':>11} {'sd':>11} {f'{self.level:.0%} interval':>25}"]
        for row in self.rows:
            lead = f"{row.rule:>6g} " if row.rule is not None else ""
            lines.append(
                f"{lead}{row.name:<{width}} {row.mean:>11.5g} {row.sd:>11.4g} [{row.low:>11.5g},{row.high:>11.5g}]"
            )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {"level": self.level, "rows": [vars(row) for row in self.rows]}


class Posterior:
    """Draws of theta from a trained generator.

    Every method is post-processing of the released parameters: none touches records or spends budget.

    Parameters
    ----------
    generator : Generator
        Trained map from Dirichlet weights (and the rule's index) to theta in the unit box.
    gamma : float
        Dirichlet concentration per block.
    to_natural : AffineMap
        From the unit box to the user's units.
    names : sequence of str
        Names of the d coordinates of theta.
    privacy : PrivacyReport
        What training spent.
    """

    def __init__(
        self, generator: Generator, *, gamma: float, to_natural: AffineMap, names: Sequence[str], privacy: PrivacyReport
    ) -> None:
        self._generator, self._gamma, self._to_natural = generator, gamma, to_natural
        self.names, self.privacy = tuple(names), privacy

    @property
    def rules(self) -> tuple[float, ...]:
        """The rules trained on (quantile levels); empty when the loss has no index."""
        return self._generator.rules

    def __repr__(self) -> str:
        rules = f", rules={list(self.rules)}" if self.rules else ""
        return f"Posterior({', '.join(self.names)}{rules}; epsilon={self.privacy.epsilon:.4g})"

    def draws(
        self, size: int = DEFAULT_DRAWS, *, rules: Sequence[float] | None = None, seed: int = 0
    ) -> NDArray[np.float64]:
        """``size`` draws of theta in natural units.

        Parameters
        ----------
        size : int
            Number of draws m.
        rules : sequence of float, optional
            Quantile levels, by default those trained on; any level between the lowest and the highest of them.
        seed : int
            Seed of the (public) weights; the same weights serve all rules, so differences between them are meaningful.

        Returns
        -------
        (m, d) array for a single rule, (m, L, d) for several rules trained jointly.

        Raises
        ------
        DomainError
            ``size`` < 1, or a rule outside the range trained on.
        """
        check.integer("draws", "size", size, 1)
        u = dirichlet(size, self._generator.n_blocks, self._gamma, np.random.default_rng(seed))
        index = self._rules(rules)
        by_rule = []
        for rule in index or (np.nan,):
            inputs = self._generator.inputs(u, np.full(size, rule))
            with torch.no_grad():
                theta = self._generator(inputs).numpy().astype(np.float64)
            by_rule.append(self._to_natural(theta))
        return np.stack(by_rule, axis=1) if len(self.rules) > 1 else by_rule[0]

    def _rules(self, rules: Sequence[float] | None) -> tuple[float, ...]:
        trained = self.rules
        if rules is None:
            return trained
        if not trained:
            raise DomainError("draws: this posterior has a single rule without an index; leave rules out")
        low, high = min(trained), max(trained)
        chosen = tuple(check.real("draws", "rules", rule) for rule in rules)
        if not chosen or any(not low <= rule <= high for rule in chosen):
            raise DomainError(f"draws: rules must be one or more levels in [{low:g}, {high:g}], got {list(chosen)}")
        return chosen

    def mean(self, **options: Any) -> NDArray[np.float64]:
        """Posterior mean, (d,) or (L, d); ``options`` go to :meth:`draws`."""
        return np.asarray(self.draws(**options).mean(axis=0))

    def sd(self, **options: Any) -> NDArray[np.float64]:
        """Posterior standard deviation, (d,) or (L, d)."""
        return np.asarray(self.draws(**options).std(axis=0, ddof=1))

    def interval(self, level: float = 0.95, **options: Any) -> NDArray[np.float64]:
        """Equal-tailed intervals of the stated ``level``: (d, 2) or (L, d, 2), low then high."""
        tail = (1.0 - check.between("interval", "level", level, 0.0, 1.0)) / 2.0
        return np.moveaxis(np.quantile(self.draws(**options), [tail, 1.0 - tail], axis=0), 0, -1)

    def summary(self, level: float = 0.95, **options: Any) -> Summary:
        """Mean, standard deviation and interval of every coordinate, by rule."""
        tail = (1.0 - check.between("summary", "level", level, 0.0, 1.0)) / 2.0
        draws = self.draws(**options)
        draws = draws[:, None, :] if draws.ndim == 2 else draws
        rules: Sequence[float | None] = self._rules(options.get("rules")) or (None,)
        mean, sd = draws.mean(axis=0), draws.std(axis=0, ddof=1)
        low, high = np.quantile(draws, [tail, 1.0 - tail], axis=0)
        return Summary(
            level,
            tuple(
                Row(rule, name, *(float(a[j, i]) for a in (mean, sd, low, high)))
                for j, rule in enumerate(rules)
                for i, name in enumerate(self.names)
            ),
        )

    def to_arviz(self, **options: Any) -> Any:
        """The draws as an ``arviz.InferenceData`` with one variable, ``theta`` (needs the extra ``arviz``)."""
        try:
            import arviz
        except ImportError as error:
            raise MissingExtraError("to_arviz: install the extra, pip install 'pgbb-fast[arviz]'") from error
        coords: dict[str, Any] = {"coefficient": list(self.names)}
        dims = ["coefficient"]
        if len(self.rules) > 1:
            coords["rule"] = list(self._rules(options.get("rules")))
            dims = ["rule", "coefficient"]
        return arviz.from_dict(posterior={"theta": self.draws(**options)[None]}, coords=coords, dims={"theta": dims})

    def save(self, folder: str | Path) -> Path:
        """Write ``generator.safetensors`` and ``posterior.json`` into ``folder`` (made if need be).

        Both hold released parameters and public settings only: no records, no random key.
        """
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        g = self._generator
        save_file({k: v.contiguous() for k, v in g.state_dict().items()}, str(path / "generator.safetensors"))
        description = {
            "format": FORMAT,
            "names": list(self.names),
            "gamma": self._gamma,
            "generator": g.description(),
            "to_natural": {
                "matrix": self._to_natural.matrix.tolist(),
                "offset": self._to_natural.offset.tolist(),
            },
            "privacy": self.privacy.to_dict(),
        }
        (path / "posterior.json").write_text(json.dumps(description, indent=1) + "\n")
        return path

    @classmethod
    def load(cls, folder: str | Path) -> Posterior:
        """Inverse of :meth:`save`; reads JSON and safetensors, executes nothing."""
        path = Path(folder)
        try:
            saved = json.loads((path / "posterior.json").read_text())
            if saved["format"] != FORMAT:
                raise DomainError(f"load: {path} has format {saved['format']!r}, this version reads {FORMAT}")
            generator = Generator(**saved["generator"])
            generator.load_state_dict(load_file(str(path / "generator.safetensors")))
            affine = AffineMap(*(np.asarray(saved["to_natural"][key]) for key in ("matrix", "offset")))
            privacy = PrivacyReport.from_dict(saved["privacy"])
            return cls(
                generator, gamma=saved["gamma"], to_natural=affine, names=saved["names"], privacy=privacy
            )
        except FileNotFoundError as error:
            raise DomainError(f"load: {path} is no saved posterior, {Path(error.filename).name} is missing") from None
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, DomainError):
                raise
            raise DomainError(f"load: {path} is damaged or of another format") from error
