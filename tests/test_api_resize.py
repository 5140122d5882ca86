"""The public resizes: PyTorch's names and order, ONNX's rules, and the messages of wrong calls."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

pytest.importorskip("torch", reason="torch is not installed")

import torch
import torch.nn.functional as F

import convref
from convref import UnsupportedError

RNG = np.random.default_rng(0)
X = RNG.integers(-9, 10, (2, 3, 6, 7)).astype(np.float64)
DY = np.ones((2, 3, 4, 5))


def sample(rank: int) -> Any:
    return RNG.integers(-9, 10, (2, 3, *(5, 6, 4)[:rank])).astype(np.float64)


def near(got: Any, want: Any, terms: int = 64, u: float = 2.0**-53) -> bool:
    """Return whether results differ by less than the roundings of both sides, in units of u."""
    limit = 2 * terms * u * 9 * 8
    return got.shape == want.shape and bool((abs(got - want) <= limit).all())


def close(got: Any, want: Any, terms: int = 64, u: float = 2.0**-53) -> None:
    assert near(got, want, terms, u)


SMOOTH = {1: ("linear",), 2: ("bilinear", "bicubic"), 3: ("trilinear",)}
CALLS: list[tuple[int, dict[str, Any]]] = [
    (rank, {"mode": mode, **keywords, **more})
    for rank in (1, 2, 3)
    for mode in ("nearest", "nearest-exact", "area", *SMOOTH[rank])
    for keywords in (
        {"size": 7},
        {"size": 3},
        {"scale_factor": 2},
        {"scale_factor": 1.7},
        {"scale_factor": 0.6, "recompute_scale_factor": True},
    )
    for more in ({}, {"align_corners": True}, {"align_corners": False, "antialias": True})
    if not more or (mode in SMOOTH[rank] and (rank == 2 or "antialias" not in more))
]


@pytest.mark.parametrize(("rank", "keywords"), CALLS, ids=str)
def test_same_call_as_torch_gives_same_result(rank: int, keywords: dict[str, Any]) -> None:
    x = sample(rank)
    want = F.interpolate(torch.from_numpy(x), **keywords).numpy()
    close(convref.interpolate(x, **keywords), want)
    assert_array_equal(convref.interpolate(torch.from_numpy(x), **keywords).numpy(), want)


def test_argument_order_matches_torch() -> None:
    theirs = list(inspect.signature(F.interpolate).parameters)
    ours = inspect.signature(convref.interpolate).parameters
    assert [n for n in ours if ours[n].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD] == theirs


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_channels_last_is_the_same_numbers(rank: int) -> None:
    x, space = sample(rank), "DHW"[3 - rank :]
    last, layout = np.moveaxis(x, 1, -1), f"N{space}C"
    y = convref.interpolate(x, 8, mode="linear")
    got = convref.interpolate(last, 8, mode="linear", layout=layout)
    assert_array_equal(np.moveaxis(got, -1, 1), y)
    dx = convref.interpolate_backward(y, x, 8, mode="linear")
    got = convref.interpolate_backward(got, last, 8, mode="linear", layout=layout)
    assert_array_equal(np.moveaxis(got, -1, 1), dx)
    (primal, tangent) = convref.interpolate_jvp((x,), (2 * x,), 8, mode="linear")
    assert_array_equal(primal, y)
    assert_array_equal(tangent, 2 * y)
    assert_array_equal(convref.interpolate_double_backward(x, 8, mode="linear"), y)


def by_onnx(x: Any, sizes: Any, scales: Any, roi: Any, attributes: dict[str, Any]) -> Any:
    """Return what ONNX's own evaluator makes of the node."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    evaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator
    helper, number = onnx.helper, onnx.TensorProto.DOUBLE
    names = ["x", "roi", "scales" if sizes is None else "", "sizes" if sizes is not None else ""]
    node = helper.make_node("Resize", names, ["y"], **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info("x", number, x.shape),
            helper.make_tensor_value_info("roi", number, None),
            helper.make_tensor_value_info("scales", onnx.TensorProto.FLOAT, None),
            helper.make_tensor_value_info("sizes", onnx.TensorProto.INT64, None),
        ],
        [helper.make_tensor_value_info("y", number, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=8)
    rank = x.ndim - 2
    frame = [0.0, 0.0, *(a for a, _ in roi or ()), 1.0, 1.0, *(b for _, b in roi or ())]
    feeds = {
        "x": x,
        "roi": np.array(frame if roi else [0.0] * (rank + 2) + [1.0] * (rank + 2)),
        "scales": np.array([1, 1, *(scales or ())], np.float32),
        "sizes": np.array([*x.shape[:2], *(sizes or ())]),
    }
    (y,) = evaluator(model).run(None, feeds)
    return y


ONNX: list[tuple[tuple[int, ...] | None, tuple[float, ...] | None, dict[str, Any]]] = [
    (sizes, scales, {"mode": mode, "coordinate_transformation_mode": coord})
    for sizes, scales in (((9, 4), None), (None, (1.5, 0.6)), ((3, 14), None))
    for mode in ("linear", "cubic")
    for coord in ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "asymmetric")
] + [
    ((9, 4), None, {"mode": "linear", "coordinate_transformation_mode": "align_corners"}),
    ((9, 4), None, {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1}),
    ((3, 4), None, {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1}),
    *(((9, 4), None, {"mode": "nearest", "nearest_mode": near}) for near in ("floor", "ceil")),
    *(
        ((3, 14), None, {"mode": "nearest", "nearest_mode": near})
        for near in ("round_prefer_floor", "round_prefer_ceil")
    ),
]


