"""Public bounds: how records are mapped to the unit box, and theta back to the user's units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.polynomial import Polynomial, legendre
from numpy.typing import NDArray

from pgbb_fast import validation as check
from pgbb_fast.errors import DomainError
from pgbb_fast.estimators.records import in_place
from pgbb_fast.kernels.arguments import NO_MAP, as_double
from pgbb_fast.points import Domain
from pgbb_fast.posterior import AffineMap

CHUNK = 1 << 20
Bounds = Sequence[tuple[float, float]] | Mapping[str, tuple[float, float]]
INTERCEPT = "intercept"
SCALE = "scale"
DEFAULT_REACH = 2.0  # default |slope| in unit coordinates: the feature moves y by at most twice y's whole range
FARTHEST = 64.0  # half-widths from zero to the far bound, up to which the map is accurate in single precision
LEAST_SCALE = 1e-3  # least residual scale, as a share of half the range of y


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


def different_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """``names`` of coefficients; refuses two of one name, as of a feature that is called intercept."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DomainError(f"fit: two coefficients would be called {', '.join(twice)}; rename the features")
    return names


def unit_map(low: Any, high: Any) -> NDArray[np.float32] | None:
    """The kernels' map (``Records.map``) of [low, high] to [-1, 1], (p, 2); None where it would be inaccurate.

    t = a x + b with a = 2/(high - low), b = -(high + low)/(high - low), a, b and a stored number x of double precision
    each rounded to single precision (v = 2^-24).  With |x| at most w half-widths, |b| <= w and one rounding at the end,
    t is off by at most (3 w + 1) v: below 2^-16 for w <= ``FARTHEST``.  The stored numbers themselves, in single
    precision, are known to w v only.
    """
    low, high = np.atleast_1d(low), np.atleast_1d(high)
    radius = (high - low) / 2
    if (np.maximum(np.abs(low), np.abs(high)) > FARTHEST * radius).any():
        return None
    return np.column_stack([1 / radius, -(low + high) / 2 / radius]).astype(np.float32)


