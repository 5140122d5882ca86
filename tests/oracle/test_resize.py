"""Resizes against their loops, torch, adjoints, dual numbers and positions worked by hand."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from numpy.testing import assert_array_equal

import convref
from convref import dtypes, oracle
from convref.arrays import to_torch
from convref.case import Call, Case, Spec, parse, parse_problem
from convref.conformance.generate import Axes, chunk_cases
from convref.conformance.operands import operands
from convref.conformance.strategies import cases
from convref.errors import ConvrefError
from convref.judge import Numerics, judge
from convref.ops import ResizeProblem, passes
from convref.ops.resize_axis import rows, table_entries
from convref.oracle import displacements, evaluate, loops
from convref.oracle import resize as formulas
from convref.oracle._resize_errors import steepness, weight_errors

EXACT = ["int", "ramp", "ties", "impulse", "ones"]
SMALL = {"max_elements": 40, "max_macs": 100}
EXAMPLES = settings.default.max_examples
HALF = Fraction(1, 2)
PHASES = tuple(Phase)
UNSHRUNK = (Phase.generate,)  # where a check must fail, the first failure is enough


SHUFFLES = ["pixel_shuffle", "pixel_unshuffle"]


def campaign(check, dtypes_, fills=EXACT, pass_=None, phases=PHASES, op="resize", **more):
    """Run a check on generated cases: 80 of them, thousands under nightly."""

    @settings(max_examples=EXAMPLES, phases=phases, report_multiple_bugs=False)
    @given(cases([op], pass_ and [pass_], dtypes=dtypes_, fills=fills, **{**SMALL, **more}))
    def run(case):
        check(case)

    run()


@pytest.mark.parametrize("pass_", list(passes("resize")))
@pytest.mark.parametrize("op", ["resize", *SHUFFLES])
def test_loops_bit_for_bit(checks, op, pass_):
    campaign(checks.loops, ["obj"], pass_=pass_, op=op)


def copies(case):
    """Return the case in mode nearest, which has results of every type."""
    problem = replace(case.call.problem, mode="nearest", antialias=False, near="floor")
    call = Call("resize", case.call.pass_, problem, specs=(Spec("i64"),))
    return replace(case, call=call)


def test_nearest_bit_for_bit_on_integers(checks):
    campaign(lambda case: checks.loops(copies(case)), ["obj"])


def test_uint8_bit_for_bit(checks):
    campaign(checks.loops, ["u8"], [*EXACT, "wide"], pass_="fprop")


def test_uint8_is_rounded_after_each_axis_the_last_first():
    line = "resize.fprop:n1c1_i2x2_o1x1:dt=u8"
    assert run(line, [[64, 65], [0, 0]])[0] == 33  # rows give 65 and 0; the exact mean is 32.25
    assert run(line, [[1, 0], [3, 0]])[0] == 2  # rows give 1 and 2; columns would give 2 and 0
    (y,) = run("resize.fprop:n1c1_i4_o8:mode=cubic:dt=u8", [0, 255, 255, 255])
    assert y.ravel()[-5:].tolist() == [255] * 5  # beyond 255 by the kernel's overshoot


@pytest.mark.parametrize("backend", ["numpy", "loops"])
def test_uint8_has_no_weights_beyond_16_bits(backend):
    given = np.ones((1, 1, 4), np.uint8), 3
    for a in (-9.0, 1e30):
        keywords = {"mode": "cubic", "cubic_coeff_a": a, "backend": backend}
        if a < 0:
            assert convref.resize(*given, **keywords).tolist() == [[[1, 1, 1]]]
            continue
        with pytest.raises(ConvrefError, match=r"uint8 has a weight of .*, needs less than 2"):
            convref.resize(*given, **keywords)


def test_uint8_is_torchs_to_the_bit():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rng = np.random.default_rng(20)
    for number in range(60):
        smooth = {"mode": ("bilinear", "bicubic")[number % 2], "antialias": number % 4 > 1}
        smooth |= {} if smooth["antialias"] else {"align_corners": number % 8 > 3}
        c, h, w, rows_, columns_ = rng.integers((1, 1, 1, 1, 2), (9, 12, 12, 12, 12)).tolist()
        x = rng.integers(0, 256, (1, c, h, w), np.uint8)
        want = torch.nn.functional.interpolate(torch.from_numpy(x), (rows_, columns_), **smooth)
        got = convref.interpolate(x, (rows_, columns_), **smooth)
        assert_array_equal(got, want.numpy(), err_msg=str(smooth), strict=True)


def sibling(call, pass_):
    return Call(call.op, pass_, call.problem, specs=(Spec(call.dtype),))


def inner(a, b):
    return sum((x * y for x, y in zip(a.ravel().tolist(), b.ravel().tolist())), 0)


@pytest.mark.parametrize("op", ["resize", *SHUFFLES])
def test_adjoint_identity(op):
    """<dy, y_dot> = <dx, x_dot>, in Fractions."""

    def check(case):
        (x_dot,) = operands(case)
        (y_dot,) = evaluate(case.call, x_dot)
        back = Case(sibling(case.call, "backward"), case.fill, case.seed + 1)
        (dy,) = operands(back)
        (dx,) = evaluate(back.call, dy)
        assert inner(dy, y_dot) == inner(dx, x_dot), str(case)

    campaign(check, ["obj"], pass_="jvp", op=op)


class Dual:
    """a + b e with e * e = 0: a formula on such numbers gives its own derivative."""

    def __init__(self, a, b=0):
        self.a, self.b = a, b

    def __add__(self, other):
        other = other if isinstance(other, Dual) else Dual(other)
        return Dual(self.a + other.a, self.b + other.b)

    __radd__ = __add__

    def __rmul__(self, weight):
        return Dual(weight * self.a, weight * self.b)


def test_jvp_is_the_forward_pass_on_dual_numbers():
    def check(case):
        (x_dot,) = operands(case)
        (x,) = operands(Case(sibling(case.call, "fprop"), case.fill, case.seed))
        duals = np.empty(x.shape, object)
        for at in np.ndindex(x.shape):
            duals[at] = Dual(x[at], x_dot[at])
        (y,) = loops.FORMULAS["resize", "fprop"](case.call, duals)
        want = [getattr(value, "b", 0) for value in y.ravel()]
        assert evaluate(case.call, x_dot)[0].ravel().tolist() == want, str(case)

    campaign(check, ["obj"], ["int", "ties", "ramp"], pass_="jvp")


def test_torch_within_both_bounds():
    """All calls that torch computes by the rules, in float64; the court tests other types."""
    pytest.importorskip("torch", reason="torch is not installed")
    from convref.backends.torch.adapter import backend

    seen: Counter[tuple[str, str]] = Counter()
    axes = Axes(7, ("resize",), dtypes=("f64",), fills=("int", "normal"), size=1200)
    for case in chunk_cases(axes, 0):
        if backend.supports(case.call) is None:
            given = operands(case)
            verdict = judge(case.call, given, backend.run(case.call, *given), Numerics("rn64"))
            assert verdict, f"{case}: {verdict.reason}"
            seen[case.call.problem.mode, case.call.pass_] += 1
    assert len(seen) == 16
    assert min(seen.values()) >= 15, seen


def test_nearest_is_torchs_to_the_bit_where_float32_rounds_across_an_integer():
    """82 elements from 2: number 41 is at input 1, which float32 misses and exact rules do not.

    Some of ATen's kernels of rank 1 round on other ways, forward only; these are of images.
    """
    torch = pytest.importorskip("torch", reason="torch is not installed")

    x = np.arange(2, dtype=np.float32)[None, None, None]
    for mode, coord, out in (("nearest", "asymmetric", 82), ("nearest-exact", "half_pixel", 41)):
        want = torch.nn.functional.interpolate(torch.from_numpy(x), (1, out), mode=mode)
        line = f"resize.fprop:n1c1_i1x2_o1x{out}:mode=nearest:coord={coord}"
        (y,) = run(line, x)
        assert_array_equal(y, want.numpy(), strict=True)
        near = "floor" if mode == "nearest" else "round_prefer_ceil"
        (exact,) = run(f"{line}:near={near}", x)
        assert (exact != y).sum() == 1


def run(line, *arrays):
    call = parse(line).call
    return evaluate(
        call, *(np.array(a).reshape(call.problem.shape(r)) for r, a in zip(call.roles, arrays))
    )


POSITIONS = [  # of 4 outputs, one by one
    ("i2_o4", ["-1/4", "1/4", "3/4", "5/4"]),
    ("i8_o4", ["1/2", "5/2", "9/2", "13/2"]),
    ("i7_o4:coord=align_corners", ["0", "2", "4", "6"]),
    ("i2_o4:coord=asymmetric", ["0", "1/2", "1", "3/2"]),
    ("i2_o4:coord=pytorch_half_pixel", ["-1/4", "1/4", "3/4", "5/4"]),
    ("i3_o4:coord=half_pixel_symmetric:scale=1.5", ["0", "2/3", "4/3", "2"]),
    ("i5_o4:scale=0.5", ["1/2", "5/2", "9/2", "13/2"]),
    ("i9_o4:coord=tf_crop_and_resize:roi=0.25,1", ["2", "4", "6", "8"]),
    ("i9_o4:coord=tf_crop_and_resize:roi=1,0.25", ["8", "6", "4", "2"]),
]


@pytest.mark.parametrize(("shape", "positions"), POSITIONS)
def test_where_outputs_sample(shape, positions):
    (axis,) = parse_problem(f"resize:n1c1_{shape}").axes
    assert [str(axis.position(p)) for p in range(4)] == positions


@pytest.mark.parametrize(
    ("coord", "position"),
    [
        ("half_pixel", 2),
        ("half_pixel_symmetric", 2),
        ("pytorch_half_pixel", 0),
        ("align_corners", 0),
        ("asymmetric", 0),
        ("tf_crop_and_resize", 2),
    ],
)
def test_where_the_only_output_samples(coord, position):
    (axis,) = ResizeProblem(n=1, c=1, input=(5,), output=(1,), coord=coord).axes
    assert axis.position(0) == position


NEAR, FAR = Fraction(19, 32), Fraction(-3, 32)  # Keys' kernel at 1/2 and 3/2
INSIDE = 2 * NEAR + FAR
WEIGHTS: list[tuple[str, int, dict[int, Fraction]]] = [  # shape, output, what it reads
    ("i2_o4", 0, {0: Fraction(1)}),  # the neighbour before the image is its edge
    ("i2_o4", 1, {0: Fraction(3, 4), 1: Fraction(1, 4)}),
    ("i4_o2:mode=cubic", 0, {0: FAR + NEAR, 1: NEAR, 2: FAR}),
    ("i4_o2:mode=cubic:xo=1", 0, {0: NEAR / INSIDE, 1: NEAR / INSIDE, 2: FAR / INSIDE}),
    ("i4_o2:aa=1:xo=1", 0, {0: Fraction(3, 7), 1: Fraction(3, 7), 2: Fraction(1, 7)}),
    ("i4_o2:aa=1", 0, {0: HALF, 1: Fraction(3, 8), 2: Fraction(1, 8)}),
    ("i5_o3:mode=area", 1, {1: Fraction(1, 3), 2: Fraction(1, 3), 3: Fraction(1, 3)}),
    ("i5_o3:coord=tf_crop_and_resize:roi=-0.5,1", 0, {}),
]


@pytest.mark.parametrize(("shape", "p", "weights"), WEIGHTS)
def test_positions_and_weights_of_an_output(shape, p, weights):
    (axis,) = parse_problem(f"resize:n1c1_{shape}").axes
    assert dict(rows(axis)[p]) == weights


NEAREST = {  # what 8 outputs copy of 5 inputs that they sample at -1/2 + 5/8 (p + 1/2), rounded
    "round_prefer_floor": [0, 0, 1, 2, 2, 3, 4, 4],
    "round_prefer_ceil": [0, 0, 1, 2, 2, 3, 4, 4],
    "floor": [0, 0, 1, 1, 2, 2, 3, 4],
    "ceil": [0, 1, 2, 2, 3, 3, 4, 4],
}


@pytest.mark.parametrize("near", NEAREST)
def test_which_element_is_nearest(near):
    (y,) = run(f"resize.fprop:n1c1_i5_o8:mode=nearest:near={near}:dt=i64", range(5))
    assert y.ravel().tolist() == NEAREST[near]


def test_ties_go_where_the_rule_says():
    """8 into 4 samples at 1/2, 5/2 ...: halfway, each time."""
    line = "resize.fprop:n1c1_i8_o4:mode=nearest:near={}:dt=i64"
    assert run(line.format("round_prefer_floor"), range(8))[0].ravel().tolist() == [0, 2, 4, 6]
    assert run(line.format("round_prefer_ceil"), range(8))[0].ravel().tolist() == [1, 3, 5, 7]


def test_weights_of_an_output_sum_to_1():
    def check(case):
        problem = case.call.problem
        for axis in problem.axes:
            for p, row in enumerate(rows(axis)):
                total = sum(weight for _, weight in row)
                assert total == 1 or (not row and "crop" in axis.coord) or axis.exclude, (axis, p)

    campaign(check, ["obj"])


def test_a_weight_of_0_reads_nothing():
    """Output 1 of 3 is at input 1 of 3, and ignores the NaN next to it."""
    (y,) = run("resize.fprop:n1c1_i3_o3:dt=f64", [1, 2, np.nan])
    assert_array_equal(y, [[[1, 2, np.nan]]])
    (y,) = run("resize.fprop:n1c1_i2_o4:dt=f64", [np.inf, 0])
    assert_array_equal(y, [[[np.inf, np.inf, np.inf, 0]]])


def single(axis, p):
    """Return the weights of an output as binary32 arithmetic finds them, as ATen does."""
    one, half = np.float32(1), np.float32(0.5)
    step = np.float32(axis.size) / np.float32(axis.out)
    x = step * (np.float32(p) + half) - half
    down = np.floor(x)
    t = [np.float32(x - down + one - np.float32(k)) for k in range(4)]
    a = np.float32(axis.a)
    if axis.mode == "linear":
        x = max(x, np.float32(0))
        down = np.floor(x)
        pairs = [(down, one - (x - down)), (down + 1, x - down)]
    else:
        values = []
        for distance in map(abs, t):
            if distance <= 1:
                values.append(((a + 2) * distance - (a + 3)) * distance * distance + one)
            else:
                values.append(((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a)
        pairs = [(down - 1 + k, value) for k, value in enumerate(values)]
    found: dict[int, float] = {}
    for j, weight in pairs:
        i = int(min(max(j, 0), axis.size - 1))
        found[i] = found.get(i, 0.0) + float(weight)
    return found


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_weights_of_binary32_are_within_their_bound(mode):
    worst = 0.0
    for size in (1, 2, 5, 17, 100, 641):
        for out in (1, 3, 8, 37, 129, 1000):
            (axis,) = ResizeProblem(n=1, c=1, input=(size,), output=(out,), mode=mode).axes
            for p in range(0, out, max(1, out // 40)):
                exact, errors = dict(rows(axis)[p]), dict(weight_errors(axis, p, 2.0**-24))
                for i, weight in single(axis, p).items():
                    off = abs(weight - exact.get(i, Fraction(0)))
                    assert off <= errors.get(i, 0.0), (axis, p, i)
                    worst = max(worst, off / errors[i] if errors.get(i) else 0)
    assert worst > 0.05  # the bound is nearly reached


def test_the_slope_of_the_kernel_is_within_its_bound():
    for mode, a in (("linear", -0.75), ("cubic", -0.75), ("cubic", -0.5), ("cubic", -1.0)):
        (axis,) = ResizeProblem(n=1, c=1, input=(2,), output=(2,), mode=mode, a=a).axes
        grid = [Fraction(k, 256) for k in range(2 * 256 + 1)]
        slopes = [abs(axis.kernel(t + Fraction(1, 256)) - axis.kernel(t)) * 256 for t in grid]
        assert max(slopes) <= steepness(axis) <= 1.05 * float(max(slopes))


def test_the_bound_is_below_the_distance_of_neighbours():
    """Positions one whole element off stay wrong, however small u is taken."""
    call = parse("resize.fprop:n1c1_i64_o129:fill=ramp").call
    x = operands(parse(f"{call}:fill=ramp"))
    (moved,) = displacements(call, *x, unit=2.0**-24)
    assert moved.max() < 2.0**-24 * 64 * 16 * float(np.abs(x[0]).max())


REFUSED = [
    ("i3_o0", "output W is 0, needs at least 1"),
    ("i0_o3", "input W is 0, needs at least 1"),
    ("i3_o3:mode=bilinear", "mode is 'bilinear', needs one of linear, nearest, cubic, area"),
    ("i3_o3:coord=corners", "coord is 'corners', needs one of half_pixel"),
    ("i3_o3:near=even", "near is 'even', needs one of float32, round_prefer_floor"),
    ("i3_o3:mode=nearest:aa=1", "antialias is True, needs mode linear or cubic, not nearest"),
    ("i3_o3:mode=nearest:coord=align_corners", "with near float32, needs asymmetric or half_pixel"),
    ("i3_o3:scale=0", "scale is (0.0,), needs none or 1 numbers above 0"),
    ("i3x3_o3x3:scale=1x2x3", "needs none or 2 numbers above 0"),
    ("i3_o3:roi=0,1", "roi is given with coord half_pixel, needs none"),
    ("i3_o3:ev=1", "extrapolation_value is 1.0 with coord half_pixel, needs 0"),
    ("i3_o3:scale=1,2", "a number instead of '1,2'"),
    ("i3_o3:coord=tf_crop_and_resize:roi=1", "start,stop on every axis"),
]


@pytest.mark.parametrize(("shape", "text"), REFUSED)
def test_invalid_problems_are_refused(shape, text):
    with pytest.raises(ConvrefError) as caught:
        parse_problem(f"resize:n1c1_{shape}")
    assert text in str(caught.value)


def test_integers_are_only_copied():
    with pytest.raises(ConvrefError, match="weights of mode linear are not integers"):
        parse("resize.fprop:n1c1_i3_o3:dt=i8")
    with pytest.raises(ConvrefError, match="rounded results of mode linear have no derivative"):
        parse("resize.backward:n1c1_i3_o3:dt=u8")
    line = "resize.fprop:n1c1_i3_o3:mode=nearest:coord=tf_crop_and_resize:near=floor"
    assert parse(f"{line}:ev=-2:dt=i8").call.dtype == "i8"
    for ending in ("ev=0.5:dt=i8", "ev=-2:dt=u8"):
        with pytest.raises(ConvrefError, match="is not a number of type"):
            parse(f"{line}:{ending}")


@pytest.mark.parametrize("fill", ["int", "normal"])
def test_a_value_beyond_the_image_is_judged(fill):
    line = f"resize.fprop:n1c1_i5x5_o6x6:coord=tf_crop_and_resize:roi=-0.5,1x0,1:ev=10:fill={fill}"
    case = parse(line)
    (y,) = evaluate(case.call, *operands(case))
    assert (y[0, 0, :2] == 10).all()
    assert (y[0, 0, 2:] != 10).all()
    assert judge(case.call, operands(case), (y,), Numerics("rn32"))
    y[0, 0, 0, 0] = 9.999
    assert not judge(case.call, operands(case), (y,), Numerics("rn32"))


@pytest.mark.parametrize("op", SHUFFLES)
def test_a_shuffle_is_torchs_and_undone_by_its_adjoint(op):
    """In mode CRD in torch's order of channels; infinities, NaN and the sign of zero stay."""
    torch = pytest.importorskip("torch", reason="torch is not installed")

    def check(case):
        (x,) = operands(case)
        (y,) = evaluate(case.call, x)
        if case.call.problem.mode == "CRD":
            theirs = getattr(torch.nn.functional, op)(to_torch(x), case.call.problem.factor)
            assert y.shape == tuple(theirs.shape)
            assert y.tobytes() == theirs.contiguous().numpy().tobytes(), str(case)
        (back,) = evaluate(sibling(case.call, "backward"), y)
        assert back.tobytes() == np.ascontiguousarray(x).tobytes(), str(case)

    campaign(check, ["f32"], ["int", "nan", "inf", "negzero"], pass_="fprop", op=op, empty=False)


