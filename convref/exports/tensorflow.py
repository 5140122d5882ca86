"""A case as a program of plain TensorFlow."""

from collections.abc import Sequence

from ..case import Call, Case
from ..errors import UnsupportedError, message
from ..ops import ConvProblem, Problem
from ._forward import TENSORFLOW
from ._snippet import NAMES, Snippet
from ._tensors import nondefault, tuple_text


def to_tensorflow(case: Case) -> str:
    """Return a Python program that computes the case with TensorFlow alone and prints the results.

    Raises
    ------
    UnsupportedError
        If TensorFlow has no such function, dtype or derivative.

    Examples
    --------
    >>> from convref.case import parse
    >>> "y = tf.nn.gelu(x, approximate=False)" in to_tensorflow(
    ...     parse("gelu.fprop:n1c1_i3:fill=ones")
    ... ).replace("return", "y =")
    True
    """
    return _TensorFlow(case).text()


class _TensorFlow(Snippet):
    writer, framework, lister = "to_tensorflow", "TensorFlow", ".numpy().tolist()"
    jvp, zeros, module, maker = "jvp", "tf.zeros_like", "tf", "constant"
    forwards = TENSORFLOW
    names = {code: NAMES[code] for code in ("f16", "bf16", "f32", "f64")}

    def refusal(self, call: Call) -> str | None:
        if call.op in ("unfold", "fold"):
            return f"no program of TensorFlow for {call.op}"
        unlike = call.op == "conv" and (
            call.conv.transposed or call.conv.flip or min(map(min, call.conv.padding)) < 0
        )
        reason = "the program has no transposed, flipped or cropped convolution"
        return super().refusal(call) or (reason if unlike else None)

    def imports(self) -> list[str]:
        lines = ["import tensorflow as tf"]
        if self.call.pass_ == "jvp":
            lines += ["", *_JVP.splitlines()]
        return lines

    def conv(self, problem: ConvProblem) -> list[str]:
        axes = tuple(range(2, 2 + problem.rank))
        last, first = (0, *axes, 1), (0, 1 + problem.rank, *(a - 1 for a in axes))
        pads = [(0, 0), *problem.padding, (0, 0)]
        given = nondefault(dilations=(problem.dilation, (1,) * problem.rank))
        layout = {1: "NWC", 2: "NHWC", 3: "NDHWC"}[problem.rank]
        given += f', data_format="{layout}"'
        return [
            "def conv(x, w, b=None):",
            f"    x = tf.pad(tf.transpose(x, {last}), {pads})",
            f"    w = tf.transpose(w, {(*axes, 1, 0)})",
            f'    y = tf.nn.convolution(x, w, {problem.stride}, "VALID"{given})',
            f"    y = tf.transpose(y, {first})",
            f"    return y if b is None else y + tf.reshape(b, {(-1, *[1] * problem.rank)})",
        ]

    def windows(self, problem: Problem, unfolds: bool) -> list[str]:
        raise UnsupportedError(message(self.writer, "no program", self.call))

    def options(self, code: str) -> str:
        return f"tf.{self.names[code]}"

    def backward(self, inputs: str, by: Sequence[str]) -> list[str]:
        return [
            "with tf.GradientTape() as tape:",
            f"    tape.watch({tuple_text(by)})",
            f"    y = {self.name}({inputs})",
            f"{tuple_text(self.call.wanted)} = tape.gradient(y, {tuple_text(by)}, dy)",
        ]

    def double_backward(self, inputs: str, sources: dict[str, str]) -> list[str]:
        by, at = self.differentiated(), tuple_text(sources.values())
        outer = tuple_text(f"dd{name}" for name in by)
        return [
            "with tf.GradientTape() as outer:",
            f"    outer.watch({at})",
            "    with tf.GradientTape() as tape:",
            f"        tape.watch({tuple_text(by)})",
            f"        y = {self.name}({inputs})",
            f"    first = tape.gradient(y, {tuple_text(by)}, dy)",
            f"{tuple_text(sources)} = outer.gradient(",
            f'    first, {at}, {outer}, unconnected_gradients="zero"',
            ")",
        ]


_JVP = """\
def jvp(function, at, dots):
    with tf.autodiff.ForwardAccumulator(at, dots) as moving:
        y = function(*at)
    return y, moving.jvp(y, unconnected_gradients="zero")
"""
