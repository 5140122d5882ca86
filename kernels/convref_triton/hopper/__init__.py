"""Warp-specialized kernels for Hopper, in Gluon."""

import triton

# By kernel: the release of Triton with which an H200 passed all its tests.
PROVEN = dict.fromkeys(("gluon_fprop", "gluon_halo", "gluon_wgrad", "gluon_halo_wgrad"), "3.6")


def is_proven(name: str) -> bool:
    """Return whether a card passed a kernel's tests, compiled by the installed Triton."""
    return triton.__version__.startswith(f"{PROVEN.get(name)}.")
