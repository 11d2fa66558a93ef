"""Embedded public data, and columns of the user's files."""

from pgbb_fast.data.census2000 import Census2000, load_census2000
from pgbb_fast.data.sources import bounds_of, count_rows, parse_bounds, polynomial_terms, read_columns

__all__ = [
    "Census2000",
    "bounds_of",
    "count_rows",
    "load_census2000",
    "parse_bounds",
    "polynomial_terms",
    "read_columns",
]
