"""Every public function by `case_of` and `assert_correct`, as users call it: layouts, N missing."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("torch", reason="torch is not installed")

import torch

import convref
from convref import ConvrefError, UnsupportedError, api, parse
from convref.api import definitions, views
from convref.arrays import to_torch
from convref.cli.commands import app
from convref.conformance.operands import operands
from convref.conformance.workers.engine import Engine, Limits
from convref.conformance.workers.worker import ChunkReport, Task
from convref.dtypes import numpy_dtype
from convref.errors import MissingExtraError
from convref.ops import FAMILY

SPACE = {1: (6,), 2: (3, 5), 3: (3, 5, 2)}
FUNCTIONS = api.__all__
INTEGERS = ("conv_integer", "quantized_conv")


def data(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype("f4")


def rank_of(name: str) -> int:
    found = re.search(r"([123])d", name)
    return int(found[1]) if found else 2


def stem_of(name: str) -> str:
    return re.sub(r"_(backward|jvp|double_backward)$", "", name)


WINDOW = {"kernel_size": 3, "stride": 2, "padding": 1}
IMAGE: dict[str, Any] = {"layout": None}
CHANNEL = {"weight": data(4, seed=1), "bias": data(4, seed=2)}
SLOPES = {"weight": data(4, seed=1)}
ROWS = {"normalized_shape": 5, "weight": data(5, seed=1), "bias": data(5, seed=2)}
RUNNING = {"running_mean": data(4, seed=3), "running_var": data(4, seed=4) ** 2}
INTERPOLATION = {"scale_factor": 1.5, "mode": "linear"}

# Arguments for the functions of a stem, besides an image, by parameter name.
GIVEN: dict[str, dict[str, Any]] = {
    "max_pool": {**WINDOW, "ceil_mode": True, "dilation": 2},
    "avg_pool": {**WINDOW, "count_include_pad": False},
    "lp_pool": {"kernel_size": 2, "norm_type": 3.0, "padding": 0},
    "adaptive_max_pool": {"output_size": 3},
    "adaptive_avg_pool": {"output_size": 4},
    "max_unpool": {"kernel_size": 2},
    "global_lp_pool": {"norm_type": 1.0},
    "batch_norm": {**CHANNEL, **RUNNING, "eps": 1e-3},
    "batch_norm_statistics": {**CHANNEL, **RUNNING, "momentum": 0.3},
    "group_norm": {**CHANNEL, "num_groups": 2},
    "instance_norm": CHANNEL,
    "instance_norm_statistics": {**CHANNEL, **RUNNING, "momentum": 0.3},
    **{d.name: ROWS for d in definitions() if d.view is views.rows},
    "prelu": SLOPES,
    "interpolate": INTERPOLATION,
    "resize": {"sizes": 4, "mode": "cubic"},
    "roi_align": {"output_size": (2, 3), "spatial_scale": 0.5, "sampling_ratio": 2},
    "leaky_relu": {"negative_slope": 0.2},
    "threshold": {"threshold": 0.5, "value": 2.0},
    "gelu": {"approximate": "tanh"},
    "softmax": {"dim": -1},
    "log_softmax": {"dim": 1},
    "cumsum": {"dim": 1},
    "sum": {"dim": (1, -1)},
    "mean": {"dim": (1, -1)},
    "matmul": {"weight": data(2, 4, 5, 3, seed=1)},
    "sdpa": {
        "key": data(2, 2, 4, 5, seed=1),
        "value": data(2, 2, 4, 6, seed=2),
        "bias": data(3, 4, seed=3),
    },
    "nll_loss": {"weight": np.abs(data(4, seed=1))},
    "cross_entropy": {"weight": np.abs(data(4, seed=1)), "label_smoothing": 0.1},
    "soft_cross_entropy": {"weight": np.abs(data(4, seed=1)), "label_smoothing": 0.1},
    "conv_integer": {"input_zero_point": 3, "weight_zero_point": 2, "padding": 1},
    "quantized_conv": {
        **{f"{name}_scale": 0.03 for name in ("input", "weight", "output")},
        **{f"{name}_zero_point": 3 for name in ("input", "weight", "output")},
        "bias": np.array([5, -5], np.int32),
    },
    "scaled_conv": {
        **{"input_scale": 0.5, "weight_scale": np.array([0.25, 3.0]), "output_dtype": "bfloat16"},
        **{"bias": data(2, seed=3), "padding": 1},
    },
    "unfold": {"kernel_size": 2, "padding": "same"},
    "fold": {"kernel_size": 2, "output_size": (3, 3)},
    "deform_conv": {"stride": 2, "padding": 1, "dilation": 2, "weight": data(2, 2, 2, 2, seed=1)},
    "convolution": {"bias": data(2, seed=3), "stride": 2, "padding": 1, "dilation": 1},
    "conv": {"bias": data(2, seed=3), "stride": 2, "padding": "same_upper"},
    "conv_transpose": {"bias": data(2, seed=3), "stride": 2, "output_padding": 1},
}
ATEN = {"transposed": False, "output_padding": 0, "groups": 1, "bias_sizes": None}
ATEN |= {"output_mask": (True, False, True)}


def parameters(name: str) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(getattr(convref, name)).parameters)


def fields_of(stem: str) -> dict[str, Any]:
    """Return the plainest value of each field of an op whose arguments have their names."""
    fields = FAMILY[stem].KEYS.values() if stem in FAMILY else ()
    return {f.name: f.draws[0] for f in fields if f.draws and f.name not in ("weight", "bias")}


def pool_of(name: str) -> dict[str, Any]:
    """Return values for the parameters of a function, but cotangents."""
    stem, rank = re.sub(r"[123]d$", "", stem_of(name)), rank_of(name)
    given, sizes = GIVEN.get(stem, fields_of(stem)), {"n": 2, "c": 4, "input": SPACE[rank]}
    if stem in FAMILY and stem not in GIVEN:
        sizes = FAMILY[stem].admissible(sizes, given)
    x = data(sizes["n"], sizes["c"], *sizes["input"])
    values = {"input": x, **given}
    if "conv" in stem and "weight" not in given:
        values["weight"] = data(
            *((4, 2) if stem == "conv_transpose" else (2, 4)), *(3, 2, 3)[:rank]
        )
        values |= ATEN if stem == "convolution" else {}
    if stem in INTEGERS:
        values |= {name: (9 * values[name]).astype(np.int8) for name in ("input", "weight")}
    if stem == "scaled_conv":
        values |= {name: values[name].astype(numpy_dtype("e4m3")) for name in ("input", "weight")}
    if stem == "max_unpool":
        values["indices"] = np.arange(x.size).reshape(x.shape) % (x[0, 0].size * 2**rank)
    if stem in ("nll_loss", "cross_entropy"):
        values["target"] = np.arange(x[:, 0].size).reshape(x[:, 0].shape) % 4
    if stem == "soft_cross_entropy":
        values["target"] = np.abs(data(*x.shape, seed=4))
    if stem == "grid_sample":
        values["grid"] = data(2, 3, 4, rank, seed=3)
    if stem == "roi_align":
        values["boxes"] = np.array([[1, 0, 1, 4, 5], [0, 1, 1, 3, 2]], "f4")
    if stem == "deform_conv":
        values["offset"], values["mask"] = data(2, 16, 2, 3, seed=3), data(2, 8, 2, 3, seed=4)
    if stem == "fold":
        values["input"] = data(2, 12, 4)
    return values


def call_of(name: str) -> dict[str, Any]:
    """Return a call of a function: all that it takes, by name."""
    values, stem = pool_of(name), stem_of(name)
    wanted = parameters(name)
    forward = parameters(stem)
    if "grad_output" in wanted:
        first = {k: v for k, v in values.items() if k in forward}
        training = {"training": True} if stem == "batch_norm" else {}
        y = getattr(convref, stem)(**first, **training)
        values["grad_output"] = np.asarray(data(*y.shape, seed=5))
    differentiable = ("input", "key", "value", "weight", "bias", "target", "grid", "offset", "mask")
    for outer in differentiable:
        values[f"grad_grad_{outer}"] = values.get(outer)
    names = [k for k in forward if k in differentiable and k not in wanted]
    values["primals"] = tuple(map(values.get, names))
    values["tangents"] = tuple(None if v is None else v[::-1].copy() for v in values["primals"])
    return {k: values[k] for k in wanted if k in values}


def listed(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


def changed(array: Any, index: tuple[int, ...]) -> Any:
    wrong = np.array(array)
    wrong[index] = 3 * wrong[index] + 7
    return wrong


def judge_of(name: str, arguments: dict[str, Any]) -> Callable[[Any], None]:
    return lambda got: convref.assert_correct(got, name, (), accuracy="rn32", **arguments)


def seen_when_wrong(name: str, arguments: dict[str, Any], results: tuple[Any, ...]) -> None:
    """Raise unless every result is found right, and wrong with one other element, at its place."""
    judge = judge_of(name, arguments)
    judge(results)
    for place, result in enumerate(results):
        if result is None:
            with pytest.raises(AssertionError, match=f"result {place} is present, needs None"):
                judge((*results[:place], arguments["input"], *results[place + 1 :]))
            continue
        index = tuple(size - 1 for size in result.shape)
        with pytest.raises(AssertionError) as caught:
            judge((*results[:place], changed(result, index), *results[place + 1 :]))
        assert re.match(rf"wrong: \w+\[{', '.join(map(str, index))}\] is ", str(caught.value))
        line = str(caught.value).partition("\n  ")[2]
        assert str(convref.parse(line)) == line


@pytest.mark.parametrize("name", FUNCTIONS)
def test_result_of_function_passes_and_changed_one_fails(name: str) -> None:
    arguments = call_of(name)
    results = listed(getattr(convref, name)(**arguments, backend="numpy"))
    seen_when_wrong(name, arguments, results)
    case = convref.case_of(name, **arguments)
    assert convref.parse(str(case)) == case
    assert [None if a is None else a.dtype.name for a in operands(case)]


def every(change: Callable[[Any], Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with each array changed, in tuples of primals and tangents too."""

    def one(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(one, value))
        return change(value) if isinstance(value, np.ndarray) else value

    return {name: one(value) for name, value in arguments.items()}


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if "layout" in parameters(n)])
def test_channels_last(name: str) -> None:
    """Images and filters are views with their second axis last: the same call, the same line."""
    arguments = call_of(name)
    line = convref.case_of(name, **arguments)
    grids = 2 if stem_of(name) == "grid_sample" else 0  # the last axis of a grid
    arguments = every(
        lambda a: np.moveaxis(a, 1, -1) if a.ndim > 2 and a.shape[-1] != grids else a, arguments
    )
    space = "DHW"[3 - rank_of(name) :]
    arguments["layout"] = f"N{space}C"
    if "weight_layout" in parameters(name):
        arguments["weight_layout"] = f"I{space}O" if "transpose" in name else f"O{space}I"
    results = listed(getattr(convref, name)(**arguments))
    seen_when_wrong(name, arguments, results)
    assert convref.case_of(name, **arguments) == line


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if re.search("pool[123]d", n)])
def test_without_batch_axis(name: str) -> None:
    arguments = every(lambda a: a[0], call_of(name))
    results = listed(getattr(convref, name)(**arguments))
    seen_when_wrong(name, arguments, results)
    whole = every(lambda a: a[None], arguments)
    assert convref.case_of(name, **arguments) == convref.case_of(name, **whole)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_tensors_are_arrays(name: str) -> None:
    arguments = call_of(name)
    tensors = every(to_torch, arguments)
    results = listed(getattr(convref, name)(**tensors, backend="numpy"))
    assert {type(r) for r in results if r is not None} == {torch.Tensor}
    judge_of(name, tensors)(results)
    assert convref.case_of(name, **tensors) == convref.case_of(name, **arguments)


