"""Commands that fit, and that use what was fitted: demo, fit, draw."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from pgbb_fast import validation as check
from pgbb_fast.errors import BudgetError, DomainError
from pgbb_fast.files import require_writable_file, require_writable_folder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pgbb_fast.budget import Budget
    from pgbb_fast.estimators.base import PrivateEstimator
    from pgbb_fast.posteriors.base import Summary

DEMO_LEVELS = (0.1, 0.5, 0.9)


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.replace(",", " ").split())
    except ValueError:
        raise DomainError(f"{text!r} is not a list of numbers such as .1,.5,.9") from None


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _column(name: str, taken: Sequence[str]) -> str:
    """``name``, or a name like it that no coefficient has."""
    while name in taken:
        name += "_"
    return name


def _fit(
    model: PrivateEstimator, X: NDArray[Any], y: NDArray[Any] | None, quiet: bool, budget: Budget | None = None
) -> float:
    """Fit, with a progress bar where there is a terminal to show it; seconds it took."""
    start = time.perf_counter()
    records = (X,) if y is None else (X, y)
    fit: Any = partial(model.fit, *records, budget=budget)  # type: ignore[attr-defined]
    if quiet or not sys.stderr.isatty():
        fit()
    else:
        from pgbb_fast.cli.progress import training_bar

        with training_bar(model.plan(len(X))) as on_step:
            fit(on_step=on_step)
    return time.perf_counter() - start


def _beside_exact(summary: Summary, exact: dict[float, NDArray[np.float64]]) -> str:
    """The summary's table with exact non-private coefficients as a last column."""
    lines = summary.table()
    truth = [value for tau in DEMO_LEVELS for value in exact[tau]]
    body = [f"{line}  {value:>11.5g}" for line, value in zip(lines[1:], truth, strict=True)]
    return "\n".join([f"{lines[0]}  {'not private':>11}", *body, *summary.advice])


@click.command()
@click.option("--epsilon", default=1.0, show_default=True, help="Budget.")
@click.option("--delta", default=1e-5, show_default=True, help="Budget.")
@click.option("--steps", type=int, help="Steps; a default that suits the posterior.")
@click.option("--posterior", type=click.Choice(["noise-aware", "generator"]), default="noise-aware", show_default=True)
@click.option("--png", default="pgbb-demo.png", show_default=True, type=click.Path(dir_okay=False), help="Figure.")
@click.option("--out", type=click.Path(file_okay=False), help="Folder to save the posterior in.")
@click.option("--seed", type=int, help="For tests only: whoever knows the seed can undo the noise.")
@click.option("--quiet", is_flag=True, help="No progress bar.")
def demo(epsilon: float, delta: float, png: str, out: str | None, quiet: bool, **settings: Any) -> None:
    """Private quantile regressions of log weekly income on embedded records of the 2000 Census."""
    from pgbb_fast.data import load_census2000
    from pgbb_fast.estimators import PrivateQuantileRegressor
    from pgbb_fast.plots import quantile_effects, require_plots

    require_plots("demo")
    require_writable_file("demo", Path(png))
    if out is not None:
        require_writable_folder("demo", Path(out))
    census = load_census2000()
    model = PrivateQuantileRegressor(
        tau=DEMO_LEVELS,
        x_bounds=census.x_bounds,
        y_bounds=census.y_bounds,
        feature_names=census.feature_names,
        degrees=census.degrees,
        epsilon=epsilon,
        delta=delta,
        **settings,
    )
    click.echo(f"2000 Census, {len(census.y):,} persons: log weekly income on schooling and experience")
    seconds = _fit(model, census.X, census.y, quiet)
    click.echo(_beside_exact(model.posterior_.summary(), census.exact))
    click.echo(f"\n{model.privacy_.statement()}")
    path = quantile_effects(model.posterior_, png, reference=census.exact)
    click.echo(f"Fitted in {seconds:.1f} s. Figure: {path}")
    if out is not None:
        click.echo(f"Posterior saved in {model.posterior_.save(out)}")


