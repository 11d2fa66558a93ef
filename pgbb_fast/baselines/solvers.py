"""Weighted M-estimators, many weight vectors at once: exact minimisers for the references that are not private.

Each minimises sum_i w_i l(theta, x_i), plus a ridge term, for every row of the weights.  The mean, the
exponential law's mean and ridge regression have closed forms; the others go by damped Newton steps on the kernels'
losses in natural units, from a common start, to a gradient of 1e-10.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

from pgbb_fast.errors import PgbbError

__all__ = ["LOSSES", "Parts", "minimise", "ridge"]

Array = NDArray[np.float64]
MAX_STEPS, MAX_HALVINGS = 200, 40
TOLERANCE = 1e-10           # of the gradient
MAX_LAST_STEP = 1e-6       # of eta: a loss that falls for ever has small gradients too


@dataclass(frozen=True)
class Parts:
    """The loss in (residual, scale): value, d/d eta, d2/d eta2 and, with a scale, d/ds, d2/ds2, d2/(d eta ds)."""

    terms: Callable[[Array, Array, Array], tuple[Array, ...]]
    has_scale: bool = False


def huber_scale(c: float, kappa: float) -> Parts:
    """s rho_c(r / s) + kappa s / 2 (Huber 1981, chapter 7.7)."""

    def terms(y: Array, eta: Array, s: Array) -> tuple[Array, ...]:
        z = (y - eta) / s
        psi, inside = np.clip(z, -c, c), np.abs(z) < c
        value = s * (psi * z - psi * psi / 2.0 + kappa / 2.0)
        return value, -psi, inside / s, (kappa - psi * psi) / 2.0, inside * z * z / s, inside * z / s

    return Parts(terms, has_scale=True)


def huber_fixed(c: float) -> Parts:
    """rho_c(r) (Huber 1964)."""

    def terms(y: Array, eta: Array, s: Array) -> tuple[Array, ...]:
        r = y - eta
        psi = np.clip(r, -c, c)
        return psi * r - psi * psi / 2.0, -psi, (np.abs(r) < c).astype(np.float64)

    return Parts(terms)


def quantile(tau: float, h: float, kernel: str = "gaussian") -> Parts:
    """The check loss convolved with a Gaussian or logistic kernel (Tan, Wang and Zhou 2022), up to no constant."""

    def gaussian(y: Array, eta: Array, s: Array) -> tuple[Array, ...]:
        t = (y - eta) / h
        density = np.exp(-t * t / 2.0) / np.sqrt(2.0 * np.pi)
        return h * (density + t * (tau - ndtr(-t))), ndtr(-t) - tau, density / h

    def logistic(y: Array, eta: Array, s: Array) -> tuple[Array, ...]:
        t = (y - eta) / h
        share = expit(-t)
        return h * (tau * t + np.logaddexp(0.0, -t)), share - tau, share * (1.0 - share) / h

    return Parts(gaussian if kernel == "gaussian" else logistic)


def logistic() -> Parts:
    """Bernoulli negative log likelihood, y in {0, 1}."""

    def terms(y: Array, eta: Array, s: Array) -> tuple[Array, ...]:
        p = expit(eta)
        return np.logaddexp(0.0, eta) - y * eta, p - y, p * (1.0 - p)

    return Parts(terms)


LOSSES: dict[str, Callable[..., Parts]] = {
    "huber": huber_scale,
    "huber_fixed": huber_fixed,
    "quantile": quantile,
    "logistic": logistic,
}


def ridge(design: Array, y: Array, weights: Array, penalty: float = 0.0) -> Array:
    """(X' W X + lambda I)^-1 X' W y for each row of ``weights``: (b, d)."""
    d = design.shape[1]
    gram = _weighted_gram(design, weights) + penalty * np.eye(d)
    return np.asarray(np.linalg.solve(gram, ((weights * y) @ design)[:, :, None])[:, :, 0])


def minimise(
    parts: Parts, design: Array, y: Array, weights: Array, start: Array, penalty: float = 0.0
) -> Array:
    """Minimisers of sum_i w_i l_i + lambda |beta|^2 / 2 for each row of ``weights`` (b, n): (b, d).

    Newton's method with steps halved until the objective falls (it is convex in theta), the scale kept positive.

    Raises
    ------
    PgbbError
        No convergence in 200 steps.
    """
    theta = np.tile(start, (len(weights), 1)) if start.ndim == 1 else start.copy()
    active = np.arange(len(weights))
    state = _evaluate(parts, design, y, weights, theta, penalty)
    size = np.maximum(np.abs(design).max(axis=0, initial=1e-300), 1e-300)
    size = np.append(size, 1.0) if parts.has_scale else size
    reach = 10.0 * (1.0 + float(np.abs(y).max()))       # of one step in eta, where the curvature is next to nothing
    for _ in range(MAX_STEPS):
        value, gradient, hessian = state
        step = _newton_step(gradient, hessian)
        step /= np.maximum(np.abs(step * size).max(axis=1, keepdims=True) / reach, 1.0)
        fall = np.einsum("bd,bd->b", gradient, step)
        going = (np.abs(gradient / size).max(axis=1) > TOLERANCE) | (np.abs(step * size).max(axis=1) > MAX_LAST_STEP)
        going &= fall > 1e-17 * np.abs(value)
        if not going.all():
            active, value, step, fall = active[going], value[going], step[going], fall[going]
            if not len(active):
                return theta
        state = _line_search(parts, design, y, weights, theta, active, step, value, fall, penalty)
    raise PgbbError("minimise: no convergence; is the design of full rank and the minimiser finite?")


def _line_search(
    parts: Parts, design: Array, y: Array, weights: Array, theta: Array, active: NDArray[np.int64], step: Array,
    value: Array, fall: Array, penalty: float,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Move ``theta[active]`` along ``step``, halved where need be (Armijo's rule); the state at the new places."""
    length = np.ones(len(active))
    for _ in range(MAX_HALVINGS):
        new = theta[active] - length[:, None] * step
        if parts.has_scale:
            new[:, -1] = np.maximum(new[:, -1], theta[active, -1] / 4.0)
        state = _evaluate(parts, design, y, weights[active], new, penalty)
        worse = ~(state[0] <= value - 1e-4 * length * fall + 1e-14 * np.abs(value))
        if not worse.any():
            break
        length[worse] /= 2.0
    theta[active] = new
    return state


def _evaluate(
    parts: Parts, design: Array, y: Array, weights: Array, theta: Array, penalty: float
) -> tuple[Array, Array, Array]:
    """Objective (b,), gradient (b, d) and Hessian (b, d, d)."""
    p = design.shape[1]
    beta, s = theta[:, :p], theta[:, p:] if parts.has_scale else np.ones((len(theta), 1))
    terms = parts.terms(y, beta @ design.T, s)
    value, slope, curvature = terms[:3]
    objective = (weights * value).sum(axis=1) + penalty * (beta**2).sum(axis=1) / 2.0
    gradient = (weights * slope) @ design + penalty * beta
    hessian = _weighted_gram(design, weights * curvature) + penalty * np.eye(p)
    if not parts.has_scale:
        return objective, gradient, hessian
    first, second, mixed = ((weights * term) for term in terms[3:])
    full = np.empty((len(theta), p + 1, p + 1))
    full[:, :p, :p] = hessian
    full[:, :p, p] = full[:, p, :p] = mixed @ design
    full[:, p, p] = second.sum(axis=1)
    return objective, np.column_stack([gradient, first.sum(axis=1)]), full


def _newton_step(gradient: Array, hessian: Array) -> Array:
    """H^-1 g with eigenvalues lifted to 1e-9 of the largest: a direction of descent whatever the curvature."""
    values, vectors = np.linalg.eigh(hessian)
    floor = np.maximum(1e-9 * values[:, -1:], 1e-300)
    along = np.einsum("bij,bi->bj", vectors, gradient) / np.maximum(values, floor)
    return np.asarray(np.einsum("bij,bj->bi", vectors, along))


def _weighted_gram(design: Array, weights: Array) -> Array:
    """sum_i w_i x_i x_i' for each row of ``weights``: (b, d, d)."""
    d = design.shape[1]
    upper = np.triu_indices(d)
    products = design[:, upper[0]] * design[:, upper[1]]
    out = np.empty((len(weights), d, d))
    out[:, upper[0], upper[1]] = weights @ products
    out[:, upper[1], upper[0]] = out[:, upper[0], upper[1]]
    return out
