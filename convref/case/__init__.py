"""Call, Case and the line: a computation and its data as one shell word."""

from ..ops import SPATIAL, role_dtype
from .call import AROUND, FILLS, MATHS, Call, Case
from .operands import (
    argument,
    base_shapes,
    call_of,
    check_count,
    check_objects,
    check_operand,
    check_operands,
    check_positions,
    check_result,
    first_array,
    size_letters,
    spec_of,
)
from .parse import MAX_LINE, parse, parse_problem
from .spec import Spec, axis_letters, channels_last
from .text import format_problem

__all__ = [
    "AROUND",
    "FILLS",
    "MATHS",
    "MAX_LINE",
    "SPATIAL",
    "Call",
    "Case",
    "Spec",
    "argument",
    "axis_letters",
    "base_shapes",
    "call_of",
    "channels_last",
    "check_count",
    "check_objects",
    "check_operand",
    "check_operands",
    "check_positions",
    "check_result",
    "first_array",
    "format_problem",
    "parse",
    "parse_problem",
    "role_dtype",
    "size_letters",
    "spec_of",
]