@click.command()
@click.argument("file", type=click.Path())
@click.option("--target", help="Column of y (not for --loss mean).")
@click.option("--features", required=True, help="Columns, or powers of columns: educ,exper,exper^2.")
@click.option("--bounds", required=True, help="Public bounds fixed in advance: educ=0:20,exper=0:60,income=2:12.")
@click.option("--epsilon", required=True, type=float, help="Budget.")
@click.option("--delta", type=float, help="Budget; 1/n by default, n the number of records (public).")
@click.option("--loss", type=click.Choice(["quantile", "huber", "mean"]), default="quantile", show_default=True)
@click.option("--tau", help="Quantile level(s) of --loss quantile, trained jointly: .1,.5,.9; .5 by default.")
@click.option(
    "--geometry",
    type=click.Choice(["scores", "box"]),
    help="Shape of the noise: the scores', or the public box's, which the next five options need.",
)
@click.option("--blocks", type=int, help="Number of blocks S; 20 by default.")
@click.option("--steps", type=int, help="Steps; a default that suits the posterior.")
@click.option("--posterior", type=click.Choice(["noise-aware", "generator"]), default="noise-aware", show_default=True)
@click.option("--sampling-rate", type=float, help="Poisson sampling rate; a public rule of the budget by default.")
@click.option("--moment-share", type=float, help="Share of the budget for second moments.")
@click.option(
    "--budget", "budget_file", type=click.Path(dir_okay=False), help="Charge this file (pgbb-fast budget) as well."
)
@click.option("--level", default=0.95, show_default=True, help="Level of the intervals.")
@click.option("--out", type=click.Path(file_okay=False), help="Folder to save the posterior in.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--quiet", is_flag=True, help="No progress bar.")
def fit(
    file: str, target: str | None, features: str, bounds: str, loss: str, tau: str | None, blocks: int | None,
    budget_file: str | None, level: float, out: str | None, as_json: bool, quiet: bool, **budget: Any,
) -> None:  # fmt: skip
    """Fit a private regression (or means) to a parquet FILE and print means and intervals."""
    from pgbb_fast.budget import Budget
    from pgbb_fast.data import bounds_of, count_rows, parse_bounds, polynomial_terms, read_columns
    from pgbb_fast.estimators import PrivateHuberRegressor, PrivateMean, PrivateQuantileRegressor

    if out is not None:
        require_writable_folder("fit", Path(out))
    check.between("fit", "level", level, 0.0, 1.0)
    shared = None if budget_file is None else Budget.open(budget_file)
    degrees, public = polynomial_terms(_names(features)), parse_bounds(bounds)
    names = list(degrees)
    if not names:
        raise DomainError("fit: --features names no column")
    if loss == "mean" and max(degrees.values(), default=1) > 1:
        raise DomainError("fit: --loss mean takes plain columns, no powers")
    if loss == "mean" and target is not None:
        raise DomainError("fit: --loss mean has no --target; leave it out, or give the column to --features")
    if loss != "mean" and not target:
        raise DomainError(f"fit: --loss {loss} needs --target")
    if target in degrees:
        raise DomainError(f"fit: {target} is the target and can't be a feature too")
    if loss != "quantile" and tau is not None:
        raise DomainError(f"fit: --tau belongs to --loss quantile; leave it out with --loss {loss}")
    x_bounds = [bounds_of(name, public) for name in names]
    unknown = [name for name in public if name not in (*names, target)]
    if unknown:
        raise DomainError(f"fit: --bounds names {', '.join(unknown)}, which is no column of this fit; leave it out")
    if budget["delta"] is None:
        budget["delta"] = 1.0 / max(2, count_rows(file))
    settings: dict[str, Any] = {
        "x_bounds": x_bounds,
        "feature_names": names,
        "n_blocks": blocks,
        **budget,
    }
    model: PrivateQuantileRegressor | PrivateHuberRegressor | PrivateMean
    if loss == "mean":
        model = PrivateMean(**settings)
        X, y = read_columns(file, names), None
    else:
        assert target is not None
        settings |= {"y_bounds": bounds_of(target, public), "degrees": degrees}
        if loss == "quantile":
            model = PrivateQuantileRegressor(tau=_numbers(".5" if tau is None else tau), **settings)
        else:
            model = PrivateHuberRegressor(**settings)
        table = read_columns(file, [*names, target])
        X, y = table[:, :-1], table[:, -1]
    _fit(model, X, y, quiet, shared)
    summary = model.posterior_.summary(level)
    if as_json:
        click.echo(json.dumps({**summary.to_dict(), "privacy": model.privacy_.to_dict()}, indent=1))
    else:
        click.echo(f"{summary}\n\n{model.privacy_.statement()}")
    if out is not None:
        model.posterior_.save(out)
        click.echo(f"Posterior saved in {out}", err=True)


