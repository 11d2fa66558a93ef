"""One budget for all that is released from one data set: fits, bootstraps, baselines, releases of the user's own.

A budget is charged before the first release of a fit, so that an interrupted one is charged too, and what it doesn't
hold is refused before a record is touched.  What is asked for next may depend on everything seen so far
(:mod:`pgbb_fast.budget.filters`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from pgbb_fast import validation as check
from pgbb_fast.accountant import Guarantee, SubsampledGaussian
from pgbb_fast.accountant import epsilon as epsilon_of
from pgbb_fast.budget.filters import FILTERS, Charge
from pgbb_fast.budget.report import ADJACENCY, outward
from pgbb_fast.errors import BudgetError, DomainError
from pgbb_fast.files import as_path, is_sealed, replace_file, require_writable_file, sealed_json

__all__ = ["Budget"]

FORMAT = "pgbb-fast budget 1"
FIELDS = {"sha256", "format", "epsilon", "delta", "accounting", "adjacency", "charges"}
MAX_FITS = 10**6
WAIT = 60.0  # seconds for another process that holds the file


class Budget:
    """An (epsilon, delta) budget of one data set, replace-one adjacency, for any number of fits.

    Pass it to ``fit(..., budget=b)``.  Every fit is charged what it spends, by its own epsilon and delta; ``share``
    gives the ones with which so many fits will do.

    Parameters
    ----------
    epsilon, delta : float
        Of everything together.
    accounting : {"gaussian", "basic"}
        "gaussian": for releases that are plain Gaussian ones of all records, as those of the regressors with their
        default geometry, of noisy Newton and of the private Gibbs sampler; k equal fits get about 1/sqrt(k) of the
        budget each.  "basic": for everything; epsilons and deltas add up, so k equal fits get 1/k each.

    Raises
    ------
    DomainError
        A parameter outside its domain.

    Notes
    -----
    *Formal guarantee.*  All that is released after it was charged is (epsilon, delta)-private together, however each
    release was chosen after earlier ones were seen, and whenever one stops (:mod:`pgbb_fast.budget.filters`), as
    long as nothing else is released from these records.

    A budget in memory can't be copied or pickled, since copies could be spent twice; one in a file (:meth:`open`) can.
    """

    def __init__(self, epsilon: float, delta: float, *, accounting: str = "gaussian") -> None:
        epsilon = check.positive("Budget", "epsilon", epsilon)
        self._guarantee = Guarantee(epsilon=epsilon, delta=check.between("Budget", "delta", delta, 0.0, 1.0))
        self._accounting = check.one_of("Budget", "accounting", accounting, tuple(FILTERS))
        self._filter = FILTERS[self._accounting](self._guarantee)
        self._charges: tuple[Charge, ...] = ()
        self._path: Path | None = None
        self._held = threading.RLock()

    @classmethod
    def open(
        cls,
        path: object,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        accounting: str | None = None,
    ) -> Budget:
        """The budget kept in a file, which is made if there is none; several processes may use it at once.

        Parameters
        ----------
        path : path
            A JSON file; beside it lies a lock, ``path`` with ".lock" added.
        epsilon, delta, accounting
            As for :class:`Budget`: needed for a new file, and must be the file's own where they are given.

        Raises
        ------
        DomainError
            The file is damaged or another budget's, or can't be read or written.
        """
        who = "Budget.open"
        place = as_path(who, "path", path)
        require_writable_file(who, place)
        given = {"epsilon": epsilon, "delta": delta, "accounting": accounting}
        with _locked(who, place):
            if place.exists():
                kept, charges = _read(who, place)
                for name, value in given.items():
                    if value is not None and value != kept[name]:
                        raise DomainError(
                            f"{who}: {place} has {name} = {kept[name]}; leave {name} out, or open another file"
                        )
                found = cls(**kept)
                found._require_within(who, place, charges)
                found._charges = charges
            else:
                if epsilon is None or delta is None:
                    raise DomainError(f"{who}: {place} is not there; give epsilon and delta to make it")
                found = cls(epsilon, delta, accounting="gaussian" if accounting is None else accounting)
                _write(found._settings, place, ())
        found._path = place
        return found

    @property
    def _settings(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon, "delta": self.delta, "accounting": self.accounting}

    @property
    def epsilon(self) -> float:
        """Of everything together."""
        return float(self._guarantee.epsilon)

    @property
    def delta(self) -> float:
        """Of everything together."""
        return float(self._guarantee.delta)

    @property
    def accounting(self) -> str:
        """How charges add up."""
        return self._accounting

    @property
    def charges(self) -> tuple[Charge, ...]:
        """What was charged, oldest first."""
        with self._current("Budget.charges") as charges:
            return charges

    def spent(self) -> tuple[float, float]:
        """Epsilon and delta of everything charged so far, upper bounds; (0, 0) before the first charge."""
        charges = self.charges
        return self._filter.total(charges) if charges else (0.0, 0.0)

    def share(self, fits: int = 1) -> dict[str, float]:
        """Settings of each of so many further fits that together use up what is left: {"epsilon": ..., "delta": ...}.

        ``PrivateQuantileRegressor(**budget.share(3), ...)``.

        Raises
        ------
        BudgetError
            Nothing is left.
        """
        count = check.integer("Budget.share", "fits", fits, 1, MAX_FITS)
        epsilon, delta = self._filter.share(self.charges, count)
        return {"epsilon": epsilon, "delta": delta}

    def spend(self, what: SubsampledGaussian | tuple[float, float], *, label: str = "a release of your own") -> None:
        """Charge a release of the user's own; call it *before* the release, which may be made once this has returned.

        Parameters
        ----------
        what : SubsampledGaussian, or (epsilon, delta)
            Plain Gaussian releases of all records (``sampling_rate=1``, replace-one, with their noise multiplier); or
            what the release spends, which only ``accounting="basic"`` takes.
        label : str
            A note; it must not be computed from records.

        Raises
        ------
        BudgetError
            The budget doesn't hold it: nothing was charged, and nothing may be released.
        """
        who = "Budget.spend"
        if not isinstance(label, str):
            raise DomainError(f"{who}: label must be a string, got {type(label).__name__}")
        if isinstance(what, SubsampledGaussian):
            alone = epsilon_of(what, delta=self.delta)
            charge = Charge(label=label, epsilon=alone, delta=self.delta, gaussians=(what,))
        elif isinstance(what, tuple) and len(what) == 2:
            one, two = check.positive(who, "epsilon", what[0]), check.real(who, "delta", what[1])
            charge = Charge(label=label, epsilon=one, delta=two)
        else:
            raise DomainError(f"{who}: what must be a SubsampledGaussian or a pair (epsilon, delta)")
        self.charge(charge)

    def require(self, charge: Charge) -> None:
        """Refuse a charge that the budget doesn't hold; charges nothing."""
        with self._current("Budget.require") as charges:
            self._checked(charges, charge)

    def charge(self, charge: Charge) -> tuple[float, float, int]:
        """Charge it; epsilon and delta of everything so far, and the number of charges."""
        with self._current("Budget.charge") as charges:
            now = self._checked(charges, charge)
            total = self._filter.total(now)
            if self._path is not None:
                _write(self._settings, self._path, now)
            self._charges = now
        return (*total, len(now))

    def statement(self) -> str:
        """What was spent in all, for a publication."""
        with self._current("Budget.statement") as charges:
            if not charges:
                return f"Nothing was charged to the budget of ({self.epsilon!r}, {self.delta!r})."
            epsilon, delta = self._filter.total(charges)
        how = "Gaussian releases" if self._accounting == "gaussian" else "basic composition"
        return (
            f"{len(charges)} charge(s) to one budget are together ({outward(epsilon)}, {outward(delta)})-differentially"
            f" private under {ADJACENCY} adjacency, whatever was chosen after what ({how}); the budget is "
            f"({self.epsilon!r}, {self.delta!r})."
        )

    def __repr__(self) -> str:
        kept = "" if self._path is None else ", in a file"
        return (
            f"Budget(epsilon={self.epsilon:g}, delta={self.delta:g}, accounting={self._accounting!r}, "
            f"{len(self._charges)} charge(s){kept})"
        )

    def __reduce__(self) -> Any:
        if self._path is None:
            raise DomainError("Budget: a copy of one in memory could be spent twice; keep it in a file (Budget.open)")
        return _opened, (str(self._path),)

    def _checked(self, charges: tuple[Charge, ...], charge: Charge) -> tuple[Charge, ...]:
        if not isinstance(charge, Charge):
            raise DomainError(f"Budget: a charge must be a Charge, got {type(charge).__name__}")
        self._filter.require(charge)
        now = (*charges, charge)
        if not self._filter.holds(now):
            epsilon, delta = self._filter.total(now)
            raise BudgetError(
                f"{charge.label}: this would bring epsilon to {epsilon:.6g} at delta = {delta:.6g}, past the budget of "
                f"({self.epsilon:g}, {self.delta:g}); nothing was charged and no record touched. Budget.share says "
                "what is left"
            )
        return now

    @contextmanager
    def _current(self, who: str) -> Iterator[tuple[Charge, ...]]:
        """The charges as they are now; nobody else changes them meanwhile."""
        with ExitStack() as held:
            held.enter_context(self._held)
            if self._path is not None:
                held.enter_context(_locked(who, self._path))
                settings, charges = _read(who, self._path)
                if settings != self._settings:
                    raise DomainError(f"{who}: {self._path} has become another budget; open it again")
                self._require_within(who, self._path, charges)
                self._charges = charges
            yield self._charges

    def _require_within(self, who: str, path: Path, charges: tuple[Charge, ...]) -> None:
        """Refuse a file that says that more was spent than there was."""
        for charge in charges:
            self._filter.require(charge)
        if charges and not self._filter.holds(charges):
            raise DomainError(f"{who}: {path} holds more charges than its budget; nothing was charged")