@pytest.mark.parametrize(("sizes", "scales", "attributes"), ONNX, ids=str)
def test_resize_matches_onnx(sizes: Any, scales: Any, attributes: dict[str, Any]) -> None:
    want = by_onnx(X, sizes, scales, None, attributes)
    got = convref.resize(X, sizes, scales, **named(attributes))
    close(got, want, u=2.0**-24)  # the evaluator holds scales in float32


def named(attributes: dict[str, Any]) -> dict[str, Any]:
    flags = {k: bool(v) for k, v in attributes.items() if k == "exclude_outside"}
    return {**attributes, **flags}


@pytest.mark.parametrize("value", [0.0, -7.5])
def test_crop_matches_onnx_and_is_constant_beyond_the_image(value: float) -> None:
    attributes: dict[str, Any] = {
        "mode": "linear",
        "coordinate_transformation_mode": "tf_crop_and_resize",
        "extrapolation_value": value,
    }
    roi = ((0.25, 1.0), (-0.5, 0.75))
    want = by_onnx(X, (4, 5), None, roi, attributes)
    got = convref.resize(X, (4, 5), roi=roi, **attributes)
    close(got, want)
    assert (got[..., 0] == value).all()
    dot = convref.resize_jvp((X,), (X,), (4, 5), roi=roi, **attributes)[1]
    assert not dot[..., 0].any()
    assert_array_equal(dot[..., 2:], got[..., 2:])
    assert convref.resize(X, scales=2, roi=((0, 0.5), (0, 1)), **attributes).shape[2:] == (6, 14)


def test_backward_is_the_adjoint() -> None:
    keywords: dict[str, Any] = {"mode": "cubic", "exclude_outside": True}
    y = convref.resize(X, (4, 5), **keywords)
    dx = convref.resize_backward(DY, X, (4, 5), **keywords)
    close(np.sum(dx * X), np.sum(DY * y), terms=64 * X.size)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"scale_factor": 1.1}, "ATen ignores a scale if the ratio of the sizes is 1"),
    ({"size": (3, 1), "mode": "bilinear", "antialias": True}, "wrong for an output of one"),
    (
        {"size": 3, "mode": "bilinear", "antialias": True, "align_corners": True},
        "ATen's antialias does not support align_corners correctly",
    ),
    ({"size": (82, 94)}, "ATen's kernels round nearest positions differently"),
]


