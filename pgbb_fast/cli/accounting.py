"""Commands of the accountant: epsilon, sigma, curve.  They read no data."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from pgbb_fast.budget.report import outward
from pgbb_fast.errors import DomainError

F = TypeVar("F", bound=Callable[..., Any])
ALPHAS = [i / 200 for i in range(201)]


def _mechanism_options(command: F) -> F:
    """Options that describe a training run."""
    for option in reversed(
        (
            click.option("--n", required=True, type=int, help="Number of records (public)."),
            click.option("--blocks", "n_blocks", default=20, show_default=True, help="Number of blocks S."),
            click.option("--gamma", type=float, help="Dirichlet concentration; gamma*(n, S) by default."),
            click.option("--sampling-rate", default=0.05, show_default=True, help="Poisson sampling rate q."),
            click.option("--steps", default=10_000, show_default=True, help="Training steps T."),
            click.option("--draws-per-step", default=1, show_default=True, help="Dirichlet draws of a step, K."),
            click.option(
                "--minibatch", type=click.Choice(["shared", "independent"]), default="shared", show_default=True
            ),
            click.option("--delta", required=True, type=float, help="delta of the guarantee."),
        )
    ):
        command = option(command)
    return command


def _method_options(command: F) -> F:
    """Options that choose the accounting, and the form of the answer."""
    for option in reversed(
        (
            click.option(
                "--method", type=click.Choice(["pld", "renyi", "renyi-series"]), default="pld", show_default=True
            ),
            click.option(
                "--conversion", type=click.Choice(["standard", "cks"]), help="Of Renyi moments; cks by default."
            ),
            click.option("--bounds", is_flag=True, help="Also a lower bound (pld only)."),
            click.option("--json", "as_json", is_flag=True, help="Print JSON."),
            click.option("--plot", type=click.Path(dir_okay=False), help="Save the trade-off curve as a PNG."),
        )
    ):
        command = option(command)
    return command


def _answer(name: str, value: float, bounds: Any, as_json: bool, **question: Any) -> None:
    """Print one number (and its bracket), as text or JSON."""
    result = {name: value, **({} if bounds is None else {"lower": bounds.lower, "upper": bounds.upper}), **question}
    if as_json:
        click.echo(json.dumps(result))
    else:
        bracket = "" if bounds is None else f"  [{outward(bounds.lower, down=True)}, {outward(bounds.upper)}]"
        click.echo(outward(value) + bracket)


def _require(command: str, plot: str | None, impossible: bool = False) -> None:
    """Refuse what can't be answered or drawn before computing anything."""
    if impossible:
        raise DomainError(f"{command}: --bounds brackets --method pld only; leave one of them out")
    if plot is not None:
        from pgbb_fast.files import require_writable_file
        from pgbb_fast.plots import require_plots

        require_plots(command)
        require_writable_file(command, Path(plot))


def _trade_off(mechanism: Any, around: float) -> dict[str, Any]:
    """The trade-off curve from delta at epsilons around the one of interest."""
    from pgbb_fast.accountant import curve, trade_off

    scale = max(around, 0.05)
    points = curve(mechanism, epsilons=[0.0, *(scale * 2.0 ** (k / 2) for k in range(-10, 5))])
    return {**points, "alpha": ALPHAS, "beta": trade_off(points, alphas=ALPHAS)}


@click.command()
@click.option("--noise-multiplier", required=True, type=float, help="sigma n_S / C.")
@_mechanism_options
@_method_options
def epsilon(
    delta: float, method: Any, conversion: Any, bounds: bool, as_json: bool, plot: str | None, **mechanism: Any
) -> None:
    """An upper bound of the epsilon that a training run spends (replace-one adjacency)."""
    from pgbb_fast import accountant

    _require("epsilon", plot, bounds and method != "pld")
    run = accountant.BlockedGaussian(**mechanism)
    value = accountant.epsilon(run, delta=delta, method=method, conversion=conversion)
    bracket = accountant.epsilon_bounds(run, delta=delta) if bounds else None
    _answer("epsilon", value, bracket, as_json, delta=delta, method=method, **mechanism)
    if plot is not None:
        from pgbb_fast.plots import trade_off_curve

        trade_off_curve(_trade_off(run, value), plot)


