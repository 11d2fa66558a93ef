"""Nothing that NumPy, SciPy, torch or a function of the user's own remarks on while records are in hand reaches anyone.

A warning that one record's value causes tells of that record, and under ``-W error`` it would decide whether a fit
succeeds.  So every ``fit`` runs inside :func:`unseen`: warnings are neither shown nor raised, and floating-point errors
are neither, whatever the caller's settings.  What a function of the user's own prints, logs or keeps is the user's.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from scipy import special

__all__ = ["FAILURES", "unseen"]

# what code that sees one record may raise without ending the fit: all but a person's interrupt
FAILURES = (Exception, SystemExit, GeneratorExit)

_lock = threading.Lock()
_inside = 0
_before = warnings.catch_warnings()


@contextmanager
def unseen() -> Iterator[None]:
    """No warning is shown or raised inside, in any thread; also a decorator.

    Python's filters belong to the whole process: they are put back when the last of several threads leaves.
    """
    global _inside, _before
    with _lock:
        if _inside == 0:
            _before = warnings.catch_warnings()
            _before.__enter__()
            warnings.simplefilter("ignore")
        _inside += 1
    try:
        with np.errstate(all="ignore"), special.errstate(all="ignore"):  # type: ignore[arg-type]  # the stubs misspell it
            yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _before.__exit__(None, None, None)
