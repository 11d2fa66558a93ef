"""Speed and coverage studies, run from the repository's root: ``python -m bench.coverage``."""
