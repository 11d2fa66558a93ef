"""Saved posteriors on disk: a JSON file and a file of arrays, written together and believed only when whole.

``posterior.json`` begins with the SHA-256 of its own bytes (zeros in place of the digest), and holds the SHA-256 of the
file of arrays, which is named after it: ``posterior-<first 16 digits>.safetensors``.  The JSON file is replaced last,
in one step, so a folder holds the earlier pair or the new one, whatever interrupts the writing.

Digests tell damage, mixed-up files and edited text.  They are no signature: who rewrites both files and computes the
digests again can state anything that has the right form.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgbb_fast import validation as check
from pgbb_fast.errors import DomainError

__all__ = [
    "DESCRIPTION",
    "as_path",
    "is_sealed",
    "read_pair",
    "replace_file",
    "require_writable_file",
    "require_writable_folder",
    "sealed_json",
    "write_pair",
]

DESCRIPTION = "posterior.json"
FORMAT = 3
NO_DIGEST = "0" * 64
LONGEST_PATH = 4096
HEAD = b'{\n "sha256": "'
ARRAYS = re.compile(r"posterior-[0-9a-f]{16}\.safetensors")


def as_path(who: str, name: str, value: object) -> Path:
    """``value`` as a path; refuses what names none."""
    if isinstance(value, (str, os.PathLike)):
        try:
            text = os.fspath(value)
            if isinstance(text, str) and 0 < len(text) <= LONGEST_PATH and b"\0" not in os.fsencode(text):
                return Path(text)
        except Exception:  # what only claims to be a path
            text = ""
    raise DomainError(f"{who}: {name} must be a path")


def _cannot(who: str, path: Path, reason: str | None) -> DomainError:
    return DomainError(f"{who}: {path} can't be written to ({reason}); choose another place")


def require_writable_folder(who: str, folder: Path) -> None:
    """Make ``folder`` and try to write into it, before anything is spent; leaves nothing in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        trial = folder / _temporary("trial")
        os.close(os.open(trial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        trial.unlink()
    except OSError as error:
        raise _cannot(who, folder, error.strerror) from None


def require_writable_file(who: str, path: Path) -> None:
    """The same for a file that is to be made or replaced."""
    require_writable_folder(who, path.parent)
    try:
        if path.exists():
            os.close(os.open(path, os.O_WRONLY))
    except OSError as error:
        raise _cannot(who, path, error.strerror) from None


def _temporary(name: str) -> str:
    return f".{name}.{secrets.token_hex(8)}.tmp"


def replace_file(path: Path, content: bytes) -> None:
    """Write ``path`` in one step, with the mode that any new file of this user gets."""
    temporary = path.with_name(_temporary(path.name))
    try:
        number = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), 0o666)
        with open(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(number)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _arrays_name(digest: str) -> str:
    return f"posterior-{digest[:16]}.safetensors"


def _named(path: Path) -> str | None:
    """The file of arrays that an earlier ``posterior.json`` names, if it does."""
    try:
        name = json.loads((path / DESCRIPTION).read_bytes())["arrays"]["file"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return name if isinstance(name, str) and ARRAYS.fullmatch(name) else None


def write_pair(who: str, folder: object, description: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Path:
    """Write both files into ``folder``, made if need be; an earlier pair there is replaced once the new one is whole.

    Raises
    ------
    DomainError
        ``folder`` is a file, or can't be written to.  What was there is as it was.
    """
    from safetensors.numpy import save

    path = as_path(who, "folder", folder)
    content = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    digest = hashlib.sha256(content).hexdigest()
    name = _arrays_name(digest)
    text = sealed_json({"format": FORMAT, "arrays": {"file": name, "sha256": digest}, **description})
    try:
        path.mkdir(parents=True, exist_ok=True)
        earlier = _named(path)
        try:
            replace_file(path / name, content)
            replace_file(path / DESCRIPTION, text)
        except BaseException:
            if name != earlier and _named(path) != name:
                (path / name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise _cannot(who, path, error.strerror) from None
    if earlier is not None and earlier != name:
        with contextlib.suppress(OSError):  # an old file that can't be removed does no harm
            (path / earlier).unlink(missing_ok=True)
    return path


def sealed_json(values: Mapping[str, Any]) -> bytes:
    """``values`` as JSON that begins with the SHA-256 of its own bytes, zeros in place of the digest."""
    return _sealed((json.dumps({"sha256": NO_DIGEST, **values}, indent=1, allow_nan=False) + "\n").encode())


def is_sealed(text: bytes) -> bool:
    """Whether ``text`` is as :func:`sealed_json` wrote something, to the byte."""
    return text.startswith(HEAD) and _sealed(text) == text


def _sealed(text: bytes) -> bytes:
    """``text`` with its digest, over itself with zeros there, in its head."""
    start, end = len(HEAD), len(HEAD) + len(NO_DIGEST)
    blank = text[:start] + NO_DIGEST.encode() + text[end:]
    return text[:start] + hashlib.sha256(blank).hexdigest().encode() + text[end:]


def _refused(constant: str) -> float:
    raise ValueError(constant)


def read_pair(who: str, folder: object) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What :func:`write_pair` wrote: JSON and arrays; executes nothing.

    Raises
    ------
    DomainError
        No such folder, a file missing, another format, or a digest that isn't the one stated.
    """
    path = as_path(who, "folder", folder)
    text = _read(who, path, DESCRIPTION)
    if not text.startswith(HEAD):
        raise DomainError(f"{who}: {path / DESCRIPTION} {_other_format(text)}")
    if _sealed(text) != text:
        raise DomainError(f"{who}: {path / DESCRIPTION} was changed or damaged, its checksum isn't that of its text")
    try:
        description = json.loads(text, parse_constant=_refused)
        stated, digest = description["format"], description["arrays"]["sha256"]
        name = description["arrays"]["file"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DomainError(f"{who}: {path / DESCRIPTION} describes no posterior") from None
    if stated != FORMAT:
        raise DomainError(f"{who}: {path / DESCRIPTION} has format {check.shown(stated)}, this version reads {FORMAT}")
    if not isinstance(digest, str) or name != _arrays_name(digest):
        raise DomainError(f"{who}: {path / DESCRIPTION} names no file of arrays")
    content = _read(who, path, name)
    if hashlib.sha256(content).hexdigest() != digest:
        raise DomainError(f"{who}: {path / name} was changed or damaged, or is another posterior's: wrong checksum")
    return description, _arrays(who, path / name, content)


def _other_format(text: bytes) -> str:
    """What is wrong with JSON that doesn't begin as this version's does."""
    try:
        stated = json.loads(text)["format"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "was changed or damaged"
    if stated == 2:
        return f"has format 2, which had no checksums; this version reads {FORMAT}: save it again"
    return f"was changed, or has another format than {FORMAT}, which this version reads"


def _read(who: str, folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except FileNotFoundError:
        raise DomainError(f"{who}: {folder} is no saved posterior, {name} is missing") from None
    except NotADirectoryError:
        raise DomainError(f"{who}: {folder} is a file; give the folder that holds {DESCRIPTION}") from None
    except OSError as error:
        raise DomainError(f"{who}: {folder / name} can't be read ({error.strerror})") from None


def _arrays(who: str, path: Path, content: bytes) -> dict[str, NDArray[Any]]:
    """Arrays of the file, in memory of their own: floats, none of them not a number."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays = {name: np.array(array) for name, array in load(content).items()}
    except (SafetensorError, ValueError, KeyError, TypeError, MemoryError):
        raise DomainError(f"{who}: {path} holds no arrays that can be read") from None
    for name, array in arrays.items():
        if array.dtype not in (np.float64, np.float32) or np.isnan(array).any():
            raise DomainError(f"{who}: {path} holds {name!r}, which is not all numbers")
    return arrays
