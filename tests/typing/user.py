"""A user's script on NumPy: a type checker must flag the lines marked `wrong` and no other."""
# pyright: strict

from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import convref
from convref import Numerics, assert_correct, case_of, conv2d, judge, parse
from convref.arrays import AnyArray
from convref.errors import ConvrefError
from convref.oracle import evaluate

image: NDArray[np.float32] = np.ones((1, 3, 8, 8), np.float32)
weight: NDArray[np.float32] = np.ones((4, 3, 3, 3), np.float32)
bias: NDArray[np.float32] = np.ones(4, np.float32)


def network(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the network's output; each result has the type of its input.

    >>> network(image).shape, gradients(np.ones((1, 4, 6, 6), np.float32)).shape
    ((1, 4, 4, 12), (1, 3, 8, 8))
    """
    y = conv2d(x, weight, bias, stride=(2, 1), padding="same_upper", math="tf32")
    y = convref.relu(convref.batch_norm(y, bias, bias, layout="NCHW"))
    y = convref.max_pool2d(y, 2, padding=((0, 1), (0, 1)))
    y, places = convref.max_pool2d(y, np.int64(2), return_indices=True)
    y = convref.max_unpool2d(y, places, 2)
    y = convref.interpolate(y, scale_factor=2.0, mode="bilinear")
    _, _, columns = convref.unfold(y, 3).shape
    return convref.adaptive_avg_pool2d(y, (None, columns))


def gradients(dy: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a gradient; a mask that is given means that results may be None."""
    dx, dw, db = convref.conv2d_backward(dy, image, weight)
    masked, _, _ = convref.conv2d_backward(dy, image, weight, output_mask=(True, False, False))
    y, y_dot = convref.conv2d_jvp((image, weight), (dx, None))
    assert dw.sum() > db.sum()
    assert y.shape == y_dot.shape
    return masked  # wrong


def any_kind(x: AnyArray[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the loss of arrays of any library.

    >>> any_kind(np.zeros((1, 1)))
    array(0.)
    """
    return convref.cross_entropy(x, np.zeros(1, np.int64), reduction="sum")


def court() -> str:
    """Return the kind of a verdict.

    >>> court()
    'pass'
    """
    y = conv2d(image, weight, stride=2)
    assert_correct(y, "conv2d", (image, weight), accuracy=Numerics("rn32"), stride=2)
    call = parse(str(case_of("conv2d", image, weight, stride=2))).call
    try:
        results = evaluate(call, image, weight, None)
    except ConvrefError as error:
        return str(error)
    return judge(call, (image, weight, None), results, Numerics("rn32")).kind


assert_type(convref.group_norm(image, 1), NDArray[np.float32]).sum()
whole = np.ones((1, 1, 4), np.uint8)
assert_type(convref.conv_integer(whole, whole), NDArray[np.int32]).sum()
assert_type(convref.scaled_conv(whole, 1.0, whole, 1.0), NDArray[Any]).sum()


def wrong() -> None:
    """Hold calls that a type checker must flag."""
    conv2d("hello", 3)  # wrong
    conv2d([[1.0]], weight)  # wrong
    conv2d(image)  # wrong
    conv2d(image, weight, stride="two")  # wrong
    conv2d(image, weight, stride=1.5)  # wrong
    conv2d(image, weight, padding="SAME")  # wrong
    conv2d(image, weight, data_format="NHWC")  # wrong
    conv2d(image, weight, layout="channels_last")  # wrong
    conv2d(image, weight, math="fp16")  # wrong
    convref.interpolate(image, 4, mode="billinear")  # wrong
    convref.cross_entropy(image, image, reduction="avg")  # wrong
    convref.relu_jvp(image, image)  # wrong
    convref.conv4d(image, weight)  # wrong
    convref.relu(image).upper()  # wrong
