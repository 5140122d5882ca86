"""PyTensor's convolutions, pools, norms, activations and losses, computed by convref.

The functions have the names, arguments and order of torch.nn.functional, and take PyTensor's
variables, with shapes known or not. Gradients, R-operators and second derivatives are the library's
own passes; importing this package registers them with the linkers whose libraries are installed.

Examples
--------
>>> import pytensor, pytensor.tensor as pt
>>> x = pt.tensor4("x")
>>> loss = max_pool2d(conv2d(x, np.ones((1, 1, 2, 2))), 2).sum()
>>> pytensor.grad(loss, x).type.ndim
4
"""

from .functions import FUNCTIONS
from .linkers import register
from .op import ConvrefOp

register()
globals().update(FUNCTIONS)
__all__ = ["ConvrefOp", *FUNCTIONS]
