"""Kernels that only a measurement chooses: in Gluon, whose language changes with every Triton.

They are offered to a tuner on a card that runs them, and taken for a call where that found them
faster. A Triton that has another Gluon has none of them but what another one has compiled.
"""

from __future__ import annotations

from typing import Any

import triton

from ..conv import im2col

WRITTEN_FOR = "3.6."  # how the version of Triton begins
UNMEASURED = "taken only where it was measured to be the fastest"

KERNELS: dict[str, tuple[Any, ...]] = {}
CARRIED = {"gather": (im2col,), "scatter": (im2col,)}  # compiled already, for any Triton
if triton.__version__.startswith(WRITTEN_FOR):
    from . import gluon_fprop, gluon_halo, gluon_halo_wgrad, gluon_wgrad

    KERNELS = {
        "gather": (gluon_fprop, gluon_halo),
        "scatter": (gluon_fprop, gluon_halo),
        "correlate": (gluon_wgrad, gluon_halo_wgrad),
    }


def offered(kind: str) -> tuple[Any, ...]:
    """Return the kernels of a kind of sum."""
    return (*KERNELS.get(kind, ()), *CARRIED.get(kind, ()))


def every() -> list[Any]:
    """Return all of them."""
    return [kernel for kind in {**KERNELS, **CARRIED} for kernel in offered(kind)]
