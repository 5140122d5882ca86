"""What PyTorch requires of each pass: its schema, and the sizes of its results.

All of it is read off the tables of `convref.ops`, so that an op with a row there is an op here.
Sizes are plain arithmetic: in a compiled graph they are symbols.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from ...ops import (
    BASE_ROLE,
    FAMILY,
    INDICES,
    SIGNATURE,
    STATISTICS,
    Problem,
    Signature,
    output_size,
)

# The names under which PyTorch's users look for them; the others are called as here.
NAMES = {"conv": "convolution", "resize": "interpolate"}

_LEFT_OUT = ("unfold", "fold")  # linear and without parameters: torch.nn has them already
_SCHEMA = {
    "int": "SymInt",
    "bool": "bool",
    "float": "float",
    "str": "str",
    "Sizes": "SymInt[]",
    "Pads": "SymInt[]",  # lo, hi of the first axis, then of the next
    "tuple[float, ...]": "float[]",
    "tuple[tuple[float, float], ...]": "float[]",
}
_PAIRED = ("Pads", "tuple[tuple[float, float], ...]")
_BY_OPERANDS = ("n", "c", "k", "input", "weight", "bias")  # fields that the tensors tell
_IMAGES = ("x", "y")
_ALWAYS = ("x", "dy", *INDICES, *STATISTICS)  # roles that are never left out


@dataclass(frozen=True)
class Pass:
    """One pass of one op.

    Parameters
    ----------
    op, pass_ : str
        A key of `convref.ops.SIGNATURE`.
    """

    op: str
    pass_: str

    def __hash__(self) -> int:  # there is one object for each: ROWS
        return id(self)

    @cached_property
    def name(self) -> str:
        """Return the name of the custom op, without its namespace."""
        stem = NAMES.get(self.op, self.op)
        return stem if self.pass_ == "fprop" else f"{stem}_{self.pass_}"

    @cached_property
    def signature(self) -> Signature:
        """Return the roles."""
        return SIGNATURE[self.op, self.pass_]

    @cached_property
    def family(self) -> type[Problem]:
        """Return the family of problems."""
        return FAMILY[self.op]

    @cached_property
    def attributes(self) -> tuple[tuple[str, str], ...]:
        """Return name and type of each attribute that the tensors do not determine."""
        known = (*_BY_OPERANDS, "filter") if self.op == "conv" else _BY_OPERANDS
        found = [(f.name, str(f.type)) for f in fields(self.family) if f.name not in known]
        return (*found, ("math", "str")) if self.op == "conv" else tuple(found)

    @cached_property
    def needs_input(self) -> bool:
        """Return whether no operand has the sizes of the input, so that they are an attribute."""
        return not any(BASE_ROLE[role] == "x" for role in self.signature.operands)

    @cached_property
    def schema(self) -> str:
        """Return the schema of the custom op."""
        roles = self.signature.operands
        required = (*_ALWAYS, "w") if self.op == "conv" else _ALWAYS
        given = [
            f"Tensor{'' if role in required or len(roles) == 1 else '?'} {role}" for role in roles
        ]
        given += [f"{_SCHEMA[kind]} {name}" for name, kind in self.attributes]
        if self.needs_input:
            given.append("SymInt[] input")
        if self.signature.maskable:
            given.append("bool[] mask")
        given.append("str backend")
        results = ", ".join(["Tensor"] * len(self.signature.results))
        out = f"({results})" if len(self.signature.results) > 1 else results
        return f"{self.name}({', '.join(given)}) -> {out}"

    def fields(self, attributes: Sequence[Any]) -> dict[str, Any]:
        """Return the attributes by name, as the Problem has them."""
        found = {}
        for (name, kind), value in zip(self.attributes, attributes, strict=True):
            paired = kind in _PAIRED
            found[name] = tuple(zip(value[::2], value[1::2])) if paired else value
        return found

    def attributes_of(self, given: dict[str, Any]) -> tuple[Any, ...]:
        """Return the attributes from the fields of a Problem; what is not given has its default."""
        found: list[Any] = []
        for name, kind in self.attributes:
            value: Any = given[name] if name in given else getattr(self.family, name)
            if kind in _PAIRED:
                value = tuple([end for pair in value for end in pair])
            found.append(float(value) if kind == "float" else value)
        return tuple(found)

    def has_batch(self, role: str) -> bool:
        """Return whether the first axis of `role` is N, with images that know nothing of others."""
        if self.op in ("batch_norm", "cross_entropy"):
            return False
        per_image = ("mean", "rstd") if self.op in ("group_norm", "layer_norm") else ()
        return BASE_ROLE[role] in (*_IMAGES, "indices", *per_image)

    def sizes(
        self, shapes: dict[str, Sequence[Any]], given: dict[str, Any], input: Sequence[Any]
    ) -> dict[str, tuple[Any, ...]]:
        """Return the shape of each base role from the operands' shapes and the attributes."""
        found = {BASE_ROLE[role]: tuple(shape) for role, shape in shapes.items()}
        if "x" not in found:
            lead = next(s for role, s in found.items() if role in ("y", "indices"))
            found["x"] = (*lead[:2], *input)
        n, c, *space = found["x"]
        if "y" not in found:
            found["y"] = _OUTPUT.get(self.op, _same)(found, given, n, c, space)
        found.setdefault("indices", found["y"])
        found.update(_parameters(self.op, found, given, n, c, space))
        return found


