"""Which kernels a launch takes: those over strips where they pack no more numbers than rows would."""

from correlate import Correlate, correlate_rows, plan_correlate_rows
from correlate_padded import correlate_strips, plan_correlate_strips
from gather import Gather, gather_rows, plan_gather_rows
from gather_planar import gather_planes, plan_gather_planes
from gather_padded import gather_strips, plan_gather_strips


def plan_gather[T: DType](mut g: Gather):
    plan_gather_rows[T](g)
    plan_gather_strips[T](g)
    plan_gather_planes[T](g)


def gather[T: DType](g: Gather, scratch: Int, low: Int, high: Int):
    if g.planar == 1:
        gather_planes[T](g, scratch, low, high)
    elif g.lines > 0:
        gather_strips[T](g, scratch, low, high)
    else:
        gather_rows[T](g, scratch, low, high)


def plan_correlate[T: DType](mut p: Correlate):
    plan_correlate_rows[T](p)
    plan_correlate_strips[T](p)


def correlate[T: DType](p: Correlate, scratch: Int, low: Int, high: Int):
    if p.lines > 0:
        correlate_strips[T](p, scratch, low, high)
    else:
        correlate_rows[T](p, scratch, low, high)
