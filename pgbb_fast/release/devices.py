"""Where record kernels run: ``device="auto" | "cpu" | "cuda"``."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pgbb_fast import validation as check
from pgbb_fast.errors import DeviceError
from pgbb_fast.kernels.arguments import Records
from pgbb_fast.kernels.cuda.probe import probe
from pgbb_fast.kernels.cuda.spans import on_device

__all__ = ["DEVICES", "Device", "all_finite", "kernels", "on_device", "place", "resolve", "unit_columns"]

DEVICES = ("auto", "cpu", "cuda")
Kind = Literal["cpu", "cuda"]


@dataclass(frozen=True)
class Device:
    """Where kernels run (``kind``), and a sentence: the GPU's name, or why it is the CPU."""

    kind: Kind
    sentence: str


def resolve(who: str, device: str) -> Device:
    """The device for ``device``: a GPU that was found usable, else the CPU under "auto" and an error under "cuda".

    Raises
    ------
    DeviceError
        Under "cuda", with what was found.
    """
    check.one_of(who, "device", device, DEVICES)
    if device == "cpu":
        return Device("cpu", "the CPU was asked for")
    finding = probe()
    if finding.usable:
        return Device("cuda", finding.sentence)
    if device == "cuda":
        raise DeviceError(f"{who}: device='cuda' can't be used: {finding.sentence}. Use device='cpu' or 'auto'")
    return Device("cpu", finding.sentence)


def kernels(kind: Kind) -> ModuleType:
    """The module with ``noisy_gradient`` and ``score_moments`` of a device; imports numba-cuda only for "cuda"."""
    if kind == "cpu":
        from pgbb_fast.kernels import cpu

        return cpu
    from pgbb_fast.kernels.cuda import api

    return api


def all_finite(array: Any) -> bool:
    """Whether all numbers of an array on the GPU are finite."""
    from pgbb_fast.kernels.cuda.finite import all_finite as found

    return found(array)


def unit_columns(array: Any, bounds: NDArray[np.float64], centre: Any, radius: Any) -> Any:
    """(clip(x, low, high) - centre) / radius of each column of an array on the GPU: a single-precision copy there."""
    from pgbb_fast.kernels.cuda.unit import unit_columns as mapped

    return mapped(array, bounds, centre, radius)


def place(kind: Kind, records: Records, response: bool) -> Any:
    """``records`` where the kernels of ``kind`` want them; ``response`` says whether the loss has one."""
    if kind == "cpu":
        return records
    from pgbb_fast.kernels.cuda.records import place as on_gpu

    return on_gpu(records, response)
