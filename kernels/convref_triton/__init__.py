"""Triton kernels of convref's formulas: the backend "triton"."""
