"""Choice of the algorithm of a convolution: the padded input if it has no more elements than im2col."""

from correlate import Correlate, correlate_im2col, plan_correlate_im2col
from correlate_padded import correlate_padded, plan_correlate_padded
from gather import Gather, gather_im2col, plan_gather_im2col
from gather_planar import gather_planar, plan_gather_planar
from gather_padded import gather_padded, plan_gather_padded


def plan_gather[T: DType](mut g: Gather):
    plan_gather_im2col[T](g)
    plan_gather_padded[T](g)
    plan_gather_planar[T](g)


def gather[T: DType](g: Gather, scratch: Int, low: Int, high: Int):
    if g.planar == 1:
        gather_planar[T](g, scratch, low, high)
    elif g.lines > 0:
        gather_padded[T](g, scratch, low, high)
    else:
        gather_im2col[T](g, scratch, low, high)


def plan_correlate[T: DType](mut p: Correlate):
    plan_correlate_im2col[T](p)
    plan_correlate_padded[T](p)


def correlate[T: DType](p: Correlate, scratch: Int, low: Int, high: Int):
    if p.lines > 0:
        correlate_padded[T](p, scratch, low, high)
    else:
        correlate_im2col[T](p, scratch, low, high)
