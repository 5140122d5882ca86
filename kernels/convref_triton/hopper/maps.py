"""Copies through tensor maps, under the name that Gluon had for them before Triton 3.9."""

from triton.experimental.gluon.language.nvidia.hopper import tma

# Since Triton 3.8; the earlier name stays in the kernels, whose times hold for their source.
RENAMED = getattr(tma, "async_load", None)
async_copy_global_to_shared = RENAMED or tma.async_copy_global_to_shared
