"""Saved posteriors: whole or refused, whatever happened to the files."""

import contextlib
import hashlib
import json
import os
import shutil
import stat

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save

from pgbb_fast import DomainError, MOutOfNBootstrap, Posterior, PrivacyError, PrivateQuantileRegressor
from pgbb_fast.baselines import NoisyGibbsRegressor, NonPrivateBayesianBootstrap
from pgbb_fast.bootstrap import BLBQuantiles, DPBootstrap, Mean

rng = np.random.default_rng(0)
X = rng.uniform(0, 10, (600, 2))
Y = 1 + 0.3 * X[:, 0] + rng.normal(0, 0.5, 600)
PUBLIC = {"x_bounds": [(0, 10), (0, 10)], "y_bounds": (-5, 10), "epsilon": 2.0, "delta": 1e-3, "seed": 1}
BOOT = {"epsilon": 2.0, "delta": 1e-3, "seed": 1}
MAKERS = {
    "noise-aware": lambda: PrivateQuantileRegressor(tau=[0.3, 0.7], steps=60, **PUBLIC).fit(X, Y),
    "generator": lambda: PrivateQuantileRegressor(
        tau=[0.3, 0.7], steps=60, degrees={"x2": 2}, posterior="generator", **PUBLIC
    ).fit(X, Y),
    "bootstrap": lambda: MOutOfNBootstrap(Mean([(0, 10), (0, 10)]), resample_size=20, replicates=40, **BOOT).fit(X),
    "deconvolved": lambda: DPBootstrap(Mean([(0, 10), (0, 10)]), replicates=30, **BOOT).fit(X),
    "little-bootstraps": lambda: BLBQuantiles(Mean([(0, 10), (0, 10)]), resamples=20, **BOOT).fit(X),
    "sampled": lambda: NoisyGibbsRegressor(iterations=200, **PUBLIC).fit(X, Y),
    "not private": lambda: NonPrivateBayesianBootstrap("ridge", draws=20).fit(X, Y),
}


@pytest.fixture(scope="module")
def fitted():
    return {kind: make().posterior_ for kind, make in MAKERS.items()}


@pytest.fixture(scope="module")
def folders(fitted, tmp_path_factory):
    root = tmp_path_factory.mktemp("saved")
    return {kind: posterior.save(root / kind) for kind, posterior in fitted.items()}


def parts(folder):
    """The description and the arrays of a saved posterior."""
    (arrays,) = folder.glob("*.safetensors")
    return json.loads((folder / "posterior.json").read_text()), load_file(arrays)


def forge(folder, description, arrays):
    """Both files with their digests computed anew, as one who knows the format can."""
    for file in folder.iterdir():
        file.unlink()
    content = save({name: np.ascontiguousarray(a) for name, a in arrays.items()})
    digest = hashlib.sha256(content).hexdigest()
    (folder / f"posterior-{digest[:16]}.safetensors").write_bytes(content)
    description["arrays"] = {"file": f"posterior-{digest[:16]}.safetensors", "sha256": digest}
    text = json.dumps({**description, "sha256": "0" * 64}, indent=1) + "\n"
    assert next(iter(description)) == "sha256"
    text = text.replace("0" * 64, hashlib.sha256(text.encode()).hexdigest(), 1)
    (folder / "posterior.json").write_text(text)


def refusal(folder, **options):
    with pytest.raises(DomainError) as refused:
        Posterior.load(folder, **options)
    text = str(refused.value)
    assert "\n" not in text
    assert text.startswith("load: ")
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None
    return text


@pytest.mark.parametrize("kind", MAKERS)
def test_every_kind_comes_back_as_it_was(kind, fitted, folders, tmp_path):
    posterior, again = fitted[kind], Posterior.load(folders[kind])
    assert type(again) is type(posterior)
    for name in ("names", "rules", "rule_name", "privacy"):
        assert getattr(again, name) == getattr(posterior, name)
    assert again._to_natural.domain == posterior._to_natural.domain
    assert np.array_equal(again.draws(30), posterior.draws(30))
    assert np.array_equal(again.interval(0.8), posterior.interval(0.8))
    assert str(again.summary()) == str(posterior.summary())
    first, second = (sorted(f.read_bytes() for f in p.iterdir()) for p in (folders[kind], again.save(tmp_path)))
    assert first == second


