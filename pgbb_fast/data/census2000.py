"""The embedded demonstration: public Census records, the bounds fixed for them, and exact non-private fits."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import as_file, files

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

__all__ = ["Census2000", "load_census2000"]


@dataclass(frozen=True)
class Census2000:
    """29,501 persons of the 2000 Census (US Census Bureau).

    Attributes
    ----------
    X : (29501, 2) float64
        educ (years of schooling), exper (years of potential experience).
    y : (29501,) float64
        Log weekly income.
    feature_names : tuple of str
    x_bounds, y_bounds
        Bounds fixed in advance: schooling 0-20, experience 0-60, log weekly income 2-12.
    degrees : dict
        exper enters with its square.
    exact : dict from quantile level to (4,) array
        Exact non-private quantile regressions (intercept, educ, exper, exper^2) at .1 .25 .5 .75 .9.
    """

    X: NDArray[np.float64]
    y: NDArray[np.float64]
    feature_names: tuple[str, ...]
    x_bounds: tuple[tuple[float, float], ...]
    y_bounds: tuple[float, float]
    degrees: dict[str, int]
    exact: dict[float, NDArray[np.float64]]


def load_census2000() -> Census2000:
    """The embedded records, with their bounds and exact fits."""
    folder = files("pgbb_fast.data")
    about = json.loads((folder / "census2000.json").read_text())
    with as_file(folder / "census2000.parquet") as path:
        table = pq.read_table(path, columns=["lweekinc", "educ", "exper"])
    educ, exper = (table[name].to_numpy().astype(np.float64) for name in ("educ", "exper"))
    bounds = about["bounds"]
    return Census2000(
        X=np.column_stack([educ, exper]),
        y=table["lweekinc"].to_numpy().astype(np.float64),
        feature_names=tuple(about["features"]),
        x_bounds=tuple((low, high) for low, high in (bounds[name] for name in about["features"])),
        y_bounds=(bounds["lweekinc"][0], bounds["lweekinc"][1]),
        degrees=about["degrees"],
        exact={float(tau): np.array(coef) for tau, coef in about["exact_quantile_fits"].items()},
    )
