"""Every op under the capture of a CUDA graph, and nothing packed that a replay would miss."""

from __future__ import annotations

import pytest
import torch

from convref.arrays import to_torch
from convref.case import parse
from convref.conformance.operands import operands

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton.backend import backend
from convref_triton.common.geometry import operands as layouts
from convref_triton.plan.choose import WINDOWED, plan
from convref_triton.plan.kernels import KERNELS
from convref_triton.run import packed

LINES = (
    "conv.fprop:n8c64k64_i28x28_f3x3_p1:dt=bf16:mem=nhwc:dev=cuda",
    "conv.fprop:n8c3k64_i56x56_f3x3_p1:dt=f16:mem=nhwc:dev=cuda",
    "conv.fprop:n2c24k40_i9x8_f3x3_s2_p1:dt=f16:dev=cuda",
    "conv.fprop:n2c64k64_i9x8_f3x3_s2_p1:dev=cuda",
    "conv.fprop:n1c1280k320_i4x4_f3x3_p1:dt=bf16:mem=nhwc:dev=cuda",
    "conv.fprop:n8c64k64g64_i56x56_f3x3_p1:dt=bf16:mem=nhwc:dev=cuda",
    "conv.fprop:n8c64k64g32_i28x28_f3x3_p1:dt=bf16:mem=nhwc:dev=cuda",
    "conv.jvp:n2c64k64_i9x8_f3x3_p1:dt=bf16:mem=nhwc:dev=cuda",
    "conv.backward:n2c64k64_i9x8_f3x3_p1:dt=bf16:mem=nhwc:dev=cuda",
    "conv.backward:n8c64k64g64_i56x56_f3x3_p1:dt=bf16:mem=nhwc:dev=cuda",
    "conv.double_backward:n2c64k64_i9x8_f3x3_p1:dt=bf16:mem=nhwc:dev=cuda",
    "conv.wgrad:n8c64k64g64_i56x56_f3x3_p1:dt=bf16:dev=cuda",
    "unfold.fprop:n2c6_i9x8_f3x3_p1:dt=bf16:dev=cuda",
    "fold.fprop:n2c6_i9x8_f3x3_s2_p1:dt=bf16:dev=cuda",
)


def test_the_list_has_every_op_and_kernel_of_them():
    taken = set()
    for line in LINES:
        call = parse(line).call
        taken |= {s.kernel.__name__ for s in plan(call, layouts(call)).launches}
    kernels = {spec.name for spec in KERNELS}
    ops = {parse(line).call.op for line in LINES}
    assert ops <= set(WINDOWED)
    # Parts are the kernel of gather; fold and the sum of parts have no module of their own.
    wanted = {"gather", "flat", "dual", "depthwise", "direct", "wgrad", "direct_wgrad"}
    wanted |= {"bgrad", "unfold", "fold", "reduce"}
    assert wanted <= taken
    assert wanted - {"fold", "reduce"} <= kernels
    assert any("split" in plan(c, layouts(c)).reason for c in (parse(line).call for line in LINES))


def present(line):
    """Return the call and its operands on the GPU, in the memory layouts of the line."""
    case = parse(line)
    made = []
    for array in operands(case):
        if array is None:
            made.append(None)
            continue
        near = to_torch(array)
        far = torch.empty_strided(near.shape, near.stride(), dtype=near.dtype, device="cuda")
        made.append(far.copy_(near))
    return case.call, made


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")
@pytest.mark.parametrize("kept", [0, 2**28], ids=["each call", "kept"])
@pytest.mark.parametrize("line", LINES)
def test_graph_replay_reads_current_operands(line, kept):
    call, given = present(line)
    packed.keep(kept)
    try:
        backend.run(call, *given)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            recorded = backend.run(call, *given)
        for operand in given:
            if operand is not None:
                operand.mul_(-2)
        graph.replay()
        fresh = backend.run(call, *given)
        torch.cuda.synchronize()
    finally:
        packed.keep(0)
    for one, other in zip(recorded, fresh):
        assert (one is None) == (other is None)
        if one is not None:
            assert torch.equal(one, other)
