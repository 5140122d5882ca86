"""Warp-specialized kernels for Hopper, in Gluon."""

import triton

# Whether an H200 passed the tests of these kernels with this Triton.
PROVEN = triton.__version__.startswith("3.6.")
