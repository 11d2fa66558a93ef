"""Figures of released posteriors and of privacy guarantees (the extra ``plot``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb_fast import validation as check
from pgbb_fast.budget.report import guarantee
from pgbb_fast.errors import DomainError, MissingExtraError
from pgbb_fast.files import as_path, require_writable_file
from pgbb_fast.posteriors.base import Posterior

__all__ = ["epsilon_sweeps", "quantile_effects", "require_plots", "trade_off_curve"]

AXES = {"n_blocks": "blocks S", "gamma": "concentration gamma", "steps": "steps T"}


def require_plots(who: str) -> Any:
    """Matplotlib's ``Figure``, which needs no display and no state of the session; refuses where it isn't installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError(f"{who}: install the extra, pip install 'pgbb-fast[plot]'") from None
    return Figure


def _save(who: str, figure: Any, path: Path) -> Path:
    figure.tight_layout()
    try:
        figure.savefig(path, dpi=150, format="png")
    except OSError as error:
        raise DomainError(f"{who}: {path} can't be written to ({error.strerror}); choose another place") from None
    return path


def quantile_effects(
    posterior: Posterior,
    path: str | Path,
    *,
    level: float = 0.95,
    reference: Mapping[float, NDArray[np.float64]] | None = None,
    units: list[str] | tuple[str, ...] | None = None,
) -> Path:
    """Save a PNG with each coefficient against the quantile level: mean, pointwise band, and a reference if given.

    ``reference`` maps levels to (d,) arrays; it is drawn as crosses and named "exact, not private".
    """
    who = "quantile_effects"
    if not isinstance(posterior, Posterior) or len(posterior.rules) < 2:
        raise DomainError(f"{who}: needs a posterior trained jointly over several levels")
    level = check.between(who, "level", level, 0.0, 1.0)
    exact = _reference(who, reference, len(posterior.names))
    if units is not None and not (isinstance(units, (list, tuple)) and len(units) == len(posterior.names)):
        raise DomainError(f"{who}: units must be {len(posterior.names)} texts, one for each coefficient")
    place = as_path(who, "path", path)
    require_writable_file(who, place)
    figure_of = require_plots(who)
    low, high = min(posterior.rules), max(posterior.rules)
    grid = np.linspace(low, high, 33)
    draws = posterior.draws(rules=grid.tolist())
    mean = draws.mean(axis=0)
    tail = (1.0 - level) / 2.0
    band = np.quantile(draws, [tail, 1.0 - tail], axis=0)
    shown = range(1 if posterior.names[0] == "intercept" else 0, len(posterior.names))
    figure = figure_of(figsize=(3.6 * len(shown), 3.2))
    axes = figure.subplots(1, len(shown), squeeze=False)
    at = [posterior.interval(level, rules=[rule])[0] for rule in posterior.rules]
    for axis, j in zip(axes[0], shown, strict=True):
        axis.fill_between(grid, band[0, :, j], band[1, :, j], color="#3b6ea5", alpha=0.25, linewidth=0)
        axis.plot(grid, mean[:, j], color="#3b6ea5", label=f"private, {level:.0%} band")
        for rule, interval in zip(posterior.rules, at, strict=True):
            axis.plot([rule, rule], interval[j], color="#3b6ea5", linewidth=1)
        if exact:
            levels = sorted(tau for tau in exact if low <= tau <= high)
            axis.plot(levels, [exact[tau][j] for tau in levels], "x", color="#b5402a", label="exact, not private")
        axis.axhline(0.0, color="0.7", linewidth=0.8)
        axis.set_title(posterior.names[j] if units is None else f"{posterior.names[j]} ({units[j]})", fontsize=10)
        axis.set_xlabel("quantile level")
    axes[0][0].set_ylabel("effect on y")
    axes[0][0].legend(frameon=False, fontsize=8)
    epsilon, delta = guarantee(posterior.privacy, 3)
    figure.suptitle(f"epsilon = {epsilon}, delta = {delta}", fontsize=10)
    return _save(who, figure, place)


