"""The README's main job on the embedded records."""


import pytest

from pgbb_fast.cli import main
from pgbb_fast.data import load_census2000


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
