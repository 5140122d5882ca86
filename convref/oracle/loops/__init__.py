"""Each formula once more, as literal nested loops: a second, independent definition.

Nothing here is shared with the rest of the oracle, not even its geometry. Slow by design.
"""

from collections.abc import Callable
from typing import Any

from . import (
    activation,
    attention,
    conv,
    deform,
    matmul,
    norm,
    pool,
    prelu,
    quantized,
    reduce,
    resize,
    sample,
    scaling,
    softmax,
    unfold,
)

MODULES = (
    activation,
    attention,
    conv,
    deform,
    matmul,
    norm,
    pool,
    prelu,
    quantized,
    reduce,
    resize,
    sample,
    scaling,
    softmax,
    unfold,
)

# One row per pass: a function of the call and its operands, in the dtype of the operands.
FORMULAS: dict[tuple[str, str], Callable[..., tuple[Any, ...]]] = {
    key: formula for module in MODULES for key, formula in module.FORMULAS.items()
}
