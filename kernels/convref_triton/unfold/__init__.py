"""Kernels of unfold and fold."""
