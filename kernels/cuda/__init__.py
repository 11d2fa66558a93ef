"""Numba kernels for NVIDIA GPUs; loops, memory and launches only, no formula.

``probe`` says whether there is a device that can be used, without raising.  The other modules need the package
numba-cuda (``pip install 'pgbb-fast[cuda]'``); importing this one doesn't import it.
"""
