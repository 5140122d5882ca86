"""Kernels of pools."""
