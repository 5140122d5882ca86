"""One definition per op: from it come its functions of every rank and every pass.

A definition is a function with the arguments of the public one, in PyTorch's order and with its
defaults. It returns the fields of the op's Problem. Of an array it is given the shape; of `input`
an `Image`. Its docstring is that of the forward function, with one part for each derivative::

    @define(RANKS)
    def max_pool(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False):
        '''Return the maximum of each window of `input`.

        backward
        ========
        Return grad_input of `max_pool2d`: each cotangent goes to its maximum.
        '''
        return pooling(input, kernel_size, stride, padding, dilation, ceil_mode)

The parameters of a derivative follow: cotangents or (primals, tangents) first, then what the
forward function takes and this pass needs, then what the forward pass kept (`indices`, or `mean`
and `rstd`), an `output_mask`, and by keyword `layout` and `backend`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from inspect import Parameter, getdoc, signature
from typing import Any, NamedTuple

from ..arrays import facts
from ..case import Call, argument, base_shapes, call_of
from ..errors import ConvrefError, message
from ..ops import BASE_ROLE, SIGNATURE, Sizes, passes
from . import views
from .arguments import axes_of, flag, mask_of, pair_of
from .generate import BACKEND, KEYWORD, LAYOUT, POSITIONAL, docstring, function, names
from .prepare import Arrangement, Axes, Prepared, check_axes, given_arrays, input_shape
from .run import compute
from .trace import needed

ROLE = {argument(role): role for role in ("x", "w", "b", "indices", "target", "rmean", "rvar")}
_EVERY = {"indices": "return_indices", "mean": "return_statistics"}  # the flag that returns them
_ANY, _TUPLE = "Any", "tuple[Any, ...]"

Fields = dict[str, Any]
ViewOf = Callable[[str, int, Sizes, dict[str, Any]], views.View | None]


class Image(NamedTuple):
    """The input as a definition sees it: what an error begins with, and the sizes."""

    where: str
    n: int
    c: int
    space: Sizes


def define(
    ranks: Iterable[int] = (),
    *,
    op: str = "",
    only: Sequence[str] = (),
    view: ViewOf = views.images,
    layouts: bool = True,
    layer: str = "",
) -> Callable[[Callable[..., Fields]], Definition]:
    """Return the decorator that makes a Definition of a function.

    Parameters
    ----------
    ranks : iterable of int
        Of which there are functions, with names that end in 1d, 2d, 3d; else one serves all.
    op : str, optional
        A key of `convref.ops.FAMILY` other than the name of the function.
    only : sequence of str, optional
        The passes that have public functions; default all.
    view : callable
        One of `convref.api.views`: which shapes the user's arrays may have.
    layouts : bool
        Whether channels may stand last, so that there is an argument `layout`.
    layer : str, optional
        What computes this in torch.nn, without the rank.
    """

    def decorate(fields: Callable[..., Fields]) -> Definition:
        return Definition(fields, tuple(ranks), op or fields.__name__, only, view, layouts, layer)

    return decorate


class Definition:
    """An op as users call it; see `define`."""

    def __init__(
        self,
        fields: Callable[..., Fields],
        ranks: tuple[int, ...],
        op: str,
        only: Sequence[str],
        view: ViewOf,
        layouts: bool,
        layer: str,
    ) -> None:
        self.name, self.op, self.ranks, self.layer = fields.__name__, op, ranks, layer
        self.passes = tuple(only or passes(op))
        self.view, self.layouts, self.build = view, layouts, fields
        self.parameters = tuple(signature(fields).parameters.values())
        self.settings = tuple(p.name for p in self.parameters if p.name not in ROLE)
        self.roles = {p.name: ROLE[p.name] for p in self.parameters if p.name in ROLE}
        self.required = [
            ROLE[p.name] for p in self.parameters if p.name in ROLE and p.default is p.empty
        ]
        self.taken = [p.name for p in self.parameters[1:] if p.kind is POSITIONAL]
        self.keywords = [p.name for p in self.parameters if p.kind is KEYWORD]
        head, *parts = re.split(r"^(\w+)\n=+\n", getdoc(fields) or "", flags=re.MULTILINE)
        self.texts = {"fprop": head, **dict(zip(parts[::2], parts[1::2]))}
        self.prepare = self._prepare  # one object: part of the key of a plan

    def __repr__(self) -> str:
        return f"<definition of {self.name}>"

    def fields(self, image: Image, shapes: dict[str, Any], given: dict[str, Any]) -> Fields:
        """Return the fields of the Problem, from the shapes of arrays by base role."""
        roles, named = self.roles, self.keywords
        arrays = {name: shapes.get(role) for name, role in roles.items()}
        values = {name: arrays[name] if name in roles else given[name] for name in self.taken}
        return self.build(image, *values.values(), **{name: given[name] for name in named})

    def axes(self, where: str, rank: int, layout: Any, given: dict[str, Any]) -> Axes:
        """Return the axis order of each base role that has one."""
        if not self.layouts:
            return {}
        return dict.fromkeys(("x", "y", "indices"), axes_of(where, rank, layout))

    def _prepare(
        self,
        arrays: Sequence[Any],
        pass_: str,
        rank: int,
        layout: Any,
        settings: Sequence[Any],
        mask: Any,
        x: Sizes | None,
    ) -> Prepared:
        """Return the checked call of a pass on the user's arrays, by role."""
        where, roles = f"{self.op}.{pass_}", SIGNATURE[self.op, pass_].operands
        given = given_arrays(where, roles, arrays, self.required)
        user = x or input_shape(where, given, roles)
        arguments = dict(zip(self.settings, settings, strict=True))
        view = self.view(where, rank, user, arguments)
        seen = user if view is None else tuple(view.enter("x", user))
        if view is views.ONE_PIXEL and layout is not None:
            raise ConvrefError(message(where, f"layout is {layout!r}, needs None for (N, C)"))
        axes = self.axes(where, len(seen) - 2, layout, arguments)
        check_axes(where, given, axes, len(user))
        arrangement = Arrangement(view, axes)
        operands = {role: arrangement.operand(role, a) for role, a in given.items()}
        found = {role: facts(where, argument(role), a) for role, a in operands.items()}
        sizes = tuple(seen[a] for a in axes["x"]) if axes else seen
        call = self.call_of(pass_, found, sizes, arguments, mask)
        return Prepared(call, arrangement, arrangement.identity)

    def call_of(
        self, pass_: str, found: dict[str, Any], x: Sizes, given: dict[str, Any], mask: Any
    ) -> Call:
        """Return the checked call on operands with these facts."""
        where = f"{self.op}.{pass_}"
        shapes = base_shapes(found)
        fields = self.fields(Image(where, x[0], x[1], x[2:]), shapes, given)
        math = fields.pop("math", "ieee")
        bits = mask_of(where, self.op, pass_, mask)
        return call_of(self.op, pass_, found, fields, x, mask=bits, math=math)

    def compute(
        self,
        pass_: str,
        arrays: tuple[Any, ...],
        settings: tuple[Any, ...],
        layout: Any,
        backend: Any,
        *,
        mask: Any = (),
        rank: int = 0,
        x: Sizes | None = None,
    ) -> tuple[Any, ...]:
        """Return the results of a pass, by role; `x` is the shape of an input that is none."""
        given = (pass_, rank, layout, settings, mask, x)
        return compute(self.prepare, arrays, given, backend)

    def functions(self) -> list[Callable[..., Any]]:
        """Return the public functions."""
        pairs = [(rank, pass_) for rank in self.ranks or (0,) for pass_ in self.passes]
        return [_Pass(self, rank, pass_).function() for rank, pass_ in pairs]


