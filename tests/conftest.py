"""Settings of the whole suite."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("fixed")

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session", autouse=True)
def calibrations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A run's own folder for what the accountant was asked before, one for all of its processes."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGBB_FAST_CACHE", str(base / "calibrations"))
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the real reference files; tests that need it are skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("the shared reference data are not here")
    return SHARED
