"""The Hessian of a logistic model where its coefficients, and the features' first two moments, are known.

H = E p'(eta) x~ x~', p' = p (1 - p), is a function of the features and of theta alone, whatever the classes are.  With
features that are normal with mean c and covariance K, eta = x~'v is normal, and by Stein's lemma (1981)

    E p'(eta) x~ x~' = E p' (K + c c') + E p'' (c v'K + K v c') + E p''' K v v'K.

Far from the middle p' is steep, and H is far from f I: of rare classes most information comes from the records in which
they are least rare.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

__all__ = ["normal_hessian"]

Array = NDArray[np.float64]
NODES = np.linspace(-8.5, 8.5, 1001)  # of a standard normal; the trapezoidal rule, for eta of a deviation up to 50
WEIGHTS = np.exp(-0.5 * NODES**2) / np.exp(-0.5 * NODES**2).sum()
FARTHEST = 30.0  # logits


def normal_hessian(v: Array, centre: Array, moment: Array) -> Array:
    """E p'(x'v) x x' for normal x.

    Parameters
    ----------
    v : (m,) array
        Coefficients.
    centre : (m,) array
        E x.
    moment : (m, m) array
        Estimate of E x x'; the covariance that it leaves is projected to be positive semidefinite.

    Returns
    -------
    (m, m) array
        Symmetric and positive semidefinite.
    """
    values, vectors = np.linalg.eigh(moment - np.outer(centre, centre))
    covariance = (vectors * np.maximum(values, 0.0)) @ vectors.T
    along = covariance @ v
    p = expit(np.clip(centre @ v + math.sqrt(max(float(v @ along), 0.0)) * NODES, -FARTHEST, FARTHEST))
    first = p * (1.0 - p)
    second = first * (1.0 - 2.0 * p)
    third = first * (1.0 - 6.0 * first)
    one, two, three = (float(WEIGHTS @ part) for part in (first, second, third))
    cross = np.outer(centre, along)
    found = one * (covariance + np.outer(centre, centre)) + two * (cross + cross.T) + three * np.outer(along, along)
    return np.asarray((found + found.T) / 2.0)
