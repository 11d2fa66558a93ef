"""The command line: what it prints, what it refuses, with which exit code."""

import json
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from pgbb_fast.cli import main


def run(*arguments: str, capsys) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    out = capsys.readouterr()
    return int(stop.value.code or 0), out.out, out.err


FIT = ["--target", "y", "--features", "a,b", "--bounds", "a=0:10,b=0:5,y=-5:10", "--epsilon", "2", "--delta", "1e-4"]
QUICK = ["--steps", "60", "--quiet"]


def test_fit_prints_a_table_and_saves_and_draw_reads_it(parquet, tmp_path, capsys):
    folder = str(tmp_path / "out")
    code, out, _ = run("fit", parquet, *FIT, *QUICK, "--tau", ".2,.8", "--out", folder, capsys=capsys)
    assert code == 0
    assert "differential privacy under replace-one adjacency" in out
    assert out.count("\n   0.2") == 3
    code, out, _ = run("draw", folder, "--size", "4", "--tau", ".5", capsys=capsys)
    assert code == 0
    assert out.splitlines()[0] == '"draw","level","intercept","a","b"'
    assert len(out.splitlines()) == 5
    target = str(tmp_path / "draws.parquet")
    assert run("draw", folder, "--size", "4", "--out", target, capsys=capsys)[0] == 0
    assert pq.read_table(target).num_rows == 8


def test_a_budget_in_a_file_is_charged_and_refuses(parquet, tmp_path, capsys):
    path = str(tmp_path / "b.json")
    assert run("budget", path, capsys=capsys)[0] == 2
    code, out, _ = run("budget", path, "--epsilon", "2.5", "--delta", "1e-4", "--fits", "2", capsys=capsys)
    assert code == 0
    assert "Left for each of 2 further fit(s)" in out
    code, out, _ = run("fit", parquet, *FIT, "--quiet", "--budget", path, capsys=capsys)
    assert code == 0
    assert "1 charge(s)" in out
    code, out, error = run("fit", parquet, *FIT, "--quiet", "--budget", path, capsys=capsys)
    assert (code, out) == (2, "")
    assert "past the budget" in error
    told = json.loads(run("budget", path, "--json", capsys=capsys)[1])
    assert len(told["charges"]) == 1
    assert told["spent"]["epsilon"] <= 2.0
    assert run("budget", path, "--epsilon", "3", capsys=capsys)[0] == 2


@pytest.mark.parametrize("loss", ["huber", "mean"])
def test_fit_other_losses_as_json(parquet, capsys, loss):
    options = FIT if loss == "huber" else ["--bounds", "a=0:10,b=0:5", *FIT[2:4], *FIT[6:]]
    code, out, _ = run("fit", parquet, *options, *QUICK, "--loss", loss, "--json", capsys=capsys)
    result = json.loads(out)
    assert code == 0
    assert result["privacy"]["epsilon"] <= 2.0
    names = [row["name"] for row in result["rows"]]
    assert names == (["intercept", "a", "b", "scale"] if loss == "huber" else ["a", "b"])


