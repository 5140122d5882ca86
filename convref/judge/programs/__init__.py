"""Programs: is what a candidate computed right, given a reference of PyTorch's operations?

The reference runs once. Each of its operations is evaluated on pairs: the value in float64, and a
bound on how far an admissible candidate's value may be from it. docs/programs.md states what is
admissible and proves the rules.
"""

from ...errors import missing_extra

try:
    import torch  # noqa: F401
except ImportError as error:
    raise missing_extra("torch", error) from None

from .check import ProgramFinding, findings, with_odd_sizes
from .data import for_program
from .pair import store
from .power import Power, judged_mutants
from .report import Program, Report, judge_results
from .tape import Tape
from .trace import Trace
from .verdict import verdict

__all__ = [
    "Power",
    "Program",
    "ProgramFinding",
    "Report",
    "Tape",
    "Trace",
    "findings",
    "for_program",
    "judge_results",
    "judged_mutants",
    "store",
    "verdict",
    "with_odd_sizes",
]
