"""Sampling ops against their loops, torch, ONNX's reference, adjoints and positions by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from numpy.testing import assert_array_equal

import convref
from convref.case import Call, Spec, parse
from convref.conformance.examine import examine
from convref.conformance.generate import Axes, chunk_cases
from convref.conformance.operands import operands
from convref.conformance.strategies import cases
from convref.dispatch import load
from convref.errors import ConvrefError
from convref.judge import Numerics, judge
from convref.ops import GROUPS, passes
from convref.oracle import displacements, evaluate, magnitudes

OPS = GROUPS["sample"]
SMALL = {"max_elements": 40, "max_macs": 100}
UNSHRUNK = (Phase.generate,)
EXAMPLES = settings.default.max_examples // 4


def campaign(check, op, dtype="obj", fills=("int", "ramp", "ties"), examples=EXAMPLES, pass_=None):
    @settings(max_examples=examples, phases=UNSHRUNK, report_multiple_bugs=False)
    @given(cases([op], pass_ and [pass_], dtypes=[dtype], fills=fills, **SMALL))
    def run(case):
        check(case)

    run()


def run(line, *arrays):
    call = parse(line).call
    return evaluate(
        call, *(np.array(a).reshape(call.problem.shape(r)) for r, a in zip(call.roles, arrays))
    )


@pytest.mark.parametrize(("op", "pass_"), [(op, p) for op in OPS for p in passes(op)])
def test_loops_bit_for_bit(checks, op, pass_):
    campaign(checks.loops, op, pass_=pass_)


def inner(a, b):
    return sum((x * y for x, y in zip(a.ravel().tolist(), b.ravel().tolist())), 0)


@pytest.mark.parametrize("op", OPS)
def test_backward_is_the_adjoint_of_jvp(op):
    """<dy, y_dot> is the sum of <gradient, tangent>, in Fractions."""

    def check(case):
        call = case.call
        given_ = dict(zip(call.roles, operands(case)))
        y_dot = dict(zip(call.signature.results, evaluate(call, *given_.values())))["y_dot"]
        back = Call(op, "backward", call.problem, specs=(Spec(call.dtype),))
        dy = operands(replace(case, call=back))[0]
        point = [given_.get(role) for role in back.roles[1:]]
        gradients = evaluate(back, dy, *point)
        tangents = [given_[f"{r[1:]}_dot"] for r in back.signature.results]
        pairs = zip(gradients, tangents)
        assert inner(dy, y_dot) == sum(inner(g, t) for g, t in pairs if t is not None), str(case)

    campaign(check, op, pass_="jvp")


GRID = "grid_sample.fprop:n1c1_i1x4_o1x7:dt=f64:{}"
ROW, COORDINATES = [1, 2, 4, 8], [-2, -1, -0.75, -0.25, 0, 0.5, 1.5]
BY_HAND = {  # at -2.5, -0.5, 0, 1, 1.5, 2.5, 4.5; with align=1 at -1.5, 0, 0.375, 1.125 ...
    "": [0, 0.5, 1, 2, 3, 6, 0],
    "pad=border": [1, 1, 1, 2, 3, 6, 8],
    "pad=reflection": [3, 1, 1, 2, 3, 6, 6],
    "align=1": [0, 1, 1.375, 2.25, 3, 5, 2],
    "mode=nearest": [0, 1, 1, 2, 4, 4, 0],
    "mode=nearest:pad=border": [1, 1, 1, 2, 4, 4, 8],
    "mode=bicubic": [0, (19 - 6) / 32, 1, 2, (19 * 6 - 27) / 32, (-6 + 19 * 12) / 32, -0.75],
}


@pytest.mark.parametrize("rule", BY_HAND)
def test_samples_worked_by_hand(rule):
    grid = [(g, 0) for g in COORDINATES]
    (y,) = run(GRID.format(rule).rstrip(":"), ROW, grid)
    assert y.ravel().tolist() == BY_HAND[rule]


def test_the_first_coordinate_is_the_last_axis():
    (y,) = run("grid_sample.fprop:n1c1_i2x3_o1x1:align=1:dt=f64", range(6), [1, -1])
    assert y.item() == 2
    (y,) = run("grid_sample.fprop:n1c1_i2x3x2_o1x1x1:align=1:dt=f64", range(12), [1, -1, 0])
    assert y.item() == 4  # between 1 and 7


BOX = "roi_align.fprop:n1c1_i1x4_o1x2:dt=f64:{}"
BINS = {  # of the box from 0 to 2, or to 6, or from -4 to 0 on the row 0, 8, 16, 24
    ("sr=1", 0, 2): [4, 12],
    ("sr=2", 0, 2): [4, 12],
    ("", 0, 6): [12, 8],  # 3 samples per bin: at 0.5, 1.5, 2.5; at 3.5, then two beyond the image
    ("sr=1:aligned=1", 0, 2): [0, 8],
    ("sr=1:sc=0.5", 0, 4): [4, 12],
    ("sr=1", -4, 0): [0, 0],
    ("sr=1", 2, 2): [18, 22],  # at least one element
}


@pytest.mark.parametrize(("rule", "low", "high"), BINS)
def test_bins_worked_by_hand(rule, low, high):
    (y,) = run(BOX.format(rule).rstrip(":"), [0, 8, 16, 24], [0, low, 0, high, 0])
    assert y.ravel().tolist() == BINS[rule, low, high]


def test_boxes_may_be_listed_by_image():
    x = np.arange(2 * 20.0).reshape(2, 1, 4, 5)
    boxes = np.array([[0, 0, 0, 2, 3], [0, 1, 1, 4, 2], [1, 0, 1, 3, 3.0]])
    listed, settings = [boxes[:2, 1:], boxes[2:, 1:]], (2, 1.0, 2)
    y = convref.roi_align(x, boxes, *settings)
    assert_array_equal(convref.roi_align(x, (boxes[:0, 1:], boxes[2:, 1:]), *settings), y[2:])
    for name, lead in (("roi_align", (x,)), ("roi_align_backward", (y, x))):
        want, got = (getattr(convref, name)(*lead, b, *settings) for b in (boxes, listed))
        assert_array_equal(got, want, strict=True)
        assert convref.case_of(name, *lead, listed, *settings).call.problem.boxes == 3
    _, got = convref.roi_align_jvp((x,), (2 * x,), listed, *settings)
    assert_array_equal(got, 2 * y)
    for wrong, text in (
        ([], "boxes is empty, needs an array (L, 4) for each image"),
        ([boxes], "boxes[0] has shape (3, 5), needs (L, 4)"),
        ([boxes[:, 1:], [[0, 0, 1, 1]]], "boxes[1] is a list, needs a NumPy array"),
        ([boxes[:, 1:], boxes[:, 1:].astype("f4")], "boxes[1] needs the kind, dtype and device of"),
        ([boxes[:, 1:]] * 3, "boxes holds 2.0, needs an image from 0 to 1"),
    ):
        with pytest.raises(ConvrefError) as caught:
            convref.roi_align(x, wrong, *settings)
        assert text in str(caught.value)


def test_boxes_without_an_end_are_refused():
    x = np.ones((1, 1, 4, 4))
    for corners, ratio, text in (
        ((0, 0, np.nan, 1), 1, "boxes holds nan, needs finite corners"),
        ((0, -np.inf, 1, 1), 0, "boxes holds -inf, needs finite corners"),
        ((0, 0, 1e12, 1), 0, "boxes needs 1.19e+05 GiB for its samples, this machine has"),
        ((0, 0, 2, 1), 10**12, "boxes needs 2.38e+05 GiB for its samples, this machine has"),
    ):
        with pytest.raises(ConvrefError) as caught:
            convref.roi_align(x, np.array([(0, *corners)], float), 2, 1.0, ratio)
        assert text in str(caught.value)


def test_listed_boxes_stay_in_their_library():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x, box = torch.arange(20.0).reshape(1, 1, 4, 5).requires_grad_(), torch.tensor([[0, 0, 2, 3.0]])
    y = convref.roi_align(x, [box], 2)
    y.sum().backward()
    assert y.dtype == torch.float32
    assert x.grad.sum().item() == 4  # the weights of a bin add up to 1


def test_roi_align_is_onnxs():
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    from onnx.reference import ReferenceEvaluator

    axes = Axes(3, ("roi_align",), ("fprop",), dtypes=("f64",), fills=("normal",), size=40)
    for case in chunk_cases(axes, 0):
        problem, (x, boxes) = case.call.problem, operands(case)
        if not problem.n * problem.c * problem.boxes:
            continue
        node = onnx.helper.make_node(
            "RoiAlign",
            ["x", "corners", "images"],
            ["y"],
            coordinate_transformation_mode=("output_half_pixel", "half_pixel")[problem.aligned],
            output_height=problem.output[0],
            output_width=problem.output[1],
            sampling_ratio=problem.sampling_ratio,
            spatial_scale=problem.spatial_scale,
        )
        given_ = {"x": x, "corners": boxes[:, 1:], "images": boxes[:, 0].astype(np.int64)}
        (y,) = ReferenceEvaluator(node).run(None, given_)
        verdict = judge(case.call, (x, boxes), (y.astype(np.float64),), Numerics("rn32"))
        assert verdict, f"{case}: {verdict.reason}"


def test_deformed_taps_worked_by_hand():
    """Two taps with weights 1 and 10 at each of three outputs of a row."""
    line = "deform_conv.fprop:n1c1_i1x4_f1x2:bias=0:masked=1:dt=f64"
    down, right = [[0, 0, 0], [0, 0.5, 0]], [[0.5, 0.5, 0.5], [-1, 0, -0.25]]
    offset = [down[0], right[0], down[1], right[1]]
    call, factors = parse(line).call, [[1, 1, 1], [3, 1, 2]]
    given_ = dict(zip(("x", "offset", "w", "mod"), ([0, 8, 16, 24], offset, [1, 10], factors)))
    shaped = (np.array(given_[r], float).reshape(call.problem.shape(r)) for r in given_)
    x, offset, w, mod = shaped
    (y,) = evaluate(call, x, offset, w, None, mod)
    samples = [(4, 3 * 0), (12, 16 / 2), (20, 2 * 22)]
    assert y.ravel().tolist() == [first + 10 * second for first, second in samples]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_offset_that_is_not_finite_reads_0(value):
    offset = np.zeros((1, 2, 1, 3))
    offset[0, :, 0, 1:] = (value, 0), (0, value)
    for pass_ in passes("deform_conv"):
        call = parse(f"deform_conv.{pass_}:n1c1_i1x3_f1x1:bias=0:dt=f64").call
        shapes = {r: call.problem.shape(r) for r in call.roles if call.is_present(r)}
        given_ = {r: np.ones(shape) for r, shape in shapes.items()} | {"offset": offset}
        arrays = [given_.get(role) for role in call.roles]
        results = [load(name).run(call, *arrays) for name in ("numpy", "loops")]
        for got, want in zip(*results, strict=True):
            assert_array_equal(got, want)
            assert np.isfinite(got).all()
    assert convref.deform_conv2d(np.ones((1, 1, 1, 3)), offset, np.ones((1, 1, 1, 1))).sum() == 1


def test_deform_conv_is_onnxs():
    """But for an axis of one element, where its reference divides by 0."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    from onnx.reference import ReferenceEvaluator

    axes = Axes(3, ("deform_conv",), ("fprop",), dtypes=("f64",), fills=("normal",), size=60)
    judged = 0
    for case in chunk_cases(axes, 0):
        problem, given_ = case.call.problem, operands(case)
        if 1 in problem.input or not problem.n * problem.c or problem.work() > 4000:
            continue
        named = {r: a for r, a in zip(case.call.roles, given_) if a is not None}
        node = onnx.helper.make_node(
            "DeformConv",
            [role if role in named else "" for role in ("x", "w", "offset", "b", "mod")],
            ["y"],
            kernel_shape=problem.filter,
            strides=problem.stride,
            dilations=problem.dilation,
            pads=[edge for end in zip(*problem.padding) for edge in end],
            group=problem.groups,
            offset_group=problem.offset_groups,
        )
        (y,) = ReferenceEvaluator(node).run(None, named)
        verdict = judge(case.call, given_, (y.astype(np.float64),), Numerics("rn32"))
        assert verdict, f"{case}: {verdict.reason}"
        judged += 1
    assert judged > 4


