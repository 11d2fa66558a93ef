"""Scalar formulas, written once and compiled for every device; only ``math`` and Python integers."""
