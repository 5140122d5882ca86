"""Kernels of resizing."""
