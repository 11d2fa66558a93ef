"""Gradients of a torch loss, record by record."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pgbb_fast.training import one_torch_thread

__all__ = ["RecordGradients"]

Array = NDArray[np.float64]
NUMBERS = 1 << 16  # of records or of their gradients, that torch is given at once


class RecordGradients:
    """(theta, x, y) -> gradients in theta of ``loss``, one row a record, in double precision on the CPU.

    Row i is a function of theta and record i, and of the public number of records: torch.func.vmap shows the loss one
    record at a time, and refuses Python's own branches on a record's values and random numbers.  Some operations still
    raise for one record's values (a Cholesky factor).  The batch is then computed again with a made-up record in the
    place of each that raises by itself, and those have nan.  So the other rows come out of the same computation, to the
    last bit, whatever the record: recomputed in smaller batches they might be rounded differently, and the sum's
    sensitivity would no longer be exact.

    Parameters
    ----------
    loss : callable
        (theta, x, y) -> a scalar tensor; (theta, x) without a response.
    filler : (p,) array, float or None
        The made-up record; without y the loss has no response.
    """

    def __init__(self, loss: Callable[..., Any], filler: tuple[Array, float | None]) -> None:
        self._filler = filler
        fixed = (None, 0) if filler[1] is None else (None, 0, 0)
        self._batch = torch.func.vmap(torch.func.grad(loss), in_dims=fixed)

    def __call__(self, theta: Array, x: Array, y: Array) -> Array:
        """Gradients (m, d) at ``theta`` (d,) of the records ``x`` (m, p), ``y`` (m,); nan where the loss raises.

        In pieces of a size that depends on d and p only.
        """
        out = np.empty((len(x), len(theta)))
        rows = self.rows(len(theta))
        with one_torch_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they could tell of a record
            for start in range(0, len(x), rows):
                here = slice(start, start + rows)
                out[here] = self._piece(theta, x[here], y[here])
        return out

    def rows(self, d: int) -> int:
        """Records of a piece."""
        return max(1, NUMBERS // max(d, len(self._filler[0])))

    def tried(self, theta: Array, x: Array, y: Array) -> Array:
        """As a call for made-up records: what the loss raises is raised."""
        parts = (theta, x) if self._filler[1] is None else (theta, x, y)
        found = self._batch(*(torch.tensor(part, dtype=torch.float64) for part in parts))
        return np.asarray(found.detach().numpy(), dtype=np.float64)

    def _piece(self, theta: Array, x: Array, y: Array) -> Array:
        try:
            return self.tried(theta, x, y)
        except Exception:
            bad = self._raising(theta, x, y)
            x, y = x.copy(), y.copy()
            x[bad], y[bad] = self._filler[0], self._filler[1] or 0.0
            try:
                out = self.tried(theta, x, y)
            except Exception:  # at this theta even the made-up record raises, or the loss is not one record's
                return np.full((len(x), len(theta)), np.nan)
            out[bad] = np.nan
            return out

    def _raising(self, theta: Array, x: Array, y: Array) -> NDArray[np.bool_]:
        """Which records raise by themselves, found by halves."""
        try:
            self.tried(theta, x, y)
        except Exception:
            if len(x) == 1:
                return np.ones(1, dtype=np.bool_)
            half = len(x) // 2
            parts = (slice(None, half), slice(half, None))
            return np.concatenate([self._raising(theta, x[part], y[part]) for part in parts])
        return np.zeros(len(x), dtype=np.bool_)