def _array(values: Any) -> NDArray[np.float64]:
    """``values`` as real numbers; not a number, of no dimension, what can't be read as such."""
    try:
        return np.asarray(values, dtype=np.float64)
    except Exception:  # what another library's array raises, too
        return np.array(np.nan)


def _reference(who: str, reference: Any, d: int) -> dict[float, NDArray[np.float64]]:
    """Levels and their coefficients, (d,) each."""
    found = {}
    if reference is not None and not isinstance(reference, Mapping):
        raise DomainError(f"{who}: reference must map levels to {d} coefficients each")
    for tau, values in (reference or {}).items():
        found[check.real(who, "a level of reference", tau)] = coefficients = _array(values)
        if coefficients.shape != (d,):
            raise DomainError(f"{who}: reference must map levels to {d} coefficients each")
    return found


def _numbers(who: str, points: Any, *names: str) -> dict[str, NDArray[np.float64]]:
    """Numbers under each of ``names``; refuses what isn't a mapping to as many under each."""
    found = {name: _array(points.get(name)) for name in names} if isinstance(points, Mapping) else {}
    sizes = {numbers.shape for numbers in found.values()}
    if len(sizes) != 1 or len(next(iter(sizes))) != 1:
        raise DomainError(f"{who}: needs as many numbers under each of {', '.join(names)}")
    return found


def trade_off_curve(points: Mapping[str, Any], path: str | Path) -> Path:
    """Save a PNG of the least type-II error against the type-I error of any test between neighbours.

    ``points`` has ``alpha`` and ``beta`` (Dong, Roth and Su 2022), as made by ``pgbb_fast.accountant.trade_off``.
    """
    who = "trade_off_curve"
    curve = _numbers(who, points, "alpha", "beta")
    place = as_path(who, "path", path)
    require_writable_file(who, place)
    figure = require_plots(who)(figsize=(3.8, 3.6))
    _draw_trade_off(figure.subplots(), curve)
    return _save(who, figure, place)


def epsilon_sweeps(result: Mapping[str, Any], path: str | Path) -> Path:
    """Save a PNG of epsilon against each swept parameter, with and without the weights' law, and of the trade-off."""
    who = "epsilon_sweeps"
    sweeps = result.get("sweeps") if isinstance(result, Mapping) else None
    if not isinstance(sweeps, (list, tuple)):
        raise DomainError(f"{who}: result must have sweeps, trade_off and delta, as `curve --json` prints")
    delta = check.real(who, "delta", result.get("delta"))
    drawn = [_numbers(who, sweep, "values", "epsilon", "epsilon_without_weights") for sweep in sweeps]
    trade_off = _numbers(who, result.get("trade_off"), "alpha", "beta")
    place = as_path(who, "path", path)
    require_writable_file(who, place)
    figure = require_plots(who)(figsize=(3.4 * (len(sweeps) + 1), 3.2))
    axes = figure.subplots(1, len(sweeps) + 1, squeeze=False)[0]
    for axis, sweep, numbers in zip(axes, sweeps, drawn, strict=False):
        values, aware, blind = numbers.values()
        axis.loglog(values, aware, color="#3b6ea5", label="weights' law")
        axis.loglog(values, blind, "--", color="#b5402a", label="weights at their bound")
        axis.set_xlabel(AXES.get(name, "") if isinstance(name := sweep.get("parameter"), str) else "")
    axes[0].set_ylabel(f"epsilon at delta = {delta!r}")
    if sweeps:
        axes[0].legend(frameon=False, fontsize=8)
    _draw_trade_off(axes[-1], trade_off)
    return _save(who, figure, place)


def _draw_trade_off(axis: Any, points: Mapping[str, Any]) -> None:
    axis.plot([0, 1], [1, 0], color="0.7", linewidth=0.8)
    axis.plot(points["alpha"], points["beta"], color="#3b6ea5")
    axis.set_xlabel("type-I error")
    axis.set_ylabel("least type-II error")
    axis.set_xlim(0, 1)
    axis.set_ylim(0, 1)