def test_the_progress_bar_shows_public_numbers_only(parquet, capsys):
    code, out, err = run("fit", parquet, *FIT, "--steps", "60", capsys=capsys)
    assert code == 0
    assert "nan" not in out + err


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (["--epsilon", "0"], "epsilon"),
        (["--epsilon", "nan"], "epsilon"),
        (["--epsilon", "one"], "epsilon"),
        (["--delta", "1"], "delta"),
        (["--tau", "1.2"], "tau"),
        (["--tau", "abc"], "abc"),
        (["--features", "a,a"], "duplicate"),
        (["--features", "a,c"], "none for c"),
        (["--features", "a,name", "--bounds", "a=0:1,name=0:1,y=0:1"], "not numbers"),
        (["--features", "a,gap", "--bounds", "a=0:1,gap=0:1,y=0:1"], "missing values"),
        (["--features", "a,zz", "--bounds", "a=0:1,zz=0:1,y=0:1"], "no column zz"),
        (["--bounds", "a=0:10,y=-5:10"], "none for b"),
        (["--bounds", "a=10:0,b=0:5,y=-5:10"], "low < high"),
        (["--bounds", "a=0:inf,b=0:5,y=-5:10"], "finite"),
        (["--bounds", "a0:10"], "name=low:high"),
        (["--blocks", "2"], "n_blocks"),
        (["--blocks", "900"], "blocks"),
        (["--loss", "cubic"], "cubic"),
        (["--features", "a,b^2"], "lower powers"),
        (["--loss", "mean", "--features", "a,a^2"], "no powers"),
        (["--no-such-option"], "no-such-option"),
        (["--loss", "mean"], "no --target"),
        (["--loss", "huber", "--tau", ".5"], "--tau belongs to --loss quantile"),
        (["--bounds", "a=0:10,b=0:5,y=-5:10,c=0:1"], "names c"),
        (["--target", "a", "--bounds", "a=0:10,b=0:5"], "can't be a feature too"),
        (["--level", "1"], "level"),
        (["--level", "nan"], "level"),
        (["--out", "/proc/pgbb"], "can't be written to"),
        (["--tau", ""], "tau"),
        (["--features", ","], "names no column"),
        (["--target", ""], "needs --target"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_code_two(parquet, capsys, change, word):
    code, out, err = run("fit", parquet, *FIT, *QUICK, *change, capsys=capsys)
    assert code == 2
    assert out == ""
    assert word in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


@pytest.mark.parametrize("content", [None, b"no parquet"])
def test_bad_files(tmp_path, capsys, content):
    path = tmp_path / "file.parquet"
    if content:
        path.write_bytes(content)
    code, _, err = run("fit", str(path), *FIT, capsys=capsys)
    assert code == 2
    assert err.count("\n") == 1
    code, _, err = run("draw", str(tmp_path), capsys=capsys)
    assert code == 2
    assert "no saved posterior" in err


def test_epsilon_and_sigma_agree_with_each_other(capsys):
    shape = ["--n", "10000", "--delta", "1e-4", "--json"]
    code, out, _ = run("sigma", *shape, "--epsilon", "1", capsys=capsys)
    assert code == 0
    multiplier = json.loads(out)["noise_multiplier"]
    code, out, _ = run("epsilon", *shape, "--noise-multiplier", repr(multiplier), capsys=capsys)
    assert code == 0
    assert 0.99 < json.loads(out)["epsilon"] <= 1.0


def test_bounds_and_methods(capsys):
    shape = ["--n", "10000", "--delta", "1e-4", "--noise-multiplier", "2.5"]
    code, out, _ = run("epsilon", *shape, "--bounds", "--json", capsys=capsys)
    assert code == 0
    tight = json.loads(out)
    assert tight["lower"] <= tight["upper"] <= tight["epsilon"] * (1 + 1e-3)
    loose = []
    for conversion in ("cks", "standard"):
        options = ["--method", "renyi", "--conversion", conversion]
        loose.append(float(run("epsilon", *shape, *options, capsys=capsys)[1]))
    assert tight["epsilon"] < loose[0] < loose[1]


@pytest.mark.slow
def test_curves_and_their_pictures(tmp_path, capsys):
    shape = ["--n", "1000", "--delta", "1e-3", "--steps", "100"]
    png = tmp_path / "a.png"
    code, out, _ = run(
        "curve", *shape, "--noise-multiplier", "1", "--points", "3", "--json", "--plot", str(png), capsys=capsys
    )
    result = json.loads(out)
    assert code == 0
    assert png.read_bytes().startswith(b"\x89PNG")
    assert [sweep["parameter"] for sweep in result["sweeps"]] == ["n_blocks", "gamma", "steps"]
    for sweep in result["sweeps"]:
        assert all(a < b for a, b in zip(sweep["epsilon"], sweep["epsilon_without_weights"], strict=True))
    beta = result["trade_off"]["beta"]
    assert beta[0] <= 1.0
    assert beta[-1] == 0.0
    assert sorted(beta, reverse=True) == beta
    for command in (["epsilon", "--noise-multiplier", "1"], ["sigma", "--epsilon", "1"]):
        picture = tmp_path / f"{command[0]}.png"
        assert run(*command, *shape, "--plot", str(picture), capsys=capsys)[0] == 0
        assert picture.read_bytes().startswith(b"\x89PNG")
    code, out, _ = run("curve", *shape, "--noise-multiplier", "1", "--points", "2", capsys=capsys)
    assert code == 0
    assert out.count("epsilon") == 3


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["epsilon", "--n", "1000", "--delta", "1e-3", "--noise-multiplier", "nan"], "noise_multiplier"),
        (["epsilon", "--n", "1000", "--delta", "2", "--noise-multiplier", "1"], "delta"),
        (["sigma", "--n", "1000", "--delta", "1e-3", "--epsilon", "-1"], "epsilon"),
        (["sigma", "--n", "2", "--delta", "1e-3", "--epsilon", "1"], "n"),
        (["curve", "--n", "1000", "--delta", "1e-3"], "noise-multiplier"),
    ],
)
def test_bad_questions_to_the_accountant(arguments, word, capsys):
    code, out, err = run(*arguments, capsys=capsys)
    assert code == 2
    assert out == ""
    assert word in err
    assert err.count("\n") == 1


def test_help_is_quick_and_complete():
    out = subprocess.run(
        [sys.executable, "-m", "pgbb_fast", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for command in ("demo", "fit", "draw", "epsilon", "sigma", "curve"):
        assert f"\n  {command} " in out


def test_fit_with_a_power(parquet, capsys):
    options = [*FIT[:2], "--features", "b,a,a^2", *FIT[4:]]
    code, out, _ = run("fit", parquet, *options, *QUICK, "--json", capsys=capsys)
    assert code == 0
    assert [row["name"] for row in json.loads(out)["rows"]] == ["intercept", "b", "a", "a^2"]


def test_delta_is_one_over_n_unless_given(parquet, capsys):
    code, out, _ = run("fit", parquet, *FIT[:-2], *QUICK, "--json", capsys=capsys)
    assert code == 0
    assert json.loads(out)["privacy"]["delta"] == 1 / 800


@pytest.mark.parametrize(
    "arguments",
    [
        ("demo", "--quiet", "--out", "{place}"),
        ("demo", "--quiet", "--png", "{place}/demo.png"),
        ("draw", "{folder}", "--out", "{place}/draws.csv"),
        ("fit", "{folder}/none.parquet", "--features", "a", "--bounds", "a=0:1", "--epsilon", "1", "--out", "{place}"),
    ],
)
def test_results_that_cannot_be_written_are_refused_before_anything_is_spent(arguments, tmp_path, capsys):
    """A folder below a plain file can't be made: one line, exit code 2, and neither records nor posterior are read."""
    (tmp_path / "file").write_text("")
    places = {"place": tmp_path / "file" / "below", "folder": tmp_path}
    code, out, err = run(*(part.format(**places) for part in arguments), capsys=capsys)
    assert code == 2
    assert "can't be written to" in err
    assert err.count("\n") == 1
    assert not out