@pytest.mark.parametrize(
    ("mode", "needed"),
    [
        ("CRD", [[[0, 2, 1, 3], [4, 6, 5, 7]], [[8, 10, 9, 11], [12, 14, 13, 15]]]),
        ("DCR", [[[0, 4, 1, 5], [8, 12, 9, 13]], [[2, 6, 3, 7], [10, 14, 11, 15]]]),
    ],
)
def test_a_shuffle_moves_channels_into_blocks(mode, needed):
    """Channel 4 c + 2 i + j, or 2 (2 i + j) + c, goes to row i and column j of its block."""
    call = parse(f"pixel_shuffle.fprop:n1c8_i1x2:mode={mode}").call
    (y,) = evaluate(call, np.arange(16.0).reshape(1, 8, 1, 2))
    assert y.tolist() == [needed]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("pixel_shuffle:n1c6_i2x2", "C=6, needs a multiple of upscale_factor**2 = 4"),
        ("pixel_unshuffle:n1c6_i4x5:r=4", "W=5, needs a multiple of downscale_factor = 4"),
        ("pixel_unshuffle:n1c6_i4x5:r=0", "downscale_factor is 0, needs at least 1"),
        ("pixel_shuffle:n1c4_i2", "input has 1 spatial axes, needs 2"),
        ("pixel_shuffle:n1c4_i2x2:mode=RCD", "mode is 'RCD', needs one of CRD, DCR"),
    ],
)
def test_message_names_the_size_that_a_shuffle_needs(line, text):
    with pytest.raises(ConvrefError) as caught:
        parse_problem(line)
    assert text in str(caught.value)


