"""Checks of kernels that might hang, on a GPU: each runs in a process of its own, with a limit.

A file of tests names kernels and problems, and as a program runs one check: `python FILE CHECK`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from math import prod
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")
pytest.importorskip("convref_triton.hopper.ring", reason="another Gluon", exc_type=ImportError)

from hypothesis import given, settings
from hypothesis import strategies as st

from convref.arrays import like, to_torch
from convref.case import parse
from convref.conformance.operands import operands as arrays_of
from convref.judge import judge
from convref_triton.backend import backend
from convref_triton.common.geometry import operands as layouts
from convref_triton.compile import aot
from convref_triton.hopper import gluon
from convref_triton.plan.choose import offered, plan
from convref_triton.run import gpu

LIMIT_S = 600
NAMES: list[str] = []  # of the kernels that are checked


def why_unavailable():
    """Return why the kernels do not run here, empty if they do."""
    if not gluon.KERNELS:
        return "the kernels are for another Gluon"
    if not torch.cuda.is_available():
        return "torch finds no CUDA device"
    major, minor = torch.cuda.get_device_capability()
    return "" if major == 9 else f"sm_{major}{minor} has no wgmma"


def gluon_choices(call):
    """Return the choices for a call on the card that are checked."""
    return [choice for choice in offered(call, layouts(call)) if choice.kernel in NAMES]


def to_gpu(array):
    """Return an array on the card, with the strides that it has."""
    if array is None:
        return None
    near = to_torch(array)
    far = torch.empty_strided(near.shape, near.stride(), dtype=near.dtype, device="cuda")
    return far.copy_(near)


def run_on_card(call, given, choice=None):
    """Return the results of a call on the card."""
    return backend.run(call, *given, configuration=choice)


def compiled(calls):
    """Compile all that calls may be run with, side by side."""
    made = [plan(call, layouts(call), choice) for call in calls for choice in gluon_choices(call)]
    wanted = {s.key: s for each in made for s in gpu.specializations(each)}
    refused = [r for r in aot.compile_all(wanted.values(), "sm_90") if isinstance(r, Exception)]
    assert not refused


def check_case(case, choices=None):
    """Check every choice for a case against the oracle."""
    call, arrays = case.call.on("cuda"), arrays_of(case)
    for choice in choices or gluon_choices(call):
        results = run_on_card(call, [to_gpu(array) for array in arrays], choice)
        template = next(array for array in arrays if array is not None)
        near = tuple(None if r is None else like(r.cpu(), template) for r in results)
        told = judge(case.call, arrays, near, backend.numerics(call))
        assert told, (choice, case, told)


def lines(found):
    """Check small problems against the oracle: ranks, groups, padding, views, infinities, NaN."""
    fills = ("int", "normal", "inf", "nan")
    text = (line.replace("fill=int", f"fill={fills[n % 4]}") for n, line in enumerate(found))
    cases = [parse(line) for line in text]
    compiled([case.call.on("cuda") for case in cases])
    for case in cases:
        assert gluon_choices(case.call.on("cuda")), case
        check_case(case)


def check_generated(cases):
    """Check problems that a strategy draws against the oracle."""

    @settings(max_examples=12, derandomize=True, database=None, deadline=None)
    @given(cases, st.integers(0, 99))
    def check(case, pick):
        call = case.call.on("cuda")
        found = gluon_choices(call) if all(prod(call.problem.shape(r)) for r in call.wanted) else []
        check_case(case, [found[pick % len(found)]] if found else [])

    check()


# Many tiles a program; odd numbers of them, and fewer than there are programs.
LARGE = (
    "conv.fprop:n32c128k256_i57x55_f3x3_p1:dt=bf16:mem=nhwc:dev=cuda",
    "conv.dgrad:n16c256k64_i40x40_f3x3_p1:dt=f16:mem=nhwc:dev=cuda",
    "conv.fprop:n64c64k1000_i28x28_f1x1:dt=bf16:mem=nhwc:dev=cuda",
    "conv.wgrad:n32c256k192_i28x28_f3x3_p1:dt=bf16:mem=nhwc:dev=cuda",
    "conv.fprop:n16c128k192_i56x56_f3x3_s2_p1:dt=bf16:mem=nhwc:dev=cuda",
    "conv.dgrad:n16c128k192_i55x56_f3x3_s2_p1:dt=bf16:mem=nhwc:dev=cuda",
    "conv.dgrad:n32c256k512_i57x56_f1x1_s2:dt=bf16:mem=nhwc:dev=cuda",
    "conv.wgrad:n16c128k192_i56x56_f1x1_s2:dt=bf16:mem=nhwc:dev=cuda",
    "conv.wgrad:n64c512k128_i14x14_f1x1:dt=f16:mem=nhwc:dev=cuda",
)


def draw_operands(call, low=-3, high=4):
    """Return operands on the card: integers, whose sums are exact if they are few and small."""
    torch.manual_seed(7)
    given = []
    for role in call.roles:
        tensor = layouts(call).get(role)
        if tensor is None:
            given.append(None)
            continue
        kind = {"bf16": torch.bfloat16, "f16": torch.float16}[call.dtype]
        made = torch.empty_strided(tensor.shape, tensor.strides, dtype=kind, device="cuda")
        thin = torch.rand(tensor.shape, device="cuda") < 0.05  # or sums would be rounded
        given.append(made.copy_(torch.randint(low, high, tensor.shape, device="cuda") * thin))
    return given


def exact():
    """Compare large problems with our other kernels, exactly, in launches back to back."""
    calls = [parse(line).call for line in LARGE]
    compiled(calls)
    for call in calls:
        given = draw_operands(call)
        (wanted,) = (r for r in run_on_card(call, given) if r is not None)
        for choice in gluon_choices(call):
            results = [run_on_card(call, given, choice) for _ in range(10)]
            torch.cuda.synchronize()
            for found in results:
                assert all(torch.equal(r, wanted) for r in found if r is not None), choice


def check_repeatable():
    """Check that random data give the same bits twenty times, on two streams at once."""
    calls = [parse(line).call for line in LARGE]
    compiled(calls)
    streams = [torch.cuda.Stream() for _ in range(2)]
    for call in calls:
        given = [None if g is None else torch.randn_like(g) for g in draw_operands(call)]
        torch.cuda.synchronize()
        for choice in gluon_choices(call):
            results = []
            for n in range(20):
                with torch.cuda.stream(streams[n % 2]):
                    results += [r for r in run_on_card(call, given, choice) if r is not None]
            torch.cuda.synchronize()
            assert all(torch.equal(results[0], other) for other in results[1:]), choice


def graphs():
    """Replay a captured graph on operands that have changed since."""
    calls = [parse(line).call for line in LARGE]
    compiled(calls)
    for call in calls:
        for choice in gluon_choices(call):
            given = draw_operands(call)
            run_on_card(call, given, choice)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                recorded = run_on_card(call, given, choice)
            for operand in given:
                if operand is not None:
                    operand.mul_(-2)
            graph.replay()
            fresh = run_on_card(call, given, choice)
            torch.cuda.synchronize()
            pairs = [pair for pair in zip(recorded, fresh) if pair[0] is not None]
            assert all(torch.equal(*pair) for pair in pairs), choice


def large():
    """Do all of this in one process, which compiles once."""
    assert any(gluon_choices(parse(line).call) for line in LARGE)
    exact()
    check_repeatable()
    graphs()


def in_child(command, limit_s=LIMIT_S):
    """Return (exit status or None if it did not end, output) of another Python process."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    command = [sys.executable, *command]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired as late:
        return None, f"no end after {limit_s} s: {late.stdout!r}"
    return done.returncode, done.stdout + done.stderr


def one_check(file, name):
    """Run a check of a file of tests in a process of its own."""
    status, said = in_child([str(Path(file).resolve()), name])
    assert status == 0, said[-2000:]


on_a_gpu = pytest.mark.skipif(why_unavailable() != "", reason=why_unavailable() or "it runs here")
