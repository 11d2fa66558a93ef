"""A progress bar of public numbers only: steps done, and an upper bound of the epsilon spent so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pgbb_fast.accountant import BlockedGaussian, epsilon

CHECKPOINTS = 20
REFRESH = 50  # steps between two refreshes of the bar


@contextmanager
def training_bar(mechanism: BlockedGaussian, delta: float) -> Iterator[Callable[[int], None]]:
    """A callback for ``fit(on_step=...)``.  ``mechanism`` is calibrated; epsilon is shown for the steps up to the
    next of ``CHECKPOINTS``, hence never too low."""
    total = mechanism.steps
    stride = -(-total // CHECKPOINTS)
    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("steps, epsilon spent < {task.fields[spent]:.3f}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("training", total=total, spent=0.0)
        state = {"next": 0}

        def on_step(step: int) -> None:
            if step > state["next"]:
                state["next"] = min(total, state["next"] + stride)
                spent = epsilon(replace(mechanism, steps=state["next"]), delta=delta)
                bar.update(task, completed=step, spent=spent)
            elif step % REFRESH == 0 or step == total:
                bar.update(task, completed=step)

        yield on_step
