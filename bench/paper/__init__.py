"""The first paper's experiments: ``python -m bench.paper.run``."""
