"""Run a pass of an op on tensors: its call is looked up by raw shapes, strides and dtypes.

A vmap of it is one call with the batch folded into N where images are alone, else a loop.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

from ... import case, dispatch
from ...arrays import Facts, facts, torch_dtype
from ...case import Call, argument, base_shapes
from ...errors import UnsupportedError, invalid
from ...ops import BASE_ROLE, STATISTICS, Problem
from ._table import PassSchema

Tensors = tuple[Tensor | None, ...]
Invoke = Callable[..., Tensors]

MAX_PLANS = 4096
_plans: OrderedDict[Any, _Planned] = OrderedDict()


@dataclass(slots=True, eq=False)
class PassConfig:
    """The configuration of a pass of an op: all that is not an operand."""

    row: PassSchema
    attributes: tuple[Any, ...]  # as `PassSchema.attributes` lists them
    mask: tuple[bool, ...] = ()  # which results are wanted; empty where the pass has no mask
    input: tuple[int, ...] = ()  # spatial sizes of the input, where no operand has them
    backend: str = "auto"  # a name, "package.module:object", or "auto"

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Return the arguments after the operands of the custom op."""
        given: tuple[Any, ...] = self.attributes
        if self.row.needs_input:
            given = (*given, self.input)
        if self.row.signature.maskable:
            given = (*given, self.mask)
        return (*given, self.backend)

    @property
    def wanted(self) -> tuple[str, ...]:
        """Return the results that are not masked off."""
        results = self.row.signature.results
        return tuple(r for r, on in zip(results, self.mask) if on) if self.mask else results

    @classmethod
    def of(cls, row: PassSchema, arguments: tuple[Any, ...]) -> PassConfig:
        """Return the configuration from the arguments after the operands of the custom op."""
        *rest, backend = (tuple(a) if isinstance(a, list) else a for a in arguments)
        mask = rest.pop() if row.signature.maskable else ()
        input = rest.pop() if row.needs_input else ()
        return cls(row, tuple(rest), mask, input, str(backend))


class _Planned:
    """A call with its backend, the tangents it lacks, and the memory formats of its results."""

    __slots__ = ("formats", "missing", "run")

    def __init__(self, config: PassConfig, operands: Tensors) -> None:
        call = call_of(config, operands)
        if call.specs[0].device == "meta":
            self.run: Any = lambda *given: empty(config, given)
        else:
            self.run = dispatch.plan(call, config.backend, "torch").bound()
        given = zip(call.roles, operands)
        self.missing = tuple(
            (i, call.problem.shape(role), torch_dtype(call.dtype_of(role)))
            for i, (role, tensor) in enumerate(given)
            if tensor is None and call.is_present(role)
        )
        self.formats = formats(config.row, call.problem, operands)


def compute(config: PassConfig, operands: Tensors) -> Tensors:
    """Return the results of a pass, None where masked off: nothing is recorded."""
    key = (
        config.row,
        config.attributes,
        config.mask,
        config.input,
        config.backend,
        *[None if t is None else (t.shape, t.stride(), t.dtype, t.device) for t in operands],
    )
    planned = _plans.get(key)
    if planned is None:
        planned = _plans[key] = _Planned(config, operands)
        if len(_plans) > MAX_PLANS:
            _plans.popitem(last=False)
    if planned.missing:
        operands = _completed(planned, operands)
    found = planned.run(*operands)
    if len(found) == 1:
        return (_with_format(found[0], planned.formats[0]),)
    return tuple(
        [
            None if result is None else _with_format(result, layout)
            for result, layout in zip(found, planned.formats)
        ]
    )


def traced(config: PassConfig, operands: Tensors) -> Tensors | None:
    """Return the results as operations that a compiler sees, None where the op itself is called.

    That is so where sizes are symbols, where values have to be checked, and where the chosen
    backend has nothing to show.
    """
    given = [t for t in operands if t is not None]
    if not all(t.is_cuda for t in given) or _has_symbols(given):
        return None
    call = call_of(config, operands)
    try:
        backend: Any = dispatch.choose(call, config.backend, "torch").backend
    except UnsupportedError:
        return None
    absent = any(t is None and call.is_present(r) for r, t in zip(call.roles, operands))
    if absent or any(map(call.problem.positions, call.roles)) or not hasattr(backend, "traced"):
        return None
    found = backend.traced(call, *operands)
    if found is None:
        return None
    layouts = formats(config.row, call.problem, operands)
    return tuple(None if r is None else _with_format(r, how) for r, how in zip(found, layouts))


def _has_symbols(tensors: list[Tensor]) -> bool:
    return any(type(n) is not int for t in tensors for n in (*t.shape, *t.stride()))


def _with_format(result: Tensor, layout: torch.memory_format) -> Tensor:
    """Return a result in a memory format and not as a view: autograd forbids writes to one."""
    found = result.contiguous(memory_format=layout)
    return found.data if found._is_view() else found


def _completed(planned: _Planned, operands: Tensors) -> Tensors:
    """Return the operands with zeros for required tangents that are absent."""
    template = next(t for t in operands if t is not None and t.is_floating_point())
    listed = list(operands)
    for i, shape, dtype in planned.missing:
        listed[i] = template.new_zeros(shape, dtype=dtype)
    return tuple(listed)


def call_of(config: PassConfig, operands: Tensors) -> Call:
    """Return the checked Call of a pass on these operands."""
    row = config.row
    return call_of_facts(
        config,
        {
            role: facts(row.where, argument(role), tensor)
            for role, tensor in zip(row.signature.operands, operands, strict=True)
            if tensor is not None
        },
    )


