"""Every op and pass by `case_of` and `assert_correct`: the same call, the same verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import groupby
from math import floor, prod
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import convref
from convref import SIGNATURE, Call, Case, oracle
from convref.api import definitions, views
from convref.backends.numpy import declared
from convref.conformance.generate import Axes, chunk_cases
from convref.conformance.operands import operands
from convref.conformance.strategies import cases
from convref.ops import BASE_ROLE, FAMILY, Problem

FEW = settings(max_examples=settings.default.max_examples // 4)  # an op has ten arguments at most
Settings = Callable[[Problem, str], dict[str, Any]]


def windows(problem: Problem, pass_: str) -> dict[str, Any]:
    names = {"kernel_size": "filter", "stride": "stride", "padding": "padding"}
    names |= {"dilation": "dilation"} | ({"ceil_mode": "ceil"} if hasattr(problem, "ceil") else {})
    return {name: getattr(problem, field) for name, field in names.items()}


def shaped(problem: Problem, pass_: str) -> dict[str, Any]:
    """Return the input where a pass needs its shape only."""
    return {"input": np.empty(problem.shape("x"))} if pass_ == "backward" else {}


def conv(problem: Problem, pass_: str) -> dict[str, Any]:
    names = ("stride", "padding", "dilation", "groups", "transposed", "output_padding", "flip")
    return {name: getattr(problem, name) for name in names}


def unfold(problem: Problem, pass_: str) -> dict[str, Any]:
    adjoint = {"output_size": problem.input} if pass_ == "backward" else {}
    return {**windows(problem, pass_), **adjoint}


def fold(problem: Problem, pass_: str) -> dict[str, Any]:
    adjoint = {"output_size": problem.input} if pass_ != "backward" else {}
    return {**windows(problem, pass_), **adjoint}


def avg_pool(problem: Problem, pass_: str) -> dict[str, Any]:
    more = {"count_include_pad": problem.include_pad, "divisor_override": problem.divisor or None}
    return {**windows(problem, pass_), **shaped(problem, pass_), **more}


def lp_pool(problem: Problem, pass_: str) -> dict[str, Any]:
    return {**windows(problem, pass_), "norm_type": problem.norm}


def adaptive_max_pool(problem: Problem, pass_: str) -> dict[str, Any]:
    return {"output_size": problem.output}


def adaptive_avg_pool(problem: Problem, pass_: str) -> dict[str, Any]:
    return {"output_size": problem.output, **shaped(problem, pass_)}


def max_unpool(problem: Problem, pass_: str) -> dict[str, Any]:
    kernel = tuple(o - i + 1 for i, o in zip(problem.input, problem.output))
    return {"kernel_size": kernel, "stride": 1, **shaped(problem, pass_)}


def resize(problem: Problem, pass_: str) -> dict[str, Any]:
    sizes = {"scales": problem.scale} if problem.scale else {"sizes": problem.output}
    return {
        **sizes,
        **shaped(problem, pass_),
        "mode": problem.mode,
        "coordinate_transformation_mode": problem.coord,
        "nearest_mode": problem.near,
        "cubic_coeff_a": problem.a,
        "exclude_outside": problem.exclude,
        "antialias": problem.antialias,
        "roi": problem.roi or None,
        "extrapolation_value": problem.extrapolation,
    }


def roi_align(problem: Problem, pass_: str) -> dict[str, Any]:
    names = ("spatial_scale", "sampling_ratio", "aligned")
    return {"output_size": problem.output, **{name: getattr(problem, name) for name in names}}


def deform_conv(problem: Problem, pass_: str) -> dict[str, Any]:
    return {name: getattr(problem, name) for name in ("stride", "padding", "dilation")}


def norm(problem: Problem, pass_: str) -> dict[str, Any]:
    return {"eps": problem.eps}


def batch_norm(problem: Problem, pass_: str) -> dict[str, Any]:
    return {"eps": problem.eps, **({"momentum": problem.momentum} if pass_ == "fprop" else {})}


def group_norm(problem: Problem, pass_: str) -> dict[str, Any]:
    return {"eps": problem.eps, "num_groups": problem.groups}


def rows(problem: Problem, pass_: str) -> dict[str, Any]:
    return {"eps": problem.eps, "normalized_shape": (problem.c, *problem.input)}


def reduced(problem: Problem, pass_: str) -> dict[str, Any]:
    return {"dim": problem.axes, "keepdim": True, **shaped(problem, pass_)}


def cross_entropy(problem: Problem, pass_: str) -> dict[str, Any]:
    names = ("ignore_index", "reduction", "label_smoothing")
    return {name: getattr(problem, name) for name in names}


SETTINGS: dict[str, Settings] = {
    "conv": conv,
    "unfold": unfold,
    "fold": fold,
    "max_pool": windows,
    "avg_pool": avg_pool,
    "lp_pool": lp_pool,
    "adaptive_max_pool": adaptive_max_pool,
    "adaptive_avg_pool": adaptive_avg_pool,
    "max_unpool": max_unpool,
    "resize": resize,
    "roi_align": roi_align,
    "deform_conv": deform_conv,
    "batch_norm": batch_norm,
    "instance_norm": batch_norm,
    "batch_norm_eval": norm,
    "group_norm": group_norm,
    **{d.op: rows for d in definitions() if d.view is views.rows},
    "leaky_relu": lambda problem, _: {"negative_slope": problem.slope},
    "cross_entropy": cross_entropy,
    "sum": reduced,
    "mean": reduced,
}


# Ops whose public functions take the operands; those of 8 bits take the factors of the scales.
NAMED = [op for op in FAMILY if op not in ("conv_integer", "quantized_conv", "scaled_conv")]


def fields(problem: Any, pass_: str) -> dict[str, Any]:
    """Return the arguments of an op whose arguments have the names of the fields of its problem."""
    names = [f.name for f in problem.KEYS.values() if f.name not in problem.OF_OPERANDS]
    found = {name: getattr(problem, name) for name in names}
    takes_x = "x" in SIGNATURE[problem.name, pass_].operands if problem.name in FAMILY else True
    return found if takes_x else {**found, **shaped(problem, pass_)}


def sayable(case: Case) -> Case:
    """Return the case as the public functions can ask for it."""
    call, problem = case.call, case.call.problem
    if call.op == "resize":
        problem = _sayable_resize(problem)
    if (call.op, call.pass_) == ("conv", "double_backward"):
        problem = replace(problem, bias=True)  # whether db had a cotangent is all that counts
    if call.op in ("batch_norm", "instance_norm") and call.pass_ != "fprop":
        problem = replace(problem, momentum=0.1)  # which only running statistics need
    mask = () if call.op == "lp_pool" else call.mask  # it has no output_mask
    return replace(case, call=replace(call, problem=problem, mask=mask))


def _sayable_resize(problem: Problem) -> Problem:
    if problem.mode == "area":
        sizes = {name: getattr(problem, name) for name in ("n", "c", "input", "output")}
        return convref.ops.ResizeProblem(**sizes, mode="area")
    frames = problem.roi or ((0.0, 1.0),) * problem.rank
    scaled = zip(problem.input, problem.scale, frames)
    fits = problem.output == tuple(floor(i * (stop - start) * s) for i, s, (start, stop) in scaled)
    return problem if fits else replace(problem, scale=())


def user_call(case: Case, arrays: tuple[Any, ...]) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """Return the name, operands and arguments that ask for the call of a case."""
    call, problem = case.call, case.call.problem
    name = f"{call.op}.{call.pass_}"
    arguments = SETTINGS.get(call.op, fields)(problem, call.pass_)
    if call.op == "resize" and problem.mode == "area":
        name = f"interpolate.{call.pass_}"
        arguments = {"size": problem.output, "mode": "area", **shaped(problem, call.pass_)}
    if call.mask and not all(call.mask):
        arguments["output_mask"] = call.mask
    if call.math != "ieee":
        arguments["math"] = call.math
    return name, tuple(map(_as_user, [call] * len(arrays), call.roles, arrays)), arguments


def _as_user(call: Call, role: str, array: Any) -> Any:
    """Return an operand or result as a user has it: the loss of a whole batch is a number."""
    loss = call.op in ("nll_loss", "cross_entropy", "soft_cross_entropy") and BASE_ROLE[role] == "y"
    number = loss and array is not None and call.problem.reduction != "none"
    return array.reshape(()) if number else array


def grouped(problem: Problem) -> Problem:
    """Return the problem of a reduction with neighbouring axes of one kind as one."""
    sizes = (problem.n, problem.c, *problem.input)
    runs = [
        (over, prod(sizes[axis] for axis in axes))
        for over, axes in groupby(range(len(sizes)), lambda axis: axis in problem.axes)
    ]
    (_, kept), *space = runs
    letters = "".join(a for a, (over, _) in zip("dhw"[-len(space) :], space) if over)
    return replace(problem, n=1, c=kept, input=tuple(size for _, size in space), over=letters)


def visible(array: Any) -> tuple[int, ...]:
    """Return the strides of axes with more than one element."""
    sizes = zip(array.shape, array.strides)
    return () if 0 in array.shape else tuple(s for size, s in sizes if size > 1)


@FEW
@given(case=st.data())
@pytest.mark.parametrize("op", NAMED)
def test_call_and_its_line_round_trip(op: str, case: st.DataObject) -> None:
    drawn = sayable(case.draw(cases([op], max_elements=300, max_macs=3_000)))
    arrays = operands(drawn)
    name, given_arrays, arguments = user_call(drawn, arrays)
    found = convref.case_of(name, *given_arrays, **arguments)
    assert convref.parse(str(found)) == found
    problem, layouts = drawn.call.problem, found.call.specs
    if SETTINGS.get(op) is rows:  # which has no images, only rows, and may copy other layouts
        problem = replace(problem, c=problem.c * prod(problem.input), input=(1,))
    elif SETTINGS.get(op) is reduced:  # likewise
        problem = grouped(problem)
    else:
        again = [None if a is None else (a.shape, a.dtype, visible(a)) for a in operands(found)]
        assert again == [None if a is None else (a.shape, a.dtype, visible(a)) for a in arrays]
    assert found.call == replace(drawn.call, problem=problem, specs=layouts)


def results_of(call: Call, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    found = oracle.evaluate(call, *arrays)
    return tuple(map(_as_user, [call] * len(found), call.signature.results, found))


@FEW
@given(case=st.data())
@pytest.mark.parametrize("op", NAMED)
def test_results_of_the_oracle_are_correct(op: str, case: st.DataObject) -> None:
    drawn = sayable(case.draw(cases([op], max_elements=300, max_macs=3_000)))
    arrays = operands(drawn)
    name, given_arrays, arguments = user_call(drawn, arrays)
    got = results_of(drawn.call, arrays)
    numerics = declared(drawn.call)
    convref.assert_correct(got, name, given_arrays, accuracy=numerics, **arguments)


def off_by_more_than_itself(array: Any, index: tuple[int, ...]) -> Any:
    """Return a copy in which one element is another number."""
    wrong = np.array(array)
    wrong[index] = 2 * wrong[index] + 1 if np.isfinite(float(wrong[index])) else 0
    return wrong


@FEW
@given(case=st.data())
@pytest.mark.parametrize("op", NAMED)
def test_one_wrong_element_gets_the_verdict_of_the_judge(op: str, case: st.DataObject) -> None:
    drawn = sayable(case.draw(cases([op], fills=["int", "normal"], max_elements=200)))
    call, arrays = drawn.call, operands(drawn)
    name, given_arrays, arguments = user_call(drawn, arrays)
    results = oracle.evaluate(call, *arrays)
    there = [i for i, a in enumerate(results) if a is not None and a.size]
    assume(there)
    place = case.draw(st.sampled_from(there))
    index = tuple(case.draw(st.integers(0, size - 1)) for size in results[place].shape)
    bad = [off_by_more_than_itself(a, index) if i == place else a for i, a in enumerate(results)]
    verdict = convref.judge(call, arrays, bad, declared(call))
    got = tuple(map(_as_user, [call] * len(bad), call.signature.results, bad))
    assume(not verdict)
    with pytest.raises(AssertionError) as caught:
        convref.assert_correct(got, name, given_arrays, accuracy=declared(call), **arguments)
    line = convref.case_of(name, *given_arrays, **arguments)
    assert str(caught.value).startswith(f"{verdict.kind}: {verdict.role}")
    assert str(caught.value).endswith(f"\n  {line}")
    assert f" is {verdict.got}, " in str(caught.value)


def fullest(op: str, pass_: str) -> Case:
    """Return the case, of twenty, with most elements, all of them finite; with every result."""
    axes = Axes(1, (op,), (pass_,), ("f64",), ("normal",), size=20)
    cases = [sayable(case) for case in chunk_cases(axes, 0)]
    cases = [replace(case, call=replace(case.call, mask=())) for case in cases]
    for case in sorted(cases, key=lambda case: elements(case.call), reverse=True):
        results = oracle.evaluate(case.call, *operands(case))
        if all(a is not None and a.size and np.isfinite(a).all() for a in results):
            return case
    raise AssertionError(f"no case of {op}.{pass_} has every result finite")


def elements(call: Call) -> int:
    return sum(prod(call.problem.shape(role)) for role in call.signature.results)


@pytest.mark.parametrize(
    ("op", "pass_"), [row for row in SIGNATURE if row[0] in NAMED], ids=lambda word: word
)
def test_wrong_result_of_each_pass_is_reported(op: str, pass_: str) -> None:
    case = fullest(op, pass_)
    arrays = operands(case)
    name, given_arrays, arguments = user_call(case, arrays)
    results = results_of(case.call, arrays)
    judge = partial(convref.assert_correct, name=name, operands=given_arrays, **arguments)
    judge(results, accuracy="rn64")
    for place, (role, result) in enumerate(zip(case.call.signature.results, results)):
        last = tuple(size - 1 for size in result.shape)
        wrong = off_by_more_than_itself(result, last)
        with pytest.raises(AssertionError, match=rf"^wrong: {role}\[") as caught:
            judge((*results[:place], wrong, *results[place + 1 :]), accuracy="rn64")
        text = str(caught.value)
        assert f"is {wrong[last]}, " in text
        assert "needs exactly" in text or ", bound " in text
        with pytest.raises(AssertionError, match=rf"^wrong: {role} is None, needs an array\n"):
            judge((*results[:place], None, *results[place + 1 :]))
        with pytest.raises(AssertionError, match=rf"^wrong: {role} has dtype float32, needs"):
            judge((*results[:place], result.astype("f4"), *results[place + 1 :]))
        with pytest.raises(AssertionError, match=rf"^wrong: {role} has shape"):
            judge((*results[:place], result[None], *results[place + 1 :]))
    with pytest.raises(AssertionError, match=rf"^wrong: got {len(results) + 1} results, needs"):
        judge((*results, None))
