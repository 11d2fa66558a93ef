"""Answers of the accountant that are kept on disk: functions of public numbers only.

A calibration takes seconds and depends on public numbers alone (n, the budget, the mechanism), so its answer is kept
for the next process.  What is kept is a *proposal*: whoever uses it checks that it holds (a calibrated noise
multiplier is put to the accountant again, which takes one evaluation instead of a search), so that a file that was
damaged, edited or made by another version costs time, never the guarantee.

Files lie in $PGBB_FAST_CACHE, else $XDG_CACHE_HOME/pgbb_fast/calibrations, else ~/.cache/pgbb_fast/calibrations; an
empty $PGBB_FAST_CACHE, or a folder that can't be written, means that nothing is kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["folder", "remembered"]

T = TypeVar("T")
SOURCES = Path(__file__).resolve().parent


def folder() -> Path | None:
    """Where answers are kept; None: nowhere."""
    chosen = os.environ.get("PGBB_FAST_CACHE")
    if chosen is not None:
        return Path(chosen) if chosen else None
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        root = Path(base) if base else Path.home() / ".cache"
    except RuntimeError:  # no home
        return None
    return root / "pgbb_fast" / "calibrations"


@cache
def _version() -> str:
    """Digest of the accountant's sources: an answer of another version isn't looked at."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.rglob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def remembered(name: str, question: Any, compute: Callable[[], Any], use: Callable[[Any], T | None]) -> T | None:
    """``use(answer)`` for the kept answer, or for ``compute()``'s, which is then kept if it holds.

    Parameters
    ----------
    name : str
        Of the kind of question.
    question : JSON-able
        The public numbers on which the answer depends.
    compute : callable
        The answer, JSON-able.
    use : callable
        What is made of an answer, or None if it doesn't hold; may raise for a kept one, which then counts as not there.
    """
    text = json.dumps([name, question, _version()], sort_keys=True, default=str)
    place = folder()
    path = None if place is None else place / f"{hashlib.sha256(text.encode()).hexdigest()}.json"
    found = None if path is None else _tried(use, _read(path, text))
    if found is not None:
        return found
    answer = compute()
    result = use(answer)
    if path is not None and result is not None:
        _write(path, {"question": text, "answer": answer})
    return result


def _read(path: Path, text: str) -> Any:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return kept["answer"] if kept["question"] == text else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _tried(use: Callable[[Any], T | None], answer: Any) -> T | None:
    if answer is None:
        return None
    try:
        return use(answer)
    except Exception:  # not an answer of this version's, whatever it is
        return None


def _write(path: Path, content: dict[str, Any]) -> None:
    """Whole or not at all, readable by its owner only."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(content, file)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError:
        return
