"""Triton kernels of convref's formulas, behind the backend called "triton"."""
