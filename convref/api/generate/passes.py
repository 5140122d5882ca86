"""The public function of one pass and one rank of a definition."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter
from typing import Any

from ...arrays import converted, facts
from ...case import argument
from ...ops import BASE_ROLE, SIGNATURE
from ..arguments import flag
from ..definition import Definition
from ..run import recompute_backend
from . import BACKEND, DTYPE, KEYWORD, LAYOUT, POSITIONAL, function, names, parameters
from .docs import SHAPE_ONLY, docstring

# The flag that returns the saved results of a forward pass.
_EVERY = {"indices": "return_indices", **dict.fromkeys(("mean", "rstd"), "return_statistics")}


def functions(*definitions: Definition) -> dict[str, Callable[..., Any]]:
    """Return the public functions of definitions, by name."""
    return names(
        PassFunction(definition, rank, pass_).function()
        for definition in definitions
        for rank in definition.ranks or (0,)
        for pass_ in definition.passes
    )


def return_annotation(op: str, pass_: str, flag: str = "") -> str:
    """Return the annotation of what a function returns; with `flag` it may be every result."""
    _, results, maskable = SIGNATURE[op, pass_]
    if pass_ == "jvp":
        return "tuple[Any, Any]"
    several = f"tuple[{', '.join(['Any | None' if maskable else 'Any'] * len(results))}]"
    if pass_ == "fprop":
        return f"Any | {several}" if flag else "Any"
    return several if len(results) > 1 else "Any"


class PassFunction:
    """One public function of a definition: its parameters, its docstring and its computation."""

    def __init__(self, definition: Definition, rank: int, pass_: str) -> None:
        self.definition, self.rank, self.pass_ = definition, rank, pass_
        self.op = definition.op
        self.where = f"{self.op}.{pass_}"
        self.form, forward = SIGNATURE[self.op, pass_], SIGNATURE[self.op, "fprop"]
        self.primals = [r for r in forward.operands if f"{r}_dot" in self.form.operands]
        self.linear = pass_ == "jvp" and "x" not in self.form.operands
        own = set(forward.results) - set(forward.operands)
        self.kept = [i for i, role in enumerate(self.form.operands) if role in own]
        self.flag = next((_EVERY[r] for r in forward.results if r in _EVERY), "")
        self.shape_only = pass_ == "backward" and "x" not in self.form.operands

    def function(self) -> Callable[..., Any]:
        """Return the public function that the definition describes."""
        stem = f"{self.definition.name}{self.rank}d" if self.rank else self.definition.name
        name = stem if self.pass_ == "fprop" else f"{stem}_{self.pass_}"
        listed = self.parameters()
        known = {**self.definition.entries, **(SHAPE_ONLY if self.shape_only else {})}
        doc = docstring(self.text(), name, listed, self.rank, known)
        return self.generate(name, listed, doc)

    def with_signature(
        self, name: str, signature: str, text: str, *, known: Any, **fixed: Any
    ) -> Callable[..., Any]:
        """Return a public function with a signature of its own, as Python text.

        "Nd" in its name is the rank; `fixed` are settings that are not parameters.
        """
        listed, name = parameters(signature), name.replace("Nd", f"{self.rank}d")
        return self.generate(name, listed, docstring(text, name, listed, self.rank, known), fixed)

    def generate(
        self, name: str, listed: list[Parameter], doc: str, fixed: Any = ()
    ) -> Callable[..., Any]:
        """Return a function of these parameters."""
        bodies: dict[str, Callable[..., Any]] = {"fprop": self.forward, "jvp": self.jvp}
        call, body = self.call(listed, dict(fixed)), bodies.get(self.pass_, self.backward)
        if self.definition.casts:
            call, body = f"dtype, {call}", self.casting(body)
        return function(
            name,
            listed,
            call,
            body,
            doc=doc,
            returns=return_annotation(self.op, self.pass_, self.flag),
            module=self.definition.build.__globals__,
        )

    def parameters(self) -> list[Parameter]:
        """Return the parameters in order."""
        input, *others = self.definition.parameters
        cotangents = [argument(r) for r in self.form.operands if r[:2] == "dd" or r == "dy"]
        lead = ["primals", "tangents"] if self.pass_ == "jvp" else cotangents
        if self.shape_only or ("x" in self.form.operands and self.pass_ != "jvp"):
            lead = [*lead, input.name]
        none: dict[str, Any] = {"default": None, "annotation": "Any"}
        stored = [argument(self.form.operands[place]) for place in self.kept]
        kept = [Parameter(name, POSITIONAL, **none) for name in stored]
        listed: list[Parameter] = []
        for p in others:
            role = self.definition.roles.get(p.name, "")
            if role == "b" and (self.pass_ == "jvp" or "b" not in self.form.operands):
                listed, kept = [*listed, *kept], []
            elif not role:
                listed.append(p)
            elif role in self.form.operands and (self.pass_ != "jvp" or role not in self.primals):
                listed.append(p.replace(annotation="Any"))
        if self.pass_ == "fprop" and self.flag:
            kept = [Parameter(self.flag, POSITIONAL, default=False, annotation="bool")]
        positional = [*(p for p in listed if p.kind is POSITIONAL), *kept]
        if self.form.maskable:
            bits = (True,) * len(self.form.results)
            positional.append(Parameter("output_mask", POSITIONAL, default=bits, annotation="Any"))
        keyword = [p for p in listed if p.kind is KEYWORD]
        layout = [LAYOUT] if self.definition.layouts else []
        layout += [DTYPE] if self.definition.casts else []
        first = [Parameter(name, POSITIONAL, annotation="Any") for name in lead]
        return [*first, *positional, *keyword, *layout, BACKEND]

    def call(self, listed: list[Parameter], fixed: dict[str, Any]) -> str:
        """Return the arguments of `forward`, `jvp` or `backward`, as text."""
        taken = {p.name for p in listed}
        arrays = [
            argument(r) if argument(r) in taken else "None"
            for r in self.form.operands
            if self.pass_ != "jvp" or not (r in self.primals or r.endswith("_dot"))
        ]
        constants = self.definition.defaults | fixed
        settings = "".join(
            f"{name}, " if name in taken else f"{constants[name]!r}, "
            for name in self.definition.settings
        )
        layout = "layout" if "layout" in taken else "None"
        text = f"({''.join(f'{a}, ' for a in arrays)}), ({settings}), {layout}, backend"
        text = f"primals, tangents, {text}" if self.pass_ == "jvp" else text
        text += f", {self.flag}" if self.flag in taken else ""
        text += ", output_mask" if self.form.maskable else ""
        return text + (", input=input" if self.shape_only else "")

    def casting(self, body: Callable[..., Any]) -> Callable[..., Any]:
        """Return `body` on operands that are cast; gradients have the types of their operands."""
        sets = 2 if self.pass_ == "jvp" else 1  # primals and tangents, or operands

        def cast(dtype: Any, *given: Any) -> Any:
            if dtype is None:
                return body(*given)
            arrays = [
                tuple(converted(self.where, "dtype", a, dtype) for a in of)
                if isinstance(of, (tuple, list))
                else of
                for of in given[:sets]
            ]
            found = body(*arrays, *given[sets:])
            if self.pass_ in ("fprop", "jvp"):
                return found
            x = given[0][self.form.operands.index("x")]
            roles = self.form.results
            results = found if isinstance(found, tuple) else (found,)
            results = tuple(
                converted(self.where, "dtype", a, x.dtype) if role == "dx" else a
                for role, a in zip(roles, results, strict=True)
            )
            return results if isinstance(found, tuple) else results[0]

        return cast

    def forward(
        self, arrays: Any, settings: Any, layout: Any, backend: Any, every: Any = False
    ) -> Any:
        """Return y, or with `every` all results."""
        found = self.definition.compute("fprop", arrays, settings, layout, backend, (), self.rank)
        if every is False:
            return found[0]
        return found if flag(self.where, self.flag, every) else found[0]

    def backward(
        self,
        arrays: Any,
        settings: Any,
        layout: Any,
        backend: Any,
        mask: Any = (),
        input: Any = None,
    ) -> Any:
        """Return the results of a backward or double backward pass."""
        x = facts(self.where, "input", input).shape if self.shape_only else None
        for place in self.kept:
            if arrays[place] is None:
                arrays = self._completed(arrays, settings, layout, backend)
        given = arrays, settings, layout, backend, mask, self.rank, x
        found = self.definition.compute(self.pass_, *given)
        return found if len(found) > 1 else found[0]

    def jvp(
        self, primals: Any, tangents: Any, others: Any, settings: Any, layout: Any, backend: Any
    ) -> Any:
        """Return y and y_dot; of a linear op the tangent alone is enough for y_dot."""
        roles = self.primals
        pair = self.definition.pair(self.where, primals, tangents, tuple(map(argument, roles)))
        values, dots = pair[: len(roles)], pair[len(roles) :]
        given = settings, layout, backend, (), self.rank
        compute = self.definition.compute
        if self.linear:
            y = compute("fprop", (*values, *others), *given)
            return *y, *compute("jvp", (*dots, *others), *given)
        return compute("jvp", (*values, *others, *dots), *given)

    def _completed(self, arrays: Any, settings: Any, layout: Any, backend: Any) -> tuple[Any, ...]:
        """Return the operands with the saved results of the forward pass, recomputed."""
        named = dict(zip(self.form.operands, arrays))
        forward = SIGNATURE[self.op, "fprop"]
        again = tuple(named[r] if r == "x" else None for r in forward.operands)
        given = settings, layout, recompute_backend(backend), (), self.rank
        found = dict(zip(forward.results, self.definition.compute("fprop", again, *given)))
        kept = {self.form.operands[place] for place in self.kept}
        return tuple(found[r] if r in kept else a for r, a in named.items())

    def text(self) -> str:
        """Return the docstring for rank 2, or for any rank."""
        found = self.definition.texts.get(self.pass_, "").strip()
        if not found or found.startswith(">>>"):
            found = f"{self._summary()}\n\n{found}".strip()
        return found

    def _summary(self) -> str:
        stem = f"{self.definition.name}2d" if self.rank else self.definition.name
        if self.pass_ == "jvp":
            absent = " with None for absent ones" if len(self.primals) > 1 else ""
            roles = ", ".join(map(argument, self.primals)) + "," * (len(self.primals) == 1)
            return f"Return (output, output tangent) of `{stem}` for tuples ({roles}){absent}."
        if self.pass_ == "backward":
            if not self.form.maskable:
                return f"Return grad_input of `{stem}`."
            grads = ", ".join(f"grad_{argument(BASE_ROLE[r])}" for r in self.form.results)
            return f"Return ({grads}) of `{stem}`, None where masked off."
        of = [argument("dy"), *(argument(r[1:]) for r in self.form.results[1:])]
        listed = " and ".join(filter(None, (", ".join(of[:-1]), of[-1])))
        return f"Return the gradient{'s' * (len(of) > 1)} of {listed} through `{stem}_backward`."