def test_both_files_have_the_mode_of_any_new_file(fitted, tmp_path):
    for umask in (0o022, 0o077, 0o007):
        before = os.umask(umask)
        try:
            folder = fitted["sampled"].save(tmp_path / oct(umask))
        finally:
            os.umask(before)
        assert {stat.S_IMODE(f.stat().st_mode) for f in folder.iterdir()} == {0o666 & ~umask}


@pytest.mark.parametrize("kind", MAKERS)
@given(file=st.integers(0, 1), place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
@settings(max_examples=25)
def test_a_changed_byte_anywhere_is_refused(kind, folders, tmp_path_factory, file, place, flip):
    folder = tmp_path_factory.mktemp("flipped") / "copy"
    shutil.copytree(folders[kind], folder)
    path = sorted(folder.iterdir())[file]
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= flip
    path.write_bytes(content)
    refusal(folder)


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_a_file_that_is_cut_short_or_longer_is_refused(cut, folders, tmp_path):
    for number in (0, 1):
        for change in (lambda c: c[:cut] if cut >= 0 else c[:-1], lambda c: c + b" "):
            folder = tmp_path / "copy"
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(folders["noise-aware"], folder)
            path = sorted(folder.iterdir())[number]
            path.write_bytes(change(path.read_bytes()))
            refusal(folder)


def test_another_fits_arrays_are_refused(folders, tmp_path):
    a, b = (shutil.copytree(folders[kind], tmp_path / kind) for kind in ("bootstrap", "deconvolved"))
    (ours,), (theirs,) = a.glob("*.safetensors"), b.glob("*.safetensors")
    shutil.copy(theirs, ours)
    assert "another posterior's" in refusal(a)
    ours.unlink()
    assert "is missing" in refusal(a)
    shutil.copy(b / "posterior.json", a / "posterior.json")
    assert "is missing" in refusal(a)


def edit(*path, to):
    def change(description, arrays):
        where = description
        for step in path[:-1]:
            where = where[step]
        where[path[-1]] = to(where[path[-1]]) if callable(to) else to

    return change


def array(name, to):
    def change(description, arrays):
        arrays[name] = to(arrays[name])

    return change


def drop(name):
    return lambda description, arrays: arrays.pop(name)


def add(description, arrays):
    arrays["more"] = np.zeros(2)


FORGERIES = [
    ("noise-aware", edit("names", to=lambda names: names[:-1])),
    ("noise-aware", edit("names", to=lambda names: ["a"] * len(names))),
    ("noise-aware", edit("names", to="abc")),
    ("noise-aware", edit("rules", to=[0.5])),
    ("noise-aware", edit("rules", to=[0.5, 0.5])),
    ("noise-aware", edit("rules", to=[0.5, 1.5])),
    ("noise-aware", edit("rules", to=[0.5, float("nan")])),
    ("noise-aware", edit("rule_name", to="tau")),
    ("noise-aware", edit("kind", to="sampled")),
    ("noise-aware", edit("kind", to="other")),
    ("noise-aware", edit("format", to=99)),
    ("noise-aware", edit("to_natural", "matrix", 0, 0, to=float("nan"))),
    ("noise-aware", edit("to_natural", "matrix", to=lambda rows: rows[:-1])),
    ("noise-aware", edit("to_natural", "offset", to=[0.0])),
    ("noise-aware", edit("domain", "degrees", to=[1])),
    ("noise-aware", edit("domain", "bounds", 0, to=[3.0, 1.0])),
    ("noise-aware", edit("settings", "local", to=[])),
    ("noise-aware", edit("settings", "local", 0, "count", to=-1.0)),
    ("noise-aware", edit("settings", "sampling_factor", to=float("inf"))),
    ("noise-aware", array("centre.0", lambda a: a[:-1])),
    ("noise-aware", array("centre.1", lambda a: a * np.nan)),
    ("noise-aware", array("gradient.0", lambda a: a + np.inf)),
    ("noise-aware", array("hessian.measured.0", lambda a: a + np.triu(np.ones_like(a), 1))),
    ("noise-aware", array("omega.0", lambda a: -a)),
    ("noise-aware", array("scores.sd", lambda a: -a)),
    ("noise-aware", array("scores.basis", lambda a: a[:, :2])),
    ("noise-aware", array("box", lambda a: a[:, ::-1])),
    ("noise-aware", array("box", lambda a: a.astype(np.int64))),
    ("noise-aware", drop("omega.1")),
    ("noise-aware", add),
    ("noise-aware", edit("privacy", "epsilon", to=0.0)),
    ("noise-aware", edit("privacy", "epsilon", to=3.0)),
    ("noise-aware", edit("privacy", "epsilon", to="one")),
    ("noise-aware", edit("privacy", "delta", to=1.0)),
    ("noise-aware", edit("privacy", "adjacency", to="add-remove")),
    ("noise-aware", edit("privacy", "mechanism", "noise_multiplier", to=None)),
    ("noise-aware", edit("privacy", "mechanism", "noise_multiplier", to=-1.0)),
    ("noise-aware", edit("privacy", "mechanism", "steps", to=0)),
    ("noise-aware", edit("privacy", "moment", "adjacency", to="add-remove")),
    ("noise-aware", edit("privacy", to={"epsilon": 1.0})),
    ("generator", edit("settings", "generator", "hidden", to=[4])),
    ("generator", edit("settings", "generator", "n_blocks", to=19)),
    ("generator", edit("settings", "generator", "rules", to=[0.3, 0.6])),
    ("generator", edit("settings", "generator", "activation", to="relu")),
    ("generator", edit("settings", "gamma", to=0.0)),
    ("generator", edit("privacy", "mechanism", "n_blocks", to=10)),
    ("generator", array("net.0.weight", lambda a: a.T)),
    ("bootstrap", edit("settings", "n", to=601)),
    ("bootstrap", edit("settings", "replicate_sd", to=-1.0)),
    ("bootstrap", edit("privacy", "mechanism", "replicates", to=41)),
    ("bootstrap", array("replicates", lambda a: a[:-1])),
    ("bootstrap", array("estimate", lambda a: a[:1])),
    ("deconvolved", array("replicates", lambda a: a[:-1])),
    ("deconvolved", edit("settings", "noise_sd", to=0.0)),
    ("little-bootstraps", array("sides", lambda a: -a)),
    ("little-bootstraps", edit("privacy", "medians", to=6)),
    ("little-bootstraps", edit("settings", "level", to=1.0)),
    ("sampled", array("sample", lambda a: a[:, :, :2])),
    ("sampled", array("sample", lambda a: a[:0])),
    ("sampled", edit("privacy", "shares", to=[0.7, 0.7])),
    ("not private", edit("privacy", "n", to=0)),
    ("not private", edit("privacy", to={"guarantee": "some"})),
]


@pytest.mark.parametrize("number", range(len(FORGERIES)))
def test_what_no_fit_can_have_saved_is_refused_even_with_its_checksum_right(number, folders, tmp_path):
    kind, change = FORGERIES[number]
    folder = shutil.copytree(folders[kind], tmp_path / "copy")
    description, arrays = parts(folder)
    forge(folder, description, arrays)
    Posterior.load(folder)  # so it is the change that is refused
    change(description, arrays)
    forge(folder, description, arrays)
    refusal(folder)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([1e308, -0.5, 10**30]) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)


