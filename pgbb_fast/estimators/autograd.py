"""Gradients of a torch loss, record by record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pgbb_fast.network.training import one_torch_thread
from pgbb_fast.silence import FAILURES, unseen

__all__ = ["RecordGradients"]

Array = NDArray[np.float64]
NUMBERS = 1 << 16  # of records or of their gradients, that torch is given at once


class RecordGradients:
    """(theta, x, y) -> gradients in theta of ``loss``, one row a record, in double precision on the CPU.

    Row i is a function F_i of theta, record i and the public number of records, to the last bit; so replacing a record
    moves one term of a sum of these rows, and its sensitivity is the accounted one.  The proof rests on two facts.

    *Rows*: where a batch is computed at all, row i's bits don't depend on the other rows.  torch.func.vmap refuses
    Python's own branches on values and random numbers; what is left are torch's batched operations, each of which does
    the same arithmetic for every record, in an order that the batch's shape decides.  No theorem says so of a future
    torch: the tests hold it for its elementary functions, products, factorisations and sums.

    *Failures*: some operations raise for one record's values (a Cholesky factor); a batch raises exactly when one of
    its records does by itself.  Let E be those that do, which is a function of each.  If E is empty the batch is
    computed as it is.  If it is the whole batch, all rows are nan.  Else the batch is computed with a record outside E
    in the place of each in E, whose rows become nan: by the first fact it doesn't matter which, so record i outside E
    has F_i, and one in E has nan, whatever the others are.  If that raises all the same, the loss is not one of a
    single record, or memory ran out: then every record is computed in a batch of copies of itself, of the same size,
    row i of which is F_i again by the first fact.  No other record, made up or real, has a say.

    Parameters
    ----------
    loss : callable
        (theta, x, y) -> a scalar tensor; (theta, x) without a response.
    p : int
        Number of features.
    response : bool
        Whether a record has a response.
    """

    def __init__(self, loss: Callable[..., Any], p: int, *, response: bool) -> None:
        self._p, self._response = p, response
        self._batch = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0) if response else (None, 0))

    def __call__(self, theta: Array, x: Array, y: Array) -> Array:
        """Gradients (m, d) at ``theta`` (d,) of the records ``x`` (m, p), ``y`` (m,); nan where the loss raises.

        In pieces of a size that depends on d and p only.
        """
        out = np.empty((len(x), len(theta)))
        rows = self.rows(len(theta))
        with one_torch_thread(), unseen():
            for start in range(0, len(x), rows):
                here = slice(start, start + rows)
                out[here] = self._piece(theta, x[here], y[here])
        return out

    def rows(self, d: int) -> int:
        """Records of a piece."""
        return max(1, NUMBERS // max(d, self._p))

    def tried(self, theta: Array, x: Array, y: Array) -> Array:
        """As a call for made-up records: what the loss raises is raised."""
        parts = (theta, x, y) if self._response else (theta, x)
        found = self._batch(*(torch.tensor(part, dtype=torch.float64) for part in parts))
        return np.asarray(found.detach().numpy(), dtype=np.float64)

    def _piece(self, theta: Array, x: Array, y: Array) -> Array:
        found = self._attempt(theta, x, y)
        if found is not None:
            return found
        bad = self._raising(theta, x, y)
        if bad.all():
            return np.full((len(x), len(theta)), np.nan)
        place = np.where(bad, int(np.argmin(bad)), np.arange(len(x)))
        found = self._attempt(theta, x[place], y[place] if self._response else y)
        if found is None:
            return self._by_copies(theta, x, y)
        found[bad] = np.nan
        return found

    def _attempt(self, theta: Array, x: Array, y: Array) -> Array | None:
        try:
            return self.tried(theta, x, y).copy()
        except FAILURES:
            return None

    def _raising(self, theta: Array, x: Array, y: Array) -> NDArray[np.bool_]:
        """E: which records raise by themselves, found by halves."""
        if self._attempt(theta, x, y) is not None:
            return np.zeros(len(x), dtype=np.bool_)
        if len(x) == 1:
            return np.ones(1, dtype=np.bool_)
        half = len(x) // 2
        parts = (slice(None, half), slice(half, None))
        return np.concatenate([self._raising(theta, x[part], y[part]) for part in parts])

    def _by_copies(self, theta: Array, x: Array, y: Array) -> Array:
        """Row i of a batch of copies of record i, for each i."""
        out = np.full((len(x), len(theta)), np.nan)
        for i in range(len(x)):
            same = np.full(len(x), i)
            found = self._attempt(theta, x[same], y[same] if self._response else y)
            if found is not None:
                out[i] = found[i]
        return out