@click.command()
@click.option("--epsilon", required=True, type=float, help="epsilon of the guarantee.")
@_mechanism_options
@_method_options
def sigma(
    epsilon: float,
    delta: float,
    method: Any,
    conversion: Any,
    bounds: bool,
    as_json: bool,
    plot: str | None,
    **mechanism: Any,
) -> None:
    """The least noise multiplier sigma n_S / C that keeps a training run within (epsilon, delta)."""
    from pgbb_fast import accountant

    _require("sigma", plot, bounds and method != "pld")
    run = accountant.BlockedGaussian(noise_multiplier=None, **mechanism)
    value = accountant.noise_multiplier(run, epsilon=epsilon, delta=delta, method=method, conversion=conversion)
    bracket = accountant.noise_multiplier_bounds(run, epsilon=epsilon, delta=delta) if bounds else None
    _answer("noise_multiplier", value, bracket, as_json, epsilon=epsilon, delta=delta, method=method, **mechanism)
    if plot is not None:
        from pgbb_fast.plots import trade_off_curve

        trade_off_curve(_trade_off(replace(run, noise_multiplier=value), epsilon), plot)


def _around(value: float, factor: float, points: int, integer: bool, low: float, high: float) -> list[Any]:
    """``points`` values from value / factor to value * factor, equally spaced in the logarithm, kept in [low, high]."""
    grid = [value * factor ** (2 * i / (points - 1) - 1) for i in range(points)]
    kept = [min(max(v, low), high) for v in grid]
    return sorted({round(v) for v in kept} if integer else set(kept))


@click.command()
@click.option("--noise-multiplier", required=True, type=float, help="sigma n_S / C.")
@_mechanism_options
@click.option("--points", default=9, show_default=True, type=click.IntRange(2, 101), help="Values of each parameter.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--plot", type=click.Path(dir_okay=False), help="Save the curves as a PNG.")
def curve(delta: float, points: int, as_json: bool, plot: str | None, **mechanism: Any) -> None:
    """Epsilon against S, gamma and T, with and without the Dirichlet weights' law, and the trade-off curve."""
    from pgbb_fast import accountant

    _require("curve", plot)
    run = accountant.BlockedGaussian(**mechanism)
    middle = run.gamma if run.gamma is not None else accountant.gamma_star(n=run.n, n_blocks=run.n_blocks)
    values = {
        "n_blocks": _around(run.n_blocks, 6.0, points, True, 3, run.n),
        "gamma": _around(middle, 8.0, points, False, 1e-2, 1e2),
        "steps": _around(run.steps, 10.0, points, True, 1, math.inf),
    }
    sweeps = [accountant.sweep(run, parameter=name, values=grid, delta=delta) for name, grid in values.items()]
    spent = accountant.epsilon(run, delta=delta)
    result = {"epsilon": spent, "delta": delta, "sweeps": sweeps, "trade_off": _trade_off(run, spent)}
    if as_json:
        click.echo(json.dumps(result))
    else:
        for sweep in sweeps:
            click.echo(f"{sweep['parameter']:>12} {'epsilon':>12} {'weights at 1':>12}")
            rows = zip(sweep["values"], sweep["epsilon"], sweep["epsilon_without_weights"], strict=True)
            for value, aware, blind in rows:
                click.echo(f"{value:>12.6g} {outward(aware):>12} {outward(blind):>12}")
    if plot is not None:
        from pgbb_fast.plots import epsilon_sweeps

        epsilon_sweeps(result, plot)


COMMANDS = (epsilon, sigma, curve)
