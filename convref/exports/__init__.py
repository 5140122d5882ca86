"""A problem or case for other programs: benchdnn, MIOpenDriver, plain PyTorch, plain JAX.

The programs are for bug reports: they do not import convref, and print the result.
"""

from .benchdnn import from_benchdnn, to_benchdnn
from .jax import to_jax
from .miopen import to_miopen
from .torch import to_torch

__all__ = ["from_benchdnn", "to_benchdnn", "to_jax", "to_miopen", "to_torch"]
