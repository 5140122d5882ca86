"""The kernels in Gluon on a GPU, each check in a process of its own: one that hangs is a failure.

`python tests/triton/test_gluon_gpu.py NAME` runs one check here and now.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")
pytest.importorskip("convref_triton.ring", reason="another Gluon", exc_type=ImportError)

from hypothesis import given, settings
from hypothesis import strategies as st

from convref.arrays import like, to_torch
from convref.conformance.operands import operands as arrays_of
from convref.judge import judge
from convref.line import parse
from convref_triton import aot, gpu, race
from convref_triton.backend import backend
from convref_triton.geometry import operands as lying
from convref_triton.plan import offered, plan

LIMIT_S = 90
NAMES = sorted({k.__name__.rpartition(".")[2] for row in race.KERNELS.values() for k in row})


def why_not():
    """Return why the kernels do not run here, empty if they do."""
    if not race.KERNELS:
        return "the kernels are for another Gluon"
    if not torch.cuda.is_available():
        return "torch sees no CUDA device"
    major, minor = torch.cuda.get_device_capability()
    return "" if major == 9 else f"sm_{major}{minor} has no warp groups that multiply"


def on_card(call):
    """Return the call with its operands on the card."""
    return replace(call, specs=tuple(replace(spec, device="cuda") for spec in call.specs))


def raced(call):
    """Return the choices for a call on the card that are in Gluon."""
    return [choice for choice in offered(call, lying(call)) if choice.kernel in NAMES]


def moved(array):
    """Return an array on the card, with the strides that it has."""
    if array is None:
        return None
    near = to_torch(array)
    far = torch.empty_strided(near.shape, near.stride(), dtype=near.dtype, device="cuda")
    return far.copy_(near)


def computed(call, given, choice=None):
    """Return the results of a call on the card."""
    return backend.run(call, *given, configuration=choice)


def compiled(calls):
    """Compile all that calls may be run with, side by side."""
    made = [plan(call, lying(call), choice) for call in calls for choice in raced(call)]
    wanted = {s.key: s for each in made for s in gpu.specialisations(each)}
    refused = [r for r in aot.compile_all(wanted.values(), "sm_90") if isinstance(r, Exception)]
    assert not refused


def counted():
    """A program is launched for each multiprocessor of the card, where there is work for all."""
    here = gpu.cuda(torch.cuda.current_device())
    assert here.sms == torch.cuda.get_device_properties(here.place).multi_processor_count
    call = on_card(parse("conv.fprop:n64c64k64_i64x64_f3x3_p1:dt=bf16:mem=nhwc").call)
    (launch,) = plan(call, lying(call), raced(call)[0], sms=here.sms).steps
    assert launch.grid == (here.sms, 1, 1)


def right(case, choices=None):
    """Hold every choice for a case to the oracle."""
    call, arrays = on_card(case.call), arrays_of(case)
    for choice in choices or raced(call):
        results = computed(call, [moved(array) for array in arrays], choice)
        template = next(array for array in arrays if array is not None)
        near = tuple(None if r is None else like(r.cpu(), template) for r in results)
        told = judge(case.call, arrays, near, backend.numerics(call))
        assert told, (choice, case, told)


def small(lines):
    """Hold small problems to the oracle: ranks, groups, padding, views, infinities, NaN."""
    fills = ("int", "normal", "inf", "nan")
    text = (line.replace("fill=int", f"fill={fills[n % 4]}") for n, line in enumerate(lines))
    cases = [parse(line) for line in text]
    compiled([on_card(case.call) for case in cases])
    for case in cases:
        assert raced(on_card(case.call)), case
        right(case)


def lines():
    """Hold each kernel in Gluon to the oracle."""
    from test_gluon_classes import LINES as CLASSES
    from test_gluon_numbers import LINES

    small((*LINES, *CLASSES))


def halos():
    """Hold the kernels whose taps share blocks to the oracle."""
    from test_gluon_halo import LINES
    from test_gluon_halo_wgrad import LINES as COTANGENTS

    NAMES[:] = ["gluon_halo", "gluon_halo_wgrad"]
    small(LINES + COTANGENTS)


def rows():
    """Hold the carried kernels to the oracle, then to the other kernels, and to themselves."""
    from test_im2col import LINES

    NAMES[:] = ["im2col"]
    small(LINES)
    large()


def generated():
    """Hold generated problems to the oracle."""
    from test_gluon_numbers import filters, strided

    @settings(max_examples=12, derandomize=True, database=None, deadline=None)
    @given(st.one_of(strided(), filters()), st.integers(0, 99))
    def check(case, pick):
        call = on_card(case.call)
        found = raced(call) if all(prod(call.problem.shape(r)) for r in call.wanted) else []
        right(case, [found[pick % len(found)]] if found else [])

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


def drawn(call, low=-3, high=4):
    """Return operands on the card: integers, of which sums are exact if they are few and small."""
    torch.manual_seed(7)
    given = []
    for role in call.roles:
        tensor = lying(call).get(role)
        if tensor is None:
            given.append(None)
            continue
        kind = {"bf16": torch.bfloat16, "f16": torch.float16}[call.dtype]
        made = torch.empty_strided(tensor.shape, tensor.strides, dtype=kind, device="cuda")
        thin = torch.rand(tensor.shape, device="cuda") < 0.05  # or sums would be rounded
        given.append(made.copy_(torch.randint(low, high, tensor.shape, device="cuda") * thin))
    return given


def exact():
    """Hold large problems to our other kernels, exactly, while launches follow each other."""
    calls = [parse(line).call for line in LARGE]
    compiled(calls)
    for call in calls:
        given = drawn(call)
        (wanted,) = (r for r in computed(call, given) if r is not None)
        for choice in raced(call):
            results = [computed(call, given, choice) for _ in range(10)]
            torch.cuda.synchronize()
            for found in results:
                assert all(torch.equal(r, wanted) for r in found if r is not None), choice


def repeated():
    """Hold random data to the same bits, twenty times, on two streams at once."""
    calls = [parse(line).call for line in LARGE]
    compiled(calls)
    streams = [torch.cuda.Stream() for _ in range(2)]
    for call in calls:
        given = [None if g is None else torch.randn_like(g) for g in drawn(call)]
        torch.cuda.synchronize()
        for choice in raced(call):
            results = []
            for n in range(20):
                with torch.cuda.stream(streams[n % 2]):
                    results += [r for r in computed(call, given, choice) if r is not None]
            torch.cuda.synchronize()
            assert all(torch.equal(results[0], other) for other in results[1:]), choice


def graphs():
    """Replay a captured graph on operands that have changed since."""
    calls = [parse(line).call for line in LARGE]
    compiled(calls)
    for call in calls:
        for choice in raced(call):
            given = drawn(call)
            computed(call, given, choice)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                recorded = computed(call, given, choice)
            for operand in given:
                if operand is not None:
                    operand.mul_(-2)
            graph.replay()
            fresh = computed(call, given, choice)
            torch.cuda.synchronize()
            pairs = [pair for pair in zip(recorded, fresh) if pair[0] is not None]
            assert all(torch.equal(*pair) for pair in pairs), choice


def large():
    """Do all of this in one process, which compiles once."""
    exact()
    repeated()
    graphs()


CHECKS = {check.__name__: check for check in (lines, halos, counted, generated, large, rows)}


def in_child(command, limit_s=LIMIT_S):
    """Return (exit status or None if it did not end, output) of another Python process."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    command = [sys.executable, *command]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired as late:
        return None, f"no end after {limit_s} s: {late.stdout!r}"
    return done.returncode, done.stdout + done.stderr


@pytest.mark.gpu
@pytest.mark.skipif(why_not() != "", reason=why_not() or "it runs here")
@pytest.mark.parametrize("name", CHECKS)
def test_on_a_gpu(name):
    status, said = in_child([str(Path(__file__).resolve()), name])
    assert status == 0, said[-2000:]


def test_what_hangs_or_fails_is_a_failure():
    assert in_child(["-c", "while True: pass"], limit_s=0.5)[0] is None
    status, said = in_child(["-c", "raise SystemExit('wrong')"])
    assert (status, said.strip()) == (1, "wrong")


if __name__ == "__main__":
    CHECKS[sys.argv[1]]()
