"""Points at which a linear model's predictions are wanted: public, chosen by the user, inside the public bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pgbb_fast import validation as check
from pgbb_fast.errors import DomainError

__all__ = ["Domain"]

Array = NDArray[np.float64]
MAX_DEGREE = 6
ROUNDED = 1e-5  # relative difference of a power's column from the power, as of single precision


@dataclass(frozen=True)
class Domain:
    """Where a linear model is defined: over q features, each with its powers up to a degree.

    Attributes
    ----------
    degrees : tuple of int, (q,)
    intercept : bool
        Whether theta begins with an intercept; the slopes follow, p = sum of the degrees.
    bounds : (q, 2) array, optional
        Public bounds of the features, low then high; None where the model has none.
    """

    degrees: tuple[int, ...]
    intercept: bool
    bounds: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "degrees", tuple(check.integer("Domain", "degrees", k, 1, MAX_DEGREE) for k in self.degrees)
        )
        if not self.degrees:
            raise DomainError("Domain: degrees must be one or more")
        if self.bounds is not None:
            pairs = [check.ordered_pair("Domain", "bounds", pair) for pair in self.bounds]
            if len(pairs) != len(self.degrees):
                raise DomainError(f"Domain: bounds must be ({len(self.degrees)}, 2)")
            object.__setattr__(self, "bounds", np.array(pairs))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Domain) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    @property
    def slopes(self) -> slice:
        """Where the slopes are in theta."""
        return slice(int(self.intercept), int(self.intercept) + sum(self.degrees))

    def terms(self, who: str, X: Any, names: Sequence[str]) -> Array:
        """The p terms of each point, (k, p).

        Parameters
        ----------
        X : data frame, table or mapping of columns; or array
            By name: a column for each feature, in any order; others are ignored, powers are made here.  Without names:
            (k, p), a column for each slope in the order of ``names``, or (k, q), one for each feature.
        names : sequence of str
            Names of the p slopes.

        Raises
        ------
        DomainError
            A feature missing, another shape, values that aren't finite numbers, a power's column that isn't that
            power, or points outside the public bounds: the model says nothing there.
        """
        first = [0, *accumulate(self.degrees)][:-1]
        features = [names[j] for j in first]
        columns = _columns(X)
        if columns is None:
            given = _numbers(who, "X", X, 2)
            if given.shape[1] not in (len(names), len(features)):
                raise DomainError(f"{who}: X must be (k, {len(names)}), one column for each of {', '.join(names)}")
            values = given if given.shape[1] == len(features) else given[:, first]
        else:
            missing = [name for name in features if name not in columns]
            if missing:
                raise DomainError(f"{who}: X lacks {', '.join(missing)}; it needs the columns {', '.join(features)}")
            parts = [_numbers(who, f"column {name} of X", X[columns[name]], 1) for name in features]
            if len({len(part) for part in parts}) > 1:
                raise DomainError(f"{who}: the columns of X must be of one length")
            given = values = np.column_stack(parts)
        if self.bounds is not None:
            for name, column, (low, high) in zip(features, values.T, self.bounds, strict=True):
                if len(column) and not low <= column.min() <= column.max() <= high:
                    raise DomainError(
                        f"{who}: {name} of X lies outside the public bounds ({low:g}, {high:g}), over which the model "
                        "was fitted; choose points inside"
                    )
        degrees = zip(values.T, self.degrees, strict=True)
        out = np.column_stack([column**k for column, degree in degrees for k in range(1, degree + 1)])
        if given.shape == out.shape and not (np.abs(given - out) <= ROUNDED * np.abs(out)).all():
            raise DomainError(f"{who}: a column of X for a power isn't that power of its feature")
        return out

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        bounds = None if self.bounds is None else self.bounds.tolist()
        return {"degrees": list(self.degrees), "intercept": self.intercept, "bounds": bounds}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_dict`."""
        if not isinstance(values["intercept"], bool):
            raise DomainError("Domain: intercept must be True or False")
        return cls(values["degrees"], values["intercept"], values["bounds"])


def _columns(X: Any) -> dict[str, Any] | None:
    """Names of the columns of a table, as text, with what its columns are asked for by; None for an array."""
    if isinstance(X, Mapping):
        found: Any = list(X)
    elif isinstance(getattr(X, "column_names", None), list):  # a table whose ``columns`` are the data themselves
        found = X.column_names
    elif hasattr(X, "columns") and hasattr(X, "__getitem__"):
        found = list(X.columns)
    else:
        return None
    names = {str(name): name for name in found}
    if len(names) != len(found):
        raise DomainError("curves: two columns of X have one name")
    return names


def _numbers(who: str, what: str, values: Any, ndim: int) -> Array:
    """Finite real numbers as an array of ``ndim`` dimensions."""
    try:
        array = np.asarray(values)
        if array.dtype.kind == "O" and all(isinstance(value, (int, float, np.number)) for value in array.flat):
            array = array.astype(np.float64)
        good = array.dtype.kind in "biuf" and array.ndim == ndim and not np.ma.is_masked(values)
        out = array.astype(np.float64) if good else np.empty(0)
    except Exception:  # what another library's array raises when it can't be read
        good, out = False, np.empty(0)
    if not good or not np.isfinite(out).all():
        shape = "(k,)" if ndim == 1 else "(k, p)"
        raise DomainError(f"{who}: {what} must be finite numbers of shape {shape}")
    return out


@dataclass(frozen=True)
class AffineMap:
    """theta (natural units) = matrix @ theta (unit box) + offset; (d, d) and (d,).  ``domain``: the features that a
    linear model's units are of, if it is one."""

    matrix: Array
    offset: Array
    domain: Domain | None = None

    def __call__(self, theta: Array) -> Array:
        return np.asarray(theta @ self.matrix.T + self.offset)
