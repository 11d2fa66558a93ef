"""Compiled record kernels: the only code that reads records after validation.

``scalar``     one record at a time, undecorated, only ``math``: losses, clipping, counter-based random bits
``reference``  obvious NumPy: the specification of every kernel
``cpu``        loops, memory and launches for Numba on the CPU; no formula
``cuda``       the same for NVIDIA GPUs, through numba-cuda

Importing this package imports neither Numba nor torch.
"""
