"""A few waiting threads, so that a kernel call on several of them costs microseconds.

Kernels hold no lock on the interpreter while they run.  Threads start on first use, are the process's own (a fork
starts anew) and end with it.
"""

import os
import threading
from collections.abc import Callable, Sequence
from functools import cache
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb_fast.kernels.cpu.compile import compiled
from pgbb_fast.kernels.cpu.intrinsics import latest

Job = tuple[Callable[..., Any], tuple[Any, ...], "SimpleQueue[BaseException | None]"]

PATIENCE = 50_000   # looks at what the others have done before going to sleep: some 50 microseconds

_inboxes: list["SimpleQueue[Job]"] = []
_starting = threading.Lock()


def _work(inbox: "SimpleQueue[Job]") -> None:
    while True:
        function, arguments, answer = inbox.get()
        try:
            function(*arguments)
        except BaseException as error:      # handed to the caller, who raises it
            answer.put(error)
        else:
            answer.put(None)


def _forget() -> None:
    global _starting
    _inboxes.clear()
    _starting = threading.Lock()


os.register_at_fork(after_in_child=_forget)


def _finished(done: Any, jobs: Any) -> Any:
    """Whether ``done[0]`` gets to ``jobs`` soon."""
    looks = 0
    while latest(done, 0) < jobs and looks < PATIENCE:
        looks += 1
    return looks < PATIENCE


@cache
def _watch() -> Callable[..., bool]:
    return compiled(_finished)


def run(function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]], done: NDArray[np.int64] | None = None) -> None:
    """``function(*job)`` for every job: the first here, each other one in a thread of its own, all at once.

    Jobs that end by adding one to ``done[0]`` are waited for without sleep at first: waking up takes longer than the
    others need.
    """
    if len(jobs) == 1:
        function(*jobs[0])
        return
    with _starting:
        while len(_inboxes) < len(jobs) - 1:
            _inboxes.append(SimpleQueue())
            threading.Thread(target=_work, args=(_inboxes[-1],), daemon=True, name="pgbb-fast").start()
    answer: SimpleQueue[BaseException | None] = SimpleQueue()
    for inbox, job in zip(_inboxes, jobs[1:], strict=False):
        inbox.put((function, job, answer))
    seen = False
    try:
        function(*jobs[0])
        seen = done is not None and _watch()(done, len(jobs))
    finally:
        errors = [] if seen else [answer.get() for _ in jobs[1:]]
    for error in errors:
        if error is not None:
            raise error