def test_a_tap_beyond_the_image_may_multiply_its_first_element_by_0():
    x = np.full((1, 1, 4, 4), 7.0)
    x[0, 0, 0, 0] = np.inf
    call = parse("deform_conv.fprop:n1c1_i4x4_f1x1:bias=0:dt=f64").call
    offset = np.zeros((1, 2, 4, 4))
    offset[0, 0, 2] = 5
    given_, y = (x, offset, np.ones((1, 1, 1, 1)), None, None), x.copy()
    y[0, 0, 2] = 0
    for row, right in ((2, True), (1, False)):
        got = y.copy()
        got[0, 0, row, 2] = np.nan
        assert bool(judge(call, given_, (got,), Numerics("rn64"))) is right


def test_a_sample_beyond_the_image_may_multiply_its_first_element_by_0():
    x, boxes = np.full((1, 1, 1, 9), 7.0), np.array([[0.0, 7, 0, 11, 0]])
    x[..., 0] = np.inf
    call = parse("roi_align.fprop:n1c1_i1x9_o1x1:sr=2:dt=f64").call
    y, nan = np.full((1, 1, 1, 1), 3.5), np.full((1, 1, 1, 1), np.nan)
    assert judge(call, (x, boxes), (y,), Numerics("rn64"))
    assert judge(call, (x, boxes), (nan,), Numerics("rn64"))
    boxes[0, 3] = 8  # now all samples are within
    assert judge(call, (x, boxes), (2 * y,), Numerics("rn64"))
    assert not judge(call, (x, boxes), (nan,), Numerics("rn64"))


