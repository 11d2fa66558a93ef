"""A progress bar of public numbers only: steps done, and an upper bound of the epsilon spent so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pgbb_fast.privacy import PrivacyReport, outward, spent

CHECKPOINTS = 20
REFRESH = 50  # steps between two refreshes of the bar


@contextmanager
def training_bar(report: PrivacyReport) -> Iterator[Callable[[int], None]]:
    """A callback for ``fit(on_step=...)`` that will spend ``report``.  Epsilon is shown for the steps up to the next of
    ``CHECKPOINTS`` and the score moment, rounded up, hence never too low."""
    total = report.mechanism.steps
    stride = -(-total // CHECKPOINTS)
    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("steps, epsilon spent at most {task.fields[spent]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("training", total=total, spent="")
        state = {"next": 0}

        def on_step(step: int) -> None:
            if step > state["next"]:
                state["next"] = min(total, state["next"] + stride)
                so_far = replace(report.mechanism, steps=state["next"])
                bar.update(task, completed=step, spent=outward(spent(so_far, report.moment, report.delta), 4))
            elif step % REFRESH == 0 or step == total:
                bar.update(task, completed=step)

        yield on_step
