"""A case as a program of plain PyTorch."""

from collections.abc import Iterable, Sequence

from .. import dtypes
from ..case import Case, Spec, axis_letters
from ..errors import UnsupportedError, message
from ..ops import ConvProblem, Problem, Sizes
from ._forward import TORCH, torch_results
from ._snippet import Snippet
from ._tensors import nondefault, tuple_text


def to_torch(case: Case, *, threads: int = 0) -> str:
    """Return a Python program that computes the case with PyTorch alone and prints the results.

    Parameters
    ----------
    case : Case
    threads : int
        Number of threads that the program sets; 0 leaves the default of PyTorch.

    Raises
    ------
    UnsupportedError
        If PyTorch has no such dtype, math or derivative.

    Examples
    --------
    >>> from convref.case import parse
    >>> print(to_torch(parse("conv.dgrad:n1c1k1_i3_f2:fill=ones")))
    # conv.dgrad:n1c1k1_i3_f2:fill=ones
    # in plain PyTorch
    import torch
    import torch.nn.functional as F
    <BLANKLINE>
    def conv(x, w, b=None):
        return F.conv1d(x, w, b)
    <BLANKLINE>
    dy = torch.tensor([[[1.0, 1.0]]], dtype=torch.float32)
    x = torch.tensor([[[1.0, 1.0, 1.0]]], dtype=torch.float32)
    w = torch.tensor([[[1.0, 1.0]]], dtype=torch.float32)
    x.requires_grad_()
    (dx,) = torch.autograd.grad(conv(x, w), (x,), dy)
    <BLANKLINE>
    print("dx =", dx.tolist())
    print("expected dx =", [[[1.0, 2.0, 1.0]]])
    <BLANKLINE>
    """
    program = _Torch(case)
    program.threads = threads
    return program.text()


class _Torch(Snippet):
    writer, framework = "to_torch", "PyTorch"
    jvp, zeros, module, maker = "torch.func.jvp", "torch.zeros_like", "torch", "tensor"
    threads = 0
    forwards = TORCH

    def fprop(self, inputs: str) -> list[str]:
        if self.call.op == "conv":
            return super().fprop(inputs)
        try:
            lines, self.computed = torch_results(self.call.op, self.call.problem)
        except LookupError as error:
            raise UnsupportedError(message(self.writer, str(error.args[0]), self.call)) from None
        return lines if len(self.computed) > 1 else super().fprop(inputs)

    def imports(self) -> list[str]:
        lines = ["import torch", "import torch.nn.functional as F"]
        lines += ["", f"torch.set_num_threads({self.threads})"] if self.threads else []
        if self.call.specs[0].device == "cuda":
            allow = self.call.math == "tf32"
            lines += ["", f"torch.backends.cudnn.allow_tf32 = {allow}"]
            lines += [f"torch.backends.cuda.matmul.allow_tf32 = {allow}"]
        return lines

    def conv(self, problem: ConvProblem) -> list[str]:
        rank = problem.rank
        ones, zeros = (1,) * rank, (0,) * rank
        symmetric = all(lo == hi >= 0 for lo, hi in problem.padding)
        lines = ["def conv(x, w, b=None):"]
        if problem.flip:
            lines.append(f"    w = torch.flip(w, {tuple(range(2, 2 + rank))})")
        keywords = nondefault(
            stride=(problem.stride, ones),
            padding=(tuple(lo for lo, _ in problem.padding) if symmetric else zeros, zeros),
            output_padding=(problem.output_padding if symmetric else zeros, zeros),
            dilation=(problem.dilation, ones),
            groups=(problem.groups, 1),
        )
        if not problem.transposed:
            if not symmetric:
                lines.append(f"    x = {_padded('x', problem.padding)}")
            return [*lines, f"    return F.conv{rank}d(x, w, b{keywords})"]
        if symmetric:
            return [*lines, f"    return F.conv_transpose{rank}d(x, w, b{keywords})"]
        crop = [(-lo, e - hi) for (lo, hi), e in zip(problem.padding, problem.output_padding)]
        return [
            *lines,
            f"    y = F.conv_transpose{rank}d(x, w{keywords})",
            f"    y = {_padded('y', crop)}",
            f"    return y if b is None else y + b.reshape(-1{', 1' * rank})",
        ]

    def windows(self, problem: Problem, unfolds: bool) -> list[str]:
        if problem.rank != 2:
            raise UnsupportedError(message("to_torch", f"F.fold has no rank {problem.rank}"))
        keywords = f"{problem.filter}" + nondefault(
            dilation=(problem.dilation, (1, 1)), stride=(problem.stride, (1, 1))
        )
        if unfolds:
            return [
                "def unfold(x):",
                f"    return F.unfold({_padded('x', problem.padding)}, {keywords})",
            ]
        sizes = tuple(i + lo + hi for i, (lo, hi) in zip(problem.input, problem.padding))
        image = f"F.fold(cols, {sizes}, {keywords})"
        crop = [(-lo, -hi) for lo, hi in problem.padding]
        return ["def fold(cols):", f"    return {_padded(image, crop)}"]

    def data(self) -> list[str]:
        lines = super().data()
        if not any("laid_out(" in line for line in lines):
            return lines
        poison = f"torch.iinfo(torch.{self.names[self.call.dtype]}).max"
        poison = poison if self.call.dtype in dtypes.INTEGERS else "torch.nan"
        return [*_LAID_OUT.replace("POISON", poison).splitlines(), *lines]

    def operand_text(self, role: str, numbers: str) -> str:
        tensor, spec = super().operand_text(role, numbers), self.call.spec(role)
        if not (spec.order or spec.step or spec.expand or spec.offset):
            return tensor
        shape, letters = self.call.problem.shape(role), axis_letters(self.call.problem, role)
        offset = f", {spec.offset}" if spec.offset else ""
        return f"laid_out({tensor}, {_strides(shape, letters, spec)}{offset})"

    def options(self, code: str) -> str:
        device = self.call.specs[0].device
        return super().options(code) + (f', device="{device}"' if device != "cpu" else "")

    def backward(self, inputs: str, by: Sequence[str]) -> list[str]:
        lines = [f"{name}.requires_grad_()" for name in by]
        grad = f"torch.autograd.grad({self.name}({inputs}), {tuple_text(by)}, dy)"
        return [*lines, f"{tuple_text(self.call.wanted)} = {grad}"]

    def double_backward(self, inputs: str, sources: dict[str, str]) -> list[str]:
        carried = self.differentiated()
        bias = ["b"] if "b" in carried else []
        moved = ["dy", "x", "w", *bias]
        if self.call.op != "conv":
            moved = list(dict.fromkeys(("dy", *carried, *sources.values())))
        lines = [f"{name}.requires_grad_()" for name in moved]
        y = f"{self.name}({inputs})"
        first = f"torch.autograd.grad({y}, {tuple_text(carried)}, dy, create_graph=True)"
        outer = tuple_text(f"dd{name}" for name in carried)
        return [
            *lines,
            f"first = {first}",
            f"{tuple_text(sources)} = torch.autograd.grad(",
            f"    first, {tuple_text(sources.values())}, {outer}, allow_unused=True, "
            "materialize_grads=True",
            ")",
        ]