def recorded(array: Any) -> Any:
    return to_torch(array).requires_grad_(array.dtype.kind == "f")


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n not in INTEGERS])
def test_no_gradient_is_lost(name: str) -> None:
    tensors = every(recorded, call_of(name))
    if name in ("fold", "unfold", "hardmax", "scaled_conv"):
        with pytest.raises(UnsupportedError, match="records no derivatives"):
            getattr(convref, name)(**tensors)
    else:
        results = listed(getattr(convref, name)(**tensors))
        floats = [r for r in results if r is not None and r.is_floating_point()]
        assert floats
        assert all(r.requires_grad for r in floats)
    with torch.no_grad():
        results = listed(getattr(convref, name)(**tensors))
        assert not any(r.requires_grad for r in results if r is not None)


def test_every_line_runs() -> None:
    lines = [str(convref.case_of(name, **call_of(name))) for name in FUNCTIONS]
    counts: Counter[str] = Counter()
    with Engine("numpy", limits=Limits(60)) as engine:
        task = Task(lines=tuple(lines))
        engine.run(iter([task]), lambda _, report: counts.update(verdicts(report)))
    assert counts == {"pass": len(lines)}


def verdicts(report: ChunkReport) -> Counter[str]:
    found: Counter[str] = Counter()
    for key, number in report.counts.items():
        found[key[3]] += number
    return found


