"""Each formula once more, as literal nested loops: a second, independent definition.

Nothing here is shared with the rest of the oracle, not even its geometry. Slow by design.
"""

from collections.abc import Callable
from typing import Any

from . import activation as _activation
from . import conv as _conv
from . import norm as _norm
from . import pool as _pool
from . import prelu as _prelu
from . import quantized as _quantized
from . import resize as _resize
from . import sample as _sample
from . import scaling as _scaling
from . import softmax as _softmax
from . import unfold as _unfold

# One row per pass: a function of the call and its operands, in the dtype of the operands.
FORMULAS: dict[tuple[str, str], Callable[..., tuple[Any, ...]]] = {
    **_conv.FORMULAS,
    **_quantized.FORMULAS,
    **_unfold.FORMULAS,
    **_pool.FORMULAS,
    **_resize.FORMULAS,
    **_sample.FORMULAS,
    **_norm.FORMULAS,
    **_activation.FORMULAS,
    **_prelu.FORMULAS,
    **_softmax.FORMULAS,
    **_scaling.FORMULAS,
}
