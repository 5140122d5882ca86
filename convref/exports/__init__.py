"""A problem or case for other programs: benchdnn, MIOpenDriver, and plain programs of libraries.

The programs are for bug reports: they do not import convref, and print the result.
"""

from .benchdnn import from_benchdnn, to_benchdnn
from .jax import to_jax
from .miopen import to_miopen
from .numpy import to_numpy
from .tensorflow import to_tensorflow
from .torch import to_torch

__all__ = [
    "from_benchdnn",
    "to_benchdnn",
    "to_jax",
    "to_miopen",
    "to_numpy",
    "to_tensorflow",
    "to_torch",
]
