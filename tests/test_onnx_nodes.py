"""ONNX's own tests of its nodes: their expected results are right by our functions."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import pytest

import convref

pytest.importorskip("onnx", reason="onnx is not installed")

import onnx

Attributes = dict[str, Any]
Call = tuple[str, tuple[Any, ...], dict[str, Any]]  # name, operands and arguments of our function


class Row(NamedTuple):
    """How the tests of a node call our function, and how many tests there are at least."""

    call: Callable[..., Call]
    tests: int
    undone: Callable[..., Any] = lambda y, **attributes: y  # of the expected result
    decimals: int = 0  # with which expected results are written, if they are not computed


def rms_norm(x: Any, w: Any, axis: int = -1, epsilon: float = 1e-5, **_: Any) -> Call:
    return "rms_norm", (x, x.shape[axis:], w, epsilon), {}


def nll_loss(x: Any, target: Any, w: Any = None, **given: Any) -> Call:
    n, c = x.shape[:2]
    if x.ndim > 5:  # as one axis
        x, target = x.reshape(n, c, -1), target.reshape(n, -1)
    return "nll_loss", (x, target, w), given


def prelu(x: Any, slope: Any) -> Call:
    """Return the call with every element as a channel, since slopes are broadcast."""
    return "prelu", (x.reshape(1, -1), np.broadcast_to(slope, x.shape).ravel()), {}


def grid_sample(x: Any, grid: Any, **given: Any) -> Call:
    mode = given.get("mode", "linear")
    given["mode"] = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    given["align_corners"] = bool(given.get("align_corners", 0))
    return "grid_sample", (x, grid), given


def resize(x: Any, *rest: Any, axes: Any = range(4), **given: Any) -> Call:
    """Return the call with the values of spatial axes; sizes are integers, a frame is first."""
    framed = given.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    found: dict[str, Any] = {"sizes": None, "scales": None}
    for values in rest:
        pairs = zip(*np.split(values, len(values) // len(axes)), strict=True)
        by_axis = dict(zip(axes, pairs))
        name = (
            "sizes"
            if values.dtype == np.int64
            else "roi"
            if framed and "roi" not in found
            else "scales"
        )
        listed = [by_axis[axis] for axis in (2, 3)]
        found[name] = listed if name == "roi" else [value for (value,) in listed]
    flags = {name: bool(given.get(name)) for name in ("exclude_outside", "antialias")}
    return "resize", (x,), {**given, **flags, **found}


def roi_align(x: Any, boxes: Any, images: Any, **given: Any) -> Call:
    half = given.get("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    boxes = np.concatenate([images[:, None].astype(boxes.dtype), boxes], 1)
    size = given.get("output_height", 1), given.get("output_width", 1)
    more = {"sampling_ratio": given.get("sampling_ratio", 0) or -1, "aligned": half}
    return "roi_align", (x, boxes, size, given.get("spatial_scale", 1.0)), more


def lrn(x: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Call:
    return "local_response_norm", (x, size, alpha, beta, bias), {}


def _geometry(given: Attributes) -> Attributes:
    pads = given.get("pads", (0,) * 4)
    found = {"padding": tuple(zip(pads[: len(pads) // 2], pads[len(pads) // 2 :]))}
    names = {"strides": "stride", "dilations": "dilation", "group": "groups"}
    return found | {ours: given[name] for name, ours in names.items() if name in given}


def conv_integer(x: Any, w: Any, x_zero: Any, w_zero: Any = 0, **given: Any) -> Call:
    return "conv_integer", (x, w, int(x_zero), w_zero), _geometry(given)


def quantized_conv(x: Any, x_scale: Any, x_zero: Any, w: Any, *rest: Any, **given: Any) -> Call:
    w_scale, w_zero, y_scale, y_zero, *bias = rest
    scales = x, float(x_scale), int(x_zero), w, w_scale, w_zero, float(y_scale), int(y_zero)
    return "quantized_conv", (*scales, *bias), _geometry(given)


def deform_conv(x: Any, w: Any, offset: Any, b: Any = None, mask: Any = None, **given: Any) -> Call:
    geometry = {name: v for name, v in _geometry(given).items() if name != "groups"}
    return "deform_conv2d", (x, offset, w, b), {**geometry, "mask": mask}


ROWS = {
    "RMSNormalization": Row(rms_norm, 19),
    "GridSample": Row(grid_sample, 18),
    "NegativeLogLikelihoodLoss": Row(nll_loss, 18),
    "PRelu": Row(prelu, 2),
    "Hardmax": Row(lambda x, axis=-1: ("hardmax", (x, axis), {}), 7),
    "LpNormalization": Row(lambda x, axis=-1, p=2: ("normalize", (x, float(p), axis), {}), 6),
    "Selu": Row(
        lambda x, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875: (
            "elu",
            (x, alpha),
            {},
        ),
        3,
        lambda y, gamma=1.05070102214813232421875, **_: y / np.float32(gamma),
    ),
    "Elu": Row(lambda x, alpha=1.0: ("elu", (x, alpha), {}), 3),
    "Celu": Row(lambda x, alpha=1.0: ("celu", (x, alpha), {}), 3),
    "HardSigmoid": Row(
        lambda x, alpha=0.2, beta=0.5: (
            "hardtanh",
            (np.float32(alpha) * x + np.float32(beta), 0.0, 1.0),
            {},
        ),
        3,
    ),
    "DeformConv": Row(deform_conv, 4),
    "Resize": Row(resize, 39),
    "RoiAlign": Row(roi_align, 3, decimals=4),
    "Softplus": Row(lambda x: ("softplus", (x,), {}), 2),
    "ThresholdedRelu": Row(lambda x, alpha=1.0: ("threshold", (x, alpha, 0.0), {}), 3),
    "LRN": Row(lrn, 2),
    "Softsign": Row(lambda x: ("softsign", (x,), {}), 2),
    "Mish": Row(lambda x: ("mish", (x,), {}), 1),
    "DepthToSpace": Row(
        lambda x, blocksize, mode="DCR": ("pixel_shuffle", (x, blocksize), {"mode": mode}), 2
    ),
    "SpaceToDepth": Row(
        lambda x, blocksize, mode="DCR": ("pixel_unshuffle", (x, blocksize), {"mode": mode}), 4
    ),
    "QLinearConv": Row(quantized_conv, 1),
    "ConvInteger": Row(conv_integer, 2),
}


UNLIKE = (
    "test_roialign_mode_max",  # we have averages
    # a scale that is not that of the sizes, by which ONNX Runtime samples as we do: docs/resize.md
    "test_resize_downsample_scales_linear_align_corners",
    "test_resize_downsample_scales_cubic_align_corners",
)


def found_for(op: str) -> list[Any]:
    """Return ONNX's tests of models of this node alone."""
    name = f"onnx.backend.test.case.node.{op.lower()}"
    with np.errstate(all="ignore"):
        import_module(name)
    made = import_module("onnx.backend.test.case.node")._NodeTestCases
    return [t for t in made if [n.op_type for n in t.model.graph.node] == [op]]


def attributes_of(node: Any) -> Attributes:
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    return {name: v.decode() if isinstance(v, bytes) else v for name, v in given.items()}


@pytest.mark.parametrize("op", ROWS)
def test_expected_results_of_a_node_are_right(op: str) -> None:
    row, found = ROWS[op], found_for(op)
    assert len(found) >= row.tests
    for test in found:
        (node,), ((inputs, (expected, *_)),) = test.model.graph.node, test.data_sets
        given = attributes_of(node)
        if test.name in UNLIKE:
            continue
        name, operands, arguments = row.call(*inputs, **given)
        ours = getattr(convref, name)(*operands, **arguments)
        assert ours.dtype == np.asarray(expected).dtype, test.name
        got = row.undone(np.asarray(expected), **given).reshape(ours.shape)
        if row.decimals:
            off = np.rint(10**row.decimals * ours) - np.rint(10**row.decimals * got)
            assert np.abs(off).max() <= 1, test.name  # some of them are cut, not rounded
        else:
            convref.assert_correct(got, name, operands, accuracy="rn32", **arguments)