def test_the_line_of_a_message_is_valid_for_run() -> None:
    x = data(2, 3, 7, 8)
    y = convref.max_pool2d(x, 3, 2, ceil_mode=True)
    with pytest.raises(AssertionError) as caught:
        convref.assert_correct(y + 1, "max_pool2d", (x, 3, 2), ceil_mode=True)
    line = str(caught.value).partition("\n  ")[2]
    assert line == "max_pool.fprop:n2c3_i7x8_f3x3_s2:ceil=1"
    found = CliRunner().invoke(app, ["run", line, "--backend", "numpy"])
    assert (found.exit_code, "pass" in found.output) == (0, True), found.output


def test_missing_statistics_and_indices_are_computed() -> None:
    x, dy = data(3, 4, 5), data(3, 4, 5, seed=1)
    mean, rstd = convref.batch_norm_statistics(x)[1:3]
    kept = convref.case_of("batch_norm_backward", dy, x, mean=mean, rstd=rstd)
    assert convref.case_of("batch_norm_backward", dy, x) == kept
    assert convref.case_of("batch_norm.backward", dy, x, None, mean, rstd) == kept
    got = convref.batch_norm_backward(dy, x)
    convref.assert_correct(got, "batch_norm_backward", (dy, x), accuracy="rn32")
    convref.assert_correct(got, "batch_norm.backward", (dy, x, None, mean, rstd), accuracy="rn32")
    other = {"mean": mean + 1, "rstd": rstd}
    with pytest.raises(AssertionError, match=r"^wrong: dx\["):
        convref.assert_correct(got, "batch_norm_backward", (dy, x), accuracy="rn32", **other)
    y, at = convref.max_pool1d(x, 2, return_indices=True)
    dx = convref.max_pool1d_backward(y, x, 2)
    for indices in (None, at):
        convref.assert_correct(dx, "max_pool1d_backward", (y, x, 2), indices=indices)
    with pytest.raises(AssertionError, match=r"^suspect: dx\["):  # of undeclared arithmetic
        convref.assert_correct(dx, "max_pool1d_backward", (y, x, 2), indices=at ^ 1)


