"""The functions of PyTensor 2.36: checksums that version 2.36.2 gave, and sums over windows."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

pytensor = pytest.importorskip("pytensor", reason="pytensor is not installed")
import pytensor.tensor as pt  # noqa: E402

import convref  # noqa: E402
from convref.errors import UnsupportedError  # noqa: E402
from convref.integrations.pytensor import legacy  # noqa: E402

IMAGE = (2, 4, 7, 6)
# border_mode, subsample, filter_flip, filter_dilation, num_groups; checksums of conv2d and of its
# gradients in input and filters
CONVOLUTIONS = [
    (("half", (1, 1), True, (1, 1), 1), (18510, 19360, 20421)),
    (("full", (2, 1), False, (1, 2), 2), (4451, 4725, 4051)),
    ((((1, 0), (0, 2)), (2, 1), True, (1, 2), 2), (1481, 2933, 4445)),
    ((1, (1, 1), False, (1, 1), 1), (19425, 18824, 22159)),
]


def ramp(*shape):
    return (np.arange(np.prod(shape)).reshape(shape) % 11 - 4.0).astype("float64")


def value(variable):
    return pytensor.function([], variable, mode="FAST_COMPILE")()


def checksum(variable):
    y = value(variable)
    return float((y * (np.arange(y.size).reshape(y.shape) % 7)).sum())


@pytest.mark.parametrize(("settings", "sums"), CONVOLUTIONS)
def test_convolutions_are_those_of_2_36(settings, sums):
    mode, *rest = settings
    x, w = ramp(*IMAGE), ramp(4, 4 // settings[-1], 3, 2)
    y = legacy.conv2d(pt.constant(x), pt.constant(w), None, None, *settings)
    dy = pt.constant(ramp(*value(y).shape))
    dx = legacy.conv2d_grad_wrt_inputs(dy, pt.constant(w), IMAGE, None, *settings)
    dw = legacy.conv2d_grad_wrt_weights(pt.constant(x), dy, w.shape, None, *settings)
    assert (checksum(y), checksum(dx), checksum(dw)) == sums
    transposed = legacy.conv2d_transpose(dy, pt.constant(w), IMAGE, None, mode, *rest)
    assert checksum(transposed) == sums[1]


def test_other_convolutions_are_those_of_2_36():
    x, w = pt.constant(ramp(2, 3, 9)), pt.constant(ramp(4, 3, 2))
    assert checksum(legacy.causal_conv1d(x, w, (4, 3, 2), subsample=2, filter_dilation=3)) == 588
    filters = pt.constant(ramp(6, 1, 3, 2)), pt.constant(ramp(5, 6, 1, 1))
    y = legacy.separable_conv2d(pt.constant(ramp(2, 3, 9, 8)), *filters, 3, subsample=(2, 2))
    assert checksum(y) == 28291
    x, w = pt.constant(ramp(2, 3, 5, 6, 5)), pt.constant(ramp(2, 3, 2, 2, 2))
    y = legacy.conv3d(x, w, filter_flip=False, filter_dilation=(1, 3, 1))
    assert checksum(y) == 7992


def test_upsampling_is_that_of_2_36():
    x = pt.constant(ramp(2, 3, 4, 5))
    assert [checksum(legacy.bilinear_upsampling(x, r)) for r in (2, 4)] == [1518, 5612.1875]
    assert checksum(legacy.bilinear_upsampling(x, frac_ratio=((4, 2), (6, 3)))) == 1518


@pytest.mark.parametrize("mode", ["max", "sum", "average_inc_pad", "average_exc_pad"])
@pytest.mark.parametrize("ignore_border", [True, False])
def test_pools_are_sums_over_windows(mode, ignore_border):
    x, size, stride = ramp(2, 3, 5, 7), (2, 3), (2, 2)
    found = value(legacy.pool_2d(pt.constant(x), size, ignore_border, stride, mode=mode))
    reduce = {"max": np.max, "sum": np.sum}.get(mode, np.mean)
    starts = [range(0, n, s) for n, s in zip(x.shape[2:], stride)]
    if ignore_border:
        starts = [[i for i in of if i + k <= n] for of, k, n in zip(starts, size, x.shape[2:])]
    else:  # a window that begins after the last one that reaches the end adds nothing
        starts = [
            [i for i in of if i == 0 or i - s + k < n]
            for of, s, k, n in zip(starts, stride, size, x.shape[2:])
        ]
    exact = np.empty((2, 3, *map(len, starts)))
    for p, q in product(*(range(len(of)) for of in starts)):
        i, j = starts[0][p], starts[1][q]
        exact[:, :, p, q] = reduce(x[:, :, i : i + size[0], j : j + size[1]], axis=(2, 3))
    np.testing.assert_array_equal(found, exact)


@pytest.mark.parametrize("axes", ["per-activation", "spatial"])
def test_batch_normalization_is_that_of_its_axes(axes):
    x = ramp(4, 2, 3, 5)
    shape = (1, 2, 1, 1) if axes == "spatial" else (1, 2, 3, 5)
    gamma, beta, mean, var = ramp(*shape), ramp(*shape) + 1, ramp(*shape), np.ones(shape)
    given = pt.constant(x), pt.constant(gamma), pt.constant(beta), axes
    found = legacy.batch_normalization_train(*given, 1e-4, 0.1, pt.constant(mean), pt.constant(var))
    flat = x if axes == "spatial" else x.reshape(4, -1)
    arrays = flat, mean.ravel(), var.ravel(), gamma.ravel(), beta.ravel()
    y, *statistics = convref.batch_norm_statistics(*arrays, 0.1, 1e-4)
    np.testing.assert_array_equal(value(found[0]), y.reshape(x.shape))
    for variable, exact in zip(found[1:], statistics, strict=True):
        np.testing.assert_array_equal(value(variable), exact.reshape(shape))
    frozen = legacy.batch_normalization_test(*given[:3], *map(pt.constant, (mean, var)), axes)
    exact = convref.batch_norm(*arrays, eps=1e-4).reshape(x.shape)
    np.testing.assert_array_equal(value(frozen), exact)


def test_unshared_filters_are_refused():
    with pytest.raises(UnsupportedError, match="conv2d: unshared is True"):
        legacy.conv2d(np.ones((1, 1, 3, 3)), np.ones((1, 1, 2, 2)), unshared=True)
