"""Columns of a file, and simple terms made of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pgbb_fast.errors import DataError, DomainError

__all__ = ["bounds_of", "count_rows", "parse_bounds", "polynomial_terms", "read_columns"]

TERM = re.compile(r"^(?P<name>.+?)(?:\^(?P<power>[2-9]))?$")


def _split(term: str) -> tuple[str, int]:
    """``"exper^2"`` as ``("exper", 2)``."""
    match = TERM.match(term.strip())
    if match is None:
        raise DomainError(f"terms: {term!r} is no column name or column^power")
    return match["name"], int(match["power"] or 1)


def polynomial_terms(terms: Sequence[str]) -> dict[str, int]:
    """``["educ", "exper", "exper^2"]`` as column and degree, ``{"educ": 1, "exper": 2}``, in the order given."""
    powers: dict[str, list[int]] = {}
    for term in terms:
        name, power = _split(term)
        powers.setdefault(name, []).append(power)
    for name, found in powers.items():
        if len(set(found)) != len(found):
            raise DomainError(f"terms: duplicate features in {', '.join(terms)}")
        if sorted(found) != list(range(1, len(found) + 1)):
            raise DomainError(f"terms: {name} must come with all its lower powers, as in {name},{name}^2")
    return {name: len(found) for name, found in powers.items()}


def read_columns(path: str | Path, names: Sequence[str]) -> NDArray[np.float64]:
    """Columns of a parquet file: (n, len(names)) float64.

    Only the columns needed are read.  A column that isn't numeric or has missing values is refused, as is a file that
    can't be read to its end; the reader's own message isn't shown, since it may hold values.
    """
    present = _schema(path)
    twice = sorted({name for name in names if present.count(name) > 1})
    if twice:
        raise DataError(f"read: {str(path)!r} has more than one column {', '.join(twice)}")
    missing = [name for name in names if name not in present]
    if missing:
        raise DataError(f"read: {str(path)!r} has no column {', '.join(missing)}; it has {', '.join(present)}")
    try:
        table = pq.read_table(path, columns=list(dict.fromkeys(names)))
        out = np.empty((table.num_rows, len(names)))
        columns = [table[name] for name in names]
        numbers = [_is_number(column.type) for column in columns]
        whole = [numeric and not column.null_count for numeric, column in zip(numbers, columns, strict=True)]
        for j, column in enumerate(columns):
            if whole[j]:
                out[:, j] = column.to_numpy()
    except Exception:
        raise DataError(f"read: {str(path)!r} is damaged, its columns can't be read; nothing was spent") from None
    for name, numeric, complete in zip(names, numbers, whole, strict=True):
        if not numeric:
            raise DataError(f"read: column {name} is not numbers; encode it first")
        if not complete:
            raise DataError(f"read: column {name} has missing values; drop or impute them first")
    return out


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _schema(path: str | Path) -> list[str]:
    """Names of the columns."""
    metadata = _metadata(path)
    try:
        return list(metadata.schema.to_arrow_schema().names)
    except Exception:
        raise DataError(f"read: {str(path)!r} is damaged, its columns can't be read; nothing was spent") from None


def count_rows(path: str | Path) -> int:
    """Number of records in a parquet file (public), at least 1; reads no record."""
    count = int(_metadata(path).num_rows)
    if count < 1:
        raise DataError(f"read: {str(path)!r} has no records")
    return count


def _metadata(path: str | Path) -> Any:
    try:
        return pq.read_metadata(path)
    except FileNotFoundError:
        raise DataError(f"read: there is no file {str(path)!r}") from None
    except Exception:
        raise DataError(f"read: {str(path)!r} is no parquet file") from None


def parse_bounds(text: str) -> dict[str, tuple[float, float]]:
    """``"educ=0:20,y=2:12"`` as a mapping from name to (low, high)."""
    bounds: dict[str, tuple[float, float]] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"(?P<name>[^=]+)=(?P<low>[^:]+):(?P<high>[^:]+)", item)
        try:
            if match is None:
                raise ValueError
            low, high = float(match["low"]), float(match["high"])
        except ValueError:
            raise DomainError(f"bounds: {item!r} is not of the form name=low:high") from None
        if match["name"] in bounds:
            raise DomainError(f"bounds: {match['name']} is given twice")
        bounds[match["name"]] = (low, high)
    return bounds


def bounds_of(name: str, bounds: dict[str, tuple[float, float]]) -> tuple[float, float]:
    """Bounds of a column, or a refusal that says what to give."""
    if name not in bounds:
        raise DomainError(f"bounds: none for {name}; give public ones, {name}=low:high, fixed in advance")
    return bounds[name]