def fields(tree):
    """Every container of a JSON tree with every key of it."""
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
        yield tree, key
        if isinstance(tree[key], (dict, list)):
            yield from fields(tree[key])


@pytest.mark.parametrize("kind", MAKERS)
@given(value=JSON, place=st.floats(0, 1, exclude_max=True))
@settings(max_examples=40)
def test_any_field_replaced_is_refused_or_works(kind, folders, tmp_path_factory, value, place):
    """Nothing but a refusal, or a posterior whose every answer comes."""
    folder = tmp_path_factory.mktemp("edited")
    description, arrays = parts(folders[kind])
    found = [(where, key) for where, key in fields(description) if key not in ("sha256", "arrays", "file")]
    where, key = found[int(place * len(found))]
    where[key] = value
    forge(folder, description, arrays)
    posterior = None
    with contextlib.suppress(DomainError):
        posterior = Posterior.load(folder)
    if posterior is None:
        refusal(folder)
        return
    with np.errstate(all="ignore"):
        assert str(posterior.summary(size=50))
    assert repr(posterior)
    assert posterior.privacy.statement()


def test_an_epsilon_that_the_mechanisms_exceed_is_found_when_asked_for(folders, tmp_path):
    for kind in MAKERS:
        folder = shutil.copytree(folders[kind], tmp_path / kind)
        assert Posterior.load(folder, recompute=True).names
        if kind == "not private":
            continue
        description, arrays = parts(folder)
        description["privacy"]["epsilon"] *= 0.9
        forge(folder, description, arrays)
        assert Posterior.load(folder).names  # a checksum is no signature
        with pytest.raises(PrivacyError, match="states an epsilon below"):
            Posterior.load(folder, recompute=True)