def call_of_facts(config: PassConfig, found: dict[str, Facts]) -> Call:
    """Return the checked Call of a pass on operands with these facts."""
    row = config.row
    fields = row.fields(config.attributes)
    math = fields.pop("math", "ieee")
    x = row.input_shape(base_shapes(found), fields, config.input)
    if not 3 <= len(x) <= 5:
        raise invalid(row.where, f"input has {len(x)} axes, needs 3 to 5")
    given = {"mask": config.mask, "math": math, "zero_tangents": True}
    return case.call_of(row.op, row.pass_, found, fields, x, **given)


def formats(
    row: PassSchema, problem: Problem, operands: Tensors
) -> tuple[torch.memory_format, ...]:
    """Return the memory format of each result: that of the operand that is an image too."""
    given = dict(zip(row.signature.operands, operands))
    images = [t for r, t in given.items() if t is not None and BASE_ROLE[r] in ("x", "y")]
    x = next((t for r, t in given.items() if t is not None and BASE_ROLE[r] == "x"), images[0])
    filters = [t for r, t in given.items() if t is not None and BASE_ROLE[r] == "w"]
    image, other = suggest_memory_format(x), torch.contiguous_format
    filter = suggest_memory_format(filters[0]) if filters else other
    if row.op == "conv" and image == other:
        image = filter
    return tuple(
        image if problem.letters(r).startswith("nc") else filter if BASE_ROLE[r] == "w" else other
        for r in row.signature.results
    )


def empty(config: PassConfig, operands: Tensors) -> Tensors:
    """Return tensors with the shapes and dtypes of the results, for tensors without data."""
    row = config.row
    given = {r: t for r, t in zip(row.signature.operands, operands) if t is not None}
    if all(type(size) is int for t in given.values() for size in t.shape):
        call_of(config, operands)  # symbolic sizes are checked when the call is made
    shapes = {role: t.shape for role, t in given.items()}
    problem = row.problem(shapes, config.attributes, config.input)
    sizes = {BASE_ROLE[role]: shape for role, shape in shapes.items()}
    lead = next(t for t in given.values() if t.is_floating_point() or len(given) == 1)
    statistic = torch.float32 if lead.dtype in (torch.float16, torch.bfloat16) else lead.dtype
    dtypes = {"indices": torch.int64} | dict.fromkeys(STATISTICS, statistic)
    dtypes |= {role: t.dtype for role, t in given.items()}
    wanted = config.mask or (True,) * len(row.signature.results)
    layouts = formats(row, problem, operands)
    return tuple(
        torch.empty(
            sizes[BASE_ROLE[role]] if BASE_ROLE[role] in sizes else problem.shape(role),
            dtype=dtypes.get(role, dtypes.get(BASE_ROLE[role], lead.dtype)),
            device=lead.device,
            memory_format=layout,
        )
        if on
        else None
        for role, layout, on in zip(row.signature.results, layouts, wanted)
    )


def batched(
    invoke: Invoke,
    config: PassConfig,
    operands: Tensors,
    in_dims: tuple[int | None, ...],
    size: int,
) -> Tensors:
    """Return the results of `size` calls by role, stacked along axis 0."""
    leading = tuple(
        t if t is None or dim is None else t.movedim(dim, 0) for t, dim in zip(operands, in_dims)
    )
    roles = config.row.signature.operands
    given = [(role, t, dim) for role, t, dim in zip(roles, leading, in_dims) if t is not None]
    shapes = {role: t.shape if dim is None else t.shape[1:] for role, t, dim in given}
    problem = config.row.problem(shapes, config.attributes, config.input)
    images = [role for role in (*roles, *config.wanted) if problem.letters(role)[0] == "n"]
    moved = [role for role, _, dim in given if dim is not None]
    alone = size > 0 and "n" in problem.independent
    if alone and all(role in images for role in (*config.wanted, *moved)):
        return _folded(invoke, config, leading, in_dims, size, images)
    return _looped(invoke, config, leading, in_dims, size)


def _folded(
    invoke: Invoke,
    config: PassConfig,
    leading: Tensors,
    in_dims: tuple[Any, ...],
    size: int,
    images: Collection[str],
) -> Tensors:
    flat = []
    for role, tensor, dim in zip(config.row.signature.operands, leading, in_dims):
        if tensor is not None and role in images:
            wide = tensor if dim is not None else tensor.expand(size, *tensor.shape)
            tensor = wide.flatten(0, 1)
        flat.append(tensor)
    found = invoke(config, *flat)
    return tuple(None if r is None else r.unflatten(0, (size, r.shape[0] // size)) for r in found)


def _looped(
    invoke: Invoke, config: PassConfig, leading: Tensors, in_dims: tuple[Any, ...], size: int
) -> Tensors:
    def one(i: int) -> Tensors:
        pairs = zip(leading, in_dims)
        return invoke(config, *(t if t is None or dim is None else t[i] for t, dim in pairs))

    if not size:  # one call of zeros has the shapes
        leading = tuple(
            t if t is None or dim is None else t.new_zeros((1, *t.shape[1:]))
            for t, dim in zip(leading, in_dims)
        )
    calls = [one(i) for i in range(max(size, 1))]
    return tuple(None if r[0] is None else torch.stack(r)[:size] for r in zip(*calls))