def test_only_what_a_function_returns_is_judged() -> None:
    x = data(2, 3, 8)
    y, at = convref.max_pool1d(x, 2, return_indices=True)
    convref.assert_correct(y, "max_pool1d", (x, 2))
    convref.assert_correct((y, at), "max_pool1d", (x, 2), return_indices=True)
    with pytest.raises(AssertionError, match="got 1 results, needs 2: y, indices"):
        convref.assert_correct(y, "max_pool1d", (x, 2), return_indices=True)
    with pytest.raises(AssertionError, match="got 2 results, needs 1: y"):
        convref.assert_correct((y, at), "max_pool1d", (x, 2))
    wrong = at.copy()
    wrong[1, 2, 3] = 0
    with pytest.raises(AssertionError, match=r"^wrong: indices\[1, 2, 3\] is 0, needs exactly "):
        convref.assert_correct((y, wrong), "max_pool.fprop", (x,), kernel_size=2)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_convolution_of_one_image(rank: int) -> None:
    x, w = data(4, *SPACE[rank]), data(2, 4, *(3, 2, 3)[:rank])
    name, arguments = f"conv{rank}d", {"weight": w, "padding": "same"}
    y = getattr(convref, name)(x, **arguments)
    seen_when_wrong(name, {"input": x, **arguments}, (y,))
    case = convref.case_of("conv.fprop", x[None], w, padding="same")
    assert convref.case_of(name, x, **arguments) == case