@pytest.mark.parametrize(("keywords", "text"), REFUSED)
def test_named_backend_refuses_unsupported_call(keywords: dict[str, Any], text: str) -> None:
    x = X[:, :, :2, :2]
    with pytest.raises(UnsupportedError, match=text):
        convref.interpolate(x, **keywords, backend="torch")
    got = convref.interpolate(torch.from_numpy(x), **keywords)  # another backend computes it
    assert_array_equal(got.numpy(), convref.interpolate(x, **keywords))


# Mode and keywords, rank, and the passes in which torch uses a scale on axes that keep their size.
USES_SCALE = [
    ("nearest", {}, 1, ("fprop",)),
    ("nearest", {}, 2, ()),
    ("nearest-exact", {}, 2, ("fprop", "backward")),
    ("nearest-exact", {}, 3, ("fprop", "backward")),
    ("linear", {}, 1, ()),
    ("bilinear", {}, 2, ()),
    ("bilinear", {"antialias": True}, 2, ("backward",)),
    ("bicubic", {}, 2, ("fprop",)),
    ("bicubic", {"antialias": True}, 2, ("backward",)),
]


@pytest.mark.parametrize(("mode", "more", "rank", "passes"), USES_SCALE)
def test_torch_is_passed_over_only_where_it_ignores_a_scale(
    mode: str, more: dict[str, Any], rank: int, passes: tuple[str, ...]
) -> None:
    x = torch.randn(2, 3, *(4,) * rank, dtype=torch.float64, requires_grad=True)
    keywords = {"scale_factor": 1.2, "mode": mode, **more}
    y = F.interpolate(x, **keywords)
    dy = torch.randn_like(y)
    (dx,) = torch.autograd.grad(y, x, dy)
    x = x.detach()
    want = {"fprop": convref.interpolate(x, **keywords, backend="numpy")}
    want["backward"] = convref.interpolate_backward(dy, x, **keywords, backend="numpy")
    right = [name for name, got in {"fprop": y, "backward": dx}.items() if near(want[name], got)]
    assert right == [*passes]
    for name, function, given in (
        ("fprop", convref.interpolate, (x,)),
        ("backward", convref.interpolate_backward, (dy, x)),
    ):
        if name in passes:
            assert near(function(*given, **keywords, backend="torch"), want[name])
        else:
            with pytest.raises(UnsupportedError, match="if the ratio of the sizes is 1"):
                function(*given, **keywords, backend="torch")


def test_bicubic_backward_uses_a_scale_unless_all_axes_keep_their_sizes() -> None:
    x = torch.randn(1, 1, 4, 4, dtype=torch.float64, requires_grad=True)
    y = F.interpolate(x, scale_factor=(1.2, 1.7), mode="bicubic")
    dy = torch.randn_like(y)
    (dx,) = torch.autograd.grad(y, x, dy)
    keywords: dict[str, Any] = {"scale_factor": (1.2, 1.7), "mode": "bicubic"}
    for backend in ("torch", "numpy"):
        got = convref.interpolate_backward(dy, x.detach(), **keywords, backend=backend)
        assert near(got, dx)


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
@pytest.mark.parametrize("sizes", [(7, 8), (3, 2), (5, 30)])
def test_aspect_ratio_policy_as_in_onnx(policy: str, sizes: tuple[int, int]) -> None:
    reference = pytest.importorskip("onnx.reference.ops.op_resize", reason="onnx is not installed")
    x = np.random.default_rng(0).normal(size=(1, 1, 4, 6))
    want = reference.Resize.eval(
        x,
        None,
        None,
        np.array(sizes),
        axes=[2, 3],
        mode="linear",
        coordinate_transformation_mode="half_pixel",
        keep_aspect_ratio_policy=policy,
    )
    got = convref.resize(x, sizes, mode="linear", keep_aspect_ratio_policy=policy)
    assert near(got, want)
    with pytest.raises(convref.ConvrefError, match="policy is 'not_larger' with scales"):
        convref.resize(x, scales=2, keep_aspect_ratio_policy="not_larger")
