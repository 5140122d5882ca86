"""Grade: kernels that answer a benchmark's problem, judged without a tolerance.

docs/grading.md says what the verdicts mean, and what a solution cannot do.
"""

from ..errors import missing_extra

try:
    import torch  # noqa: F401
except ImportError as error:
    raise missing_extra("torch", error) from None

from .certify import Certificate, certify
from .gpumode import check_implementation
from .grading import FORMATS, Draw, Grade, grade, load
from .session import Limits

__all__ = [
    "FORMATS",
    "Certificate",
    "Draw",
    "Grade",
    "Limits",
    "certify",
    "check_implementation",
    "grade",
    "load",
]
