"""A scalar formula, or a kernel's template, with its global names bound to one device's parts."""

import types
from collections.abc import Callable
from typing import Any

import numpy as np


def specialise(template: Callable[..., Any], name: str, **bindings: object) -> types.FunctionType:
    """``template`` with some of its global names bound to other objects, under a name of its own."""
    assert isinstance(template, types.FunctionType)
    special = types.FunctionType(template.__code__, {**template.__globals__, **bindings}, name)
    special.__qualname__ = f"{template.__qualname__}_{name}"
    special.__module__ = template.__module__
    return special


def single(template: Callable[..., Any], **bindings: object) -> types.FunctionType:
    """``template`` with the numbers among its global names in single precision, and ``bindings``."""
    numbers = {name: np.float32(value) for name, value in template.__globals__.items() if type(value) is float}
    return specialise(template, "single", **{**numbers, **bindings})
