"""Every pass from a forward function and a library's derivatives, here torch's."""

from math import prod

import pytest

from convref import Numerics, judge, parse
from convref.backends import Autodiff
from convref.conformance.generate import Axes
from convref.conformance.operands import operands

torch = pytest.importorskip("torch", reason="needs torch")
F = torch.nn.functional


def vjp(function, at, cotangents):
    """Also request results that depend on no operand: the class has to return zeros."""
    at = {role: a if a.requires_grad else a.detach().requires_grad_() for role, a in at.items()}
    with torch.enable_grad():
        results = function(at)
        outputs, dys = zip(*((results[role], dy) for role, dy in cotangents.items()))
        kept = [i for i, y in enumerate(outputs) if y.requires_grad]
        if not kept:
            return [None for _ in at]
        return torch.autograd.grad(
            [outputs[i] for i in kept], list(at.values()), [dys[i] for i in kept],
            create_graph=True, allow_unused=True,
        )  # fmt: skip


LIBRARY = Autodiff(
    tensor=lambda array: torch.from_numpy(array.copy()),  # which has no negative strides
    array=lambda tensor: tensor.detach().numpy(),
    vjp=vjp,
    jvp=lambda function, at, tangents: torch.func.jvp(function, (at,), (tangents,)),
)


def conv(problem, x, w, b):
    options = {"stride": problem.stride, "dilation": problem.dilation, "groups": problem.groups}
    x = F.pad(x, [edge for pair in reversed(problem.padding) for edge in pair])
    return {"y": getattr(F, f"conv{problem.rank}d")(x, w, b, **options)}


def layer_norm(problem, x, w, b):
    axes = list(range(1, x.ndim))
    mean = x.mean(axes, keepdim=True)
    rstd = torch.rsqrt((x - mean).square().mean(axes, keepdim=True) + problem.eps)
    y = (x - mean) * rstd
    y = y if w is None else y * w
    y = y if b is None else y + b
    return {"y": y, "mean": mean.reshape(-1), "rstd": rstd.reshape(-1)}


def unfold(problem, x):
    options = {"dilation": problem.dilation, "stride": problem.stride}
    x = F.pad(x, [edge for pair in reversed(problem.padding) for edge in pair])
    return {"cols": F.unfold(x, problem.filter, **options)}


def max_pool(problem, x):
    pool = getattr(F, f"max_pool{problem.rank}d")
    y, indices = pool(x, problem.filter, problem.stride, return_indices=True)
    return {"y": y, "indices": indices.int()}


def cross_entropy(problem, x, w, target):
    loss = F.cross_entropy(x, target, w, reduction="none", ignore_index=problem.ignore_index)
    return {"y": loss}


OPS = {
    "conv": conv,
    "layer_norm": layer_norm,
    "unfold": unfold,
    "max_pool": max_pool,
    "adaptive_avg_pool": lambda problem, x: {
        "y": getattr(F, f"adaptive_avg_pool{problem.rank}d")(x, problem.output)
    },
    "silu": lambda problem, x: {"y": F.silu(x)},
    "cross_entropy": cross_entropy,
}


def unlike(problem):
    """Return whether the formulas above do not support the problem."""
    sizes = (*problem.shape("x"), getattr(problem, "k", 1))
    edges = [edge for pair in getattr(problem, "padding", ()) for edge in pair]
    switches = ("transposed", "flip", "ceil", "label_smoothing")
    pool = problem.name == "max_pool"
    return (
        any(getattr(problem, switch, 0) for switch in switches)
        or not prod(sizes)
        or min(edges, default=0) < 0
        or (problem.name == "unfold" and problem.rank != 2)
        or (pool and (any(edges) or set(problem.dilation) != {1}))
        or getattr(problem, "reduction", "none") != "none"
    )


class Library:
    name = "autodiff"

    def supports(self, call):
        return "not said" if unlike(call.problem) else None

    def run(self, call, *given):
        return LIBRARY.run(OPS[call.op], call, *given)

    def numerics(self, call):
        return Numerics("rn64")


# What torch's forward mode does to itself when it first runs.
quiet = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


@quiet
@pytest.mark.parametrize("op", OPS)
def test_each_pass_is_right(op, right):
    right(Library(), Axes(6, (op,), dtypes=("f64",), fills=("int", "normal"), size=48), 2)


@quiet
@pytest.mark.parametrize(
    "line",
    [
        "conv.backward:n1c2k1_i4_f2:dt=f64:mask=101",
        "conv.jvp:n1c1k1_i2_f1:dt=f64:tan=b",
        "conv.jvp:n1c1k1_i2_f1:dt=f64:tan=0",
        "conv.double_backward:n1c1k1_i2_f1:dt=f64:tan=b:mask=111",
        "conv.double_backward:n1c1k1_i2_f1:dt=f64:tan=0:mask=110",
        "layer_norm.backward:n2c3_i4:weight=0:bias=0:dt=f64:mask=010",
        "layer_norm.double_backward:n2c3_i4:weight=0:dt=f64:mask=101",
    ],
)
def test_derivatives_with_masks_and_absent_tangents(line):
    call = parse(line).call
    given = operands(parse(line))
    verdict = judge(call, given, Library().run(call, *given), Numerics("rn64"))
    assert verdict, verdict.reason


def test_only_masked_in_derivatives_are_requested():
    asked = []

    def recorded(function, at, cotangents):
        asked.append((*at, *cotangents))
        return vjp(function, at, cotangents)

    case = parse("conv.double_backward:n1c1k1_i2_f1:dt=f64:tan=w:mask=010")
    library = Autodiff(LIBRARY.tensor, LIBRARY.array, recorded)
    library.run(conv, case.call, *operands(case))
    assert asked == [("x", "w"), ("w", "y")]


def test_a_library_without_jvp_has_three_passes():
    assert LIBRARY.passes == ("fprop", "backward", "double_backward", "jvp")
    library = Autodiff(LIBRARY.tensor, LIBRARY.array, LIBRARY.vjp)
    assert library.passes == ("fprop", "backward", "double_backward")
