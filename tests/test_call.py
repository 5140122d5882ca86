"""Invalid arguments of a Call and of the judge raise one type of error, with a sentence."""

import numpy as np
import pytest

import convref
from convref.case import Call, Spec, parse
from convref.judge import Numerics, judge
from convref.ops import FAMILY, OPS, ResizeProblem

LINES = {
    "conv": "conv.fprop:n1c1k1_i3_f2",
    "max_pool": "max_pool.fprop:n1c1_i3_f2",
    "avg_pool": "avg_pool.fprop:n1c1_i3_f2",
    "resize": "resize.fprop:n1c1_i3_o2",
    "relu": "relu.fprop:n1c1_i3",
}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("line", LINES.values())
def test_a_problem_of_another_family_is_refused(op, line):
    problem = parse(line).call.problem
    if type(problem) is FAMILY[op]:
        assert Call(op, "fprop", problem).problem is not None
        return
    with pytest.raises(convref.ConvrefError, match=f"{op}.fprop: problem is an? .*, needs a "):
        Call(op, "fprop", problem)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((["conv"], "fprop"), "pass is"),
        (("conv", None), "pass is conv.None, needs one of"),
        (("conv", "fprop", {}), "problem is a dict"),
        (("conv", "fprop", (), 3), "problem is a tuple"),
    ],
)
def test_invalid_calls_are_refused(arguments, text):
    with pytest.raises(convref.ConvrefError, match=text):
        Call(*arguments, *(() if len(arguments) > 2 else (parse(LINES["conv"]).call.problem,)))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"mask": 3}, "mask is 3, needs 3"),
        ({"specs": Spec()}, "specs is .*, needs a tuple of Spec"),
        ({"specs": ("f32",)}, "specs is .*, needs a tuple of Spec"),
    ],
)
def test_fields_of_a_call_are_checked(fields, text):
    problem = parse(LINES["conv"]).call.problem
    with pytest.raises(convref.ConvrefError, match=text):
        Call("conv", "backward", problem, **fields)


CALL = parse("conv.fprop:n1c1k1_i3_f1:bias=0").call
X, W = np.ones((1, 1, 3), np.float32), np.ones((1, 1, 1), np.float32)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((None, (X, W, None), (X,), Numerics()), "call is None, needs a Call"),
        ((CALL, (X, W, None), (X,), "rn32"), "numerics is 'rn32', needs a Numerics"),
        ((CALL, (X, W, None), (X,), None), "numerics is None, needs a Numerics"),
        ((CALL, (X, W), (X,), Numerics()), "operands is .* needs 3: x, w, b"),
        ((CALL, None, (X,), Numerics()), "operands is None, needs 3: x, w, b"),
        ((CALL, (X, None, None), (X,), Numerics()), "weight is None, needs an array"),
        ((CALL, (X, W[0], None), (X,), Numerics()), "weight has 2 axes, needs 3"),
        ((CALL, (X, "w", None), (X,), Numerics()), "weight is a str, needs a NumPy array"),
        ((CALL, (X, W, None), X, Numerics()), "results is an ndarray, needs one array per role"),
        ((CALL, (X, W, None), None, Numerics()), "results is None"),
    ],
)
def test_arguments_of_the_judge_are_checked(arguments, text):
    with pytest.raises(convref.ConvrefError, match=text):
        judge(*arguments)


def test_the_judge_refuses_a_role_that_is_no_result():
    with pytest.raises(convref.ConvrefError, match="only has dx, needs some of y"):
        judge(CALL, (X, W, None), (X,), Numerics(), only=("dx",))


@pytest.mark.parametrize("roi", ["half", 3, {1, 2}, (0, 1), {"a": 1}, np.float64(0.5)])
def test_a_region_that_is_no_list_of_pairs_is_refused(roi):
    with pytest.raises(convref.ConvrefError, match=r"roi is .*needs none or 1 pairs"):
        convref.resize(
            np.ones((1, 1, 4)), 2, coordinate_transformation_mode="tf_crop_and_resize", roi=roi
        )


@pytest.mark.parametrize("scale", ["half", {1.5}, None])
def test_a_scale_that_is_no_number_is_refused(scale):
    with pytest.raises(convref.ConvrefError, match="scale is"):
        ResizeProblem(n=1, c=1, input=(4,), output=(2,), scale=scale)


def test_one_scale_serves_all_axes():
    problem = ResizeProblem(n=1, c=1, input=(4, 4), output=(2, 2), scale=0.5)
    assert problem.scale == (0.5, 0.5)
