"""Whether this process can use a GPU, and if not, why: one sentence that names what was found."""

import importlib.util
from dataclasses import dataclass
from functools import cache
from typing import Protocol

INSTALL = "pip install 'pgbb-fast[cuda]'"
OLDEST = (7, 0)     # compute capability with independent thread scheduling, which warp shuffles here rely on


@dataclass(frozen=True)
class Finding:
    """What a probe found: ``usable``, and a sentence about it."""

    usable: bool
    sentence: str


class System(Protocol):
    """What there is to ask; :class:`NumbaSystem` asks the machine."""

    def package(self) -> str | None:
        """Version of numba-cuda, None without it."""

    def driver_error(self) -> str | None:
        """What the driver says when it can't be started."""

    def driver(self) -> tuple[int, int]:
        """Newest CUDA version that the driver supports."""

    def toolkit(self) -> tuple[int, int]:
        """CUDA version of the compiler that numba-cuda found."""

    def gpus(self) -> list[tuple[str, tuple[int, int]]]:
        """Name and compute capability of each GPU."""

    def trial(self) -> str | None:
        """Compile and run a kernel of one addition; what went wrong, or None."""


class NumbaSystem:
    """The machine, asked through numba-cuda, which is imported on the first question about the driver."""

    def package(self) -> str | None:
        if importlib.util.find_spec("numba_cuda") is None:
            return None
        from importlib.metadata import version

        return version("numba-cuda")

    def driver_error(self) -> str | None:
        try:
            from numba import cuda

            if cuda.is_available():
                return None
            error = cuda.cuda_error()
        except Exception as failure:    # import errors of the bindings, and whatever the driver raises
            error = f"{type(failure).__name__}: {failure}"
        return one_line(error or "no device")

    def driver(self) -> tuple[int, int]:
        from numba.cuda.cudadrv.driver import driver

        major, minor = driver.get_version()
        return int(major), int(minor)

    def toolkit(self) -> tuple[int, int]:
        from numba import cuda

        major, minor = cuda.runtime.get_version()
        return int(major), int(minor)

    def gpus(self) -> list[tuple[str, tuple[int, int]]]:
        from numba import cuda

        names = []
        for gpu in cuda.gpus.lst:
            name = gpu.name.decode() if isinstance(gpu.name, bytes) else str(gpu.name)
            names.append((name, (int(gpu.compute_capability[0]), int(gpu.compute_capability[1]))))
        return names

    def trial(self) -> str | None:
        try:
            import numpy as np
            from numba import cuda

            def add_one(numbers):  # type: ignore[no-untyped-def]
                numbers[cuda.threadIdx.x] += 1

            numbers = cuda.to_device(np.arange(32))
            cuda.jit(add_one, lto=False)[1, 32](numbers)
            return None if np.array_equal(numbers.copy_to_host(), np.arange(1, 33)) else "it gave wrong numbers"
        except Exception as failure:    # whatever the compiler, the linker or the driver raises
            return one_line(f"{type(failure).__name__}: {failure}")


def one_line(text: str) -> str:
    """The first 200 characters of ``text`` on one line."""
    return " ".join(str(text).split())[:200].rstrip(". ")


def judge(system: System) -> Finding:
    """Go through what a GPU needs, in the order in which things are missing."""
    package = system.package()
    if package is None:
        return Finding(False, f"the package numba-cuda is not installed ({INSTALL})")
    error = system.driver_error()
    if error is not None:
        return Finding(False, f"numba-cuda {package} found no usable NVIDIA driver or GPU: {error}")
    try:
        driver, toolkit, gpus = system.driver(), system.toolkit(), system.gpus()
    except Exception as failure:        # a driver or a toolkit that is only half there
        return Finding(False, f"numba-cuda {package} can't ask the driver or the toolkit: {one_line(repr(failure))}")
    if not gpus:
        return Finding(False, f"an NVIDIA driver for CUDA {_dotted(driver)} was found, but no GPU")
    name, capability = gpus[0]
    if capability < OLDEST:
        return Finding(False, f"{name} has compute capability {_dotted(capability)}; the least is {_dotted(OLDEST)}")
    failed = system.trial()
    if failed is not None:
        reason = f"a test kernel on {name} failed: {failed}"
        if toolkit > driver:
            reason = (
                f"the CUDA toolkit {_dotted(toolkit)} is newer than CUDA {_dotted(driver)}, the newest that the driver "
                f"supports; update the driver, or pip install 'cuda-toolkit=={_dotted(driver)}.*' ({reason})"
            )
        return Finding(False, reason)
    return Finding(True, f"{name}, driver for CUDA {_dotted(driver)}, toolkit {_dotted(toolkit)}, numba-cuda {package}")


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


@cache
def probe() -> Finding:
    """What this machine has; asked once in a process."""
    return judge(NumbaSystem())
