"""Public bounds: how records are mapped to the unit box, and theta back to the user's units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.polynomial import Polynomial, legendre
from numpy.typing import NDArray

from pgbb_fast import validation as check
from pgbb_fast.coordinates import AffineMap, Domain
from pgbb_fast.errors import DomainError
from pgbb_fast.intake.records import as_stored
from pgbb_fast.kernels.arguments import NO_MAP, as_double
from pgbb_fast.release.devices import unit_columns

CHUNK = 1 << 20
Bounds = Sequence[tuple[float, float]] | Mapping[str, tuple[float, float]]
INTERCEPT = "intercept"
SCALE = "scale"
DEFAULT_REACH = 2.0  # default |slope| in unit coordinates: the feature moves y by at most twice y's whole range
FARTHEST = 64.0  # half-widths from zero to the far bound, up to which the map is accurate in single precision
WIDEST, NARROWEST = 1e30, 1e-30  # farthest public bound, and least half-width
MAX_HALF_WIDTHS = 2.0**29  # from zero to the far bound, up to which double precision is accurate to 2^-24
MAX_REACH, MIN_WIDTH = 1e6, 1e-12  # of a coefficient and its bounds in unit coordinates
SAME = np.array([[1.0, 0.0]], dtype=np.float32)  # the map of numbers that are in unit coordinates already
MIN_SCALE = 1e-3  # least residual scale, as a share of half the range of y


def interval(who: str, name: str, pair: Any) -> tuple[float, float]:
    """``pair`` as public bounds (low, high) that numbers can be told apart within; decided from the bounds alone.

    They lie within 1e30 of zero and are at least 1e-30 wide, so that every map is a number in single precision, and at
    most 2^29 half-widths from zero: double precision tells values apart to 2^-24 of a half-width there.
    """
    low, high = check.ordered_pair(who, name, pair)
    radius = high / 2 - low / 2
    if max(abs(low), abs(high)) > WIDEST or radius < NARROWEST:
        raise DomainError(
            f"{who}: {name} must be within {WIDEST:g} of zero and wider than {NARROWEST:g}, got ({low:g}, {high:g}); "
            "change the units, or give bounds that values can have"
        )
    if max(abs(low), abs(high)) > MAX_HALF_WIDTHS * radius:
        raise DomainError(
            f"{who}: {name} = ({low:g}, {high:g}) is too narrow for its distance from zero; subtract a public constant "
            "from the values and the bounds"
        )
    return low, high


def pairs(who: str, name: str, bounds: Any, names: Sequence[str] | None = None) -> NDArray[np.float64]:
    """``bounds`` as a (p, 2) array of :func:`interval`; a mapping is read in the order of ``names``."""
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
    found = check.items(bounds)
    if not found:
        got = "none" if found is not None else check.shown(bounds)
        raise DomainError(f"{who}: {name} must be a sequence or mapping of (low, high) pairs, got {got}")
    return np.array([interval(who, f"{name}[{j}]", pair) for j, pair in enumerate(found)])


def given_bounds(who: str, name: str, bounds: Any) -> Bounds:
    """Bounds as a user gives them, checked as far as that can be done without the features' names; a copy."""
    if not isinstance(bounds, Mapping):
        return [(float(low), float(high)) for low, high in pairs(who, name, bounds)]
    if not bounds or not all(isinstance(key, str) for key in bounds):
        raise DomainError(f"{who}: {name} by name must be a mapping from feature names to (low, high) pairs")
    return {str(key): interval(who, f"{name}[{key!r}]", pair) for key, pair in bounds.items()}


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


def require_reach(who: str, unit: NDArray[np.float64]) -> None:
    """Refuse public bounds ``unit`` of theta in unit coordinates that single precision can't search."""
    if np.abs(unit).max() > MAX_REACH or (unit[:, 1] - unit[:, 0]).min() < MIN_WIDTH:
        raise DomainError(
            f"{who}: coef_bounds reach beyond {MAX_REACH:g} times, or differ by less than {MIN_WIDTH:g} times, what "
            "the bounds of the records make of one unit (for a slope, the range of y over that of its feature); change "
            "one or the other"
        )


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
    classes : (zero, one)
        Without y_bounds, the two values of y that stand for 0 and 1.
    """

    names: tuple[str, ...]
    x_bounds: NDArray[np.float64]
    y_bounds: tuple[float, float] | None
    intercept: bool
    degrees: tuple[int, ...]
    classes: tuple[float, float] = (0.0, 1.0)

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

    def unit_target(self, y: NDArray[Any]) -> NDArray[np.float32]:
        """y clipped to its bounds and mapped to [-1, 1]: (n,) float32; without bounds, 1 where it is nearer to the
        second of the classes than to the first, else 0."""
        if self.y_bounds is None:
            zero, one = self.classes
            numbers, middle = as_double(y), zero / 2 + one / 2
            return (numbers > middle if one > zero else numbers < middle).astype(np.float32)
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

    @property
    def maps(self) -> tuple[NDArray[np.float32] | None, NDArray[np.float32] | None]:
        """``Records.map`` of X's columns and of y where single precision is enough for it, else None.

        Decided from what is public only, bounds and degrees: one record's value, or the type that it gives a column,
        must not decide how the others are rounded.
        """
        x_map = self._map(self.x_bounds) if max(self.degrees) == 1 else None
        return x_map, self._map(np.array([self.y_bounds])) if self.y_bounds is not None else None

    def unit_records(
        self, X: NDArray[Any], y: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float32]]:
        """Features, response and map for ``Records``: the same records, to the bit, for the same numbers of any type.

        With a map of single precision (:attr:`maps`) a number is rounded to double, then to single, and mapped by the
        kernels; arrays of their types are left where they are, others copied in single precision.  Else (a degree above
        1, bounds far from zero for their width, without an intercept bounds that aren't symmetric) it is mapped in
        double precision, and a copy made of what comes out.
        """
        x_map, y_map = self.maps
        if x_map is None and y_map is None:
            return self.unit_features(X), self.unit_target(y), NO_MAP
        x = self.unit_features(X) if x_map is None else as_stored(X)
        response = self.unit_target(y) if y_map is None else as_stored(y)
        return x, response, self._table(x_map, y_map)

    def _table(self, x_map: NDArray[np.float32] | None, y_map: NDArray[np.float32] | None) -> NDArray[np.float32]:
        x_rows = np.repeat(SAME, sum(self.degrees), axis=0) if x_map is None else x_map
        return np.concatenate([x_rows, SAME if y_map is None else y_map])

    def require_on_device(self, who: str) -> None:
        """Refuse degrees above 1 for arrays on a GPU."""
        if max(self.degrees) > 1:
            raise DomainError(f"{who}: arrays on a GPU can have no degrees above 1; pass host arrays instead")

    def device_records(self, X: Any, y: Any) -> tuple[Any, Any, NDArray[np.float32]]:
        """As :meth:`unit_records` for arrays on a GPU, whose copies are made there; the same bits."""
        x_map, y_map = self.maps
        if x_map is None:
            X = unit_columns(X, self.x_bounds, *self.x_map)
        if y_map is None:
            centre, radius = self.y_map
            y = unit_columns(y, np.array([self.y_bounds]), np.array([centre]), np.array([radius]))
        return X, y, self._table(x_map, y_map)

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
            require_reach(who, slopes)
        rows = [slopes]
        if self.intercept:
            rows.insert(0, np.array([[-reach, reach]]))
        if scale:
            rows.append(np.array([[MIN_SCALE, 1.0]]))
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
