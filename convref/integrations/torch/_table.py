"""The schema of each pass, as PyTorch requires it, and the sizes of its results.

All of it is derived from the tables of `convref.ops`, so that an op with a row there is an op here.
Sizes are plain arithmetic: in a compiled graph they are symbols.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from ...ops import BASE_ROLE, FAMILY, OPS, OWN_TYPE, SIGNATURE, STATISTICS, Problem, Signature

# The names under which PyTorch's users look for them; the others are called as here.
NAMES = {"conv": "convolution", "resize": "interpolate"}

_LEFT_OUT = ("unfold", "fold")  # linear and without parameters: torch.nn has them already
_SCHEMA = {
    "int": "SymInt",
    "bool": "bool",
    "float": "float",
    "float | None": "float?",
    "str": "str",
    "Sizes": "SymInt[]",
    "Pads": "SymInt[]",  # lo, hi of the first axis, then of the next
    "tuple[float, ...]": "float[]",
    "tuple[tuple[float, float], ...]": "float[]",
}
_PAIRED = ("Pads", "tuple[tuple[float, float], ...]")
# roles that are never left out
_ALWAYS = ("x", "k", "v", "dy", "p", "grid", "boxes", "offset", *OWN_TYPE, *STATISTICS)


@dataclass(frozen=True)
class PassSchema:
    """One pass of one op: a key of `convref.ops.SIGNATURE`, and what follows from it."""

    op: str
    pass_: str

    def __hash__(self) -> int:  # there is one object for each: ROWS
        return id(self)

    @cached_property
    def where(self) -> str:
        """Return OP.PASS, with which messages begin."""
        return f"{self.op}.{self.pass_}"

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
        known = self.family.OF_OPERANDS
        found = [(f.name, str(f.type)) for f in fields(self.family) if f.name not in known]
        return (*found, ("math", "str")) if OPS[self.op].multiplies else tuple(found)

    @cached_property
    def needs_input(self) -> bool:
        """Return whether no operand has the sizes of the input, so that they are an attribute."""
        return not any(BASE_ROLE[role] == "x" for role in self.signature.operands)

    @cached_property
    def schema(self) -> str:
        """Return the schema of the custom op."""
        roles = self.signature.operands
        optional = "weight" in self.family.__dataclass_fields__
        required = _ALWAYS if optional else (*_ALWAYS, "w")
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
        """Return the attributes from the fields of a Problem; missing ones have their defaults."""
        found: list[Any] = []
        for name, kind in self.attributes:
            value: Any = given[name] if name in given else getattr(self.family, name)
            if kind in _PAIRED:
                value = tuple([end for pair in value for end in pair])
            number = kind.startswith("float") and value is not None
            found.append(float(value) if number else value)
        return tuple(found)

    def problem(
        self, shapes: dict[str, Sequence[Any]], attributes: Sequence[Any], input: Sequence[Any]
    ) -> Problem:
        """Return the problem of a call, unchecked, from its operands' shapes by role."""
        found = {BASE_ROLE[role]: tuple(shape) for role, shape in shapes.items()}
        given = self.fields(attributes)
        found["x"] = self.input_shape(found, given, input)
        return self.family.unchecked({**given, **self.family.of_operands(self.pass_, found, given)})

    def input_shape(
        self, shapes: dict[str, Any], given: dict[str, Any], input: Sequence[Any]
    ) -> tuple[Any, ...]:
        """Return the shape of the input from shapes by base role and the other fields."""
        if "x" in shapes:
            return tuple(shapes["x"])
        lead = shapes["y"] if "y" in shapes else shapes["indices"]
        return (lead[0], self.family.input_channels(lead[1], given), *input)


ROWS: dict[tuple[str, str], PassSchema] = {
    (op, name): PassSchema(op, name)
    for op, name in SIGNATURE
    if op not in _LEFT_OUT and (op, "backward") in SIGNATURE
}
BY_NAME: dict[str, PassSchema] = {row.name: row for row in ROWS.values()}  # of the custom op
