"""convref in PyTorch: the ops of a CNN as custom ops, differentiable, compilable, as modules.

Examples
--------
>>> import torch
>>> from convref.integrations import torch as convref_torch
>>> x = torch.ones(1, 1, 3, requires_grad=True)
>>> y = convref_torch.functional.conv1d(x, torch.ones(1, 1, 2))
>>> torch.autograd.grad(y.sum(), x)[0]
tensor([[[1., 2., 1.]]])
"""

from ...errors import missing_extra

try:
    import torch as _torch
except ImportError as error:
    raise missing_extra("torch", error) from None

del _torch
from . import functional, nn  # noqa: E402
from ._autograd import run_recorded  # noqa: E402
from ._backend import use_backend  # noqa: E402
from ._library import show_kernels  # noqa: E402
from .convert import convert, revert  # noqa: E402
from .explain import explain  # noqa: E402
from .fuse import fuse  # noqa: E402

__all__ = [
    "convert",
    "explain",
    "functional",
    "fuse",
    "nn",
    "revert",
    "run_recorded",
    "show_kernels",
    "use_backend",
]
