"""Compilation for the CPU, with an on-disk cache that can't go stale.

Numba's cache looks at the time stamp of one file only; a kernel here is made of several.  The cache folder's name
therefore contains a hash of every source file of ``kernels``.  Where the folder can't be written, kernels are
compiled anew in each process: Numba's own next choice would be the folder of the sources.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import config


@cache
def cache_folder() -> str:
    """Folder of this version's compiled kernels: $NUMBA_CACHE_DIR or $XDG_CACHE_HOME/pgbb_fast, then a hash."""
    root = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    base = os.environ.get("NUMBA_CACHE_DIR")
    if not base:
        base = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "pgbb_fast")
    return os.path.join(base, digest.hexdigest()[:16])


@cache
def writable_folder() -> str | None:
    """:func:`cache_folder`, made if need be; None where that can't be done or nothing can be written there."""
    try:
        os.makedirs(cache_folder(), exist_ok=True)
        tempfile.TemporaryFile(dir=cache_folder()).close()
    except OSError:
        return None
    return cache_folder()


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """``numba.njit`` for a part of a kernel: always inlined, division by zero as in IEEE 754."""
    return numba.njit(function, error_model="numpy", forceinline=True)  # type: ignore[no-any-return]


def inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """As :func:`inlined`, for a part that is never called from Python: quicker to compile."""
    return numba.njit(  # type: ignore[no-any-return]
        function, error_model="numpy", forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True
    )


def apart(function: Callable[..., Any]) -> Callable[..., Any]:
    """As :func:`inlined`, for a large part that several kernels call: it is optimised once, on its own."""
    return numba.njit(function, error_model="numpy")  # type: ignore[no-any-return]


def merged(function: Callable[..., Any]) -> Callable[..., Any]:
    """As :func:`inner`, for a large part that is called from one place: it isn't optimised on its own first, which
    saves time; for small parts Numba's own inlining costs more than that."""
    return numba.njit(function, error_model="numpy", inline="always")  # type: ignore[no-any-return]


def compiled(function: Callable[..., Any], allocates: bool = False) -> Callable[..., Any]:
    """``numba.njit`` with the cache above; ``nogil``, so that other threads go on.

    Unless it ``allocates``, a kernel is compiled without Numba's run time: it can't make arrays, and it doesn't count
    references to those it is given, which is an atomic operation for each and, between threads, a fight for it.
    """
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": allocates}
    folder = writable_folder()
    if folder is None:
        return numba.njit(function, **options)  # type: ignore[no-any-return]
    previous = config.CACHE_DIR
    try:
        config.CACHE_DIR = folder
        return numba.njit(function, cache=True, **options)  # type: ignore[no-any-return]
    except (OSError, RuntimeError):     # Numba's words for "no locator": the folder went away since
        return numba.njit(function, **options)  # type: ignore[no-any-return]
    finally:
        config.CACHE_DIR = previous