class _Pass:
    """One public function of a definition: its parameters, its docstring, what it computes."""

    def __init__(self, definition: Definition, rank: int, pass_: str) -> None:
        self.definition, self.rank, self.pass_ = definition, rank, pass_
        self.op = definition.op
        self.where = f"{self.op}.{pass_}"
        self.form, forward = SIGNATURE[self.op, pass_], SIGNATURE[self.op, "fprop"]
        self.primals = [r for r in forward.operands if f"{r}_dot" in self.form.operands]
        self.linear = pass_ == "jvp" and "x" not in self.form.operands
        own = set(forward.results) - set(forward.operands)
        self.kept = [r for r in self.form.operands if r in own]
        self.flag = next((_EVERY[r] for r in forward.results if r in _EVERY), "")
        self.shape_only = pass_ == "backward" and "x" not in self.form.operands

    def function(self) -> Callable[..., Any]:
        """Return the public function."""
        stem = f"{self.definition.name}{self.rank}d" if self.rank else self.definition.name
        name = stem if self.pass_ == "fprop" else f"{stem}_{self.pass_}"
        bodies: dict[str, Callable[..., Any]] = {"fprop": self.forward, "jvp": self.jvp}
        several = self.pass_ == "jvp" or (self.pass_ != "fprop" and len(self.form.results) > 1)
        return function(
            name,
            self.parameters(),
            self.call(),
            bodies.get(self.pass_, self.backward),
            doc=docstring(self.text(), name, self.rank),
            returns=_TUPLE if several else _ANY,
            module=self.definition.build.__globals__,
        )

    def parameters(self) -> list[Parameter]:
        """Return the parameters in order."""
        input, *others = self.definition.parameters
        cotangents = [argument(r) for r in self.form.operands if r[:2] == "dd" or r == "dy"]
        lead = ["primals", "tangents"] if self.pass_ == "jvp" else cotangents
        if self.shape_only or ("x" in self.form.operands and self.pass_ != "jvp"):
            lead = [*lead, input.name]
        kept = [
            Parameter(argument(r), POSITIONAL, default=None, annotation=_ANY) for r in self.kept
        ]
        listed: list[Parameter] = []
        for p in others:
            role = ROLE.get(p.name, "")
            if role == "b" and self.pass_ != "fprop":
                listed, kept = [*listed, *kept], []
            elif not role:
                listed.append(p)
            elif role in self.form.operands and (self.pass_ != "jvp" or role not in self.primals):
                listed.append(p.replace(annotation=_ANY))
        if self.pass_ == "fprop" and self.flag:
            kept = [Parameter(self.flag, POSITIONAL, default=False, annotation="bool")]
        positional = [*(p for p in listed if p.kind is POSITIONAL), *kept]
        if self.form.maskable:
            bits = (True,) * len(self.form.results)
            positional.append(Parameter("output_mask", POSITIONAL, default=bits, annotation=_ANY))
        keyword = [p for p in listed if p.kind is KEYWORD]
        layout = [LAYOUT] if self.definition.layouts else []
        first = [Parameter(name, POSITIONAL, annotation=_ANY) for name in lead]
        return [*first, *positional, *keyword, *layout, BACKEND]

    def call(self) -> str:
        """Return the arguments of `forward`, `jvp` or `backward`, as text."""
        taken = {p.name for p in self.parameters()}
        arrays = [
            argument(r) if argument(r) in taken else "None"
            for r in self.form.operands
            if self.pass_ != "jvp" or not (r in self.primals or r.endswith("_dot"))
        ]
        settings = "".join(f"{name}, " for name in self.definition.settings)
        layout = "layout" if self.definition.layouts else "None"
        text = f"({''.join(f'{a}, ' for a in arrays)}), ({settings}), {layout}, backend"
        text = f"primals, tangents, {text}" if self.pass_ == "jvp" else text
        text += f", {self.flag}" if self.pass_ == "fprop" and self.flag else ""
        text += ", output_mask" if self.form.maskable else ""
        return text + (", input=input" if self.shape_only else "")

    def forward(
        self, arrays: Any, settings: Any, layout: Any, backend: Any, every: Any = False
    ) -> Any:
        """Return y, or with `every` all results."""
        found = self._compute("fprop", arrays, settings, layout, backend)
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
        x = None
        if self.shape_only:
            x = facts(self.where, "input", input).shape
        if self.kept:
            arrays = self._complete(arrays, settings, layout, backend)
        found = self._compute(self.pass_, arrays, settings, layout, backend, mask=mask, x=x)
        return found if len(found) > 1 else found[0]

    def jvp(
        self, primals: Any, tangents: Any, others: Any, settings: Any, layout: Any, backend: Any
    ) -> Any:
        """Return y and y_dot; of a linear op the tangent alone is enough for y_dot."""
        roles = self.primals
        moved = pair_of(self.where, primals, tangents, tuple(map(argument, roles)))
        values, dots = moved[: len(roles)], moved[len(roles) :]
        if self.linear:
            y = self._compute("fprop", (*values, *others), settings, layout, backend)
            return *y, *self._compute("jvp", (*dots, *others), settings, layout, backend)
        arrays = (*values, *others, *dots)
        return self._compute("jvp", arrays, settings, layout, backend)

    def _compute(self, pass_: str, arrays: Any, settings: Any, *given: Any, **more: Any) -> Any:
        return self.definition.compute(pass_, arrays, settings, *given, rank=self.rank, **more)

    def _complete(self, arrays: Any, settings: Any, layout: Any, backend: Any) -> tuple[Any, ...]:
        """Return the operands with what the forward pass kept, computed again where it is None."""
        named = dict(zip(self.form.operands, arrays))
        if all(named[role] is not None for role in self.kept):
            return arrays
        forward = SIGNATURE[self.op, "fprop"]
        again = tuple(named[r] if r == "x" else None for r in forward.operands)
        found = self._compute("fprop", again, settings, layout, needed(backend))
        named |= {r: a for r, a in zip(forward.results, found) if r in self.kept}
        return tuple(named.values())

    def text(self) -> str:
        """Return the docstring for rank 2, or for any rank."""
        found = self.definition.texts.get(self.pass_, "").strip()
        if found.startswith(">>>"):
            found = f"Examples\n--------\n{found}"
        if not found or found.startswith("Examples"):
            found = f"{self._summary()}\n\n{found}".strip()
        return found + "\n"

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


def functions(*definitions: Definition) -> dict[str, Callable[..., Any]]:
    """Return the public functions of definitions, by name."""
    return names(made for definition in definitions for made in definition.functions())
