"""The list of kernels: required fields of every row, and that a row is all a kernel needs."""

from dataclasses import replace

import pytest

from convref.case import parse

pytest.importorskip("triton", reason="triton is not installed")

from convref_triton.common.geometry import operands
from convref_triton.conv import gather
from convref_triton.plan import choose, kernels
from convref_triton.plan.choose import offered, plan
from convref_triton.plan.kernels import BY_NAME, KERNELS, serving

CALL = parse("conv.fprop:n2c64k64_i8x8_f3x3_p1:bias=0:dt=bf16:mem=nhwc").call


def test_names_are_unique_and_sources_known():
    assert len(BY_NAME) == len(KERNELS)
    assert all(len(spec.source) == 12 for spec in KERNELS)
    assert all(spec.kernels or spec.digest for spec in KERNELS)


@pytest.mark.parametrize("kind", ["gather", "scatter", "correlate", "total", "unfold", "fold"])
def test_the_last_proven_kernel_of_a_kind_refuses_nothing(kind):
    *_, last = (spec for spec in serving(kind) if not spec.unproven)
    assert last.refusal(None) is None


def test_every_kernel_of_a_result_has_lines_and_a_choice_of_tile():
    for spec in KERNELS:
        if not spec.whole_call:
            assert spec.lines
            assert spec.work is not None or spec.choose is not None


def test_one_row_adds_a_kernel(monkeypatch):
    """A row is offered, estimated and planned without any other change."""
    work = gather.gather_work
    fast = replace(
        gather.SPEC, name="fast", work=lambda task, tile: work(task, tile)._replace(reached=7.0)
    )
    every = (fast, *KERNELS)
    monkeypatch.setattr(kernels, "KERNELS", every)
    monkeypatch.setattr(choose, "BY_NAME", {spec.name: spec for spec in every})
    assert {"fast", "gather"} <= {choice.kernel for choice in offered(CALL, operands(CALL))}
    assert plan(CALL, operands(CALL)).reason.startswith("y: fast ")
