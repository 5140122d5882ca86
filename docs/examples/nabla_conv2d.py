"""Convolutions in Nabla: dilation, groups, transposed, and all derivatives in both modes.

A convolution is one form that is linear in each of three arrays, the sum of dy * conv(x, w) over
all elements. Its derivatives in dy, x and w are the passes fprop, dgrad and wgrad, and the
derivatives of each pass are the other two: three Operations are closed under vjp and jvp. Images
are (N, C, H, W), filters (K, C / groups, R, S), of transposed convolutions (C, K / groups, R, S).

    y = conv2d(x, w, stride=2, padding=1, dilation=2, groups=2)
    dx, dw = nabla.grad(lambda x, w: nabla.reduce_sum(conv2d(x, w)), argnums=(0, 1))(x, w)

It needs Nabla, and MAX: `pip install '.[max]'` in the folder of convref's sources.
"""

import nabla
from nabla.core import GRAPH
from nabla.ops.base import Operation

from convref.ops.window import output_size
from convref_mojo.max import graph as convref

# By pass: the roles of its operands and its result.
ROLES = {
    "conv_fprop": ("x", "w", "dy"),
    "conv_dgrad": ("dy", "w", "x"),
    "conv_wgrad": ("dy", "x", "w"),
}
PASS_OF = {result: name for name, (*_, result) in ROLES.items()}


class Pass(Operation):
    """One of the three passes; the keywords are the geometry, and the shapes of x, w and dy."""

    def __init__(self, pass_):
        self.pass_ = pass_

    @property
    def name(self):
        return f"convref_{self.pass_}"

    def shape(self, kwargs):
        return tuple(kwargs[ROLES[self.pass_][-1]])

    def kernel(self, args, kwargs):
        GRAPH.graph._kernel_library.load_paths([convref.OPS])
        of = convref.pairs(2, **{key: kwargs[key] for key in ("stride", "padding", "dilation")})
        of |= {key: kwargs[key] for key in ("groups", "transposed")}
        bias = [None] if self.pass_ == "conv_fprop" else []
        return convref.call(self.pass_, [*args, *bias], [self.shape(kwargs)], **of)

    def compute_physical_shape(self, args, kwargs, output_sharding=None):
        return [self.shape(kwargs)], [args[0].dtype], [args[0].device]

    def vjp_rule(self, primals, cotangents, outputs, kwargs):
        arrays = dict(zip(ROLES[self.pass_], (*primals, *cotangents)))
        return [compute(role, arrays, kwargs) for role in ROLES[self.pass_][:2]]

    def jvp_rule(self, primals, tangents, outputs, kwargs):
        (a, b), (a_dot, b_dot) = primals, tangents
        return [self([a_dot, b], kwargs)[0] + self([a, b_dot], kwargs)[0]]


PASSES = {name: Pass(name) for name in ROLES}


def compute(role, arrays, kwargs):
    """Return the array of a role from those of the other two."""
    name = PASS_OF[role]
    return PASSES[name]([arrays[other] for other in ROLES[name][:2]], kwargs)[0]


def conv2d(
    x,
    w,
    bias=None,
    *,
    stride=1,
    padding=0,
    dilation=1,
    groups=1,
    transposed=False,
    output_padding=0,
):
    of = {"stride": stride, "padding": padding, "dilation": dilation, "extra": output_padding}
    of = {key: [value] * 2 if isinstance(value, int) else list(value) for key, value in of.items()}
    n, _, *sizes = x.shape
    axes = zip(sizes, w.shape[2:], *of.values())
    if transposed:
        out = [(i - 1) * s - 2 * p + d * (r - 1) + 1 + e for i, r, s, p, d, e in axes]
    else:
        out = [output_size(i, r, s, d, p, p) for i, r, s, p, d, _ in axes]
    k = w.shape[1] * groups if transposed else w.shape[0]
    shapes = {"x": [*x.shape], "w": [*w.shape], "dy": [n, k, *out]}
    shapes = {role: [int(size) for size in shape] for role, shape in shapes.items()}
    del of["extra"]
    kwargs = {**of, "groups": groups, "transposed": transposed, **shapes}
    y = compute("dy", {"x": x, "w": w}, kwargs)
    return y if bias is None else y + nabla.reshape(bias, (shapes["dy"][1], 1, 1))
