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

__all__ = ["parse_bounds", "read_terms", "term_bounds"]

TERM = re.compile(r"^(?P<name>.+?)(?:\^(?P<power>[2-9]))?$")


def _split(term: str) -> tuple[str, int]:
    """``"exper^2"`` as ``("exper", 2)``."""
    match = TERM.match(term.strip())
    if match is None:
        raise DomainError(f"terms: {term!r} is no column name or column^power")
    return match["name"], int(match["power"] or 1)


def read_terms(path: str | Path, terms: Sequence[str]) -> NDArray[np.float64]:
    """The terms (columns, or their integer powers) of a parquet file: (n, len(terms)) float64.

    Only the columns needed are read.  A column that isn't numeric or has missing values is refused.
    """
    parts = [_split(term) for term in terms]
    wanted = list(dict.fromkeys(name for name, _ in parts))
    try:
        present = pq.read_schema(path).names
    except FileNotFoundError:
        raise DataError(f"read: there is no file {str(path)!r}") from None
    except (pa.ArrowInvalid, OSError):
        raise DataError(f"read: {str(path)!r} is no parquet file") from None
    missing = [name for name in wanted if name not in present]
    if missing:
        raise DataError(f"read: {str(path)!r} has no column {', '.join(missing)}; it has {', '.join(present)}")
    table = pq.read_table(path, columns=wanted)
    columns: dict[str, NDArray[np.float64]] = {}
    for name in wanted:
        column: Any = table[name]
        kind = column.type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            raise DataError(f"read: column {name} has type {kind}, not numbers; encode it first")
        if column.null_count:
            raise DataError(f"read: column {name} has missing values; drop or impute them first")
        columns[name] = column.to_numpy().astype(np.float64)
    return np.column_stack([columns[name] ** power for name, power in parts])


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


def term_bounds(term: str, bounds: dict[str, tuple[float, float]]) -> tuple[float, float]:
    """Bounds of a term: its own if given, else those of its column raised to its power."""
    if term in bounds:
        return bounds[term]
    name, power = _split(term)
    if name not in bounds:
        raise DomainError(f"bounds: none for {name}; give public ones, {name}=low:high, fixed in advance")
    low, high = bounds[name]
    ends = (low**power, high**power)
    least = 0.0 if power % 2 == 0 and low < 0.0 < high else min(ends)
    return least, max(ends)
