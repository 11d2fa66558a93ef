"""A progress bar of public numbers only: steps done, and the epsilon that they can have spent at most."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pgbb_fast.budget.gaussian import GaussianReport
from pgbb_fast.budget.report import PrivacyReport, guarantee

REFRESH = 50  # steps between two refreshes of the bar


@contextmanager
def training_bar(report: PrivacyReport | GaussianReport) -> Iterator[Callable[[int], None]]:
    """A callback for ``fit(on_step=...)`` that will spend ``report``.  The epsilon shown is the whole fit's, which is
    known before it begins: an upper bound at every step that costs nothing to compute."""
    total = report.steps
    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(f"steps, epsilon spent at most {guarantee(report, 4)[0]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("training", total=total)

        def on_step(step: int) -> None:
            if step % REFRESH == 0 or step == total:
                bar.update(task, completed=step)

        yield on_step