@dataclass(frozen=True)
class Design:
    """The map t = (x - centre) / radius to [-1, 1], the same for y, and back.

    A feature of degree k enters as the Legendre polynomials P_1(t), ..., P_k(t), which lie in [-1, 1] and are
    orthogonal over the public range: powers themselves are nearly collinear, and the noise of a release is the same
    in every direction.  Without an intercept nothing is centred, t = x / max |bound|, and powers of t are used.

    Attributes
    ----------
    names : tuple of str
        Names of the q columns of X.
    x_bounds : (q, 2) array
    y_bounds : (low, high), or None for classes 0 and 1
    intercept : bool
    degrees : tuple of int
        Degree of each column.
    """

    names: tuple[str, ...]
    x_bounds: NDArray[np.float64]
    y_bounds: tuple[float, float] | None
    intercept: bool
    degrees: tuple[int, ...]

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the p terms: educ, exper, exper^2."""
        return tuple(
            name if power == 1 else f"{name}^{power}"
            for name, degree in zip(self.names, self.degrees, strict=True)
            for power in range(1, degree + 1)
        )

    def _basis(self, degree: int) -> NDArray[np.float64]:
        """(degree + 1, degree + 1): row j holds the coefficients of the j-th basis polynomial on powers of t."""
        if not self.intercept:
            return np.eye(degree + 1)
        rows = [legendre.leg2poly(np.eye(degree + 1)[j]) for j in range(degree + 1)]
        return np.array([np.pad(row, (0, degree + 1 - len(row))) for row in rows])

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
        return float(np.sqrt(sum(self.degrees) + self.intercept))

    def unit_features(self, X: NDArray[Any]) -> NDArray[np.float32]:
        """X clipped to its bounds, mapped to [-1, 1] and expanded: (n, p) float32."""
        centre, radius = self.x_map
        out = np.empty((len(X), sum(self.degrees)), dtype=np.float32)
        for start in range(0, len(X), CHUNK):
            part = np.clip(as_double(X[start : start + CHUNK]), self.x_bounds[:, 0], self.x_bounds[:, 1])
            t = (part - centre) / radius
            place = 0
            for j, degree in enumerate(self.degrees):
                powers = np.vander(t[:, j], degree + 1, increasing=True)
                expanded = powers @ self._basis(degree)[1:].T
                out[start : start + CHUNK, place : place + degree] = np.clip(expanded, -1.0, 1.0)
                place += degree
        return out

    def affine_map(self, who: str) -> NDArray[np.float32]:
        """The map of each column and of y as ``Records.map``, for records that are left where they are: (p + 1, 2).

        Clipping to [-1, 1] afterwards is clipping to the bounds, because they are mapped to -1 and 1.
        """
        if max(self.degrees) > 1 or not self.intercept:
            raise DomainError(
                f"{who}: arrays on a GPU need fit_intercept=True and no degrees above 1; pass host arrays instead"
            )
        (centre, radius), (y_centre, y_radius) = self.x_map, self.y_map
        slope = 1.0 / np.append(radius, y_radius)
        return np.column_stack([slope, -np.append(centre, y_centre) * slope]).astype(np.float32)

    def unit_target(self, y: NDArray[Any]) -> NDArray[np.float32]:
        """y clipped to its bounds and mapped to [-1, 1]: (n,) float32; without bounds, the nearer of 0 and 1."""
        if self.y_bounds is None:
            return (as_double(y) > 0.5).astype(np.float32)
        centre, radius = self.y_map
        out = np.empty(len(y), dtype=np.float32)
        for start in range(0, len(y), CHUNK):
            part = np.clip(as_double(y[start : start + CHUNK]), *self.y_bounds)
            out[start : start + CHUNK] = (part - centre) / radius
        return out

    def _map(self, bounds: NDArray[np.float64]) -> NDArray[np.float32] | None:
        """:func:`unit_map` of ``bounds`` (p, 2), or None where the design's own map isn't the one to [-1, 1]."""
        if not self.intercept and (bounds.sum(axis=1) != 0.0).any():
            return None
        return unit_map(bounds[:, 0], bounds[:, 1])

    def unit_records(
        self, X: NDArray[Any], y: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float32]]:
        """Features, response and map for ``Records``: where they are, with a map, if that can be, else mapped copies.

        Copies are made of X where a feature has a degree above 1, and of what is stored in a way that kernels don't
        read, has bounds far from zero for their width, or without an intercept bounds that aren't symmetric.
        """
        x_map = self._map(self.x_bounds) if max(self.degrees) == 1 else None
        y_map = self._map(np.array([self.y_bounds])) if self.y_bounds is not None else None
        x, response = in_place(X) if x_map is not None else None, in_place(y) if y_map is not None else None
        if x is None and response is None:
            return self.unit_features(X), self.unit_target(y), NO_MAP
        same = np.array([[1.0, 0.0]], dtype=np.float32)
        if x is None or x_map is None:
            x, x_map = self.unit_features(X), np.repeat(same, sum(self.degrees), axis=0)
        if response is None or y_map is None:
            response, y_map = self.unit_target(y), same
        return x, response, np.concatenate([x_map, y_map])

    def theta_names(self, scale: bool) -> tuple[str, ...]:
        """Names of theta's coordinates: intercept if any, features, scale if any."""
        return different_names((INTERCEPT,) * self.intercept + self.terms + (SCALE,) * scale)

    def box(
        self, who: str, coef_bounds: Bounds | None, scale: bool, reach: float = DEFAULT_REACH
    ) -> NDArray[np.float64]:
        """Public bounds of theta in unit coordinates, (d, 2).

        ``coef_bounds`` are (low, high) of each slope in natural units; None means that no term moves y by more
        than ``reach`` = 2 times its whole range over the term's own range.  The intercept, in unit coordinates, is the
        prediction at the centre of the features: within as many times the range of y.
        """
        x_radius, y_radius = self.x_map[1], self.y_map[1]
        if coef_bounds is None:
            slopes = np.tile([-reach, reach], (sum(self.degrees), 1))
        elif max(self.degrees) > 1:
            raise DomainError(f"{who}: coef_bounds can't be given together with degrees above 1; leave them out")
        else:
            slopes = pairs(who, "coef_bounds", coef_bounds, self.names)
            if len(slopes) != len(self.names):
                raise DomainError(f"{who}: coef_bounds has {len(slopes)} pairs for {len(self.names)} features")
            slopes = slopes * (x_radius / y_radius)[:, None]
        rows = [slopes]
        if self.intercept:
            rows.insert(0, np.array([[-reach, reach]]))
        if scale:
            rows.append(np.array([[LEAST_SCALE, 1.0]]))
        return np.vstack(rows)

    def to_natural(self, scale: bool) -> AffineMap:
        """theta from unit to natural coordinates, by expanding the basis polynomials in powers of x.

        For degree 1: b_j = b'_j r_y / r_j and b_0 = c_y + r_y b'_0 - sum_j b_j c_j.
        """
        (x_centre, x_radius), (y_centre, y_radius) = self.x_map, self.y_map
        first = int(self.intercept)
        d = first + sum(self.degrees) + scale
        matrix, offset = np.zeros((d, d)), np.zeros(d)
        if self.intercept:
            matrix[0, 0], offset[0] = y_radius, y_centre
        place = first
        for j, degree in enumerate(self.degrees):
            # powers of t = (x - c) / r on powers of x: row k holds the coefficients of t^k
            line = Polynomial([-x_centre[j] / x_radius[j], 1.0 / x_radius[j]])
            powers = np.zeros((degree + 1, degree + 1))
            for k in range(degree + 1):
                powers[k, : k + 1] = (line**k).coef
            natural = self._basis(degree) @ powers * y_radius
            here = slice(place, place + degree)
            matrix[here, here] = natural[1:, 1:].T
            if self.intercept:
                matrix[0, here] = natural[1:, 0]
            place += degree
        if scale:
            matrix[-1, -1] = y_radius
        return AffineMap(matrix, offset, Domain(self.degrees, self.intercept, self.x_bounds))
