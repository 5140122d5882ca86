"""A case as a program of plain NumPy, which has the formula but no derivatives."""

from collections.abc import Sequence

from ..case import Call, Case
from ..errors import UnsupportedError, message
from ..ops import ConvProblem, Problem
from ._forward import NUMPY
from ._snippet import NAMES, Snippet


def to_numpy(case: Case) -> str:
    """Return a Python program that computes a forward pass with NumPy alone and prints the result.

    Raises
    ------
    UnsupportedError
        If the pass is a derivative, or the op is neither a convolution nor a function of elements.

    Examples
    --------
    >>> from convref.case import parse
    >>> print(to_numpy(parse("relu.fprop:n1c1_i3:fill=ones")))
    # relu.fprop:n1c1_i3:fill=ones
    # in plain NumPy
    import numpy as np
    <BLANKLINE>
    def forward(x):
        return np.maximum(x, 0)
    <BLANKLINE>
    x = np.array([[[1.0, 1.0, 1.0]]], dtype=np.float32)
    y = forward(x)
    <BLANKLINE>
    print("y =", y.tolist())
    print("expected y =", [[[1.0, 1.0, 1.0]]])
    <BLANKLINE>
    """
    return _Numpy(case).text()


class _Numpy(Snippet):
    writer, framework, module = "to_numpy", "NumPy", "np"
    forwards = NUMPY
    names = {code: name for code, name in NAMES.items() if code != "bf16"}

    def refusal(self, call: Call) -> str | None:
        if call.pass_ != "fprop":
            return "NumPy has no derivatives"
        unlike = call.op in ("unfold", "fold") or (
            call.op == "conv"
            and (call.conv.transposed or call.conv.flip or min(map(min, call.conv.padding)) < 0)
        )
        reason = "the program has no transposed, flipped or cropped convolution"
        return super().refusal(call) or (reason if unlike else None)

    def imports(self) -> list[str]:
        return ["import numpy as np"]

    def conv(self, problem: ConvProblem) -> list[str]:
        rank, groups = problem.rank, problem.groups
        pads = [(0, 0), (0, 0), *problem.padding]
        c, k = problem.c // groups, problem.k // groups
        steps = ", ".join(
            f"slice(t[{a}] * {d}, t[{a}] * {d} + {(o - 1) * s + 1}, {s})"
            for a, (d, o, s) in enumerate(zip(problem.dilation, problem.output, problem.stride))
        )
        return [
            "def conv(x, w, b=None):",
            f"    x, y = np.pad(x, {pads}), np.zeros({problem.shape('y')})",
            f"    for g in range({groups}):",
            f"        for t in np.ndindex{problem.filter}:",
            f"            taps = w[g * {k} : (g + 1) * {k}][(..., *t)]",
            f"            part = x[:, g * {c} : (g + 1) * {c}][(..., {steps})]",
            '            sums = np.einsum("nc...,kc->nk...", part, taps)',
            f"            y[:, g * {k} : (g + 1) * {k}] += sums",
            f"    return y if b is None else y + b.reshape({(-1, *[1] * rank)})",
        ]

    def windows(self, problem: Problem, unfolds: bool) -> list[str]:
        raise UnsupportedError(message(self.writer, "no program", self.call))

    def backward(self, inputs: str, by: Sequence[str]) -> list[str]:
        raise AssertionError("refused")

    def double_backward(self, inputs: str, sources: dict[str, str]) -> list[str]:
        raise AssertionError("refused")
