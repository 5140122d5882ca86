"""From tensors to results: the call that a pass of an op is, looked up by raw facts."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ... import case, dispatch
from ...arrays import facts
from ...case import Call, argument, base_shapes
from ...errors import ConvrefError, message
from ...ops import BASE_ROLE, INDICES, STATISTICS
from ._table import Pass

Tensors = tuple[Tensor | None, ...]

MAX_PLANS = 4096
_plans: OrderedDict[Any, _Planned] = OrderedDict()

_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


class How:
    """What a pass of an op is told beside its operands.

    Parameters
    ----------
    row : Pass
    attributes : tuple
        As `Pass.attributes` lists them.
    mask : tuple of bool
        Which results are wanted; empty where the pass has no mask.
    input : tuple of int
        Spatial sizes of the input, where no operand has them.
    backend : str
        A name, "package.module:object", or "auto".
    """

    __slots__ = ("attributes", "backend", "input", "mask", "row")

    def __init__(
        self,
        row: Pass,
        attributes: tuple[Any, ...],
        mask: tuple[bool, ...] = (),
        input: tuple[int, ...] = (),
        backend: str = "auto",
    ) -> None:
        self.row = row
        self.attributes = attributes
        self.mask = mask
        self.input = input
        self.backend = backend

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Return what stands behind the operands in the custom op."""
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
    def of(cls, row: Pass, arguments: tuple[Any, ...]) -> How:
        """Return it from what stands behind the operands in the custom op."""
        *rest, backend = (tuple(a) if isinstance(a, list) else a for a in arguments)
        mask = rest.pop() if row.signature.maskable else ()
        input = rest.pop() if row.needs_input else ()
        return cls(row, tuple(rest), mask, input, str(backend))


class _Planned:
    """A call with its backend, the tangents it lacks, and how its results lie in memory."""

    __slots__ = ("formats", "missing", "run")

    def __init__(self, how: How, operands: Tensors) -> None:
        call = call_of(how, operands)
        if call.specs[0].device == "meta":
            self.run: Any = partial(_without_data, how)
        else:
            self.run = dispatch.plan(call, how.backend, "torch").bound()
        given = zip(call.roles, operands)
        self.missing = tuple(
            (i, call.problem.shape(role))
            for i, (role, tensor) in enumerate(given)
            if tensor is None and call.is_present(role)
        )
        self.formats = formats(how.row, operands)


def compute(how: How, operands: Tensors) -> Tensors:
    """Return the results of a pass, None where masked off: nothing is recorded."""
    key = (
        how.row,
        how.attributes,
        how.mask,
        how.input,
        how.backend,
        *[None if t is None else (t.shape, t.stride(), t.dtype, t.device) for t in operands],
    )
    planned = _plans.get(key)
    if planned is None:
        planned = _plans[key] = _Planned(how, operands)
        if len(_plans) > MAX_PLANS:
            _plans.popitem(last=False)
    if planned.missing:
        operands = _completed(planned, operands)
    found = planned.run(*operands)
    if len(found) == 1:
        return (_laid(found[0], planned.formats[0]),)
    return tuple(
        [
            None if result is None else _laid(result, layout)
            for result, layout in zip(found, planned.formats)
        ]
    )


def _without_data(how: How, *operands: Tensor | None) -> Tensors:
    return empty(how, operands)


def _laid(result: Tensor, layout: torch.memory_format) -> Tensor:
    """Return a result that lies as it should, and is no view: autograd lets nobody write to one."""
    found = result.contiguous(memory_format=layout)
    return found.data if found._is_view() else found


def _completed(planned: _Planned, operands: Tensors) -> Tensors:
    """Return the operands with zeros for tangents that a formula wants and nobody gave."""
    template = next(t for t in operands if t is not None and t.is_floating_point())
    listed = list(operands)
    for i, shape in planned.missing:
        listed[i] = template.new_zeros(shape)
    return tuple(listed)


def call_of(how: How, operands: Tensors) -> Call:
    """Return the checked Call of a pass on these operands."""
    row = how.row
    where = f"{row.op}.{row.pass_}"
    found = {
        role: facts(where, argument(role), tensor)
        for role, tensor in zip(row.signature.operands, operands, strict=True)
        if tensor is not None
    }
    fields = row.fields(how.attributes)
    math = fields.pop("math", "ieee")
    shapes = base_shapes(found)
    x = shapes["x"] if "x" in shapes else shapes["y"]
    if not 3 <= len(x) <= 5:
        raise ConvrefError(message(where, f"input has {len(x)} axes, needs 3 to 5"))
    x = (*x[:2], *(how.input or x[2:]))
    given = {"mask": how.mask, "math": math, "zero_tangents": True}
    return case.call_of(row.op, row.pass_, found, fields, x, **given)


def formats(row: Pass, operands: Tensors) -> tuple[torch.memory_format, ...]:
    """Return the memory format of each result: images lie as the image that came in."""
    given = dict(zip(row.signature.operands, operands))
    images = [t for r, t in given.items() if t is not None and BASE_ROLE[r] in ("x", "y")]
    x = next((t for r, t in given.items() if t is not None and BASE_ROLE[r] == "x"), images[0])
    filters = [t for r, t in given.items() if t is not None and BASE_ROLE[r] == "w"]
    image = _format(x)
    by_base = {"x": image, "y": image, "indices": image}
    if filters:
        by_base["w"] = _format(filters[0])
    if row.op == "cross_entropy":
        del by_base["y"]  # a loss is no image
    return tuple(
        by_base.get(BASE_ROLE[role], torch.contiguous_format) for role in row.signature.results
    )


def _format(tensor: Tensor) -> torch.memory_format:
    last = _CHANNELS_LAST.get(tensor.ndim)
    if last is None or tensor.is_contiguous() or tensor.stride(1) != 1:  # a slice of channels too
        return torch.contiguous_format
    return last


def empty(how: How, operands: Tensors) -> Tensors:
    """Return tensors with the shapes and dtypes of the results, for tensors without data."""
    row = how.row
    given = {r: t for r, t in zip(row.signature.operands, operands) if t is not None}
    if all(type(size) is int for t in given.values() for size in t.shape):
        call_of(how, operands)  # a size that is still open is checked when the call is made
    fields = row.fields(how.attributes)
    sizes = row.sizes({role: t.shape for role, t in given.items()}, fields, how.input)
    lead = next(t for t in given.values() if t.is_floating_point() or len(given) == 1)
    statistic = torch.float32 if lead.dtype in (torch.float16, torch.bfloat16) else lead.dtype
    dtypes = dict.fromkeys(INDICES, torch.int64) | dict.fromkeys(STATISTICS, statistic)
    wanted = how.mask or (True,) * len(row.signature.results)
    return tuple(
        torch.empty(
            sizes[BASE_ROLE[role]],
            dtype=dtypes.get(role, lead.dtype),
            device=lead.device,
            memory_format=layout,
        )
        if on
        else None
        for role, layout, on in zip(row.signature.results, formats(row, operands), wanted)
    )
