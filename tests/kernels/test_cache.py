"""The on-disk cache: used by a second process, never stale, and not needed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import sys
import numpy as np
from pgbb_fast.kernels import cpu
from pgbb_fast.kernels.arguments import Draws, Mechanism, Records, Stream
records = Records(np.zeros((1, 1), np.float32), np.full(1, -9.0, np.float32), np.zeros(1, np.int32))
draws = Draws(np.zeros((1, 2)), np.array([[1.0, 0.0]]), np.array([[0.5, 0.0]]))
stream = Stream(np.arange(8), 0)
print(cpu.noisy_gradient("huber_fixed", True, records, draws, Mechanism(1.0, 2**32, 0.0), stream)[0, 0] / 2**32)
from pgbb_fast.kernels.cpu import steps
stats = steps._kernel("huber_fixed", 1, 1, "", "").stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


@pytest.fixture
def package(tmp_path):
    """A copy of the package, whose sources a test may change."""
    ignored = shutil.ignore_patterns("__pycache__", "*.nbi", "*.nbc")
    shutil.copytree(ROOT / "kernels", tmp_path / "pgbb_fast" / "kernels", ignore=ignored)
    (tmp_path / "pgbb_fast" / "__init__.py").write_text("")
    return tmp_path


def step(package: Path, cache: Path) -> tuple[float, int, int]:
    """The slope of one record, and the kernel's cache hits and misses, in a process of its own."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(package)}
    out = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=package, env=environment, capture_output=True, text=True, check=True
    ).stdout.split()
    return float(out[0]), int(out[1]), int(out[2])


@pytest.mark.slow
def test_a_second_process_uses_the_cache_and_an_edit_of_a_scalar_formula_gives_new_results(package):
    cache = package / "cache"
    assert step(package, cache) == (0.5, 0, 1)
    assert step(package, cache) == (0.5, 1, 0)
    folders = {path.name for path in cache.iterdir()}
    assert len(folders) == 1
    losses = package / "pgbb_fast" / "kernels" / "scalar" / "losses.py"
    before = losses.stat()
    source = losses.read_text()
    changed = source.replace("return within(eta - y, b), ZERO", "return within(eta - y, HALF * b), ZERO")
    assert changed != source
    losses.write_text(changed)
    os.utime(losses, ns=(before.st_atime_ns, before.st_mtime_ns))     # Numba's own test, the time stamp, sees nothing
    assert step(package, cache) == (0.25, 0, 1)
    assert folders < {path.name for path in cache.iterdir()}
    losses.write_text(source)
    assert step(package, cache) == (0.5, 1, 0)


@pytest.mark.slow
def test_an_unwritable_cache_folder_is_done_without(package):
    blocked = package / "a file, not a folder"
    blocked.write_text("")
    before = {path for path in (package / "pgbb_fast").rglob("*") if path.suffix not in {".pyc"}}
    value, hits, _ = step(package, blocked)
    assert (value, hits) == (0.5, 0)
    assert blocked.read_text() == ""
    after = {path for path in (package / "pgbb_fast").rglob("*") if path.suffix not in {".pyc"}}
    assert {path.name for path in after - before} <= {"__pycache__"}     # Python's own; none of Numba's .nbi, .nbc
