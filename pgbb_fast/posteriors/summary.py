"""Tables of posterior means, standard deviations and intervals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Row", "Summary"]


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
