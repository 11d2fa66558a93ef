"""The README's main job on the embedded records."""

import json

import numpy as np
import pytest

from pgbb_fast.cli import main
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


def test_demo_finds_the_effect_of_schooling(tmp_path, capsys):
    png = tmp_path / "demo.png"
    with pytest.raises(SystemExit) as stop:
        main(["demo", "--quiet", "--seed", "1", "--png", str(png), "--out", str(tmp_path / "fit")])
    assert not stop.value.code
    out = capsys.readouterr().out
    assert png.read_bytes().startswith(b"\x89PNG")
    rows = [line.split() for line in out.splitlines() if " educ " in line]
    assert [row[0] for row in rows] == ["0.1", "0.5", "0.9"]
    mean, sd, exact = float(rows[1][2]), float(rows[1][3]), float(rows[1][-1])
    assert abs(mean - exact) < 3 * sd
    assert sd < 0.05
    assert exact == pytest.approx(load_census2000().exact[0.5][1], rel=1e-4)
    assert "differential privacy under replace-one adjacency" in out
