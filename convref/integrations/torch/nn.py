"""torch.nn's layers of a CNN, computed by convref.

Each is a subclass of the layer in torch.nn that has its name: same constructor and one keyword
more, ``backend``, same parameters, same state_dict. `ConvBNAct2d` and `ConvAct2d`, of each rank,
are new.

Examples
--------
>>> import torch
>>> layer = Conv2d(3, 8, 3, padding=1, backend="numpy")
>>> isinstance(layer, torch.nn.Conv2d), layer(torch.ones(1, 3, 5, 5)).shape
(True, torch.Size([1, 8, 5, 5]))
>>> layer
convref.Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), backend='numpy')
"""

import torch as _torch

from . import _blocks, _layers
from ._blocks import *  # noqa: F403 - the names that its __all__ lists
from ._intercept import intercepting_class as _intercepted
from ._layers import *  # noqa: F403

# their own forward, which calls functions that convref has
Softmax2d, SyncBatchNorm = map(_intercepted, (_torch.nn.Softmax2d, _torch.nn.SyncBatchNorm))

__all__ = [*_layers.__all__, *_blocks.__all__, "Softmax2d", "SyncBatchNorm"]
