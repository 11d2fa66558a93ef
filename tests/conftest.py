"""Settings of the whole suite."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import settings

from pgbb_fast.intake import records
from pgbb_fast.intake.design import Design

settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("fixed")

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def common_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this run, one for all of its processes."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session", autouse=True)
def calibrations(common_folder: Path) -> Iterator[None]:
    """What the accountant was asked before is kept for this run only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGBB_FAST_CACHE", str(common_folder / "calibrations"))
        yield


@pytest.fixture
def untouchable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records can be looked at (shape, type), but checking their values or mapping them is a failure."""

    def touched(*args: object, **kwargs: object) -> None:
        raise AssertionError("a record was touched")

    monkeypatch.setattr(records, "_require_finite", touched)
    monkeypatch.setattr(Design, "unit_features", touched)
    monkeypatch.setattr(Design, "unit_target", touched)


@pytest.fixture
def parquet(tmp_path: Path) -> str:
    """A file of 800 records with the columns that the command line's tests name."""
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0, 10, 800), rng.integers(0, 5, 800)
    table = pa.table(
        {
            "a": a,
            "b": b.astype(np.int8),
            "y": 1 + 0.3 * a - 0.2 * b + rng.normal(0, 0.5, 800),
            "name": ["x"] * 800,
            "gap": pa.array([None, *range(799)], pa.int64()),
        }
    )
    path = tmp_path / "data.parquet"
    pq.write_table(table, path)
    return str(path)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the real reference files; tests that need it are skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("the shared reference data are not here")
    return SHARED
