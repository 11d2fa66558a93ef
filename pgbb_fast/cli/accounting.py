"""Commands of the accountant: epsilon and sigma."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def _mechanism_options(command: F) -> F:
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
            click.option("--method", help="Accounting method; the tightest by default."),
            click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        )
    ):
        command = option(command)
    return command


def _show(value: float, name: str, question: dict[str, Any], as_json: bool) -> None:
    click.echo(json.dumps({name: value, **question}) if as_json else f"{value:.6g}")


@click.command()
@click.option("--noise-multiplier", required=True, type=float, help="sigma n_S / C.")
@_mechanism_options
def epsilon(delta: float, method: str | None, as_json: bool, **mechanism: Any) -> None:
    """An upper bound of the epsilon that a training run spends (replace-one adjacency)."""
    from pgbb_fast import accountant

    options: dict[str, Any] = {} if method is None else {"method": method}
    value = accountant.epsilon(accountant.BlockedGaussian(**mechanism), delta=delta, **options)
    _show(value, "epsilon", {"delta": delta, **mechanism}, as_json)


@click.command()
@click.option("--epsilon", required=True, type=float, help="epsilon of the guarantee.")
@_mechanism_options
def sigma(epsilon: float, delta: float, method: str | None, as_json: bool, **mechanism: Any) -> None:
    """The least noise multiplier sigma n_S / C that keeps a training run within (epsilon, delta)."""
    from pgbb_fast import accountant

    options: dict[str, Any] = {} if method is None else {"method": method}
    question = accountant.BlockedGaussian(noise_multiplier=None, **mechanism)
    value = accountant.noise_multiplier(question, epsilon=epsilon, delta=delta, **options)
    _show(value, "noise_multiplier", {"epsilon": epsilon, "delta": delta, **mechanism}, as_json)


COMMANDS = (epsilon, sigma)
