"""Settings of the documentation: ``python -m sphinx -W --keep-going -b html docs OUT``."""

from pgbb_fast import __version__

project = "pgbb-fast"
author = "The pgbb-fast developers"
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
]
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
html_theme = "furo"
html_title = f"pgbb-fast {version}"

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings state types, shapes and units
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

doctest_test_doctest_blocks = "default"
doctest_global_setup = "import numpy as np\nfrom pgbb_fast import *\nfrom pgbb_fast.bootstrap import *"
suppress_warnings = ["ref.python"]  # `epsilon` in a docstring is a parameter, whichever class has one too


def bars(app, what, name, obj, options, lines):
    """|x| is an absolute value in docstrings, not a substitution."""
    for number, line in enumerate(lines):
        parts = line.split("``")
        parts[::2] = [part.replace("|", "\\|") for part in parts[::2]]
        lines[number] = line if line.lstrip().startswith(">>>") else "``".join(parts)


def setup(app):
    """Registers :func:`bars`."""
    app.connect("autodoc-process-docstring", bars, priority=900)