@click.command()
@click.argument("folder", type=click.Path())
@click.option("--size", default=2000, show_default=True, help="Number of draws.")
@click.option("--tau", help="Quantile level(s) between those trained on.")
@click.option("--seed", default=0, show_default=True, help="Seed of the (public) weights.")
@click.option("--out", type=click.Path(dir_okay=False), help="Parquet or CSV file; CSV on standard output by default.")
def draw(folder: str, size: int, tau: str | None, seed: int, out: str | None) -> None:
    """Draw from a posterior saved in FOLDER, at no cost to the budget."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    from pgbb_fast.posteriors.base import Posterior

    if out is not None:
        if Path(out).suffix not in (".parquet", ".csv"):
            raise DomainError(f"draw: --out must end in .parquet or .csv, got {out!r}")
        require_writable_file("draw", Path(out))
    posterior = Posterior.load(folder)
    rules: Sequence[float] | None = None if tau is None else _numbers(tau)
    draws = posterior.draws(size, rules=rules, seed=seed)
    columns: dict[str, NDArray[Any]] = {}
    if draws.ndim == 3:
        levels = np.asarray(rules if rules is not None else posterior.rules)
        columns[_column("draw", posterior.names)] = np.repeat(np.arange(size), draws.shape[1])
        columns[_column(posterior.rule_name, posterior.names)] = np.tile(levels, size)
        draws = draws.reshape(-1, draws.shape[2])
    columns |= {name: draws[:, j] for j, name in enumerate(posterior.names)}
    table: Any = pa.table(columns)
    if out is None:
        csv.write_csv(table, sys.stdout.buffer)
    elif Path(out).suffix == ".parquet":
        parquet.write_table(table, out)
    else:
        csv.write_csv(table, out)


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--epsilon", type=float, help="Of everything together; needed for a new FILE.")
@click.option("--delta", type=float, help="Likewise.")
@click.option(
    "--accounting",
    type=click.Choice(["gaussian", "basic"]),
    help="gaussian (default): regressions with their default noise; basic: everything, epsilons add up.",
)
@click.option("--fits", default=1, show_default=True, help="Print the share of each of so many further fits.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def budget(file: str, fits: int, as_json: bool, **given: Any) -> None:
    """Make FILE, a budget for all fits of one data set, or say what it holds."""
    from pgbb_fast.budget import Budget

    kept = Budget.open(file, **given)
    epsilon, delta = kept.spent()
    try:
        share: dict[str, float] | None = kept.share(fits)
    except BudgetError:
        share = None
    if as_json:
        charges = [{"label": one.label, "epsilon": one.epsilon, "delta": one.delta} for one in kept.charges]
        told = {"epsilon": kept.epsilon, "delta": kept.delta, "accounting": kept.accounting}
        spent = {"epsilon": epsilon, "delta": delta}
        click.echo(json.dumps({**told, "spent": spent, "share": share, "charges": charges}, indent=1))
        return
    click.echo(kept.statement())
    if share is None:
        click.echo("Nothing is left.")
    else:
        # in full: rounded up, they would no longer fit
        click.echo(f"Left for each of {fits} further fit(s): epsilon {share['epsilon']!r}, delta {share['delta']!r}")


COMMANDS = (demo, fit, draw, budget)