def _parameters(
    op: str, found: dict[str, Any], given: dict[str, Any], n: Any, c: Any, space: Any
) -> dict[str, tuple[Any, ...]]:
    """Return the shapes of weights and statistics that no operand shows."""
    weight = (c, *space) if op == "layer_norm" else (c,)
    bias = (found["y"][1],) if op == "conv" else weight
    statistic = {"group_norm": (n, given.get("groups")), "layer_norm": (n,)}.get(op, (c,))
    rows = {"w": weight, "b": bias, **dict.fromkeys(STATISTICS, statistic)}
    return {role: shape for role, shape in rows.items() if role not in found}


def _same(found: dict[str, Any], *_: Any) -> tuple[Any, ...]:
    shape: tuple[Any, ...] = found["x"]
    return shape


def _given(found: Any, given: dict[str, Any], n: Any, c: Any, space: Any) -> tuple[Any, ...]:
    return (n, c, *given["output"])


def _loss(found: dict[str, Any], given: dict[str, Any], *_: Any) -> tuple[Any, ...]:
    return tuple(found["target"]) if given["reduction"] == "none" else (1,)


def _convolution(
    found: dict[str, Any], given: dict[str, Any], n: Any, c: Any, space: Any
) -> tuple[Any, ...]:
    taps = found["w"][2:]
    if not given["transposed"]:
        return (n, found["w"][0], *_windows(space, taps, given))
    grown = [
        (size - 1) * stride + dilation * (tap - 1) + 1 + extra - lo - hi
        for size, tap, stride, dilation, extra, (lo, hi) in zip(
            *(space, taps, given["stride"], given["dilation"], given["output_padding"]),
            given["padding"],
        )
    ]
    return (n, found["w"][1] * given["groups"], *grown)


def _pool(
    found: dict[str, Any], given: dict[str, Any], n: Any, c: Any, space: Any
) -> tuple[Any, ...]:
    return (n, c, *_windows(space, given["filter"], given))


def _windows(space: Any, taps: Any, given: dict[str, Any]) -> list[Any]:
    rows = zip(space, taps, given["stride"], given["dilation"], given["padding"])
    ceil = bool(given.get("ceil"))
    return [
        output_size(size, tap, stride, dilation, lo, hi, ceil)
        for size, tap, stride, dilation, (lo, hi) in rows
    ]


_OUTPUT = {
    "conv": _convolution,
    "max_pool": _pool,
    "avg_pool": _pool,
    "lp_pool": _pool,
    "adaptive_max_pool": _given,
    "adaptive_avg_pool": _given,
    "max_unpool": _given,
    "resize": _given,
    "cross_entropy": _loss,
}

ROWS: dict[tuple[str, str], Pass] = {
    key: Pass(*key) for key in SIGNATURE if key[0] not in _LEFT_OUT
}
BY_NAME: dict[str, Pass] = {row.name: row for row in ROWS.values()}  # of the custom op
