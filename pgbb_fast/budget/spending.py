"""What an object that fits has spent, whether or not its fits came to an end."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

from pgbb_fast.budget import Budget, Charge
from pgbb_fast.budget.report import Circumstances
from pgbb_fast.errors import DomainError, NotFittedError

__all__ = ["Spender", "Spending"]

R = TypeVar("R", bound=Circumstances)
_lock = threading.Lock()


@dataclass(frozen=True, eq=False)
class Spending:
    """One fit that has begun to release.

    Attributes
    ----------
    report : PrivacyReport, or another method's report
        What the whole fit costs.  It is spent from the first release on: an interrupt may have come after any of them.
    finished : bool
        Whether its posterior was kept.
    """

    report: Circumstances
    finished: bool = False


class Spender:
    """Base of everything with a private ``fit``: the posterior, and an account of all fits.

    A fit calls :meth:`_start` after everything that can be refused has been, right before its first release, and
    :meth:`_finish` with what it made.  In between whatever happens (an interrupt, an error) leaves the account, where
    the fit is marked as not finished, and the posterior of the fit before.  Copies and pickles carry the account along.
    """

    _who: ClassVar[str] = "Spender"
    _posterior: Any = None
    _spent: tuple[Spending, ...] = ()

    @property
    def spent_(self) -> tuple[Spending, ...]:
        """Every fit of this object that has begun to release, oldest first."""
        return self._spent

    def _afford(self, report: Circumstances, budget: Budget | None) -> None:
        """Refuse, before a record is touched, what ``budget`` doesn't hold."""
        if budget is None:
            return
        if not isinstance(budget, Budget):
            raise DomainError(f"{self._who}: budget must be a Budget, got {type(budget).__name__}")
        budget.require(self._charge(report))

    def _charge(self, report: Circumstances) -> Charge:
        return Charge(label=self._who, epsilon=report.epsilon, delta=report.delta, gaussians=report.gaussians)

    def _start(self, report: R, budget: Budget | None = None) -> R:
        """The report of a fit whose first release comes next, with the fits before it; ``budget`` is charged."""
        if budget is not None:
            report = replace(report, together=budget.charge(self._charge(report)))
        with _lock:
            report = replace(report, earlier=tuple((s.report.epsilon, s.report.delta) for s in self._spent))
            self._spent = (*self._spent, Spending(report))
        return report

    def _finish(self, report: Circumstances, **fitted: Any) -> None:
        """Show ``fitted``, all at once, as the outcome of the fit with this very ``report``."""
        with _lock:
            spent = tuple(replace(s, finished=True) if s.report is report else s for s in self._spent)
            self.__dict__.update(fitted, _spent=spent)

    def _state(self) -> str:
        """Words for a representation."""
        said = "not fitted" if self._posterior is None else "fitted"
        lost = sum(not s.finished for s in self._spent)
        if lost or len(self._spent) > 1:
            said += f"; budget spent {len(self._spent)} time(s)" + (f", {lost} without a result" if lost else "")
        return said

    def _require_fitted(self) -> Any:
        if self._posterior is None:
            spent = " (an interrupted fit has spent its budget: spent_)" if self._spent else ""
            raise NotFittedError(f"{self._who}: call fit before posterior_{spent}")
        return self._posterior
