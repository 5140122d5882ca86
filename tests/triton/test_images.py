"""Pools, norms and resizing on a device: the stand-in for a driver, and the calls of the suites."""

from math import prod

import pytest
import torch

from convref.case import parse

pytest.importorskip("triton", reason="triton is not installed")

from convref_bench.gpu import steps
from convref_bench.suites import suite
from convref_triton.backend import backend
from convref_triton.common import images
from convref_triton.common.geometry import operands
from convref_triton.interpreter import MOST_PROGRAMS, TYPES
from convref_triton.norm import norm
from convref_triton.plan.builder import NEW
from convref_triton.plan.choose import offered, plan, refusal
from convref_triton.pool import pool, whole
from convref_triton.resize import resize
from convref_triton.run import gpu

OURS = (*pool.SPEC.serves, *norm.SPEC.serves, *resize.SPEC.serves)


def points():
    named = steps.points(suite.names(), "bf16,f32", ops=OURS)
    return [call for _, _, call in named]


def test_every_call_of_the_suites_has_a_kernel_or_a_reason():
    """Calls that the bench times are computed on grids within the limits, or refused."""
    refused = set()
    for call in points():
        if reason := refusal(call):
            refused.add((call.op, call.pass_, reason.partition(":")[0]))
            continue
        launches = plan(call, operands(call)).launches
        assert launches
        for launch in launches:
            assert all(0 < n <= most for n, most in zip(launch.grid, MOST_PROGRAMS))
    assert refused <= {("batch_norm", "jvp", "no kernel for batch_norm.jvp")}


def test_large_images_fill_a_card():
    """But where one window is an image: a program has the whole of it."""
    for call in points():
        if refusal(call) is None and call.bytes_moved() > 2**25:
            launches = plan(call, operands(call)).launches
            largest = max(prod(launch.grid) for launch in launches)
            assert largest >= images.SMS or launches[0].kernel is whole.pool_whole_kernel


LINES = {
    "max_pool.fprop:n2c64_i16x16_f3x3_s2_p1:dt=bf16:mem=nhwc": 1,
    "max_pool.backward:n2c64_i16x16_f3x3_s2_p1:dt=bf16:mem=nhwc": 1,
    "adaptive_avg_pool.fprop:n2c64_i7x7_o1x1:dt=bf16:mem=nhwc": 1,
    "batch_norm.fprop:n2c64_i16x16:dt=bf16:mem=nhwc": 3,
    "batch_norm.backward:n2c64_i16x16:dt=bf16:mem=nhwc": 3,
    "resize.fprop:n2c64_i8x8_o16x16:dt=bf16:mem=nhwc": 1,
    "resize.backward:n2c64_i8x8_o16x16:dt=bf16:mem=nhwc": 1,
}


@pytest.mark.parametrize("line", LINES)
def test_a_call_is_launched_on_its_tensors(line, device):
    call = parse(line).call
    tensors = {
        role: torch.empty_strided(known.shape, known.strides, dtype=TYPES[known.dtype][0])
        for role, known in operands(call).items()
    }
    made = plan(call, operands(call))
    ready = gpu.prepare(made, device)
    device.driver.log()
    results = dict(zip(made.buffers, ready([tensors[role] for role in ready.roles])))
    launched = [text for text in device.driver.log() if text.startswith("launch")]
    assert len(launched) == LINES[line]
    for role in call.wanted:
        found = results[role if role in results else f"{role}{NEW}"]
        assert tuple(found.shape) == call.problem.shape(role)
        assert found.dtype == TYPES[call.dtype_of(role)][0]


def test_compile_all_counts_binaries():
    calls = [parse(line).call for line in list(LINES)[:4:3]]
    assert backend.compile_all("sm_90", 1, calls) == "4 binaries, 0 refused"
    every = [choice for call in calls for choice in offered(call, operands(call))]
    told = backend.compile_some("sm_90", 1, [(calls[0], offered(calls[0], operands(calls[0])))])
    assert told == f"{len(offered(calls[0], operands(calls[0])))} binaries, 0 refused"
    assert len(set(every)) == len(every)