def test_a_loss_may_be_a_number() -> None:
    x, target = data(3, 4), np.array([1, 3, -100])
    loss = convref.cross_entropy(x, target)[()]
    assert isinstance(loss, np.generic)
    convref.assert_correct(loss, "cross_entropy", (x, target), accuracy="rn32")
    with pytest.raises(AssertionError, match=r"^wrong: y\[\] is "):
        convref.assert_correct(loss + 1, "cross_entropy", (x, target), accuracy="rn32")


def test_values_that_no_call_has_are_refused() -> None:
    x, at = data(1, 1, 2), np.array([[[0, 9]]])
    with pytest.raises(ConvrefError, match="needs a position from 0 to 3"):
        convref.assert_correct(np.zeros((1, 1, 4), "f4"), "max_unpool1d", (x, at, 2))


def test_line_has_the_view_of_the_operand() -> None:
    x = data(2, 9, 8, 8)
    lines = {
        "x.step2w": x[..., ::2],
        "x.step3c.step4h": x[:, ::3, ::4],
        "nhwc": np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2),
        "x.expandn": np.broadcast_to(x[:1], x.shape),
        "x.step-1w": x[..., ::-1],
    }
    for memory, array in lines.items():
        case = convref.case_of("relu", array)
        assert str(case).partition("mem=")[2] == memory
        assert convref.parse(str(case)) == case
    whole = x[
        :, :, 1:, 1:
    ]  # a crop of rows and columns: its rows are 7 apart, as of no wider buffer
    assert convref.case_of("relu", whole).call.spec("x") == convref.Spec()
    half = convref.case_of("relu", torch.from_numpy(x).bfloat16()).call
    assert half.dtype == "bf16"


def objects(value: Any) -> Any:
    return np.full((2, 4, 3, 5), value, object)


def recursive() -> list[Any]:
    holds_itself: list[Any] = []
    holds_itself.append(holds_itself)
    return holds_itself


# What no parameter is meant to take; some have an array where a number is wanted, or the reverse.
WORDS = [None, "x", "", b"1", {}, {1}, frozenset((1, 2)), object(), int, len, ..., range(3)]
NESTED = [[], [[1, 2], [3]], [[[1]]], (None,), recursive(), iter("abc")]
NUMBERS = [-1, 0, True, 10**400, 2**70, float("nan"), float("inf"), 1j, Decimal("sNaN")]
ARRAYS = [
    np.array(values)
    for values in ([1, 2], ["a"], [None], 1, [True], [], np.nan, "a", np.datetime64("2020"))
]
ARRAYS += [np.array([1, 2], "g"), np.zeros(3, [("a", int)]), np.ma.ones((2, 4, 3, 5))]
OBJECTS = [Decimal(1), 1j, None, float("nan"), 1e308, Fraction(10**5), Fraction(-(10**400))]
OBJECTS = [objects(value) for value in OBJECTS]
TENSORS = [torch.ones(2, 4, 3, 5), torch.tensor(1.0), torch.eye(3).to_sparse()]
TENSORS += [torch.ones(2, 4, 3, 5, device="meta")]
HOSTILE = [*WORDS, *NESTED, *NUMBERS, *ARRAYS, *OBJECTS, *TENSORS]


