"""Convolutions in Nabla with dilation, groups, transposed, and derivatives of every order in both modes.

A convolution is one form that is linear in each of three arrays, the sum of dy * conv(x, w) over all
elements. Its derivatives in dy, x and w are the passes fprop, dgrad and wgrad; the derivatives of
each pass are the other two. So three Operations are closed under vjp and jvp. Images are (N, C, H, W),
filters (K, C / groups, R, S).

    y = conv2d(x, w, stride=2, padding=1, dilation=2, groups=2)
    value, pullback = nabla.vjp(lambda x, w: conv2d(x, w), x, w)

It needs MAX, `pip install '.[max]'` in the folder of convref's sources, and Nabla.
"""

import nabla
from convref_mojo.max import graph as convref
from nabla.core import GRAPH
from nabla.ops.base import Operation

from convref.ops.window import output_size


class Pass(Operation):
    """One of the three passes; `result` is the shape of what it returns."""

    def __init__(self, pass_):
        self.pass_ = pass_

    @property
    def name(self):
        return f"convref_{self.pass_}"

    def kernel(self, args, kwargs):
        GRAPH.graph._kernel_library.load_paths([convref.OPS])
        of = {key: value for key, value in kwargs.items() if not key.endswith("shape")}
        of = convref.pairs(2, **of)
        of["transposed"], of["groups"] = of["transposed"][0], of["groups"][0]
        return convref.call(self.name.removeprefix("convref_"), args, [self.result(kwargs)], **of)

    def result(self, kwargs):
        return kwargs[f"{RESULT[self.pass_]}_shape"]

    def compute_physical_shape(self, args, kwargs, output_sharding=None):
        return [tuple(self.result(kwargs))], [args[0].dtype], [args[0].device]

    def vjp_rule(self, primals, cotangents, outputs, kwargs):
        roles = dict(zip(OPERANDS[self.pass_], primals))
        roles[RESULT[self.pass_]] = cotangents[0]
        return [PASSES[BY_RESULT[role]](pair(role, roles), kwargs)[0] for role in OPERANDS[self.pass_]]

    def jvp_rule(self, primals, tangents, outputs, kwargs):
        (a, b), (a_dot, b_dot) = primals, tangents
        return [self([a_dot, b], kwargs)[0] + self([a, b_dot], kwargs)[0]]


OPERANDS = {"conv_fprop": "x w", "conv_dgrad": "dy w", "conv_wgrad": "dy x"}
OPERANDS = {name: roles.split() for name, roles in OPERANDS.items()}
RESULT = {"conv_fprop": "dy", "conv_dgrad": "x", "conv_wgrad": "w"}
BY_RESULT = {role: name for name, role in RESULT.items()}
PASSES = {name: Pass(name) for name in RESULT}


def pair(role, roles):
    """Return the operands of the pass whose result has this role."""
    return [roles[other] for other in OPERANDS[BY_RESULT[role]]]
