"""What the kernels' compiler promises: no references counted, nothing allocated."""

import numba
import numpy as np
import pytest

from pgbb_fast.kernels.cpu import compile
from pgbb_fast.kernels.cpu.compile import compiled


@pytest.fixture(autouse=True)
def nothing_compiled_before(monkeypatch, tmp_path):
    """A cache of the test's own: what an earlier run has compiled would say nothing of this one."""
    monkeypatch.setattr(compile, "writable_folder", lambda: str(tmp_path))     # ``cache_folder`` is asked only once


def chosen(x, y, i):
    """Numba counts a reference to the one that is chosen."""
    z = x if i % 2 == 0 else y
    z[i] += 1.0
    return z[0]


def made(n):
    return np.zeros(n)


def made_openly(n):     # Numba's cache doesn't tell one function's options apart
    return np.zeros(n)


def test_a_kernel_counts_no_references():
    x, y = np.zeros(3), np.ones(3)
    counting, kernel = numba.njit(chosen), compiled(chosen)
    assert counting(x, y, 1) == kernel(x, y, 1) == 1.0
    assert np.array_equal(y, [1.0, 3.0, 1.0])
    assert "NRT_incref" in next(iter(counting.inspect_llvm().values()))
    assert "NRT_" not in next(iter(kernel.inspect_llvm().values()))


def test_a_kernel_that_allocates_is_not_compiled_unless_it_says_so():
    with pytest.raises(numba.TypingError):
        compiled(made)(3)
    assert np.array_equal(compiled(made_openly, allocates=True)(3), np.zeros(3))
