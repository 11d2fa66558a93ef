"""Data behind plots and tables: trade-off curves and sweeps over one parameter, in JSON's types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from pgbb_fast.accountant._checks import check_epsilon
from pgbb_fast.accountant.api import delta, epsilon
from pgbb_fast.accountant.mechanisms import (
    BlockedGaussian,
    Mechanism,
    check_mechanism,
    check_noise,
    deterministic,
)
from pgbb_fast.errors import DomainError
from pgbb_fast.validation import between


def curve(mechanism: Mechanism, *, epsilons: Sequence[float], method: Any = "pld") -> dict[str, Any]:
    """Upper bounds of delta at every one of ``epsilons``, and the trade-off function's points they imply.

    Returns
    -------
    dict
        ``mechanism``, ``parameters``, ``epsilon``, ``delta``; all of JSON's types.
    """
    check_mechanism("curve", mechanism)
    check_noise("curve", mechanism)
    points = [check_epsilon("curve", e) for e in epsilons]
    values = [delta(mechanism, epsilon=e, method=method) for e in points]
    return {
        "mechanism": type(mechanism).__name__,
        "parameters": asdict(mechanism),
        "epsilon": points,
        "delta": values,
    }


def trade_off(points: dict[str, Any], *, alphas: Sequence[float]) -> list[float]:
    """Lower bound of the type-II error at each type-I error, from ``curve``'s points.

    f(alpha) = max over points of max(0, 1 - delta - e^eps alpha, e^-eps (1 - delta - alpha)) (Dong, Roth and Su
    2022, proposition 2.5).
    """
    import math

    out = []
    for alpha in alphas:
        a = between("trade_off", "alpha", alpha, -1e-300, 1.0 + 1e-15)
        best = 0.0
        for e, d in zip(points["epsilon"], points["delta"], strict=True):
            best = max(best, 1 - d - math.exp(min(e, 700.0)) * a, math.exp(-e) * (1 - d - a))
        out.append(best)
    return out


def sweep(
    mechanism: BlockedGaussian, *, parameter: str, values: Sequence[float], delta: float, method: Any = "pld"
) -> dict[str, Any]:
    """Epsilon as one parameter varies, with the Dirichlet weights' law and with every weight at its bound.

    ``parameter`` is ``"n_blocks"``, ``"gamma"``, ``"steps"``, ``"sampling_rate"`` or ``"noise_multiplier"``.  What is
    held fixed is sigma, the noise of a gradient sum: with more blocks, smaller ones, the noise multiplier
    sigma n_S / C falls (the paper's Figure 1).
    """
    who = "sweep"
    if not isinstance(mechanism, BlockedGaussian):
        raise DomainError(f"{who}: needs a BlockedGaussian, got {type(mechanism).__name__}")
    allowed = ("n_blocks", "gamma", "steps", "sampling_rate", "noise_multiplier")
    if parameter not in allowed:
        raise DomainError(f"{who}: parameter must be one of {', '.join(allowed)}, got {parameter!r}")
    changed = [_changed(mechanism, {parameter: value}) for value in values]
    return {
        "parameter": parameter,
        "values": list(values),
        "epsilon": [epsilon(m, delta=delta, method=method) for m in changed],
        "epsilon_without_weights": [epsilon(deterministic(m), delta=delta, method=method) for m in changed],
        "delta": delta,
    }


def _changed(mechanism: BlockedGaussian, change: dict[str, Any]) -> BlockedGaussian:
    changed = replace(mechanism, **change)
    if "n_blocks" not in change or mechanism.noise_multiplier is None:
        return changed
    size, new_size = (m.n // m.n_blocks for m in (mechanism, changed))
    return replace(changed, noise_multiplier=mechanism.noise_multiplier * new_size / size)