def _opened(path: str) -> Budget:
    return Budget.open(path)


@contextmanager
def _locked(who: str, path: Path) -> Iterator[None]:
    """Hold the lock beside ``path``."""
    try:
        with FileLock(f"{path}.lock", timeout=WAIT):
            yield
    except Timeout:
        raise DomainError(f"{who}: another process has held {path} for {WAIT:g} seconds; nothing was charged") from None
    except OSError as error:
        raise DomainError(f"{who}: {path} can't be used ({error.strerror}); nothing was charged") from None


def _write(settings: dict[str, Any], path: Path, charges: tuple[Charge, ...]) -> None:
    kept = [asdict(charge) for charge in charges]
    replace_file(path, sealed_json({"format": FORMAT, **settings, "adjacency": ADJACENCY, "charges": kept}))


def _read(who: str, path: Path) -> tuple[dict[str, Any], tuple[Charge, ...]]:
    """Settings and charges of the budget in ``path``; every number of a charge is checked."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise DomainError(f"{who}: {path} is gone, and with it what was spent; nothing was charged") from None
    if not is_sealed(text):
        raise DomainError(f"{who}: {path} is no budget file, or was changed or damaged; nothing was charged")
    try:
        values = json.loads(text)
        if set(values) != FIELDS or values["format"] != FORMAT or values["adjacency"] != ADJACENCY:
            raise ValueError
        charges = tuple(
            Charge(**{**one, "gaussians": tuple(SubsampledGaussian(**part) for part in one["gaussians"])})
            for one in values["charges"]
        )
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):  # a DomainError is a ValueError
        raise DomainError(f"{who}: {path} is malformed, or another version's; nothing was charged") from None
    return {name: values[name] for name in ("epsilon", "delta", "accounting")}, charges
