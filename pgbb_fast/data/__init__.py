"""Embedded public data, and columns of the user's files."""

from pgbb_fast.data.census2000 import Census2000, load_census2000
from pgbb_fast.data.sources import parse_bounds, read_terms, term_bounds

__all__ = ["Census2000", "load_census2000", "parse_bounds", "read_terms", "term_bounds"]