@pytest.mark.parametrize("pass_", ["backward", "double_backward"])
def test_a_grid_without_samples_is_judged(pass_):
    line = f"grid_sample.{pass_}:n1c2_i3x4_o6x0:pad=border"
    assert examine(parse(line), load("numpy")).verdict == "pass"


@pytest.mark.parametrize("image", [-1, 2, np.nan])
def test_a_box_in_no_image_is_refused(image):
    boxes = np.array([[0.0, 0, 0, 1, 1], [image, 0, 0, 1, 1]])
    with pytest.raises(ConvrefError, match=r"boxes holds .*, needs an image from 0 to 1"):
        convref.roi_align(np.ones((2, 1, 3, 3)), boxes, 2)


@pytest.mark.parametrize("align", ["", ":align=1"])
def test_a_gradient_of_a_clipped_position_fails(align):
    """Only within rounding of an end may the derivative be that of either side."""
    call = parse(f"grid_sample.backward:n1c1_i1x4_o1x2:pad=border:mask=01{align}").call
    x, dy = np.float32([[[ROW]]]), np.ones((1, 1, 1, 2), np.float32)
    grid = np.float32([[[(-1.5, 0), (2, 0)]]])
    right, wrong = (np.float32([[[(slope, 0), (0, 0)]]]) for slope in (0, 0.5))
    for got, verdict in ((right, True), (wrong, False)):
        found = judge(call, (dy, x, grid), (None, got), Numerics("rn32"))
        assert bool(found) == verdict, found.reason


