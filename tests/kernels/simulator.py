"""CUDA's simulator for a module of this folder, in a process of its own: it has to be chosen before numba-cuda is
imported.  Run as a script, the module writes its cases' numbers; its tests compare them."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from filelock import FileLock

ROOT = Path(__file__).resolve().parents[2]


def simulated_by(module: str, folder: Path, *names: str) -> dict[str, np.ndarray]:
    """What ``python -m module path names...`` wrote to ``path`` on the simulator: everything, or the releases named.

    One of the processes that share ``folder`` runs it; the others read the file.
    """
    path = folder / f"{module}{len(names)}.npz"
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    command = [sys.executable, "-m", module, str(path), *names]
    with FileLock(path.with_suffix(".lock")):
        if not path.exists():
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, done.stderr[-3_000:]
    with np.load(path) as numbers:
        return dict(numbers)


def _shared_array(self, shape, dtype, alignment=None):
    """The simulator's shared arrays, one for each line of code.  Its own look-up isn't atomic, so that now and then a
    thread gets an array of its own; and it reads the source of every frame."""
    from numba.cuda import types
    from numba.cuda.np import numpy_support

    frame = sys._getframe(1)
    kind = numpy_support.as_dtype(dtype) if isinstance(dtype, types.Type) else np.dtype(dtype)
    if shape == 0:
        return np.frombuffer(self._dynshared.data, dtype=kind, count=self._dynshared_size // kind.itemsize)
    return self._allocations.setdefault((frame.f_code.co_filename, frame.f_lineno), np.empty(shape, kind))


def start() -> None:
    """Mend the simulator of this process."""
    from numba.cuda.simulator.kernelapi import FakeCUDAShared

    FakeCUDAShared.array = _shared_array
    sys.setswitchinterval(2e-4)     # block threads are Python threads that wait for one another
