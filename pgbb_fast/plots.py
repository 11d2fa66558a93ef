"""Figures of released posteriors and of privacy guarantees (the extra ``plot``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.errors import DomainError, MissingExtraError
from pgbb_fast.posterior import Posterior
from pgbb_fast.privacy import outward

__all__ = ["epsilon_sweeps", "quantile_effects", "trade_off_curve"]

AXES = {"n_blocks": "blocks S", "gamma": "concentration gamma", "steps": "steps T"}


def _pyplot(who: str) -> Any:
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingExtraError(f"{who}: install the extra, pip install 'pgbb-fast[plot]'") from error
    return pyplot


def quantile_effects(
    posterior: Posterior,
    path: str | Path,
    *,
    level: float = 0.95,
    reference: Mapping[float, NDArray[np.float64]] | None = None,
    units: Sequence[str] | None = None,
) -> Path:
    """Save a PNG with each coefficient against the quantile level: mean, pointwise band, and a reference if given.

    ``reference`` maps levels to (d,) arrays; it is drawn as crosses and named "exact, not private".
    """
    if len(posterior.rules) < 2:
        raise DomainError("quantile_effects: needs a posterior trained jointly over several levels")
    pyplot = _pyplot("quantile_effects")
    low, high = min(posterior.rules), max(posterior.rules)
    grid = np.linspace(low, high, 33)
    draws = posterior.draws(rules=grid.tolist())
    mean = draws.mean(axis=0)
    tail = (1.0 - level) / 2.0
    band = np.quantile(draws, [tail, 1.0 - tail], axis=0)
    shown = range(1 if posterior.names[0] == "intercept" else 0, len(posterior.names))
    figure, axes = pyplot.subplots(1, len(shown), figsize=(3.6 * len(shown), 3.2), squeeze=False)
    at = [posterior.interval(level, rules=[rule])[0] for rule in posterior.rules]
    for axis, j in zip(axes[0], shown, strict=True):
        axis.fill_between(grid, band[0, :, j], band[1, :, j], color="#3b6ea5", alpha=0.25, linewidth=0)
        axis.plot(grid, mean[:, j], color="#3b6ea5", label=f"private, {level:.0%} band")
        for rule, interval in zip(posterior.rules, at, strict=True):
            axis.plot([rule, rule], interval[j], color="#3b6ea5", linewidth=1)
        if reference:
            levels = sorted(tau for tau in reference if low <= tau <= high)
            axis.plot(levels, [reference[tau][j] for tau in levels], "x", color="#b5402a", label="exact, not private")
        axis.axhline(0.0, color="0.7", linewidth=0.8)
        axis.set_title(posterior.names[j] if units is None else f"{posterior.names[j]} ({units[j]})", fontsize=10)
        axis.set_xlabel("quantile level")
    axes[0][0].set_ylabel("effect on y")
    axes[0][0].legend(frameon=False, fontsize=8)
    spent = posterior.privacy
    figure.suptitle(f"epsilon = {outward(spent.epsilon, 3)}, delta = {outward(spent.delta, 3)}", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return Path(path)


def trade_off_curve(points: Mapping[str, Any], path: str | Path) -> Path:
    """Save a PNG of the least type-II error against the type-I error of any test between neighbours.

    ``points`` has ``alpha`` and ``beta`` (Dong, Roth and Su 2022), as made by ``pgbb_fast.accountant.trade_off``.
    """
    pyplot = _pyplot("trade_off_curve")
    figure, axis = pyplot.subplots(figsize=(3.8, 3.6))
    _draw_trade_off(axis, points)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return Path(path)


def epsilon_sweeps(result: Mapping[str, Any], path: str | Path) -> Path:
    """Save a PNG of epsilon against each swept parameter, with and without the weights' law, and of the trade-off."""
    pyplot = _pyplot("epsilon_sweeps")
    sweeps = result["sweeps"]
    figure, axes = pyplot.subplots(1, len(sweeps) + 1, figsize=(3.4 * (len(sweeps) + 1), 3.2))
    for axis, sweep in zip(axes, sweeps, strict=False):
        axis.loglog(sweep["values"], sweep["epsilon"], color="#3b6ea5", label="weights' law")
        axis.loglog(
            sweep["values"], sweep["epsilon_without_weights"], "--", color="#b5402a", label="weights at their bound"
        )
        axis.set_xlabel(AXES.get(sweep["parameter"], sweep["parameter"]))
    axes[0].set_ylabel(f"epsilon at delta = {result['delta']:g}")
    axes[0].legend(frameon=False, fontsize=8)
    _draw_trade_off(axes[-1], result["trade_off"])
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return Path(path)


def _draw_trade_off(axis: Any, points: Mapping[str, Any]) -> None:
    axis.plot([0, 1], [1, 0], color="0.7", linewidth=0.8)
    axis.plot(points["alpha"], points["beta"], color="#3b6ea5")
    axis.set_xlabel("type-I error")
    axis.set_ylabel("least type-II error")
    axis.set_xlim(0, 1)
    axis.set_ylim(0, 1)