def test_a_clipped_position_has_no_gradient():
    """At -1 and beyond the border is constant; reflection turns the direction."""
    line = "grid_sample.backward:n1c1_i1x4_o1x4:align=1:dt=f64:mask=01:pad={}"
    grid = [(g, 0) for g in (-1, -1.5, 0, 1.5)]
    for padding, slopes in (("border", [0, 0, 3, 0]), ("reflection", [0, -1.5, 3, -6])):
        dgrid = run(line.format(padding), [1] * 4, ROW, grid)[1]
        assert dgrid.ravel()[::2].tolist() == slopes


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_positions_that_are_not_finite_are_torchs(value, mode, padding):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if padding == "reflection" and value == 1e30:
        pytest.skip("which element it is depends on rounding")
    x, grid = np.arange(1.0, 13).reshape(1, 1, 3, 4), np.array([value, 0.0]).reshape(1, 1, 1, 2)
    given_ = torch.from_numpy(x), torch.from_numpy(grid)
    want = torch.nn.functional.grid_sample(*given_, mode, padding, False)
    got = convref.grid_sample(x, grid, mode, padding, backend="numpy")
    np.testing.assert_array_equal(got, want.numpy())


def test_torch_within_both_bounds():
    """Every pass that torch has, second derivatives too, in float64."""
    pytest.importorskip("torch", reason="torch is not installed")
    from convref.backends.torch.adapter import backend
    from convref.backends.torch.sample import DERIVED_TWICE

    seen: Counter[tuple[str, str]] = Counter()
    axes = Axes(7, ("grid_sample",), dtypes=("f64",), fills=("int", "normal"), size=160)
    for case in chunk_cases(axes, 0):
        if backend.supports(case.call) is None:
            given_ = operands(case)
            verdict = judge(case.call, given_, backend.run(case.call, *given_), Numerics("rn64"))
            assert verdict, f"{case}: {verdict.reason}"
            seen[case.call.problem.mode, case.call.pass_] += 1
    assert len(seen) == (9 if DERIVED_TWICE else 6), seen


