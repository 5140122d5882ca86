"""Kernels in Gluon, whose language changes with every Triton: they are for one version."""

from __future__ import annotations

from typing import Any

import triton

WRITTEN_FOR = "3.6."  # how the version of Triton begins

KERNELS: tuple[Any, ...] = ()
if triton.__version__.startswith(WRITTEN_FOR):
    from . import gluon_fprop, gluon_halo, gluon_halo_wgrad, gluon_wgrad

    KERNELS = tuple(
        module.SPEC for module in (gluon_fprop, gluon_halo, gluon_wgrad, gluon_halo_wgrad)
    )
