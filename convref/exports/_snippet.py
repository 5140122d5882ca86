"""The common parts of the programs of all frameworks: data, header, passes and results."""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import prod

from .. import dtypes
from ..case import Call, Case
from ..errors import UnsupportedError, message
from ..ops import BASE_ROLE, SIGNATURE, ConvProblem, Problem
from ._data import LITERAL, UNPACK, array_text, python_type
from ._forward import Forward
from ._tensors import tuple_text

NAMES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}
NAMES |= {"c64": "complex64", "c128": "complex128", "u8": "uint8"}
NAMES |= {f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)}


class Snippet(ABC):
    """A case as a program; a subclass per framework gives the lines that differ."""

    writer: str  # the public function
    framework: str
    module: str  # that has the framework's functions and dtypes, as the program names it
    maker = "array"  # the function that makes an array of numbers
    names = NAMES
    jvp: str  # the framework's functions
    zeros: str
    lister = ".tolist()"  # of a result
    forwards: dict[str, Forward] = {}  # by op: the expression of y

    def __init__(self, case: Case) -> None:
        from ..conformance.operands import operands

        self.case, self.call = case, case.call
        if reason := self.refusal(case.call):
            raise UnsupportedError(message(self.writer, reason, case.call))
        self.arrays = dict(zip(self.call.roles, operands(case), strict=True))
        present = {role: a for role, a in self.arrays.items() if a is not None}
        self.texts = {role: array_text(role, a) for role, a in present.items()}
        self.exact = all(text.exact for text in self.texts.values())
        self.computed = self.call.wanted
        bases = [BASE_ROLE[role] for role in _results(self.call.op, "backward")] or ["x"]
        self.primals = ["x", "w", "b"] if self.call.op == "conv" else bases

    @abstractmethod
    def imports(self) -> list[str]:
        """Return the imports and settings of the program."""

    @abstractmethod
    def conv(self, problem: ConvProblem) -> list[str]:
        """Return the definition of ``conv(x, w, b=None)``."""

    @abstractmethod
    def windows(self, problem: Problem, unfolds: bool) -> list[str]:
        """Return the definition of ``unfold(x)`` or ``fold(cols)``."""

    @abstractmethod
    def backward(self, inputs: str, by: Sequence[str]) -> list[str]:
        """Return the lines of a backward pass."""

    @abstractmethod
    def double_backward(self, inputs: str, sources: dict[str, str]) -> list[str]:
        """Return the lines of a double backward pass; `sources` has the operand of each."""

    def refusal(self, call: Call) -> str | None:
        """Return why the framework cannot compute a call, or None."""
        if call.op not in ("conv", "unfold", "fold", *self.forwards):
            return f"{self.framework} has no {call.op} of its own"
        if call.dtype not in self.names:
            return f"{self.framework} has no convolution of {call.dtype}"
        if call.op == "conv" and call.pass_ != "fprop" and call.dtype in dtypes.INTEGERS:
            return f"{self.framework} differentiates no integers"
        if call.math == "tf32x3":
            return f"{self.framework} has no tf32x3"
        if call.signature.maskable and not call.wanted:
            return "the mask requests no result"
        return None

    def text(self) -> str:
        """Return the program."""
        call = self.call
        if call.op == "conv":
            function, compute = self.conv(call.conv), self._pass()
        elif call.op in self.forwards:
            compute = self._pass()
            function = self._forward() if "forward(" in "".join(compute) else []
        else:
            unfolds = (call.op == "unfold") != (call.pass_ == "backward")
            operand, result = call.signature.operands[0], call.signature.results[0]
            function = self.windows(call.problem, unfolds)
            compute = [f"{result} = {'unfold' if unfolds else 'fold'}({operand})"]
        source = "\n".join((*function, *compute))
        used = {r: t for r, t in self.texts.items() if re.search(rf"\b{r}\b", source)}
        self.texts = used if call.op in self.forwards else self.texts
        body = [*function, "", *self.data(), *compute]
        return self._assembled(self.imports(), body, list(map(self._print, self.computed)))

    def data(self) -> list[str]:
        """Return the lines that make the operands, and those that the case lacks."""
        call, lines = self.call, []
        for role, text in self.texts.items():
            lines += [*text.before, f"{role} = {self.operand_text(role, text.expression)}"]
        if call.op == "conv" and "b" in self.differentiated() and "b" not in call.roles:
            lines.append(f"b = {self._filled('zeros', call.conv.k)}")
        for role, function in (self.standins() if call.op in self.forwards else {}).items():
            shape = call.problem.shape(BASE_ROLE.get(role, role))
            value = "None" if function == "None" else self._filled(function, shape)
            lines.append(f"{role} = {value}")
        return lines

    def operand_text(self, role: str, numbers: str) -> str:
        """Return the expression of an operand."""
        options = self.options(self.call.spec(role).dtype)
        return f"{self.module}.{self.maker}({numbers}, {options})"

    def options(self, code: str) -> str:
        """Return the arguments that give an array its dtype."""
        return f"dtype={self.module}.{self.names[code]}"

    def _filled(self, function: str, shape: object) -> str:
        return f"{self.module}.{function}({shape}, {self.options(self.call.dtype)})"

    def _forward(self) -> list[str]:
        """Return the definition of ``forward``, of the operands that have derivatives."""
        try:
            y = self.forwards[self.call.op](self.call.op, self.call.problem)
        except LookupError as error:
            raise UnsupportedError(message(self.writer, str(error.args[0]), self.call)) from None
        first = "[0]" if "return_indices" in y else ""
        return [f"def forward({', '.join(self.primals)}):", f"    return {y}{first}"]

    def standins(self) -> dict[str, str]:
        """Return the operands that the program needs and the case lacks: None, or a function."""
        call, operands = self.call, SIGNATURE[self.call.op, "fprop"].operands
        given = {role for role, array in self.arrays.items() if array is not None}
        by = {*self.differentiated(), *(BASE_ROLE[role] for role in call.wanted)}
        absent = [r for r in dict.fromkeys((*self.primals, *operands)) if r not in given]
        made = {r: "None" for r in absent if r != "x" and r not in by}
        made |= {r: "ones" if r == "w" else "zeros" for r in absent if r == "x" or r in by}
        if call.pass_ == "double_backward" and "dy" not in given:
            made["dy"] = "zeros"
        return made

    def _pass(self) -> list[str]:
        """Return the lines that compute the wanted results of conv from the operands."""
        call, by = self.call, self.differentiated()
        inputs = "x, w, b" if call.is_present("b") or "b" in by else "x, w"
        if call.op != "conv":
            inputs = ", ".join(self.primals)
        if call.pass_ == "fprop":
            return self.fprop(inputs)
        if call.pass_ == "backward":
            return self.backward(inputs, by)
        if call.pass_ == "jvp":
            if not by:
                return [f"y = {self.name}({inputs})", f"y_dot = {self.zeros}(y)"]
            dots = tuple_text(f"{name}_dot" for name in by)
            function = f"lambda {', '.join(by)}: {self.name}({inputs})"
            return [f"y, y_dot = {self.jvp}({function}, {tuple_text(by)}, {dots})"]
        sources = {role: "dy" if role == "ddy" else BASE_ROLE[role] for role in call.wanted}
        if not by:
            return [f"{role} = {self.zeros}({source})" for role, source in sources.items()]
        return self.double_backward(inputs, sources)

    def differentiated(self) -> list[str]:
        """Return the inputs of the forward function that this pass differentiates by."""
        call = self.call
        if call.op in ("unfold", "fold") or call.pass_ == "fprop":
            return []
        if call.pass_ == "backward":
            return [BASE_ROLE[role] for role in call.wanted]
        if call.op == "conv":
            return list(call.carried)
        moved = "{}_dot" if call.pass_ == "jvp" else "dd{}"
        return [r for r in self.primals if self.arrays.get(moved.format(r)) is not None]

    @property
    def name(self) -> str:
        """Return the name of the function that the program defines."""
        return "conv" if self.call.op == "conv" else "forward"

    def fprop(self, inputs: str) -> list[str]:
        """Return the lines of a forward pass."""
        self.computed = ("y",)
        return [f"y = {self.name}({inputs})"]

    def _print(self, role: str) -> str:
        if prod(self.call.problem.shape(role)) <= LITERAL:
            return f'print("{role} =", {role}{self.lister})'
        total = f"sum(np.ravel({role}))" if self.lister != ".tolist()" else f"{role}.sum().item()"
        return f'print("{role}", {role}.shape, "sum", {total}, {role})'

    def _assembled(self, imports: list[str], body: list[str], show: list[str]) -> str:
        answers = self._expected_results()
        before = (line for t in self.texts.values() for line in t.before)
        text = "\n".join((*before, *body, *answers))
        if "unpacked(" in text:
            imports = ["from base64 import b85decode", "from zlib import decompress", *imports]
            body = [*UNPACK.splitlines(), "", *body]
        if re.search(r"\b(np|rng)\.|unpacked\(", f"{text}{show}"):
            imports = [*dict.fromkeys(("import numpy as np", *imports))]
        if re.search(r"\b(nan|inf)\b", text):
            imports = ["from math import inf, nan", *imports]
        if "rng." in text:
            imports = [*imports, "", f"rng = np.random.default_rng({self.case.seed})"]
        note = "" if self.exact else "\n# Some arrays are large: drawn here, not the case's own."
        head = f"# {self.case}\n# in plain {self.framework}{note}"
        return "\n".join((head, *imports, "", *body, "", *show, *answers, ""))

    def _expected_results(self) -> list[str]:
        """Return lines that print the reference's results, where the data and they are small."""
        from ..oracle import evaluate

        small = all(a is None or a.size <= 4096 for a in self.arrays.values())
        counts = [prod(self.call.problem.shape(role)) for role in self.call.wanted]
        if not (self.exact and small and sum(counts) <= LITERAL):
            return []
        results = evaluate(self.call, *self.arrays.values())
        named = zip(self.call.signature.results, results)
        return [
            f'print("expected {role} =", {r.astype(python_type(r)).tolist()})'
            for role, r in named
            if r is not None and role in self.computed
        ]


def _results(op: str, pass_: str) -> tuple[str, ...]:
    found = SIGNATURE.get((op, pass_))
    return found.results if found else ()
