"""Choice of the algorithm of a convolution: the padded input if it has no more elements than im2col."""

from correlate import correlate_im2col, plan_correlate_im2col
from correlate_padded import correlate_padded, plan_correlate_padded
from gather import gather_im2col, plan_gather_im2col
from gather_planar import gather_planar, plan_gather_planar
from gather_padded import gather_padded, plan_gather_padded
from windows import Conv


def plan_gather[T: DType](mut p: Conv):
    plan_gather_im2col[T](p)
    plan_gather_padded[T](p)
    plan_gather_planar[T](p)


def gather[T: DType](p: Conv, scratch: Int, low: Int, high: Int):
    if p.planar == 1:
        gather_planar[T](p, scratch, low, high)
    elif p.lines > 0:
        gather_padded[T](p, scratch, low, high)
    else:
        gather_im2col[T](p, scratch, low, high)


def plan_correlate[T: DType](mut p: Conv):
    plan_correlate_im2col[T](p)
    plan_correlate_padded[T](p)


def correlate[T: DType](p: Conv, scratch: Int, low: Int, high: Int):
    if p.lines > 0:
        correlate_padded[T](p, scratch, low, high)
    else:
        correlate_im2col[T](p, scratch, low, high)