@pytest.mark.parametrize("op", SHUFFLES)
def test_another_order_of_channels_fails(checks, monkeypatch, op):
    right, swapped = oracle.FORMULAS[op, "fprop"], {"CRD": "DCR", "DCR": "CRD"}

    def wrong(call, x):
        problem = replace(call.problem, mode=swapped[call.problem.mode])
        return right(replace(call, problem=problem), x)

    monkeypatch.setitem(oracle.FORMULAS, (op, "fprop"), wrong)
    with pytest.raises(AssertionError, match=op):
        campaign(checks.loops, ["obj"], ["ramp"], pass_="fprop", phases=UNSHRUNK, op=op)


def wrong_scatter(dy, axes, table):
    """Give each cotangent to the first position that its output reads."""

    def first(axis):
        found = table(axis)
        return table_entries([row[:1] for row in found.rows()], found.inputs)

    return formulas.weighted(dy, axes, first)


@pytest.mark.parametrize("passes_", ["fprop", "backward"])
def test_a_wrong_formula_fails(checks, monkeypatch, passes_):
    monkeypatch.setitem(oracle.FORMULAS, ("resize", passes_), wrong_formula(passes_))
    with pytest.raises(AssertionError):
        campaign(checks.loops, ["obj"], pass_=passes_, phases=UNSHRUNK)


