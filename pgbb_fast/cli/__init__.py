"""The command ``pgbb-fast``."""

from pgbb_fast.cli.main import main

__all__ = ["main"]
