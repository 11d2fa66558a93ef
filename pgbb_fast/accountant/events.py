"""Further releases that a ledger holds beside the package's own: Laplace noise and the discrete Gaussian.

Descriptions only, as in ``mechanisms``: frozen, keyword-only, refused outside their domain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

from pgbb_fast.accountant.mechanisms import (
    MAX_COUNT,
    Adjacency,
    BlockedGaussian,
    Mechanism,
    ResampledGaussian,
    SubsampledGaussian,
    check_noise,
)
from pgbb_fast.errors import DomainError
from pgbb_fast.validation import between, integer, one_of

_MIN_SCALE, _MAX_SCALE = 1e-3, 1e6
_MAX_SIGMA = 1e5  # so that the integers that matter can be listed
_FURTHEST = 100.0  # sensitivity over sigma: a loss of 5000 is no privacy


@dataclass(frozen=True, kw_only=True)
class LaplaceMechanism:
    r"""Laplace noise on one number, in full: nothing is subsampled.

    Parameters
    ----------
    scale_over_sensitivity : float
        b / Delta, the noise's scale over the most that one neighbour moves the number; one release is
        (Delta / b)-private with delta = 0 (Dwork, McSherry, Nissim and Smith 2006).  In (1e-3, 1e6).
    steps : int
        Releases composed.
    adjacency : {"add-remove", "replace-one"}
        The neighbours over which the sensitivity was taken; there is no default.
    """

    scale_over_sensitivity: float
    steps: int
    adjacency: Adjacency

    def __post_init__(self) -> None:
        who = "LaplaceMechanism"
        between(who, "scale_over_sensitivity", self.scale_over_sensitivity, _MIN_SCALE, _MAX_SCALE)
        integer(who, "steps", self.steps, 1, MAX_COUNT)
        one_of(who, "adjacency", self.adjacency, ("add-remove", "replace-one"))


@dataclass(frozen=True, kw_only=True)
class DiscreteGaussian:
    r"""Discrete Gaussian noise on one whole number (Canonne, Kamath and Steinke 2020, arXiv:2004.00010).

    Parameters
    ----------
    sigma : float
        The noise's parameter in :math:`P(x) \propto e^{-x^2 / (2 \sigma^2)}`, x whole, in units of the grid;
        in (0, 1e5).
    sensitivity : int
        The most that one neighbour moves the whole number, in units of the grid; at most 100 ``sigma``.
    steps : int
        Releases composed.
    adjacency : {"add-remove", "replace-one"}
        The neighbours over which the sensitivity was taken; there is no default.
    """

    sigma: float
    sensitivity: int
    steps: int
    adjacency: Adjacency

    def __post_init__(self) -> None:
        who = "DiscreteGaussian"
        sigma = between(who, "sigma", self.sigma, 0.0, _MAX_SIGMA)
        sensitivity = integer(who, "sensitivity", self.sensitivity, 1, MAX_COUNT)
        if not sensitivity <= _FURTHEST * sigma:
            raise DomainError(f"{who}: sensitivity must be at most {_FURTHEST:g} sigma: beyond, nothing is private")
        integer(who, "steps", self.steps, 1, MAX_COUNT)
        one_of(who, "adjacency", self.adjacency, ("add-remove", "replace-one"))


Event: TypeAlias = Mechanism | LaplaceMechanism | DiscreteGaussian


def check_event(who: str, event: object) -> Event:
    """``event`` if a ledger can hold it, its noise known; a clear refusal for anything else."""
    if isinstance(event, (LaplaceMechanism, DiscreteGaussian)):
        return event
    if not isinstance(event, (BlockedGaussian, SubsampledGaussian, ResampledGaussian)):
        raise DomainError(
            f"{who}: needs a BlockedGaussian, SubsampledGaussian, ResampledGaussian, LaplaceMechanism or "
            f"DiscreteGaussian, got {type(event).__name__}; describe the mechanism first"
        )
    check_noise(who, event)
    return event


def event_moment(event: LaplaceMechanism | DiscreteGaussian, order: int) -> float:
    r"""Upper bound of the composed log moment :math:`(\lambda - 1) D_\lambda`, rounded up.

    Laplace: Mironov (2017), table II.  Discrete Gaussian: :math:`D_\lambda \le \lambda \Delta^2 / (2 \sigma^2)`
    for whole shifts (Canonne, Kamath and Steinke 2020, proposition 5).
    """
    if isinstance(event, DiscreteGaussian):
        one = order * (order - 1) * (event.sensitivity / float(event.sigma)) ** 2 / 2
    else:
        loss = 1.0 / float(event.scale_over_sensitivity)
        rest = math.expm1(-(2 * order - 1) * loss) * (order - 1) / (2 * order - 1)
        one = max(0.0, (order - 1) * loss + math.log1p(rest) + 4e-15)
    return one * event.steps * (1 + 1e-14)
