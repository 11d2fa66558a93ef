"""The embedded records and the exact fits beside them."""

import json

import numpy as np

from pgbb_fast.data import load_census2000


def test_the_embedded_records_are_the_reference_file(shared_data):
    import pandas as pd

    frame = pd.read_parquet(shared_data / "demo_census2000_29k.parquet")
    census = load_census2000()
    assert np.array_equal(census.X[:, 0], frame["educ"])
    assert np.array_equal(census.X[:, 1], frame["exper"])
    assert np.array_equal(census.y, frame["lweekinc"].astype(float))
    reference = json.loads((shared_data / "reference_fits.json").read_text())["demo_census2000_29k"]["qr"]
    assert sorted(census.exact) == sorted(map(float, reference))
    for tau, coef in census.exact.items():
        assert np.array_equal(coef[:3], reference[str(tau)]["coef"][:3])
        assert coef[3] == reference[str(tau)]["coef"][3] / 100


def test_exact_fits_minimise_the_check_loss():
    """statsmodels' quantile regression can't do better than the embedded coefficients."""
    from statsmodels.regression.quantile_regression import QuantReg

    census = load_census2000()
    design = np.column_stack([np.ones(len(census.y)), census.X, census.X[:, 1] ** 2])

    def loss(coef, tau):
        r = census.y - design @ coef
        return float((r * (tau - (r < 0))).mean())

    fit = QuantReg(census.y, design).fit(q=0.5, max_iter=2_000).params
    assert loss(census.exact[0.5], 0.5) <= loss(fit, 0.5) * (1 + 1e-9)
