"""Every option of the command line, given what it isn't made for: one line and exit code 2, or success."""

import contextlib
import io
import itertools
import os
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgbb_fast.budget.baseline import NoGuarantee
from pgbb_fast.cli import main
from pgbb_fast.coordinates import AffineMap
from pgbb_fast.data import read_columns
from pgbb_fast.errors import DataError
from pgbb_fast.posteriors.sampled import SampledPosterior

TEXTS = [
    *("", " ", "0", "-1", "1", "2", "3", ".5", "1e-320", "1e308", "1e400", "nan", "inf", "-inf", "9" * 400, "0x10"),
    *("a", "b", "y", "a,b", ",", "a,a", "a^2", "a,a^2", "^", "a=0:1", "a=1:0", "a=b:c", "=", "y=0:1,a=0:1,b=0:1,z=0:1"),
    *(".1,.9", ".1,.1", "0,1", "1,x", "quantile", "mean", "pld", "cks", "shared", "x" * 3000, "é\u2028", "\udcff"),
    *(".", "..", "/", "/proc/x", "/proc/self/mem", "/dev/full/x", "data.parquet", "saved", "note.txt", "no/such/place"),
    *("out.csv", "out.parquet", "out.png", "note.txt/out.csv", "~", "-", "--", "--help", "-h"),
]
SHAPE = {"--n": "100", "--delta": "1e-3", "--steps": "5", "--blocks": "5"}
FIT = {"--features": "a", "--bounds": "a=0:1,y=0:1", "--target": "y", "--epsilon": "9", "--delta": "1e-2"}
FIT |= {"--blocks": "3", "--steps": "60", "--moment-share": ".1", "--sampling-rate": ".5", "--level": ".9"}
BASES = {
    "fit": ([".", "data.parquet"], {**FIT, "--loss": None, "--tau": None, "--posterior": None, "--out": None}),
    "draw": ([".", "saved"], {"--size": "3", "--tau": None, "--seed": None, "--out": None}),
    "epsilon": (["."], {**SHAPE, "--noise-multiplier": "1", "--method": None, "--conversion": None, "--plot": None}),
    "sigma": (["."], {**SHAPE, "--epsilon": "1", "--gamma": None, "--sampling-rate": None, "--minibatch": None}),
    "curve": (["."], {**SHAPE, "--noise-multiplier": "1", "--points": "2", "--draws-per-step": None, "--plot": None}),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("here")
    rng = np.random.default_rng(0)
    a = rng.random(60)
    table = pa.table({"a": a, "b": a, "y": rng.random(60), "name": ["x"] * 60})
    pq.write_table(table, folder / "data.parquet")
    (folder / "note.txt").write_text("not what is looked for")
    units = AffineMap(np.eye(2), np.zeros(2))
    draws = rng.normal(size=(9, 2, 2))
    names = {"rules": (0.1, 0.9), "to_natural": units, "names": ("draw", "level"), "privacy": NoGuarantee(9)}
    SampledPosterior(draws, **names).save(folder / "saved")
    return folder


def run(folder, *arguments):
    """Exit code, standard output and standard error of the command in ``folder``."""
    options = {"encoding": "utf-8", "errors": "backslashreplace", "write_through": True}
    out, err = (io.TextIOWrapper(io.BytesIO(), **options) for _ in range(2))
    here = contextlib.chdir(folder)
    with here, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as stop:
        main(list(arguments))
    return int(stop.value.code or 0), *(s.buffer.getvalue().decode(errors="replace") for s in (out, err))


def check(folder, *arguments):
    code, out, err = run(folder, *arguments)
    assert code in (0, 2), (arguments, err)
    if code == 2:
        assert err.count("\n") == 1, arguments
        assert len(err) < 600
        assert out == ""
    assert "Traceback" not in err
    return code


def command_line(command, changes):
    (_, *positional), options = BASES[command]
    given = {**options, **changes}
    return [command, *positional, *(part for name, text in given.items() if text is not None for part in (name, text))]


@pytest.mark.parametrize("command", BASES)
def test_the_bases_themselves_work(command, place):
    assert check(place, *command_line(command, {})) == 0


CHEAP = [(command, option) for command in ("draw", "epsilon", "sigma", "curve", "fit") for option in BASES[command][1]]


@pytest.mark.slow
@given(which=st.sampled_from(CHEAP), text=st.sampled_from(TEXTS) | st.text(max_size=4))
@settings(max_examples=150)
def test_one_odd_option(which, text, place):
    command, option = which
    if "\0" not in text and not (option == "--n" and text == "1e308"):
        check(place, *command_line(command, {option: text}))


@given(command=st.sampled_from(list(BASES)), data=st.data())
@settings(max_examples=60)
def test_several_odd_options(command, data, place):
    names = data.draw(st.lists(st.sampled_from(list(BASES[command][1])), min_size=2, max_size=4, unique=True))
    check(place, *command_line(command, {name: data.draw(st.sampled_from(TEXTS)) for name in names}))


@pytest.mark.parametrize("file", ["note.txt", ".", "none.parquet", "saved", "", "saved/posterior.json", "x" * 300])
@pytest.mark.parametrize("command", ["fit", "draw"])
def test_odd_files(command, file, place):
    _, *options = command_line(command, {})
    code = check(place, command, file, *options[1:])
    assert code == (0 if command == "draw" and file == "saved" else 2)


def test_columns_of_draws_have_names_of_their_own(place):
    code, out, _ = run(place, "draw", "saved", "--size", "2")
    assert code == 0
    assert out.splitlines()[0] == '"draw_","level_","draw","level"'
    assert len(out.splitlines()) == 5


CANARY = 7.125  # its bits occur nowhere else in the file


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["none", "snappy"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_a_parquet_file_with_damaged_pages_is_refused_without_its_values(dictionary, compression, tmp_path):
    """Each byte of the data pages changed in turn: read (values are not checked by the format), or one line."""
    path = tmp_path / "damaged.parquet"
    table = pa.table({"a": [CANARY, CANARY, 1.0, 2.0], "y": [1, 2, 3, 4], "unread": ["x", "y", "z", "z"]})
    pq.write_table(table, path, compression=compression, use_dictionary=dictionary)
    whole = path.read_bytes()
    footer = struct.unpack("<I", whole[-8:-4])[0]
    refused = 0
    for place, flip in itertools.product(range(len(whole) - footer - 8), (0xFF, 0x01)):
        damaged = bytearray(whole)
        damaged[place] ^= flip
        path.write_bytes(bytes(damaged))
        try:
            read_columns(path, ["a", "y"])
        except DataError as error:
            refused += 1
            problem = error
            said = str(error)
            continue
    assert refused > 20
    assert "\n" not in said
    assert "7.125" not in said
    assert problem.__suppress_context__ or problem.__context__ is None
    assert problem.__cause__ is None


@pytest.mark.parametrize("command", ["fit", "demo", "draw", "epsilon", "sigma", "curve"])
def test_places_that_cannot_be_written_to_are_refused_before_anything_is_computed(command, place, monkeypatch):
    """With every computation taken away: whatever asks for one would end with exit code 1."""

    def touched(*arguments, **settings):
        raise AssertionError("something was computed, or a record read")

    loading = "pgbb_fast.posteriors.base.Posterior.load"
    for name in ("pgbb_fast.data.read_columns", loading, "pgbb_fast.accountant.epsilon"):
        monkeypatch.setattr(name, touched)
    monkeypatch.setattr("pgbb_fast.accountant.noise_multiplier", touched)
    monkeypatch.setattr("pgbb_fast.data.load_census2000", touched)
    options = {"fit": ["--out"], "demo": ["--png", "--out"], "draw": ["--out"]}.get(command, ["--plot"])
    for option, where in itertools.product(options, ("/proc/x/out.csv", "note.txt/out.csv", "/dev/full/out.csv")):
        arguments = ["demo"] if command == "demo" else command_line(command, {})
        code, out, err = run(place, *arguments, option, where)
        assert code == 2, err
        assert "can't be written to" in err
        assert out == ""
    if command != "fit":
        file = run(place, *arguments, options[0], os.curdir)  # a folder in place of a file
        assert file[0] == 2


def test_what_is_unexpected_shows_neither_its_text_nor_a_traceback(place, monkeypatch):
    def broken(*arguments, **settings):
        raise ValueError("a record is 7.125")

    monkeypatch.setattr("pgbb_fast.posteriors.base.Posterior.load", broken)
    code, out, err = run(place, "draw", "saved")
    assert code == 1
    assert err == "pgbb-fast: stopped by an unexpected ValueError; please report it\n"
    assert out == ""