def wrong_formula(pass_):
    table = formulas.entries if pass_ == "fprop" else formulas.columns

    def formula(call, array):
        return (wrong_scatter(array, call.problem.axes, table),)

    return formula


def test_longdouble_and_complex_are_weighted_in_their_own_precision():
    third = Fraction(1, 3)
    (axis,) = ResizeProblem(n=1, c=1, input=(3,), output=(1,), mode="area").axes
    (tap, *_) = formulas.taps(axis, formulas.entries, np.dtype(np.longdouble).str)
    off = abs(Fraction(*tap[2][0].as_integer_ratio()) - third)
    assert off <= Fraction(dtypes.number("f80").u)
    (y,) = run("resize.fprop:n1c1_i2_o4:dt=c128", [0, 4 + 8j])
    assert_array_equal(y, [[[0, 1 + 2j, 3 + 6j, 4 + 8j]]])


@pytest.mark.parametrize("keys", ["", ":mode=nearest", ":mode=cubic", ":mode=area"])
def test_a_large_axis_is_set_up_without_a_loop_over_positions(keys):
    """Per position in Python this took 164 s."""
    line, calls = f"resize.fprop:n1c1_i2_o300000{keys}", Counter()
    sys.setprofile(lambda frame, event, _: calls.update([event]))
    try:
        (y,) = run(line, [0.0, 1.0])
        (dx,) = run(line.replace("fprop", "backward"), np.ones(300000))
    finally:
        sys.setprofile(None)
    assert calls.total() < 30_000
    assert (y[0, 0, 0], y[0, 0, -1]) == pytest.approx((0, 1), abs=0.1)  # cubic overshoots
    assert dx.sum() == pytest.approx(300000)


def test_many_entries_of_one_output_are_added_as_few_are(monkeypatch):
    for line in ("i500_o2:aa=1", "i2_o500", "i3x200_o400x1:mode=area"):
        for pass_ in ("fprop", "backward"):
            case = parse(f"resize.{pass_}:n1c2_{line}:dt=obj")
            many = evaluate(case.call, *operands(case))
            with monkeypatch.context() as patch:
                patch.setattr(formulas, "MANY", 10**9)
                few = evaluate(case.call, *operands(case))
            assert_array_equal(many[0], few[0])
