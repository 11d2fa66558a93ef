"""Kept calibrations: they save the search, they never decide the guarantee."""

import json
import math
import os
import stat

import pytest

from pgbb_fast.accountant import BlockedGaussian, epsilon, remembered
from pgbb_fast.budget import bootstrap
from pgbb_fast.budget import report as privacy

MECHANISM = BlockedGaussian(n=1000, n_blocks=10, sampling_rate=0.5, steps=50, minibatch="shared")
BUDGET = {"budget_epsilon": 1.0, "budget_delta": 1e-5}


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """An empty folder for answers, and nothing in this process's memory."""
    monkeypatch.setenv("PGBB_FAST_CACHE", str(tmp_path / "kept"))
    forget()
    yield tmp_path / "kept"
    forget()


def forget():
    for function in (
        privacy.calibrate, privacy.suggested_rate, bootstrap.calibrate, bootstrap.sizes_of_least_width,
    ):  # fmt: skip
        function.cache_clear()


def forbid(monkeypatch):
    """No search from here on."""

    def refuse(*_, **__):
        raise RuntimeError("searched")

    for module in (privacy, bootstrap):
        monkeypatch.setattr(module, "noise_multiplier", refuse)


def calls():
    mechanism = bootstrap.ResampledGaussian(n=1000, resample_size=10, replicates=100)
    return [
        privacy.calibrate(MECHANISM, moment_share=0.1, moments=2, **BUDGET),
        privacy.suggested_rate(MECHANISM, with_moment=True, **BUDGET),
        bootstrap.calibrate(mechanism, estimate_share=0.5, **BUDGET),
        bootstrap.sizes_of_least_width(1000, spread=0.2, level=0.95, **BUDGET),
    ]


@pytest.mark.slow
def test_a_later_process_asks_the_accountant_once_and_searches_nothing(kept, monkeypatch):
    first = calls()
    assert len(list(kept.iterdir())) == len(first)
    forget()
    forbid(monkeypatch)
    assert calls() == first


def test_files_hold_public_numbers_only_and_are_the_owners(kept):
    privacy.calibrate(MECHANISM, **BUDGET)
    (path,) = kept.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = json.loads(path.read_text())
    name, question, _ = json.loads(content["question"])
    assert name == "calibrate"
    assert question[0]["n"] == 1000
    assert question[1:] == [1.0, 1e-5, 0.0, 1]


ANSWERS = [
    [0.1], [-1.0], [math.nan], [], "x", None, {"a": 1}, [[1.0]], pytest.param([1e-3], marks=pytest.mark.slow), 7,
]  # fmt: skip


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_that_does_not_hold_is_searched_for_again(kept, answer):
    truth = privacy.calibrate(MECHANISM, **BUDGET)
    (path,) = kept.iterdir()
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "answer": answer}))
    forget()
    again = privacy.calibrate(MECHANISM, **BUDGET)
    assert again == truth
    assert json.loads(path.read_text()) == content
    assert epsilon(again.mechanism, delta=1e-5) <= 1.0


@pytest.mark.parametrize("text", ["", "{", "[" * 5000, "\x00\xff", '{"question": 1}', "[]"])
def test_a_damaged_file_is_done_without(kept, text):
    truth = privacy.calibrate(MECHANISM, **BUDGET)
    (path,) = kept.iterdir()
    path.write_bytes(text.encode("latin-1"))
    forget()
    assert privacy.calibrate(MECHANISM, **BUDGET) == truth


def test_nothing_is_kept_where_the_folder_cannot_be_made_or_none_is_wanted(tmp_path, monkeypatch):
    blocked = tmp_path / "a file, not a folder"
    blocked.write_text("")
    for place in (str(blocked), ""):
        monkeypatch.setenv("PGBB_FAST_CACHE", place)
        forget()
        assert privacy.calibrate(MECHANISM, **BUDGET).epsilon <= 1.0
    assert os.listdir(tmp_path) == [blocked.name]
    forget()


def test_answers_of_other_sources_are_not_looked_at(kept, monkeypatch):
    privacy.calibrate(MECHANISM, **BUDGET)
    forget()
    monkeypatch.setattr(remembered, "_version", lambda: "another")
    privacy.calibrate(MECHANISM, **BUDGET)
    assert len(list(kept.iterdir())) == 2


def test_where_answers_are_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("PGBB_FAST_CACHE", str(tmp_path))
    assert remembered.folder() == tmp_path
    monkeypatch.setenv("PGBB_FAST_CACHE", "")
    assert remembered.folder() is None
    monkeypatch.delenv("PGBB_FAST_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert remembered.folder() == tmp_path / "pgbb_fast" / "calibrations"
