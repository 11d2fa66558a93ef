"""``python -m pgbb_fast`` is the command ``pgbb-fast``."""

from pgbb_fast.cli import main

main()
