"""The list of all kernels: the `KernelSpec` at the end of each kernel's file."""

from functools import cache

from ..activation import activation
from ..conv import (
    bgrad,
    blocks,
    blocks_wgrad,
    classes,
    columns,
    direct,
    direct_wgrad,
    dual,
    flat,
    gather,
    integer,
    planes,
    planes_wgrad,
    scaled,
    split,
    tma,
    wgrad,
)
from ..depthwise import depthwise, depthwise_strided, depthwise_taps, depthwise_wgrad
from ..hopper import gluon, im2col
from ..norm import norm, rows
from ..pool import pool, unpool
from ..resize import resize
from ..unfold import unfold
from .spec import KernelSpec

# The earlier one is preferred where estimates tie; of each kind, one kernel accepts every task.
KERNELS: tuple[KernelSpec, ...] = (
    depthwise.SPEC,
    depthwise_strided.SPEC,
    direct.SPEC,
    blocks.SPEC,
    classes.SPEC,
    flat.SPEC,
    dual.SPEC,
    columns.SPEC,
    planes.SPEC,
    split.SPEC,
    *gluon.KERNELS,
    *gluon.ABSENT,
    im2col.SPEC,
    tma.SPEC,
    gather.SPEC,
    depthwise_taps.SPEC,
    depthwise_wgrad.SPEC,
    blocks_wgrad.SPEC,
    planes_wgrad.SPEC,
    direct_wgrad.SPEC,
    wgrad.SPEC,
    bgrad.SPEC,
    unfold.SPEC,
    integer.SPEC,
    scaled.SPEC,
    pool.SPEC,
    unpool.SPEC,
    norm.SPEC,
    rows.SPEC,
    activation.SPEC,
    resize.SPEC,
)
BY_NAME = {spec.name: spec for spec in KERNELS}


def source(spec: KernelSpec) -> str:
    """Return the digest of a kernel's source, whatever was planned before.

    Triton's key of a function depends on which of the functions that it calls had a key before, so
    that all are taken in one order.
    """
    _every()
    return spec.source


@cache
def _every() -> tuple[str, ...]:
    return tuple(spec.source for spec in KERNELS)


def serving(kind: str) -> list[KernelSpec]:
    """Return the kernels of a kind of task, unproven ones last."""
    return sorted((s for s in KERNELS if kind in s.serves), key=lambda spec: spec.unproven)
