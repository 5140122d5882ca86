"""One definition per op, from which its functions of every rank and every pass are made.

A definition is a function with the arguments of the public one, in PyTorch's order and with its
defaults. It returns the fields of the op's Problem, or None where the settings are the fields. Each
array is passed as its shape, `input` as an `Image`. Its docstring is that of the forward function;
those of the derivatives follow it, and `convref.api.generate.docs` completes them::

    @define(RANKS)
    def max_pool(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False):
        '''Return the maximum of each window of `input`.'''
        return sliding(input, kernel_size, stride, padding, dilation, ceil_mode)

    max_pool.derivatives(
        backward="Return grad_input of `max_pool2d`: each cotangent goes to its maximum.",
    )

The parameters of a derivative follow: cotangents or (primals, tangents) first, then the
arguments of the forward function that this pass needs, then the saved results (`indices`, or `mean`
and `rstd`), an `output_mask`, and by keyword `layout` and `backend`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import cleandoc, getdoc, signature
from types import MappingProxyType
from typing import Any, NamedTuple

from ..arrays import facts, zeros_like
from ..case import Call, argument, base_shapes, call_of
from ..dtypes import FLOATS
from ..errors import invalid
from ..ops import SIGNATURE, Sizes, passes
from . import views
from .arguments import axes_of, mask_of, pair_of
from .generate import KEYWORD, POSITIONAL
from .generate.docs import ANY_SHAPE, entries, sections
from .run import Axes, Prepared, check_axes, compute, enter, given_arrays, input_shape

ROLE = {
    argument(role): role
    for role in ("x", "w", "b", "indices", "target", "rmean", "rvar", "grid", "boxes")
}

Fields = dict[str, Any]
Autocast = Mapping[str, str]
LOW: Autocast = {"cpu": "low", "cuda": "low"}
FLOAT32: Autocast = {"cpu": "float32", "cuda": "float32"}
CUDA_FLOAT32: Autocast = {"cuda": "float32"}
ViewOf = Callable[[str, int, Sizes, dict[str, Any]], views.View | None]


class Image(NamedTuple):
    """The input that a definition takes: the prefix of error messages, and the sizes."""

    where: str
    n: int
    c: int
    space: Sizes


class Definition:
    """An op as users call it.

    Parameters
    ----------
    fields : callable
        With the arguments of the public function; returns the fields of the Problem.
    ranks : iterable of int
        Those with functions of their own, named 1d, 2d, 3d; without any, one function serves all.
    op : str, optional
        A key of `convref.ops.FAMILY` other than the name of the function.
    only : sequence of str, optional
        The passes that have public functions; default all.
    view : callable
        One of `convref.api.views`: which shapes the user's arrays may have.
    layouts : bool
        Whether channels may come last; the functions then take `layout`.
    casts : bool
        Whether operands are cast to an argument `dtype` first, where one is given.
    layer : str, optional
        Name of the layer in torch.nn, without the rank.
    autocast : dict
        The dtype that torch.autocast casts the operands to, by device: "float32", or "low" for
        its own.
    """

    def __init__(
        self,
        fields: Callable[..., Fields | None],
        ranks: Iterable[int] = (),
        *,
        op: str = "",
        only: Sequence[str] = (),
        view: ViewOf = views.images,
        layouts: bool = True,
        casts: bool = False,
        layer: str = "",
        autocast: Autocast = MappingProxyType({}),
    ) -> None:
        op = op or fields.__name__
        self.name, self.op, self.ranks, self.layer = fields.__name__, op, tuple(ranks), layer
        self.autocast = autocast
        self.passes = tuple(only or passes(op))
        self.view, self.layouts, self.casts, self.build = view, layouts, casts, fields
        self.parameters = tuple(signature(fields).parameters.values())
        known = ROLE | {argument(r): r for r in SIGNATURE[op, "fprop"].operands if r != "cols"}
        self.settings = tuple(p.name for p in self.parameters if p.name not in known)
        self.roles = {p.name: known[p.name] for p in self.parameters if p.name in known}
        self.required = [
            known[p.name] for p in self.parameters if p.name in known and p.default is p.empty
        ]
        self.taken = [p.name for p in self.parameters[1:] if p.kind is POSITIONAL]
        self.keywords = [p.name for p in self.parameters if p.kind is KEYWORD]
        self.defaults = {p.name: p.default for p in self.parameters}
        self.texts = {"fprop": getdoc(fields) or ""}
        common = ANY_SHAPE if view in (views.elements, views.along_dim) else {}
        self.entries = common | entries(sections(self.texts["fprop"]).get("Parameters", ""))
        self.prepare = self._prepare  # one object: part of the key of a plan

    def __repr__(self) -> str:
        return f"<definition of {self.name}>"

    def derivatives(self, **texts: str) -> None:
        """Keep the docstrings of derivatives; their summaries may be left out."""
        self.texts |= {name: cleandoc(text) for name, text in texts.items()}

    def fields(self, image: Image, shapes: dict[str, Any], given: dict[str, Any]) -> Fields:
        """Return the fields of the Problem, from the shapes of arrays by base role."""
        roles, named = self.roles, self.keywords
        values = [shapes.get(roles[n]) if n in roles else given[n] for n in self.taken]
        found = self.build(image, *values, **{name: given[name] for name in named})
        return {name: given[name] for name in self.settings} if found is None else found

    def axes(self, where: str, rank: int, layout: Any, given: dict[str, Any]) -> Axes:
        """Return the axis order of each base role that has one."""
        if not self.layouts:
            return {}
        return dict.fromkeys(("x", "y", "indices"), axes_of(where, rank, layout))

    def pair(
        self, where: str, primals: Any, tangents: Any, names: tuple[str, ...]
    ) -> tuple[Any, ...]:
        """Return primals and then tangents."""
        return pair_of(where, primals, tangents, names)

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
        user = input_shape(where, given, roles) if x is None else x
        arguments = dict(zip(self.settings, settings, strict=True))
        view = self.view(where, rank, user, arguments)
        seen = user if view is None else tuple(view.enter("x", user))
        if view is views.ONE_PIXEL and layout is not None:
            raise invalid(where, f"layout is {layout!r}, needs None for (N, C)")
        axes = self.axes(where, len(seen) - 2, layout, arguments)
        check_axes(where, given, axes, len(user))
        operands = {role: enter(role, a, view, axes) for role, a in given.items()}
        found = {role: facts(where, argument(role), a) for role, a in operands.items()}
        sizes = tuple(seen[a] for a in axes["x"]) if axes else seen
        call = self.call_of(pass_, found, sizes, arguments, mask)
        return Prepared(call, view, axes)

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
        mask: Any = (),
        rank: int = 0,
        x: Sizes | None = None,
    ) -> tuple[Any, ...]:
        """Return the results of a pass, by role; `x` is the shape of an input not passed."""
        given = (pass_, rank, layout, settings, mask, x)
        return compute(self.prepare, arrays, given, backend)


class Classified(Definition):
    """The definition of a loss, with that of the same loss for a target of probabilities."""

    def __init__(
        self, fields: Callable[..., Fields | None], *given: Any, soft: Definition, **options: Any
    ) -> None:
        super().__init__(fields, *given, **options)
        self.probabilities = soft

    def soft(
        self, pass_: str, arrays: Sequence[Any], settings: Sequence[Any]
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return operands and settings of the op on probabilities, which are constants."""
        given = dict(zip(SIGNATURE[self.op, pass_].operands, arrays))
        given["p"] = given.pop("target")
        named = dict(zip(self.settings, settings))
        if (ignored := named["ignore_index"]) != -100:
            what = f"ignore_index is {ignored}, needs -100 for a target of probabilities"
            raise invalid(f"{self.op}.{pass_}", what)
        roles = SIGNATURE[self.probabilities.op, pass_].operands
        operands = (zeros_like(given["p"]) if r in ("p_dot", "ddp") else given[r] for r in roles)
        return tuple(operands), tuple(named[name] for name in self.probabilities.settings)

    def compute(
        self,
        pass_: str,
        arrays: tuple[Any, ...],
        settings: tuple[Any, ...],
        layout: Any,
        backend: Any,
        mask: Any = (),
        rank: int = 0,
        x: Sizes | None = None,
    ) -> tuple[Any, ...]:
        """Return the results of a pass, by role; probabilities are not differentiated by."""
        own, form = (SIGNATURE[op, pass_] for op in (self.op, self.probabilities.op))
        where, target = f"{self.op}.{pass_}", arrays[own.operands.index("target")]
        if target is None or facts(where, "target", target).dtype not in FLOATS:
            return super().compute(pass_, arrays, settings, layout, backend, mask, rank, x)
        bits = mask_of(where, self.op, pass_, mask) or (True,) * len(own.results)
        wanted = {role for role, on in zip(own.results, bits) if on}
        mask = tuple(role in wanted for role in form.results) if form.maskable else ()
        given = *self.soft(pass_, arrays, settings), layout, backend, mask, rank
        found = self.probabilities.compute(pass_, *given)
        return tuple(a for role, a in zip(form.results, found) if role in own.results)


def define(
    ranks: Iterable[int] = (), *, kind: type[Definition] = Definition, **options: Any
) -> Callable[[Callable[..., Fields | None]], Definition]:
    """Return the decorator that makes a Definition of a function; options as it takes them."""
    return lambda fields: kind(fields, ranks, **options)