PADDED_TWICE = (("bicubic", "border"), ("bicubic", "reflection"))


def test_onnx_has_the_same_definition():
    """Its reference pads the positions of cubic samples too; PyTorch and ONNX Runtime do not."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    from onnx.reference import ReferenceEvaluator

    names = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}
    axes = Axes(3, ("grid_sample",), ("fprop",), dtypes=("f64",), fills=("normal",), size=250)
    seen = set()
    for case in chunk_cases(axes, 0):
        problem, given_ = case.call.problem, operands(case)
        if not 0 < prod(problem.shape("y")) <= 100:  # its reference takes 1 ms for each element
            continue
        if (problem.mode, problem.padding_mode) in PADDED_TWICE:
            continue
        if problem.align_corners and problem.padding_mode == "reflection" and 1 in problem.input:
            continue  # its reference divides by the distance between the corners
        rule = {"mode": names[problem.mode], "padding_mode": problem.padding_mode}
        node = onnx.helper.make_node(
            "GridSample", ["x", "grid"], ["y"], **rule, align_corners=int(problem.align_corners)
        )
        y = ReferenceEvaluator(node).run(None, dict(zip(("x", "grid"), given_)))[0]
        verdict = judge(case.call, given_, (y.astype(np.float64),), Numerics("rn32"))
        assert verdict, f"{case}: {verdict.reason}"
        seen.add(problem.mode)
    assert seen == set(names)


def test_the_bound_is_far_below_the_distance_of_neighbours():
    case = parse("grid_sample.fprop:n1c1_i1x64_o1x65:fill=ramp")
    given_ = operands(case)
    (moved,), (sums,) = (
        displacements(case.call, *given_, unit=2.0**-24),
        magnitudes(case.call, *given_),
    )
    assert (moved[sums > 0] < 2.0**-24 * 64 * 64 * np.abs(given_[0]).max()).all()


def test_either_of_two_nearest_elements_is_right_only_at_a_tie():
    call = parse("grid_sample.fprop:n1c1_i1x4_o1x2:mode=nearest").call
    x = np.float32(ROW).reshape(1, 1, 1, 4)
    grid = np.float32([(0, 0), (0.5, 0)]).reshape(1, 1, 2, 2)  # at 1.5 and 2.5
    grid[0, 0, 1, 0] = 0.45  # at 2.4
    for y, right in (([4, 4], True), ([2, 4], True), ([4, 8], False), ([11, 4], False)):
        got = np.float32(y).reshape(1, 1, 1, 2)
        assert bool(judge(call, (x, grid), (got,), Numerics("rn32"))) == right, y


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("grid_sample:n1c1_i0x2_o1x1", "input H is 0, needs at least 1"),
        ("grid_sample:n1c1_i2_o1", "input has 1 spatial axes, needs 2 or 3"),
        ("grid_sample:n1c1_i2x2x2_o1x1x1:mode=bicubic", "mode bicubic has 3 spatial axes, needs 2"),
        ("grid_sample:n1c1_i2x2_o1x1:mode=linear", "mode is 'linear', needs one of bilinear"),
        ("deform_conv:n1c3_i4x4_f3x3:og=2", "offset_groups is 2, needs a divisor of 3 channels"),
        ("deform_conv:n1c3_i4_f3", "input has 1 spatial axes, needs 2"),
        ("roi_align:n0c1_i2x2_o1x1", "1 boxes are in no image, needs n of at least 1"),
        ("grid_sample:n1c1_i2x2_o1x1:pad=wrap", "padding_mode is 'wrap', needs one of zeros"),
    ],
)
def test_refused(line, text):
    with pytest.raises(ConvrefError, match=text):
        parse(f"{line.replace(':', '.fprop:', 1)}")


def test_operands_that_do_not_match_are_refused():
    x, grid = np.ones((2, 1, 3, 3)), np.ones((2, 2, 2, 2))
    for wrong, text in (
        (grid[0], "grid has 3 axes, needs 4"),
        (grid[:1], "grid has N=1, needs 2"),
        (grid[..., :1], "grid has L=1, needs 2"),
        (grid.astype(np.float32), "grid has dtype f32, needs f64"),
        (None, "grid is None, needs an array"),
    ):
        with pytest.raises(ConvrefError, match=text):
            convref.grid_sample(x, wrong)
    with pytest.raises(ConvrefError, match="weights of positions are not integers"):
        convref.grid_sample(x.astype(int), grid.astype(int))
