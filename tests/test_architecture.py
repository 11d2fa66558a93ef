"""The house: packages, module sizes, what importing brings in."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LONGEST_MODULE = 400


def python(code: str) -> str:
    """Standard output of ``code`` in a fresh interpreter."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_packages_named_in_pyproject_are_those_in_the_tree():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    ours = [p.parent for p in (ROOT / "pgbb_fast").rglob("__init__.py") if "kernels" not in p.parts]
    kernels = [p.parent for p in (ROOT / "kernels").rglob("__init__.py")]
    found = {".".join(p.relative_to(ROOT).parts) for p in ours}
    found |= {".".join(("pgbb_fast", *p.relative_to(ROOT).parts)) for p in kernels}
    assert sorted(declared) == sorted(found)


def test_modules_are_short():
    modules = [*(ROOT / "pgbb_fast").rglob("*.py"), *(ROOT / "kernels").rglob("*.py")]
    long = {p.name: n for p in modules if (n := len(p.read_text().splitlines())) > LONGEST_MODULE}
    assert not long


@pytest.mark.parametrize(
    "module", ["pgbb_fast", "pgbb_fast.accountant", "pgbb_fast.cli", "pgbb_fast.data", "pgbb_fast.kernels"]
)
def test_light_imports_bring_in_neither_torch_nor_numba(module):
    out = python(f"import sys, {module}; print(sorted({{'torch', 'numba'}} & set(sys.modules)))")
    assert out.strip() == "[]"


@pytest.mark.slow
def test_every_public_name_is_there():
    out = python("import pgbb_fast; print(all(getattr(pgbb_fast, name) is not None for name in pgbb_fast.__all__))")
    assert out.strip() == "True"


def test_an_unknown_name_is_an_attribute_error():
    import pgbb_fast

    with pytest.raises(AttributeError, match="no_such_name"):
        _ = pgbb_fast.no_such_name
