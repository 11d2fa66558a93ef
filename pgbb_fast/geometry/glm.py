"""The Hessian of a generalised linear model where its coefficients, and the features' first two moments, are known.

With the canonical link (logistic, Poisson) a record's slope is m(eta) - y, so H = E m'(eta) x~ x~' is a function of the
features and of theta alone, whatever the responses are; with another link the expected derivative of the slope, where
the model is right, stands for m' (``losses.with_curvature``).  With features that are normal with mean c and covariance
K, eta = x~'v is normal, sigma^2 = v'K v, and by Stein's lemma (1981)

    E m' x~ x~' = E m' (K + c c') + E m'' (c v'K + K v c') + E m''' K v v'K,
    E m'' = E m' z / sigma,    E m''' = E m' (z^2 - 1) / sigma^2,    z = (eta - E eta) / sigma.

Where m' is steep H is far from f I: of rare classes, or of counts, most information comes from some of the records.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["normal_hessian"]

Array = NDArray[np.float64]
NODES = np.linspace(-8.5, 8.5, 1001)  # of a standard normal; the trapezoidal rule, for eta of a deviation up to 50
WEIGHTS = np.exp(-0.5 * NODES**2) / np.exp(-0.5 * NODES**2).sum()
FLAT = 1e-4  # deviation of eta below which m' counts as constant


def normal_hessian(v: Array, centre: Array, moment: Array, derivative: Callable[[Array], Array]) -> Array:
    """E m'(x'v) x x' for normal x.

    Parameters
    ----------
    v : (m,) array
        Coefficients.
    centre : (m,) array
        E x.
    moment : (m, m) array
        Estimate of E x x'; the covariance that it leaves is projected to be positive semidefinite.
    derivative : callable
        m', of an array.

    Returns
    -------
    (m, m) array
        Symmetric; positive semidefinite where m' is not negative.
    """
    values, vectors = np.linalg.eigh(moment - np.outer(centre, centre))
    covariance = (vectors * np.maximum(values, 0.0)) @ vectors.T
    along = covariance @ v
    sigma = math.sqrt(max(float(v @ along), 0.0))
    slope = WEIGHTS * derivative(np.asarray(centre @ v + sigma * NODES))
    one, two, three = float(slope.sum()), float(slope @ NODES), float(slope @ (NODES**2 - 1.0))
    found = one * (covariance + np.outer(centre, centre))
    if sigma > FLAT:
        cross = np.outer(centre, along)
        found = found + two / sigma * (cross + cross.T) + three / sigma**2 * np.outer(along, along)
    return np.asarray((found + found.T) / 2.0)
