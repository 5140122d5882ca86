"""Call, Case and the line: what is computed, with what data, as one shell word."""

from ..ops import SPATIAL
from .call import FILLS, MATHS, Call, Case
from .parse import MAX_LINE, parse, parse_problem
from .spec import Spec, axis_letters, channels_last, role_dtype
from .text import format_problem

__all__ = [
    "FILLS",
    "MATHS",
    "MAX_LINE",
    "SPATIAL",
    "Call",
    "Case",
    "Spec",
    "axis_letters",
    "channels_last",
    "format_problem",
    "parse",
    "parse_problem",
    "role_dtype",
]
