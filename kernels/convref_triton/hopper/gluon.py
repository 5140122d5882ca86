"""The Gluon kernels, for one version of Triton: the language changes with every release."""

import triton

from ..plan.spec import KernelSpec

TRITON = "3.6."  # how the version begins that the kernels are written for

KERNELS: tuple[KernelSpec, ...] = ()
if triton.__version__.startswith(TRITON):
    from . import gluon_fprop, gluon_halo, gluon_halo_wgrad, gluon_wgrad

    KERNELS = (gluon_fprop.SPEC, gluon_halo.SPEC, gluon_wgrad.SPEC, gluon_halo_wgrad.SPEC)