def _padded(name: str, padding: Iterable[tuple[int, int]]) -> str:
    """Return `name` padded by (lo, hi) pairs; F.pad takes the last axis first.

    Where an axis grows at one end and is cropped at the other, F.pad would crop first and may run
    out of elements: two steps then.
    """
    pairs = list(padding)
    steps = [pairs]
    if any(lo * hi < 0 for lo, hi in pairs):
        steps = [[(max(lo, 0), max(hi, 0)) for lo, hi in pairs]]
        steps.append([(min(lo, 0), min(hi, 0)) for lo, hi in pairs])
    for step in steps:
        name = f"F.pad({name}, {tuple(size for pair in reversed(step) for size in pair)})"
    return name


_LAID_OUT = '''\
def laid_out(values, strides, offset=0):
    """Return values in a buffer with these strides, POISON between; stride 0 repeats a slice."""
    sizes = [n if s else min(n, 1) for n, s in zip(values.shape, strides)]
    last = sum(max(n - 1, 0) * s for n, s in zip(sizes, strides))
    view = values.new_full((offset + last + 1,), POISON).as_strided(sizes, strides, offset)
    view.copy_(values[tuple(slice(n) for n in sizes)])
    return view.expand(values.shape)

'''


def _strides(shape: Sizes, letters: str, spec: Spec) -> Sizes:
    """Return the strides, in elements, of an array with the memory layout of `spec`."""
    steps = {axis: abs(k) for axis, k in spec.step}  # torch has no negative strides
    sizes = dict(zip(letters, shape, strict=True))
    strides, running = {}, 1
    for letter in reversed(spec.order or letters):
        strides[letter] = 0 if letter in spec.expand else running * steps.get(letter, 1)
        running *= 1 if letter in spec.expand else max(sizes[letter], 1) * steps.get(letter, 1)
    return tuple(strides[letter] for letter in letters)
