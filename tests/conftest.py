"""Settings of the whole suite."""

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("fixed")

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the real reference files; tests that need it are skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("the shared reference data are not here")
    return SHARED
