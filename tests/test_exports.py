"""Exports: descriptors go there and back; snippets need no convref and give its values."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import islice
from textwrap import indent

import numpy as np
import pytest

from convref import dtypes, exports
from convref.case import parse, parse_problem
from convref.conformance.operands import operands
from convref.errors import ConvrefError, UnsupportedError
from convref.exports._data import LITERAL
from convref.ops import SIGNATURE
from convref.oracle import evaluate

# Executes snippets one after the other in a process that has no convref: printed text, and the
# arrays by name where the program drew them itself.
DRIVER = """
import contextlib, io, json, sys

class NoConvref:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "convref":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, NoConvref())
answers = []
for program in json.load(sys.stdin):
    scope, out = {}, io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(program, scope)
    arrays = {k: v for k, v in scope.items() if hasattr(v, "tolist") and hasattr(v, "shape")}
    values = {k: v.tolist() for k, v in arrays.items()}
    shapes = {k: list(v.shape) for k, v in arrays.items()}
    strides = {k: list(v.stride()) for k, v in arrays.items() if hasattr(v, "stride")}
    answers.append({"printed": out.getvalue(), "repr": repr((values, shapes, strides))})
json.dump(answers, sys.stdout)
"""


# Most of the time goes to XLA's optimiser, which is not what is tested.
UNOPTIMISED = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"


@cache
def answers(writer):
    """Return what each program of a writer answers: one process runs all of them."""
    lines = {exports.to_torch: [*LINES, *TORCH_ONLY, STRIDED, *LARGE], exports.to_jax: JAX + LARGE}
    programs = [writer(parse(line)) for line in lines[writer]]
    return dict(zip(programs, run(programs), strict=True))


def run(programs):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DRIVER],
        env={**os.environ, "XLA_FLAGS": UNOPTIMISED},
        input=json.dumps(programs),
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    names = {"nan": np.nan, "inf": np.inf}
    found = []
    for answer in json.loads(done.stdout):
        values, shapes, strides = eval(answer["repr"], {"__builtins__": {}}, names)
        found.append((answer["printed"], values, shapes, strides))
    return found


LINES = [
    "conv.fprop:n1c1k1_i3_f2",
    "conv.fprop:n2c4k2g2_i4x5_f3x2_s2x1_p1x0_d1x2:seed=3",
    "conv.fprop:n1c2k2_i3x3_f2x2_p1,0x0,2:bias=0",
    "conv.fprop:n1c1k2_i5x4_f2x2_p-1,1x0,-1",
    "conv.fprop:n1c1k1_i2x3x2_f2x1x2_p1:flip=1",
    "conv.fprop:n1c4k2g2_i3_f2_s2_p1:t=1:op=1",
    "conv.fprop:n1c2k4g2_i2x3_f3x2_s2x1_p1,0x0,1_d1x2:t=1",
    "conv.fprop:n1c1k1_i4_f2_s3_p-1,2:t=1:flip=1",
    "conv.fprop:n1c1k1_i2_f1_s3_p-3,3",
    "conv.fprop:n1c2k1_i7x1_f4x1_s3x5_p3,3x2,0:t=1:op=2x4",
    "conv.fprop:n0c1k2_i3_f2",
    "conv.fprop:n1c1k1_i3_f2:dt=bf16",
    "conv.fprop:n1c2k1_i3_f2:dt=c64:fill=ones",
    "conv.backward:n1c2k2_i4x3_f2x2_p1,0x0,1:dt=f64",
    "conv.backward:n2c2k4g2_i3_f2_s2_p1:mask=101",
    "conv.dgrad:n1c2k2_i5_f3_p-1,1",
    "conv.wgrad:n1c2k2_i4_f3_p1:flip=1:dt=f16",
    "conv.bgrad:n1c2k2_i4_f3_p1",
    "conv.backward:n1c2k2_i3x2_f2x2_s2_p1,0x0,1:t=1",
    "conv.backward:n1c1k1_i3_f2:dt=c128",
    "conv.jvp:n1c2k2_i4_f2_p1,0",
    "conv.jvp:n1c2k2_i4_f2:tan=w",
    "conv.jvp:n1c2k2_i4_f2:bias=0:tan=0",
    "conv.double_backward:n1c2k2_i4x3_f2x2_p1x0",
    "conv.double_backward:n1c2k2_i4_f2:tan=b:mask=110",
    "conv.double_backward:n1c2k2g2_i3_f2_s2:t=1:tan=xw",
    "conv.double_backward:n1c1k1_i3_f2:tan=0",
    "conv.double_backward:n1c2k2_i3_f2:mask=010",
    "conv.fprop:n1c3k2_i9x8_f3x3_p1:seed=5",
    "conv.fprop:n1c1k1_i12x12_f3x3_p1:fill=ones",
    "conv.fprop:n1c1k1_i12x12_f3x3_p1:fill=impulse",
    "conv.dgrad:n1c3k8_i6x6_f3x3:seed=2",
    "unfold.fprop:n1c2_i4x3_f2x2_s2x1_p1,0x0,2",
    "unfold.backward:n1c2_i4x3_f2x2_p1",
    "unfold.jvp:n1c1_i3x3_f2x2_d2",
    "fold.fprop:n1c2_i4x3_f2x2_p1,0x0,2",
    "fold.backward:n1c2_i4x3_f2x2_s2_p1",
]
TORCH_ONLY = [
    "conv.fprop:n2c3k2_i3x4_f2x2:mem=nhwc",
    "conv.backward:n1c2k2_i3x2_f2x2:mem=x.nhwc.step2w,w.ohwi.off3,dy.expandn",
    "conv.backward:n1c1k1_i4_f2:dt=c64:t=1",
    "conv.jvp:n1c2k2_i4_f2:mem=x.expandw,b.expando:tan=w",  # forward AD takes no expanded primal
]
JAX = [line for line in LINES if line != "conv.backward:n1c1k1_i3_f2:dt=c128"] + [
    "conv.fprop:n1c0k2_i3_f2",
    "unfold.fprop:n1c2_i5_f2_s2_p1",
    "fold.fprop:n1c1_i3x2x2_f2x1x2",
]
STRIDED = "conv.backward:n2c3k2_i3x4_f2x2:mem=x.nhwc.step2w,w.ohwi.off3,dy.expandn"
LARGE = [
    "conv.fprop:n1c3k2_i9x8_f3x3_p1:fill=normal:seed=5",
    "conv.fprop:n1c9k9_i5x8_f3x3:dt=bf16:fill=wide:seed=9",
    "conv.dgrad:n1c3k8_i6x6_f3x3:dt=f16:fill=inf:seed=2",
    "conv.wgrad:n2c3k8_i6x6_f3x3:fill=nan:seed=4",
    "conv.fprop:n2c9k9_i9_f3:fill=negzero",
    "conv.fprop:n2c9k9_i9_f3:dt=f64:fill=subnormal",
    "conv.fprop:n2c9k9_i9_f3:dt=c64:fill=normal",
    "conv.fprop:n2c9k9_i9_f3:dt=i64:fill=wide",
]


def check_values(lines, writer):
    for line in lines:
        call, program = parse(line).call, writer(parse(line))
        printed, values, shapes, _ = answers(writer)[program]
        given = [
            np.array(values[r], dtypes.numpy_dtype(call.dtype)).reshape(call.problem.shape(r))
            if call.is_present(r)
            else None
            for r in call.roles
        ]
        results = evaluate(call, *given)
        wide = complex if call.dtype[0] == "c" else float
        for role, result in zip(call.signature.results, results, strict=True):
            if result is None:
                continue
            assert tuple(shapes[role]) == result.shape, f"{line}\n{program}"
            got = np.array(values[role], wide).reshape(result.shape)
            np.testing.assert_array_equal(got, result.astype(wide), f"{role} of {line}\n{program}")
            start = f"{role} =" if result.size <= LITERAL else f"{role} "
            assert any(text.startswith(start) for text in printed.splitlines()), printed


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_snippets_give_the_values_of_the_oracle(name):
    """Of large operands, those of the case are compared: nothing is drawn anew.

    Bit for bit, so that what the court finds fails in the snippet. One process runs all programs.
    Strided operands have the strides of the case.
    """
    pytest.importorskip(name, reason=f"{name} is not installed")
    writer = getattr(exports, f"to_{name}")
    check_values(LINES + TORCH_ONLY if name == "torch" else JAX, writer)
    for case in map(parse, LARGE):
        program = writer(case)
        _, values, _, _ = answers(writer)[program]
        assert "rng" not in program
        for role, array in zip(case.call.roles, operands(case)):
            if array is not None and case.call.dtype[0] != "c":
                wide = np.array(values[role], int if case.call.dtype == "i64" else float)
                np.testing.assert_array_equal(wide, array.astype(wide.dtype), f"{role} of {case}")
                assert np.array_equal(np.signbit(wide), np.signbit(array.astype(wide.dtype)))
    if name == "torch":
        _, _, _, strides = answers(writer)[writer(parse(STRIDED))]
        assert strides["x"] == [3 * 8 * 3, 1, 8 * 3, 2 * 3]
        assert strides["w"] == [3 * 4, 1, 2 * 3, 3]
        assert strides["dy"] == [0, 6, 3, 1]


def test_huge_operand_is_drawn_with_a_note():
    program = exports.to_torch(parse("conv.fprop:n1c64k1_i64x64_f3x3:fill=normal"))
    assert "rng.standard_normal((1, 64, 64, 64))" in program
    assert "Some arrays are large: drawn here" in program


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch scripts its own rules
def test_jvp_snippets_run_forward_mode():
    program = exports.to_torch(parse("conv.jvp:n2c1k1_i3_f1:mem=x.expandn:tan=x"))
    pytest.importorskip("torch", reason="needs torch")
    with pytest.raises(RuntimeError, match="single memory location"):
        exec(program, {})


@pytest.mark.parametrize("line", LINES + TORCH_ONLY)
def test_small_snippets_contain_data_and_reference(line):
    case = parse(line)
    program = exports.to_torch(case)
    ast.parse(program)
    assert program.startswith(f"# {case}\n")
    arrays = dict(zip(case.call.roles, operands(case), strict=True))
    if all(a is None or 0 < a.size <= LITERAL for a in arrays.values()):
        assert "rng" not in program
        results = dict(zip(case.call.signature.results, evaluate(case.call, *arrays.values())))
        for role in case.call.wanted:
            if results[role].size == 1:
                number = results[role].astype(complex if case.call.dtype[0] == "c" else float)
                assert f'print("expected {role} =", {number.tolist()})' in program


OTHERS = [
    "max_pool.fprop:n1c2_i5x4_f2x2_s2",
    "avg_pool.backward:n1c2_i4x4_f2x2_s2_p1:cip=0",
    "lp_pool.fprop:n1c1_i4_f2_s2",
    "max_unpool.jvp:n1c1_i2_o4",
    "adaptive_max_pool.double_backward:n1c1_i5_o2",
    "resize.double_backward:n1c2_i4x3_o6x5",
    "grid_sample.backward:n1c1_i3x3_o2x2",
    "pixel_shuffle.backward:n1c4_i2x2",
    "batch_norm.fprop:n2c2_i3",
    "batch_norm_eval.double_backward:n2c2_i3:weight=0",
    "group_norm.backward:n2c4g2_i3:bias=0",
    "layer_norm.jvp:n2c2_i3",
    "gelu.double_backward:n1c2_i3",
    "prelu.jvp:n1c2_i3",
    "cross_entropy.backward:n2c3_i2:weight=1",
    "nll_loss.double_backward:n2c3_i1",
]
GAPS = "not supported|not implemented|no entry for|does not support it|at most half|half of kernel"


def drawn():
    """Yield two small cases of each op and pass."""
    from convref.conformance.generate import Axes, chunk_cases

    for op, pass_ in SIGNATURE:
        axes = Axes(5, (op,), (pass_,), ("f32",), ("int",), size=25)
        small = (case for case in chunk_cases(axes, 0) if case.call.memory() < 1 << 14)
        yield from map(str, islice(small, 2))


def printed_expectations(line, printed):
    """Check that what a program prints as expected is what the oracle gives; return how many."""
    case, names = parse(line), {"nan": np.nan, "inf": np.inf, "__builtins__": {}}
    results = zip(case.call.signature.results, evaluate(case.call, *operands(case)))
    oracle = {role: r.tolist() for role, r in results if r is not None}
    told = [row.split(" = ") for row in printed.splitlines() if row.startswith("expected ")]
    for name, text in told:
        np.testing.assert_equal(eval(text, names), oracle[name.removeprefix("expected ")], line)
        assert f"\n{name.removeprefix('expected ')} = " in f"\n{printed}"
    return len(told)


@pytest.mark.parametrize("name", ["torch", "jax", "tensorflow", "numpy"])
def test_programs_of_every_op_print_what_the_oracle_gives(name):
    """A few by default, two of each op and pass nightly; a library refuses what it lacks."""
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"needs {name}")
    nightly = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
    lines = list(drawn()) if nightly else OTHERS[:: 1 if name == "torch" else 4]
    programs = {}
    for line in [*lines, "relu.fprop:n1c1_i3", "conv.fprop:n1c2k2g2_i4_f2_s2_p1,0"]:
        with suppress(UnsupportedError):
            programs[line] = getattr(exports, f"to_{name}")(parse(line))
    assert len(programs) >= (len(OTHERS) if name == "torch" else 2)
    wrapped = [
        f"try:\n{indent(p, '  ')}\nexcept Exception as e:\n  print('gap', e)"
        for p in programs.values()
    ]
    told = 0
    for line, (printed, *_) in zip(programs, run(wrapped), strict=True):
        if printed.startswith("gap"):
            assert re.search(GAPS, printed), f"{line}: {printed}"
            continue
        told += printed_expectations(line, printed)
    assert told >= len(programs) // 2


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("conv.fprop:n1c1k1_i3_f2:dt=obj", "no convolution of obj"),
        ("conv.dgrad:n1c1k1_i3_f2:dt=i32", "differentiates no integers"),
        ("conv.fprop:n1c1k1_i3_f2:math=tf32x3", "no tf32x3"),
        ("conv.backward:n1c1k1_i3_f2:mask=000", "requests no result"),
        ("unfold.fprop:n1c1_i3_f2", "no rank 1"),
    ],
)
def test_torch_gives_its_reason(line, reason):
    with pytest.raises(UnsupportedError, match=reason):
        exports.to_torch(parse(line))


def test_jax_refuses_complex_cotangents():
    with pytest.raises(UnsupportedError, match="does not conjugate"):
        exports.to_jax(parse("conv.dgrad:n1c1k1_i3_f2:dt=c64"))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('g1mb50_ic3ih224oc64oh112_kh7sh2ph3_n"resnet_50:conv1"', "n50c3k64_i224x224_f7x7_s2_p3"),
        ("ic3ih224oc64oh112kh7sh2ph3*4", "n2c3k64_i224x224_f7x7_s2_p3"),
        ("ic3iw9_oc4ow4_kw3_sw2_nname with spaces", "n2c3k4_i9_f3_s2"),
        ("mb1ic1id5oc1kd3pd1", "n1c1k1_i5x5x5_f3x3x3_p1"),
        ("mb1ic1id5ih4oc1kd3kh2", "n1c1k1_i5x4x4_f3x2x2"),
        ("mb1_ic2ih5iw7oc2_kh3kw1_ph1pw0_dh1dw0", "n1c2k2_i5x7_f3x1_p1x0_d2x1"),
        ("mb1ic1iw6oc1ow6kw4pw1", "n1c1k1_i6_f4_p1,2"),
        ("mb1ic1iw6oc1ow6kw3", "n1c1k1_i6_f3_p1"),
        ("g4mb1ic4iw8oc4kw3", "n1c4k4g4_i8_f3"),
        ("mb0ic1iw8oc1kw3", "n0c1k1_i8_f3"),
        ("--dir=FWD_D mb1ic1iw6oc1kw3", "n1c1k1_i6_f3:bias=0"),
        ("--deconv mb1ic1iw6oc1ow13kw3sw2", "n1c1k1_i6_f3_s2:t=1"),
        ("--deconv mb1ic1iw6oc1ow12kw3sw2pw1", "n1c1k1_i6_f3_s2_p1:t=1:op=1"),
    ],
)
def test_known_descriptors(text, line):
    assert exports.from_benchdnn(text) == parse_problem(f"conv:{line}")


PROBLEMS = [
    "n2c3k4_i8x8_f3x3_p1",
    "n1c4k8g2_i9x7_f3x1_s2x3_p1x0_d2x1",
    "n1c1k1_i6_f4_p1,2",
    "n1c1k1_i6_f2_p3,0",
    "n1c1k1_i5x4x3_f1x2x3:bias=0",
    "n0c1k1_i5_f3",
    "n1c2k2g2_i4x4_f3x3_s2_p1:t=1:op=1",
    "n1c2k2_i4_f3_s2_p0,1:t=1:bias=0",
]


@pytest.mark.parametrize("line", PROBLEMS)
def test_descriptors_round_trip(line):
    problem = parse_problem(f"conv:{line}")
    assert exports.from_benchdnn(exports.to_benchdnn(problem)) == problem


def test_any_expressible_problem_comes_back_with_the_same_result():
    rng = np.random.default_rng(0)
    sums = 0
    for _ in range(300):
        stride, dilation, taps = (int(rng.integers(1, 4)) for _ in range(3))
        lo, hi = (int(rng.integers(-1, 4)) for _ in range(2))
        line = f"conv:n1c2k2_i{rng.integers(3, 9)}_f{taps}_s{stride}_p{lo},{hi}_d{dilation}"
        try:
            problem = parse_problem(line + (":t=1" if rng.integers(2) else ""))
            back = exports.from_benchdnn(exports.to_benchdnn(problem))
        except (ConvrefError, UnsupportedError):
            continue
        assert replace(back, padding=problem.padding, output_padding=0) == problem
        assert back.output == problem.output
        assert back.padding[0][0] == lo
        assert back.macs("y") == problem.macs("y")
        assert exports.to_benchdnn(back) == exports.to_benchdnn(problem)
        sums += 1
    assert sums > 100


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "ic is absent"),
        ("ic3oc4", "no size"),
        ("ic3ih8oc4", "kh is 0"),
        ("ic3ih8oc4kh3zz1", "is not a field"),
        ("ic3ic3ih8oc4kh3", "ic is given twice"),
        ("--pool ic3ih8oc4kh3", "option is --pool"),
        ("ic3ih8oc4kh3" + "9" * 4000, "benchdnn"),
        ("g2ic3ih8oc4kh3", "multiple of groups"),
    ],
)
def test_message_names_the_malformed_field(text, part):
    with pytest.raises(ConvrefError, match=part):
        exports.from_benchdnn(text)


@pytest.mark.parametrize(
    "line", ["n1c1k1_i5_f3:flip=1", "n1c1k1_i5_f3_p-1", "n1c1k1_i5_f3_p0,-1", "n1c0k1_i5_f3"]
)
def test_benchdnn_gives_its_reason(line):
    with pytest.raises(UnsupportedError, match="descriptor"):
        exports.to_benchdnn(parse_problem(f"conv:{line}"))


@pytest.mark.parametrize(
    ("line", "flags"),
    [
        (
            "conv.fprop:n2c4k6g2_i9x8_f3x1_s2x1_p1x0_d1x2:dt=f16:mem=nhwc",
            "convfp16 -n 2 -c 4 -H 9 -W 8 -k 6 -y 3 -x 1 -p 1 -q 0 -u 2 -v 1 -l 1 -j 2 -g 2 -b 1"
            " --in_layout NHWC --fil_layout NHWC --out_layout NHWC -F 1 -V 1",
        ),
        (
            "conv.backward:n1c1k1_i5_f3:t=1:mask=110",
            "conv -n 1 -c 1 -H 1 -W 5 -k 1 -y 1 -x 3 -p 0 -q 0 -u 1 -v 1 -l 1 -j 1"
            " -m trans -Y 0 -X 0 -F 6 -V 1",
        ),
        (
            "conv.dgrad:n1c1k1_i5x4x3_f3x2x1_p1x0x0",
            "conv -n 1 -c 1 --spatial_dim 3 --in_d 5 -H 4 -W 3 -k 1 --fil_d 3 -y 2 -x 1"
            " --pad_d 1 -p 0 -q 0 --conv_stride_d 1 -u 1 -v 1 --dilation_d 1 -l 1 -j 1 -F 2 -V 1",
        ),
    ],
)
def test_miopen_flags(line, flags):
    assert exports.to_miopen(parse(line).call) == f"MIOpenDriver {flags}"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("conv.fprop:n1c1k1_i5_f3_p1,0", "one padding per axis"),
        ("conv.fprop:n1c1k1_i5_f3:dt=f64", "no f64"),
        ("conv.fprop:n1c1k1_i5_f3:flip=1", "flipped"),
        ("conv.jvp:n1c1k1_i5_f3", "forward and backward"),
        ("conv.bgrad:n1c1k1_i5_f3", "only together"),
        ("conv.fprop:n1c1k1_i5_f3:mem=x.step2w", "dense tensors"),
        ("conv.fprop:n1c1k1_i5x5_f3x3:mem=x.hwnc", "stored as hwnc"),
        ("unfold.fprop:n1c1_i5_f3", "runs convolutions"),
    ],
)
def test_miopen_gives_its_reason(line, reason):
    with pytest.raises(UnsupportedError, match=reason):
        exports.to_miopen(parse(line).call)