def test_earlier_formats_are_refused_by_name(folders, tmp_path):
    (tmp_path / "posterior.json").write_text(json.dumps({"format": 2, "kind": "noise-aware"}, indent=1) + "\n")
    (tmp_path / "posterior.safetensors").write_bytes(b"")
    assert "format 2, which had no checksums" in refusal(tmp_path)


class Stopped(BaseException):
    """As of a key pressed."""


@pytest.mark.parametrize("error", [Stopped, OSError(28, "No space left on device")])
@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("number", [1, 2])
def test_an_interrupted_save_leaves_what_was_there(call, number, error, fitted, tmp_path, monkeypatch):
    old, new = fitted["bootstrap"], fitted["sampled"]
    used, empty = old.save(tmp_path / "used"), tmp_path / "empty"
    before = {f.name: f.read_bytes() for f in used.iterdir()}
    calls, real = [0], getattr(os, call)

    def failing(*arguments):
        calls[0] += 1
        if calls[0] == number:
            raise error
        return real(*arguments)

    for folder in (used, empty):
        calls[0] = 0
        with monkeypatch.context() as patch:
            patch.setattr(os, call, failing)
            with pytest.raises((Stopped, DomainError)):
                new.save(folder)
    assert {f.name: f.read_bytes() for f in used.iterdir()} == before
    assert np.array_equal(Posterior.load(used).draws(5), old.draws(5))
    assert list(empty.iterdir()) == []
    assert np.array_equal(Posterior.load(new.save(used)).draws(5), new.draws(5))
    assert len(list(used.iterdir())) == 2


def test_other_files_of_the_folder_are_left_alone(fitted, tmp_path):
    (tmp_path / "posterior.safetensors").write_bytes(b"mine")
    (tmp_path / "posterior-notes.txt").write_text("mine")
    for kind in ("sampled", "bootstrap", "sampled"):
        fitted[kind].save(tmp_path)
    assert (tmp_path / "posterior.safetensors").read_bytes() == b"mine"
    assert (tmp_path / "posterior-notes.txt").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize("folder", [None, 3, "", b"bytes", "a\0b", ["a"], "\ud800", "x" * 300])
def test_what_is_no_path_is_refused(folder, fitted):
    with pytest.raises(DomainError, match=r"^save: "):
        fitted["sampled"].save(folder)
    assert refusal(folder)


def test_saving_onto_a_file_and_loading_one(fitted, tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    for place in (path, path / "below"):
        with pytest.raises(DomainError, match="can't be written to"):
            fitted["sampled"].save(place)
    assert path.read_text() == "mine"
    assert "is a file" in refusal(path)
    assert "no saved posterior" in refusal(tmp_path)
    assert "recompute" in refusal(tmp_path, recompute="yes")
