"""What the command line and the demo read: bounds, powers and columns."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from pgbb_fast.data import bounds_of, parse_bounds, polynomial_terms, read_columns
from pgbb_fast.errors import DataError, DomainError


def test_bounds_of_columns():
    bounds = parse_bounds("a=-2:3, b=1:4")
    assert bounds == {"a": (-2.0, 3.0), "b": (1.0, 4.0)}
    assert bounds_of("b", bounds) == (1.0, 4.0)
    with pytest.raises(DomainError, match="none for c"):
        bounds_of("c", bounds)
    with pytest.raises(DomainError, match="twice"):
        parse_bounds("a=0:1,a=0:2")


def test_powers():
    assert polynomial_terms(["a", "b^2", "b", "c"]) == {"a": 1, "b": 2, "c": 1}
    for terms, word in ((["b^2"], "lower powers"), (["a", "a^3"], "lower powers"), (["a", "b", "a"], "duplicate")):
        with pytest.raises(DomainError, match=word):
            polynomial_terms(terms)


def test_columns(parquet):
    table = read_columns(parquet, ["b", "a"])
    assert table.shape == (800, 2)
    assert np.array_equal(table[:, 0], pq.read_table(parquet)["b"].to_numpy())
    with pytest.raises(DataError, match="no file"):
        read_columns("absent.parquet", ["a"])
