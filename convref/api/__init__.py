"""The public functions: arrays in, arrays of the same kind, dtype and device out.

Each function builds a Call once, caches it by the raw shapes, strides and arguments, and passes
the arrays to the backend that `convref.dispatch` planned for it. The functions of an op come from
its definition (`convref.api.definition`); a type checker reads their signatures in `__init__.pyi`.
"""

from .functions import FUNCTIONS
from .testing import assert_correct, case_of

globals().update(FUNCTIONS)
__all__ = ["assert_correct", "case_of", *FUNCTIONS]
