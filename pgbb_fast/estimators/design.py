"""Public bounds: how records are mapped to the unit box, and theta back to the user's units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb_fast import validation as check
from pgbb_fast.errors import DomainError
from pgbb_fast.posterior import AffineMap

CHUNK = 1 << 20
Bounds = Sequence[tuple[float, float]] | Mapping[str, tuple[float, float]]
INTERCEPT = "intercept"
SCALE = "scale"
DEFAULT_REACH = 2.0     # default |slope| in unit coordinates: the feature moves y by at most twice y's whole range
LEAST_SCALE = 1e-3      # least residual scale, as a share of half the range of y


def pairs(who: str, name: str, bounds: Any, names: Sequence[str] | None = None) -> NDArray[np.float64]:
    """``bounds`` as a (p, 2) array, low < high, finite; a mapping is read in the order of ``names``."""
    if bounds is None:
        raise DomainError(
            f"{who}: {name} is required: public (low, high) pairs, fixed in advance and never read off the data"
        )
    if isinstance(bounds, Mapping):
        if names is None:
            raise DomainError(f"{who}: {name} by name needs a data frame or feature_names")
        missing = [n for n in names if n not in bounds]
        unknown = [n for n in bounds if n not in names]
        if missing or unknown:
            raise DomainError(f"{who}: {name} lacks {missing} and has unknown {unknown}")
        bounds = [bounds[n] for n in names]
    if isinstance(bounds, str) or not isinstance(bounds, (Sequence, np.ndarray)) or len(bounds) == 0:
        raise DomainError(f"{who}: {name} must be a sequence or mapping of (low, high) pairs, got {bounds!r}")
    return np.array([check.ordered_pair(who, f"{name}[{j}]", pair) for j, pair in enumerate(bounds)])


@dataclass(frozen=True)
class Design:
    """The map x' = (x - centre) / radius to [-1, 1]^p, the same for y, and back.

    Without an intercept nothing is centred: x' = x / max |bound|.
    """

    names: tuple[str, ...]
    x_bounds: NDArray[np.float64]
    y_bounds: tuple[float, float] | None
    intercept: bool

    def _centred(self, low: Any, high: Any) -> tuple[Any, Any]:
        if self.intercept:
            return (low + high) / 2, (high - low) / 2
        return 0.0 * low, np.maximum(np.abs(low), np.abs(high))

    @property
    def x_map(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(centre, radius) of the features, each (p,)."""
        centre, radius = self._centred(self.x_bounds[:, 0], self.x_bounds[:, 1])
        return np.asarray(centre), np.asarray(radius)

    @property
    def y_map(self) -> tuple[float, float]:
        """(centre, radius) of y; (0, 1) when y has no bounds of its own (classes 0 and 1)."""
        if self.y_bounds is None:
            return 0.0, 1.0
        centre, radius = self._centred(*self.y_bounds)
        return float(centre), float(radius)

    @property
    def feature_bound(self) -> float:
        """B_x: bound of the norm of (1, x') or x' over the unit box."""
        return float(np.sqrt(len(self.names) + self.intercept))

    def unit_features(self, X: NDArray[Any]) -> NDArray[np.float32]:
        """X clipped to its bounds and mapped to [-1, 1]: (n, p) float32."""
        centre, radius = self.x_map
        out = np.empty(X.shape, dtype=np.float32)
        for start in range(0, len(X), CHUNK):
            part = np.clip(X[start : start + CHUNK].astype(np.float64), self.x_bounds[:, 0], self.x_bounds[:, 1])
            out[start : start + CHUNK] = (part - centre) / radius
        return out

    def unit_target(self, y: NDArray[Any]) -> NDArray[np.float32]:
        """y clipped to its bounds and mapped to [-1, 1]: (n,) float32."""
        if self.y_bounds is None:
            return y.astype(np.float32)
        centre, radius = self.y_map
        out = np.empty(len(y), dtype=np.float32)
        for start in range(0, len(y), CHUNK):
            part = np.clip(y[start : start + CHUNK].astype(np.float64), *self.y_bounds)
            out[start : start + CHUNK] = (part - centre) / radius
        return out

    def theta_names(self, scale: bool) -> tuple[str, ...]:
        """Names of theta's coordinates: intercept if any, features, scale if any."""
        return (INTERCEPT,) * self.intercept + self.names + (SCALE,) * scale

    def box(self, who: str, coef_bounds: Bounds | None, scale: bool) -> NDArray[np.float64]:
        """Public bounds of theta in unit coordinates, (d, 2).

        ``coef_bounds`` are (low, high) of each slope in natural units; None means that no feature moves y by more
        than twice its whole range over the feature's own range.  The intercept, in unit coordinates, is the
        prediction at the centre of the features: within twice the range of y.
        """
        x_radius, y_radius = self.x_map[1], self.y_map[1]
        if coef_bounds is None:
            slopes = np.tile([-DEFAULT_REACH, DEFAULT_REACH], (len(self.names), 1))
        else:
            slopes = pairs(who, "coef_bounds", coef_bounds, self.names)
            if len(slopes) != len(self.names):
                raise DomainError(f"{who}: coef_bounds has {len(slopes)} pairs for {len(self.names)} features")
            slopes = slopes * (x_radius / y_radius)[:, None]
        rows = [slopes]
        if self.intercept:
            rows.insert(0, np.array([[-DEFAULT_REACH, DEFAULT_REACH]]))
        if scale:
            rows.append(np.array([[LEAST_SCALE, 1.0]]))
        return np.vstack(rows)

    def to_natural(self, scale: bool) -> AffineMap:
        """theta from unit to natural coordinates: b_j = b'_j r_y / r_j, b_0 = c_y + r_y b'_0 - sum_j b_j c_j."""
        (x_centre, x_radius), (y_centre, y_radius) = self.x_map, self.y_map
        first, p = int(self.intercept), len(self.names)
        d = first + p + scale
        matrix, offset = np.zeros((d, d)), np.zeros(d)
        slopes = np.arange(first, first + p)
        matrix[slopes, slopes] = y_radius / x_radius
        if self.intercept:
            matrix[0, 0] = y_radius
            matrix[0, slopes] = -x_centre * y_radius / x_radius
            offset[0] = y_centre
        if scale:
            matrix[-1, -1] = y_radius
        return AffineMap(matrix, offset)
