"""The epilogue of a tile of sums: scale, shift, bias, residual, activation."""

import triton
import triton.language as tl

ACTIVATIONS = ("", "relu", "silu", "gelu", "hardswish")


@triton.jit
def activate(v, ACTIVATION: tl.constexpr):
    """Return the activation of float32 values; NaN stays NaN."""
    if ACTIVATION == "relu":
        v = tl.maximum(v, 0.0, propagate_nan=tl.PropagateNan.ALL)
    elif ACTIVATION == "silu":
        v = v / (1.0 + tl.exp(-v))
    elif ACTIVATION == "gelu":
        v = 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476))
    elif ACTIVATION == "hardswish":
        gate = tl.maximum(v + 3.0, 0.0, propagate_nan=tl.PropagateNan.ALL)
        gate = tl.minimum(gate, 6.0, propagate_nan=tl.PropagateNan.ALL)
        v = v * (gate * 0.16666666666666666)  # six times a large v would be infinite
    return v


@triton.jit
def as_row(vector):
    """Return a vector as a row; a tile as it is."""
    if len(vector.shape) == 1:
        return vector[None, :]
    else:
        return vector


@triton.jit
def finish(
    acc, bias, scale, shift, residual, channel, known, where, inside, ACTIVATION: tl.constexpr
):
    """Return the sums (rows, channels) after the epilogue; absent operands (None) cost nothing.

    `channel` indexes the per-channel vectors, as a vector or a tile, and `known` masks it; `where`
    and `inside` are the offsets and the mask of the residual.
    """
    if bias is not None:
        bias = as_row(tl.load(bias + channel, known, other=0.0).to(tl.float32))
    if scale is not None:
        scale = as_row(tl.load(scale + channel, known, other=0.0).to(tl.float32))
    if shift is not None:
        shift = as_row(tl.load(shift + channel, known, other=0.0).to(tl.float32))
    if residual is not None:
        residual = tl.load(residual + where, inside, other=0.0).to(tl.float32)
    return apply(acc, bias, scale, shift, residual, ACTIVATION)


@triton.jit
def apply(acc, bias, scale, shift, residual, ACTIVATION: tl.constexpr):
    """Return float32 sums after the epilogue, given its loaded operands; absent ones are None."""
    if bias is not None:
        acc += bias
    if scale is not None:
        acc *= scale
    if shift is not None:
        acc += shift
    if residual is not None:
        acc += residual
    return activate(acc, ACTIVATION)