@cache
def nested(layout: Any) -> Any:
    return torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(3, 3)], layout=layout)


def refused_or_computed(function: Callable[..., Any], given: dict[str, Any]) -> None:
    """Call a function with each value of each parameter; other exceptions are not caught."""
    for parameter in given:
        for value in (*HOSTILE, nested(torch.strided), nested(torch.jagged)):
            with suppress(ConvrefError, UnsupportedError, MissingExtraError):
                function(**{**given, parameter: value})


NIGHTLY = pytest.mark.nightly(reason="made from the definition of rank 2")
OF_OTHER_RANKS = [pytest.param(n, marks=NIGHTLY) for n in FUNCTIONS if rank_of(n) != 2]


@pytest.fixture(scope="module")
def few_elements_are_printed() -> Iterator[None]:
    """A message has the ends of what is printed of an array, most of the time otherwise."""
    torch.set_printoptions(threshold=1, edgeitems=1)
    with np.printoptions(threshold=1, edgeitems=1):
        yield
    torch.set_printoptions(profile="default")


@pytest.mark.usefixtures("few_elements_are_printed")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*(n for n in FUNCTIONS if rank_of(n) == 2), *OF_OTHER_RANKS])
def test_any_value_is_computed_or_refused_in_words(name: str) -> None:
    """Each parameter in turn; of exceptions only those of the package are allowed."""
    given = {k: p.default for k, p in parameters(name).items() if p.default is not p.empty}
    refused_or_computed(getattr(convref, name), given | call_of(name))


CALL = parse("conv.fprop:n1c2k3_i4_f2:bias=0").call
OPERANDS = data(1, 2, 4), data(3, 2, 2), None
JUDGED = {"call": CALL, "operands": OPERANDS, "results": convref.run(CALL, *OPERANDS)}
PARTS = {"i": "i6x6", "f": "f3x3", "o": "o3x3"}
FLAT = {"i": "i6"}  # of one axis
OTHERS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "explain": (convref.explain, {"call": CALL, "backend": "auto", "kind": "numpy"}),
    "plan": (convref.plan, {"call": CALL, "backend": "auto", "kind": "numpy"}),
    "parse": (convref.parse, {"line": "conv.fprop:n1c2k3_i4_f2"}),
    "parse_problem": (convref.parse_problem, {"line": "conv:n1c2k3_i4_f2"}),
    "judge": (
        convref.judge,
        {**JUDGED, "numerics": convref.Numerics("rn32"), "zero_mean": False, "ref": None}
        | {"only": None},
    ),
    "Call": (convref.Call, {f.name: getattr(CALL, f.name) for f in fields(CALL)}),
    "Case": (convref.Case, {"call": CALL, "fill": "int", "seed": 0}),
    "Spec": (convref.Spec, {f.name: f.default for f in fields(convref.Spec)}),
    "Numerics": (convref.Numerics, {"model": "rn32"}),
    "run": (lambda x, w, b: convref.run(CALL, x, w, b), dict(zip("xwb", OPERANDS))),
    "case_of": (
        lambda x, w, b: convref.case_of("conv.fprop", x, w, b),
        dict(zip("xwb", OPERANDS)),
    ),
}
for op, family in FAMILY.items():
    parts = PARTS if 2 in family.HAS_RANKS else FLAT
    sizes = "_".join(parts[part] for part in family.PARTS if part in parts)
    head = "".join(f"{letter}4" for letter in family.HEAD if letter != "g")
    problem = convref.parse_problem(f"{op}:{head}_{sizes}")
    OTHERS[op] = family, {f.name: getattr(problem, f.name) for f in fields(problem)}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OTHERS)
def test_other_functions_refuse_any_value_in_words(name: str) -> None:
    refused_or_computed(*OTHERS[name])


def test_results_that_are_no_arrays_are_wrong_in_form() -> None:
    verdict = convref.judge(**JUDGED | {"results": ["y"]}, numerics=convref.Numerics("rn32"))
    assert (verdict.kind, verdict.reason) == ("wrong", "y is a str, needs a NumPy array")
