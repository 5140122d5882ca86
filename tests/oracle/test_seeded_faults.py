"""Wrong oracles, each of which the checks of the suite must reject."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings

from convref import oracle
from convref.conformance.strategies import cases

RIGHT = {
    name: getattr(oracle.conv, name)
    for name in ("fprop", "dgrad", "wgrad", "bgrad", "jvp", "double_backward")
    for name in (f"conv_{name}",)
}


def fitted(array, shape):
    """Return `array` cropped and zero-padded at the high end to `shape`."""
    result = np.zeros(shape, array.dtype)
    common = tuple(slice(0, min(a, b)) for a, b in zip(array.shape, shape))
    result[common] = array[common]
    return result


def elsewhere(change):
    """Return an fprop that computes a changed problem on the same operands."""

    def fprop(x, w, b, problem):
        changed = change(problem)
        y = RIGHT["conv_fprop"](x, fitted(w, changed.shape("w")), b, changed)
        return fitted(y, problem.shape("y"))

    return {"conv_fprop": fprop}


def on_filter(change):
    """Return an fprop and a dgrad that use a changed filter."""
    return {
        "conv_fprop": lambda x, w, b, problem: RIGHT["conv_fprop"](
            x, change(w, problem), b, problem
        ),
        "conv_dgrad": lambda dy, w, problem: RIGHT["conv_dgrad"](dy, change(w, problem), problem),
    }


def enough(problem, **changes):
    """Return the problem with changes, and paddings that keep it valid."""
    changes = {"stride": problem.stride, "dilation": problem.dilation} | changes
    largest = [max(steps) - 1 for steps in zip(changes["stride"], changes["dilation"])]
    if problem.transposed:
        return replace(
            problem, **changes, output_padding=tuple(map(min, problem.output_padding, largest))
        )
    lavish = tuple((lo, hi + 200) for lo, hi in changes.get("padding", problem.padding))
    return replace(problem, **changes | {"padding": lavish})


def one_axis_less(dy, problem):
    return np.resize(dy.sum(axis=tuple(range(1, dy.ndim))), problem.k)


def last_tap_dropped(w, problem):
    w = w.copy()
    w[..., -1] = 0
    return w


def groups_reversed(w, problem):
    lead = w.reshape(problem.groups, -1, *w.shape[1:])
    return lead[::-1].reshape(w.shape) if w.size else w


def first_group_for_all(x, w, b, problem):
    grouped = x.reshape(problem.n, problem.groups, problem.c // problem.groups, *problem.input)
    repeated = np.broadcast_to(grouped[:, :1], grouped.shape).reshape(x.shape)
    return RIGHT["conv_fprop"](repeated, w, b, problem)


def ones_around(x, w, b, problem):
    if problem.transposed or any(side < 0 for pair in problem.padding for side in pair):
        return RIGHT["conv_fprop"](x, w, b, problem)
    wide = np.pad(x, ((0, 0), (0, 0), *problem.padding), constant_values=1)
    bare = replace(problem, input=wide.shape[2:], padding=0)
    return RIGHT["conv_fprop"](wide, w, b, bare)


def conjugate_exchanged(dy, x, problem):
    if not problem.transposed:
        return RIGHT["conv_wgrad"](dy, x, problem)
    return np.conj(RIGHT["conv_wgrad"](dy, x, problem))


def cropped_one_late(dy, w, problem):
    shifted = tuple((lo + 1, hi - 1) for lo, hi in problem.padding)
    return RIGHT["conv_dgrad"](dy, w, replace(problem, padding=shifted))


def jvp_without(missing):
    def jvp(x, w, x_dot, w_dot, b_dot, problem):
        dots = {"x": x_dot, "w": w_dot, "b": b_dot} | {missing: None}
        return RIGHT["conv_jvp"](x, w, *dots.values(), problem)

    return {"conv_jvp": jvp}


def double_backward_exchanged(ddx, ddw, ddb, dy, x, w, problem, mask):
    ddy, _, _ = RIGHT["conv_double_backward"](ddx, ddw, ddb, dy, x, w, problem, mask)
    dx = RIGHT["conv_dgrad"](dy, w, problem) if mask[1] else None
    dw = RIGHT["conv_wgrad"](dy, x, problem) if mask[2] else None
    return ddy, dx, dw


def double_backward_without_ddb(ddx, ddw, ddb, *rest):
    return RIGHT["conv_double_backward"](ddx, ddw, None, *rest)


def swapped_sides(problem):
    return replace(problem, padding=tuple((hi, lo) for lo, hi in problem.padding))


def longer_stride(problem):
    return enough(problem, stride=tuple(s + 1 for s in problem.stride))


def swapped_axes(problem):
    return enough(problem, padding=problem.padding[::-1])


def exchanged_steps(problem):
    return enough(problem, stride=problem.dilation, dilation=problem.stride)


FPROP, BACKWARD, COMPLEX = ("fprop", "i64"), ("backward", "i64"), ("backward", "c128")

# name: wrong functions, (pass, dtype) of the cases, the check that must reject them
FAULTS = {
    "filter flipped": (elsewhere(lambda p: replace(p, flip=not p.flip)), FPROP, "loops"),
    "flip ignored": (elsewhere(lambda p: replace(p, flip=False)), FPROP, "loops"),
    "pads lo and hi swapped": (elsewhere(swapped_sides), FPROP, "loops"),
    "pads of the axes swapped": (elsewhere(swapped_axes), FPROP, "loops"),
    "stride off by one": (elsewhere(longer_stride), FPROP, "loops"),
    "dilation and stride exchanged": (elsewhere(exchanged_steps), FPROP, "loops"),
    "dilation ignored": (elsewhere(lambda p: enough(p, dilation=(1,) * p.rank)), FPROP, "loops"),
    "output padding ignored": (
        elsewhere(lambda p: replace(p, output_padding=0) if p.transposed else p),
        ("fprop", "f64"),
        "torch",
    ),
    "last tap dropped": (on_filter(last_tap_dropped), FPROP, "loops"),
    "last tap dropped, seen by torch": (on_filter(last_tap_dropped), ("fprop", "f64"), "torch"),
    "groups in reverse": (on_filter(groups_reversed), FPROP, "loops"),
    "groups all read the first": ({"conv_fprop": first_group_for_all}, BACKWARD, "adjoint"),
    "padding with ones": ({"conv_fprop": ones_around}, FPROP, "loops"),
    "bias added twice": (
        {
            "conv_fprop": lambda x, w, b, problem: RIGHT["conv_fprop"](
                x, w, None if b is None else b + b, problem
            )
        },
        FPROP,
        "loops",
    ),
    "bias forgotten": (
        {"conv_fprop": lambda x, w, b, problem: RIGHT["conv_fprop"](x, w, None, problem)},
        FPROP,
        "loops",
    ),
    "db over the wrong axes": ({"conv_bgrad": one_axis_less}, BACKWARD, "adjoint"),
    "crop off by one": ({"conv_dgrad": cropped_one_late}, BACKWARD, "adjoint"),
    "conjugate missing in dgrad": (
        {"conv_dgrad": lambda dy, w, problem: RIGHT["conv_dgrad"](dy, np.conj(w), problem)},
        COMPLEX,
        "adjoint",
    ),
    "conjugate missing in wgrad": (
        {"conv_wgrad": lambda dy, x, problem: RIGHT["conv_wgrad"](dy, np.conj(x), problem)},
        COMPLEX,
        "torch",
    ),
    "conjugate exchanged when transposed": ({"conv_wgrad": conjugate_exchanged}, COMPLEX, "torch"),
    "x_dot missing in the JVP": (jvp_without("x"), ("jvp", "i64"), "jvp_adjoint"),
    "w_dot missing in the JVP": (jvp_without("w"), ("jvp", "f64"), "torch"),
    "b_dot missing in the JVP": (jvp_without("b"), ("jvp", "i64"), "loops"),
    "double backward: first-order dx and dw": (
        {"conv_double_backward": double_backward_exchanged},
        ("double_backward", "i64"),
        "double_backward_adjoint",
    ),
    "double backward: ddb missing": (
        {"conv_double_backward": double_backward_without_ddb},
        ("double_backward", "f64"),
        "torch",
    ),
}


def campaign(check, pass_, dtype, fill="int"):
    """Run the suite's own check on a hundred small cases."""
    small = {"max_elements": 250, "max_macs": 300, "empty": False, "fills": [fill]}

    @settings(max_examples=100, phases=[Phase.generate], derandomize=True)
    @given(cases(passes=[pass_], dtypes=[dtype], **small))
    def run(case):
        check(case)

    run()


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_rejected(name, checks, monkeypatch):
    wrong, (pass_, dtype), check = FAULTS[name]
    for function, fault in wrong.items():
        monkeypatch.setattr(oracle.conv, function, fault)
    with pytest.raises(AssertionError, match="conv"):
        campaign(getattr(checks, check), pass_, dtype)


@pytest.mark.parametrize(
    ("kind", "check"), sorted({(kind, check) for _, kind, check in FAULTS.values()})
)
def test_the_oracle_passes_the_same_campaigns(kind, check, checks):
    campaign(getattr(checks, check), *kind)


def test_narrow_accumulation_is_rejected(checks, monkeypatch):
    right = oracle.evaluate

    def narrow(call, *operands, out=None):
        return right(call, *operands, accumulate="f32", out=out)

    campaign(checks.torch, "fprop", "f64", "normal")
    monkeypatch.setattr(oracle, "evaluate", narrow)
    with pytest.raises(AssertionError, match="conv"):
        campaign(checks.torch, "fprop", "f64", "normal")
